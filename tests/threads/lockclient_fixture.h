/*
 * Mounts' lock clients, and a server at the other end of a Unix socket, which has an owner of its
 * own and does what real ones do, or does not.
 */
#pragma once

#include <gio/gio.h>
#include <gio/gunixsocketaddress.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/wire_cluster.h"
#include "fs/cluster/admin.h"
#include "fs/cluster/shared_rules.h"
#include "fs/lockclient/client.h"

#define PATIENCE (60 * G_TIME_SPAN_SECOND)
#define CLIENTS  2

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

/* Answers by an ADMIN_RESULT with that id. */
static void answer_seen(Peer *peer, const guint8 *payload, gsize length)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    char text[] = "";
    QosWireSeen seen;

    g_assert_true(qos_wire_get_seen(payload, length, &seen));
    qos_wire_put_admin_result(bytes, &(QosWireAdminResult){.id = seen.version, .text = text});
    send_bytes(peer, bytes);
}

/* Does what the command says: "say TEXT"; "fail ERRNO"; none other is answered. */
static void answer_admin(Peer *peer, const guint8 *payload, gsize length)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireAdmin admin;

    g_assert_true(qos_wire_get_admin(payload, length, &admin));
    QosWireAdminResult result = {.id = admin.id, .text = admin.command};
    if (g_str_has_prefix(admin.command, "fail "))
        result.error = (guint)g_ascii_strtoull(admin.command + strlen("fail "), NULL, 10);
    if (result.error != 0 || g_str_has_prefix(admin.command, "say ")) {
        qos_wire_put_admin_result(bytes, &result);
        send_bytes(peer, bytes);
    }
    qos_wire_admin_clear(&admin);
}

static void take_frame(Peer *peer, QosWireType type, const guint8 *payload, gsize length)
{
    QosCreditMessage message;

    if (type == QOS_WIRE_HELLO) {
        greet(peer, payload, length);
        return;
    }
    if (type == QOS_WIRE_RULES_SEEN) {
        answer_seen(peer, payload, length);
        return;
    }
    if (type == QOS_WIRE_ADMIN) {
        answer_admin(peer, payload, length);
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
    QosTime patience; /* for so long the asking thread waits itself */
    gboolean is_stubborn;
    gint drops, lost, ups, downs;
    gint welcomes, partings; /* of connections */
    gint answers, alarms;
    guint64 answer;  /* the latest */
    QosAdmin *admin; /* NULL: the three callbacks beside the credits only count; as the next */
    QosSharedRules *shared;
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

/* By when what is waited for must have come. */
static struct timespec patience_ends(void)
{
    return (struct timespec){.tv_sec = (g_get_real_time() + PATIENCE) / G_TIME_SPAN_SECOND};
}

static void note(User *user, gint *counter)
{
    pthread_mutex_lock(&user->lock);
    ++*counter;
    pthread_cond_broadcast(&user->changed);
    pthread_mutex_unlock(&user->lock);
}

static void drop(const QosResource *resource, const QosCredit *credit,
                 G_GNUC_UNUSED gboolean is_wanted, gpointer arg)
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

static void wanted(G_GNUC_UNUSED const QosResource *resource, G_GNUC_UNUSED gpointer arg)
{
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

static void connected(QosLockclient *client, gboolean is_connected, gpointer arg)
{
    User *user = arg;

    if (user->admin != NULL)
        qos_admin_connected(user->admin, client, is_connected);
    if (user->shared != NULL)
        qos_shared_rules_connected(user->shared, client, is_connected);
    note(user, is_connected ? &user->welcomes : &user->partings);
}

static gboolean frame(QosWireType type, const guint8 *payload, gsize length, gpointer arg)
{
    User *user = arg;
    QosWireAdminResult result;

    g_assert_cmpint(type, ==, QOS_WIRE_ADMIN_RESULT);
    if (user->admin != NULL)
        return qos_admin_result(user->admin, payload, length);
    g_assert_true(qos_wire_get_admin_result(payload, length, &result));
    pthread_mutex_lock(&user->lock);
    user->answer = result.id;
    pthread_mutex_unlock(&user->lock);
    qos_wire_admin_result_clear(&result);
    note(user, &user->answers);
    return TRUE;
}

static void due(G_GNUC_UNUSED QosLockclient *client, gpointer arg)
{
    User *user = arg;

    if (user->admin != NULL)
        qos_admin_due(user->admin);
    if (user->shared != NULL)
        qos_shared_rules_due(user->shared);
    note(user, &user->alarms);
}

static void wait_for(User *user, const gint *counter, gint least)
{
    const struct timespec limit = patience_ends();

    pthread_mutex_lock(&user->lock);
    while (*counter < least)
        g_assert_cmpint(pthread_cond_timedwait(&user->changed, &user->lock, &limit), ==, 0);
    pthread_mutex_unlock(&user->lock);
}

static inline void wait_until_up(World *w)
{
    for (guint i = 0; i < CLIENTS; i++)
        wait_for(&w->users[i], &w->users[i].ups, 1);
}

static QosLockclientStatus status_of(User *user)
{
    QosLockclientStatus status;

    qos_lockclient_status(user->client, &status);
    return status;
}

/* `reason`: that it is told as well; NULL: any. */
static inline void wait_for_state(User *user, QosLockclientState state, const char *reason)
{
    const gint64 end = g_get_monotonic_time() + PATIENCE;
    QosLockclientStatus status = status_of(user);

    while (status.state != state || (reason != NULL && strcmp(status.reason, reason) != 0)) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        g_usleep(1000);
        status = status_of(user);
    }
}

/* With `admins`, each user has a QosAdmin. */
static void init_with(World *w, QosTime lease, Manner manner, gboolean admins)
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
                                            .wanted = wanted,
                                            .lost = lost,
                                            .changed = changed,
                                            .connected = connected,
                                            .frame = frame,
                                            .due = due};
        g_autoptr(GError) error = NULL;
        pthread_mutex_init(&user->lock, NULL);
        pthread_cond_init(&user->changed, NULL);
        user->admin = admins ? qos_admin_new() : NULL;
        user->client = qos_lockclient_new(&config, &error);
        g_assert_no_error(error);
    }
}

static inline void init(World *w, QosTime lease, Manner manner)
{
    init_with(w, lease, manner, FALSE);
}

static void clear(World *w)
{
    for (guint i = 0; i < CLIENTS; i++) {
        User *user = &w->users[i];
        qos_lockclient_free(user->client);
        qos_admin_free(user->admin);
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
    const struct timespec limit = patience_ends();

    pthread_mutex_lock(&use->lock);
    while (!use->is_done)
        g_assert_cmpint(pthread_cond_timedwait(&use->changed, &use->lock, &limit), ==, 0);
    pthread_mutex_unlock(&use->lock);
    return use->verdict;
}

static inline QosCreditVerdict get(User *user, guint number, const QosCredit *want, Use *use)
{
    QosCreditVerdict verdict = begin(user, number, want, use);

    return verdict == QOS_CREDIT_WAITING ? end_waiting(use) : verdict;
}

static inline gboolean has(User *user, guint number, const QosCredit *want)
{
    QosResource resource = inode(number);

    return qos_lockclient_has(user->client, &resource, want);
}

static inline void put(User *user, Use *use)
{
    qos_lockclient_put(user->client, &use->use);
    pthread_mutex_destroy(&use->lock);
    pthread_cond_destroy(&use->changed);
}

/* GLib is not built for ThreadSanitizer: what it does itself is not looked at. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1";
}
