/*
 * The formats of Lustre: job_stats, nrs_tbf_rule and nrs_policies. Fields stand where Lustre puts
 * them, so that scripts and exporters made for Lustre can read these files.
 *
 * job_stats has read, write and the two byte counters for every job. Of the other operations it has
 * only those that the job did, because three quarters of the lines would be zeros otherwise.
 *
 * Exporters search a job's lines with expressions that are not anchored, and take the first that
 * matches: "link: .*" also finds unlink, readlink and symlink. So the operations that Lustre has
 * come first, in the order of its metadata servers, and `link` is there if one of these is. Some
 * exporters keep the last of `read` and `read_bytes`: that order is a metadata server's too.
 */
#include <string.h>

#include "fs/control/report.h"

/* --- job_stats --- */

static void append_time(GString *text, const char *name, QosTime time)
{
    g_string_append_printf(text, "  %-17s%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT " secs.nsecs\n",
                           name, time / QOS_SECOND, time % QOS_SECOND);
}

/* "4K", "1M": the upper bound of a bucket. */
static void append_bound(GString *text, guint bucket)
{
    static const char units[] = " KMGTP";

    g_string_append_printf(text, "%u", 1U << bucket % 10);
    if (bucket >= 10)
        g_string_append_c(text, units[bucket / 10]);
}

static void append_histogram(GString *text, const QosHistogram *histogram)
{
    gboolean is_empty = TRUE;

    for (guint i = 0; i < QOS_HISTOGRAM_BUCKETS; i++) {
        if (!histogram->count[i])
            continue;
        g_string_append(text, is_empty ? ", hist: { " : ", ");
        append_bound(text, i);
        g_string_append_printf(text, ": %" G_GUINT64_FORMAT, histogram->count[i]);
        is_empty = FALSE;
    }
    if (!is_empty)
        g_string_append(text, " }");
}

static void append_sample(GString *text, const char *name, const QosSample *sample,
                          const char *unit, const QosHistogram *histogram)
{
    g_autofree char *key = g_strconcat(name, ":", NULL);

    g_string_append_printf(text,
                           "  %-16s { samples: %11" G_GUINT64_FORMAT
                           ", unit: %s, min: %8" G_GUINT64_FORMAT ", max: %8" G_GUINT64_FORMAT
                           ", sum: %16" G_GUINT64_FORMAT ", sumsq: %18.0f",
                           key, sample->samples, unit, sample->minimum, sample->maximum,
                           sample->sum, sample->sum_of_squares);
    if (histogram)
        append_histogram(text, histogram);
    g_string_append(text, " }\n");
}

/* An expression for `link` finds these names as well. */
static gboolean is_mistaken_for_link(const QosJob *job)
{
    return job->operation[QOS_OP_UNLINK].samples || job->operation[QOS_OP_READLINK].samples ||
           job->operation[QOS_OP_SYMLINK].samples;
}

static void append_operation(GString *text, const QosJob *job, QosOpcode opcode)
{
    if (job->operation[opcode].samples || (opcode == QOS_OP_LINK && is_mistaken_for_link(job)))
        append_sample(text, qos_opcode_name(opcode), &job->operation[opcode], "usecs", NULL);
}

static void append_operations(GString *text, const QosJob *job)
{
    /* Lustre's, in its order. */
    static const QosOpcode first[] = {
        QOS_OP_OPEN,     QOS_OP_CLOSE,    QOS_OP_MKNOD,  QOS_OP_LINK,    QOS_OP_UNLINK,
        QOS_OP_MKDIR,    QOS_OP_RMDIR,    QOS_OP_RENAME, QOS_OP_GETATTR, QOS_OP_SETATTR,
        QOS_OP_GETXATTR, QOS_OP_SETXATTR, QOS_OP_STATFS, QOS_OP_SYNC,    QOS_OP_CREATE,
    };
    guint64 done = 1ULL << QOS_OP_READ | 1ULL << QOS_OP_WRITE;

    for (guint i = 0; i < G_N_ELEMENTS(first); i++) {
        append_operation(text, job, first[i]);
        done |= 1ULL << first[i];
    }
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (!(done & 1ULL << i))
            append_operation(text, job, i);
    }
}

static void append_job(GString *text, const QosReport *report, const QosJob *job)
{
    /* When the counters moved last: a job that was cleared since has begun anew. */
    QosTime latest = MAX(job->seen, job->started);

    g_string_append_printf(text, "- %-17s", "job_id:");
    qos_report_append_yaml_id(text, job->id);
    g_string_append_c(text, '\n');
    append_time(text, "snapshot_time:", qos_report_wall(report, latest));
    append_time(text, "start_time:", qos_report_wall(report, job->started));
    append_time(text, "elapsed_time:", latest - job->started);
    append_sample(text, "read", &job->operation[QOS_OP_READ], "usecs", NULL);
    append_sample(text, "write", &job->operation[QOS_OP_WRITE], "usecs", NULL);
    append_sample(text, "read_bytes", &job->read_bytes, "bytes", &job->read_sizes);
    append_sample(text, "write_bytes", &job->write_bytes, "bytes", &job->write_sizes);
    append_operations(text, job);
}

GString *qos_report_job_stats(const QosReport *report)
{
    GString *text = g_string_new("job_stats:\n");

    for (guint i = 0; i < report->jobs->len; i++)
        append_job(text, report, g_ptr_array_index(report->jobs, i));
    return text;
}

/* --- nrs_tbf_rule --- */

/*
 * NAME CONDITIONS [OPTION...] RATE, ref N. Options that Lustre does not know stand before the rate,
 * where a parser of Lustre's lines takes them for conditions. A rate of 0 bounds nothing.
 */
static void append_rule(GString *text, const QosReport *report, guint index)
{
    const QosRule *rule = qos_rules_get(report->rules, index);
    g_autofree char *conditions = qos_rule_conditions(rule);
    g_autofree char *options = qos_rule_options(rule);
    g_auto(GStrv) words = g_strsplit(options, " ", -1);

    g_string_append_printf(text, "%s %s ", rule->name, conditions);
    for (guint i = 0; words[i]; i++) {
        if (*words[i] && !g_str_has_prefix(words[i], "rate="))
            g_string_append_printf(text, "%s ", words[i]);
    }
    if (rule->expires != QOS_NEVER)
        g_string_append_printf(text, "expire=%" G_GINT64_FORMAT " ",
                               MAX(rule->expires - report->now, 0) / QOS_SECOND);
    g_string_append_printf(text, "%" G_GINT64_FORMAT ", ref %u\n", rule->rate,
                           report->rule_states[index].buckets);
}

GString *qos_report_nrs_tbf_rule(const QosReport *report)
{
    GString *text = g_string_new("regular_requests:\nCPT 0:\n");

    for (guint i = 0; i < qos_rules_count(report->rules); i++)
        append_rule(text, report, i);
    /* Urgent requests (close, unlock) never wait, so no rule applies to them. */
    g_string_append(text, "high_priority_requests:\nCPT 0:\n");
    return text;
}

/* --- nrs_policies --- */

static void append_policy(GString *text, const char *name, const char *state, gboolean fallback,
                          guint queued, guint active)
{
    g_string_append_printf(text,
                           "  - name: %s\n    state: %s\n    fallback: %s\n    queued: %u\n"
                           "    active: %u\n\n",
                           name, state, fallback ? "yes" : "no", queued, active);
}

GString *qos_report_nrs_policies(const QosReport *report)
{
    GString *text = g_string_new("regular_requests:\n");

    for (guint i = 0; i < report->policy_count; i++) {
        const QosReportPolicy *policy = &report->policies[i];
        gboolean in_force = policy->state == QOS_POLICY_STARTED;

        append_policy(text, policy->policy->name, qos_policy_state_names[policy->state],
                      policy->policy == &qos_policy_fifo, policy->queued,
                      in_force ? report->slots.running : 0);
    }
    g_string_append(text, "high_priority_requests:\n");
    append_policy(text, "fifo", "started", TRUE, 0, 0);
    return text;
}
