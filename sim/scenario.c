/*
 * A scenario as an object. scenario_read.c reads one from a file, and replay.c adds clients to it.
 */
#include "sim/scenario.h"

#include <string.h>

#include "fs/adapt.h"
#include "sim/rule_changes.h"

static void client_free(QosScenarioClient *client)
{
    g_free(client->name);
    g_free(client->job);
    g_array_unref(client->sizes);
    g_free(client);
}

QosScenarioClient *qos_scenario_add_client(QosScenario *scenario, const char *name)
{
    QosScenarioClient *client = g_new0(QosScenarioClient, 1);

    client->name = g_strdup(name);
    client->sizes = g_array_new(FALSE, FALSE, sizeof(QosSizePart));
    client->jobs = client->processes = 1;
    client->stop = client->life = QOS_NEVER;
    client->opcode = -1;
    g_ptr_array_add(scenario->clients, client);
    return client;
}

static char *name_of(const char *path)
{
    char *name = g_path_get_basename(path);
    char *dot = strrchr(name, '.');
    if (dot != NULL && dot != name)
        *dot = '\0';
    return name;
}

/* From the root on. */
static char *folder_of(const char *path)
{
    g_autofree char *folder = g_path_get_dirname(path);

    return g_canonicalize_filename(folder, NULL);
}

QosScenario *qos_scenario_new(const char *path)
{
    QosScenario *scenario = g_new0(QosScenario, 1);
    QosTime period = QOS_ADAPT_PERIOD;

    scenario->name = name_of(path);
    scenario->folder = folder_of(path);
    scenario->duration = 60 * QOS_SECOND;
    scenario->seed = 1;
    scenario->slots = 16;
    scenario->stall_start = QOS_NEVER;
    scenario->told_capacity = -1;
    scenario->steps = g_array_new(FALSE, FALSE, sizeof(QosStep));
    scenario->periods = g_array_new(FALSE, FALSE, sizeof(QosTime));
    g_array_append_val(scenario->periods, period);
    scenario->weights = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    scenario->clients = g_ptr_array_new_with_free_func((GDestroyNotify)(void (*)(void))client_free);
    scenario->rules = qos_rule_changes_new();
    return scenario;
}

void qos_scenario_free(QosScenario *scenario)
{
    if (scenario == NULL)
        return;
    g_ptr_array_unref(scenario->clients);
    g_array_unref(scenario->rules);
    g_array_unref(scenario->steps);
    g_array_unref(scenario->periods);
    g_hash_table_unref(scenario->weights);
    g_free(scenario->timeline);
    g_free(scenario->bars);
    g_free(scenario->records);
    g_free(scenario->rates);
    g_free(scenario->title);
    g_free(scenario->folder);
    g_free(scenario->name);
    g_free(scenario);
}

guint qos_scenario_weight(const QosScenario *scenario, const char *job)
{
    guint weight = GPOINTER_TO_UINT(g_hash_table_lookup(scenario->weights, job));
    return weight > 0 ? weight : 1;
}
