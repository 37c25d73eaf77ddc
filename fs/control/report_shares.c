/*
 * The adaptive sharing (fs/adapt.h) in a report, in the units that people and programs read, and
 * the file `shares`.
 */
#include <string.h>

#include "fs/control/report.h"

static double operations(gint64 units)
{
    return (double)units / (double)QOS_COST_UNIT;
}

static QosReportShare *new_share(const QosSchedShare *share)
{
    const QosShareState *state = &share->state;
    double a_second = (double)QOS_SECOND / (double)share->period;
    QosReportShare *taken = g_new(QosReportShare, 1);

    *taken = (QosReportShare){
        .takes_part = share->takes_part,
        .weight = state->weight,
        .entitlement = operations(state->entitlement) * a_second,
        .demand = operations(state->demand) * a_second,
        .allocation = operations(state->allocation) * a_second,
        .repayment = operations(state->repayment) * a_second,
        .flow = operations(state->flow) * a_second,
        .record = operations(state->record),
        .lent = operations(state->totals.lent),
        .returned = operations(state->totals.returned),
        .borrowed = operations(state->totals.borrowed),
        .repaid = operations(state->totals.repaid),
    };
    g_strlcpy(taken->partner, share->partner, sizeof(taken->partner));
    return taken;
}

void qos_report_take_adapt(QosReportAdapt *adapt, QosGate *gate)
{
    QosSchedAdapt taken;

    qos_sched_adapt_state(qos_gate_lock(gate), &taken);
    qos_gate_unlock(gate);
    *adapt = (QosReportAdapt){
        .mode = taken.config.mode,
        .period = taken.config.period,
        .capacity = taken.capacity,
        .told = (double)taken.config.capacity,
        .reserved = taken.reserved,
        .depth = taken.depth,
        .members = taken.members,
        .shares = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
    };
}

void qos_report_add_share(QosReportAdapt *adapt, const QosSchedShare *share)
{
    if (adapt->mode != QOS_ADAPT_OFF)
        g_hash_table_replace(adapt->shares, g_strdup(share->job), new_share(share));
}

void qos_report_adapt_clear(QosReportAdapt *adapt)
{
    g_clear_pointer(&adapt->shares, g_hash_table_unref);
}

const QosReportShare *qos_report_share(const QosReport *report, const char *id)
{
    return report->adapt.mode == QOS_ADAPT_OFF ? NULL
                                               : g_hash_table_lookup(report->adapt.shares, id);
}

/* --- the file --- */

static void append_field(GString *text, const char *name, double value)
{
    char number[G_ASCII_DTOSTR_BUF_SIZE];
    g_autofree char *key = g_strconcat(name, ":", NULL);

    g_string_append_printf(text, "  %-17s%s\n", key,
                           g_ascii_formatd(number, sizeof(number), "%.1f", value));
}

static void append_id(GString *text, const char *key, const char *id)
{
    g_string_append_printf(text, "%-19s", key);
    qos_report_append_quoted_id(text, id);
    g_string_append_c(text, '\n');
}

static void append_share(GString *text, const char *id, const QosReportShare *share)
{
    append_id(text, "- job_id:", id);
    g_string_append_printf(text, "  %-17s%" G_GINT64_FORMAT "\n", "weight:", share->weight);
    append_field(text, "entitlement", share->entitlement);
    append_field(text, "demand", share->demand);
    append_field(text, "allocation", share->allocation);
    append_field(text, "repayment", share->repayment);
    append_field(text, "flow", share->flow);
    append_id(text, "  partner:", share->partner);
    append_field(text, "record", share->record);
    append_field(text, "lent", share->lent);
    append_field(text, "returned", share->returned);
    append_field(text, "borrowed", share->borrowed);
    append_field(text, "repaid", share->repaid);
}

GString *qos_report_shares(const QosReport *report)
{
    const QosReportAdapt *adapt = &report->adapt;
    char number[G_ASCII_DTOSTR_BUF_SIZE];
    GString *text = g_string_new(NULL);

    g_string_append_printf(text, "%-19s\"%s\"\n", "adapt:", qos_adapt_mode_names[adapt->mode]);
    if (adapt->mode == QOS_ADAPT_OFF)
        return text;
    g_string_append_printf(
        text, "%-19s%s\n%-19s%s\n%-19s%u\n",
        "capacity:", g_ascii_formatd(number, sizeof(number), "%.1f", adapt->capacity),
        "capacity_is:", qos_report_is_told(adapt) ? "told" : "estimated", "depth:", adapt->depth);
    g_string_append_printf(text, "%-19s%s\n",
                           "told:", g_ascii_formatd(number, sizeof(number), "%.1f", adapt->told));
    g_string_append_printf(text, "%-19s%s\n", "reserved:",
                           g_ascii_formatd(number, sizeof(number), "%.1f", adapt->reserved));
    g_string_append_printf(text, "%-19s%s\nshares:\n", "period:",
                           g_ascii_formatd(number, sizeof(number), "%.3f",
                                           (double)adapt->period / (double)QOS_SECOND));
    for (guint i = 0; i < report->jobs->len; i++) {
        const char *id = ((const QosJob *)g_ptr_array_index(report->jobs, i))->id;
        const QosReportShare *share = qos_report_share(report, id);

        if (share)
            append_share(text, id, share);
    }
    return text;
}
