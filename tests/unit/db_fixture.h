/*
 * A database in a folder of its own, for the tests of db/.
 */
#pragma once

#include <glib.h>
#include <glib/gstdio.h>
#include <sqlite3.h>

#include "db/db.h"

#define NOW  (1000 * QOS_SECOND)
#define WALL (G_GINT64_CONSTANT(1800000000) * QOS_SECOND + 123456789)

typedef struct {
    char *folder;
    char *path; /* of the database, which is not there yet */
} Fixture;

/* With the files in it. */
static inline void remove_folder(const char *path)
{
    GDir *folder = g_dir_open(path, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(folder))) {
        g_autofree char *file = g_build_filename(path, name, NULL);
        g_unlink(file);
    }
    g_dir_close(folder);
    g_rmdir(path);
}

static inline void set_up(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fixture->folder = g_dir_make_tmp("qosfs-db-XXXXXX", NULL);
    fixture->path = g_build_filename(fixture->folder, "qosfs.db", NULL);
}

static inline void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    remove_folder(fixture->folder);
    g_free(fixture->path);
    g_free(fixture->folder);
}

static inline QosDb *open_good(const Fixture *fixture)
{
    g_autoptr(GError) error = NULL;
    QosDb *db = qos_db_open(fixture->path, &error);

    g_assert_no_error(error);
    g_assert_nonnull(db);
    return db;
}

/* As another program would. */
static inline void execute(const char *path, const char *sql)
{
    sqlite3 *sqlite;

    g_assert_cmpint(sqlite3_open(path, &sqlite), ==, SQLITE_OK);
    g_assert_cmpint(sqlite3_exec(sqlite, sql, NULL, NULL, NULL), ==, SQLITE_OK);
    sqlite3_close(sqlite);
}

/* The rules after a command, which must be right; takes `rules`. */
static inline QosRules *apply(QosRules *rules, const char *command)
{
    g_autoptr(GError) error = NULL;
    QosRules *changed = qos_rules_apply(rules, command, NOW, &error);

    g_assert_no_error(error);
    qos_rules_unref(rules);
    return changed;
}

/* A job with a value of its own in every field that is kept. */
static inline QosJob *new_job(const char *id, guint64 seed)
{
    QosJob *job = g_new0(QosJob, 1);
    guint64 value = seed;

    g_strlcpy(job->id, id, sizeof(job->id));
    job->nodes = (guint)value++;
    job->started = NOW - 500 * QOS_SECOND;
    job->seen = NOW - (QosTime)seed;
    job->requests = value++;
    job->waits = value++;
    job->errors = value++;
    job->store_time = (QosTime)value++;
    job->wait_time = (QosTime)value++;
    for (guint i = 0; i < QOS_OP_COUNT; i++)
        job->operation[i] = (QosSample){value, value + 1, value + 2, value + 3, 1e30 / (double)i};
    job->operation[0].sum_of_squares = 0.1;
    job->read_bytes = (QosSample){1, 2, 3, G_MAXUINT64, 5};
    job->write_bytes = (QosSample){6, 7, 8, 9, 10};
    job->read_sizes.count[0] = G_MAXUINT64;
    job->read_sizes.count[QOS_HISTOGRAM_BUCKETS - 1] = 3;
    job->write_sizes.count[12] = 4;
    job->wait_count = 2;
    job->wait[0] = (QosWait){0, QOS_WAIT_SLOTS, 5, 6, 7, NOW - 8, NOW - 9};
    job->wait[1] = (QosWait){77, "hog", 50, 60, 70, NOW - 80, NOW - 90};
    return job;
}

static inline void save_jobs(QosDb *db, const QosJob *const *jobs, guint count)
{
    GPtrArray *copies = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < count; i++)
        g_ptr_array_add(copies, g_memdup2(jobs[i], sizeof(*jobs[i])));
    qos_db_save_jobs(db, copies, NOW, WALL, 7);
    qos_db_flush(db);
}

static inline GPtrArray *load_jobs(QosDb *db, QosTime wall)
{
    g_autoptr(GError) error = NULL;
    GPtrArray *jobs = qos_db_load_jobs(db, wall, &error);

    g_assert_no_error(error);
    return jobs;
}
