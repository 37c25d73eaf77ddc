/*
 * Reads history and job_stats (sim/replay.h). The numbers read are held to the bounds that a
 * [client] of a scenario has, so that no file can make a run that never ends.
 */
#include "sim/replay.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "fs/jobs.h"
#include "fs/rule.h"

#define HISTORY_HEAD "time,seconds,job,operations,read_bytes,write_bytes"
#define STATS_HEAD   "job_stats:"
#define REST         "-" /* of the jobs beyond those that the history names */

#define TIME_MAX     1e11         /* s since 1970 */
#define SPAN_MAX     3.2e8        /* s: ten years */
#define COUNT_MAX    1e15         /* operations */
#define BYTES_MAX    1e18         /* sums of bytes */
#define RATE_MAX     1e6          /* operations a second */
#define SIZE_MAX     1073741824.0 /* bytes of an operation */
#define SECONDS_MIN  0.001        /* what a job did at once takes so long */

/* Operations of a job in a slice of time, which begins at `begin` s. */
typedef struct {
    char *job;
    double begin;
    double seconds;
    double operations;
    double bytes;
    int opcode; /* QosOpcode, -1 = any */
} Slice;

static void slice_clear(Slice *slice)
{
    g_free(slice->job);
}

static gboolean refuse(GError **error, guint line, const char *problem)
{
    qos_set_error(error, EINVAL, "line %u: %s", line + 1, problem);
    return FALSE;
}

/* Takes the slice's job. Slices without operations are none. */
static gboolean add_slice(GArray *slices, Slice slice, guint line, GError **error)
{
    g_autofree char *id = qos_replay_job_id(slice.job);
    const char *problem = NULL;

    slice.seconds = MAX(slice.seconds, SECONDS_MIN);
    if (slice.operations < 1) {
        slice_clear(&slice);
        return TRUE;
    }
    if (id == NULL)
        problem = "a job's id is 1 to 63 of letters, digits and .@-_:/, and \\xHH for other bytes";
    else if (slice.operations > RATE_MAX * slice.seconds)
        problem = "more than 1000000 operations a second";
    else if (slice.bytes > SIZE_MAX * slice.operations)
        problem = "more than 1 GiB in an operation";
    if (problem == NULL) {
        g_array_append_val(slices, slice);
        return TRUE;
    }
    slice_clear(&slice);
    return refuse(error, line, problem);
}

/* --- ids --- */

/* The bytes of the escape at *at, after the backslash, which is moved past it. */
static gboolean read_escape(const char **at, GString *id)
{
    const guint digits = **at == 'x' ? 2 : **at == 'u' ? 4 : **at == 'U' ? 8 : 0;
    gunichar value = 0;

    for (guint i = 1; i <= digits; i++) {
        if (!g_ascii_isxdigit((*at)[i]))
            return FALSE;
        value = value << 4 | (gunichar)g_ascii_xdigit_value((*at)[i]);
    }
    if (value == 0 || (digits > 2 && !g_unichar_validate(value)))
        return FALSE;
    if (digits == 2)
        g_string_append_c(id, (char)value);
    else
        g_string_append_unichar(id, value);
    *at += 1 + digits;
    return TRUE;
}

char *qos_replay_job_id(const char *name)
{
    g_autoptr(GString) id = g_string_new(NULL);

    while (*name != '\0') {
        if (g_ascii_isalnum(*name) || strchr(".@-_:/", *name) != NULL)
            g_string_append_c(id, *name++);
        else if (*name++ != '\\' || !read_escape(&name, id))
            return NULL;
    }
    if (id->len == 0 || id->len > QOS_JOB_ID_MAX)
        return NULL;
    return g_string_free(g_steal_pointer(&id), FALSE);
}

/* --- history --- */

static gboolean read_number(const char *text, double most, double *ret_number)
{
    char *end;

    *ret_number = g_ascii_strtod(text, &end);
    return end != text && *end == '\0' && *ret_number >= 0 && *ret_number <= most;
}

static gboolean read_history_line(const char *line, guint number, GArray *slices, GError **error)
{
    g_auto(GStrv) fields = g_strsplit(line, ",", -1);
    Slice slice = {.opcode = -1};
    double read, written;

    if (g_strv_length(fields) < 6)
        return refuse(error, number, "it has less than six fields");
    if (!read_number(fields[0], TIME_MAX, &slice.begin) ||
        !read_number(fields[1], SPAN_MAX, &slice.seconds) ||
        !read_number(fields[3], COUNT_MAX, &slice.operations) ||
        !read_number(fields[4], BYTES_MAX, &read) || !read_number(fields[5], BYTES_MAX, &written))
        return refuse(error, number, "a field is no number, or out of range");
    if (slice.seconds <= 0)
        return refuse(error, number, "the slice has no length");
    slice.job = g_strdup(*fields[2] != '\0' ? fields[2] : REST);
    slice.bytes = read + written;
    return add_slice(slices, slice, number, error);
}

static gboolean read_history(char **lines, GArray *slices, GError **error)
{
    for (guint i = 1; lines[i] != NULL; i++) {
        if (*lines[i] != '\0' && !read_history_line(lines[i], i, slices, error))
            return FALSE;
    }
    return TRUE;
}

/* --- job_stats --- */

/* A job of it, as far as it was read. */
typedef struct {
    char *job;      /* NULL before the first */
    guint line;     /* where it begins */
    double begin;   /* -1 = was not told; */
    double seconds; /* likewise */
    double samples[QOS_OP_COUNT];
    double read_bytes;
    double write_bytes;
} Stats;

/* The number after `key` in the line; FALSE: there is none, or no such. */
static gboolean find_number(const char *line, const char *key, double most, double *ret_number)
{
    const char *place = strstr(line, key);
    char *end;

    if (place == NULL)
        return FALSE;
    place += strlen(key);
    *ret_number = g_ascii_strtod(place, &end);
    return end != place && *ret_number >= 0 && *ret_number <= most;
}

/* A line of a job's: "read:  { samples: 13, unit: usecs, ... }". */
static gboolean read_counter(const char *line, guint number, Stats *stats, GError **error)
{
    const gsize length = strcspn(line, ":");
    const QosOpcodeSet opcode = qos_opcode_set_from_name(line, length);
    double *bytes = g_str_has_prefix(line, "read_bytes:")    ? &stats->read_bytes
                    : g_str_has_prefix(line, "write_bytes:") ? &stats->write_bytes
                                                             : NULL;

    if (strstr(line, "{ samples:") == NULL)
        return TRUE; /* snapshot_time: */
    if (bytes != NULL)
        return find_number(line, "sum:", BYTES_MAX, bytes) ||
               refuse(error, number, "sum: is no number, or out of range");
    if (opcode == 0 || (opcode & (opcode - 1)) != 0)
        return refuse(error, number, "it counts no operation of qosfs");
    return find_number(line, "samples:", COUNT_MAX, &stats->samples[g_bit_nth_lsf(opcode, -1)]) ||
           refuse(error, number, "samples: is no number, or out of range");
}

static char *read_job_id(const char *text)
{
    g_autofree char *id = g_strstrip(g_strdup(text));
    const gsize length = strlen(id);

    if (length >= 2 && id[0] == '"' && id[length - 1] == '"')
        return g_strndup(id + 1, length - 2);
    return g_steal_pointer(&id);
}

/* The bytes of an operation of that kind, on average: what was copied counts as read and written.
 */
static double mean_size(const Stats *stats, guint opcode)
{
    const double copies = stats->samples[QOS_OP_COPY];

    if (opcode == QOS_OP_WRITE)
        return stats->write_bytes / (stats->samples[QOS_OP_WRITE] + copies);
    if (opcode == QOS_OP_READ || opcode == QOS_OP_COPY)
        return stats->read_bytes / (stats->samples[QOS_OP_READ] + copies);
    return 0;
}

/* All of the job was read. Takes its name. A job that did nothing, as after clearing it, is left
 * out. */
static gboolean end_job(Stats *stats, GArray *slices, GError **error)
{
    g_autofree char *job = g_steal_pointer(&stats->job);

    for (guint opcode = 0; opcode < QOS_OP_COUNT && job != NULL; opcode++) {
        const double samples = stats->samples[opcode];

        if (samples <= 0)
            continue;
        if (stats->begin < 0 || stats->seconds < 0)
            return refuse(error, stats->line, "the job has no start_time, or no elapsed_time");
        const Slice slice = {.job = g_strdup(job),
                             .begin = stats->begin,
                             .seconds = stats->seconds,
                             .operations = samples,
                             .bytes = samples * mean_size(stats, opcode),
                             .opcode = (int)opcode};
        if (!add_slice(slices, slice, stats->line, error))
            return FALSE;
    }
    return TRUE;
}

static gboolean read_stats_line(const char *line, guint number, Stats *stats, GArray *slices,
                                GError **error)
{
    if (g_str_has_prefix(line, "- job_id:")) {
        if (!end_job(stats, slices, error))
            return FALSE;
        *stats = (Stats){.job = read_job_id(line + strlen("- job_id:")),
                         .line = number,
                         .begin = -1,
                         .seconds = -1};
    }
    if (g_str_has_prefix(line, "start_time:"))
        return find_number(line, "start_time:", TIME_MAX, &stats->begin) ||
               refuse(error, number, "start_time: is no number, or out of range");
    if (g_str_has_prefix(line, "elapsed_time:"))
        return find_number(line, "elapsed_time:", SPAN_MAX, &stats->seconds) ||
               refuse(error, number, "elapsed_time: is no number, or out of range");
    return read_counter(line, number, stats, error);
}

static gboolean read_stats(char **lines, GArray *slices, GError **error)
{
    Stats stats = {.job = NULL};
    gboolean is_good = TRUE;

    for (guint i = 1; lines[i] != NULL && is_good; i++)
        is_good = read_stats_line(g_strchug(lines[i]), i, &stats, slices, error);
    is_good = is_good && end_job(&stats, slices, error);
    g_free(stats.job);
    return is_good;
}

/* --- the load --- */

static QosTime time_of(double seconds)
{
    return (QosTime)(seconds * (double)QOS_SECOND);
}

static void add_client(QosScenario *scenario, const Slice *slice, double origin)
{
    QosScenarioClient *client = qos_scenario_add_client(scenario, slice->job);

    client->job = g_strdup(slice->job);
    client->start = time_of(slice->begin - origin);
    client->stop = client->start + time_of(slice->seconds);
    client->rate = slice->operations / slice->seconds;
    client->requests = (guint64)llrint(slice->operations);
    client->is_counted = TRUE;
    client->size = (gint64)llrint(slice->bytes / slice->operations);
    client->opcode = slice->opcode;
    if (!scenario->has_duration)
        scenario->duration = MAX(scenario->duration, client->stop);
}

static gboolean add_clients(QosScenario *scenario, const GArray *slices, GError **error)
{
    double origin = INFINITY, end = 0;

    for (guint i = 0; i < slices->len; i++) {
        const Slice *slice = &g_array_index(slices, Slice, i);

        origin = MIN(origin, slice->begin);
        end = MAX(end, slice->begin + slice->seconds);
    }
    if (slices->len == 0 || end - origin > SPAN_MAX) {
        qos_set_error(error, EINVAL,
                      slices->len == 0 ? "no job did an operation in it"
                                       : "it is of more than ten years");
        return FALSE;
    }
    if (!scenario->has_duration)
        scenario->duration = QOS_SECOND;
    for (guint i = 0; i < slices->len; i++)
        add_client(scenario, &g_array_index(slices, Slice, i), origin);
    return TRUE;
}

/* And in *ret_unknown, what the file does not tell of a request. */
static gboolean read_slices(char **lines, GArray *slices, guint *ret_unknown, GError **error)
{
    for (guint i = 0; lines[i] != NULL; i++)
        g_strchomp(lines[i]); /* also of CR */
    *ret_unknown = QOS_FIELD_UID | QOS_FIELD_GID | QOS_FIELD_HOST;
    if (lines[0] != NULL && g_str_has_prefix(lines[0], STATS_HEAD))
        return read_stats(lines, slices, error);
    *ret_unknown |= QOS_FIELD_OPCODE;
    if (lines[0] != NULL && g_str_has_prefix(lines[0], HISTORY_HEAD))
        return read_history(lines, slices, error);
    qos_set_error(error, EINVAL,
                  "it is neither a mount's .qosfs/history, which begins with \"%s\", nor its "
                  ".qosfs/job_stats, which begins with \"%s\"",
                  HISTORY_HEAD, STATS_HEAD);
    return FALSE;
}

gboolean qos_replay_load(const char *path, QosScenario *scenario, GError **error)
{
    g_autoptr(GArray) slices = g_array_new(FALSE, FALSE, sizeof(Slice));
    g_autofree char *text = NULL;

    if (!g_file_get_contents(path, &text, NULL, error))
        return FALSE;
    g_array_set_clear_func(slices, (GDestroyNotify)(void (*)(void))slice_clear);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    if (read_slices(lines, slices, &scenario->unknown, error) &&
        add_clients(scenario, slices, error))
        return TRUE;
    g_prefix_error(error, "[replay] %s: ", path);
    return FALSE;
}
