/*
 * Reads scenarios. Each group is a table of keys with their bounds and the place of the value, so
 * an unknown key is an error and not a silent default. The bounds keep times and their products far
 * from overflow.
 */
#include "sim/scenario.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/near.h"
#include "base/units.h"
#include "fs/adapt.h"
#include "sim/replay.h"
#include "sim/rule_changes.h"

#define MINUTE          (60 * QOS_SECOND)
#define DAY             (24 * 60 * MINUTE)
#define WEIGHT_MAX      1000000
#define PROCESSES_MAX   1000000   /* of a client, and of all */
#define BINS_MAX        100000000 /* of all jobs */
#define NAME_MAX_LENGTH 40
#define NAME_LETTERS    G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "-_."
#define LIST_MAX        1000 /* steps or periods */
/* Where no bin is given: */
#define BIN          (100 * QOS_MILLISECOND) /* or longer, so that there are */
#define BINS         10000                   /* at most, and */
#define BINS_OF_JOBS 2000000                 /* of all jobs */

typedef enum {
    TEXT,
    DURATION,
    BYTES,
    COUNT,
    COUNT64,
    REAL,
    PART,
    CAPACITY,
    STEPS,
    PERIODS,
    SIZES
} Kind;

typedef struct {
    const char *name;
    Kind kind;
    void *place; /* char *, QosTime, gint64, guint, guint64, double, double, GArray * */
    double minimum;
    double maximum;
} Key;

#define TEXT_KEY(name, place)                                                                      \
    {                                                                                              \
        name, TEXT, place, 0, 0                                                                    \
    }
#define DURATION_KEY(name, place, min, max)                                                        \
    {                                                                                              \
        name, DURATION, place, (double)(min), (double)(max)                                        \
    }
#define COUNT_KEY(name, place, min, max)                                                           \
    {                                                                                              \
        name, COUNT, place, min, max                                                               \
    }
#define REAL_KEY(name, place, min, max)                                                            \
    {                                                                                              \
        name, REAL, place, min, max                                                                \
    }
#define END_OF_KEYS                                                                                \
    {                                                                                              \
        NULL, TEXT, NULL, 0, 0                                                                     \
    }

/* --- values --- */

static gboolean check_bounds(const Key *key, double value, double unit, GError **error)
{
    if (value >= key->minimum && value <= key->maximum)
        return TRUE;
    qos_set_error(error, ERANGE, "out of range: %g to %g%s", key->minimum / unit,
                  key->maximum / unit, unit > 1 ? " s" : "");
    return FALSE;
}

static gboolean parse_real(const char *text, double *ret_value, GError **error)
{
    char *end;

    *ret_value = g_ascii_strtod(text, &end);
    if (end != text && *end == '\0' && *ret_value >= 0)
        return TRUE;
    qos_set_error(error, EINVAL, "\"%s\" is no number", text);
    return FALSE;
}

/* 0.2, or 20%. */
static gboolean parse_part(const char *text, double *ret_value, GError **error)
{
    const gsize length = strlen(text);
    const gboolean is_percent = length > 0 && text[length - 1] == '%';
    g_autofree char *number = g_strndup(text, length - is_percent);

    if (!parse_real(number, ret_value, error))
        return FALSE;
    if (is_percent)
        *ret_value /= 100;
    return TRUE;
}

/* A number of operations a second, or "auto". */
static gboolean parse_capacity(const Key *key, const char *text, GError **error)
{
    double value = 0;

    if (strcmp(text, "auto") != 0 &&
        !(parse_real(text, &value, error) && check_bounds(key, value, 1, error)))
        return FALSE;
    *(double *)key->place = value;
    return TRUE;
}

/* "TIME:CAPACITY", later than the last of `steps`. */
static gboolean parse_step(const Key *key, const char *word, GArray *steps, GError **error)
{
    g_auto(GStrv) parts = g_strsplit(word, ":", 2);
    QosTime last = steps->len > 0 ? g_array_index(steps, QosStep, steps->len - 1).time : 0;
    QosStep step;

    if (parts[1] == NULL) {
        qos_set_error(error, EINVAL, "\"%s\" is no TIME:CAPACITY, such as 10s:500", word);
        return FALSE;
    }
    if (!qos_parse_duration(parts[0], &step.time, error) ||
        !parse_real(parts[1], &step.capacity, error) || !check_bounds(key, step.capacity, 1, error))
        return FALSE;
    if (step.time <= last) {
        qos_set_error(error, EINVAL, "\"%s\" is not after the step before", word);
        return FALSE;
    }
    g_array_append_val(steps, step);
    return TRUE;
}

static gboolean parse_period(const Key *key, const char *word, GArray *periods, GError **error)
{
    QosTime period;

    if (!qos_parse_duration(word, &period, error) ||
        !check_bounds(key, (double)period, (double)QOS_SECOND, error))
        return FALSE;
    g_array_append_val(periods, period);
    return TRUE;
}

/* "SIZE:WEIGHT", or a SIZE alone. */
static gboolean parse_size(const Key *key, const char *word, GArray *sizes, GError **error)
{
    g_auto(GStrv) parts = g_strsplit(word, ":", 2);
    QosSizePart part = {.weight = 1};

    if (!qos_parse_bytes(parts[0], &part.size, error) ||
        !check_bounds(key, (double)part.size, 1, error) ||
        (parts[1] != NULL && !parse_real(parts[1], &part.weight, error)))
        return FALSE;
    if (part.weight <= 0) {
        qos_set_error(error, ERANGE, "\"%s\": a weight is more than 0", word);
        return FALSE;
    }
    g_array_append_val(sizes, part);
    return TRUE;
}

static gboolean parse_word(const Key *key, const char *word, GArray *list, GError **error)
{
    if (key->kind == STEPS)
        return parse_step(key, word, list, error);
    return key->kind == SIZES ? parse_size(key, word, list, error)
                              : parse_period(key, word, list, error);
}

/* Words with blanks between them. */
static gboolean parse_list(const Key *key, const char *text, GError **error)
{
    g_auto(GStrv) words = g_strsplit_set(text, " \t", LIST_MAX + 1);
    GArray *list = key->place;

    g_array_set_size(list, 0);
    for (guint i = 0; words[i] != NULL; i++) {
        if (*words[i] == '\0')
            continue;
        if (!parse_word(key, words[i], list, error))
            return FALSE;
    }
    if (list->len == 0)
        qos_set_error(error, EINVAL, "there is nothing in it");
    return list->len > 0;
}

static gboolean parse_integer(const Key *key, const char *text, GError **error)
{
    gint64 number;

    if (!qos_parse_integer(key->name, text, (gint64)key->minimum, (gint64)key->maximum, &number,
                           error))
        return FALSE;
    if (key->kind == COUNT)
        *(guint *)key->place = (guint)number;
    else
        *(guint64 *)key->place = (guint64)number;
    return TRUE;
}

static gboolean parse_value(const Key *key, const char *text, GError **error)
{
    switch (key->kind) {
    case TEXT:
        g_free(*(char **)key->place);
        *(char **)key->place = g_strdup(text);
        return TRUE;
    case DURATION:
        return qos_parse_duration(text, key->place, error) &&
               check_bounds(key, (double)*(QosTime *)key->place, (double)QOS_SECOND, error);
    case BYTES:
        return qos_parse_bytes(text, key->place, error) &&
               check_bounds(key, (double)*(gint64 *)key->place, 1, error);
    case COUNT:
    case COUNT64:
        return parse_integer(key, text, error);
    case REAL:
        return parse_real(text, key->place, error) &&
               check_bounds(key, *(double *)key->place, 1, error);
    case PART:
        return parse_part(text, key->place, error) &&
               check_bounds(key, *(double *)key->place, 1, error);
    case CAPACITY:
        return parse_capacity(key, text, error);
    case STEPS:
    case PERIODS:
    case SIZES:
        return parse_list(key, text, error);
    }
    return FALSE;
}

static const Key *find_key(const Key *keys, const char *name)
{
    for (const Key *key = keys; key->name != NULL; key++) {
        if (strcmp(key->name, name) == 0)
            return key;
    }
    return NULL;
}

/* Always FALSE. */
static gboolean refuse_key(const char *group, const Key *keys, const char *name, GError **error)
{
    QosNear near;

    qos_near_init(&near, name);
    for (; keys->name != NULL; keys++)
        qos_near_consider(&near, keys->name);
    qos_set_error(error, EINVAL,
                  near.nearest ? "[%s] has no key \"%s\"; did you mean \"%s\"?"
                               : "[%s] has no key \"%s\"; qosfs-sim(1) lists them",
                  group, name, near.nearest);
    return FALSE;
}

/* Reads all keys of a group; `keys` ends with END_OF_KEYS. */
static gboolean read_group(GKeyFile *file, const char *group, const Key *keys, GError **error)
{
    g_auto(GStrv) names = g_key_file_get_keys(file, group, NULL, NULL);

    for (guint i = 0; names != NULL && names[i] != NULL; i++) {
        const Key *key = find_key(keys, names[i]);
        g_autofree char *text = g_key_file_get_string(file, group, names[i], NULL);
        if (key == NULL)
            return refuse_key(group, keys, names[i], error);
        if (text == NULL) {
            qos_set_error(error, EINVAL, "[%s] %s: not valid text", group, names[i]);
            return FALSE;
        }
        if (!parse_value(key, text, error)) {
            g_prefix_error(error, "[%s] %s: ", group, names[i]);
            return FALSE;
        }
    }
    return TRUE;
}

/* --- groups --- */

static gboolean read_scenario(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {
        TEXT_KEY("title", &scenario->title),
        DURATION_KEY("duration", &scenario->duration, QOS_MILLISECOND, DAY),
        COUNT_KEY("seed", &scenario->seed, 0, G_MAXUINT32),
        DURATION_KEY("bin", &scenario->bin, QOS_MILLISECOND, DAY),
        END_OF_KEYS,
    };

    scenario->has_duration = g_key_file_has_key(file, "scenario", "duration", NULL);
    return read_group(file, "scenario", keys, error);
}

static gboolean read_store(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {
        REAL_KEY("capacity", &scenario->capacity, 1, QOS_ADAPT_CAPACITY_MAX),
        REAL_KEY("bandwidth", &scenario->bandwidth, 1000, 1e15),
        DURATION_KEY("latency", &scenario->latency, 0, MINUTE),
        {"jitter", PART, &scenario->jitter, 0, 1},
        {"noise", PART, &scenario->noise, 0, 1},
        COUNT_KEY("slots", &scenario->slots, 1, PROCESSES_MAX),
        {"steps", STEPS, scenario->steps, 1, QOS_ADAPT_CAPACITY_MAX},
        DURATION_KEY("stall_start", &scenario->stall_start, 0, DAY),
        DURATION_KEY("stall_length", &scenario->stall_length, 0, DAY),
        DURATION_KEY("stall_every", &scenario->stall_every, QOS_MILLISECOND, DAY),
        END_OF_KEYS,
    };

    return read_group(file, "store", keys, error);
}

static Key period_key(QosScenario *scenario)
{
    return (Key){"period", PERIODS, scenario->periods, (double)QOS_ADAPT_PERIOD_MIN,
                 (double)QOS_ADAPT_PERIOD_MAX};
}

static gboolean read_adapt(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {
        {"capacity", CAPACITY, &scenario->told_capacity, 1, QOS_ADAPT_CAPACITY_MAX},
        period_key(scenario),
        END_OF_KEYS,
    };

    return read_group(file, "adapt", keys, error);
}

static gboolean read_figures(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {
        TEXT_KEY("timeline", &scenario->timeline),
        TEXT_KEY("bars", &scenario->bars),
        TEXT_KEY("records", &scenario->records),
        TEXT_KEY("rates", &scenario->rates),
        END_OF_KEYS,
    };

    return read_group(file, "figures", keys, error);
}

static gboolean read_job(GKeyFile *file, const char *group, QosScenario *scenario, GError **error)
{
    guint weight = 1;
    const Key keys[] = {COUNT_KEY("weight", &weight, 1, WEIGHT_MAX), END_OF_KEYS};

    if (!read_group(file, group, keys, error))
        return FALSE;
    g_hash_table_insert(scenario->weights, g_strdup(group + strlen("job ")),
                        GUINT_TO_POINTER(weight));
    return TRUE;
}

/* Of a job, or a figure: what a rule, a file and a figure take as it is. */
static gboolean is_name(const char *text)
{
    gsize length = strlen(text);

    return length > 0 && length <= NAME_MAX_LENGTH && strspn(text, NAME_LETTERS) == length;
}

static gboolean check_client(const QosScenarioClient *client, const char *group, GError **error)
{
    const char *problem = NULL;

    if (client->burst > 0 && (client->every > 0) == (client->pause > 0))
        problem = "burst wants one of every and pause";
    else if (client->burst == 0 && (client->every > 0 || client->pause > 0))
        problem = "every and pause want burst";
    else if (client->rate > 0 && (client->burst > 0 || client->think > 0))
        problem = "rate= does not wait: leave out burst and think";
    else if ((client->on > 0) != (client->off > 0))
        problem = "on and off go together";
    else if (client->tail > 0 && client->burst == 0 && client->requests == 0 && client->on == 0)
        problem = "tail is for burst, requests, or on and off";
    else if (client->size > 0 && client->sizes->len > 0)
        problem = "one of size and sizes";
    else if (!is_name(client->job))
        problem = "a job's name is 1 to 40 of letters, digits, -, _ and .";
    if (problem != NULL)
        qos_set_error(error, EINVAL, "[%s] %s", group, problem);
    return problem == NULL;
}

static gboolean read_client(GKeyFile *file, const char *group, QosScenario *scenario,
                            GError **error)
{
    QosScenarioClient *client = qos_scenario_add_client(scenario, group + strlen("client "));
    const Key keys[] = {
        TEXT_KEY("job", &client->job),
        COUNT_KEY("jobs", &client->jobs, 1, PROCESSES_MAX),
        COUNT_KEY("processes", &client->processes, 1, PROCESSES_MAX),
        DURATION_KEY("start", &client->start, 0, DAY),
        DURATION_KEY("spread", &client->spread, 0, DAY),
        DURATION_KEY("stop", &client->stop, 0, DAY),
        DURATION_KEY("life", &client->life, 0, DAY),
        {"size", BYTES, &client->size, 0, 1 << 30},
        DURATION_KEY("think", &client->think, 0, DAY),
        COUNT_KEY("burst", &client->burst, 1, PROCESSES_MAX),
        DURATION_KEY("every", &client->every, QOS_MILLISECOND, DAY),
        DURATION_KEY("pause", &client->pause, QOS_MILLISECOND, DAY),
        {"requests", COUNT64, &client->requests, 1, 1e15},
        REAL_KEY("rate", &client->rate, 1e-6, 1e6),
        {"sizes", SIZES, client->sizes, 0, 1 << 30},
        REAL_KEY("tail", &client->tail, 1.01, 100),
        DURATION_KEY("on", &client->on, QOS_MILLISECOND, DAY),
        DURATION_KEY("off", &client->off, QOS_MILLISECOND, DAY),
        END_OF_KEYS,
    };

    if (!read_group(file, group, keys, error))
        return FALSE;
    if (client->job == NULL)
        client->job = g_strdup(client->name);
    return check_client(client, group, error);
}

/* The file lies beside the scenario's, if it is not given from the root on. */
static gboolean read_replay(GKeyFile *file, QosScenario *scenario, GError **error)
{
    g_autofree char *name = NULL;
    const Key keys[] = {TEXT_KEY("file", &name), END_OF_KEYS};

    if (!read_group(file, "replay", keys, error))
        return FALSE;
    if (name == NULL) {
        qos_set_error(error, EINVAL, "[replay] has no file");
        return FALSE;
    }
    g_autofree char *path = g_canonicalize_filename(name, scenario->folder);
    return qos_replay_load(path, scenario, error);
}

static gboolean read_any(GKeyFile *file, const char *group, QosScenario *scenario, GError **error)
{
    if (strcmp(group, "scenario") == 0)
        return read_scenario(file, scenario, error);
    if (strcmp(group, "store") == 0)
        return read_store(file, scenario, error);
    if (strcmp(group, "adapt") == 0)
        return read_adapt(file, scenario, error);
    if (strcmp(group, "rules") == 0)
        return qos_rule_changes_read(file, scenario->rules, error);
    if (strcmp(group, "replay") == 0)
        return read_replay(file, scenario, error);
    if (strcmp(group, "figures") == 0)
        return read_figures(file, scenario, error);
    if (g_str_has_prefix(group, "job "))
        return read_job(file, group, scenario, error);
    if (g_str_has_prefix(group, "client "))
        return read_client(file, group, scenario, error);
    qos_set_error(error, EINVAL, "there is no group [%s]", group);
    return FALSE;
}

static gboolean read_groups(GKeyFile *file, QosScenario *scenario, GError **error)
{
    g_auto(GStrv) groups = g_key_file_get_groups(file, NULL);

    for (guint i = 0; groups[i] != NULL; i++) {
        if (!read_any(file, groups[i], scenario, error))
            return FALSE;
    }
    return TRUE;
}

/* --- the whole --- */

static gboolean has_client_of(const QosScenario *scenario, const char *job)
{
    for (guint i = 0; i < scenario->clients->len; i++) {
        if (strcmp(((const QosScenarioClient *)scenario->clients->pdata[i])->job, job) == 0)
            return TRUE;
    }
    return FALSE;
}

static gboolean check_jobs(const QosScenario *scenario, GError **error)
{
    GHashTableIter iterator;
    gpointer name;

    g_hash_table_iter_init(&iterator, scenario->weights);
    while (g_hash_table_iter_next(&iterator, &name, NULL)) {
        if (!has_client_of(scenario, name)) {
            qos_set_error(error, EINVAL, "[job %s] has no client", (const char *)name);
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean check_figures(const QosScenario *scenario, GError **error)
{
    const char *const names[] = {scenario->timeline, scenario->bars, scenario->records,
                                 scenario->rates};

    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (names[i] != NULL && !is_name(names[i])) {
            qos_set_error(error, EINVAL,
                          "[figures] \"%s\": a figure's name is 1 to 40 of letters, digits, -, _ "
                          "and .",
                          names[i]);
            return FALSE;
        }
    }
    return TRUE;
}

/* Clients of one name have their jobs in common. */
static double count_jobs(const QosScenario *scenario)
{
    g_autoptr(GHashTable) copies = g_hash_table_new(g_str_hash, g_str_equal);
    double jobs = 0;

    for (guint i = 0; i < scenario->clients->len; i++) {
        const QosScenarioClient *client = scenario->clients->pdata[i];
        const guint known = GPOINTER_TO_UINT(g_hash_table_lookup(copies, client->job));

        if (client->jobs <= known)
            continue;
        jobs += client->jobs - known;
        g_hash_table_insert(copies, client->job, GUINT_TO_POINTER(client->jobs));
    }
    return jobs;
}

/* 1, 2 or 5 times a power of ten, not less than `least`. */
static QosTime round_up(double least)
{
    double unit = 1;

    while (10 * unit < least)
        unit *= 10;
    return (QosTime)(least <= unit       ? unit
                     : least <= 2 * unit ? 2 * unit
                     : least <= 5 * unit ? 5 * unit
                                         : 10 * unit);
}

static QosTime default_bin(const QosScenario *scenario)
{
    const double jobs = count_jobs(scenario);
    const double bins = MIN(BINS, BINS_OF_JOBS / MAX(jobs, 1));
    const QosTime least = round_up((double)scenario->duration / bins);

    return MIN(MAX(least, BIN), scenario->duration);
}

static gboolean check_size(const QosScenario *scenario, GError **error)
{
    const double jobs = count_jobs(scenario);
    double processes = 0;

    for (guint i = 0; i < scenario->clients->len; i++) {
        const QosScenarioClient *client = scenario->clients->pdata[i];
        processes += (double)client->jobs * client->processes;
    }
    if (processes > PROCESSES_MAX)
        qos_set_error(error, ERANGE, "more than %d processes in all", PROCESSES_MAX);
    else if (jobs * ((double)scenario->duration / (double)scenario->bin) > BINS_MAX)
        qos_set_error(error, ERANGE, "more than %d bins of all jobs: give [scenario] a longer bin",
                      BINS_MAX);
    else
        return TRUE;
    return FALSE;
}

static gboolean check(const QosScenario *scenario, GError **error)
{
    const char *problem = NULL;

    if (scenario->clients->len == 0)
        problem = "there is no [client NAME]";
    else if (scenario->capacity <= 0)
        problem = "[store] has no capacity";
    else if (scenario->bin > scenario->duration)
        problem = "[scenario] bin is longer than the duration";
    else if ((scenario->stall_start != QOS_NEVER) != (scenario->stall_length > 0))
        problem = "[store] stall_start and stall_length go together";
    else if (scenario->stall_every > 0 && scenario->stall_every <= scenario->stall_length)
        problem = "[store] stall_every must be longer than stall_length";
    if (problem != NULL)
        qos_set_error(error, EINVAL, "%s", problem);
    return problem == NULL && check_jobs(scenario, error) && check_figures(scenario, error) &&
           check_size(scenario, error) &&
           qos_rule_changes_check(scenario->rules, scenario->unknown, error);
}

static QosScenario *parse(GKeyFile *file, const char *path, GError **error)
{
    g_autoptr(QosScenario) scenario = qos_scenario_new(path);

    if (!read_groups(file, scenario, error))
        return NULL;
    if (scenario->bin == 0)
        scenario->bin = default_bin(scenario);
    if (!check(scenario, error))
        return NULL;
    if (scenario->told_capacity < 0)
        scenario->told_capacity = scenario->capacity;
    if (scenario->title == NULL)
        scenario->title = g_strdup(scenario->name);
    scenario->period = g_array_index(scenario->periods, QosTime, 0);
    return g_steal_pointer(&scenario);
}

QosScenario *qos_scenario_load(const char *path, GError **error)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    QosScenario *scenario = NULL;

    if (g_key_file_load_from_file(file, path, G_KEY_FILE_NONE, error))
        scenario = parse(file, path, error);
    if (scenario == NULL)
        g_prefix_error(error, "%s: ", path);
    return scenario;
}

QosScenario *qos_scenario_parse(const char *name, const char *text, GError **error)
{
    g_autoptr(GKeyFile) file = g_key_file_new();

    if (!g_key_file_load_from_data(file, text, (gsize)-1, G_KEY_FILE_NONE, error))
        return NULL;
    return parse(file, name, error);
}

gboolean qos_scenario_set_periods(QosScenario *scenario, const char *text, GError **error)
{
    Key key = period_key(scenario);

    if (!parse_value(&key, text, error))
        return FALSE;
    scenario->period = g_array_index(scenario->periods, QosTime, 0);
    return TRUE;
}
