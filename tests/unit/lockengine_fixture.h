/*
 * A server's owner and two mounts' engines, with the time stepped by hand.
 */
#pragma once

#include "fs/lockengine/engine.h"

#define SERVER 1
#define LEASE  (10 * QOS_SECOND)
#define MOUNTS 2

typedef struct Mount {
    QosOwnerId id;
    QosLockengine *engine;
    gboolean is_connected, is_stubborn; /* a stubborn one does not release by itself */
    gboolean may_hang_up;               /* on the server, for what it says */
    gboolean is_up;
    guint drops, wanted, lost, changes;
    QosResource dropped; /* last */
    QosCredit credit;    /* and what of it */
} Mount;

typedef struct {
    QosTime now;
    QosOwner *server; /* NULL: down */
    guint32 incarnation;
    guint group;
    QosOwnerId server_id;
    GHashTable *clients;
    QosPoolSignal signal;
    QosPoolSignal claimed; /* came with the last claims */
    Mount mounts[MOUNTS];
} World;

typedef struct {
    QosLockUse use;
    gboolean is_done;
    QosCreditVerdict verdict;
} Use;

static const QosCredit reading = {.reads = QOS_INODE_ATTRIBUTES};
static const QosCredit writing = {.reads = QOS_INODE_ATTRIBUTES, .writes = QOS_INODE_ATTRIBUTES};

static QosResource inode(guint number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, sizeof(number));
    return resource;
}

/* --- the world --- */

static void take_events(World *w, Mount *mount)
{
    QosLockevent event;

    while (qos_lockengine_take_event(mount->engine, &event)) {
        switch (event.kind) {
        case QOS_LOCKEVENT_DONE:
            event.use->done(event.use, event.verdict);
            break;
        case QOS_LOCKEVENT_DROP:
            mount->drops++;
            if (!mount->is_stubborn)
                qos_lockengine_release(mount->engine, &event.resource, &event.credit, w->now);
            qos_credit_clear(qos_resource_type(mount->dropped.type), &mount->credit);
            mount->dropped = event.resource;
            mount->credit = event.credit;
            event.credit = (QosCredit){0};
            break;
        case QOS_LOCKEVENT_WANTED:
            mount->wanted++;
            break;
        case QOS_LOCKEVENT_LOST:
            mount->lost++;
            break;
        case QOS_LOCKEVENT_CHANGED:
            mount->is_up = event.is_up;
            mount->changes++;
            break;
        }
        qos_credit_clear(qos_resource_type(event.resource.type), &event.credit);
    }
}

static void cut(const World *w, Mount *mount)
{
    mount->is_connected = FALSE;
    qos_lockengine_disconnected(mount->engine, w->now);
}

static void deliver(World *w, Mount *mount, const QosCreditMessage *message)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosCreditMessage stamped = *message;
    gsize batch = QOS_WIRE_NO_BATCH;

    stamped.stamp = w->signal;
    g_assert_true(qos_wire_put_credits(bytes, &batch, &stamped));
    if (mount->is_connected &&
        !qos_lockengine_receive(mount->engine, bytes->data + 5, bytes->len - 5, w->now)) {
        g_assert_true(mount->may_hang_up);
        cut(w, mount);
    }
}

static void drain_server(World *w)
{
    QosOutput output;

    while (w->server != NULL && qos_owner_output(w->server, &output)) {
        if (output.kind == QOS_OUTPUT_SEND)
            deliver(w, &w->mounts[output.peer - 10], output.message);
        if (output.kind == QOS_OUTPUT_SAVE) {
            g_hash_table_add(w->clients, GUINT_TO_POINTER(output.peer));
            qos_owner_saved(w->server, output.peer, w->now);
        }
        if (output.kind == QOS_OUTPUT_FORGET)
            g_hash_table_remove(w->clients, GUINT_TO_POINTER(output.peer));
    }
}

static gboolean carry(World *w, Mount *mount)
{
    g_autoptr(GByteArray) bytes = qos_lockengine_take_bytes(mount->engine);
    QosWireReader reader;
    QosWireType type;
    const guint8 *payload;
    gsize length;
    QosCreditMessage message;

    if (bytes == NULL)
        return FALSE;
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, bytes->data, bytes->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        g_assert_cmpint(type, ==, QOS_WIRE_CREDITS);
        while (length > 0) {
            g_assert_true(qos_wire_get_credits(&payload, &length, &message));
            if (message.type == QOS_MESSAGE_RECLAIM)
                w->claimed = message.stamp;
            if (w->server != NULL)
                qos_owner_receive(w->server, mount->id, &message, w->now);
            qos_credit_message_clear(&message);
        }
    }
    qos_wire_reader_clear(&reader);
    return TRUE;
}

/* Until nobody has anything to say. */
static void settle(World *w)
{
    gboolean is_busy = TRUE;

    while (is_busy) {
        is_busy = FALSE;
        drain_server(w);
        for (guint i = 0; i < MOUNTS; i++) {
            take_events(w, &w->mounts[i]);
            is_busy |= carry(w, &w->mounts[i]);
        }
    }
}

G_GNUC_UNUSED static void pass(World *w, QosTime duration)
{
    QosTime until = w->now + duration;

    settle(w);
    for (;;) {
        QosTime next = w->server != NULL ? qos_owner_next(w->server) : QOS_NEVER;
        for (guint i = 0; i < MOUNTS; i++)
            next = MIN(next, qos_lockengine_next(w->mounts[i].engine));
        if (next > until)
            break;
        w->now = MAX(w->now, next);
        if (w->server != NULL)
            qos_owner_tick(w->server, w->now);
        for (guint i = 0; i < MOUNTS; i++)
            qos_lockengine_tick(w->mounts[i].engine, w->now);
        settle(w);
    }
    w->now = until;
}

G_GNUC_UNUSED static gboolean connect_mount(World *w, Mount *mount)
{
    const QosWireWelcome welcome = {.version = QOS_WIRE_VERSION,
                                    .id = w->server_id,
                                    .incarnation = w->incarnation,
                                    .lease = LEASE,
                                    .resend = 200 * QOS_MILLISECOND,
                                    .group = w->group};
    g_autoptr(GError) error = NULL;

    mount->is_connected = qos_lockengine_connected(mount->engine, &welcome, w->now, &error);
    g_assert_true(mount->is_connected == (error == NULL));
    return mount->is_connected;
}

static void start_server(World *w)
{
    QosOwnerConfig config;
    GHashTableIter iter;
    gpointer client;
    QosOwnerId clients[MOUNTS];
    guint count = 0;

    qos_owner_config_init(&config, w->server_id, ++w->incarnation);
    config.lends = TRUE;
    config.lease = LEASE;
    g_hash_table_iter_init(&iter, w->clients);
    while (g_hash_table_iter_next(&iter, &client, NULL))
        clients[count++] = GPOINTER_TO_UINT(client);
    w->server = qos_owner_new(&config, clients, count, w->now);
}

G_GNUC_UNUSED static void stop_server(World *w)
{
    g_clear_pointer(&w->server, qos_owner_free);
    for (guint i = 0; i < MOUNTS; i++)
        cut(w, &w->mounts[i]);
}

G_GNUC_UNUSED static void init(World *w)
{
    *w = (World){.now = 1000 * QOS_SECOND, .server_id = SERVER, .group = 64};
    w->clients = g_hash_table_new(NULL, NULL);
    start_server(w);
    for (guint i = 0; i < MOUNTS; i++) {
        w->mounts[i].id = 10 + i;
        w->mounts[i].engine = qos_lockengine_new(10 + i, 1);
        g_assert_true(connect_mount(w, &w->mounts[i]));
    }
    pass(w, QOS_MILLISECOND);
    for (guint i = 0; i < MOUNTS; i++)
        g_assert_true(w->mounts[i].is_up);
}

G_GNUC_UNUSED static void clear(World *w)
{
    for (guint i = 0; i < MOUNTS; i++) {
        Mount *mount = &w->mounts[i];
        qos_lockengine_free(mount->engine);
        qos_credit_clear(qos_resource_type(mount->dropped.type), &mount->credit);
    }
    qos_owner_free(w->server);
    g_hash_table_unref(w->clients);
}

G_GNUC_UNUSED static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    Use *whole = (Use *)use;

    g_assert_false(whole->is_done);
    whole->is_done = TRUE;
    whole->verdict = verdict;
}

G_GNUC_UNUSED static QosCreditVerdict get(World *w, guint mount, guint number, QosCredit want,
                                          guint flags, Use *use)
{
    QosResource resource = inode(number);

    *use = (Use){.use.done = done};
    use->verdict =
        qos_lockengine_get(w->mounts[mount].engine, &resource, &want, flags, &use->use, w->now);
    return use->verdict;
}

/* What became of it in the end. */
G_GNUC_UNUSED static QosCreditVerdict got(World *w, guint mount, guint number, QosCredit want,
                                          Use *use)
{
    get(w, mount, number, want, 0, use);
    settle(w);
    return use->verdict;
}

G_GNUC_UNUSED static void put(World *w, guint mount, Use *use)
{
    qos_lockengine_put(w->mounts[mount].engine, &use->use, w->now);
}

/* Uses it for a moment. */
G_GNUC_UNUSED static void visit(World *w, guint mount, guint number)
{
    Use use;

    g_assert_cmpint(got(w, mount, number, writing, &use), ==, QOS_CREDIT_GRANTED);
    put(w, mount, &use);
}

G_GNUC_UNUSED static gboolean has(World *w, guint mount, guint number, QosCredit want)
{
    Use use;

    if (get(w, mount, number, want, QOS_CREDIT_NON_BLOCK_LOCAL, &use) != QOS_CREDIT_GRANTED)
        return FALSE;
    put(w, mount, &use);
    return TRUE;
}

G_GNUC_UNUSED static void release(World *w, guint mount)
{
    Mount *it = &w->mounts[mount];

    qos_lockengine_release(it->engine, &it->dropped, &it->credit, w->now);
    settle(w);
}

G_GNUC_UNUSED static QosLockclientStatus status_of(World *w, guint mount)
{
    QosLockclientStatus status = {0};

    qos_lockengine_status(w->mounts[mount].engine, &status, w->now);
    return status;
}

/* The first mount has used 7, which its cache begins to give back: done with release(). */
static inline void start_dropping(World *w)
{
    init(w);
    visit(w, 0, 7);
    w->mounts[0].is_stubborn = TRUE;
    qos_lockengine_shrink(w->mounts[0].engine, 1, w->now);
}

/* The server's next signal. */
static inline void hear(World *w, gint64 rate)
{
    w->signal = (QosPoolSignal){.sequence = w->signal.sequence + 1, .rate = rate};
}
