/*
 * What the server decides: which mounts are let in, what credits cost, and that a restart of the
 * server loses and mints nothing. The mounts are owners in this process, and messages are handed
 * over.
 */
#include <glib/gstdio.h>
#include <malloc.h>
#include <string.h>

#include "server/grants.h"

#define PATIENCE (60 * G_TIME_SPAN_SECOND)
#define MOUNTS   3

typedef struct {
    QosOwner *owner; /* NULL: not there */
    gboolean is_connected;
    guint lost, done, dropped;
    QosPoolSignal signal;
    gboolean is_welcome;
    guint64 sequence; /* the last one received */
} Mount;

typedef struct {
    char *folder;
    QosGrants *grants;
    QosGrantsConfig config;
    Mount mounts[MOUNTS + 1]; /* by id, from 1 */
    GQueue letters;           /* of GByteArray, to mounts: the first 8 bytes say which */
} Fixture;

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* --- between the server and the mounts --- */

static void send_to(QosOwnerId id, const QosCreditMessage *message, gpointer arg)
{
    Fixture *fixture = arg;
    GByteArray *letter = g_byte_array_new();

    g_assert_true(fixture->mounts[id].is_connected);
    g_byte_array_append(letter, (const guint8 *)&id, sizeof(id));
    qos_credit_message_encode(message, letter);
    g_queue_push_tail(&fixture->letters, letter);
}

static void drop(QosOwnerId id, QosWireRefusal code, const char *reason, gpointer arg)
{
    Mount *mount = &((Fixture *)arg)->mounts[id];

    g_assert_cmpint(code, ==, QOS_WIRE_NOT_PERMITTED);
    g_assert_nonnull(strstr(reason, "administrator"));
    mount->is_connected = FALSE;
    mount->dropped++;
}

static void drain(Fixture *fixture, QosOwnerId id)
{
    Mount *mount = &fixture->mounts[id];
    QosOutput output;

    while (mount->owner && qos_owner_output(mount->owner, &output)) {
        if (output.kind == QOS_OUTPUT_SEND && mount->is_connected && fixture->grants) {
            QosCreditMessage message = *output.message;
            if (message.type == QOS_MESSAGE_RECLAIM)
                message.stamp = mount->signal; /* as fs/lockengine/engine.c does */
            qos_grants_received(fixture->grants, id, &message, 1);
        }
        mount->lost += output.kind == QOS_OUTPUT_LOST;
        mount->done += output.kind == QOS_OUTPUT_DONE;
    }
}

static guint64 server_id(const Fixture *fixture)
{
    QosGrantsState state;

    qos_grants_state(fixture->grants, &state);
    return state.id;
}

/* What the server has sent reaches the mounts. */
static void deliver(Fixture *fixture)
{
    GByteArray *letter;

    while ((letter = g_queue_pop_head(&fixture->letters))) {
        QosCreditMessage message;
        QosOwnerId id;
        memcpy(&id, letter->data, sizeof(id));
        Mount *mount = &fixture->mounts[id];
        g_assert_true(qos_credit_message_decode(&message, letter->data + 8, letter->len - 8));
        if (message.stamp.sequence > mount->signal.sequence)
            mount->signal = message.stamp;
        mount->sequence = MAX(mount->sequence, message.sequence);
        mount->is_welcome |= message.type == QOS_MESSAGE_WELCOME;
        if (mount->owner && mount->is_connected)
            qos_owner_receive(mount->owner, server_id(fixture), &message, now_of());
        qos_credit_message_clear(&message);
        g_byte_array_unref(letter);
        drain(fixture, id);
    }
}

/* One turn of everybody. */
static void turn(Fixture *fixture)
{
    g_main_context_iteration(NULL, FALSE);
    for (QosOwnerId id = 1; id <= MOUNTS; id++) {
        if (fixture->mounts[id].owner && now_of() >= qos_owner_next(fixture->mounts[id].owner))
            qos_owner_tick(fixture->mounts[id].owner, now_of());
        drain(fixture, id);
    }
    deliver(fixture);
    g_usleep(1000);
}

typedef gboolean Condition(Fixture *fixture);

static void run_until(Fixture *fixture, Condition *condition)
{
    gint64 end = g_get_monotonic_time() + PATIENCE;

    while (!condition(fixture)) {
        turn(fixture);
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
}

/* --- server and mounts --- */

static void start_server(Fixture *fixture)
{
    const QosGrantsOutput output = {.arg = fixture, .send = send_to, .drop = drop};
    g_autoptr(GError) error = NULL;

    fixture->config.database = fixture->folder;
    fixture->grants = qos_grants_new(&fixture->config, &output, &error);
    g_assert_no_error(error);
}

static void stop_server(Fixture *fixture)
{
    GByteArray *letter;

    g_clear_pointer(&fixture->grants, qos_grants_free);
    while ((letter = g_queue_pop_head(&fixture->letters)))
        g_byte_array_unref(letter);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        fixture->mounts[id].is_connected = FALSE;
}

static gboolean say_hello(Fixture *fixture, QosOwnerId id, const char *store, const char *principal,
                          QosWireWelcome *welcome, QosWireRefused *refused)
{
    QosWireHello hello = {.version = QOS_WIRE_VERSION, .id = id, .incarnation = 1};

    g_strlcpy(hello.store, store, sizeof(hello.store));
    g_snprintf(hello.name, sizeof(hello.name), "node%d:/mnt", (int)id);
    return qos_grants_connected(fixture->grants, &hello, principal, welcome, refused);
}

static void connect_mount(Fixture *fixture, QosOwnerId id)
{
    Mount *mount = &fixture->mounts[id];
    QosWireWelcome welcome;
    QosWireRefused refused;

    g_assert_true(say_hello(fixture, id, "store", "uid 0", &welcome, &refused));
    mount->is_connected = TRUE;
    if (mount->owner)
        return;
    QosOwnerConfig config;
    qos_owner_config_init(&config, id, 1);
    config.above = welcome.id;
    config.lease = welcome.lease;
    config.resend = welcome.resend;
    mount->owner = qos_owner_new(&config, NULL, 0, now_of());
}

static gboolean all_up(Fixture *fixture)
{
    for (QosOwnerId id = 1; id <= MOUNTS; id++) {
        const Mount *mount = &fixture->mounts[id];
        if (mount->is_connected && !qos_owner_is_alive(mount->owner, now_of()))
            return FALSE;
    }
    return TRUE;
}

static void set_up(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fixture->folder = g_dir_make_tmp("qosfs-grants-XXXXXX", NULL);
    fixture->config =
        (QosGrantsConfig){.settings = {.pool = {.limit = 1 << 20, .hard_limit = 5 << 18},
                                       .lease = 3 * QOS_SECOND,
                                       .group = 1024},
                          .resend = 50 * QOS_MILLISECOND};
    start_server(fixture);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const names[] = {"server.db", "server.db-wal", "server.db-shm",
                                        "server.db.lock"};

    stop_server(fixture);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        qos_owner_free(fixture->mounts[id].owner);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *name = g_build_filename(fixture->folder, names[i], NULL);
        g_unlink(name);
    }
    g_assert_cmpint(g_rmdir(fixture->folder), ==, 0);
    g_free(fixture->folder);
}

static QosGrantsState state_of(const Fixture *fixture)
{
    QosGrantsState state;

    qos_grants_state(fixture->grants, &state);
    return state;
}

static gboolean all_done(Fixture *fixture)
{
    guint done = 0;

    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        done += fixture->mounts[id].done;
    return done == 0;
}

/* Mount `id` gets, and puts, `count` credits from `first` on, of inodes or of groups. */
static void take(Fixture *fixture, QosOwnerId id, QosResourceTypeId type, guint first, guint count)
{
    g_autofree QosHold *holds = g_new0(QosHold, count);
    Mount *mount = &fixture->mounts[id];
    QosCredit want = type == QOS_RESOURCE_INODE ? (QosCredit){.reads = QOS_INODE_ATTRIBUTES}
                                                : qos_credit_span(3, 3, FALSE);

    mount->done = 0;
    for (guint i = 0; i < count; i++) {
        guint number = first + i;
        QosResource resource;
        qos_resource_init(&resource, type, &number, sizeof(number));
        QosCreditVerdict verdict =
            qos_credit_get(mount->owner, now_of(), &resource, &want, 0, &holds[i]);
        g_assert_true(verdict == QOS_CREDIT_WAITING || verdict == QOS_CREDIT_GRANTED);
        mount->done -= verdict == QOS_CREDIT_WAITING; /* they come back to 0 */
    }
    run_until(fixture, all_done);
    for (guint i = 0; i < count; i++)
        qos_credit_put(mount->owner, now_of(), &holds[i]);
    qos_credit_clear(qos_resource_type(type), &want);
}

/* --- tests --- */

static void test_admission(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosWireWelcome welcome = {0};
    QosWireRefused refused;

    g_assert_true(say_hello(fixture, 1, "store", "uid 0", &welcome, &refused));
    fixture->mounts[1].is_connected = TRUE;
    g_assert_cmpuint(welcome.id, ==, server_id(fixture));
    g_assert_cmpuint(welcome.incarnation, ==, 1);
    g_assert_cmpint(welcome.lease, ==, 3 * QOS_SECOND);
    g_assert_cmpuint(welcome.group, ==, 1024);

    g_assert_false(say_hello(fixture, 2, "other", "uid 0", &welcome, &refused));
    g_assert_cmpint(refused.code, ==, QOS_WIRE_OTHER_STORE);
    g_assert_nonnull(strstr(refused.reason, "store store"));
    g_assert_nonnull(strstr(refused.reason, "of other"));
    g_assert_false(say_hello(fixture, 1, "store", "uid 7", &welcome, &refused));
    g_assert_cmpint(refused.code, ==, QOS_WIRE_IDENTITY_TAKEN);
    g_assert_false(say_hello(fixture, server_id(fixture), "store", "uid 0", &welcome, &refused));
    g_assert_cmpint(refused.code, ==, QOS_WIRE_IDENTITY_TAKEN);
    g_assert_true(say_hello(fixture, 1, "store", "uid 0", &welcome, &refused)); /* it came again */

    qos_grants_disconnected(fixture->grants, 1); /* none is left: another store may come */
    g_assert_true(say_hello(fixture, 2, "other", "uid 0", &welcome, &refused));
    g_assert_cmpstr(state_of(fixture).store, ==, "other");
}

static void test_counts(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    connect_mount(fixture, 1);
    run_until(fixture, all_up);
    g_assert_cmpint(state_of(fixture).pool->granted, ==, 0);
    take(fixture, 1, QOS_RESOURCE_INODE, 0, 100);
    QosGrantsState state = state_of(fixture);
    g_assert_cmpuint(state.lent, ==, 100);
    gint64 each = state.pool->granted / 100;
    g_assert_cmpint(each, >, 100);
    g_assert_cmpint(each, <=, 250);
    take(fixture, 1, QOS_RESOURCE_INODES, 0, 10); /* these have a span each */
    g_assert_cmpint(state.pool->granted, ==, 110 * each + 10 * (gint64)(sizeof(QosSpan) + 8));
    g_assert_cmpuint(state.pool->clients, ==, 1);
    g_assert_cmpuint(fixture->mounts[1].signal.sequence, >=, (guint64)1 << 32);
    g_assert_cmpint(fixture->mounts[1].signal.rate, >, 0);
}

static gboolean nothing_lent(Fixture *fixture)
{
    return state_of(fixture).lent == 0;
}

/* A mount that is gone loses what it had with its lease, and is forgotten. */
static void test_eviction(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    connect_mount(fixture, 1);
    run_until(fixture, all_up);
    take(fixture, 1, QOS_RESOURCE_INODES, 0, 50);
    g_clear_pointer(&fixture->mounts[1].owner, qos_owner_free);
    fixture->mounts[1].is_connected = FALSE;
    qos_grants_disconnected(fixture->grants, 1);
    g_assert_cmpuint(state_of(fixture).pool->clients, ==, 1); /* by what it has */
    gint64 begun = g_get_monotonic_time();
    run_until(fixture, nothing_lent);
    g_assert_cmpint(g_get_monotonic_time() - begun, >, 2 * G_TIME_SPAN_SECOND);
    QosGrantsState state = state_of(fixture);
    g_assert_cmpint(state.pool->granted, ==, 0);
    g_assert_cmpuint(state.pool->clients, ==, 0);
    g_assert_cmpuint(state.evictions, ==, 1);
    g_assert_cmpuint(qos_clients_count(state.clients), ==, 0);
}

static gboolean is_over(Fixture *fixture)
{
    return !state_of(fixture).in_grace && all_up(fixture);
}

/* Seed 001, 4.2.2: what was granted before is granted after, to the byte, and no more. */
static void test_restart(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        connect_mount(fixture, id);
    run_until(fixture, all_up);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        take(fixture, id, id == 2 ? QOS_RESOURCE_INODES : QOS_RESOURCE_INODE, 100 * (guint)id, 400);
    QosGrantsState before = state_of(fixture);
    gint64 granted = before.pool->granted;
    guint64 lent = before.lent;
    guint64 sequence = fixture->mounts[1].signal.sequence;

    g_assert_cmpuint(lent, ==, MOUNTS * 400);
    stop_server(fixture);
    start_server(fixture);
    g_assert_true(state_of(fixture).in_grace);
    g_assert_cmpuint(state_of(fixture).awaited, ==, MOUNTS);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        connect_mount(fixture, id);
    run_until(fixture, is_over);
    QosGrantsState after = state_of(fixture);
    g_assert_cmpint(after.pool->granted, ==, granted);
    g_assert_cmpuint(after.lent, ==, lent);
    g_assert_cmpuint(after.incarnation, ==, 2);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        g_assert_cmpuint(fixture->mounts[id].lost, ==, 0);
    take(fixture, 1, QOS_RESOURCE_INODE, 5000, 1);                     /* it is served again, */
    g_assert_cmpuint(fixture->mounts[1].signal.sequence, >, sequence); /* and heeded */
}

static gboolean is_first_welcome(Fixture *fixture)
{
    return fixture->mounts[1].is_welcome;
}

/* All have heard the server that there is now. */
static gboolean all_heard(Fixture *fixture)
{
    for (QosOwnerId id = 1; id <= MOUNTS; id++) {
        if (fixture->mounts[id].signal.sequence >> 32 != state_of(fixture).incarnation)
            return FALSE;
    }
    return TRUE;
}

static double rate_after_restart(Fixture *fixture)
{
    guint64 sequence = fixture->mounts[1].signal.sequence;

    stop_server(fixture);
    start_server(fixture);
    fixture->mounts[1].is_welcome = FALSE;
    connect_mount(fixture, 1);
    run_until(fixture, is_first_welcome);
    g_assert_cmpuint(fixture->mounts[1].signal.sequence, ==, sequence);
    for (QosOwnerId id = 2; id <= MOUNTS; id++)
        connect_mount(fixture, id);
    run_until(fixture, is_over);
    return state_of(fixture).pool->rate;
}

/* So is SLR: the newest that a mount has heard, within its bounds. In the grace there is none. */
static void test_restart_goes_on_with_rate(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosPoolSignal *const heard = &fixture->mounts[2].signal;

    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        connect_mount(fixture, id);
    run_until(fixture, all_up);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        take(fixture, id, QOS_RESOURCE_INODE, 100 * (guint)id, 10);
    const double first = state_of(fixture).pool->rate;
    heard->rate = 7 * (gint64)first;
    heard->sequence += 1000;
    g_assert_cmpfloat(rate_after_restart(fixture), ==, 7 * first);
    run_until(fixture, all_heard);
    g_assert_cmpint(heard->rate, ==, 7 * (gint64)first);
    for (QosOwnerId id = 1; id <= MOUNTS; id++)
        fixture->mounts[id].signal.rate = G_MAXINT64;
    g_assert_cmpfloat(rate_after_restart(fixture), <=, 0x1p62);
}

/* Beyond HL nothing is granted, and a credit that is given back makes room. */
static void test_full(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    QosResource resource;
    QosHold hold = {0};
    QosCredit want = {.reads = QOS_INODE_ATTRIBUTES};
    guint number = 100000;

    connect_mount(fixture, 1);
    run_until(fixture, all_up);
    take(fixture, 1, QOS_RESOURCE_INODE, 0, 100);
    g_assert_true(qos_grants_set(fixture->grants, "limit", "2K", &error));
    QosGrantsState state = state_of(fixture);
    g_assert_cmpint(state.pool->config.hard_limit, ==, 2560);
    g_assert_cmpint(state.pool->granted, >, 2560); /* what is granted stays granted */
    qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, sizeof(number));
    fixture->mounts[1].done = (guint)-1;
    qos_credit_get(fixture->mounts[1].owner, now_of(), &resource, &want, 0, &hold);
    run_until(fixture, all_done);
    g_assert_null(hold.book);
    g_assert_cmpuint(state_of(fixture).lent, ==, 100);
    g_assert_cmpuint(state_of(fixture).pool->refused, ==, 1);
}

static gboolean is_welcome(Fixture *fixture)
{
    QosWireWelcome welcome;
    QosWireRefused refused;

    return say_hello(fixture, 1, "store", "uid 0", &welcome, &refused);
}

static void test_expulsion(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;

    connect_mount(fixture, 1);
    run_until(fixture, all_up);
    take(fixture, 1, QOS_RESOURCE_INODE, 0, 10);
    g_assert_false(qos_grants_expel(fixture->grants, 99, &error));
    g_assert_cmpstr(error->message, ==, "there is no mount 63");
    g_clear_error(&error);
    g_assert_true(qos_grants_expel(fixture->grants, 1, &error));
    g_assert_cmpuint(fixture->mounts[1].dropped, ==, 1);
    g_assert_false(is_welcome(fixture));
    g_assert_cmpuint(state_of(fixture).lent, ==, 10); /* it may still use them */
    run_until(fixture, nothing_lent);
    run_until(fixture, is_welcome);
    fixture->mounts[1].is_connected = TRUE;
}

/* Mount `id` tells that a process of it has all of file `has`, and waits for all of `wants`. */
static gboolean tell_wait(Fixture *fixture, QosOwnerId id, guint wants, guint has)
{
    const guint files[] = {wants, has};
    QosWireWait wait = {.id = 1, .owner = 1};

    wait.items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
    for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
        QosCreditItem item = {.credit = qos_credit_span(0, G_MAXINT64, TRUE)};
        qos_resource_init(&item.resource, QOS_RESOURCE_EXTENT, &files[i], sizeof(files[i]));
        g_array_append_val(wait.items, item);
    }
    gboolean is_deadlock = qos_grants_waits(fixture->grants, id, &wait);
    qos_wire_wait_clear(&wait);
    return is_deadlock;
}

/* The processes of a mount that has gone, or begins anew, wait for nothing. */
static void test_waits(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    connect_mount(fixture, 1);
    connect_mount(fixture, 2);
    g_assert_false(tell_wait(fixture, 1, 2, 1));
    g_assert_true(tell_wait(fixture, 2, 1, 2));
    g_assert_cmpuint(state_of(fixture).deadlocks, ==, 1);
    connect_mount(fixture, 1);
    g_assert_false(tell_wait(fixture, 2, 1, 2));
    g_assert_cmpuint(state_of(fixture).waits, ==, 1);
    fixture->mounts[2].is_connected = FALSE;
    qos_grants_disconnected(fixture->grants, 2);
    g_assert_cmpuint(state_of(fixture).waits, ==, 0);
    g_assert_false(tell_wait(fixture, 1, 2, 1));
    g_assert_cmpuint(state_of(fixture).deadlocks, ==, 1);
}

static void test_tunables(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const wrong[][3] = {
        {"limmit", "1G", "there is no tunable \"limmit\""},
        {"limit", "9P", "limit: 9P is not within"},
        {"limit", "some", "limit: "},
        {"hard-limit", "1K", "pool of credits: the hard limit"},
        {"law", "best", "law: \"best\" is neither"},
        {"group", "3", "group: 3 is no power of two"},
        {"lease", "1ms", "lease: 1ms is not between"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(qos_grants_set(fixture->grants, wrong[i][0], wrong[i][1], &error));
        g_assert_true(g_str_has_prefix(error->message, wrong[i][2]));
    }
    g_assert_cmpuint(g_hash_table_size(state_of(fixture).set), ==, 0);
    g_assert_true(qos_grants_set(fixture->grants, "limit", "2M", NULL));
    g_assert_true(qos_grants_set(fixture->grants, "lease", "7s", NULL));
    g_assert_cmpint(state_of(fixture).settings->lease, ==, 3 * QOS_SECOND);
    g_assert_cmpint(state_of(fixture).next->lease, ==, 7 * QOS_SECOND);
    stop_server(fixture);
    start_server(fixture);
    QosGrantsState state = state_of(fixture);
    g_assert_cmpint(state.pool->config.limit, ==, 2 << 20);
    g_assert_cmpint(state.settings->lease, ==, 7 * QOS_SECOND);
    connect_mount(fixture, 1);
    run_until(fixture, all_up);
    g_assert_true(qos_grants_set(fixture->grants, "lease", "2s", NULL));
    stop_server(fixture);
    start_server(fixture); /* a mount was promised 7 s */
    state = state_of(fixture);
    g_assert_cmpint(state.settings->lease, ==, 7 * QOS_SECOND);
    g_assert_cmpint(state.next->lease, ==, 2 * QOS_SECOND);
    g_assert_true(qos_grants_set(fixture->grants, "limit", "default", NULL));
    g_assert_cmpint(state.pool->config.limit, ==, 1 << 20);
    g_assert_cmpint(state.pool->config.hard_limit, ==, 5 << 18);
}

static gboolean is_greeted(Fixture *fixture)
{
    return fixture->mounts[1].is_welcome;
}

#define MANY 49500 /* just above 3/4 of 65,536, where the table has most room to spare */

static double memory_used(void)
{
    struct mallinfo2 info = mallinfo2();

    return (double)info.uordblks + (double)info.hblkhd;
}

/* A mount that keeps nothing itself asks for many credits; returns the bytes for each that the
 * process has more then. */
static double measure(Fixture *fixture, QosResourceTypeId type, guint64 *sequence)
{
    const guint64 session = (guint64)1 << 32 | 1;
    double before = memory_used();

    for (guint64 i = 0; i < MANY; i++) {
        QosCreditMessage message = {.type = QOS_MESSAGE_ENQUEUE,
                                    .session = session,
                                    .lender = 1,
                                    .sequence = ++*sequence,
                                    .acknowledged = fixture->mounts[1].sequence,
                                    .request = i + 1};
        qos_resource_init(&message.resource, type, &i, sizeof(i));
        message.credit = type == QOS_RESOURCE_INODE ? (QosCredit){.reads = 1, .writes = 1}
                                                    : qos_credit_span(5, 5, TRUE);
        qos_grants_received(fixture->grants, 1, &message, 1);
        qos_credit_message_clear(&message);
        deliver(fixture);
    }
    QosCreditMessage last = {.type = QOS_MESSAGE_RENEW,
                             .session = session,
                             .lender = 1,
                             .acknowledged = fixture->mounts[1].sequence};
    qos_grants_received(fixture->grants, 1, &last, 1);
    deliver(fixture);
    return (memory_used() - before) / MANY;
}

/* No credit takes more than it is counted for, and none more than 250 bytes. */
static void test_memory(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const QosResourceTypeId types[] = {QOS_RESOURCE_INODE, QOS_RESOURCE_INODES};
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .session = (guint64)1 << 32 | 1};
    guint64 sequence = 0;
    QosWireWelcome welcome;
    QosWireRefused refused;

    g_assert_true(qos_grants_set(fixture->grants, "limit", "100M", NULL));
    g_assert_true(say_hello(fixture, 1, "store", "uid 0", &welcome, &refused));
    fixture->mounts[1].is_connected = TRUE;
    qos_grants_received(fixture->grants, 1, &hello, 1);
    run_until(fixture, is_greeted);
    for (guint i = 0; i < G_N_ELEMENTS(types); i++) {
        gint64 granted = state_of(fixture).pool->granted;
        double bytes = measure(fixture, types[i], &sequence);
        double counted = (double)(state_of(fixture).pool->granted - granted) / MANY;
        g_test_message("%s: %.1f bytes, counted %.1f", qos_resource_type(types[i])->name, bytes,
                       counted);
        g_assert_cmpuint(state_of(fixture).lent, ==, (i + 1) * MANY);
#ifndef __SANITIZE_ADDRESS__ /* which has memory of its own */
        g_assert_cmpfloat(bytes, <=, 250);
        g_assert_cmpfloat(bytes, <=, counted);
        g_assert_cmpfloat(bytes, >=, counted * 0.7);
#endif
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, test) g_test_add("/grants/" name, Fixture, NULL, set_up, test, tear_down)
    ADD("admission", test_admission);
    ADD("counts", test_counts);
    ADD("eviction", test_eviction);
    ADD("restart", test_restart);
    ADD("restart-goes-on-with-rate", test_restart_goes_on_with_rate);
    ADD("full", test_full);
    ADD("expulsion", test_expulsion);
    ADD("waits", test_waits);
    ADD("tunables", test_tunables);
    ADD("memory", test_memory);
    return g_test_run();
}
