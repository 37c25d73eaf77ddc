/*
 * Takes samples of the jobs' totals; fs/history.h says what comes out.
 */
#include "fs/history.h"

#include <string.h>

#define VALUE_MAX (G_GINT64_CONSTANT(1) << 53) /* of a row: a year of sums stays below 2^63 */

void qos_history_init(QosHistory *history)
{
    history->totals = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    history->wall = 0;
}

void qos_history_clear(QosHistory *history)
{
    g_clear_pointer(&history->totals, g_hash_table_unref);
}

static gint64 total(guint64 value)
{
    return (gint64)MIN(value, (guint64)G_MAXINT64);
}

static gint64 *totals_of(const QosJob *job)
{
    gint64 *totals = g_new0(gint64, QOS_HISTORY_COUNT);

    totals[QOS_HISTORY_OPERATIONS] = total(job->requests);
    totals[QOS_HISTORY_READ_BYTES] = total(job->read_bytes.sum);
    totals[QOS_HISTORY_WRITE_BYTES] = total(job->write_bytes.sum);
    totals[QOS_HISTORY_WAITS] = total(job->waits);
    totals[QOS_HISTORY_WAITED] = total((guint64)MAX(job->wait_time, 0));
    totals[QOS_HISTORY_LENT] = total((guint64)MAX(job->share.totals.lent, 0));
    totals[QOS_HISTORY_RETURNED] = total((guint64)MAX(job->share.totals.returned, 0));
    totals[QOS_HISTORY_BORROWED] = total((guint64)MAX(job->share.totals.borrowed, 0));
    totals[QOS_HISTORY_REPAID] = total((guint64)MAX(job->share.totals.repaid, 0));
    return totals;
}

/* FALSE where the job did nothing. */
static gboolean difference(const gint64 *before, const gint64 *now, gint64 *ret_values)
{
    gboolean moved = FALSE;

    for (guint i = 0; before && i < QOS_HISTORY_COUNT; i++) {
        if (now[i] < before[i])
            before = NULL;
    }
    for (guint i = 0; i < QOS_HISTORY_COUNT; i++) {
        ret_values[i] = MIN(now[i] - (before ? before[i] : 0), VALUE_MAX);
        moved = moved || ret_values[i] > 0;
    }
    return moved;
}

static gint64 size_of(const QosHistoryRow *row)
{
    return row->value[QOS_HISTORY_OPERATIONS] +
           (row->value[QOS_HISTORY_READ_BYTES] + row->value[QOS_HISTORY_WRITE_BYTES]) /
               QOS_HISTORY_BYTES_UNIT;
}

static gint larger_first(gconstpointer a, gconstpointer b)
{
    gint64 first = size_of(a);
    gint64 second = size_of(b);

    if (first != second)
        return first < second ? 1 : -1;
    return strcmp(((const QosHistoryRow *)a)->id, ((const QosHistoryRow *)b)->id);
}

/* Sums up the rows beyond the largest. */
static void fold(GArray *rows)
{
    QosHistoryRow *others;

    if (rows->len <= QOS_HISTORY_JOBS)
        return;
    g_array_sort(rows, larger_first);
    others = &g_array_index(rows, QosHistoryRow, QOS_HISTORY_JOBS);
    memset(others->id, 0, sizeof(others->id));
    for (guint i = QOS_HISTORY_JOBS + 1; i < rows->len; i++) {
        for (guint j = 0; j < QOS_HISTORY_COUNT; j++)
            others->value[j] += g_array_index(rows, QosHistoryRow, i).value[j];
    }
    g_array_set_size(rows, QOS_HISTORY_JOBS + 1);
}

GArray *qos_history_sample(QosHistory *history, const GPtrArray *jobs, QosTime wall)
{
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(QosHistoryRow));
    QosTime since = history->wall && history->wall <= wall ? history->wall : wall;
    gint64 middle = (since + (wall - since) / 2) / QOS_SECOND;
    GHashTable *totals = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

    for (guint i = 0; i < jobs->len; i++) {
        const QosJob *job = g_ptr_array_index(jobs, i);
        QosHistoryRow row = {.begin = middle - middle % QOS_HISTORY_STEP, .step = QOS_HISTORY_STEP};
        gint64 *now = totals_of(job);

        memcpy(row.id, job->id, sizeof(row.id));
        if (difference(g_hash_table_lookup(history->totals, job->id), now, row.value))
            g_array_append_val(rows, row);
        g_hash_table_replace(totals, g_strdup(job->id), now);
    }
    fold(rows);
    g_hash_table_unref(history->totals);
    history->totals = totals;
    history->wall = wall;
    return rows;
}
