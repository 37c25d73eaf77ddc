/*
 * The jobs and their totals; fs/jobs.h says what is kept, and which lock guards it.
 *
 * The rates decay exponentially. Adding to them at each request would cost an exp() each, so
 * requests are summed up and added at most every RATE_STEP.
 */
#include "fs/jobs.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define RATE_CONSTANT (2 * QOS_SECOND)        /* a burst is forgotten to 1/e after this */
#define RATE_STEP     (100 * QOS_MILLISECOND) /* well below the constant: the error is under 3 % */

static void job_free(QosJob *job)
{
    g_free(job);
}

QosJob *qos_job_ref(QosJob *job)
{
    g_atomic_int_inc(&job->references);
    return job;
}

void qos_job_unref(QosJob *job)
{
    if (job != NULL && g_atomic_int_dec_and_test(&job->references))
        job_free(job);
}

/* It leaves the table: the last reference, unless the registry ends. */
static void drop_job(gpointer data)
{
    QosJob *job = data;

    if (job->maker != NULL)
        job->maker->jobs--;
    job->maker = NULL;
    qos_job_unref(job);
}

void qos_jobs_init(QosJobs *jobs, QosTime cleanup_interval)
{
    jobs->users = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    jobs->by_id = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, drop_job);
    jobs->cleanup_interval = cleanup_interval;
}

void qos_jobs_clear(QosJobs *jobs)
{
    g_clear_pointer(&jobs->by_id, g_hash_table_unref);
    g_clear_pointer(&jobs->users, g_hash_table_unref);
}

QosUser *qos_jobs_user(QosJobs *jobs, guint32 uid)
{
    QosUser *user = g_hash_table_lookup(jobs->users, GUINT_TO_POINTER(uid));

    if (user != NULL)
        return user;
    user = g_new0(QosUser, 1);
    user->uid = uid;
    g_queue_init(&user->user_queue);
    g_hash_table_insert(jobs->users, GUINT_TO_POINTER(uid), user);
    return user;
}

QosJob *qos_jobs_find(QosJobs *jobs, const char *id)
{
    QosJob *job = g_hash_table_lookup(jobs->by_id, id);
    return job != NULL ? qos_job_ref(job) : NULL;
}

QosJob *qos_jobs_job_for(QosJobs *jobs, QosUser *user, const char *id, QosTime now)
{
    char name[QOS_JOB_ID_MAX + 1];
    g_strlcpy(name, id, sizeof(name));

    QosJob *job = qos_jobs_find(jobs, name);
    if (job == NULL && user != NULL && user->jobs >= QOS_USER_JOBS_MAX) {
        g_snprintf(name, sizeof(name), "%u", user->uid);
        job = qos_jobs_find(jobs, name);
    }
    if (job != NULL)
        return job;
    job = g_new0(QosJob, 1);
    job->references = 1;
    memcpy(job->id, name, sizeof(name));
    job->started = job->seen = job->rate_time = now;
    g_queue_init(&job->sched.job_queue);
    job->maker = user;
    if (user != NULL)
        user->jobs++;
    g_hash_table_insert(jobs->by_id, job->id, job);
    return qos_job_ref(job);
}

QosJob *qos_jobs_job(QosJobs *jobs, const char *id, QosTime now)
{
    return qos_jobs_job_for(jobs, NULL, id, now);
}

static void add_sample(QosSample *sample, guint64 value)
{
    if (sample->samples == 0 || value < sample->minimum)
        sample->minimum = value;
    sample->maximum = MAX(sample->maximum, value);
    sample->samples++;
    sample->sum += value;
    sample->sum_of_squares += (double)value * (double)value;
}

/* The job's line for that rule. With all lines taken, the last is the sum of the others. */
static QosWait *find_wait(QosJob *job, guint64 rule_id, const char *rule_name, QosTime now)
{
    for (guint i = 0; i < job->wait_count; i++) {
        if (job->wait[i].rule_id == rule_id && strcmp(job->wait[i].rule_name, rule_name) == 0)
            return &job->wait[i];
    }
    if (job->wait_count == QOS_JOB_WAITS_MAX)
        return &job->wait[QOS_JOB_WAITS_MAX - 1];

    QosWait *wait = &job->wait[job->wait_count++];
    if (job->wait_count == QOS_JOB_WAITS_MAX) {
        rule_id = G_MAXUINT64;
        rule_name = QOS_WAIT_OTHERS;
    }
    *wait = (QosWait){.rule_id = rule_id, .first = now};
    g_strlcpy(wait->rule_name, rule_name, sizeof(wait->rule_name));
    return wait;
}

void qos_job_waits(QosJob *job, guint64 rule_id, const char *rule_name, QosTime now)
{
    QosWait *wait = find_wait(job, rule_id, rule_name, now);
    wait->last = MAX(wait->last, now);
}

void qos_job_waited(QosJob *job, guint64 rule_id, const char *rule_name, QosTime waited,
                    QosTime now)
{
    QosTime began = now - waited;
    QosWait *wait = find_wait(job, rule_id, rule_name, began);
    wait->count++;
    wait->waited += waited;
    wait->longest = MAX(wait->longest, waited);
    wait->first = MIN(wait->first, began); /* they are booked as they end, not as they began */
    wait->last = MAX(wait->last, began);
    job->waits++;
    job->wait_time += waited;
}

static void fold_rates(QosJob *job, QosTime now)
{
    QosTime elapsed = now - job->rate_time;
    if (elapsed < RATE_STEP)
        return;
    qos_job_rates(job, now, &job->operation_rate, &job->byte_rate);
    job->rate_time = now;
    job->rate_operations = 0;
    job->rate_bytes = 0;
}

/* Requests that are not yet part of the rates came within RATE_STEP of rate_time, so they decay
 * from there like the rest. Otherwise an idle job's last requests would count for ever. */
void qos_job_rates(const QosJob *job, QosTime now, double *ret_operations, double *ret_bytes)
{
    double decay = exp(-(double)MAX(now - job->rate_time, 0) / (double)RATE_CONSTANT);
    double weight = 1.0 / ((double)RATE_CONSTANT / (double)QOS_SECOND);
    *ret_operations = (job->operation_rate + (double)job->rate_operations * weight) * decay;
    *ret_bytes = (job->byte_rate + (double)job->rate_bytes * weight) * decay;
}

/* Whether an error is an ordinary answer: a name that is not there, or an attribute that a file
 * does not have. These do not count as errors, because programs expect them, for example before
 * they make a new file. */
static gboolean is_answer(QosOpcode opcode, int error)
{
    return (opcode == QOS_OP_LOOKUP && error == ENOENT) ||
           (opcode == QOS_OP_GETXATTR && (error == ENODATA || error == EOPNOTSUPP));
}

void qos_job_served(QosJob *job, QosOpcode opcode, QosTime store_time, guint64 bytes, int error,
                    QosTime now)
{
    job->requests++;
    job->store_time += store_time;
    job->seen = now;
    add_sample(&job->operation[opcode], (guint64)store_time / QOS_MICROSECOND);
    if (error != 0 && !is_answer(opcode, error))
        job->errors++;
    if (error == 0 && (opcode == QOS_OP_READ || opcode == QOS_OP_COPY)) {
        add_sample(&job->read_bytes, bytes);
        qos_histogram_add(&job->read_sizes, bytes);
    }
    if (error == 0 && (opcode == QOS_OP_WRITE || opcode == QOS_OP_COPY)) {
        add_sample(&job->write_bytes, bytes);
        qos_histogram_add(&job->write_sizes, bytes);
    }
    fold_rates(job, now);
    job->rate_operations++;
    if (error == 0)
        job->rate_bytes += bytes;
}

void qos_job_restore(QosJob *job, const QosJob *totals, QosTime now)
{
    memcpy(job->operation, totals->operation, sizeof(job->operation));
    job->nodes = totals->nodes;
    job->started = now - totals->started;
    job->seen = now - totals->seen;
    job->read_bytes = totals->read_bytes;
    job->write_bytes = totals->write_bytes;
    job->read_sizes = totals->read_sizes;
    job->write_sizes = totals->write_sizes;
    job->store_time = totals->store_time;
    job->wait_time = totals->wait_time;
    job->requests = totals->requests;
    job->waits = totals->waits;
    job->errors = totals->errors;
    job->wait_count = MIN(totals->wait_count, QOS_JOB_WAITS_MAX);
    for (guint i = 0; i < job->wait_count; i++) {
        job->wait[i] = totals->wait[i];
        job->wait[i].first = now - totals->wait[i].first;
        job->wait[i].last = now - totals->wait[i].last;
    }
}

static void reset_job(QosJob *job, QosTime now)
{
    memset(job->operation, 0, sizeof(job->operation));
    memset(&job->read_bytes, 0, sizeof(job->read_bytes));
    memset(&job->write_bytes, 0, sizeof(job->write_bytes));
    memset(&job->read_sizes, 0, sizeof(job->read_sizes));
    memset(&job->write_sizes, 0, sizeof(job->write_sizes));
    memset(job->wait, 0, sizeof(job->wait));
    job->wait_count = 0;
    job->store_time = job->wait_time = 0;
    job->requests = job->waits = job->errors = 0;
    job->started = now;
}

/* TRUE if only the table refers to the job. The table is used only under the lock, so no new
 * reference can appear meanwhile. */
static gboolean is_unused(const QosJob *job)
{
    return g_atomic_int_get(&job->references) == 1;
}

guint qos_jobs_reset(QosJobs *jobs, const char *id, QosTime now)
{
    GHashTableIter iter;
    QosJob *job;
    guint count = 0;
    g_hash_table_iter_init(&iter, jobs->by_id);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&job)) {
        if (id != NULL && strcmp(job->id, id) != 0)
            continue;
        count++;
        if (is_unused(job))
            g_hash_table_iter_remove(&iter);
        else
            reset_job(job, now);
    }
    return count;
}

guint qos_jobs_expire(QosJobs *jobs, QosTime now)
{
    if (jobs->cleanup_interval == 0)
        return 0;

    GHashTableIter iter;
    QosJob *job;
    guint count = 0;
    g_hash_table_iter_init(&iter, jobs->by_id);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&job)) {
        if (is_unused(job) && now - job->seen >= jobs->cleanup_interval) {
            g_hash_table_iter_remove(&iter);
            count++;
        }
    }
    return count;
}

GPtrArray *qos_job_list_new(guint length)
{
    return g_ptr_array_new_full(length, (GDestroyNotify)(void (*)(void))qos_job_unref);
}

GPtrArray *qos_jobs_list(const QosJobs *jobs)
{
    GPtrArray *list = qos_job_list_new(g_hash_table_size(jobs->by_id));
    GHashTableIter iter;
    QosJob *job;
    g_hash_table_iter_init(&iter, jobs->by_id);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&job))
        g_ptr_array_add(list, qos_job_ref(job));
    return list;
}
