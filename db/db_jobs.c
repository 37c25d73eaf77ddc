/*
 * The totals of the jobs, in and out of the tables `job`, `job_counter` and `job_wait`.
 *
 * A snapshot is made durable in one transaction. For each saved job, the writer remembers a mark of
 * what its rows hold. The mark changes when the job sends a request, is served or waits. So of ten
 * thousand jobs only those that were active since the last snapshot are written again. The first
 * snapshot replaces everything.
 */
#include <stdio.h>
#include <string.h>

#include "db/db_private.h"

/* The members of a job that change whenever its saved rows become out of date. */
typedef struct {
    QosTime started;
    QosTime seen;
    QosTime wait_time;
    guint64 requests;
    guint64 waits;
} Mark;

static Mark mark_of(const QosJob *job)
{
    return (Mark){.started = job->started,
                  .seen = job->seen,
                  .wait_time = job->wait_time,
                  .requests = job->requests,
                  .waits = job->waits};
}

static gboolean is_same(const Mark *a, const Mark *b)
{
    return a->started == b->started && a->seen == b->seen && a->wait_time == b->wait_time &&
           a->requests == b->requests && a->waits == b->waits;
}

/* --- writing --- */

typedef struct {
    QosDb *db;
    const QosDbSnapshot *snapshot;
    sqlite3_stmt *remove;
    sqlite3_stmt *job;
    sqlite3_stmt *counter;
    sqlite3_stmt *wait;
} Writer;

static gint64 wall_time(const QosDbSnapshot *snapshot, QosTime time)
{
    return snapshot->wall - (snapshot->now - time);
}

static gboolean remove_job(Writer *writer, const char *id, GError **error)
{
    sqlite3_bind_blob(writer->remove, 1, id, (int)strlen(id), SQLITE_STATIC);
    return qos_db_run(writer->db, writer->remove, "save the jobs", error);
}

static char *histogram_text(const QosHistogram *histogram)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; histogram && i < QOS_HISTOGRAM_BUCKETS; i++) {
        if (histogram->count[i])
            g_string_append_printf(text, "%s%u:%" G_GUINT64_FORMAT, text->len ? " " : "", i,
                                   histogram->count[i]);
    }
    return g_string_free(text, FALSE);
}

static gboolean insert_counter(Writer *writer, gint64 row, const char *name,
                               const QosSample *sample, const QosHistogram *histogram,
                               GError **error)
{
    g_autofree char *text = NULL;

    if (!sample->samples)
        return TRUE;
    text = histogram_text(histogram);
    sqlite3_bind_int64(writer->counter, 1, row);
    sqlite3_bind_text(writer->counter, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(writer->counter, 3, (gint64)sample->samples);
    sqlite3_bind_int64(writer->counter, 4, (gint64)sample->minimum);
    sqlite3_bind_int64(writer->counter, 5, (gint64)sample->maximum);
    sqlite3_bind_int64(writer->counter, 6, (gint64)sample->sum);
    sqlite3_bind_double(writer->counter, 7, sample->sum_of_squares);
    sqlite3_bind_text(writer->counter, 8, text, -1, SQLITE_STATIC);
    return qos_db_run(writer->db, writer->counter, "save the jobs", error);
}

static gboolean insert_counters(Writer *writer, gint64 row, const QosJob *job, GError **error)
{
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (!insert_counter(writer, row, qos_opcode_name(i), &job->operation[i], NULL, error))
            return FALSE;
    }
    return insert_counter(writer, row, "read_bytes", &job->read_bytes, &job->read_sizes, error) &&
           insert_counter(writer, row, "write_bytes", &job->write_bytes, &job->write_sizes, error);
}

static gboolean insert_waits(Writer *writer, gint64 row, const QosJob *job, GError **error)
{
    for (guint i = 0; i < job->wait_count; i++) {
        const QosWait *wait = &job->wait[i];

        sqlite3_bind_int64(writer->wait, 1, row);
        sqlite3_bind_int(writer->wait, 2, (int)i);
        sqlite3_bind_text(writer->wait, 3, wait->rule_name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(writer->wait, 4, (gint64)wait->count);
        sqlite3_bind_int64(writer->wait, 5, wait->waited);
        sqlite3_bind_int64(writer->wait, 6, wait->longest);
        sqlite3_bind_int64(writer->wait, 7, wall_time(writer->snapshot, wait->first));
        sqlite3_bind_int64(writer->wait, 8, wall_time(writer->snapshot, wait->last));
        if (!qos_db_run(writer->db, writer->wait, "save the jobs", error))
            return FALSE;
    }
    return TRUE;
}

static gboolean insert_job(Writer *writer, const QosJob *job, GError **error)
{
    gint64 row;

    sqlite3_bind_blob(writer->job, 1, job->id, (int)strlen(job->id), SQLITE_STATIC);
    sqlite3_bind_int64(writer->job, 2, job->nodes);
    sqlite3_bind_int64(writer->job, 3, wall_time(writer->snapshot, job->started));
    sqlite3_bind_int64(writer->job, 4, wall_time(writer->snapshot, job->seen));
    sqlite3_bind_int64(writer->job, 5, job->store_time);
    sqlite3_bind_int64(writer->job, 6, job->wait_time);
    sqlite3_bind_int64(writer->job, 7, (gint64)job->requests);
    sqlite3_bind_int64(writer->job, 8, (gint64)job->waits);
    sqlite3_bind_int64(writer->job, 9, (gint64)job->errors);
    if (!qos_db_run(writer->db, writer->job, "save the jobs", error))
        return FALSE;
    row = sqlite3_last_insert_rowid(writer->db->sqlite);
    return insert_counters(writer, row, job, error) && insert_waits(writer, row, job, error);
}

/* Writes what changed and removes what is gone; `marks`: what the tables hold then. */
static gboolean write_changes(Writer *writer, GHashTable *marks, GError **error)
{
    GHashTable *written = writer->db->written;
    GHashTableIter iter;
    gpointer id;

    if (!written && !qos_db_execute(writer->db->sqlite, writer->db->path, "DELETE FROM job",
                                    "save the jobs", error))
        return FALSE;
    for (guint i = 0; i < writer->snapshot->jobs->len; i++) {
        const QosJob *job = g_ptr_array_index(writer->snapshot->jobs, i);
        const Mark *old = written ? g_hash_table_lookup(written, job->id) : NULL;
        Mark mark = mark_of(job);

        if (!(old && is_same(old, &mark)) &&
            !(remove_job(writer, job->id, error) && insert_job(writer, job, error)))
            return FALSE;
        g_hash_table_replace(marks, g_strdup(job->id), g_memdup2(&mark, sizeof(mark)));
    }
    if (!written)
        return TRUE;
    g_hash_table_iter_init(&iter, written);
    while (g_hash_table_iter_next(&iter, &id, NULL)) {
        if (!g_hash_table_contains(marks, id) && !remove_job(writer, id, error))
            return FALSE;
    }
    return TRUE;
}

gboolean qos_db_write_jobs_locked(QosDb *db, const QosDbSnapshot *snapshot, GError **error)
{
    g_autoptr(sqlite3_stmt) remove = qos_db_prepare(db, "DELETE FROM job WHERE id = ?", error);
    g_autoptr(sqlite3_stmt) job = NULL;
    g_autoptr(sqlite3_stmt) counter = NULL;
    g_autoptr(sqlite3_stmt) wait = NULL;
    g_autoptr(GHashTable) marks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    Writer writer;

    if (remove)
        job = qos_db_prepare(db, "INSERT INTO job VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", error);
    if (job)
        counter =
            qos_db_prepare(db, "INSERT INTO job_counter VALUES (?, ?, ?, ?, ?, ?, ?, ?)", error);
    if (counter)
        wait = qos_db_prepare(db, "INSERT INTO job_wait VALUES (?, ?, ?, ?, ?, ?, ?, ?)", error);
    if (!wait || !qos_db_begin(db, error))
        return FALSE;
    writer = (Writer){db, snapshot, remove, job, counter, wait};
    if (!qos_db_finish(db, write_changes(&writer, marks, error), error))
        return FALSE;
    g_clear_pointer(&db->written, g_hash_table_unref);
    db->written = g_steal_pointer(&marks);
    return TRUE;
}

/* --- reading --- */

/* How long before `wall` a saved time was; 0 for one that is yet to come: the clock was set back.
 */
static QosTime age(QosTime wall, gint64 saved)
{
    return saved >= wall ? 0 : wall - MAX(saved, 0);
}

static void read_histogram(QosHistogram *histogram, const char *text)
{
    guint bucket;
    guint64 count;
    int length;

    while (text && sscanf(text, "%u:%" G_GUINT64_FORMAT "%n", &bucket, &count, &length) == 2) {
        if (bucket < QOS_HISTOGRAM_BUCKETS)
            histogram->count[bucket] = count;
        text += length;
    }
}

/* Where the counter of that name is kept, or NULL; *ret_sizes: its histogram, or NULL. */
static QosSample *counter_of(QosJob *job, const char *name, QosHistogram **ret_sizes)
{
    *ret_sizes = NULL;
    if (g_strcmp0(name, "read_bytes") == 0) {
        *ret_sizes = &job->read_sizes;
        return &job->read_bytes;
    }
    if (g_strcmp0(name, "write_bytes") == 0) {
        *ret_sizes = &job->write_sizes;
        return &job->write_bytes;
    }
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (g_strcmp0(name, qos_opcode_name(i)) == 0)
            return &job->operation[i];
    }
    return NULL;
}

static QosJob *read_job(sqlite3_stmt *row, QosTime wall)
{
    QosJob *job = g_new0(QosJob, 1);
    gsize length = (gsize)sqlite3_column_bytes(row, 1);

    if (length)
        memcpy(job->id, sqlite3_column_blob(row, 1), MIN(length, QOS_JOB_ID_MAX));
    job->nodes = (guint)sqlite3_column_int64(row, 2);
    job->started = age(wall, sqlite3_column_int64(row, 3));
    job->seen = age(wall, sqlite3_column_int64(row, 4));
    job->store_time = sqlite3_column_int64(row, 5);
    job->wait_time = sqlite3_column_int64(row, 6);
    job->requests = (guint64)sqlite3_column_int64(row, 7);
    job->waits = (guint64)sqlite3_column_int64(row, 8);
    job->errors = (guint64)sqlite3_column_int64(row, 9);
    return job;
}

static void read_counter(QosJob *job, sqlite3_stmt *row, G_GNUC_UNUSED QosTime wall)
{
    QosHistogram *sizes;
    QosSample *sample = counter_of(job, (const char *)sqlite3_column_text(row, 1), &sizes);

    if (!sample)
        return;
    sample->samples = (guint64)sqlite3_column_int64(row, 2);
    sample->minimum = (guint64)sqlite3_column_int64(row, 3);
    sample->maximum = (guint64)sqlite3_column_int64(row, 4);
    sample->sum = (guint64)sqlite3_column_int64(row, 5);
    sample->sum_of_squares = sqlite3_column_double(row, 6);
    if (sizes)
        read_histogram(sizes, (const char *)sqlite3_column_text(row, 7));
}

/* The database has only the rule's name. The caller gives the wait the id that the rule has now. */
static void read_wait(QosJob *job, sqlite3_stmt *row, QosTime wall)
{
    const char *rule = (const char *)sqlite3_column_text(row, 2);
    QosWait *wait;

    if (job->wait_count == QOS_JOB_WAITS_MAX)
        return;
    wait = &job->wait[job->wait_count++];
    g_strlcpy(wait->rule_name, rule ? rule : "", sizeof(wait->rule_name));
    wait->count = (guint64)sqlite3_column_int64(row, 3);
    wait->waited = sqlite3_column_int64(row, 4);
    wait->longest = sqlite3_column_int64(row, 5);
    wait->first = age(wall, sqlite3_column_int64(row, 6));
    wait->last = age(wall, sqlite3_column_int64(row, 7));
}

/* Reads a table; its first column names the job's row. */
static gboolean read_details(QosDb *db, const char *sql, GHashTable *by_row, QosTime wall,
                             void (*take)(QosJob *job, sqlite3_stmt *row, QosTime wall),
                             GError **error)
{
    g_autoptr(sqlite3_stmt) row = qos_db_prepare(db, sql, error);
    GError *reason = NULL;

    while (row && qos_db_next_row(db, row, &reason)) {
        gint64 number = sqlite3_column_int64(row, 0);
        QosJob *job = g_hash_table_lookup(by_row, &number);

        if (job)
            take(job, row, wall);
    }
    if (reason)
        g_propagate_error(error, reason);
    return row && !reason;
}

GPtrArray *qos_db_read_jobs_locked(QosDb *db, QosTime wall, GError **error)
{
    g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GHashTable) by_row = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr(sqlite3_stmt) row = qos_db_prepare(db, "SELECT * FROM job", error);
    GError *reason = NULL;

    while (row && qos_db_next_row(db, row, &reason)) {
        gint64 number = sqlite3_column_int64(row, 0);
        QosJob *job = read_job(row, wall);

        g_ptr_array_add(jobs, job);
        g_hash_table_replace(by_row, g_memdup2(&number, sizeof(number)), job);
    }
    if (reason)
        g_propagate_error(error, reason);
    if (!row || reason ||
        !read_details(db, "SELECT * FROM job_counter", by_row, wall, read_counter, error) ||
        !read_details(db, "SELECT * FROM job_wait ORDER BY job, place", by_row, wall, read_wait,
                      error))
        return NULL;
    return g_steal_pointer(&jobs);
}
