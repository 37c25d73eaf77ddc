/*
 * The mount's lock client against a server at the other end of a Unix socket, which has an owner of
 * its own and does what real ones do, or does not: threads that use the same credits, servers that
 * go, come, refuse, say nothing or rubbish.
 */
#include <gio/gio.h>
#include <gio/gunixsocketaddress.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/wire.h"
#include "fs/lockclient.h"

#define PATIENCE (60 * G_TIME_SPAN_SECOND)
#define CLIENTS  2
#define THREADS  4
#define ROUNDS   500

typedef enum { GOOD, REFUSES, IS_SILENT, SAYS_RUBBISH } Manner;

/* --- the server: a thread --- */

typedef struct {
    char *path;
    Manner manner;
    QosTime lease;
    QosOwnerId id;
    guint32 incarnation;
    pthread_t thread;
    GMainContext *context;
    atomic_bool ends;
    gboolean is_running;
    GSocketListener *listener;
    GPtrArray *peers; /* of Peer */
    QosOwner *owner;
    GHashTable *clients; /* the durable list: survives the thread */
} Server;

typedef struct {
    Server *server;
    GSocketConnection *connection;
    GSource *input;
    QosWireReader reader;
    QosOwnerId id; /* 0: no HELLO yet */
} Peer;

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

static void send_bytes(Peer *peer, const GByteArray *bytes)
{
    g_output_stream_write_all(g_io_stream_get_output_stream(G_IO_STREAM(peer->connection)),
                              bytes->data, bytes->len, NULL, NULL, NULL);
}

static Peer *peer_of(Server *server, QosOwnerId id)
{
    for (guint i = server->peers->len; i > 0; i--) {
        Peer *peer = server->peers->pdata[i - 1];
        if (peer->id == id)
            return peer;
    }
    return NULL;
}

static void drain(Server *server)
{
    QosOutput output;

    while (qos_owner_output(server->owner, &output)) {
        Peer *peer = peer_of(server, output.peer);
        if (output.kind == QOS_OUTPUT_SAVE) {
            g_hash_table_add(server->clients, g_memdup2(&output.peer, sizeof(output.peer)));
            qos_owner_saved(server->owner, output.peer, now_of());
        } else if (output.kind == QOS_OUTPUT_FORGET) {
            g_hash_table_remove(server->clients, &output.peer);
        } else if (output.kind == QOS_OUTPUT_SEND && peer != NULL) {
            g_autoptr(GByteArray) bytes = g_byte_array_new();
            gsize batch = QOS_WIRE_NO_BATCH;
            g_assert_true(qos_wire_put_credits(bytes, &batch, output.message));
            send_bytes(peer, bytes);
        }
    }
}

static void greet(Peer *peer, const guint8 *payload, gsize length)
{
    Server *server = peer->server;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireHello hello;
    const QosWireWelcome welcome = {.version = QOS_WIRE_VERSION,
                                    .id = server->id,
                                    .incarnation = server->incarnation,
                                    .lease = server->lease,
                                    .resend = 200 * QOS_MILLISECOND,
                                    .group = 64};

    g_assert_true(qos_wire_get_hello(payload, length, &hello));
    g_assert_cmpstr(hello.store, ==, "store");
    peer->id = hello.id;
    if (server->manner == REFUSES)
        qos_wire_put_refused(bytes, QOS_WIRE_OTHER_STORE, "this is not the store");
    else if (server->manner == SAYS_RUBBISH)
        g_byte_array_append(bytes, (const guint8 *)"\5\0\0\0\xeerubbish", 12);
    else if (server->manner == GOOD)
        qos_wire_put_welcome(bytes, &welcome);
    send_bytes(peer, bytes);
}

static void take_frame(Peer *peer, QosWireType type, const guint8 *payload, gsize length)
{
    QosCreditMessage message;

    if (type == QOS_WIRE_HELLO) {
        greet(peer, payload, length);
        return;
    }
    g_assert_cmpint(type, ==, QOS_WIRE_CREDITS);
    while (length > 0) {
        g_assert_true(qos_wire_get_credits(&payload, &length, &message));
        qos_owner_receive(peer->server->owner, peer->id, &message, now_of());
        qos_credit_message_clear(&message);
        drain(peer->server);
    }
}

static gboolean on_input(GObject *stream, gpointer data)
{
    Peer *peer = data;
    guint8 bytes[4096];
    const guint8 *payload;
    gsize length;
    QosWireType type;

    gssize count = g_pollable_input_stream_read_nonblocking(G_POLLABLE_INPUT_STREAM(stream), bytes,
                                                            sizeof(bytes), NULL, NULL);
    if (count <= 0)
        return G_SOURCE_REMOVE;
    qos_wire_reader_feed(&peer->reader, bytes, (gsize)count);
    while (qos_wire_reader_next(&peer->reader, &type, &payload, &length) == QOS_WIRE_FRAME)
        take_frame(peer, type, payload, length);
    return G_SOURCE_CONTINUE;
}

static void on_connection(GObject *listener, GAsyncResult *result, gpointer data)
{
    Server *server = data;
    GSocketConnection *connection =
        g_socket_listener_accept_finish(G_SOCKET_LISTENER(listener), result, NULL, NULL);

    if (connection == NULL)
        return;
    Peer *peer = g_new0(Peer, 1);
    peer->server = server;
    peer->connection = connection;
    qos_wire_reader_init(&peer->reader);
    peer->input = g_pollable_input_stream_create_source(
        G_POLLABLE_INPUT_STREAM(g_io_stream_get_input_stream(G_IO_STREAM(connection))), NULL);
    g_source_set_callback(peer->input, G_SOURCE_FUNC(on_input), peer, NULL);
    g_source_attach(peer->input, server->context);
    g_ptr_array_add(server->peers, peer);
    g_socket_listener_accept_async(server->listener, NULL, on_connection, server);
}

static void peer_free(gpointer data)
{
    Peer *peer = data;

    g_source_destroy(peer->input);
    g_source_unref(peer->input);
    g_io_stream_close(G_IO_STREAM(peer->connection), NULL, NULL);
    g_object_unref(peer->connection);
    qos_wire_reader_clear(&peer->reader);
    g_free(peer);
}

static gboolean on_tick(gpointer data)
{
    Server *server = data;

    qos_owner_tick(server->owner, now_of());
    drain(server);
    return G_SOURCE_CONTINUE;
}

static void *serve(void *data)
{
    Server *server = data;
    GSource *tick = g_timeout_source_new(20);

    g_main_context_push_thread_default(server->context);
    g_source_set_callback(tick, on_tick, server, NULL);
    g_source_attach(tick, server->context);
    g_socket_listener_accept_async(server->listener, NULL, on_connection, server);
    while (!atomic_load(&server->ends))
        g_main_context_iteration(server->context, TRUE);
    g_source_destroy(tick);
    g_source_unref(tick);
    g_socket_listener_close(server->listener);
    while (g_main_context_iteration(server->context, FALSE))
        ;
    g_ptr_array_unref(server->peers);
    g_main_context_pop_thread_default(server->context);
    return NULL;
}

static void start_server(Server *server)
{
    g_autoptr(GSocketAddress) address = g_unix_socket_address_new(server->path);
    g_autofree QosOwnerId *clients = g_new(QosOwnerId, g_hash_table_size(server->clients) + 1);
    guint count = 0;
    GHashTableIter iter;
    gpointer client;
    QosOwnerConfig config;

    g_unlink(server->path);
    server->context = g_main_context_new();
    server->is_running = TRUE;
    atomic_store(&server->ends, FALSE);
    server->listener = g_socket_listener_new();
    server->peers = g_ptr_array_new_with_free_func(peer_free);
    g_assert_true(g_socket_listener_add_address(server->listener, address, G_SOCKET_TYPE_STREAM,
                                                G_SOCKET_PROTOCOL_DEFAULT, NULL, NULL, NULL));
    g_hash_table_iter_init(&iter, server->clients);
    while (g_hash_table_iter_next(&iter, &client, NULL))
        clients[count++] = *(QosOwnerId *)client;
    qos_owner_config_init(&config, server->id, ++server->incarnation);
    config.lends = TRUE;
    config.lease = server->lease;
    server->owner = qos_owner_new(&config, clients, count, now_of());
    g_assert_cmpint(pthread_create(&server->thread, NULL, serve, server), ==, 0);
}

static void stop_server(Server *server)
{
    atomic_store(&server->ends, TRUE);
    g_main_context_wakeup(server->context);
    pthread_join(server->thread, NULL);
    server->is_running = FALSE;
    g_main_context_unref(server->context);
    g_object_unref(server->listener);
    qos_owner_free(server->owner);
    g_unlink(server->path);
}

/* --- the clients --- */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    QosLockclient *client;
    QosTime patience; /* that who asks waits for the answer with his thread */
    gboolean is_stubborn;
    gint drops, lost, ups, downs;
    QosResource dropped;
    QosCredit credit; /* of modes */
} User;

typedef struct {
    QosLockUse use;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gboolean is_done;
    QosCreditVerdict verdict;
    pthread_t teller;
    long slept; /* how often the thread that tells has, in its life */
} Use;

typedef struct {
    char *folder;
    Server server;
    User users[CLIENTS];
} World;

static void note(User *user, gint *counter)
{
    pthread_mutex_lock(&user->lock);
    ++*counter;
    pthread_cond_broadcast(&user->changed);
    pthread_mutex_unlock(&user->lock);
}

static void drop(const QosResource *resource, const QosCredit *credit, gpointer arg)
{
    User *user = arg;

    pthread_mutex_lock(&user->lock);
    user->dropped = *resource;
    user->credit = *credit;
    gboolean is_stubborn = user->is_stubborn;
    pthread_mutex_unlock(&user->lock);
    note(user, &user->drops);
    if (!is_stubborn)
        qos_lockclient_release(user->client, resource, credit);
}

static void lost(const QosResource *resource G_GNUC_UNUSED, const QosCredit *credit G_GNUC_UNUSED,
                 gpointer arg)
{
    User *user = arg;

    note(user, &user->lost);
}

static void changed(gboolean is_up, gpointer arg)
{
    User *user = arg;

    note(user, is_up ? &user->ups : &user->downs);
}

static void wait_for(User *user, const gint *counter, gint least)
{
    const gint64 end = g_get_real_time() + PATIENCE;
    const struct timespec limit = {.tv_sec = end / G_TIME_SPAN_SECOND};

    pthread_mutex_lock(&user->lock);
    while (*counter < least)
        g_assert_cmpint(pthread_cond_timedwait(&user->changed, &user->lock, &limit), ==, 0);
    pthread_mutex_unlock(&user->lock);
}

static QosLockclientStatus status_of(User *user)
{
    QosLockclientStatus status;

    qos_lockclient_status(user->client, &status);
    return status;
}

static void wait_for_state(User *user, QosLockclientState state)
{
    const gint64 end = g_get_monotonic_time() + PATIENCE;

    while (status_of(user).state != state) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        g_usleep(1000);
    }
}

static void init(World *w, QosTime lease, Manner manner)
{
    memset(w, 0, sizeof(*w));
    w->folder = g_dir_make_tmp("lockclient-XXXXXX", NULL);
    w->server = (Server){.path = g_build_filename(w->folder, "socket", NULL),
                         .manner = manner,
                         .lease = lease,
                         .id = 99};
    w->server.clients = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autofree char *address = g_strconcat("unix:", w->server.path, NULL);
    for (guint i = 0; i < CLIENTS; i++) {
        User *user = &w->users[i];
        const QosLockclientConfig config = {.server = address,
                                            .id = 10 + i,
                                            .incarnation = 1,
                                            .store = "store",
                                            .name = "host:/mount",
                                            .arg = user,
                                            .drop = drop,
                                            .lost = lost,
                                            .changed = changed};
        g_autoptr(GError) error = NULL;
        pthread_mutex_init(&user->lock, NULL);
        pthread_cond_init(&user->changed, NULL);
        user->client = qos_lockclient_new(&config, &error);
        g_assert_no_error(error);
    }
}

static void clear(World *w)
{
    for (guint i = 0; i < CLIENTS; i++) {
        User *user = &w->users[i];
        qos_lockclient_free(user->client);
        pthread_mutex_destroy(&user->lock);
        pthread_cond_destroy(&user->changed);
    }
    if (w->server.is_running)
        stop_server(&w->server);
    g_hash_table_unref(w->server.clients);
    g_rmdir(w->folder);
    g_free(w->server.path);
    g_free(w->folder);
}

/* The log tells of servers that are away: that is not what fails here. */
static void expect_warnings(void)
{
    g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL | G_LOG_FATAL_MASK);
}

static QosResource inode(guint number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, sizeof(number));
    return resource;
}

static const QosCredit writing = {.reads = QOS_INODE_ATTRIBUTES, .writes = QOS_INODE_ATTRIBUTES};
static const QosCredit reading = {.reads = QOS_INODE_ATTRIBUTES};

static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    Use *whole = (Use *)use;
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    pthread_mutex_lock(&whole->lock);
    whole->teller = pthread_self();
    whole->slept = usage.ru_nvcsw;
    whole->is_done = TRUE;
    whole->verdict = verdict;
    pthread_cond_signal(&whole->changed);
    pthread_mutex_unlock(&whole->lock);
}

static QosCreditVerdict begin(User *user, guint number, const QosCredit *want, Use *use)
{
    QosResource resource = inode(number);

    memset(use, 0, sizeof(*use));
    use->use.done = done;
    pthread_mutex_init(&use->lock, NULL);
    pthread_cond_init(&use->changed, NULL);
    return qos_lockclient_await(user->client, &resource, want, 0, &use->use, user->patience);
}

static QosCreditVerdict end_waiting(Use *use)
{
    const gint64 end = g_get_real_time() + PATIENCE;
    const struct timespec limit = {.tv_sec = end / G_TIME_SPAN_SECOND};

    pthread_mutex_lock(&use->lock);
    while (!use->is_done)
        g_assert_cmpint(pthread_cond_timedwait(&use->changed, &use->lock, &limit), ==, 0);
    pthread_mutex_unlock(&use->lock);
    return use->verdict;
}

static QosCreditVerdict get(User *user, guint number, const QosCredit *want, Use *use)
{
    QosCreditVerdict verdict = begin(user, number, want, use);

    return verdict == QOS_CREDIT_WAITING ? end_waiting(use) : verdict;
}

static gboolean has(User *user, guint number, const QosCredit *want)
{
    QosResource resource = inode(number);

    return qos_lockclient_has(user->client, &resource, want);
}

static void put(User *user, Use *use)
{
    qos_lockclient_put(user->client, &use->use);
    pthread_mutex_destroy(&use->lock);
    pthread_cond_destroy(&use->changed);
}

/* --- tests --- */

static void test_two_mounts(void)
{
    World w;
    Use one, other;

    expect_warnings();
    init(&w, 30 * QOS_SECOND, GOOD);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), ==, 0);
    g_assert_cmpint(get(&w.users[0], 7, &writing, &one), ==, QOS_CREDIT_ERROR);
    put(&w.users[0], &one);
    g_assert_false(has(&w.users[0], 7, &reading));
    start_server(&w.server);
    for (guint i = 0; i < CLIENTS; i++)
        wait_for(&w.users[i], &w.users[i].ups, 1);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), >, 0);
    g_assert_cmpuint(qos_lockclient_group(w.users[0].client), ==, 64);
    g_assert_cmpint(get(&w.users[0], 7, &writing, &one), ==, QOS_CREDIT_GRANTED);
    put(&w.users[0], &one);
    g_assert_true(has(&w.users[0], 7, &writing));
    g_assert_false(has(&w.users[1], 7, &reading));
    g_assert_cmpint(begin(&w.users[0], 7, &writing, &one), ==, QOS_CREDIT_GRANTED);
    w.users[0].is_stubborn = TRUE;
    g_assert_cmpint(begin(&w.users[1], 7, &writing, &other), ==, QOS_CREDIT_WAITING);
    put(&w.users[0], &one);
    wait_for(&w.users[0], &w.users[0].drops, 1);
    g_assert_false(other.is_done);
    g_assert_false(has(&w.users[0], 7, &reading)); /* another waits for it */
    qos_lockclient_release(w.users[0].client, &w.users[0].dropped, &w.users[0].credit);
    g_assert_cmpint(end_waiting(&other), ==, QOS_CREDIT_GRANTED);
    put(&w.users[1], &other);
    g_assert_false(has(&w.users[0], 7, &reading));
    g_assert_cmpuint(status_of(&w.users[0]).misses, ==, 1);
    QosLockclientStatus status = status_of(&w.users[0]);
    g_assert_cmpint(status.state, ==, QOS_LOCKCLIENT_UP);
    g_assert_cmpstr(status.reason, ==, "");
    g_assert_cmpuint(status.revocations, ==, 1);
    g_assert_cmpuint(status.reconnects, ==, 0);
    clear(&w);
}

typedef struct {
    World *world;
    guint seed;
} Worker;

/* What a writer holds, nobody else has. */
static gint writers[8];
static gint readers[8];

static void *work(void *data)
{
    Worker *worker = data;
    User *user = &worker->world->users[worker->seed % CLIENTS];
    GRand *random = g_rand_new_with_seed(worker->seed);

    for (guint i = 0; i < ROUNDS; i++) {
        guint number = (guint)g_rand_int_range(random, 0, G_N_ELEMENTS(writers));
        gboolean writes = g_rand_int_range(random, 0, 2) == 1;
        guint shift = worker->seed % CLIENTS * 16;
        Use use;
        g_assert_cmpint(get(user, number, writes ? &writing : &reading, &use), ==,
                        QOS_CREDIT_GRANTED);
        gint mine = 1 << shift;
        gint others = 0xffff << (16 - shift);
        gint *users = writes ? &writers[number] : &readers[number];
        g_atomic_int_add(users, mine);
        g_assert_cmpint(g_atomic_int_get(&writers[number]) & others, ==, 0);
        g_assert_cmpint(writes ? g_atomic_int_get(&readers[number]) & others : 0, ==, 0);
        g_atomic_int_add(users, -mine);
        put(user, &use);
        if (g_rand_int_range(random, 0, 50) == 0)
            qos_lockclient_shrink(user->client, 0.5);
    }
    g_rand_free(random);
    return NULL;
}

static void test_many_threads(void)
{
    World w;
    pthread_t threads[THREADS];
    Worker workers[THREADS];

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    w.users[0].patience = QOS_MILLISECOND;
    for (guint i = 0; i < CLIENTS; i++)
        wait_for(&w.users[i], &w.users[i].ups, 1);
    for (guint i = 0; i < THREADS; i++) {
        workers[i] = (Worker){&w, i};
        g_assert_cmpint(pthread_create(&threads[i], NULL, work, &workers[i]), ==, 0);
    }
    for (guint i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    clear(&w);
}

/* A lone request is sent by who makes it: the link wakes for the answer alone. Twice for each, if
 * it had to send; somewhat more than once, where the two want the same lock. */
static void test_a_request_wakes_once(void)
{
    World w;
    Use use;
    long first = 0;

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 1);
    for (guint i = 0; i < ROUNDS; i++) {
        g_assert_cmpint(get(&w.users[0], i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        put(&w.users[0], &use);
        if (i == 0)
            first = use.slept;
    }
    g_assert_cmpint(use.slept - first, <, ROUNDS * 5 / 4);
    clear(&w);
}

/* Who waits for the answer reads it: nobody else wakes up for it, unless he is awake anyway. */
static void test_who_awaits_reads(void)
{
    World w;
    Use use;
    guint by_others = 0;

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 1);
    w.users[0].patience = 60 * QOS_SECOND;
    for (guint i = 0; i < ROUNDS; i++) {
        g_assert_cmpint(get(&w.users[0], i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        by_others += !pthread_equal(use.teller, pthread_self());
        put(&w.users[0], &use);
    }
    g_assert_cmpuint(by_others, <, ROUNDS / 4);
    clear(&w);
}

typedef struct {
    User *user;
    Use use;
    QosCreditVerdict verdict;
} Awaiting;

static void *await(void *data)
{
    Awaiting *awaiting = data;

    awaiting->verdict = begin(awaiting->user, 7, &writing, &awaiting->use);
    return NULL;
}

/* The second user awaits for an hour what the first does not give. */
static void begin_hour(World *w, Use *held, Awaiting *awaiting, pthread_t *thread)
{
    for (guint i = 0; i < CLIENTS; i++)
        wait_for(&w->users[i], &w->users[i].ups, 1);
    w->users[0].is_stubborn = TRUE;
    g_assert_cmpint(get(&w->users[0], 7, &writing, held), ==, QOS_CREDIT_GRANTED);
    put(&w->users[0], held);
    w->users[1].patience = 3600 * QOS_SECOND;
    *awaiting = (Awaiting){.user = &w->users[1]};
    g_assert_cmpint(pthread_create(thread, NULL, await, awaiting), ==, 0);
    wait_for(&w->users[0], &w->users[0].drops, 1);
}

/* His thread is free at once when the server has gone, and what he waits for comes all the same. */
static void test_server_leaves_who_awaits(void)
{
    pthread_t thread;
    Awaiting awaiting;
    World w;
    Use held;

    init(&w, 60 * QOS_SECOND, GOOD);
    start_server(&w.server);
    begin_hour(&w, &held, &awaiting, &thread);
    stop_server(&w.server);
    pthread_join(thread, NULL);
    g_assert_cmpint(awaiting.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_false(awaiting.use.is_done);
    start_server(&w.server);
    qos_lockclient_release(w.users[0].client, &w.users[0].dropped, &w.users[0].credit);
    g_assert_cmpint(end_waiting(&awaiting.use), ==, QOS_CREDIT_GRANTED);
    put(&w.users[1], &awaiting.use);
    clear(&w);
}

/* While one awaits, others of his mount ask, are answered, and let go. */
static void test_others_beside_who_awaits(void)
{
    pthread_t thread;
    Awaiting awaiting;
    World w;
    Use held, use;

    init(&w, 60 * QOS_SECOND, GOOD);
    start_server(&w.server);
    begin_hour(&w, &held, &awaiting, &thread);
    for (guint i = 100; i < 200; i++) {
        g_assert_cmpint(get(&w.users[1], i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        put(&w.users[1], &use);
        qos_lockclient_shrink(w.users[1].client, 0.5);
    }
    qos_lockclient_release(w.users[0].client, &w.users[0].dropped, &w.users[0].credit);
    pthread_join(thread, NULL);
    g_assert_cmpint(end_waiting(&awaiting.use), ==, QOS_CREDIT_GRANTED);
    put(&w.users[1], &awaiting.use);
    clear(&w);
}

/* Within the lease nothing is lost, and the server knows all again. */
static void test_server_restarts(void)
{
    World w;
    Use use;

    init(&w, 60 * QOS_SECOND, GOOD);
    start_server(&w.server);
    for (guint i = 0; i < CLIENTS; i++)
        wait_for(&w.users[i], &w.users[i].ups, 1);
    for (guint i = 0; i < 100; i++) {
        g_assert_cmpint(get(&w.users[0], i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        put(&w.users[0], &use);
    }
    stop_server(&w.server);
    wait_for_state(&w.users[0], QOS_LOCKCLIENT_RECOVERING);
    g_assert_cmpint(begin(&w.users[0], 7, &writing, &use), ==, QOS_CREDIT_GRANTED);
    put(&w.users[0], &use);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), >, 0);
    start_server(&w.server);
    for (guint i = 0; i < CLIENTS; i++)
        wait_for_state(&w.users[i], QOS_LOCKCLIENT_UP);
    /* While it reclaims it has no lender; and another is granted only after all have reclaimed. */
    const gint64 end = g_get_monotonic_time() + PATIENCE;
    while (get(&w.users[1], 1000, &writing, &use) == QOS_CREDIT_ERROR) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        put(&w.users[1], &use);
    }
    put(&w.users[1], &use);
    g_assert_cmpint(begin(&w.users[0], 99, &writing, &use), ==, QOS_CREDIT_GRANTED);
    put(&w.users[0], &use);
    g_assert_cmpuint(status_of(&w.users[0]).reconnects, ==, 1);
    g_assert_cmpuint(status_of(&w.users[0]).credits, ==, 100);
    g_assert_cmpint(w.users[0].lost, ==, 0);
    clear(&w);
}

/* Away for longer than the lease: all is lost, who waits is told, and it comes back by itself. */
static void test_server_stays_away(void)
{
    World w;
    Use held, use;

    init(&w, 2 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 1);
    g_assert_cmpint(get(&w.users[0], 7, &writing, &held), ==, QOS_CREDIT_GRANTED);
    stop_server(&w.server);
    QosCreditVerdict verdict = get(&w.users[0], 8, &writing, &use);
    g_assert_cmpint(verdict, ==, QOS_CREDIT_ERROR);
    put(&w.users[0], &use);
    wait_for(&w.users[0], &w.users[0].downs, 1);
    g_assert_cmpint(w.users[0].lost, ==, 1);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), ==, 0);
    wait_for_state(&w.users[0], QOS_LOCKCLIENT_CONNECTING);
    put(&w.users[0], &held);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 2);
    g_assert_cmpuint(status_of(&w.users[0]).evictions, ==, 1);
    clear(&w);
}

/* The reason is told; and once the server thinks better of it, the mount is there. */
static void test_bad_manners(void)
{
    static const struct {
        Manner manner;
        QosLockclientState state;
        const char *reason;
    } cases[] = {
        {REFUSES, QOS_LOCKCLIENT_REFUSED, "this is not the store"},
        {SAYS_RUBBISH, QOS_LOCKCLIENT_CONNECTING, "what it says makes no sense"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        World w;
        const gint64 end = g_get_monotonic_time() + PATIENCE;
        init(&w, 30 * QOS_SECOND, cases[i].manner);
        start_server(&w.server);
        while (strcmp(status_of(&w.users[0]).reason, cases[i].reason) != 0) {
            g_assert_cmpint(g_get_monotonic_time(), <, end);
            g_usleep(1000);
        }
        g_assert_cmpint(status_of(&w.users[0]).state, ==, cases[i].state);
        stop_server(&w.server);
        w.server.manner = GOOD;
        start_server(&w.server);
        wait_for(&w.users[0], &w.users[0].ups, 1);
        g_assert_cmpstr(status_of(&w.users[0]).reason, ==, "");
        clear(&w);
    }
}

/* A client that ends while it connects, waits, or has never seen a server. */
static void test_ends_at_any_time(void)
{
    for (guint i = 0; i < 20; i++) {
        World w;
        init(&w, 30 * QOS_SECOND, i % 4 == 1 ? IS_SILENT : GOOD);
        if (i % 4 != 0)
            start_server(&w.server);
        g_usleep(i * 300);
        clear(&w);
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
    expect_warnings();
    g_test_add_func("/lockclient/two-mounts", test_two_mounts);
    g_test_add_func("/lockclient/many-threads", test_many_threads);
    g_test_add_func("/lockclient/a-request-wakes-once", test_a_request_wakes_once);
    g_test_add_func("/lockclient/who-awaits-reads", test_who_awaits_reads);
    g_test_add_func("/lockclient/server-leaves-who-awaits", test_server_leaves_who_awaits);
    g_test_add_func("/lockclient/others-beside-who-awaits", test_others_beside_who_awaits);
    g_test_add_func("/lockclient/server-restarts", test_server_restarts);
    g_test_add_func("/lockclient/server-stays-away", test_server_stays_away);
    g_test_add_func("/lockclient/bad-manners", test_bad_manners);
    g_test_add_func("/lockclient/ends-at-any-time", test_ends_at_any_time);
    return g_test_run();
}
