/*
 * The jobs' books, with the time stepped by hand: samples, waits, decaying rates, references,
 * expiry.
 */
#include "fs/jobs.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define START    (1000 * QOS_SECOND)
#define INTERVAL (600 * QOS_SECOND)

static void serve(QosJob *job, QosOpcode opcode, QosTime store_time, guint64 bytes, QosTime now)
{
    qos_job_served(job, opcode, store_time, bytes, 0, now);
}

static double operation_rate(const QosJob *job, QosTime now)
{
    double operations, bytes;
    qos_job_rates(job, now, &operations, &bytes);
    return operations;
}

static double byte_rate(const QosJob *job, QosTime now)
{
    double operations, bytes;
    qos_job_rates(job, now, &operations, &bytes);
    return bytes;
}

/* One id is one job, as long as anybody knows it. */
static void test_interned(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, INTERVAL);
    g_assert_null(qos_jobs_find(&registry, "7"));
    QosJob *job = qos_jobs_job(&registry, "7", START);
    g_assert_cmpstr(job->id, ==, "7");
    g_assert_cmpint(job->started, ==, START);
    g_assert_cmpint(job->references, ==, 2); /* the table's and this one */
    QosJob *same = qos_jobs_job(&registry, "7", START + 5);
    g_assert_true(same == job);
    g_assert_cmpint(job->started, ==, START);
    g_assert_cmpint(job->references, ==, 3);
    QosJob *found = qos_jobs_find(&registry, "7");
    g_assert_true(found == job);
    QosJob *other = qos_jobs_job(&registry, "8", START);
    g_assert_true(other != job);
    qos_job_unref(other);
    qos_job_unref(found);
    qos_job_unref(same);
    g_assert_cmpint(job->references, ==, 2);
    /* The holder of a reference outlives the table. */
    qos_jobs_clear(&registry);
    g_assert_cmpint(job->references, ==, 1);
    g_assert_cmpstr(job->id, ==, "7");
    qos_job_unref(job);
    qos_job_unref(NULL);
}

/* Longer ids are cut, and then the same job. */
static void test_id_is_cut(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, INTERVAL);
    g_autofree char *exact = g_strnfill(QOS_JOB_ID_MAX, 'a');
    g_autofree char *longer = g_strnfill(QOS_JOB_ID_MAX + 100, 'a');
    QosJob *job = qos_jobs_job(&registry, exact, START);
    g_assert_cmpuint(strlen(job->id), ==, QOS_JOB_ID_MAX);
    QosJob *cut = qos_jobs_job(&registry, longer, START);
    g_assert_true(cut == job);
    QosJob *empty = qos_jobs_job(&registry, "", START);
    g_assert_cmpstr(empty->id, ==, "");
    qos_job_unref(empty);
    qos_job_unref(cut);
    qos_job_unref(job);
    qos_jobs_clear(&registry);
}

static void check_sample(const QosSample *sample, guint64 samples, guint64 minimum, guint64 maximum,
                         guint64 sum, double sum_of_squares)
{
    g_assert_cmpuint(sample->samples, ==, samples);
    g_assert_cmpuint(sample->minimum, ==, minimum);
    g_assert_cmpuint(sample->maximum, ==, maximum);
    g_assert_cmpuint(sample->sum, ==, sum);
    g_assert_cmpfloat(sample->sum_of_squares, ==, sum_of_squares);
}

static void test_samples(void)
{
    QosJob job = {0};
    serve(&job, QOS_OP_READ, 10 * QOS_MICROSECOND + 999, 4096, START);
    serve(&job, QOS_OP_READ, 2 * QOS_MICROSECOND, 0, START + 1);
    serve(&job, QOS_OP_WRITE, 999, 1048576, START + 2);
    serve(&job, QOS_OP_GETATTR, 7 * QOS_MICROSECOND, 0, START + 3);

    check_sample(&job.operation[QOS_OP_READ], 2, 2, 10, 12, 104); /* microseconds, rounded down */
    check_sample(&job.operation[QOS_OP_WRITE], 1, 0, 0, 0, 0);
    check_sample(&job.operation[QOS_OP_GETATTR], 1, 7, 7, 7, 49);
    check_sample(&job.operation[QOS_OP_LOOKUP], 0, 0, 0, 0, 0);
    check_sample(&job.read_bytes, 2, 0, 4096, 4096, 4096.0 * 4096);
    check_sample(&job.write_bytes, 1, 1048576, 1048576, 1048576, 1048576.0 * 1048576);
    g_assert_cmpint(job.store_time, ==, 19 * QOS_MICROSECOND + 2 * 999);
    g_assert_cmpuint(job.requests, ==, 4);
    g_assert_cmpuint(job.errors, ==, 0);
    g_assert_cmpint(job.seen, ==, START + 3);
    g_assert_cmpuint(qos_histogram_total(&job.read_sizes), ==, 2);
    g_assert_cmpuint(job.read_sizes.count[12], ==, 1);
    g_assert_cmpuint(job.read_sizes.count[0], ==, 1);
    g_assert_cmpuint(qos_histogram_total(&job.write_sizes), ==, 1);
    g_assert_cmpuint(job.write_sizes.count[20], ==, 1);
}

/* A copy inside the store reads and writes, as the program would have. */
static void test_copy(void)
{
    QosJob job = {0};
    serve(&job, QOS_OP_COPY, QOS_MICROSECOND, 4096, START);
    qos_job_served(&job, QOS_OP_COPY, QOS_MICROSECOND, 4096, 0, START + 1);
    qos_job_served(&job, QOS_OP_COPY, QOS_MICROSECOND, 4096, EIO, START + 2);
    check_sample(&job.read_bytes, 2, 4096, 4096, 8192, 2 * 4096.0 * 4096);
    check_sample(&job.write_bytes, 2, 4096, 4096, 8192, 2 * 4096.0 * 4096);
    g_assert_cmpuint(job.read_sizes.count[12], ==, 2);
    g_assert_cmpuint(job.write_sizes.count[12], ==, 2);
}

/* A failed request took the store's time, but moved nothing. */
static void test_errors(void)
{
    QosJob job = {.rate_time = START};
    qos_job_served(&job, QOS_OP_READ, 5 * QOS_MICROSECOND, 4096, EIO, START);
    qos_job_served(&job, QOS_OP_WRITE, 5 * QOS_MICROSECOND, 4096, ENOSPC, START);
    g_assert_cmpuint(job.requests, ==, 2);
    g_assert_cmpuint(job.errors, ==, 2);
    g_assert_cmpint(job.store_time, ==, 10 * QOS_MICROSECOND);
    /* What each new file meets is none. */
    qos_job_served(&job, QOS_OP_LOOKUP, 0, 0, ENOENT, START);
    qos_job_served(&job, QOS_OP_GETXATTR, 0, 0, ENODATA, START);
    qos_job_served(&job, QOS_OP_GETXATTR, 0, 0, EOPNOTSUPP, START);
    g_assert_cmpuint(job.errors, ==, 2);
    qos_job_served(&job, QOS_OP_LOOKUP, 0, 0, EACCES, START);
    qos_job_served(&job, QOS_OP_OPEN, 0, 0, ENOENT, START);
    g_assert_cmpuint(job.errors, ==, 4);
    check_sample(&job.operation[QOS_OP_READ], 1, 5, 5, 5, 25);
    check_sample(&job.read_bytes, 0, 0, 0, 0, 0);
    check_sample(&job.write_bytes, 0, 0, 0, 0, 0);
    g_assert_cmpuint(qos_histogram_total(&job.read_sizes), ==, 0);
    g_assert_cmpuint(qos_histogram_total(&job.write_sizes), ==, 0);
    g_assert_cmpfloat(byte_rate(&job, START), ==, 0);
    g_assert_cmpfloat(operation_rate(&job, START), >, 0);
}

/* The sum of squares of a busy job is beyond 64 bits; it must not wrap. */
static void test_large_sums(void)
{
    QosJob job = {0};
    for (guint i = 0; i < 1000; i++)
        serve(&job, QOS_OP_READ, 0, G_GUINT64_CONSTANT(1) << 40, START + i);
    g_assert_cmpuint(job.read_bytes.sum, ==, G_GUINT64_CONSTANT(1000) << 40);
    g_assert_cmpfloat(job.read_bytes.sum_of_squares, ==, 1000 * ldexp(1, 80));
}

/* A steady stream shows at its rate, whatever the rate and the size. */
static void test_steady_rates(void)
{
    static const gint64 rates[] = {1, 10, 333, 5000, 100000};
    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        QosJob job = {.rate_time = START};
        QosTime now = START;
        for (gint64 step = 0; step < 30 * rates[i]; step++) {
            now = START + step * QOS_SECOND / rates[i];
            serve(&job, QOS_OP_WRITE, 1, 4096, now);
        }
        /* One request a second is coarse against a constant of 2 s. */
        double tolerance = rates[i] < 10 ? 0.35 : 0.06;
        g_assert_cmpfloat_with_epsilon(operation_rate(&job, now) / (double)rates[i], 1, tolerance);
        g_assert_cmpfloat_with_epsilon(byte_rate(&job, now) / (double)rates[i] / 4096, 1,
                                       tolerance);
    }
}

/* A job that has stopped shows as idle soon, though nothing is booked any more, and its last
 * requests were not yet in the rates. */
static void test_rates_decay(void)
{
    QosJob job = {.rate_time = START};
    QosTime now = START;
    for (guint i = 0; i < 10000; i++, now += QOS_MILLISECOND)
        serve(&job, QOS_OP_READ, 1, 1 << 20, now);
    double before = operation_rate(&job, now), last = before;
    g_assert_cmpfloat_with_epsilon(before, 1000, 60);
    for (guint second = 1; second <= 30; second++) {
        double rate = operation_rate(&job, now + second * QOS_SECOND);
        g_assert_cmpfloat(rate, <, last);
        last = rate;
    }
    /* To 1/e after 2 s. */
    g_assert_cmpfloat_with_epsilon(operation_rate(&job, now + 2 * QOS_SECOND) / before, exp(-1),
                                   0.03);
    g_assert_cmpfloat(last, <, 0.01);
    g_assert_cmpfloat(byte_rate(&job, now + 3600 * QOS_SECOND), <, 0.01);
    /* The reader does not change the books. */
    g_assert_cmpfloat(operation_rate(&job, now), ==, before);
    /* After an idle hour it starts anew. */
    now += 3600 * QOS_SECOND;
    serve(&job, QOS_OP_READ, 1, 0, now);
    g_assert_cmpfloat_with_epsilon(operation_rate(&job, now), 0.5, 0.001);
}

/* The clock of a reader may be behind what was booked by another thread. */
static void test_rates_back_in_time(void)
{
    QosJob job = {.rate_time = START};
    serve(&job, QOS_OP_READ, 1, 0, START + QOS_SECOND);
    double rate = operation_rate(&job, START);
    g_assert_true(isfinite(rate));
    g_assert_cmpfloat_with_epsilon(rate, 0.5, 0.001);
}

static void test_waits(void)
{
    QosJob job = {0};
    qos_job_waited(&job, 5, "hog", 3 * QOS_SECOND, START);
    qos_job_waited(&job, 5, "hog", 5 * QOS_SECOND, START + QOS_SECOND);
    qos_job_waited(&job, 0, QOS_WAIT_SLOTS, 1 * QOS_SECOND, START + 2 * QOS_SECOND);
    qos_job_waited(&job, 5, "hog", 1 * QOS_SECOND, START + 3 * QOS_SECOND);
    g_assert_cmpuint(job.waits, ==, 4);
    g_assert_cmpint(job.wait_time, ==, 10 * QOS_SECOND);
    g_assert_cmpuint(job.wait_count, ==, 2);
    const QosWait *hog = &job.wait[0], *slots = &job.wait[1];
    g_assert_cmpuint(hog->rule_id, ==, 5);
    g_assert_cmpstr(hog->rule_name, ==, "hog");
    g_assert_cmpuint(hog->count, ==, 3);
    g_assert_cmpint(hog->waited, ==, 9 * QOS_SECOND);
    g_assert_cmpint(hog->longest, ==, 5 * QOS_SECOND);
    /* When they began to wait: the second began before the first that was booked. */
    g_assert_cmpint(hog->first, ==, START - 4 * QOS_SECOND);
    g_assert_cmpint(hog->last, ==, START + 2 * QOS_SECOND);
    g_assert_cmpuint(slots->rule_id, ==, 0);
    g_assert_cmpstr(slots->rule_name, ==, QOS_WAIT_SLOTS);
    g_assert_cmpuint(slots->count, ==, 1);
}

/* What a job waits for shows while it waits, and counts once it is over. */
static void test_waits_begin(void)
{
    QosJob job = {0};
    qos_job_waits(&job, 5, "hog", START);
    qos_job_waits(&job, 5, "hog", START + 2 * QOS_SECOND);
    g_assert_cmpuint(job.wait_count, ==, 1);
    g_assert_cmpstr(job.wait[0].rule_name, ==, "hog");
    g_assert_cmpuint(job.wait[0].count + job.waits, ==, 0);
    g_assert_cmpint(job.wait[0].first, ==, START);
    g_assert_cmpint(job.wait[0].last, ==, START + 2 * QOS_SECOND);
    g_assert_cmpint(job.wait[0].waited + job.wait_time, ==, 0);
    qos_job_waited(&job, 5, "hog", 3 * QOS_SECOND, START + 3 * QOS_SECOND);
    g_assert_cmpuint(job.wait_count, ==, 1);
    g_assert_cmpuint(job.wait[0].count, ==, 1);
    g_assert_cmpint(job.wait[0].first, ==, START);
    g_assert_cmpint(job.wait[0].last, ==, START + 2 * QOS_SECOND);
}

/* A rule that is stopped and started again under its name is another rule; each line keeps its own.
 */
static void test_waits_by_id(void)
{
    QosJob job = {0};
    qos_job_waited(&job, 5, "hog", 1, START);
    qos_job_waited(&job, 6, "hog", 1, START);
    g_assert_cmpuint(job.wait_count, ==, 2);
}

/* However many rules a job waits for, the lines are bounded and their sums are the totals. */
static void test_waits_overflow(void)
{
    QosJob job = {0};
    GRand *random = g_rand_new_with_seed(7);
    QosTime now = START;
    guint64 count = 0;
    QosTime total = 0;
    for (guint i = 0; i < 20000; i++) {
        guint rule = i < 7 ? i + 1 : (guint)g_rand_int_range(random, 1, 100);
        g_autofree char *name = g_strdup_printf("rule%u", rule);
        QosTime waited = g_rand_int_range(random, 1, 1000000);
        now += waited;
        count++;
        total += waited;
        qos_job_waited(&job, rule, name, waited, now);
    }
    g_rand_free(random);
    g_assert_cmpuint(job.wait_count, ==, QOS_JOB_WAITS_MAX);
    g_assert_cmpuint(job.waits, ==, count);
    g_assert_cmpint(job.wait_time, ==, total);
    for (guint i = 0; i < job.wait_count; i++) {
        const QosWait *wait = &job.wait[i];
        g_assert_cmpint(wait->waited, >=, wait->longest);
        g_assert_cmpint(wait->first, <=, wait->last);
        count -= wait->count;
        total -= wait->waited;
        if (i < QOS_JOB_WAITS_MAX - 1)
            g_assert_cmpuint(wait->rule_id, ==, i + 1);
        else /* the rest: nothing that a rule may be called */
            g_assert_nonnull(strpbrk(wait->rule_name, "()"));
    }
    g_assert_cmpuint(count, ==, 0);
    g_assert_cmpint(total, ==, 0);
}

static void test_expire(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, INTERVAL);
    QosJob *held = qos_jobs_job(&registry, "held", START);
    qos_job_unref(qos_jobs_job(&registry, "idle", START));
    QosJob *later = qos_jobs_job(&registry, "later", START);
    serve(later, QOS_OP_READ, 1, 1, START + 100 * QOS_SECOND);
    qos_job_unref(later);

    g_assert_cmpuint(qos_jobs_expire(&registry, START + INTERVAL - 1), ==, 0);
    g_assert_cmpuint(qos_jobs_expire(&registry, START + INTERVAL), ==, 1);
    g_assert_null(qos_jobs_find(&registry, "idle"));
    g_assert_cmpuint(qos_jobs_expire(&registry, START + INTERVAL + 100 * QOS_SECOND), ==, 1);
    g_assert_null(qos_jobs_find(&registry, "later"));
    /* A job with a reference stays, and goes once the reference is dropped. */
    g_assert_cmpuint(qos_jobs_expire(&registry, START + 100 * INTERVAL), ==, 0);
    qos_job_unref(held);
    g_assert_cmpuint(qos_jobs_expire(&registry, START + 100 * INTERVAL), ==, 1);
    g_assert_cmpuint(g_hash_table_size(registry.by_id), ==, 0);
    qos_jobs_clear(&registry);
}

/* An interval of 0: jobs are kept for good. */
static void test_expire_never(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, 0);
    qos_job_unref(qos_jobs_job(&registry, "7", 0));
    g_assert_cmpuint(qos_jobs_expire(&registry, G_MAXINT64), ==, 0);
    g_assert_cmpuint(g_hash_table_size(registry.by_id), ==, 1);
    qos_jobs_clear(&registry);
}

static void work(QosJobs *registry, const char *id, QosTime now)
{
    QosJob *job = qos_jobs_job(registry, id, now);
    serve(job, QOS_OP_READ, QOS_MILLISECOND, 4096, now);
    serve(job, QOS_OP_WRITE, QOS_MILLISECOND, 4096, now);
    qos_job_waited(job, 1, "hog", QOS_SECOND, now);
    qos_job_unref(job);
}

static void check_empty(const QosJob *job)
{
    for (guint i = 0; i < QOS_OP_COUNT; i++)
        check_sample(&job->operation[i], 0, 0, 0, 0, 0);
    check_sample(&job->read_bytes, 0, 0, 0, 0, 0);
    check_sample(&job->write_bytes, 0, 0, 0, 0, 0);
    g_assert_cmpuint(qos_histogram_total(&job->read_sizes), ==, 0);
    g_assert_cmpuint(qos_histogram_total(&job->write_sizes), ==, 0);
    g_assert_cmpuint(job->requests + job->waits + job->errors, ==, 0);
    g_assert_cmpint(job->store_time + job->wait_time, ==, 0);
    g_assert_cmpuint(job->wait_count, ==, 0);
}

static void test_reset(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, INTERVAL);
    work(&registry, "a", START);
    work(&registry, "b", START);
    QosJob *held = qos_jobs_job(&registry, "a", START);
    held->nodes = 4;
    held->sched.use.waiting = 3;
    held->sched.use.running = 2;

    g_assert_cmpuint(qos_jobs_reset(&registry, "nobody", START), ==, 0);
    g_assert_cmpuint(qos_jobs_reset(&registry, "a", START + 5), ==, 1);
    /* In use: the same job, with what it is about right now. */
    QosJob *found = qos_jobs_find(&registry, "a");
    g_assert_true(found == held);
    qos_job_unref(found);
    check_empty(held);
    g_assert_cmpint(held->started, ==, START + 5);
    g_assert_cmpuint(held->nodes, ==, 4);
    g_assert_cmpuint(held->sched.use.waiting, ==, 3);
    g_assert_cmpuint(held->sched.use.running, ==, 2);

    QosJob *other = qos_jobs_find(&registry, "b");
    g_assert_cmpuint(other->requests, ==, 2);
    qos_job_unref(other);
    g_assert_cmpuint(qos_jobs_reset(&registry, NULL, START + 6), ==, 2);
    g_assert_null(qos_jobs_find(&registry, "b")); /* nobody held it */
    held->sched.use.waiting = held->sched.use.running = 0;
    qos_job_unref(held);
    qos_jobs_clear(&registry);
}

/* What is restored has the totals, and its times as far back as they were. */
static void test_restore(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, INTERVAL);
    work(&registry, "a", START);
    QosJob *job = qos_jobs_job(&registry, "a", START), ages = *job;
    ages.started = 50 * QOS_SECOND;
    ages.seen = 20 * QOS_SECOND;
    ages.wait[0].first = 40 * QOS_SECOND;
    ages.wait[0].last = 30 * QOS_SECOND;

    QosTime now = 9000 * QOS_SECOND; /* another clock */
    QosJob *restored = qos_jobs_job(&registry, "b", now);
    qos_job_restore(restored, &ages, now);
    g_assert_cmpstr(restored->id, ==, "b");
    g_assert_cmpuint(restored->requests, ==, job->requests);
    g_assert_cmpuint(restored->waits, ==, 1);
    g_assert_cmpint(restored->wait_time, ==, QOS_SECOND);
    g_assert_cmpint(restored->store_time, ==, 2 * QOS_MILLISECOND);
    g_assert_cmpuint(restored->read_bytes.sum, ==, 4096);
    g_assert_cmpuint(qos_histogram_total(&restored->write_sizes), ==, 1);
    g_assert_cmpint(restored->started, ==, now - 50 * QOS_SECOND);
    g_assert_cmpint(restored->seen, ==, now - 20 * QOS_SECOND);
    g_assert_cmpint(restored->wait[0].first, ==, now - 40 * QOS_SECOND);
    g_assert_cmpint(restored->wait[0].last, ==, now - 30 * QOS_SECOND);
    g_assert_cmpfloat(operation_rate(restored, now), ==, 0);
    g_assert_cmpint(restored->references, ==, 2);
    qos_job_unref(restored);
    qos_job_unref(job);
    qos_jobs_clear(&registry);
}

static void test_list(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, INTERVAL);
    for (guint i = 0; i < 10000; i++) {
        g_autofree char *id = g_strdup_printf("%u", i);
        qos_job_unref(qos_jobs_job(&registry, id, START));
    }
    GPtrArray *list = qos_jobs_list(&registry);
    g_assert_cmpuint(list->len, ==, 10000);
    /* The list holds them, even without the table. */
    g_assert_cmpuint(qos_jobs_expire(&registry, START + INTERVAL), ==, 0);
    qos_jobs_clear(&registry);
    for (guint i = 0; i < list->len; i++)
        g_assert_cmpint(((QosJob *)list->pdata[i])->references, ==, 1);
    g_ptr_array_unref(list);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jobs/interned", test_interned);
    g_test_add_func("/jobs/id-is-cut", test_id_is_cut);
    g_test_add_func("/jobs/samples", test_samples);
    g_test_add_func("/jobs/copy", test_copy);
    g_test_add_func("/jobs/errors", test_errors);
    g_test_add_func("/jobs/large-sums", test_large_sums);
    g_test_add_func("/jobs/rates/steady", test_steady_rates);
    g_test_add_func("/jobs/rates/decay", test_rates_decay);
    g_test_add_func("/jobs/rates/back-in-time", test_rates_back_in_time);
    g_test_add_func("/jobs/waits", test_waits);
    g_test_add_func("/jobs/waits/begin", test_waits_begin);
    g_test_add_func("/jobs/waits/by-id", test_waits_by_id);
    g_test_add_func("/jobs/waits/overflow", test_waits_overflow);
    g_test_add_func("/jobs/expire", test_expire);
    g_test_add_func("/jobs/expire/never", test_expire_never);
    g_test_add_func("/jobs/reset", test_reset);
    g_test_add_func("/jobs/restore", test_restore);
    g_test_add_func("/jobs/list", test_list);
    return g_test_run();
}
