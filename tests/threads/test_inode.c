/*
 * The table of inodes under many threads: look-ups, forgets and references of the same files at
 * once, with fewer descriptors than files.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fs/caller/cred.h"
#include "fs/store/inode_state.h"

#define FILES       200
#define DESCRIPTORS 120 /* that the process may open: the table keeps half of them */
#define THREADS     8
#define STEPS       4000
#define LIVES       1000 /* of a file, each from a look-up to its forgetting */
#define PATIENCE    30   /* look-ups, each of which waits for QOS_CLOSER_PATIENCE at most */

typedef struct {
    char *path;
    QosInodes *inodes;
    QosInodeRef root;
} Fixture;

static gboolean is_nfs; /* what the table is told of its store */

/* In the place of libc's. */
int fstatfs(int fd, struct statfs *statfs)
{
    if (syscall(SYS_fstatfs, fd, statfs) != 0)
        return -1;
    if (is_nfs)
        statfs->f_type = NFS_SUPER_MAGIC;
    return 0;
}

static void set_descriptors(rlim_t count)
{
    struct rlimit limit;

    g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    limit.rlim_cur = MIN(count, limit.rlim_max);
    g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &limit), ==, 0);
}

static void make_file(const char *folder, int number)
{
    g_autofree char *path = g_strdup_printf("%s/%d", folder, number);

    g_assert_true(g_file_set_contents(path, path, -1, NULL));
}

/* Descriptors that the table holds open. */
static guint open_count(QosInodes *inodes)
{
    qos_mutex_lock(&inodes->lock);
    guint count = inodes->open_count;
    qos_mutex_unlock(&inodes->lock);
    return count;
}

/* With `data` the store passes for NFS. */
static void set_up(Fixture *fixture, gconstpointer data)
{
    is_nfs = data != NULL;
    fixture->path = g_dir_make_tmp("qosfs-inode-XXXXXX", NULL);
    for (int number = 0; number < FILES; number++)
        make_file(fixture->path, number);
    qos_cred_init();
    set_descriptors(DESCRIPTORS);
    fixture->inodes = qos_inodes_new(fixture->path, NULL);
    g_assert_nonnull(fixture->inodes);
    g_assert_cmpint(qos_inodes_get(fixture->inodes, FUSE_ROOT_ID, &fixture->root), ==, 0);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    qos_inode_ref_put(&fixture->root);
    g_assert_cmpuint(qos_inodes_count(fixture->inodes), ==, 1);
    g_assert_cmpuint(open_count(fixture->inodes), ==, 1);
    qos_inodes_free(fixture->inodes);
    for (int number = 0; number < FILES; number++) {
        g_autofree char *path = g_strdup_printf("%s/%d", fixture->path, number);

        g_unlink(path);
    }
    g_assert_cmpint(g_rmdir(fixture->path), ==, 0);
    g_free(fixture->path);
}

static fuse_ino_t look_up(Fixture *fixture, int number, ino_t *ret_file)
{
    char name[16];
    struct fuse_entry_param entry;
    int error = -ENFILE;

    g_snprintf(name, sizeof(name), "%d", number);
    /* On a machine that is busy enough closes seem to hang (QOS_CLOSER_PATIENCE). */
    for (int i = 0; i < PATIENCE && error == -ENFILE; i++)
        error = qos_inodes_lookup(fixture->inodes, &fixture->root, name, NULL, &entry);
    g_assert_cmpint(error, ==, 0);
    *ret_file = entry.attr.st_ino;
    return entry.ino;
}

static void check_ref(Fixture *fixture, fuse_ino_t id, ino_t file)
{
    g_auto(QosInodeRef) ref = {0};
    struct stat stat;

    g_assert_cmpint(qos_inodes_get(fixture->inodes, id, &ref), ==, 0);
    g_assert_cmpint(fstat(ref.fd, &stat), ==, 0);
    g_assert_cmpuint(stat.st_ino, ==, file);
    /* What never changes is read beside what other threads change. */
    qos_inode_ref_note_pages(&ref);
    g_assert_false(qos_inode_ref_hides_device(&ref));
}

static void let_go(Fixture *fixture, int number)
{
    g_auto(QosInodeRef) ref = {0};
    char name[16];

    g_snprintf(name, sizeof(name), "%d", number);
    qos_inodes_begin_removal(fixture->inodes, &fixture->root, name, &ref);
}

/* Looks up, references and forgets at random; at the end it has forgotten all it looked up. */
static gpointer use_files(gpointer data)
{
    Fixture *fixture = data;
    g_autoptr(GRand) chance = g_rand_new_with_seed((guint32)(gsize)g_thread_self());
    fuse_ino_t ids[FILES] = {0};
    guint counts[FILES] = {0};

    for (int step = 0; step < STEPS; step++) {
        int number = g_rand_int_range(chance, 0, FILES);
        ino_t file;
        fuse_ino_t id = look_up(fixture, number, &file);

        /* As long as one look-up is not forgotten, the file keeps its id. */
        if (counts[number] > 0)
            g_assert_cmpuint(id, ==, ids[number]);
        ids[number] = id;
        counts[number]++;
        check_ref(fixture, id, file);
        let_go(fixture, g_rand_int_range(chance, 0, FILES));
        if (g_rand_boolean(chance)) {
            qos_inodes_forget(fixture->inodes, id, counts[number]);
            counts[number] = 0;
        }
    }
    for (int number = 0; number < FILES; number++)
        qos_inodes_forget(fixture->inodes, ids[number], counts[number]);
    return NULL;
}

static void test_many_threads(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    GThread *threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        threads[i] = g_thread_new("files", use_files, fixture);
    for (int i = 0; i < THREADS; i++)
        g_thread_join(threads[i]);
}

typedef struct {
    Fixture *fixture;
    int number; /* of a file that no other thread uses */
    fuse_ino_t ids[LIVES];
} Lives;

static gpointer live_and_die(gpointer data)
{
    Lives *lives = data;

    for (int i = 0; i < LIVES; i++) {
        ino_t file;

        lives->ids[i] = look_up(lives->fixture, lives->number, &file);
        check_ref(lives->fixture, lives->ids[i], file);
        qos_inodes_forget(lives->fixture->inodes, lives->ids[i], 1);
    }
    return NULL;
}

static void test_no_thread_gets_the_id_of_another(Fixture *fixture,
                                                  G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    g_autofree Lives *lives = g_new0(Lives, THREADS);
    GThread *threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        lives[i] = (Lives){.fixture = fixture, .number = i};
        threads[i] = g_thread_new("lives", live_and_die, &lives[i]);
    }
    for (int i = 0; i < THREADS; i++)
        g_thread_join(threads[i]);
    for (int i = 0; i < THREADS * LIVES; i++)
        g_assert_true(g_hash_table_add(seen, (gpointer)lives[i / LIVES].ids[i % LIVES]));
}

static void test_ids_are_used_once(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fuse_ino_t last = 0;

    for (int step = 0; step < 100; step++) {
        ino_t file;
        fuse_ino_t id = look_up(fixture, 7, &file);
        QosInodeRef ref;

        g_assert_cmpuint(id, >, last);
        last = id;
        qos_inodes_forget(fixture->inodes, id, 1);
        g_assert_cmpint(qos_inodes_get(fixture->inodes, id, &ref), ==, -ESTALE);
    }
}

/* A reference outlives the last look-up, and a look-up in between brings the same id back. */
static void test_loan_keeps_the_inode(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    ino_t file;
    fuse_ino_t id = look_up(fixture, 3, &file);
    QosInodeRef ref;

    g_assert_cmpint(qos_inodes_get(fixture->inodes, id, &ref), ==, 0);
    qos_inodes_forget(fixture->inodes, id, 1);
    g_assert_cmpuint(qos_inodes_count(fixture->inodes), ==, 2);
    g_assert_cmpuint(look_up(fixture, 3, &file), ==, id);
    qos_inode_ref_put(&ref);
    check_ref(fixture, id, file);
    qos_inodes_forget(fixture->inodes, id, 1000);
    g_assert_cmpuint(qos_inodes_count(fixture->inodes), ==, 1);
}

/* Files below a submount have numbers that no file of the store has: large ones are spread. */
static void test_numbers_of_submounts(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    const dev_t below = makedev(4000, 1);
    const guint64 large = (guint64)1 << 48 | 5;

    g_assert_cmpuint(qos_inodes_shown(fixture->inodes, below, 5), !=, 5);
    g_assert_cmpuint(qos_inodes_shown(fixture->inodes, below, large), !=, 5);
    g_assert_cmpuint(qos_inodes_shown(fixture->inodes, below, large), !=,
                     qos_inodes_shown(fixture->inodes, below, 5));
}

static void test_cold_inodes(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fuse_ino_t ids[FILES];
    ino_t files[FILES];

    if (!qos_cred_may_search()) {
        g_test_skip("file handles need CAP_DAC_READ_SEARCH");
        return;
    }
    for (int number = 0; number < FILES; number++)
        ids[number] = look_up(fixture, number, &files[number]);
    g_assert_cmpuint(open_count(fixture->inodes), <=, DESCRIPTORS / 2);
    for (int number = 0; number < FILES; number++)
        check_ref(fixture, ids[number], files[number]);
    for (int number = 0; number < FILES; number++) {
        g_assert_cmpuint(look_up(fixture, number, &files[number]), ==, ids[number]);
        qos_inodes_forget(fixture->inodes, ids[number], 1);
    }
    g_assert_cmpuint(open_count(fixture->inodes), <=, DESCRIPTORS / 2);

    /* The first is closed now: gone with its file, whatever gets its number. */
    g_autofree char *path = g_strdup_printf("%s/0", fixture->path);
    QosInodeRef ref;

    g_unlink(path);
    g_assert_cmpint(qos_inodes_get(fixture->inodes, ids[0], &ref), ==, -ESTALE);
    make_file(fixture->path, 0);
    qos_inodes_forget(fixture->inodes, look_up(fixture, 0, &files[0]), 1);
    /* Also where nobody asked for it before another file got its number, as on most file systems.
     */
    for (int number = 1; number < 10; number++) {
        g_autofree char *name = g_strdup_printf("%s/%d", fixture->path, number);
        g_unlink(name);
        make_file(fixture->path, number);
        fuse_ino_t id = look_up(fixture, number, &files[number]);
        g_assert_cmpuint(id, !=, ids[number]);
        qos_inodes_forget(fixture->inodes, id, 1);
    }
    for (int number = 0; number < FILES; number++)
        qos_inodes_forget(fixture->inodes, ids[number], 1);
}

static void test_last_loan_ends_the_inode(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    ino_t file;
    fuse_ino_t id = look_up(fixture, 3, &file);
    QosInodeRef first, second;

    g_assert_cmpint(qos_inodes_get(fixture->inodes, id, &first), ==, 0);
    g_assert_cmpint(qos_inodes_get(fixture->inodes, id, &second), ==, 0);
    qos_inodes_forget(fixture->inodes, id, 1);
    qos_inode_ref_put(&first);
    g_assert_cmpuint(qos_inodes_count(fixture->inodes), ==, 2);
    qos_inode_ref_put(&second);
    g_assert_cmpuint(qos_inodes_count(fixture->inodes), ==, 1);
}

/* More are referenced than may stay open: when they are put, they are closed like others. */
static void test_put_inodes_are_closed(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    enum { LENT = DESCRIPTORS / 2 + 10 };
    QosInodeRef refs[LENT];
    fuse_ino_t ids[LENT + 1];
    ino_t file;

    if (!qos_cred_may_search()) {
        g_test_skip("file handles need CAP_DAC_READ_SEARCH");
        return;
    }
    for (int number = 0; number < LENT; number++) {
        ids[number] = look_up(fixture, number, &file);
        g_assert_cmpint(qos_inodes_get(fixture->inodes, ids[number], &refs[number]), ==, 0);
    }
    ids[LENT] = look_up(fixture, LENT, &file); /* a reason to look for one to close */
    g_assert_cmpuint(open_count(fixture->inodes), >, LENT);
    for (int number = 0; number < LENT; number++)
        qos_inode_ref_put(&refs[number]);
    qos_inodes_forget(fixture->inodes, look_up(fixture, LENT + 1, &file), 1);
    g_assert_cmpuint(open_count(fixture->inodes), <=, DESCRIPTORS / 2);
    for (int number = 0; number <= LENT; number++)
        qos_inodes_forget(fixture->inodes, ids[number], 1);
}

/* NFS would keep a removed file under another name. */
static void test_nfs_keeps_no_removed_file(Fixture *fixture, gconstpointer data)
{
    ino_t file;
    const fuse_ino_t id = look_up(fixture, 1, &file);
    const guint kept = data != NULL ? 1 : 2; /* the root's descriptor, and the file's */
    g_auto(QosInodeRef) ref = {0};

    if (qos_inodes_bound(fixture->inodes) != 0) {
        g_test_skip("file handles need CAP_DAC_READ_SEARCH");
        qos_inodes_forget(fixture->inodes, id, 1);
        return;
    }
    let_go(fixture, 1);
    g_assert_cmpuint(open_count(fixture->inodes), ==, kept);
    check_ref(fixture, id, file);
    let_go(fixture, 2); /* not known */
    let_go(fixture, FILES);
    /* An operation that has it open goes on with it. */
    g_assert_cmpint(qos_inodes_get(fixture->inodes, id, &ref), ==, 0);
    let_go(fixture, 1);
    g_assert_cmpuint(open_count(fixture->inodes), ==, 2);
    qos_inode_ref_put(&ref);
    qos_inodes_forget(fixture->inodes, id, 1);
}

/* Opens all it can, and looks up: an error, and no harm. */
static void test_no_descriptor_left(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    int fds[DESCRIPTORS], count = 0;
    struct fuse_entry_param entry;
    ino_t file;

    while ((fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    g_assert_cmpint(qos_inodes_lookup(fixture->inodes, &fixture->root, "1", NULL, &entry), ==,
                    -EMFILE);
    while (count > 0)
        close(fds[--count]);
    qos_inodes_forget(fixture->inodes, look_up(fixture, 1, &file), 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, function) g_test_add("/inode/" name, Fixture, NULL, set_up, function, tear_down)
    ADD("many-threads", test_many_threads);
    ADD("ids-are-used-once", test_ids_are_used_once);
    ADD("no-thread-gets-the-id-of-another", test_no_thread_gets_the_id_of_another);
    ADD("loan-keeps-the-inode", test_loan_keeps_the_inode);
    ADD("last-loan-ends-the-inode", test_last_loan_ends_the_inode);
    ADD("numbers-of-submounts", test_numbers_of_submounts);
    ADD("cold-inodes", test_cold_inodes);
    ADD("returned-inodes-become-cold", test_put_inodes_are_closed);
    ADD("no-descriptor-left", test_no_descriptor_left);
    ADD("removed-files", test_nfs_keeps_no_removed_file);
    g_test_add("/inode/nfs-many-threads", Fixture, "nfs", set_up, test_many_threads, tear_down);
    g_test_add("/inode/nfs-keeps-no-removed-file", Fixture, "nfs", set_up,
               test_nfs_keeps_no_removed_file, tear_down);
    return g_test_run();
}
