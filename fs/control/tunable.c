/*
 * The table of tunables. A new one needs a line in the table, an entry in QosTunable, and a case in
 * qos_tunables_apply().
 *
 * A capacity in bytes a second is converted with requests of CAPACITY_REQUEST bytes, whatever these
 * cost by the other tunables. So the capacity keeps its meaning for jobs that stream, and is
 * checked last.
 */
#include "fs/control/tunable.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

typedef struct {
    const char *name;
    const char *initial;
    const char *help;
    char *(*check)(const QosTunables *tunables, QosTunable tunable, const char *text,
                   GError **error);
    gint64 minimum; /* of numbers */
    gint64 maximum;
} Description;

static char *check_number(const QosTunables *tunables, QosTunable tunable, const char *text,
                          GError **error);
static char *check_policy(const QosTunables *tunables, QosTunable tunable, const char *text,
                          GError **error);
static char *check_naming(const QosTunables *tunables, QosTunable tunable, const char *text,
                          GError **error);
static char *check_adapt(const QosTunables *tunables, QosTunable tunable, const char *text,
                         GError **error);

#define CAPACITY_AUTO      "auto"
#define CAPACITY_REQUEST   (G_GINT64_CONSTANT(1) << 20)
#define CAPACITY_BYTES_MAX (QOS_ADAPT_CAPACITY_MAX * CAPACITY_REQUEST)

#define SLOTS_MAX          65536
#define PARKED_MIB_MAX     (1 << 20)
#define HISTORY_DAYS_MAX   90
#define YEAR               (365 * 86400)

static const Description descriptions[QOS_TUNABLE_COUNT] = {
    {"nrs_policies", "tbf", "order: fifo, tbf (by rules), jrr or grr", check_policy, 0, 0},
    {"slots", "64", "requests that may be in the store at a time", check_number, 1, SLOTS_MAX},
    {"jobid_var", QOS_JOBID_VAR_DEFAULT, "where a process's job is found", check_naming, 0, 0},
    {"jobid_name", QOS_JOBID_NAME_DEFAULT, "how a job is named", check_naming, 0, 0},
    {"job_cleanup_interval", "600", "seconds until an idle job is forgotten, 0: never",
     check_number, 0, YEAR},
    {"metrics_top_jobs", "50", "jobs that the metrics tell apart, then a sum", check_number, 0,
     10000},
    {"parked_mib", "512", "MiB for requests that wait, with their data", check_number, 1,
     PARKED_MIB_MAX},
    {"history_days", "7", "days that the jobs' history is kept, 0: none", check_number, 0,
     HISTORY_DAYS_MAX},
    {"adapt", "off", "share the store by weight: off, fair or paper", check_adapt, 0, 0},
    {"capacity", "auto", "what the store can: op/s, 200MB/s or auto", check_adapt, 0, 0},
    {"adapt_period", "100ms", "how often adapt allocates anew, 5 ms to 10 s", check_adapt, 0, 0},
    {"adapt_bytes", "64K", "bytes that cost as much as an operation, 0: none", check_adapt, 0, 0},
    {"adapt_metadata", "1", "what a metadata operation costs, data's being 1", check_adapt, 0, 0},
};

const char *const qos_tunable_names[QOS_TUNABLE_COUNT + 1] = {
    "nrs_policies",     "slots",       "jobid_var",      "jobid_name", "job_cleanup_interval",
    "metrics_top_jobs", "parked_mib",  "history_days",   "adapt",      "capacity",
    "adapt_period",     "adapt_bytes", "adapt_metadata",
};

gboolean qos_tunable_find(const char *name, QosTunable *ret_tunable)
{
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++) {
        if (strcmp(name, qos_tunable_names[i]) == 0) {
            *ret_tunable = i;
            return TRUE;
        }
    }
    return FALSE;
}

const char *qos_tunable_help(QosTunable tunable)
{
    return descriptions[tunable].help;
}

void qos_tunables_init(QosTunables *tunables)
{
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        tunables->text[i] = g_strdup(descriptions[i].initial);
}

void qos_tunables_clear(QosTunables *tunables)
{
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        g_clear_pointer(&tunables->text[i], g_free);
}

void qos_tunables_copy(QosTunables *copy, const QosTunables *tunables)
{
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        copy->text[i] = g_strdup(tunables->text[i]);
}

/* --- checking --- */

static char *check_number(G_GNUC_UNUSED const QosTunables *tunables, QosTunable tunable,
                          const char *text, GError **error)
{
    const Description *description = &descriptions[tunable];
    g_autoptr(GError) reason = NULL;
    gint64 value;

    if (qos_parse_integer(description->name, text, description->minimum, description->maximum,
                          &value, &reason))
        return g_strdup_printf("%" G_GINT64_FORMAT, value);
    /* of what, in which unit: "10m" and "1G" are right for others */
    qos_set_error(error, reason->code, "%s (%s)", reason->message, description->help);
    return NULL;
}

/*
 * Lustre's words are understood: `reg` for the requests that rules apply to, which here are all
 * that may wait, and `jobid`, the class that a rule has without per=. Its other types choose for
 * all rules what is chosen here rule by rule.
 */
static char *check_policy(G_GNUC_UNUSED const QosTunables *tunables,
                          G_GNUC_UNUSED QosTunable tunable, const char *text, GError **error)
{
    g_auto(GStrv) words = g_strsplit_set(text, " \t", -1);
    const QosPolicyClass *policy = NULL;

    for (guint i = 0; words[i]; i++) {
        if (!*words[i] || strcmp(words[i], "reg") == 0)
            continue;
        if (!policy) {
            policy = qos_policy_by_name(words[i]);
            if (!policy) {
                qos_set_error(error, EINVAL,
                              "nrs_policies: \"%s\" is no policy: use fifo, tbf, jrr or grr",
                              words[i]);
                return NULL;
            }
        } else if (strcmp(policy->name, "tbf") != 0 || strcmp(words[i], "jobid") != 0) {
            qos_set_error(error, EINVAL,
                          "nrs_policies: \"%s\" after %s is not understood: what forms a class "
                          "is chosen for each rule, by per=",
                          words[i], policy->name);
            return NULL;
        }
    }
    if (!policy)
        qos_set_error(error, EINVAL, "nrs_policies: no policy given: use fifo, tbf, jrr or grr");
    return policy ? g_strdup(policy->name) : NULL;
}

/* The naming that the set describes. */
static QosJobNaming *naming_of(const char *jobid_var, const char *jobid_name, GError **error)
{
    return qos_job_naming_new(jobid_var, jobid_name, g_get_host_name(), error);
}

static char *check_naming(const QosTunables *tunables, QosTunable tunable, const char *text,
                          GError **error)
{
    gboolean is_var = tunable == QOS_TUNABLE_JOBID_VAR;
    g_autoptr(QosJobNaming) naming =
        naming_of(is_var ? text : tunables->text[QOS_TUNABLE_JOBID_VAR],
                  is_var ? tunables->text[QOS_TUNABLE_JOBID_NAME] : text, error);

    return naming ? g_strdup(text) : NULL;
}

char *qos_tunables_check(const QosTunables *tunables, QosTunable tunable, const char *text,
                         GError **error)
{
    const Description *description = &descriptions[tunable];

    if (strcmp(text, "default") == 0)
        text = description->initial;
    return description->check(tunables, tunable, text, error);
}

gboolean qos_tunables_check_given(GHashTable *given, GError **error)
{
    QosTunables usual;
    gboolean good = TRUE;

    qos_tunables_init(&usual);
    for (guint i = 0; i < QOS_TUNABLE_COUNT && good; i++) {
        const char *text = g_hash_table_lookup(given, qos_tunable_names[i]);
        g_autofree char *checked = text ? qos_tunables_check(&usual, i, text, error) : NULL;

        good = !text || checked;
    }
    qos_tunables_clear(&usual);
    if (!good)
        g_prefix_error(error, "option ");
    return good;
}

/* --- putting in force --- */

void qos_tunables_take(QosTunables *tunables, QosTunable tunable, char *text)
{
    g_free(tunables->text[tunable]);
    tunables->text[tunable] = text;
}

gint64 qos_tunables_number(const QosTunables *tunables, QosTunable tunable)
{
    return g_ascii_strtoll(tunables->text[tunable], NULL, 10);
}

static void set_naming(const QosTunables *tunables, QosCallers *callers)
{
    g_autoptr(QosJobNaming) naming = naming_of(tunables->text[QOS_TUNABLE_JOBID_VAR],
                                               tunables->text[QOS_TUNABLE_JOBID_NAME], NULL);

    qos_callers_set_naming(callers, naming);
}

void qos_tunables_apply(const QosTunables *tunables, QosTunable tunable, QosFs *fs)
{
    const gint64 number = qos_tunables_number(tunables, tunable);
    const QosAdaptConfig config = qos_tunables_adapt(tunables);
    QosSched *sched = qos_gate_lock(fs->gate);

    switch (tunable) {
    case QOS_TUNABLE_NRS_POLICIES:
        qos_sched_set_policy(sched, qos_policy_by_name(tunables->text[tunable]), qos_clock_now());
        break;
    case QOS_TUNABLE_SLOTS:
        qos_sched_set_slots(sched, (guint)number, qos_clock_now());
        break;
    case QOS_TUNABLE_JOB_CLEANUP_INTERVAL:
        qos_sched_jobs(sched)->cleanup_interval = number * QOS_SECOND;
        break;
    case QOS_TUNABLE_PARKED_MIB:
        qos_sched_set_parked_max(sched, (guint64)number << 20);
        break;
    case QOS_TUNABLE_ADAPT:
    case QOS_TUNABLE_CAPACITY:
    case QOS_TUNABLE_ADAPT_PERIOD:
    case QOS_TUNABLE_ADAPT_BYTES:
    case QOS_TUNABLE_ADAPT_METADATA:
        qos_sched_set_adapt(sched, &config, qos_clock_now());
        break;
    case QOS_TUNABLE_JOBID_VAR: /* set below */
    case QOS_TUNABLE_JOBID_NAME:
    case QOS_TUNABLE_METRICS_TOP_JOBS: /* the report reads it */
    case QOS_TUNABLE_HISTORY_DAYS:     /* so does the saver */
    case QOS_TUNABLE_COUNT:
        break;
    }
    qos_gate_unlock_and_wake(fs->gate);
    if (tunable == QOS_TUNABLE_JOBID_VAR || tunable == QOS_TUNABLE_JOBID_NAME)
        set_naming(tunables, fs->callers);
}

/* --- the adaptive sharing --- */

static gboolean parse_mode(const char *text, QosAdaptMode *ret_mode, GError **error)
{
    for (guint i = 0; i < QOS_ADAPT_MODES; i++) {
        if (strcmp(text, qos_adapt_mode_names[i]) == 0) {
            *ret_mode = (QosAdaptMode)i;
            return TRUE;
        }
    }
    qos_set_error(error, EINVAL, "\"%s\" is no way of sharing: use off, fair or paper", text);
    return FALSE;
}

/* A decimal number of operations: "0.5"; *ret_cost in units, never 0. */
static gboolean parse_cost(const char *text, gint64 *ret_cost, GError **error)
{
    char *end;
    double cost = g_ascii_strtod(text, &end);

    /* Nor "0x1", "inf" or "1e3". */
    if (end == text || *end != '\0' || text[strspn(text, "0123456789.")] != '\0') {
        qos_set_error(error, EINVAL, "\"%s\" is no number of operations, such as 0.5", text);
        return FALSE;
    }
    cost = CLAMP(cost * (double)QOS_COST_UNIT, 1, 1e15);
    *ret_cost = (gint64)cost;
    return TRUE;
}

/* "200MB/s": without "/s" nobody could tell 10K operations from 10 KiB. */
static gboolean parse_byte_rate(const char *text, gint64 *ret_rate, GError **error)
{
    g_autofree char *size = g_strndup(text, strlen(text) - strlen("/s"));

    if (!qos_parse_bytes(size, ret_rate, error))
        return FALSE;
    if (*ret_rate >= CAPACITY_REQUEST && *ret_rate <= CAPACITY_BYTES_MAX)
        return TRUE;
    qos_set_error(error, ERANGE, "%s is not between 1MB/s and 95TB/s", text);
    return FALSE;
}

/* "5000", or "5000op/s" and "5000 op/s", as reports have it. */
static gboolean parse_operation_rate(const char *text, gint64 *ret_rate, GError **error)
{
    const char *rest = text + strspn(text, "-0123456789");
    const char *unit = rest + (*rest == ' ');

    if (rest > text && (*rest == '\0' || strcmp(unit, "op/s") == 0)) {
        g_autofree char *number = g_strndup(text, (gsize)(rest - text));

        return qos_parse_integer("op/s", number, 1, QOS_ADAPT_CAPACITY_MAX, ret_rate, error);
    }
    qos_set_error(error, EINVAL, "\"%s\" is neither op/s (5000) nor bytes/s (200MB/s) nor auto",
                  text);
    return FALSE;
}

/* By the costs that `config` has. */
static gboolean parse_capacity(const char *text, QosAdaptConfig *config, GError **error)
{
    gint64 rate;

    if (g_str_has_suffix(text, "/s") && !g_str_has_suffix(text, "op/s")) {
        if (!parse_byte_rate(text, &rate, error))
            return FALSE;
        gint64 cost = qos_adapt_config_cost(config, QOS_OP_WRITE, CAPACITY_REQUEST);
        __int128 capacity = (__int128)rate * cost / CAPACITY_REQUEST / QOS_COST_UNIT;
        config->capacity = (gint64)MIN(capacity, QOS_ADAPT_CAPACITY_MAX);
        return TRUE;
    }
    config->capacity = 0;
    return strcmp(text, CAPACITY_AUTO) == 0 || parse_operation_rate(text, &config->capacity, error);
}

static gboolean set_part(QosAdaptConfig *config, QosTunable tunable, const char *text,
                         GError **error)
{
    switch (tunable) {
    case QOS_TUNABLE_ADAPT:
        return parse_mode(text, &config->mode, error);
    case QOS_TUNABLE_ADAPT_PERIOD:
        return qos_parse_duration(text, &config->period, error);
    case QOS_TUNABLE_ADAPT_BYTES:
        return qos_parse_bytes(text, &config->bytes_per_cost, error);
    case QOS_TUNABLE_ADAPT_METADATA:
        return parse_cost(text, &config->metadata_cost, error);
    case QOS_TUNABLE_CAPACITY:
        return parse_capacity(text, config, error);
    default:
        g_assert_not_reached();
    }
}

QosAdaptConfig qos_tunables_adapt(const QosTunables *tunables)
{
    static const QosTunable parts[] = {
        QOS_TUNABLE_ADAPT,          QOS_TUNABLE_ADAPT_PERIOD, QOS_TUNABLE_ADAPT_BYTES,
        QOS_TUNABLE_ADAPT_METADATA, QOS_TUNABLE_CAPACITY,
    };
    QosAdaptConfig config = {0};

    for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
        set_part(&config, parts[i], tunables->text[parts[i]], NULL);
    return config;
}

static char *canonical(const QosAdaptConfig *config, QosTunable tunable, const char *text)
{
    char number[G_ASCII_DTOSTR_BUF_SIZE];
    gint64 rate;

    if (tunable == QOS_TUNABLE_ADAPT_PERIOD)
        return g_strdup_printf("%" G_GINT64_FORMAT "ms", config->period / QOS_MILLISECOND);
    if (tunable == QOS_TUNABLE_ADAPT_BYTES)
        return qos_format_bytes_exact(config->bytes_per_cost);
    if (tunable == QOS_TUNABLE_ADAPT_METADATA)
        return g_strdup(g_ascii_formatd(number, sizeof(number), "%.6g",
                                        (double)config->metadata_cost / (double)QOS_COST_UNIT));
    if (tunable == QOS_TUNABLE_CAPACITY && g_str_has_suffix(text, "/s") &&
        parse_byte_rate(text, &rate, NULL)) {
        g_autofree char *size = qos_format_bytes_exact(rate);
        return g_strconcat(size, "B/s", NULL);
    }
    if (tunable == QOS_TUNABLE_CAPACITY && config->capacity > 0)
        return g_strdup_printf("%" G_GINT64_FORMAT, config->capacity);
    return g_strdup(text);
}

static char *check_adapt(const QosTunables *tunables, QosTunable tunable, const char *text,
                         GError **error)
{
    QosAdaptConfig config = qos_tunables_adapt(tunables);

    if (set_part(&config, tunable, text, error) && qos_adapt_config_check(&config, error))
        return canonical(&config, tunable, text);
    g_prefix_error(error, "%s: ", qos_tunable_names[tunable]);
    return NULL;
}
