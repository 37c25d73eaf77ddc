/*
 * The ways of sharing (sim/sharing.h). No BW is a queue in order of arrival. Static BW has the
 * rules that an administrator would write with knowledge of all jobs. The others share adaptively;
 * the scenario says what they are told of the capacity.
 */
#include "sim/sharing.h"

#include <string.h>

#include "sim/replay.h"
#include "sim/simulated_job.h"

const QosSharing qos_sharings[] = {
    {.name = "none", .title = "No BW", .policy = &qos_policy_fifo},
    {.name = "static", .title = "Static BW", .policy = &qos_policy_tbf, .is_static = TRUE},
    {.name = "paper",
     .title = "AdapTBF",
     .policy = &qos_policy_tbf,
     .adapt = QOS_ADAPT_PAPER,
     .has_rules = TRUE},
    {.name = "fair",
     .title = "fair",
     .policy = &qos_policy_tbf,
     .adapt = QOS_ADAPT_FAIR,
     .has_rules = TRUE},
    {.name = "rules", .title = "rules alone", .policy = &qos_policy_tbf, .has_rules = TRUE},
    {.name = "gps", .title = "ideal (GPS)", .policy = &qos_policy_fifo, .is_ideal = TRUE},
    {.name = NULL},
};

const QosSharing *qos_sharing_named(const char *name)
{
    for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++) {
        if (strcmp(sharing->name, name) == 0)
            return sharing;
    }
    return NULL;
}

/* The pattern for the job of that name, as a report writes it (base/pattern.h). A rule cannot hold
 * a blank, a brace or a control character: any text stands for those. Free with g_free. */
static char *pattern_of(const char *name)
{
    g_autofree char *id = qos_replay_job_id(name);
    GString *pattern = g_string_new(NULL);
    const gboolean is_text = g_utf8_validate(id, -1, NULL);

    for (const char *at = id; *at != '\0'; at++) {
        if (strchr("*[\\", *at) != NULL)
            g_string_append_printf(pattern, "\\%c", *at);
        else if ((g_ascii_isgraph(*at) && strchr("{}", *at) == NULL) ||
                 (is_text && (guchar)*at >= 0x80))
            g_string_append_c(pattern, *at);
        else
            g_string_append_c(pattern, '*');
    }
    return g_string_free(pattern, FALSE);
}

/* Its part of the capacity for each job. One rule serves all copies of a job, each has a bucket of
 * its own. */
static void set_static_rules(const QosScenario *scenario, const GPtrArray *jobs, QosSched *sched)
{
    g_autoptr(GHashTable) ruled = g_hash_table_new(g_str_hash, g_str_equal);
    QosRules *rules = qos_rules_ref(qos_sched_rules(sched));
    double weights = 0;

    for (guint i = 0; i < jobs->len; i++)
        weights += (double)((const QosSimulatedJob *)jobs->pdata[i])->weight;
    for (guint i = 0; i < jobs->len; i++) {
        const QosSimulatedJob *job = jobs->pdata[i];
        double rate = scenario->capacity * (double)job->weight / weights;
        if (!g_hash_table_add(ruled, (gpointer)job->label))
            continue;
        g_autofree char *pattern = pattern_of(job->label);
        g_autofree char *command = g_strdup_printf("start j%u jobid={%s%s} rate=%.0f", i, pattern,
                                                   strcmp(job->name, job->label) == 0 ? "" : ".*",
                                                   CLAMP(rate, 1, (double)QOS_RATE_MAX));
        QosRules *next = qos_rules_apply(rules, command, 0, NULL);
        g_assert(next != NULL);
        qos_rules_unref(rules);
        rules = next;
    }
    qos_sched_set_rules(sched, rules, 0);
    qos_rules_unref(rules);
}

void qos_sharing_apply(const QosSharing *sharing, const QosScenario *scenario,
                       const GPtrArray *jobs, QosSched *sched)
{
    QosAdaptConfig config = {
        .mode = sharing->adapt,
        .period = scenario->period,
        .capacity = (gint64)scenario->told_capacity,
        .bytes_per_cost =
            scenario->bandwidth > 0 ? (gint64)(scenario->bandwidth / scenario->capacity) : 0};

    qos_sched_set_adapt(sched, &config, 0);
    if (sharing->is_static)
        set_static_rules(scenario, jobs, sched);
}
