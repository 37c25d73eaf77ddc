/*
 * What names were last found to be.
 */
#include "fs/coherence/namecache.h"

#include <string.h>

#define FOLDER 7

typedef struct {
    QosNamecache *cache;
    guint losses;
} Mount;

static QosNameLook begin(const Mount *mount, guint64 folder, const char *name)
{
    QosNameLook look;

    qos_namecache_begin(mount->cache, folder, name, qos_namecache_epoch(mount->cache),
                        mount->losses, &look);
    return look;
}

static QosNameLook change(const Mount *mount, guint64 folder, const char *name)
{
    QosNameLook look = begin(mount, folder, name);

    qos_namecache_take(mount->cache, &look);
    return look;
}

static void find(const Mount *mount, const char *name, guint64 number)
{
    const QosNameLook look = begin(mount, FOLDER, name);

    qos_namecache_found(mount->cache, &look, number);
}

/* What is known of it, which stays as it is. */
static guint64 known_in(const Mount *mount, guint64 folder, const char *name)
{
    const QosNameLook look = change(mount, folder, name);

    qos_namecache_found(mount->cache, &look, look.number);
    return look.number;
}

static guint64 known(const Mount *mount, const char *name)
{
    return known_in(mount, FOLDER, name);
}

static void set_up(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    mount->cache = qos_namecache_new();
}

static void tear_down(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    qos_namecache_free(mount->cache);
}

static void test_names(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
    find(mount, "a", 1);
    find(mount, "ab", 2);
    find(mount, "gone", QOS_NAME_NONE);
    g_assert_cmpuint(known(mount, "a"), ==, 1);
    g_assert_cmpuint(known(mount, "ab"), ==, 2);
    g_assert_cmpuint(known(mount, "gone"), ==, QOS_NAME_NONE);
    g_assert_cmpuint(known(mount, "b"), ==, QOS_NAME_UNKNOWN);
    g_assert_cmpuint(known_in(mount, FOLDER + 1, "a"), ==, QOS_NAME_UNKNOWN);
    find(mount, "a", 3);
    g_assert_cmpuint(known(mount, "a"), ==, 3);
    find(mount, "a", QOS_NAME_UNKNOWN);
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
}

/* Of those that are too long nothing is known, not even by their beginnings. */
static void test_long_names(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    char name[QOS_NAMECACHE_LENGTH + 2];

    memset(name, 'x', sizeof(name));
    name[QOS_NAMECACHE_LENGTH + 1] = '\0';
    find(mount, name, 1);
    g_assert_cmpuint(known(mount, name), ==, QOS_NAME_UNKNOWN);
    name[QOS_NAMECACHE_LENGTH] = '\0';
    g_assert_cmpuint(known(mount, name), ==, QOS_NAME_UNKNOWN);
    find(mount, name, 2);
    g_assert_cmpuint(known(mount, name), ==, 2);
}

/* A folder's credit went, and is here again. */
static void test_credits_that_go(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    find(mount, "a", 1);
    qos_namecache_outdate(mount->cache);
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
    find(mount, "a", 2);
    g_assert_cmpuint(known(mount, "a"), ==, 2);
    mount->losses++;
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
    /* It goes while the name is looked up. */
    const QosNameLook look = begin(mount, FOLDER, "a");
    qos_namecache_outdate(mount->cache);
    qos_namecache_found(mount->cache, &look, 3);
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
}

/* What is taken is known to nobody else until the change has ended. */
static void test_changes(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    find(mount, "a", 1);
    const QosNameLook first = change(mount, FOLDER, "a");
    g_assert_cmpuint(first.number, ==, 1);
    const QosNameLook second = change(mount, FOLDER, "a");
    g_assert_cmpuint(second.number, ==, QOS_NAME_UNKNOWN);
    /* Whichever was the last in the store. */
    qos_namecache_found(mount->cache, &first, 2);
    qos_namecache_found(mount->cache, &second, 3);
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
    const QosNameLook third = change(mount, FOLDER, "a");
    qos_namecache_found(mount->cache, &third, 4);
    g_assert_cmpuint(known(mount, "a"), ==, 4);
}

/* A look-up beside a change may have seen what was before it. */
static void test_looks_beside_changes(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    const QosNameLook before = begin(mount, FOLDER, "a");
    const QosNameLook made = change(mount, FOLDER, "a");
    const QosNameLook beside = begin(mount, FOLDER, "a");

    qos_namecache_found(mount->cache, &made, 1);
    g_assert_cmpuint(known(mount, "a"), ==, 1);
    qos_namecache_found(mount->cache, &before, QOS_NAME_NONE);
    qos_namecache_found(mount->cache, &beside, QOS_NAME_NONE);
    g_assert_cmpuint(known(mount, "a"), ==, 1);
    const QosNameLook removed = change(mount, FOLDER, "a");
    const QosNameLook late = begin(mount, FOLDER, "a");
    qos_namecache_found(mount->cache, &removed, QOS_NAME_NONE);
    qos_namecache_found(mount->cache, &late, 1);
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_NONE);
    /* One that found it before the change has ended counts only until then. */
    const QosNameLook again = change(mount, FOLDER, "a");
    find(mount, "a", 5);
    qos_namecache_found(mount->cache, &again, QOS_NAME_UNKNOWN);
    g_assert_cmpuint(known(mount, "a"), ==, QOS_NAME_UNKNOWN);
}

static void make_name(char *name, gsize size, const char *prefix, guint number)
{
    g_snprintf(name, size, "%s%u", prefix, number);
}

/* Of more names than there is room for the last ones are known, those that were removed too; and
 * none is taken for another. */
static void test_many(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    const guint all = 4 * QOS_NAMECACHE_COUNT, first = all - QOS_NAMECACHE_COUNT;
    char name[16];

    for (guint i = 0; i < all; i++) {
        make_name(name, sizeof(name), "file", i);
        find(mount, name, i + 1);
        find(mount, name, i + 1);
    }
    for (guint turn = 0; turn < 2; turn++) {
        for (guint i = 0; i < all; i++) {
            make_name(name, sizeof(name), "file", i);
            const QosNameLook look = change(mount, FOLDER, name);
            const guint64 number = turn == 0 ? i + 1 : QOS_NAME_NONE;
            g_assert_cmpuint(look.number, ==, i < first ? QOS_NAME_UNKNOWN : number);
            qos_namecache_found(mount->cache, &look, i < first ? QOS_NAME_UNKNOWN : QOS_NAME_NONE);
        }
    }
}

/* A user that finds names of one hash keeps no others waiting. No more names than a few are looked
 * at, and a name that is not found any more stays so. */
static void test_one_hash(Mount *mount, gconstpointer data G_GNUC_UNUSED)
{
    const QosNameLook like = begin(mount, FOLDER, "first");
    guint count = 0, known_count = 0;
    char name[16];

    find(mount, "first", 1);
    for (guint i = 0; count < 1000; i++) {
        make_name(name, sizeof(name), "like", i);
        if (begin(mount, FOLDER, name).chain != like.chain)
            continue;
        find(mount, name, i + 2);
        count++;
        known_count += known(mount, "first") == 1;
    }
    g_assert_cmpuint(known_count, >, 3);
    g_assert_cmpuint(known_count, <, 100);
    g_assert_cmpuint(known(mount, "first"), ==, QOS_NAME_UNKNOWN);
    find(mount, "first", 3);
    g_assert_cmpuint(known(mount, "first"), ==, 3);
}

static void add(const char *path, void (*test)(Mount *mount, gconstpointer data))
{
    g_test_add(path, Mount, NULL, set_up, test, tear_down);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("/namecache/names", test_names);
    add("/namecache/long-names", test_long_names);
    add("/namecache/credits-that-go", test_credits_that_go);
    add("/namecache/changes", test_changes);
    add("/namecache/looks-beside-changes", test_looks_beside_changes);
    add("/namecache/many", test_many);
    add("/namecache/one-hash", test_one_hash);
    return g_test_run();
}
