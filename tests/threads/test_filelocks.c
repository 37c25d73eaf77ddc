/*
 * Locks across mounts, of requests that the kernel never made: what the server is told of waiters
 * and of lost locks, what that costs, and how many may wait. No server is there.
 */
#include "fs/filelocks/filelocks.h"
#include "fs/filelocks/state.h"

typedef struct {
    QosFileLocks *locks;
    QosJob jobs[4];
    QosUser user; /* of all of these */
} World;

/* None is to come. */
static void drop(const QosResource *resource, const QosCredit *credit, gboolean is_wanted,
                 gpointer arg)
{
    (void)resource, (void)credit, (void)is_wanted, (void)arg;
    g_assert_not_reached();
}

static void wanted(const QosResource *resource, gpointer arg)
{
    (void)resource, (void)arg;
    g_assert_not_reached();
}

static void lost(const QosResource *resource, const QosCredit *credit, gpointer arg)
{
    (void)resource, (void)credit, (void)arg;
    g_assert_not_reached();
}

static void deadlocked(guint64 wait, gpointer arg)
{
    (void)wait, (void)arg;
    g_assert_not_reached();
}

static void changed(gboolean is_up, gpointer arg)
{
    (void)arg;
    g_assert_false(is_up);
}

static void init(World *w)
{
    const QosLockclientConfig config = {.server = "unix:/nowhere",
                                        .id = 1,
                                        .incarnation = 1,
                                        .store = "store",
                                        .name = "name",
                                        .drop = drop,
                                        .wanted = wanted,
                                        .lost = lost,
                                        .deadlocked = deadlocked,
                                        .changed = changed};

    *w = (World){.locks = qos_filelocks_new(NULL)};
    w->locks->client = qos_lockclient_new(&config, NULL);
    g_assert_nonnull(w->locks->client);
}

static void clear(World *w)
{
    g_assert_cmpuint(g_hash_table_size(w->locks->files), ==, 0);
    g_assert_cmpuint(g_hash_table_size(w->locks->owners.owners), ==, 0);
    g_assert_cmpuint(g_hash_table_size(w->locks->told), ==, 0);
    g_assert_cmpuint(g_hash_table_size(w->locks->quota.counts), ==, 0);
    g_assert_cmpuint(w->locks->told_ranges, ==, 0);
    g_assert_cmpuint(w->locks->quota.taken, ==, 0);
    qos_lockclient_free(w->locks->client);
    qos_filelocks_free(w->locks);
}

static QosLockedFile *file_of(World *w, guint64 number, QosFileLockKind kind)
{
    return qos_locked_file_get_locked(w->locks, &(QosFileName){.number = number}, kind);
}

static void lock(World *w, QosLockedFile *file, const QosOpenFile *open_file, guint64 owner,
                 guint64 first)
{
    const QosFileLock lock = {.owner = owner, .open_file = open_file, .span = {first, first, TRUE}};

    qos_filelock_table_set(&file->table, &lock);
    qos_filelocks_note_owner_locked(w->locks, file, owner);
    qos_filelocks_tell_locked(w->locks);
}

static QosCall *call_new(World *w, QosLockedFile *file, guint64 owner)
{
    QosCall *call = g_new0(QosCall, 1);

    *call = (QosCall){.references = 1, .locks = w->locks, .file = file, .kind = file->kind};
    call->mode = QOS_FILELOCKS_WAIT;
    call->lock = (QosFileLock){.owner = owner, .span = {0, 0, TRUE}};
    call->due = QOS_NEVER;
    call->state = QOS_CALL_BLOCKED;
    call->link.data = call->due_link.data = call;
    g_queue_push_tail_link(&file->calls, &call->link);
    return call;
}

static QosCall *wait_new(World *w, QosLockedFile *file, guint64 owner)
{
    QosCall *call = call_new(w, file, owner);

    qos_call_begin_wait_locked(call);
    qos_filelocks_tell_locked(w->locks);
    return call;
}

/* Nobody is answered. */
static void finish(World *w, QosCall *call)
{
    qos_call_finish_locked(call, 0);
    g_queue_unlink(&w->locks->answered, &call->link);
    qos_call_unref(call);
}

/* All calls have ended. */
static void give(World *w, QosLockedFile *file, guint64 owner)
{
    qos_filelock_table_unset(&file->table, owner, 0, G_MAXUINT64);
    qos_filelocks_note_owner_locked(w->locks, file, owner);
    qos_filelocks_tell_locked(w->locks);
    qos_locked_file_tidy_locked(w->locks, file);
}

/* Of each wait, what it waits for and what its owner has. */
static void test_told(void)
{
    World w;
    const QosOpenFile open_file = {.name = {.number = 1}};

    init(&w);
    QosLockedFile *his = file_of(&w, 1, QOS_FILELOCKS_RECORD);
    QosLockedFile *more = file_of(&w, 2, QOS_FILELOCKS_RECORD);
    QosLockedFile *contended = file_of(&w, 3, QOS_FILELOCKS_RECORD);
    QosCall *call = wait_new(&w, contended, 7);
    QosCall *other = wait_new(&w, contended, 8);
    g_assert_cmpuint(call->told, ==, 0); /* owner 7 has nothing */
    lock(&w, his, &open_file, 7, 10);
    lock(&w, his, &open_file, 7, 20);
    g_assert_cmpuint(call->told_ranges, ==, 3);
    lock(&w, more, NULL, 7, 10);
    g_assert_cmpuint(call->told_ranges, ==, 4);
    g_assert_cmpuint(other->told, ==, 0);
    g_assert_true(qos_filelocks_find_told_locked(w.locks, call->told) == call);
    qos_filelocks_close(w.locks, &open_file);
    g_assert_cmpuint(call->told_ranges, ==, 2);
    lock(&w, more, NULL, 8, 30);
    g_assert_cmpuint(other->told_ranges, ==, 2);
    g_assert_cmpuint(w.locks->told_ranges, ==, 4);
    give(&w, more, 7);
    g_assert_cmpuint(call->told, ==, 0);
    g_assert_cmpuint(w.locks->told_ranges, ==, 2);
    finish(&w, other);
    finish(&w, call);
    give(&w, more, 8);
    qos_locked_file_tidy_locked(w.locks, contended);
    clear(&w);
}

/* No more than the server keeps. */
static void test_told_at_most(void)
{
    enum { RANGES = 1000, WAITS = 200 };
    World w;
    QosCall *calls[WAITS];
    guint told = 0;

    init(&w);
    QosLockedFile *his = file_of(&w, 1, QOS_FILELOCKS_RECORD);
    QosLockedFile *contended = file_of(&w, 2, QOS_FILELOCKS_RECORD);
    for (guint i = 0; i < RANGES; i++)
        lock(&w, his, NULL, 7, 2 * i);
    for (guint i = 0; i < WAITS; i++) {
        calls[i] = wait_new(&w, contended, 7);
        told += calls[i]->told != 0;
    }
    g_assert_cmpuint(told, ==, QOS_WIRE_WAITS_RANGES_MAX / (RANGES + 1));
    g_assert_cmpuint(w.locks->told_ranges, ==, told * (RANGES + 1));
    g_assert_cmpuint(calls[WAITS - 1]->told, ==, 0);
    qos_filelock_table_unset(&his->table, 7, 1000, G_MAXUINT64);
    qos_filelocks_note_owner_locked(w.locks, his, 7); /* which has half of it left */
    qos_filelocks_tell_locked(w.locks);
    g_assert_cmpuint(calls[WAITS - 1]->told, ==, 0);
    g_assert_cmpuint(w.locks->told_ranges, ==,
                     QOS_WIRE_WAITS_RANGES_MAX / (RANGES / 2 + 1) * (RANGES / 2 + 1));
    for (guint i = 0; i < WAITS; i++)
        finish(&w, calls[i]);
    qos_locked_file_tidy_locked(w.locks, contended);
    give(&w, his, 7);
    clear(&w);
}

/* Many files with a lock each, and as many waiters: none of that is looked at as another waits, and
 * as another's open file is closed. If it were, this would take minutes. */
static void test_many(void)
{
    enum { MANY = 60000 };
    World w;
    const QosOpenFile open_file = {.name = {.number = MANY}};
    g_autofree QosCall **calls = g_new(QosCall *, MANY);

    init(&w);
    for (guint i = 0; i < MANY; i++)
        lock(&w, file_of(&w, i, QOS_FILELOCKS_RECORD), NULL, i, 0);
    for (guint i = 0; i < MANY; i++)
        calls[i] = wait_new(&w, file_of(&w, i, QOS_FILELOCKS_RECORD), MANY + i);
    lock(&w, file_of(&w, MANY, QOS_FILELOCKS_WHOLE), &open_file, 2 * MANY, 0);
    qos_filelocks_close(w.locks, &open_file);
    g_assert_cmpuint(g_hash_table_size(w.locks->files), ==, MANY);
    for (guint i = 0; i < MANY; i++) {
        finish(&w, calls[i]);
        give(&w, file_of(&w, i, QOS_FILELOCKS_RECORD), i);
    }
    clear(&w);
}

/* One owner waits in many threads, and gets lock after lock in one go: that is told once. If each
 * were, this would take minutes. */
static void test_many_of_one(void)
{
    enum { MANY = 30000 };
    World w;
    g_autofree QosCall **calls = g_new(QosCall *, MANY);

    init(&w);
    QosLockedFile *his = file_of(&w, 1, QOS_FILELOCKS_RECORD);
    QosLockedFile *contended = file_of(&w, 2, QOS_FILELOCKS_RECORD);
    lock(&w, his, NULL, 7, 0);
    for (guint i = 0; i < MANY; i++)
        calls[i] = wait_new(&w, contended, 7);
    g_assert_cmpuint(w.locks->told_ranges, ==, 2 * MANY);
    for (guint i = 0; i < MANY; i++) {
        qos_filelocks_note_owner_locked(w.locks, his, 7);
        finish(&w, calls[i]);
    }
    qos_filelocks_tell_locked(w.locks);
    g_assert_cmpuint(w.locks->told_ranges, ==, 0);
    qos_locked_file_tidy_locked(w.locks, contended);
    give(&w, his, 7);
    clear(&w);
}

/* Takes places for the callers in turn, a quarter of all each; until there is none for the last.
 * How many they have. */
static guint take_places(World *w, QosLockedFile *file, const QosCaller *callers, guint count)
{
    guint taken = 0;

    for (; taken <= QOS_FILELOCKS_WAITS_MAX; taken++) {
        const guint turn = MIN(taken / (QOS_FILELOCKS_WAITS_MAX / 4), count - 1);
        QosCall *call = call_new(w, file, 1);

        if (!qos_call_take_place_locked(call, &callers[turn])) {
            finish(w, call);
            break;
        }
    }
    return taken;
}

static void test_places(void)
{
    World w;
    QosJob guest = {0};
    const QosCaller caller = {.job = &guest};
    QosCaller callers[G_N_ELEMENTS(w.jobs)];

    init(&w);
    QosLockedFile *file = file_of(&w, 1, QOS_FILELOCKS_WHOLE);
    for (guint by_user = 0; by_user < 2; by_user++) {
        for (guint i = 0; i < G_N_ELEMENTS(callers); i++)
            callers[i] = (QosCaller){.job = &w.jobs[i], .user = by_user ? &w.user : NULL};
        g_assert_cmpuint(take_places(&w, file, callers, by_user ? G_N_ELEMENTS(callers) : 1), ==,
                         by_user ? QOS_FILELOCKS_WAITS_MAX / 16 * 15
                                 : QOS_FILELOCKS_WAITS_MAX / 8 * 7);
        QosCall *call = call_new(&w, file, 2);
        g_assert_true(qos_call_take_place_locked(call, &caller));
        for (QosCall *one; (one = g_queue_peek_head(&file->calls)) != NULL;)
            finish(&w, one);
    }
    qos_locked_file_tidy_locked(w.locks, file);
    clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL | G_LOG_FATAL_MASK); /* no server is a warning */
    g_test_add_func("/filelocks/told", test_told);
    g_test_add_func("/filelocks/told-at-most", test_told_at_most);
    g_test_add_func("/filelocks/many", test_many);
    g_test_add_func("/filelocks/many-of-one", test_many_of_one);
    g_test_add_func("/filelocks/places", test_places);
    return g_test_run();
}
