/*
 * The table of job sizes (server/jobs.h): a hash table by id, and a heap by expiry.
 */
#include "server/jobs.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/units.h"

typedef struct {
    QosServerJob job; /* first: what is found is this */
    QosHeapNode node;
} Entry;

struct QosServerJobs {
    GHashTable *by_id; /* the job's id -> Entry */
    QosHeap expiry;
};

/* --- parsing --- */

static gboolean parse_expiry(const char *text, QosTime wall, QosTime *ret_expires, GError **error)
{
    g_autoptr(GTimeZone) utc = g_time_zone_new_utc();
    g_autoptr(GDateTime) date = g_date_time_new_from_iso8601(text, utc);
    gint64 duration = 0;

    if (date != NULL) {
        gint64 seconds = g_date_time_to_unix(date) - wall / QOS_SECOND;
        duration = CLAMP(seconds, 0, 2 * QOS_SERVER_JOB_EXPIRES / QOS_SECOND) * QOS_SECOND;
    } else if (!qos_parse_duration(text, &duration, NULL)) {
        duration = 0;
    }
    if (duration <= 0 || duration > QOS_SERVER_JOB_EXPIRES) {
        qos_set_error(error, EINVAL,
                      "expire=%s is no time to come within a year: give seconds, a duration (12h), "
                      "or a date (2026-11-28T12:00:00Z)",
                      text);
        return FALSE;
    }
    *ret_expires = wall + duration;
    return TRUE;
}

static gboolean parse_number(const char *name, const char *text, guint *ret_number, GError **error)
{
    gint64 number;

    if (!qos_parse_integer(name, text, 1, QOS_SERVER_JOB_MAX, &number, error))
        return FALSE;
    *ret_number = (guint)number;
    return TRUE;
}

static gboolean parse_option(const char *word, QosTime wall, QosServerJob *job, GError **error)
{
    if (g_str_has_prefix(word, "nodes="))
        return parse_number("nodes", word + strlen("nodes="), &job->nodes, error);
    if (g_str_has_prefix(word, "weight="))
        return parse_number("weight", word + strlen("weight="), &job->weight, error);
    if (g_str_has_prefix(word, "expire="))
        return parse_expiry(word + strlen("expire="), wall, &job->expires, error);
    qos_set_error(error, EINVAL,
                  "\"%s\" is no option of a job: there are nodes=N, weight=W and expire=TIME",
                  word);
    return FALSE;
}

static gboolean check_id(const char *id, GError **error)
{
    gboolean is_id = g_utf8_validate(id, -1, NULL) && strlen(id) <= QOS_SERVER_JOB_ID_MAX;

    for (const char *next = id; is_id && *next != '\0'; next = g_utf8_next_char(next))
        is_id = !g_unichar_iscntrl(g_utf8_get_char(next));
    if (!is_id)
        qos_set_error(error, EINVAL,
                      "the id of a job has at most %d bytes, and no control characters",
                      QOS_SERVER_JOB_ID_MAX);
    return is_id;
}

gboolean qos_server_job_parse(const char *text, QosTime wall, QosServerJob *ret_job, GError **error)
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    QosServerJob job = {.nodes = 1, .weight = 1, .expires = wall + QOS_SERVER_JOB_KEPT};
    const char *id = NULL;

    for (guint i = 0; words[i] != NULL; i++) {
        if (*words[i] == '\0')
            continue;
        if (id == NULL) {
            id = words[i];
            if (!check_id(id, error))
                return FALSE;
        } else if (!parse_option(words[i], wall, &job, error)) {
            return FALSE;
        }
    }
    if (id == NULL) {
        qos_set_error(error, EINVAL, "job set wants the id of a job");
        return FALSE;
    }
    job.id = g_strdup(id);
    *ret_job = job;
    return TRUE;
}

void qos_server_job_clear(QosServerJob *job)
{
    g_clear_pointer(&job->id, g_free);
}

/* --- the table --- */

static void entry_free(gpointer data)
{
    Entry *entry = data;

    g_free(entry->job.id);
    g_free(entry);
}

QosServerJobs *qos_server_jobs_new(void)
{
    QosServerJobs *jobs = g_new0(QosServerJobs, 1);

    jobs->by_id = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, entry_free);
    qos_heap_init(&jobs->expiry);
    return jobs;
}

void qos_server_jobs_free(QosServerJobs *jobs)
{
    if (jobs == NULL)
        return;
    qos_heap_clear(&jobs->expiry);
    g_hash_table_unref(jobs->by_id);
    g_free(jobs);
}

gboolean qos_server_jobs_set(QosServerJobs *jobs, const QosServerJob *job, GError **error)
{
    Entry *entry = g_hash_table_lookup(jobs->by_id, job->id);

    if (entry == NULL && g_hash_table_size(jobs->by_id) >= QOS_SERVER_JOBS_MAX) {
        qos_set_error(error, ENOSPC,
                      "the sizes of %d jobs are known, and no more are taken: clear those that "
                      "have ended (job clear ID), or give shorter times (expire=)",
                      QOS_SERVER_JOBS_MAX);
        return FALSE;
    }
    if (entry == NULL) {
        entry = g_new0(Entry, 1);
        entry->job.id = g_strdup(job->id);
        g_hash_table_insert(jobs->by_id, entry->job.id, entry);
        qos_heap_push(&jobs->expiry, &entry->node, job->expires);
    } else {
        qos_heap_update(&jobs->expiry, &entry->node, job->expires);
    }
    entry->job.nodes = job->nodes;
    entry->job.weight = job->weight;
    entry->job.expires = job->expires;
    return TRUE;
}

gboolean qos_server_jobs_clear(QosServerJobs *jobs, const char *id)
{
    Entry *entry = g_hash_table_lookup(jobs->by_id, id);

    if (entry == NULL)
        return FALSE;
    qos_heap_remove(&jobs->expiry, &entry->node);
    g_hash_table_remove(jobs->by_id, entry->job.id);
    return TRUE;
}

QosTime qos_server_jobs_expire(QosServerJobs *jobs, QosTime wall,
                               void (*expired)(const char *id, gpointer arg), gpointer arg)
{
    QosHeapNode *node;

    while ((node = qos_heap_peek(&jobs->expiry)) != NULL && node->key <= wall) {
        Entry *entry = (Entry *)((char *)node - G_STRUCT_OFFSET(Entry, node));
        expired(entry->job.id, arg);
        qos_server_jobs_clear(jobs, entry->job.id);
    }
    return node != NULL ? node->key : QOS_NEVER;
}

const QosServerJob *qos_server_jobs_find(const QosServerJobs *jobs, const char *id)
{
    return g_hash_table_lookup(jobs->by_id, id);
}

static gint by_id(gconstpointer one, gconstpointer other)
{
    return strcmp((*(QosServerJob *const *)one)->id, (*(QosServerJob *const *)other)->id);
}

GPtrArray *qos_server_jobs_list(const QosServerJobs *jobs)
{
    GPtrArray *list = g_ptr_array_new();
    GHashTableIter iter;
    gpointer entry;

    g_hash_table_iter_init(&iter, jobs->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &entry))
        g_ptr_array_add(list, entry);
    g_ptr_array_sort(list, by_id);
    return list;
}

guint qos_server_jobs_count(const QosServerJobs *jobs)
{
    return g_hash_table_size(jobs->by_id);
}
