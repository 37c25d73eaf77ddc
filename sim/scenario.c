/*
 * Reads scenarios. Each group is a table of keys with the place where the value goes, so that an
 * unknown key is an error and not a silent default.
 */
#include "sim/scenario.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

typedef enum { TEXT, DURATION, BYTES, COUNT, COUNT64, REAL, STEPS } Kind;

typedef struct {
    const char *name;
    Kind kind;
    void *place;
} Key;

#define PROCESSES_MAX 1000000

/* --- values --- */

static gboolean parse_real(const char *name, const char *text, double *ret_value, GError **error)
{
    char *end;
    double value = g_ascii_strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0 && value <= 1e15)) {
        g_set_error(error, QOS_ERROR, EINVAL, "%s=%s: give a number from 0 to 1e15", name, text);
        return FALSE;
    }
    *ret_value = value;
    return TRUE;
}

/* "TIME:CAPACITY ...", the times in order. */
static gboolean parse_steps(const char *text, GArray *steps, GError **error)
{
    g_auto(GStrv) words = g_strsplit_set(text, " \t", -1);
    QosTime last = 0;

    for (guint i = 0; words[i] != NULL; i++) {
        if (*words[i] == '\0')
            continue;
        g_auto(GStrv) parts = g_strsplit(words[i], ":", 2);
        QosStep step;
        if (parts[1] == NULL) {
            g_set_error(error, QOS_ERROR, EINVAL, "%s: give TIME:CAPACITY, as in 10s:500",
                        words[i]);
            return FALSE;
        }
        if (!qos_parse_duration(parts[0], &step.time, error) ||
            !parse_real("capacity", parts[1], &step.capacity, error))
            return FALSE;
        if (step.capacity <= 0 || step.time <= last) {
            g_set_error(error, QOS_ERROR, EINVAL,
                        "%s: a capacity must be more than 0, and each time after the one before",
                        words[i]);
            return FALSE;
        }
        last = step.time;
        g_array_append_val(steps, step);
    }
    return TRUE;
}

static gboolean parse_value(const Key *key, const char *text, GError **error)
{
    gint64 number = 0;
    gboolean ok = TRUE;

    switch (key->kind) {
    case TEXT:
        g_free(*(char **)key->place);
        *(char **)key->place = g_strdup(text);
        break;
    case DURATION:
        ok = qos_parse_duration(text, key->place, error);
        break;
    case BYTES:
        ok = qos_parse_bytes(text, key->place, error);
        break;
    case COUNT:
        ok = qos_parse_integer(key->name, text, 0, PROCESSES_MAX, &number, error);
        if (ok)
            *(guint *)key->place = (guint)number;
        break;
    case COUNT64:
        ok = qos_parse_integer(key->name, text, 0, G_MAXINT64, key->place, error);
        break;
    case REAL:
        ok = parse_real(key->name, text, key->place, error);
        break;
    case STEPS:
        ok = parse_steps(text, key->place, error);
        break;
    }
    return ok;
}

static const Key *find_key(const Key *keys, const char *name)
{
    for (const Key *key = keys; key->name != NULL; key++) {
        if (strcmp(key->name, name) == 0)
            return key;
    }
    return NULL;
}

/* Reads all keys of a group; `keys` ends with a NULL name. */
static gboolean read_group(GKeyFile *file, const char *group, const Key *keys, GError **error)
{
    g_auto(GStrv) names = g_key_file_get_keys(file, group, NULL, NULL);

    for (guint i = 0; names != NULL && names[i] != NULL; i++) {
        const Key *key = find_key(keys, names[i]);
        g_autofree char *text = g_key_file_get_string(file, group, names[i], NULL);
        if (key == NULL) {
            g_set_error(error, QOS_ERROR, EINVAL, "[%s] has no key \"%s\"", group, names[i]);
            return FALSE;
        }
        if (text == NULL || !parse_value(key, text, error)) {
            g_prefix_error(error, "[%s] %s: ", group, names[i]);
            return FALSE;
        }
    }
    return TRUE;
}

/* --- groups --- */

static gboolean read_scenario(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {{"title", TEXT, &scenario->title},
                        {"duration", DURATION, &scenario->duration},
                        {"seed", COUNT, &scenario->seed},
                        {"bin", DURATION, &scenario->bin},
                        {NULL, TEXT, NULL}};

    return read_group(file, "scenario", keys, error);
}

static gboolean read_store(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {{"capacity", REAL, &scenario->capacity},
                        {"bandwidth", REAL, &scenario->bandwidth},
                        {"latency", DURATION, &scenario->latency},
                        {"noise", REAL, &scenario->noise},
                        {"slots", COUNT, &scenario->slots},
                        {"steps", STEPS, scenario->steps},
                        {"stall_start", DURATION, &scenario->stall_start},
                        {"stall_length", DURATION, &scenario->stall_length},
                        {"stall_every", DURATION, &scenario->stall_every},
                        {NULL, TEXT, NULL}};

    return read_group(file, "store", keys, error);
}

static gboolean read_adapt(GKeyFile *file, QosScenario *scenario, GError **error)
{
    const Key keys[] = {{"capacity", REAL, &scenario->told_capacity},
                        {"period", DURATION, &scenario->period},
                        {NULL, TEXT, NULL}};

    return read_group(file, "adapt", keys, error);
}

static gboolean read_job(GKeyFile *file, const char *group, QosScenario *scenario, GError **error)
{
    gint64 weight = 1;
    const Key keys[] = {{"weight", COUNT64, &weight}, {NULL, TEXT, NULL}};

    if (!read_group(file, group, keys, error))
        return FALSE;
    if (weight < 1) {
        g_set_error(error, QOS_ERROR, EINVAL, "[%s] weight: must be 1 or more", group);
        return FALSE;
    }
    g_hash_table_insert(scenario->weights, g_strdup(group + strlen("job ")),
                        g_memdup2(&weight, sizeof(weight)));
    return TRUE;
}

static void client_free(QosClient *client)
{
    g_free(client->name);
    g_free(client->job);
    g_free(client);
}

static gboolean read_client(GKeyFile *file, const char *group, QosScenario *scenario,
                            GError **error)
{
    QosClient *client = g_new0(QosClient, 1);
    const Key keys[] = {{"job", TEXT, &client->job},
                        {"jobs", COUNT, &client->jobs},
                        {"processes", COUNT, &client->processes},
                        {"start", DURATION, &client->start},
                        {"spread", DURATION, &client->spread},
                        {"stop", DURATION, &client->stop},
                        {"life", DURATION, &client->life},
                        {"size", BYTES, &client->size},
                        {"think", DURATION, &client->think},
                        {"burst", COUNT, &client->burst},
                        {"every", DURATION, &client->every},
                        {"requests", COUNT64, &client->requests},
                        {"rate", REAL, &client->rate},
                        {NULL, TEXT, NULL}};

    client->name = g_strdup(group + strlen("client "));
    client->jobs = client->processes = 1;
    client->stop = client->life = QOS_NEVER;
    g_ptr_array_add(scenario->clients, client);
    if (!read_group(file, group, keys, error))
        return FALSE;
    if (client->job == NULL)
        client->job = g_strdup(client->name);
    if (client->jobs == 0 || client->processes == 0 || (client->burst > 0) != (client->every > 0)) {
        g_set_error(error, QOS_ERROR, EINVAL,
                    "[%s] jobs and processes must be 1 or more, burst and every go together",
                    group);
        return FALSE;
    }
    return TRUE;
}

static gboolean read_groups(GKeyFile *file, QosScenario *scenario, GError **error)
{
    g_auto(GStrv) groups = g_key_file_get_groups(file, NULL);

    for (guint i = 0; groups[i] != NULL; i++) {
        gboolean ok;
        if (strcmp(groups[i], "scenario") == 0)
            ok = read_scenario(file, scenario, error);
        else if (strcmp(groups[i], "store") == 0)
            ok = read_store(file, scenario, error);
        else if (strcmp(groups[i], "adapt") == 0)
            ok = read_adapt(file, scenario, error);
        else if (g_str_has_prefix(groups[i], "job "))
            ok = read_job(file, groups[i], scenario, error);
        else if (g_str_has_prefix(groups[i], "client "))
            ok = read_client(file, groups[i], scenario, error);
        else
            ok =
                (g_set_error(error, QOS_ERROR, EINVAL, "there is no group [%s]", groups[i]), FALSE);
        if (!ok)
            return FALSE;
    }
    return TRUE;
}

static gboolean check(const QosScenario *scenario, GError **error)
{
    const char *problem = NULL;

    if (scenario->clients->len == 0)
        problem = "there is no [client NAME]";
    else if (scenario->capacity <= 0 || scenario->slots == 0)
        problem = "[store] capacity and slots must be 1 or more";
    else if (scenario->duration <= 0 || scenario->bin <= 0)
        problem = "[scenario] duration and bin must be more than 0";
    else if (scenario->period < 5 * QOS_MILLISECOND || scenario->period > 10 * QOS_SECOND)
        problem = "[adapt] period: 5 ms to 10 s";
    if (problem != NULL)
        g_set_error_literal(error, QOS_ERROR, EINVAL, problem);
    return problem == NULL;
}

static char *name_of(const char *path)
{
    char *name = g_path_get_basename(path);
    char *dot = strrchr(name, '.');
    if (dot != NULL && dot != name)
        *dot = '\0';
    return name;
}

QosScenario *qos_scenario_load(const char *path, GError **error)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autoptr(QosScenario) scenario = g_new0(QosScenario, 1);

    scenario->name = name_of(path);
    scenario->duration = 60 * QOS_SECOND;
    scenario->seed = 1;
    scenario->bin = scenario->period = 100 * QOS_MILLISECOND;
    scenario->slots = 16;
    scenario->stall_start = QOS_NEVER;
    scenario->told_capacity = -1;
    scenario->steps = g_array_new(FALSE, FALSE, sizeof(QosStep));
    scenario->weights = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    scenario->clients = g_ptr_array_new_with_free_func((GDestroyNotify)(void (*)(void))client_free);
    if (!g_key_file_load_from_file(file, path, G_KEY_FILE_NONE, error) ||
        !read_groups(file, scenario, error) || !check(scenario, error)) {
        g_prefix_error(error, "%s: ", path);
        return NULL;
    }
    if (scenario->told_capacity < 0)
        scenario->told_capacity = scenario->capacity;
    if (scenario->title == NULL)
        scenario->title = g_strdup(scenario->name);
    return g_steal_pointer(&scenario);
}

void qos_scenario_free(QosScenario *scenario)
{
    if (scenario == NULL)
        return;
    g_ptr_array_unref(scenario->clients);
    g_array_unref(scenario->steps);
    g_hash_table_unref(scenario->weights);
    g_free(scenario->title);
    g_free(scenario->name);
    g_free(scenario);
}

gint64 qos_scenario_weight(const QosScenario *scenario, const char *job)
{
    const gint64 *weight = g_hash_table_lookup(scenario->weights, job);
    return weight != NULL ? *weight : 1;
}
