/*
 * Opening a database: what is no good is refused and left alone, and neither a full disk nor a kill
 * leaves half of anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "db_fixture.h"

static void assert_refused(const char *path, int code, const char *reason)
{
    g_autoptr(GError) error = NULL;
    QosDb *db = qos_db_open(path, &error);

    g_assert_null(db);
    g_assert_error(error, QOS_ERROR, code);
    if (!strstr(error->message, path) || !strstr(error->message, reason))
        g_error("\"%s\" does not tell of %s and \"%s\"", error->message, path, reason);
}

/* A daemon does that to the database, and is killed. */
static void do_and_die(const Fixture *fixture, void (*act)(const char *path))
{
    pid_t child = fork();

    if (child == 0) {
        act(fixture->path);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
}

/* --- what is no good is refused, and stays as it is --- */

static GBytes *content(const char *path)
{
    char *bytes;
    gsize length;

    if (!g_file_get_contents(path, &bytes, &length, NULL))
        return g_bytes_new(NULL, 0);
    return g_bytes_new_take(bytes, length);
}

/* A database with a rule and a job in it. */
static void fill(const Fixture *fixture)
{
    g_autofree QosJob *job = new_job("a", 5);
    QosRules *rules = apply(qos_rules_new(), "start hog jobid={a} rate=5");
    QosDb *db = open_good(fixture);

    g_assert_true(qos_db_save_rules(db, rules, NOW, WALL, NULL));
    save_jobs(db, (const QosJob *[]){job}, 1);
    qos_rules_unref(rules);
    qos_db_close(db);
}

static void assert_refused_and_untouched(const Fixture *fixture, int code, const char *reason)
{
    g_autofree char *wal = g_strconcat(fixture->path, "-wal", NULL);
    g_autoptr(GBytes) before = content(fixture->path);
    g_autoptr(GBytes) wal_before = content(wal);
    gboolean had_wal = g_file_test(wal, G_FILE_TEST_EXISTS);
    g_autoptr(GBytes) after = NULL;
    g_autoptr(GBytes) wal_after = NULL;

    assert_refused(fixture->path, code, reason);
    after = content(fixture->path);
    wal_after = content(wal);
    g_assert_true(g_bytes_equal(before, after));
    g_assert_true(g_bytes_equal(wal_before, wal_after));
    g_assert_cmpint(g_file_test(wal, G_FILE_TEST_EXISTS), ==, had_wal);
}

static void test_truncated(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const goffset lengths[] = {0, 1, 99, 100, 512, 4096, 5000, 8192, 20000};
    g_autofree char *bytes = NULL;
    gsize length;

    fill(fixture);
    g_assert_true(g_file_get_contents(fixture->path, &bytes, &length, NULL));
    for (guint i = 0; i < G_N_ELEMENTS(lengths); i++) {
        g_assert_cmpuint(lengths[i], <, length);
        g_assert_true(g_file_set_contents(fixture->path, bytes, lengths[i], NULL));
        assert_refused_and_untouched(fixture, EUCLEAN, "damaged");
    }
}

/* What touch(1) and mktemp(1) leave; one that was a database is another matter (truncated). */
static void test_empty(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GHashTable) tunables = NULL;
    QosDb *db;

    g_assert_true(g_file_set_contents(fixture->path, "", 0, NULL));
    db = open_good(fixture);
    g_assert_true(qos_db_save_tunable(db, "slots", "4", NULL));
    qos_db_close(db);
    db = open_good(fixture);
    tunables = qos_db_load_tunables(db, NULL);
    g_assert_cmpstr(g_hash_table_lookup(tunables, "slots"), ==, "4");
    qos_db_close(db);
}

/* Whatever bytes it holds: it opens, or it is refused and left alone. */
static void test_garbage(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint32 seed = g_test_rand_int() & G_MAXINT32;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    g_autofree char *bytes = NULL;
    gsize length;
    guint refused = 0;

    g_test_message("seed %u", seed);
    fill(fixture);
    g_assert_true(g_file_get_contents(fixture->path, &bytes, &length, NULL));
    for (guint i = 0; i < 60; i++) {
        g_autofree char *broken = g_memdup2(bytes, length);
        gsize start = i == 0 ? 0 : (gsize)g_rand_int_range(random, 0, (gint)length);
        gsize count = i == 0 ? length : (gsize)g_rand_int_range(random, 1, 4097);
        gsize end = MIN(length, start + count);
        g_autoptr(GBytes) before = NULL;
        g_autoptr(GBytes) after = NULL;
        g_autoptr(GError) error = NULL;
        QosDb *db;

        for (gsize j = start; j < end; j++)
            broken[j] = (char)g_rand_int(random);
        g_assert_true(g_file_set_contents(fixture->path, broken, (gssize)length, NULL));
        before = g_bytes_new(broken, length);
        db = qos_db_open(fixture->path, &error);
        if (db) {
            qos_rules_unref(qos_db_load_rules(db, NOW, WALL, NULL));
            g_clear_pointer(&(GPtrArray *){qos_db_load_jobs(db, WALL, NULL)}, g_ptr_array_unref);
            qos_db_close(db);
            continue;
        }
        after = content(fixture->path);
        g_assert_true(g_bytes_equal(before, after));
        g_assert_nonnull(strstr(error->message, fixture->path));
        g_assert_null(strchr(error->message, '\n')); /* of a log, a line */
        refused++;
    }
    g_assert_cmpuint(refused, >, 10);
}

static void test_newer(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fill(fixture);
    execute(fixture->path, "PRAGMA user_version = 99");
    assert_refused_and_untouched(fixture, ENOTSUP, "version 99");
    execute(fixture->path, "PRAGMA user_version = 0");
    assert_refused_and_untouched(fixture, EUCLEAN, "it has no version");
}

static void make_newer(const char *path)
{
    sqlite3 *sqlite;

    execute(path, "PRAGMA journal_mode = WAL");
    sqlite3_open(path, &sqlite);
    sqlite3_exec(sqlite, "PRAGMA user_version = 99", NULL, NULL, NULL);
}

/* The newer version stands in the write-ahead log of a daemon that was killed. */
static void test_newer_in_log(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fill(fixture);
    do_and_die(fixture, make_newer);
    assert_refused_and_untouched(fixture, ENOTSUP, "version 99");
}

static void begin_change(const char *path)
{
    sqlite3 *sqlite;

    sqlite3_open(path, &sqlite);
    sqlite3_exec(sqlite,
                 "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN;"
                 "CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                 "FROM n LIMIT 5000) SELECT i, randomblob(100) FROM n",
                 NULL, NULL, NULL);
}

/* A change without WAL that was cut off can only be taken back by writing: not ours to do. */
static void test_hot_journal(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fill(fixture);
    do_and_die(fixture, begin_change);
    assert_refused_and_untouched(fixture, EUCLEAN, "takes that back");
    execute(fixture->path, "PRAGMA quick_check");
    qos_db_close(open_good(fixture));
}

static void test_moved_away(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *elsewhere = g_strconcat(fixture->path, ".old", NULL);
    QosRules *rules = qos_rules_new();
    QosDb *db = open_good(fixture);

    g_assert_cmpint(g_rename(fixture->path, elsewhere), ==, 0);
    for (guint replaced = 0; replaced < 2; replaced++) {
        g_autoptr(GError) error = NULL;

        g_assert_false(qos_db_save_tunable(db, "slots", "4", &error));
        g_assert_error(error, QOS_ERROR, EIO);
        g_assert_nonnull(strstr(error->message, "was removed, renamed or replaced"));
        g_clear_error(&error);
        g_assert_false(qos_db_save_rules(db, rules, NOW, WALL, &error));
        g_assert_error(error, QOS_ERROR, EIO);
        g_assert_true(g_file_set_contents(fixture->path, "", 0, NULL));
    }
    g_assert_cmpint(g_rename(elsewhere, fixture->path), ==, 0);
    g_assert_true(qos_db_save_tunable(db, "slots", "4", NULL));
    g_assert_true(qos_db_save_rules(db, rules, NOW, WALL, NULL));
    qos_rules_unref(rules);
    qos_db_close(db);
}

static void test_foreign(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *lock = g_strconcat(fixture->path, ".lock", NULL);

    execute(fixture->path, "CREATE TABLE addresses (name TEXT)");
    assert_refused_and_untouched(fixture, EINVAL, "another program");
    g_assert_false(g_file_test(lock, G_FILE_TEST_EXISTS)); /* as /etc/passwd.lock would be */
    g_unlink(fixture->path);
    g_assert_true(g_file_set_contents(fixture->path, "[rules]\n", -1, NULL));
    assert_refused_and_untouched(fixture, EUCLEAN, "damaged");
}

static void test_fifo(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_assert_cmpint(mkfifo(fixture->path, 0600), ==, 0);
    assert_refused(fixture->path, ESPIPE, "cannot read it");
}

static void test_refused_rule(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    QosDb *db;

    fill(fixture);
    execute(fixture->path, "UPDATE rule SET command = 'start hog colour={red}' WHERE name = 'hog'");
    db = open_good(fixture);
    g_assert_null(qos_db_load_rules(db, NOW, WALL, &error));
    g_assert_error(error, QOS_ERROR, EINVAL);
    g_assert_nonnull(strstr(error->message, "start hog colour={red}"));
    qos_db_close(db);
}

static void test_second_daemon(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *link = g_build_filename(fixture->folder, "link.db", NULL);
    QosDb *db = open_good(fixture);

    g_assert_cmpint(symlink(fixture->path, link), ==, 0);
    assert_refused(fixture->path, EBUSY, "another mount");
    {
        g_autoptr(GError) error = NULL;
        g_assert_null(qos_db_open(link, &error));
        g_assert_error(error, QOS_ERROR, EBUSY);
    }
    qos_db_close(db);
    db = open_good(fixture);
    qos_db_close(db);
}

/* By how many descriptors of this process. */
static guint times_open(const char *path)
{
    GDir *folder = g_dir_open("/proc/self/fd", 0, NULL);
    guint count = 0;
    const char *name;

    while ((name = g_dir_read_name(folder))) {
        g_autofree char *link = g_build_filename("/proc/self/fd", name, NULL);
        g_autofree char *target = g_file_read_link(link, NULL);
        count += g_strcmp0(target, path) == 0;
    }
    g_dir_close(folder);
    return count;
}

/* What was there before stays. */
static void test_discard(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GDir) folder = NULL;

    qos_db_discard(open_good(fixture));
    folder = g_dir_open(fixture->folder, 0, NULL);
    g_assert_cmpstr(g_dir_read_name(folder), ==, NULL);
    qos_db_close(open_good(fixture));
    qos_db_discard(open_good(fixture));
    g_assert_true(g_file_test(fixture->path, G_FILE_TEST_EXISTS));
}

static gpointer open_in_thread(gpointer fixture)
{
    return open_good(fixture);
}

/* A waiter for the lock of a database that was discarded has no lock on the next one of that name.
 */
static void test_discarded_lock(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *lock = g_strconcat(fixture->path, ".lock", NULL);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    GThread *waiter;

    g_assert_cmpint(flock(fd, LOCK_EX), ==, 0);
    waiter = g_thread_new("waiter", open_in_thread, fixture);
    while (times_open(lock) < 2)
        g_usleep(1000);
    g_unlink(lock);
    close(fd);
    QosDb *db = g_thread_join(waiter);
    g_assert_true(g_file_test(lock, G_FILE_TEST_EXISTS));
    assert_refused(fixture->path, EBUSY, "another mount");
    qos_db_close(db);
}

typedef struct {
    QosDb *db;
    char *lock;
} Ending;

/* Once another waits for its lock. */
static void *close_at_last(void *data)
{
    Ending *ending = data;

    while (times_open(ending->lock) < 2)
        g_usleep(1000);
    qos_db_close(ending->db);
    return NULL;
}

/* A mount that is just ending is waited for. */
static void test_daemon_that_ends(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *lock = g_strconcat(fixture->path, ".lock", NULL);
    Ending ending = {.db = open_good(fixture), .lock = lock};
    pthread_t thread;

    g_assert_cmpint(pthread_create(&thread, NULL, close_at_last, &ending), ==, 0);
    qos_db_close(open_good(fixture));
    pthread_join(thread, NULL);
}

static void save_slots(const char *path)
{
    qos_db_save_tunable(qos_db_open(path, NULL), "slots", "4", NULL);
}

/* A database that was removed does not come back out of the log that was left. */
static void test_removed_without_its_log(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GHashTable) tunables = NULL;
    QosDb *db;

    do_and_die(fixture, save_slots);
    g_unlink(fixture->path);
    db = open_good(fixture);
    tunables = qos_db_load_tunables(db, NULL);
    g_assert_cmpuint(g_hash_table_size(tunables), ==, 0);
    qos_db_close(db);
}

/* Another program that holds the database up is waited for, then named; nothing is half done. */
static void test_locked_by_another(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GHashTable) tunables = NULL;
    sqlite3 *sqlite;
    QosDb *db = open_good(fixture);

    g_assert_cmpint(sqlite3_open(fixture->path, &sqlite), ==, SQLITE_OK);
    g_assert_cmpint(sqlite3_exec(sqlite, "BEGIN IMMEDIATE", NULL, NULL, NULL), ==, SQLITE_OK);
    g_assert_false(qos_db_save_tunable(db, "slots", "4", &error));
    g_assert_error(error, QOS_ERROR, EBUSY);
    sqlite3_close(sqlite);
    tunables = qos_db_load_tunables(db, NULL);
    g_assert_cmpuint(g_hash_table_size(tunables), ==, 0);
    qos_db_close(db);
}

/* --- the file system says no --- */

static void test_no_folder(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *folder = g_build_filename(fixture->folder, "typo", NULL);
    g_autofree char *path = g_build_filename(folder, "x.db", NULL);

    assert_refused(path, ENOENT, "make it first");
    g_assert_false(g_file_test(folder, G_FILE_TEST_EXISTS));
    /* It is there, and no file can be made in it. */
    assert_refused("/proc/x.db", ENOENT, "must be writable, or name another place");
}

static void test_unwritable_folder(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    if (getuid() == 0) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            g_autoptr(GError) error = NULL;
            gboolean refused = setuid(65534) == 0 && !qos_db_open(fixture->path, &error);

            _exit(refused && error->code == EACCES ? 0 : 1);
        }
        waitpid(child, &status, 0);
        g_assert_cmpint(status, ==, 0);
    } else {
        g_chmod(fixture->folder, 0500);
        assert_refused(fixture->path, EACCES, "must be writable");
        g_chmod(fixture->folder, 0700);
    }
    g_assert_false(g_file_test(fixture->path, G_FILE_TEST_EXISTS));
}

static void fill_the_disk(const char *folder)
{
    g_autofree char *path = g_build_filename(folder, "ballast", NULL);
    char block[4096] = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    while (write(fd, block, sizeof(block)) == sizeof(block)) {
    }
    close(fd);
}

static void test_full_disk(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *ballast = g_build_filename(fixture->folder, "ballast", NULL);
    g_autofree char *value = g_strnfill(100000, 'x');
    g_autoptr(GHashTable) tunables = NULL;
    QosDb *db;

    if (getuid() != 0 || mount("none", fixture->folder, "tmpfs", 0, "size=1m") < 0) {
        g_test_skip("needs the right to mount");
        return;
    }
    fill_the_disk(fixture->folder);
    assert_refused(fixture->path, ENOSPC, "full");
    g_unlink(ballast);
    db = open_good(fixture);
    g_assert_true(qos_db_save_tunable(db, "slots", "4", &error));
    fill_the_disk(fixture->folder);
    g_assert_false(qos_db_save_tunable(db, "slots", value, &error));
    g_assert_error(error, QOS_ERROR, ENOSPC);
    g_unlink(ballast);
    g_clear_error(&error);
    tunables = qos_db_load_tunables(db, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(g_hash_table_lookup(tunables, "slots"), ==, "4");
    g_assert_true(qos_db_save_tunable(db, "slots", "5", &error));
    qos_db_close(db);
    g_assert_cmpint(umount(fixture->folder), ==, 0);
}

/* --- crashes --- */

/* Killed at any moment of making, saving and closing: what was said to be saved is there. */
static void test_kill(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint32 seed = g_test_rand_int() & G_MAXINT32;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    guint64 written = 0;

    g_test_message("seed %u", seed);
    for (guint i = 0; i < 25; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(GHashTable) tunables = NULL;
        const char *text;
        int pipes[2];
        guint64 told = written;
        pid_t child;
        QosDb *db;

        g_assert_cmpint(pipe(pipes), ==, 0);
        child = fork();
        if (child == 0) {
            db = qos_db_open(fixture->path, NULL);
            for (guint64 n = written + 1;; n++) {
                g_autofree char *number = g_strdup_printf("%" G_GUINT64_FORMAT, n);
                GPtrArray *jobs = g_ptr_array_new_with_free_func(g_free);

                g_ptr_array_add(jobs, new_job("a", n));
                qos_db_save_jobs(db, jobs, NOW, WALL, 7);
                if (!db || !qos_db_save_tunable(db, "slots", number, NULL) ||
                    write(pipes[1], &n, sizeof(n)) != sizeof(n))
                    _exit(1);
            }
        }
        close(pipes[1]);
        g_usleep((gulong)g_rand_int_range(random, 0, 30000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipes[0], &told, sizeof(told)) == sizeof(told)) {
        }
        close(pipes[0]);
        db = qos_db_open(fixture->path, &error);
        g_assert_no_error(error);
        tunables = qos_db_load_tunables(db, &error);
        g_assert_no_error(error);
        text = g_hash_table_lookup(tunables, "slots");
        written = text ? g_ascii_strtoull(text, NULL, 10) : 0;
        g_assert_cmpuint(written, >=, told);
        g_assert_cmpuint(written, <=, told + 1);
        g_ptr_array_unref(load_jobs(db, WALL));
        qos_db_close(db);
    }
}

/* Killed while it is made, or turned to WAL: the next one makes it. */
static void test_kill_while_made(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint32 seed = g_test_rand_int() & G_MAXINT32;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    QosTime longest;
    QosDb *db;

    g_test_message("seed %u", seed);
    longest = g_get_monotonic_time();
    qos_db_close(open_good(fixture));
    longest = g_get_monotonic_time() - longest;
    for (guint i = 0; i < 60; i++) {
        pid_t child;

        g_unlink(fixture->path);
        child = fork();
        if (child == 0) {
            qos_db_open(fixture->path, NULL);
            pause();
        }
        g_usleep((gulong)g_rand_int_range(random, 0, (gint)longest));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        db = open_good(fixture);
        g_assert_true(qos_db_save_tunable(db, "slots", "4", NULL));
        qos_db_close(db);
    }
}

int main(int argc, char **argv)
{
#define ADD(path, test) g_test_add("/db-open/" path, Fixture, NULL, set_up, test, tear_down)
    g_test_init(&argc, &argv, NULL);
    ADD("truncated", test_truncated);
    ADD("empty", test_empty);
    ADD("garbage", test_garbage);
    ADD("newer", test_newer);
    ADD("newer-in-log", test_newer_in_log);
    ADD("hot-journal", test_hot_journal);
    ADD("discard", test_discard);
    ADD("discarded-lock", test_discarded_lock);
    ADD("moved-away", test_moved_away);
    ADD("foreign", test_foreign);
    ADD("fifo", test_fifo);
    ADD("refused-rule", test_refused_rule);
    ADD("second-daemon", test_second_daemon);
    ADD("daemon-that-ends", test_daemon_that_ends);
    ADD("removed-without-its-log", test_removed_without_its_log);
    ADD("locked-by-another", test_locked_by_another);
    ADD("no-folder", test_no_folder);
    ADD("unwritable-folder", test_unwritable_folder);
    ADD("full-disk", test_full_disk);
    ADD("kill", test_kill);
    ADD("kill-while-made", test_kill_while_made);
    return g_test_run();
}
