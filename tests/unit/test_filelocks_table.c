/*
 * Tables of locks, and which owner has some in which: each rule by itself, then random locks of
 * random owners against a plain array of bytes and a plain search for circles (the seed is printed;
 * QOSFS_SEED replays it).
 */
#include <stdlib.h>

#include "fs/filelocks/owners.h"

#define BYTES  24
#define OWNERS 4
#define FILES  3
#define ROUNDS 30000

static guint32 seed;

static QosFileLock lock_of(guint64 owner, guint64 first, guint64 last, gboolean writes)
{
    return (QosFileLock){.owner = owner, .pid = (gint32)owner, .span = {first, last, writes}};
}

static void set(QosFileLockTable *table, guint64 owner, guint64 first, guint64 last,
                gboolean writes)
{
    QosFileLock lock = lock_of(owner, first, last, writes);

    qos_filelock_table_set(table, &lock);
}

/* All locks as text: "1:0-9w 2:20-29r". */
static char *text_of(const QosFileLockTable *table)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; table->locks != NULL && i < table->locks->len; i++) {
        const QosFileLock *lock = &g_array_index(table->locks, QosFileLock, i);
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT "-", i ? " " : "",
                               lock->owner, lock->span.first);
        g_string_append_printf(text, "%" G_GUINT64_FORMAT "%c", lock->span.last,
                               lock->span.writes ? 'w' : 'r');
    }
    return g_string_free(text, FALSE);
}

static void assert_text(const QosFileLockTable *table, const char *expected)
{
    g_autofree char *text = text_of(table);

    g_assert_cmpstr(text, ==, expected);
}

static gboolean is_free(const QosFileLockTable *table, guint64 owner, guint64 first, guint64 last,
                        gboolean writes)
{
    return qos_filelock_table_conflict(table, owner, &(QosSpan){first, last, writes}) == NULL;
}

static void test_split_and_merge(void)
{
    QosFileLockTable table = {0};

    set(&table, 1, 0, 29, FALSE);
    set(&table, 1, 10, 19, TRUE);
    assert_text(&table, "1:0-9r 1:10-19w 1:20-29r");
    set(&table, 1, 10, 19, FALSE);
    assert_text(&table, "1:0-29r");
    g_assert_true(qos_filelock_table_unset(&table, 1, 5, 6));
    assert_text(&table, "1:0-4r 1:7-29r");
    set(&table, 1, 5, 6, FALSE);
    assert_text(&table, "1:0-29r");
    g_assert_false(qos_filelock_table_unset(&table, 2, 0, G_MAXUINT64));
    g_assert_false(qos_filelock_table_unset(&table, 1, 30, G_MAXUINT64));
    g_assert_true(qos_filelock_table_unset(&table, 1, 0, G_MAXUINT64));
    g_assert_true(qos_filelock_table_is_empty(&table));
    set(&table, 1, 0, G_MAXUINT64, TRUE); /* no byte lies before or behind */
    set(&table, 1, G_MAXUINT64, G_MAXUINT64, FALSE);
    set(&table, 1, 0, 0, FALSE);
    assert_text(&table, "1:0-0r 1:1-18446744073709551614w 1:18446744073709551615-"
                        "18446744073709551615r");
    qos_filelock_table_clear(&table);
}

static void test_conflicts(void)
{
    QosFileLockTable table = {0};

    set(&table, 1, 10, 19, FALSE);
    set(&table, 2, 15, 29, FALSE);
    g_assert_true(is_free(&table, 3, 0, 100, FALSE));
    g_assert_false(is_free(&table, 3, 29, 40, TRUE));
    g_assert_true(is_free(&table, 3, 30, 40, TRUE));
    g_assert_false(is_free(&table, 1, 10, 15, TRUE)); /* the other reader */
    g_assert_true(is_free(&table, 1, 10, 14, TRUE));
    g_assert_cmpint(qos_filelock_table_conflict(&table, 3, &(QosSpan){0, 100, TRUE})->pid, ==, 1);
    set(&table, 1, 10, 14, TRUE);
    g_assert_false(is_free(&table, 3, 12, 12, FALSE));
    g_assert_true(is_free(&table, 1, 10, 14, FALSE));
    qos_filelock_table_clear(&table);
}

/* Those with something taken by the open file, NULL: by any: "1 2 ". */
static void assert_owners(const QosFileLockTable *table, gconstpointer open_file,
                          const char *expected)
{
    g_autoptr(GArray) owners = qos_filelock_table_owners(table, open_file);
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < owners->len; i++)
        g_string_append_printf(text, "%" G_GUINT64_FORMAT " ", g_array_index(owners, guint64, i));
    g_assert_cmpstr(text->str, ==, expected);
}

static void test_handles(void)
{
    QosFileLockTable table = {0};
    char first, second;
    QosFileLock lock = lock_of(1, 0, 9, TRUE);

    assert_owners(&table, NULL, "");

    lock.open_file = &first;
    qos_filelock_table_set(&table, &lock);
    lock = lock_of(2, 20, 29, TRUE);
    lock.open_file = &second;
    lock.pid = 7;
    qos_filelock_table_set(&table, &lock);
    lock = lock_of(3, 40, 49, TRUE);
    lock.open_file = &first;
    qos_filelock_table_set(&table, &lock);
    set(&table, 1, 60, 69, TRUE); /* by another open file */
    set(&table, 1, 80, 89, TRUE);
    assert_owners(&table, NULL, "1 2 3 ");
    assert_owners(&table, &first, "1 3 ");
    assert_owners(&table, &second, "2 ");
    assert_owners(&table, &table, "");
    qos_filelock_table_unset(&table, 3, 0, G_MAXUINT64);
    qos_filelock_table_unset(&table, 1, 60, G_MAXUINT64);
    g_assert_true(qos_filelock_table_has_taken(&table, NULL, 7));
    g_assert_false(qos_filelock_table_has_taken(&table, NULL, 8));
    g_assert_false(qos_filelock_table_has_taken(&table, NULL, 0));
    g_assert_true(qos_filelock_table_has_taken(&table, &first, 0));
    qos_filelock_table_unset_open_file(&table, &first);
    g_assert_false(qos_filelock_table_has_taken(&table, &first, 0));
    qos_filelock_table_unset_open_file(&table, &first);
    g_assert_false(qos_filelock_table_has_owner(&table, 1));
    g_assert_true(qos_filelock_table_has_owner(&table, 2));
    assert_text(&table, "2:20-29w");
    qos_filelock_table_clear(&table);
}

/* The table does not grow beyond what a message can carry. */
static void test_room(void)
{
    QosFileLockTable table = {0};
    guint count = 0;

    for (; qos_filelock_table_has_room(&table); count++)
        set(&table, 1, 2 * count, 2 * count, TRUE);
    g_assert_cmpuint(count, <=, QOS_FILELOCK_TABLE_MAX);
    g_assert_cmpuint(count, >, QOS_FILELOCK_TABLE_MAX / 2);
    QosCredit join = qos_filelock_table_join(&table);
    g_assert_cmpuint(join.count, ==, count);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &join);
    qos_filelock_table_clear(&table);
}

/* Owner 1 waits for 2, 2 waits for 3, and 3 would wait for 1: in three files. */
static void test_deadlock(void)
{
    QosFileLockTable tables[3] = {{0}};
    QosLockWait waits[3];
    QosLockOwners owners;

    qos_lockowners_init(&owners);
    for (guint i = 0; i < 3; i++)
        set(&tables[i], (i + 1) % 3 + 1, 0, 0, TRUE);
    for (guint i = 0; i < 3; i++) {
        qos_lock_wait_init(&waits[i], &tables[i], i + 1, &(QosSpan){0, 9, TRUE});
        g_assert_cmpint(qos_lockowners_is_deadlock(&owners, &waits[i]), ==, i == 2);
        qos_lockowners_begin_wait(&owners, &waits[i]);
    }
    qos_lockowners_end_wait(&owners, &waits[2]);
    qos_lockowners_end_wait(&owners, &waits[1]); /* gave up */
    g_assert_false(qos_lockowners_is_deadlock(&owners, &waits[2]));
    qos_lockowners_end_wait(&owners, &waits[0]);
    g_assert_null(qos_lockowners_find(&owners, 1));
    qos_lockowners_clear(&owners);
    for (guint i = 0; i < 3; i++)
        qos_filelock_table_clear(&tables[i]);
}

/* In how many tables the owner has something (-1: it is not known), and how often it waits. */
static void assert_owner(const QosLockOwners *owners, guint64 number, gint tables, guint waits)
{
    const QosLockOwner *owner = qos_lockowners_find(owners, number);

    g_assert_cmpint(owner != NULL ? (gint)g_hash_table_size(owner->tables) : -1, ==, tables);
    g_assert_cmpuint(owner != NULL ? owner->waits.length : 0, ==, waits);
}

static void test_owners(void)
{
    QosFileLockTable one = {0}, other = {0};
    QosLockOwners owners;
    QosLockWait wait;

    qos_lockowners_init(&owners);
    qos_lockowners_note(&owners, &one, 1); /* has nothing */
    assert_owner(&owners, 1, -1, 0);
    set(&one, 1, 0, 9, TRUE);
    qos_lockowners_note(&owners, &one, 1);
    qos_lockowners_note(&owners, &one, 1);
    set(&other, 1, 0, 9, TRUE);
    qos_lockowners_note(&owners, &other, 1);
    assert_owner(&owners, 1, 2, 0);
    qos_lock_wait_init(&wait, &one, 2, &(QosSpan){0, 9, TRUE});
    qos_lockowners_begin_wait(&owners, &wait);
    assert_owner(&owners, 2, 0, 1);
    qos_filelock_table_unset(&one, 1, 0, 4);
    qos_lockowners_note(&owners, &one, 1);
    assert_owner(&owners, 1, 2, 0);
    qos_filelock_table_unset(&one, 1, 5, 9);
    qos_lockowners_note(&owners, &one, 1);
    assert_owner(&owners, 1, 1, 0);
    g_assert_true(g_hash_table_contains(qos_lockowners_find(&owners, 1)->tables, &other));
    qos_filelock_table_clear(&other);
    qos_lockowners_note(&owners, &other, 1);
    assert_owner(&owners, 1, -1, 0);
    qos_lockowners_end_wait(&owners, &wait);
    assert_owner(&owners, 2, -1, 0);
    qos_lockowners_clear(&owners);
}

/* Which owners are to be told of, and how many of their last waits: "7:2 8:1 ". */
static void assert_changed(QosLockOwners *owners, const char *expected)
{
    g_autoptr(GString) text = g_string_new(NULL);
    const QosLockOwner *owner;
    guint count;

    while ((owner = qos_lockowners_take_changed(owners, &count)) != NULL)
        g_string_append_printf(text, "%" G_GUINT64_FORMAT ":%u ", owner->number, count);
    g_assert_cmpstr(text->str, ==, expected);
}

static void test_changed(void)
{
    QosFileLockTable table = {0};
    QosLockOwners owners;
    QosLockWait waits[4];

    qos_lockowners_init(&owners);
    set(&table, 1, 0, 9, TRUE);
    qos_lockowners_note(&owners, &table, 1);
    assert_changed(&owners, ""); /* the owner does not wait */
    for (guint i = 0; i < 4; i++)
        qos_lock_wait_init(&waits[i], &table, i < 3 ? 2 : 3, &(QosSpan){0, 9, TRUE});
    for (guint i = 0; i < 2; i++)
        qos_lockowners_begin_wait(&owners, &waits[i]);
    qos_lockowners_begin_wait(&owners, &waits[3]);
    assert_changed(&owners, "2:2 3:1 ");
    assert_changed(&owners, "");
    qos_lockowners_begin_wait(&owners, &waits[2]);
    assert_changed(&owners, "2:1 ");
    qos_lockowners_end_wait(&owners, &waits[2]);
    qos_lockowners_begin_wait(&owners, &waits[2]);
    qos_lockowners_end_wait(&owners, &waits[0]);
    assert_changed(&owners, "2:1 ");
    qos_lockowners_note(&owners, &table, 3);
    qos_lockowners_note(&owners, &table, 2);
    qos_lockowners_note(&owners, &table, 3);
    assert_changed(&owners, "3:1 2:2 ");
    qos_lockowners_begin_wait(&owners, &waits[0]);
    qos_lockowners_note(&owners, &table, 3);
    for (guint i = 0; i < 4; i++)
        qos_lockowners_end_wait(&owners, &waits[i]);
    assert_changed(&owners, "");
    qos_lockowners_clear(&owners);
    qos_filelock_table_clear(&table);
}

/* So many owners wait, each in a file of its own, for `locks` owners, the last of which is the next
 * owner. Tells whether the circle of the first with the last is found. */
static gboolean is_found(guint count, guint locks)
{
    g_autofree QosFileLockTable *tables = g_new0(QosFileLockTable, count);
    g_autofree QosLockWait *waits = g_new(QosLockWait, count);
    QosLockOwners owners;

    qos_lockowners_init(&owners);
    for (guint i = 0; i < count; i++) {
        for (guint64 other = 0; other + 1 < locks; other++)
            set(&tables[i], count + other, other, other, FALSE);
        set(&tables[i], (i + 1) % count, locks, locks, TRUE);
        qos_lock_wait_init(&waits[i], &tables[i], i, &(QosSpan){0, locks, TRUE});
        if (i + 1 < count)
            qos_lockowners_begin_wait(&owners, &waits[i]);
    }
    gboolean is_found = qos_lockowners_is_deadlock(&owners, &waits[count - 1]);
    qos_lockowners_clear(&owners);
    for (guint i = 0; i < count; i++)
        qos_filelock_table_clear(&tables[i]);
    return is_found;
}

static void test_bound(void)
{
    g_assert_true(is_found(QOS_LOCKOWNERS_LOOKS_MAX / 1000, 1000));
    g_assert_false(is_found(QOS_LOCKOWNERS_LOOKS_MAX / 1000 + 2, 1000));
    g_assert_true(is_found(QOS_LOCKOWNERS_LOOKS_MAX, 1));
}

/* All wait for one, and have a lock each: what concerns one looks at nobody else's waits. If it
 * did, this would take minutes. */
static void test_many(void)
{
    const guint many = 200000;
    g_autofree QosFileLockTable *tables = g_new0(QosFileLockTable, many);
    g_autofree QosLockWait *waits = g_new(QosLockWait, many);
    QosLockOwners owners;

    qos_lockowners_init(&owners);
    for (guint i = 0; i < many; i++) {
        set(&tables[i], i, 0, 0, TRUE);
        qos_lockowners_note(&owners, &tables[i], i);
    }
    for (guint i = 1; i < many; i++) {
        qos_lock_wait_init(&waits[i], &tables[0], i, &(QosSpan){0, 0, TRUE});
        g_assert_false(qos_lockowners_is_deadlock(&owners, &waits[i]));
        qos_lockowners_begin_wait(&owners, &waits[i]);
        assert_owner(&owners, i, 1, 1);
    }
    qos_lock_wait_init(&waits[0], &tables[many - 1], 0, &(QosSpan){0, 0, TRUE});
    g_assert_true(qos_lockowners_is_deadlock(&owners, &waits[0]));
    for (guint i = 1; i < many; i++)
        qos_lockowners_end_wait(&owners, &waits[i]);
    assert_owner(&owners, many - 1, 1, 0);
    qos_lockowners_clear(&owners);
    for (guint i = 0; i < many; i++)
        qos_filelock_table_clear(&tables[i]);
}

/* --- against a model --- */

enum { NONE, READ, WRITE };

typedef struct {
    QosFileLockTable table;
    guint8 model[OWNERS][BYTES];
} File;

typedef struct {
    GRand *random;
    File files[FILES];
    QosLockOwners owners;
} World;

static QosSpan random_span(GRand *random)
{
    guint64 first = g_rand_int_range(random, 0, BYTES);

    return (QosSpan){first, g_rand_int_range(random, (gint32)first, BYTES), g_rand_boolean(random)};
}

static gboolean model_is_in_the_way(const File *file, guint owner, guint other, const QosSpan *span)
{
    if (owner == other)
        return FALSE;
    for (guint64 i = span->first; i <= span->last; i++) {
        if (file->model[other][i] == WRITE || (file->model[other][i] == READ && span->writes))
            return TRUE;
    }
    return FALSE;
}

static gboolean model_conflicts(const File *file, guint owner, const QosSpan *span)
{
    for (guint other = 0; other < OWNERS; other++) {
        if (model_is_in_the_way(file, owner, other, span))
            return TRUE;
    }
    return FALSE;
}

static void model_set(File *file, guint owner, const QosSpan *span, guint8 value)
{
    for (guint64 i = span->first; i <= span->last; i++)
        file->model[owner][i] = value;
}

/* What the model says a range to be: the pieces of each owner, as long as they can be. */
static guint model_pieces(const File *file)
{
    guint pieces = 0;

    for (guint owner = 0; owner < OWNERS; owner++) {
        for (guint i = 0; i < BYTES; i++) {
            guint8 value = file->model[owner][i];
            pieces += value != NONE && (i == 0 || file->model[owner][i - 1] != value);
        }
    }
    return pieces;
}

static void check_file(const File *file)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    const GArray *locks = file->table.locks;
    QosCredit join = qos_filelock_table_join(&file->table);
    guint8 seen[OWNERS][BYTES] = {{0}};

    g_assert_cmpuint(locks != NULL ? locks->len : 0, ==, model_pieces(file));
    for (guint i = 0; locks != NULL && i < locks->len; i++) {
        const QosFileLock *lock = &g_array_index(locks, QosFileLock, i);
        g_assert_true(i == 0 || lock[-1].span.first <= lock->span.first);
        for (guint64 at = lock->span.first; at <= lock->span.last; at++)
            seen[lock->owner][at] = lock->span.writes ? WRITE : READ;
    }
    g_assert_cmpmem(seen, sizeof(seen), file->model, sizeof(file->model));
    for (guint at = 0; at < BYTES; at++) {
        guint8 most = NONE;
        for (guint owner = 0; owner < OWNERS; owner++)
            most = MAX(most, file->model[owner][at]);
        QosCredit read = qos_credit_span(at, at, FALSE);
        QosCredit write = qos_credit_span(at, at, TRUE);
        g_assert_cmpint(type->matches(&read, &join), ==, most >= READ);
        g_assert_cmpint(type->matches(&write, &join), ==, most == WRITE);
        qos_credit_clear(type, &read);
        qos_credit_clear(type, &write);
    }
    qos_credit_clear(type, &join);
}

static void check_owners(const World *world, guint64 number)
{
    const QosLockOwner *owner = qos_lockowners_find(&world->owners, number);
    guint tables = 0;

    for (guint i = 0; i < FILES; i++) {
        const QosFileLockTable *table = &world->files[i].table;
        const gboolean has_some = qos_filelock_table_has_owner(table, number);

        tables += has_some;
        g_assert_true(!has_some || g_hash_table_contains(owner->tables, table));
    }
    g_assert_cmpuint(owner != NULL ? g_hash_table_size(owner->tables) : 0, ==, tables);
}

static void step(World *world)
{
    File *file = &world->files[g_rand_int_range(world->random, 0, FILES)];
    guint owner = g_rand_int_range(world->random, 0, OWNERS);
    QosSpan span = random_span(world->random);
    QosFileLock lock = lock_of(owner, span.first, span.last, span.writes);

    g_assert_cmpint(qos_filelock_table_conflict(&file->table, owner, &span) != NULL, ==,
                    model_conflicts(file, owner, &span));
    if (g_rand_int_range(world->random, 0, 3) == 0) {
        qos_filelock_table_unset(&file->table, owner, span.first, span.last);
        model_set(file, owner, &span, NONE);
    } else if (!model_conflicts(file, owner, &span)) {
        qos_filelock_table_set(&file->table, &lock);
        model_set(file, owner, &span, span.writes ? WRITE : READ);
    }
    qos_lockowners_note(&world->owners, &file->table, owner);
    check_file(file);
    check_owners(world, owner);
}

/* Each owner's wait makes an arrow; a circle through `from` is what Warshall finds. */
static gboolean model_is_deadlock(const QosLockWait *waits, guint count, guint from)
{
    gboolean reaches[OWNERS][OWNERS] = {{0}};

    for (guint i = 0; i < count; i++) {
        const File *file = (const File *)waits[i].table;
        for (guint other = 0; other < OWNERS; other++)
            reaches[waits[i].owner][other] |=
                model_is_in_the_way(file, waits[i].owner, other, &waits[i].span);
    }
    for (guint via = 0; via < OWNERS; via++) {
        for (guint i = 0; i < OWNERS; i++) {
            for (guint j = 0; j < OWNERS; j++)
                reaches[i][j] |= reaches[i][via] && reaches[via][j];
        }
    }
    return reaches[from][from];
}

/* Threads of a process may wait for several locks. */
static gboolean check_deadlocks(World *world)
{
    QosLockWait waits[OWNERS + 2];
    gboolean found = FALSE;
    guint begun = 0;

    for (guint i = 0; !found && i < G_N_ELEMENTS(waits); i++) {
        QosSpan span = random_span(world->random);
        qos_lock_wait_init(&waits[i],
                           &world->files[g_rand_int_range(world->random, 0, FILES)].table,
                           g_rand_int_range(world->random, 0, OWNERS), &span);
        found = qos_lockowners_is_deadlock(&world->owners, &waits[i]);
        g_assert_cmpint(found, ==, model_is_deadlock(waits, i + 1, (guint)waits[i].owner));
        if (!found)
            qos_lockowners_begin_wait(&world->owners, &waits[begun++]);
    }
    while (begun > 0)
        qos_lockowners_end_wait(&world->owners, &waits[--begun]);
    return found;
}

static void test_against_a_model(void)
{
    World world = {.random = g_rand_new_with_seed(seed)};
    guint deadlocks = 0;

    qos_lockowners_init(&world.owners);
    for (guint round = 0; round < ROUNDS; round++) {
        step(&world);
        if (round % 10 == 0)
            deadlocks += check_deadlocks(&world);
    }
    g_assert_cmpuint(deadlocks, >, 10);
    qos_lockowners_clear(&world.owners);
    for (guint i = 0; i < FILES; i++)
        qos_filelock_table_clear(&world.files[i].table);
    g_rand_free(world.random);
}

int main(int argc, char **argv)
{
    const char *given = g_getenv("QOSFS_SEED");

    g_test_init(&argc, &argv, NULL);
    seed = given != NULL ? (guint32)strtoul(given, NULL, 10) : g_random_int();
    g_test_message("QOSFS_SEED=%u", seed);
    g_test_add_func("/filelocks/table/split_and_merge", test_split_and_merge);
    g_test_add_func("/filelocks/table/conflicts", test_conflicts);
    g_test_add_func("/filelocks/table/handles", test_handles);
    g_test_add_func("/filelocks/table/room", test_room);
    g_test_add_func("/filelocks/table/deadlock", test_deadlock);
    g_test_add_func("/filelocks/table/owners", test_owners);
    g_test_add_func("/filelocks/table/changed", test_changed);
    g_test_add_func("/filelocks/table/bound", test_bound);
    g_test_add_func("/filelocks/table/many", test_many);
    g_test_add_func("/filelocks/table/against_a_model", test_against_a_model);
    return g_test_run();
}
