/*
 * Tables for people: the jobs and the rules. A column is as wide as its widest text; numbers are
 * set to the right.
 *
 * .qosfs/history has a line of CSV for each job and slice of time; docs/reference/reports.md has
 * its columns. It gives the adaptive sharing's counts in operations. Job ids are written as
 * everywhere, and no byte of them needs quotes.
 */
#include <string.h>

#include "base/units.h"
#include "fs/control/report.h"

typedef struct {
    const char *title;
    gboolean to_the_left; /* text; numbers go to the right */
} Column;

/* A table is its cells, row by row; each is g_free'd with the array. */
static void set_rows(GString *text, const Column *columns, guint column_count, GPtrArray *cells)
{
    g_autofree guint *widths = g_new0(guint, column_count);

    for (guint i = 0; i < cells->len; i++) {
        guint length = (guint)g_utf8_strlen(g_ptr_array_index(cells, i), -1);

        widths[i % column_count] = MAX(widths[i % column_count], length);
    }
    for (guint i = 0; i < cells->len; i++) {
        const char *cell = g_ptr_array_index(cells, i);
        guint column = i % column_count;
        gboolean is_last = column == column_count - 1;
        guint padding = widths[column] - (guint)g_utf8_strlen(cell, -1);

        if (!columns[column].to_the_left)
            g_string_append_printf(text, "%*s", (int)padding, "");
        g_string_append(text, cell);
        if (columns[column].to_the_left && !is_last)
            g_string_append_printf(text, "%*s", (int)padding, "");
        g_string_append(text, is_last ? "\n" : "  ");
    }
}

static GPtrArray *new_table(const Column *columns, guint column_count)
{
    GPtrArray *cells = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < column_count; i++)
        g_ptr_array_add(cells, g_strdup(columns[i].title));
    return cells;
}

/* A cell, made as by printf. */
static void add(GPtrArray *cells, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void add(GPtrArray *cells, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_ptr_array_add(cells, g_strdup_vprintf(format, arguments));
    va_end(arguments);
}

static void add_id(GPtrArray *cells, const char *id)
{
    GString *text = g_string_new(NULL);

    qos_report_append_id(text, id);
    g_ptr_array_add(cells, g_string_free(text, FALSE));
}

GString *qos_report_jobs(const QosReport *report)
{
    static const Column columns[] = {
        {"JOB", TRUE},      {"NODES", FALSE},  {"OP/S", FALSE},      {"MB/S", FALSE},
        {"WAITING", FALSE}, {"WAITED", FALSE}, {"LIMITED BY", TRUE}, {"REQUESTS", FALSE},
        {"ERRORS", FALSE},  {"READ", FALSE},   {"WRITTEN", FALSE},
    };
    g_autoptr(GPtrArray) cells = new_table(columns, G_N_ELEMENTS(columns));
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < report->jobs->len; i++) {
        const QosJob *job = g_ptr_array_index(report->jobs, i);
        const char *limit = qos_report_limit(report, job);
        double spent = (double)job->wait_time + (double)job->store_time;

        add_id(cells, job->id);
        if (job->nodes)
            add(cells, "%u", job->nodes);
        else
            add(cells, "-");
        add(cells, "%.1f", job->operation_rate);
        add(cells, "%.2f", job->byte_rate / 1e6);
        add(cells, "%u", job->sched.use.waiting);
        add(cells, "%.0f%%", spent > 0 ? 100 * (double)job->wait_time / spent : 0);
        add(cells, "%s", limit ? limit : "-");
        add(cells, "%" G_GUINT64_FORMAT, job->requests);
        add(cells, "%" G_GUINT64_FORMAT, job->errors);
        g_ptr_array_add(cells, qos_format_bytes(job->read_bytes.sum));
        g_ptr_array_add(cells, qos_format_bytes(job->write_bytes.sum));
    }
    set_rows(text, columns, G_N_ELEMENTS(columns), cells);
    return text;
}

static void add_rule(GPtrArray *cells, const QosReport *report, const QosRule *rule,
                     const QosRuleState *state)
{
    g_autofree char *options = qos_rule_options(rule);

    add(cells, "%s", rule->name);
    add(cells, "%s", *options ? options : "-");
    if (rule->expires == QOS_NEVER)
        add(cells, "-");
    else
        g_ptr_array_add(cells, qos_format_duration(MAX(rule->expires - report->now, 0)));
    add(cells, "%u", state->buckets);
    add(cells, "%u", state->waiting);
    add(cells, "%" G_GUINT64_FORMAT, state->requests);
    g_ptr_array_add(cells, qos_format_bytes(state->bytes));
    add(cells, "%" G_GUINT64_FORMAT, rule->dryrun ? state->dryrun_waits : state->waits);
    g_ptr_array_add(cells, qos_format_duration(state->waited));
    g_ptr_array_add(cells, qos_rule_conditions(rule));
}

/* `count` rules from the first on. */
static void append_rules(GString *text, const QosReport *report, const QosRules *rules,
                         const QosRuleState *states, guint count)
{
    static const Column columns[] = {
        {"RULE", TRUE},     {"LIMIT", TRUE},      {"EXPIRES", FALSE}, {"BUCKETS", FALSE},
        {"WAITING", FALSE}, {"REQUESTS", FALSE},  {"BYTES", FALSE},   {"WAITS", FALSE},
        {"WAITED", FALSE},  {"CONDITIONS", TRUE},
    };
    g_autoptr(GPtrArray) cells = new_table(columns, G_N_ELEMENTS(columns));

    for (guint i = 0; i < count; i++)
        add_rule(cells, report, qos_rules_get(rules, i), &states[i]);
    set_rows(text, columns, G_N_ELEMENTS(columns), cells);
}

GString *qos_report_rules(const QosReport *report)
{
    const QosReportCluster *cluster = &report->cluster;
    GString *text = g_string_new(NULL);

    append_rules(text, report, report->rules, report->rule_states, qos_rules_count(report->rules));
    if (cluster->terms.version == 0)
        return text;
    g_string_append_printf(text, "\nfor all mounts together, version %" G_GUINT64_FORMAT "%s\n",
                           cluster->terms.version,
                           cluster->is_away ? ", the lock server is away" : "");
    if (qos_report_cluster_count(cluster) > 0)
        append_rules(text, report, cluster->rules, cluster->rule_states,
                     qos_report_cluster_count(cluster));
    return text;
}

/* --- the history, as CSV --- */

GString *qos_report_history_head(void)
{
    return g_string_new("time,seconds,job,operations,read_bytes,write_bytes,waits,waited_us,"
                        "lent,returned,borrowed,repaid\n");
}

void qos_report_append_history(GString *text, const QosHistoryRow *row)
{
    g_string_append_printf(text, "%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",", row->begin,
                           row->step);
    qos_report_append_id(text, row->id);
    for (guint i = 0; i < QOS_HISTORY_COUNT; i++) {
        gint64 value = row->value[i];

        if (i < QOS_HISTORY_LENT)
            g_string_append_printf(text, ",%" G_GINT64_FORMAT,
                                   i == QOS_HISTORY_WAITED ? value / QOS_MICROSECOND : value);
        else
            g_string_append_printf(text, ",%.12g", (double)value / (double)QOS_COST_UNIT);
    }
    g_string_append_c(text, '\n');
}
