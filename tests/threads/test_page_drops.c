/*
 * When pages are dropped that a READ without a credit has filled, without a kernel. The clock
 * stands but for what the tests add, in the past: so the thread looks at them again and again.
 */
#include "fs/coherence/page_drops.h"

#include <glib/gstdio.h>

#include "fs/caller/cred.h"

#define READER    100 /* a thread */
#define OTHER     200
#define PATIENCE  (2 * QOS_MILLISECOND)
#define ELSEWHERE 4711 /* an inode that is not known */

typedef struct {
    QosEntry entry; /* first */
    QosGate *gate;
    gint runs; /* atomic */
} Asker;

typedef struct {
    char *path;
    QosGate *gate;
    QosInodes *inodes;
    QosPages *pages;
    QosInodeRef root, file;
    fuse_ino_t ino;
} Fixture;

static QosTime time_now; /* atomic */

static QosTime now(void)
{
    return __atomic_load_n(&time_now, __ATOMIC_SEQ_CST);
}

static void pass(QosTime time)
{
    __atomic_store_n(&time_now, time_now + time, __ATOMIC_SEQ_CST);
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    struct fuse_entry_param entry;

    time_now = 1;
    fixture->path = g_dir_make_tmp("qosfs-pages-XXXXXX", NULL);
    g_autofree char *file = g_build_filename(fixture->path, "file", NULL);
    g_assert_true(g_file_set_contents(file, "data", -1, NULL));
    qos_cred_init();
    fixture->gate = qos_gate_new(&qos_policy_fifo, 4, QOS_NEVER);
    g_assert_cmpint(qos_gate_start(fixture->gate), ==, 0);
    fixture->inodes = qos_inodes_new(fixture->path, NULL);
    g_assert_cmpint(qos_inodes_get(fixture->inodes, FUSE_ROOT_ID, &fixture->root), ==, 0);
    g_assert_cmpint(qos_inodes_lookup(fixture->inodes, &fixture->root, "file", NULL, &entry), ==,
                    0);
    fixture->ino = entry.ino;
    g_assert_cmpint(qos_inodes_get(fixture->inodes, entry.ino, &fixture->file), ==, 0);
    fixture->pages = qos_pages_new(NULL, fixture->gate, fixture->inodes, now);
    g_assert_nonnull(fixture->pages);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autofree char *file = g_build_filename(fixture->path, "file", NULL);

    qos_pages_end_drops(fixture->pages);
    qos_pages_stop(fixture->pages);
    qos_gate_stop(fixture->gate);
    qos_pages_free(fixture->pages);
    qos_inode_ref_put(&fixture->file);
    qos_inode_ref_put(&fixture->root);
    qos_inodes_forget(fixture->inodes, fixture->ino, 1);
    qos_inodes_free(fixture->inodes);
    qos_gate_free(fixture->gate);
    g_unlink(file);
    g_rmdir(fixture->path);
    g_free(fixture->path);
}

static gboolean are_old(Fixture *fixture)
{
    return qos_pages_are_stale(fixture->pages, fixture->ino);
}

/* READER's READ, which is answered. */
static void read_page(Fixture *fixture)
{
    qos_inode_ref_fill(&fixture->file, 1);
    qos_pages_drop_read(fixture->pages, fixture->ino, READER);
    qos_pages_end_locked(fixture->pages, fixture->ino, &fixture->file, fixture);
}

/* Until the thread has looked at all that is queued. */
static void look(Fixture *fixture)
{
    qos_pages_drop(fixture->pages, ELSEWHERE);
    while (qos_pages_are_stale(fixture->pages, ELSEWHERE))
        g_thread_yield();
}

static void run(QosEntry *entry)
{
    Asker *asker = (Asker *)entry;

    qos_gate_leave(asker->gate, entry, 1, 0);
    qos_job_unref(entry->request.job);
    g_atomic_int_inc(&asker->runs);
}

/* That thread asks for the attributes, and waits. */
static void ask(Fixture *fixture, Asker *asker, pid_t thread)
{
    asker->gate = fixture->gate;
    asker->entry.run = run;
    asker->entry.request.job = qos_gate_job(fixture->gate, NULL, "job", 0);
    asker->entry.request.opcode = QOS_OP_GETATTR;
    g_assert_true(qos_gate_enter(fixture->gate, &asker->entry));
    qos_gate_pause(fixture->gate, &asker->entry);
    g_assert_true(qos_pages_await(fixture->pages, fixture->ino, thread, &asker->entry));
}

static void wait_for(Asker *asker)
{
    while (g_atomic_int_get(&asker->runs) == 0)
        g_thread_yield();
}

/* Its reader may be slow to wake up. */
static void test_kept_for_their_reader(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    read_page(fixture);
    look(fixture);
    pass(PATIENCE - 1);
    look(fixture);
    g_assert_true(are_old(fixture));
    pass(1);
    while (are_old(fixture))
        g_thread_yield();
}

/* The asker has the pages: no time need pass. */
static void test_their_reader_asks(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Asker asker = {0};

    read_page(fixture);
    ask(fixture, &asker, READER);
    wait_for(&asker);
    g_assert_false(are_old(fixture));
}

static void test_another_asks(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Asker asker = {0};

    read_page(fixture);
    ask(fixture, &asker, OTHER);
    look(fixture);
    g_assert_cmpint(g_atomic_int_get(&asker.runs), ==, 0);
    pass(PATIENCE);
    wait_for(&asker);
    g_assert_false(are_old(fixture));
}

/* Another mount wants the file. */
static void test_dropped_for_another_reason(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    read_page(fixture);
    look(fixture);
    g_assert_true(are_old(fixture));
    qos_pages_drop(fixture->pages, fixture->ino);
    while (are_old(fixture))
        g_thread_yield();
}

static void add(const char *path, void (*test)(Fixture *, gconstpointer))
{
    g_test_add(path, Fixture, NULL, set_up, test, tear_down);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("/page-drops/kept-for-their-reader", test_kept_for_their_reader);
    add("/page-drops/their-reader-asks", test_their_reader_asks);
    add("/page-drops/another-asks", test_another_asks);
    add("/page-drops/dropped-for-another-reason", test_dropped_for_another_reason);
    return g_test_run();
}
