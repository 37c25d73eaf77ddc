/*
 * Reads the history, selects rows, and adds them up to series. A row keeps its line of text, so
 * that CSV output is exactly what the mount wrote.
 */
#include "tools/ctl_history.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "fs/history.h"
#include "tools/ctl_text.h"

#define SLICES_MAX 720
#define HOUR       3600
#define DAY        86400

enum { SERIES_FIRST = 3, COLUMN_COUNT = 12 }; /* the columns */
#define SERIES_COUNT (COLUMN_COUNT - SERIES_FIRST)
enum { OPERATIONS, READ_BYTES, WRITE_BYTES }; /* the first series */

static const char *const columns[] = {
    "time",      "seconds", "job",      "operations", "read_bytes", "write_bytes", "waits",
    "waited_us", "lent",    "returned", "borrowed",   "repaid",     NULL};
G_STATIC_ASSERT(G_N_ELEMENTS(columns) == COLUMN_COUNT + 1);

typedef struct {
    char *id;    /* as it is named; "": the jobs that are not told apart */
    char *shown; /* for people */
} Job;

typedef struct {
    const char *line;
    gint64 begin;
    gint64 length;
    const Job *job;
    double value[SERIES_COUNT];
} Row;

struct QosCtlHistory {
    char *text;       /* the lines, each ended by a NUL */
    GHashTable *jobs; /* id as it is written -> Job, both owned */
    GArray *rows;     /* of Row */
};

static void free_job(gpointer data)
{
    Job *job = data;
    g_free(job->id);
    g_free(job->shown);
    g_free(job);
}

static const Row *row_at(const QosCtlHistory *history, guint index)
{
    return &g_array_index(history->rows, Row, index);
}

/* --- reading --- */

/* The job that is written as the field at `text`, of that length. */
static const Job *find_job(QosCtlHistory *history, const char *text, gsize length)
{
    g_autofree char *written = g_strndup(text, length);
    Job *job = g_hash_table_lookup(history->jobs, written);
    if (!job) {
        job = g_new(Job, 1);
        job->id = qos_ctl_unescape(written);
        job->shown = qos_ctl_escape(job->id);
        g_hash_table_insert(history->jobs, g_steal_pointer(&written), job);
    }
    return job;
}

/* The number at *at, which `end` follows; *at is then behind that. */
static gboolean read_number(const char **at, char end, double *ret_value)
{
    char *rest;
    if (!g_ascii_isdigit(**at))
        return FALSE;
    *ret_value = g_ascii_strtod(*at, &rest);
    *at = rest + 1;
    return *rest == end && *ret_value < 1e18;
}

/* FALSE where the line is no row. */
static gboolean read_row(QosCtlHistory *history, const char *line, Row *ret_row)
{
    const char *at = line;
    double begin, length;
    if (!read_number(&at, ',', &begin) || !read_number(&at, ',', &length) || length < 1)
        return FALSE;
    const char *comma = strchr(at, ',');
    if (!comma)
        return FALSE;
    *ret_row = (Row){.line = line,
                     .begin = (gint64)begin,
                     .length = (gint64)length,
                     .job = find_job(history, at, (gsize)(comma - at))};
    at = comma + 1;
    for (guint i = 0; i < SERIES_COUNT; i++)
        if (!read_number(&at, i + 1 < SERIES_COUNT ? ',' : '\0', &ret_row->value[i]))
            return FALSE;
    return TRUE;
}

static gboolean wrong_line(GError **error, guint number)
{
    qos_set_error(error, EPROTO,
                  "line %u of the mount's history is not what this qosfsctl knows: is it of the "
                  "same version as the mount?",
                  number);
    return FALSE;
}

/* The line at *rest, which then is behind it; NULL at the end. */
static char *next_line(char **rest)
{
    char *line = *rest;
    char *end = strchr(line, '\n');
    if (!end)
        return NULL;
    *end = '\0';
    *rest = end + 1;
    return line;
}

QosCtlHistory *qos_ctl_history_parse(const char *text, GError **error)
{
    g_autoptr(QosCtlHistory) history = g_new(QosCtlHistory, 1);
    g_autofree char *header = g_strjoinv(",", (char **)columns);
    history->text = g_strdup(text);
    history->jobs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_job);
    history->rows = g_array_new(FALSE, FALSE, sizeof(Row));

    char *rest = history->text;
    const char *line = next_line(&rest);
    guint number = 1;
    gboolean good = line && g_str_equal(line, header);
    while (good && (line = next_line(&rest))) {
        Row row;
        number++;
        good = read_row(history, line, &row);
        if (good)
            g_array_append_val(history->rows, row);
    }
    if (!good || *rest) {
        wrong_line(error, number);
        return NULL;
    }
    return g_steal_pointer(&history);
}

void qos_ctl_history_free(QosCtlHistory *history)
{
    if (!history)
        return;
    g_array_unref(history->rows);
    g_hash_table_unref(history->jobs);
    g_free(history->text);
    g_free(history);
}

/* --- selecting --- */

static gboolean is_named(const Row *row, const char *name)
{
    const Job *job = row->job;
    return *job->id && (g_str_equal(job->id, name) || g_str_equal(job->shown, name));
}

static gboolean is_there(const QosCtlHistory *history, const char *name)
{
    for (guint i = 0; i < history->rows->len; i++)
        if (is_named(row_at(history, i), name))
            return TRUE;
    return FALSE;
}

static gboolean no_such_job(const QosCtlHistory *history, const char *name, GError **error)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    for (guint i = 0; i < history->rows->len; i++) {
        const Job *job = row_at(history, i)->job;
        if (*job->id && g_hash_table_add(seen, (gpointer)job))
            g_ptr_array_add(names, job->id);
    }
    g_autofree char *hint = qos_ctl_hint(name, names);
    g_autofree char *shown = qos_ctl_escape(name);
    qos_set_error(error, ENOENT, "the history of that time has no job '%s'%s", shown, hint);
    return FALSE;
}

typedef struct {
    gint64 from;
    const char *const *jobs; /* NULL: all */
} Selection;

static gboolean is_in_time(const Row *row, const Selection *selection)
{
    return row->begin + row->length > selection->from;
}

static gboolean is_of_jobs(const Row *row, const Selection *selection)
{
    for (guint i = 0; selection->jobs && selection->jobs[i]; i++)
        if (is_named(row, selection->jobs[i]))
            return TRUE;
    return !selection->jobs;
}

static void keep(QosCtlHistory *history, gboolean (*is_wanted)(const Row *, const Selection *),
                 const Selection *selection)
{
    guint kept = 0;
    for (guint i = 0; i < history->rows->len; i++)
        if (is_wanted(row_at(history, i), selection))
            g_array_index(history->rows, Row, kept++) = *row_at(history, i);
    g_array_set_size(history->rows, kept);
}

gboolean qos_ctl_history_select(QosCtlHistory *history, gint64 from, const char *const *jobs,
                                GError **error)
{
    Selection selection = {from, jobs};
    keep(history, is_in_time, &selection);
    for (guint i = 0; jobs && jobs[i]; i++)
        if (!is_there(history, jobs[i]))
            return no_such_job(history, jobs[i], error);
    keep(history, is_of_jobs, &selection);
    return TRUE;
}

gint64 qos_ctl_history_begin(const QosCtlHistory *history)
{
    gint64 begin = G_MAXINT64;
    for (guint i = 0; i < history->rows->len; i++)
        begin = MIN(begin, row_at(history, i)->begin);
    return begin;
}

char *qos_ctl_history_csv(const QosCtlHistory *history)
{
    GString *text = g_string_new(NULL);
    g_autofree char *header = g_strjoinv(",", (char **)columns);
    g_string_append_printf(text, "%s\n", header);
    for (guint i = 0; i < history->rows->len; i++)
        g_string_append_printf(text, "%s\n", row_at(history, i)->line);
    return g_string_free(text, FALSE);
}

/* --- series --- */

QosCtlSlices qos_ctl_history_slices(gint64 now, gint64 length)
{
    gint64 step = length <= HOUR ? QOS_HISTORY_STEP : length <= DAY ? QOS_HISTORY_DAY_STEP : HOUR;
    while (length / step > SLICES_MAX)
        step += HOUR;
    gint64 from = (now - length) / step * step;
    return (QosCtlSlices){from, step, (guint)((now - from) / step + 1)};
}

typedef struct {
    const char *shown; /* NULL: the jobs that are not told apart */
    double size;
    double *value[SERIES_COUNT]; /* by slice; NULL: zero throughout */
} Series;

static void free_series(gpointer data)
{
    Series *series = data;
    for (guint i = 0; i < SERIES_COUNT; i++)
        g_free(series->value[i]);
    g_free(series);
}

static void add(Series *series, guint which, guint slice, double value, guint count)
{
    if (value > 0 && !series->value[which])
        series->value[which] = g_new0(double, count);
    if (value > 0)
        series->value[which][slice] += value;
}

static void add_row(Series *series, const Row *row, const QosCtlSlices *slices)
{
    gint64 slice = (row->begin - slices->from) / slices->step;
    if (row->begin < slices->from || slice >= slices->count)
        return;
    for (guint i = 0; i < SERIES_COUNT; i++)
        add(series, i, (guint)slice, row->value[i], slices->count);
    series->size += row->value[OPERATIONS] +
                    (row->value[READ_BYTES] + row->value[WRITE_BYTES]) / QOS_HISTORY_BYTES_UNIT;
}

static int larger_first(gconstpointer a, gconstpointer b)
{
    const Series *first = *(const Series *const *)a, *second = *(const Series *const *)b;
    if (!first->shown != !second->shown)
        return first->shown ? -1 : 1;
    return (first->size < second->size) - (first->size > second->size);
}

/* Jobs beyond the largest ones are added to the jobs that the mount did not tell apart. */
static void fold(GPtrArray *all, guint count)
{
    if (all->len <= QOS_CTL_HISTORY_JOBS)
        return;
    Series *others = all->pdata[QOS_CTL_HISTORY_JOBS];
    others->shown = NULL;
    for (guint i = QOS_CTL_HISTORY_JOBS + 1; i < all->len; i++) {
        const Series *series = all->pdata[i];
        for (guint j = 0; j < SERIES_COUNT; j++)
            for (guint k = 0; series->value[j] && k < count; k++)
                add(others, j, k, series->value[j][k], count);
    }
    g_ptr_array_set_size(all, QOS_CTL_HISTORY_JOBS + 1);
}

static GPtrArray *collect(const QosCtlHistory *history, const QosCtlSlices *slices)
{
    GPtrArray *all = g_ptr_array_new_with_free_func(free_series);
    g_autoptr(GHashTable) by_job = g_hash_table_new(NULL, NULL);
    for (guint i = 0; i < history->rows->len; i++) {
        const Row *row = row_at(history, i);
        Series *series = g_hash_table_lookup(by_job, row->job);
        if (!series) {
            series = g_new0(Series, 1);
            series->shown = *row->job->id ? row->job->shown : NULL;
            g_hash_table_insert(by_job, (gpointer)row->job, series);
            g_ptr_array_add(all, series);
        }
        add_row(series, row, slices);
    }
    g_ptr_array_sort(all, larger_first);
    fold(all, slices->count);
    return all;
}

/* --- JSON --- */

void qos_ctl_history_append_string(GString *json, const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    g_string_append_c(json, '"');
    for (const char *at = valid; *at; at++) {
        if ((guchar)*at < ' ' || strchr("\"\\<>&\x7f", *at))
            g_string_append_printf(json, "\\u%04x", (guint)*at);
        else
            g_string_append_c(json, *at);
    }
    g_string_append_c(json, '"');
}

/* FALSE where all is zero. */
static gboolean find_range(const Series *series, guint count, guint *ret_first, guint *ret_last)
{
    gboolean found = FALSE;
    for (guint i = 0; i < count; i++) {
        gboolean moved = FALSE;
        for (guint j = 0; j < SERIES_COUNT && !moved; j++)
            moved = series->value[j] && series->value[j][i] > 0;
        if (moved && !found)
            *ret_first = i;
        if (moved)
            *ret_last = i;
        found = found || moved;
    }
    return found;
}

static void append_series(GString *json, const Series *series, guint first, guint last)
{
    g_string_append(json, "{\"id\":");
    if (series->shown)
        qos_ctl_history_append_string(json, series->shown);
    else
        g_string_append(json, "null");
    g_string_append_printf(json, ",\"start\":%u", first);
    for (guint i = 0; i < SERIES_COUNT; i++) {
        if (!series->value[i])
            continue;
        g_string_append_printf(json, ",\"%s\":[", columns[SERIES_FIRST + i]);
        for (guint j = first; j <= last; j++)
            g_string_append_printf(json, "%s%.12g", j > first ? "," : "", series->value[i][j]);
        g_string_append_c(json, ']');
    }
    g_string_append_c(json, '}');
}

void qos_ctl_history_append_jobs(const QosCtlHistory *history, const QosCtlSlices *slices,
                                 GString *json)
{
    g_autoptr(GPtrArray) all = collect(history, slices);
    const char *separator = "[";
    for (guint i = 0; i < all->len; i++) {
        const Series *series = all->pdata[i];
        guint first = 0, last = 0;
        if (!find_range(series, slices->count, &first, &last))
            continue;
        g_string_append_printf(json, "%s\n", separator);
        append_series(json, series, first, last);
        separator = ",";
    }
    g_string_append(json, *separator == '[' ? "[]" : "]");
}
