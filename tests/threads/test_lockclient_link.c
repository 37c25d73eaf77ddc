/*
 * The way to the lock server (fs/lockclient/link.h), with a peer at its other end that speaks
 * bytes. What many threads send arrives in order however slowly it is read. The tests also look at
 * what is told of a server that cannot be reached, says no welcome, or falls silent, and at which
 * thread reads what it says. Urgent frames pass a long clean-up.
 */
#include <arpa/inet.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/wire_cluster.h"
#include "core/wire_frame.h"
#include "fs/lockclient/link.h"
#include "fs/lockengine/outbox.h"
#include "net/munge.h"

#define PATIENCE (60 * G_TIME_SPAN_SECOND)
#define THREADS  4
#define PIECES   64    /* that each thread sends */
#define WORDS    4096  /* in a piece: all together are more than a socket holds */
#define RELEASES 10000 /* likewise */

/* --- links: with a thread that runs them --- */

typedef struct {
    GMainContext *context;
    pthread_t thread;
    atomic_bool ends;
    GPtrArray *links; /* of Link */
} Runner;

typedef struct {
    QosLink *link;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gboolean is_welcome;
    char *reason;             /* of the first failure; NULL: none */
    guint32 added, handed_on; /* words to be sent, and handed to the link */
    GByteArray *clean_up;     /* to be sent as well; owned, as the next */
    GByteArray *urgent;
    guint64 heard;    /* the last DEADLOCK; 0: none */
    guint frames;     /* that `frame` took: a bit for each type */
    pthread_t teller; /* the thread that told the latest of these */
} Link;

static void hello(QosWireHello *ret_hello, gpointer arg G_GNUC_UNUSED)
{
    *ret_hello = (QosWireHello){.version = QOS_WIRE_VERSION, .id = 1, .incarnation = 1};
    g_strlcpy(ret_hello->store, "store", sizeof(ret_hello->store));
}

static gboolean welcomed(const QosWireWelcome *welcome G_GNUC_UNUSED, gpointer arg,
                         GError **error G_GNUC_UNUSED)
{
    Link *link = arg;

    pthread_mutex_lock(&link->lock);
    link->is_welcome = TRUE;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
    return TRUE;
}

static gboolean received(const guint8 *payload G_GNUC_UNUSED, gsize length G_GNUC_UNUSED,
                         gpointer arg G_GNUC_UNUSED)
{
    return TRUE;
}

static gboolean deadlocked(const guint8 *payload, gsize length, gpointer arg)
{
    Link *link = arg;
    guint64 wait;

    g_assert_true(qos_wire_get_deadlock(payload, length, &wait));
    pthread_mutex_lock(&link->lock);
    link->heard = wait;
    link->teller = pthread_self();
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
    return TRUE;
}

static gboolean frame(QosWireType type, const guint8 *payload, gsize length, gpointer arg)
{
    Link *link = arg;

    if (length != 5 || memcmp(payload, "frame", length) != 0)
        return FALSE;
    pthread_mutex_lock(&link->lock);
    link->frames |= 1u << type;
    link->teller = pthread_self();
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
    return TRUE;
}

static GByteArray *urgent(gpointer arg)
{
    Link *link = arg;

    pthread_mutex_lock(&link->lock);
    GByteArray *bytes = g_steal_pointer(&link->urgent);
    pthread_mutex_unlock(&link->lock);
    return bytes;
}

static GByteArray *more(gpointer arg)
{
    Link *link = arg;

    pthread_mutex_lock(&link->lock);
    GByteArray *bytes = g_steal_pointer(&link->clean_up);
    pthread_cond_broadcast(&link->changed);
    if (link->handed_on < link->added)
        bytes = g_byte_array_new();
    for (; link->handed_on < link->added; link->handed_on++)
        g_byte_array_append(bytes, (const guint8 *)&link->handed_on, sizeof(link->handed_on));
    pthread_mutex_unlock(&link->lock);
    return bytes;
}

static void failed(const char *reason, gboolean is_refused G_GNUC_UNUSED, gpointer arg)
{
    Link *link = arg;

    pthread_mutex_lock(&link->lock);
    if (link->reason == NULL)
        link->reason = g_strdup(reason);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

static void *run(void *data)
{
    Runner *runner = data;

    g_main_context_push_thread_default(runner->context);
    for (guint i = 0; i < runner->links->len; i++)
        qos_link_start(((Link *)runner->links->pdata[i])->link);
    while (!atomic_load(&runner->ends))
        g_main_context_iteration(runner->context, TRUE);
    for (guint i = 0; i < runner->links->len; i++)
        qos_link_stop(((Link *)runner->links->pdata[i])->link);
    g_main_context_pop_thread_default(runner->context);
    return NULL;
}

static void link_free(gpointer data)
{
    Link *link = data;

    qos_link_free(link->link);
    pthread_mutex_destroy(&link->lock);
    pthread_cond_destroy(&link->changed);
    g_free(link->reason);
    g_clear_pointer(&link->clean_up, g_byte_array_unref);
    g_clear_pointer(&link->urgent, g_byte_array_unref);
    g_free(link);
}

static void init(Runner *runner)
{
    runner->context = g_main_context_new();
    runner->links = g_ptr_array_new_with_free_func(link_free);
    atomic_store(&runner->ends, FALSE);
}

/* `server` stays. */
static Link *add(Runner *runner, const char *server)
{
    const QosLinkConfig config = {.server = server};
    g_autoptr(GError) error = NULL;
    Link *link = g_new0(Link, 1);
    const QosLinkUser user = {.arg = link,
                              .hello = hello,
                              .welcomed = welcomed,
                              .received = received,
                              .deadlocked = deadlocked,
                              .frame = frame,
                              .more = more,
                              .urgent = urgent,
                              .failed = failed};

    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->changed, NULL);
    link->link = qos_link_new(&config, &user, runner->context, &error);
    g_assert_no_error(error);
    g_ptr_array_add(runner->links, link);
    return link;
}

static void start(Runner *runner)
{
    g_assert_cmpint(pthread_create(&runner->thread, NULL, run, runner), ==, 0);
}

static void clear(Runner *runner)
{
    atomic_store(&runner->ends, TRUE);
    g_main_context_wakeup(runner->context);
    pthread_join(runner->thread, NULL);
    g_ptr_array_unref(runner->links);
    g_main_context_unref(runner->context);
}

static void wait_for(Link *link, gboolean (*is_so)(const Link *link))
{
    const gint64 end = g_get_real_time() + PATIENCE;
    const struct timespec limit = {.tv_sec = end / G_TIME_SPAN_SECOND};

    pthread_mutex_lock(&link->lock);
    while (!is_so(link))
        g_assert_cmpint(pthread_cond_timedwait(&link->changed, &link->lock, &limit), ==, 0);
    pthread_mutex_unlock(&link->lock);
}

static gboolean is_welcome(const Link *link)
{
    return link->is_welcome;
}

static gboolean has_failed(const Link *link)
{
    return link->reason != NULL;
}

/* --- the peer: a Unix socket --- */

typedef struct {
    char *folder;
    char *server; /* "unix:" and its path */
    int listener;
    int socket; /* -1: nobody has come */
} Peer;

static const char *path_of(const Peer *peer)
{
    return peer->server + strlen("unix:");
}

static void peer_init(Peer *peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    peer->folder = g_dir_make_tmp("locklink-XXXXXX", NULL);
    peer->server = g_strdup_printf("unix:%s/socket", peer->folder);
    peer->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    peer->socket = -1;
    g_strlcpy(address.sun_path, path_of(peer), sizeof(address.sun_path));
    g_assert_cmpint(bind(peer->listener, (struct sockaddr *)&address, sizeof(address)), ==, 0);
    g_assert_cmpint(listen(peer->listener, 1), ==, 0);
}

static void peer_clear(Peer *peer)
{
    if (peer->socket >= 0)
        close(peer->socket);
    close(peer->listener);
    g_unlink(path_of(peer));
    g_rmdir(peer->folder);
    g_free(peer->server);
    g_free(peer->folder);
}

static void receive(Peer *peer, void *bytes, gsize length)
{
    g_assert_cmpint(recv(peer->socket, bytes, length, MSG_WAITALL), ==, (gssize)length);
}

static void welcome(Peer *peer, QosTime lease)
{
    const QosWireWelcome welcome = {.version = QOS_WIRE_VERSION,
                                    .id = 99,
                                    .incarnation = 1,
                                    .lease = lease,
                                    .resend = QOS_SECOND,
                                    .group = 64};
    const struct timeval patience = {.tv_sec = PATIENCE / G_TIME_SPAN_SECOND};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    guint8 frame[QOS_WIRE_HELLO_MAX];
    guint32 length;

    peer->socket = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
    g_assert_cmpint(peer->socket, >=, 0);
    setsockopt(peer->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    receive(peer, &length, sizeof(length));
    length = GUINT32_FROM_LE(length);
    g_assert_cmpuint(length, <=, sizeof(frame));
    receive(peer, frame, length);
    qos_wire_put_welcome(bytes, &welcome);
    g_assert_cmpint(send(peer->socket, bytes->data, bytes->len, MSG_NOSIGNAL), ==, bytes->len);
}

/* --- what is sent --- */

static gboolean send_rest(gpointer link)
{
    qos_link_send(link);
    return G_SOURCE_REMOVE;
}

typedef struct {
    Runner *runner;
    Link *link;
} Sender;

/* As fs/lockclient/client.c does it. */
static void *send_pieces(void *data)
{
    const Sender *sender = data;
    Link *link = sender->link;

    for (guint i = 0; i < PIECES; i++) {
        pthread_mutex_lock(&link->lock);
        link->added += WORDS;
        pthread_mutex_unlock(&link->lock);
        if (!qos_link_try_send(link->link))
            g_main_context_invoke(sender->runner->context, send_rest, link->link);
    }
    return NULL;
}

static void check_words(Peer *peer, guint32 first, guint32 count)
{
    for (guint32 i = 0; i < count; i += WORDS) {
        guint32 words[WORDS];
        receive(peer, words, sizeof(words));
        for (guint32 k = 0; k < WORDS; k++)
            g_assert_cmpuint(words[k], ==, first + i + k);
    }
}

/* A peer that reads as they send; then one that reads when all have sent, and none has waited. */
static void test_many_send(void)
{
    const guint32 all = THREADS * PIECES * WORDS;
    pthread_t threads[THREADS];
    Runner runner;
    Peer peer;

    init(&runner);
    peer_init(&peer);
    Link *link = add(&runner, peer.server);
    Sender sender = {&runner, link};
    start(&runner);
    welcome(&peer, 3600 * QOS_SECOND);
    wait_for(link, is_welcome);
    for (guint round = 0; round < 2; round++) {
        for (guint i = 0; i < THREADS; i++)
            g_assert_cmpint(pthread_create(&threads[i], NULL, send_pieces, &sender), ==, 0);
        if (round == 0)
            check_words(&peer, 0, all);
        for (guint i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        if (round == 1)
            check_words(&peer, all, all);
    }
    g_assert_null(link->reason);
    clear(&runner);
    peer_clear(&peer);
}

/* As a mount gives back that many credits. */
static GByteArray *make_clean_up(void)
{
    QosOutbox outbox = {0};
    QosCreditMessage message = {.type = QOS_MESSAGE_CANCEL, .session = 1};

    qos_outbox_open(&outbox);
    for (guint i = 1; i <= RELEASES; i++) {
        message.sequence = i;
        qos_resource_init(&message.resource, QOS_RESOURCE_INODE, &i, sizeof(i));
        qos_outbox_add(&outbox, &message, (QosPoolSignal){0});
    }
    return qos_outbox_take(&outbox);
}

/* A frame of RULES_SEEN. */
static GByteArray *make_seen(guint64 version)
{
    GByteArray *bytes = g_byte_array_new();

    qos_wire_put_seen(bytes, &(QosWireSeen){.version = version});
    return bytes;
}

/* Reads all releases, which come in order; returns how many came before the RULES_SEEN. */
static guint read_releases(Peer *peer)
{
    guint count = 0, before = 0;
    gboolean is_seen = FALSE;

    while (count < RELEASES || !is_seen) {
        g_autofree guint8 *frame = NULL;
        guint32 length;

        receive(peer, &length, sizeof(length));
        length = GUINT32_FROM_LE(length);
        g_assert_cmpuint(length, <=, QOS_WIRE_PAGE_MAX + 1024);
        frame = g_malloc(length);
        receive(peer, frame, length);
        const guint8 *payload = frame + 1;
        gsize rest = length - 1;
        if (frame[0] == QOS_WIRE_RULES_SEEN) {
            is_seen = TRUE;
            before = count;
            continue;
        }
        g_assert_cmpuint(frame[0], ==, QOS_WIRE_CREDITS);
        while (rest > 0) {
            QosCreditMessage message;
            g_assert_true(qos_wire_get_credits(&payload, &rest, &message));
            g_assert_cmpuint(message.sequence, ==, ++count);
            qos_credit_message_clear(&message);
        }
    }
    return before;
}

static gboolean is_handed_over(const Link *link)
{
    return link->clean_up == NULL;
}

/* The peer does not read until all is handed over: what the socket took, and the piece that was
 * begun, is ahead of the urgent frame, and the rest of the clean-up behind it. */
static void test_urgent(void)
{
    Runner runner;
    Peer peer;

    init(&runner);
    peer_init(&peer);
    Link *link = add(&runner, peer.server);
    start(&runner);
    welcome(&peer, 3600 * QOS_SECOND);
    wait_for(link, is_welcome);
    GByteArray *clean_up = make_clean_up();
    const guint size = clean_up->len;
    pthread_mutex_lock(&link->lock);
    link->clean_up = clean_up;
    pthread_mutex_unlock(&link->lock);
    g_main_context_invoke(runner.context, send_rest, link->link);
    wait_for(link, is_handed_over);
    int held = 0;
    socklen_t room = sizeof(held);
    getsockopt(peer.socket, SOL_SOCKET, SO_SNDBUF, &held, &room);
    g_assert_cmpuint(size, >, (guint)held + 4 * QOS_WIRE_PAGE_MAX);
    pthread_mutex_lock(&link->lock);
    link->urgent = make_seen(7);
    pthread_mutex_unlock(&link->lock);
    g_main_context_invoke(runner.context, send_rest, link->link);
    const guint before = read_releases(&peer);
    g_assert_cmpuint(before, <=,
                     (guint)((guint64)RELEASES * ((guint)held + 2 * QOS_WIRE_PAGE_MAX) / size));
    g_assert_null(link->reason);
    clear(&runner);
    peer_clear(&peer);
}

/* --- what is told --- */

/* A TCP socket to which no connection comes about: its queue is full. Free with close(). */
static void be_full(int *ret_sockets, guint count, guint *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    for (guint i = 0; i < count; i++)
        ret_sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    g_assert_cmpint(bind(ret_sockets[0], (struct sockaddr *)&address, length), ==, 0);
    g_assert_cmpint(listen(ret_sockets[0], 0), ==, 0);
    g_assert_cmpint(getsockname(ret_sockets[0], (struct sockaddr *)&address, &length), ==, 0);
    for (guint i = 1; i < count; i++)
        (void)connect(ret_sockets[i], (struct sockaddr *)&address, sizeof(address));
    *ret_port = ntohs(address.sin_port);
}

static void check_reason(Link *link, const char *begin)
{
    wait_for(link, has_failed);
    g_assert_true(g_str_has_prefix(link->reason, begin));
    g_assert_nonnull(strstr(link->reason, ": see whether "));
}

/* All at once, as the first two take ten seconds. */
static void test_reasons(void)
{
    g_autofree char *full = NULL;
    int sockets[5];
    guint port;
    Runner runner;
    Peer mute, silent;
    Link *unreached = NULL;

    init(&runner);
    peer_init(&mute);
    peer_init(&silent);
    be_full(sockets, G_N_ELEMENTS(sockets), &port);
    full = g_strdup_printf("munge:127.0.0.1:%u", port);
    if (qos_munge_is_built(NULL))
        unreached = add(&runner, full);
    Link *unwelcome = add(&runner, mute.server);
    Link *fallen_silent = add(&runner, silent.server);
    start(&runner);
    welcome(&silent, 2 * QOS_SECOND);
    check_reason(fallen_silent, "it fell silent, for 1.00 s: ");
    check_reason(unwelcome, "it was reached, and has not welcomed the mount within 10 s: ");
    if (unreached != NULL)
        check_reason(unreached, "no connection came about within 10 s: ");
    clear(&runner);
    peer_clear(&mute);
    peer_clear(&silent);
    for (guint i = 0; i < G_N_ELEMENTS(sockets); i++)
        close(sockets[i]);
}

/* --- which thread reads --- */

static void say(Peer *peer, const void *bytes, gsize length)
{
    g_assert_cmpint(send(peer->socket, bytes, length, MSG_NOSIGNAL), ==, (gssize)length);
}

static void say_refused(Peer *peer)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    qos_wire_put_refused(bytes, QOS_WIRE_FULL, "there is no room");
    say(peer, bytes->data, bytes->len);
    shutdown(peer->socket, SHUT_RDWR);
}

static void say_rubbish(Peer *peer)
{
    say(peer, "\5\0\0\0\xeerubbish", 12);
}

static void say_goodbye(Peer *peer)
{
    shutdown(peer->socket, SHUT_RDWR);
}

static void say_nothing(Peer *peer G_GNUC_UNUSED)
{
}

/* The link's thread may have its turn. */
static QosReceiver *lead(Link *link)
{
    const gint64 end = g_get_monotonic_time() + PATIENCE;
    QosReceiver *receiver = qos_link_receive(link->link);

    while (!qos_receive_lead(receiver)) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        g_usleep(100);
    }
    return receiver;
}

static const QosWireType told[] = {QOS_WIRE_RULES, QOS_WIRE_BUDGET_GRANT, QOS_WIRE_ADMIN_RESULT,
                                   QOS_WIRE_EPOCH};

static void say_frame(Peer *peer, QosWireType type, const char *payload)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    const gsize at = qos_wire_begin(bytes, (guint8)type);

    g_byte_array_append(bytes, (const guint8 *)payload, (guint)strlen(payload));
    qos_wire_end(bytes, at);
    say(peer, bytes->data, bytes->len);
}

static gboolean has_all_frames(const Link *link)
{
    guint all = 0;

    for (guint i = 0; i < G_N_ELEMENTS(told); i++)
        all |= 1u << told[i];
    return link->frames == all;
}

/* A leader hears what is short. Pages of rules, which take long to read, are left to the link. */
static void check_who_hears(Peer *peer, Link *link)
{
    QosReceiver *receiver = lead(link);

    for (guint i = 1; i < G_N_ELEMENTS(told); i++)
        say_frame(peer, told[i], "frame");
    say_frame(peer, QOS_WIRE_RULES, "frame");
    do
        g_assert_true(qos_receive_wait(receiver, PATIENCE * QOS_MICROSECOND));
    while (qos_receive_read(receiver));
    g_assert_true(pthread_equal(link->teller, pthread_self()));
    g_assert_cmpuint(link->frames & 1u << QOS_WIRE_RULES, ==, 0);
    qos_receive_cede(receiver);
    wait_for(link, has_all_frames);
    g_assert_false(pthread_equal(link->teller, pthread_self()));
}

/* Each kind of frame is told. One that is broken ends the connection, and so does one that only a
 * mount sends. */
static void test_frames(void)
{
    static const struct {
        QosWireType type;
        const char *payload;
    } broken[] = {{QOS_WIRE_RULES, "?"},       {QOS_WIRE_BUDGET_GRANT, "?"},
                  {QOS_WIRE_ADMIN_RESULT, ""}, {QOS_WIRE_EPOCH, "?"},
                  {QOS_WIRE_ADMIN, "frame"},   {QOS_WIRE_RULES_SEEN, "frame"}};

    for (guint i = 0; i < G_N_ELEMENTS(broken); i++) {
        Runner runner;
        Peer peer;
        init(&runner);
        peer_init(&peer);
        Link *link = add(&runner, peer.server);
        start(&runner);
        welcome(&peer, 3600 * QOS_SECOND);
        wait_for(link, is_welcome);
        check_who_hears(&peer, link);
        say_frame(&peer, broken[i].type, broken[i].payload);
        wait_for(link, has_failed);
        g_assert_cmpstr(link->reason, ==, "what it says makes no sense");
        clear(&runner);
        peer_clear(&peer);
    }
}

static gboolean has_heard_all(const Link *link)
{
    return link->heard == 2;
}

/* Two messages: the first, and the first half of the second, is read by this thread, and the rest
 * by the link's. */
static void share_reading(Peer *peer, Link *link)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosReceiver *receiver = lead(link);

    qos_wire_put_deadlock(bytes, 1);
    qos_wire_put_deadlock(bytes, 2);
    g_assert_false(qos_receive_lead(receiver));
    say(peer, bytes->data, bytes->len * 3 / 4);
    g_assert_true(qos_receive_wait(receiver, PATIENCE * QOS_MICROSECOND));
    g_assert_true(qos_receive_read(receiver));
    g_assert_cmpuint(link->heard, ==, 1);
    g_assert_true(pthread_equal(link->teller, pthread_self()));
    qos_receive_cede(receiver);
    say(peer, bytes->data + bytes->len * 3 / 4, bytes->len - bytes->len * 3 / 4);
    wait_for(link, has_heard_all);
    g_assert_false(pthread_equal(link->teller, pthread_self()));
}

/* The link ends a connection, whichever thread reads the reason: nobody is left waiting. */
static void test_led(void)
{
    static const struct {
        void (*say)(Peer *peer);
        const char *reason;
        gboolean leaves_rest; /* for the link, before anybody else reads */
    } ends[] = {
        {say_refused, "there is no room", TRUE},
        {say_rubbish, "what it says makes no sense", TRUE},
        {say_goodbye, "it closed the connection", FALSE},
        {say_nothing, "it fell silent, for 1.00 s: ", FALSE},
    };

    for (guint i = 0; i < G_N_ELEMENTS(ends); i++) {
        Runner runner;
        Peer peer;
        init(&runner);
        peer_init(&peer);
        Link *link = add(&runner, peer.server);
        start(&runner);
        welcome(&peer, (ends[i].say == say_nothing ? 2 : 3600) * QOS_SECOND);
        wait_for(link, is_welcome);
        if (ends[i].say != say_nothing)
            share_reading(&peer, link);
        QosReceiver *receiver = lead(link);
        ends[i].say(&peer);
        do
            g_assert_true(qos_receive_wait(receiver, PATIENCE * QOS_MICROSECOND));
        while (qos_receive_read(receiver));
        qos_receive_cede(receiver);
        if (ends[i].leaves_rest)
            g_assert_false(qos_receive_lead(receiver));
        wait_for(link, has_failed);
        g_assert_true(g_str_has_prefix(link->reason, ends[i].reason));
        g_assert_false(qos_receive_lead(receiver));
        clear(&runner);
        peer_clear(&peer);
    }
}

static void test_bad_addresses(void)
{
    static const QosLinkConfig configs[] = {
        {.server = "unix:relative"},
        {.server = "host"},
        {.server = ":1"},
        {.server = "host:1"}, /* no certificates */
        {.server = "host:1", .ca = "/no/such", .certificate = "/no/such", .key = "/no/such"},
    };
    static const char *const messages[] = {"*begins with /*", "*HOST:PORT*", "*HOST:PORT*",
                                           "*server_ca*", "*/no/such*"};

    for (guint i = 0; i < G_N_ELEMENTS(configs); i++) {
        g_autoptr(GMainContext) context = g_main_context_new();
        g_autoptr(GError) error = NULL;
        const QosLinkUser user = {0};
        g_assert_null(qos_link_new(&configs[i], &user, context, &error));
        g_assert_true(g_pattern_match_simple(messages[i], error->message));
    }
}

/* GLib is not built for ThreadSanitizer: what it does itself is not looked at. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1";
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockclient/link/many-send", test_many_send);
    g_test_add_func("/lockclient/link/urgent", test_urgent);
    g_test_add_func("/lockclient/link/frames", test_frames);
    g_test_add_func("/lockclient/link/reasons", test_reasons);
    g_test_add_func("/lockclient/link/led", test_led);
    g_test_add_func("/lockclient/link/bad-addresses", test_bad_addresses);
    return g_test_run();
}
