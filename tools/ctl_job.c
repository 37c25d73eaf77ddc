/*
 * qosfsctl jobs, why and clear: what the jobs did and waited for.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "fs/jobs.h"
#include "tools/ctl.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_render.h"

static JsonNode *jobs_node(JsonObject *state, guint limit)
{
    g_autoptr(GPtrArray) jobs = qos_ctl_state_jobs(state);
    JsonNode *node = json_node_new(JSON_NODE_ARRAY);
    JsonArray *array = json_array_new();
    for (guint i = 0; i < jobs->len && (!limit || i < limit); i++)
        json_array_add_object_element(array, json_object_ref(jobs->pdata[i]));
    json_node_take_array(node, array);
    return node;
}

typedef struct {
    QosCtl *ctl;
    QosCtlTableOptions options;
} Jobs;

static gboolean show_jobs(gpointer data, GError **error)
{
    const Jobs *jobs = data;
    QosCtl *ctl = jobs->ctl;
    const char *file = ctl->json ? QOS_CTL_STATE : QOS_CTL_JOBS;
    g_autoptr(JsonObject) state = qos_ctl_read(ctl, file, error);
    if (!state)
        return FALSE;
    QosCtlStyle style = qos_ctl_style();
    guint limit = (guint)jobs->options.limit;
    if (ctl->json) {
        qos_ctl_print_json(jobs_node(state, limit), jobs->options.watch > 0);
        return TRUE;
    }
    if (jobs->options.watch) {
        limit = qos_ctl_begin_screen(&style, limit);
        qos_ctl_print(qos_ctl_render_headline(state, ctl->mountpoint));
    }
    qos_ctl_print(qos_ctl_render_jobs(state, limit, &style));
    return TRUE;
}

gboolean qos_ctl_jobs(QosCtl *ctl, GError **error)
{
    Jobs jobs = {.ctl = ctl};
    const GOptionEntry entries[] = {
        QOS_CTL_WATCH_OPTION,
        {"limit", 'n', 0, G_OPTION_ARG_INT, &jobs.options.limit, "Show the N busiest jobs only",
         "N"},
        {NULL},
    };
    return qos_ctl_parse(ctl, entries, &jobs.options, error) &&
           qos_ctl_check_limit(&jobs.options, error) &&
           qos_ctl_watch(&jobs.options, show_jobs, &jobs, error);
}

/* There is no job of that id: an error that names those like it. Always FALSE. */
static gboolean no_such_job(JsonObject *state, const char *id, GError **error)
{
    g_autoptr(GPtrArray) ids = qos_ctl_state_names(state, "jobs", "id");
    g_autofree char *escaped = qos_ctl_escape(id);
    g_autofree char *hint = qos_ctl_hint(id, ids);
    qos_set_error(error, ENOENT, "no job '%s' has used this mount lately%s%s", escaped, hint,
                  *hint ? "" : "; 'qosfsctl jobs' lists those that have");
    return FALSE;
}

/* The state with the job of that id, as it is or as it is printed, with \xHH; *ret_job is the job,
 * borrowed of it. A mount of an older version tells of one job with all others; so does each where
 * the rules that it waited for are too long for an xattr. */
static JsonObject *read_job(const QosCtl *ctl, const char *id, JsonObject **ret_job, GError **error)
{
    g_autofree char *plain = qos_ctl_unescape(id);
    const char *const names[] = {id, plain};
    g_autoptr(GError) reason = NULL;
    for (guint i = 0; i < G_N_ELEMENTS(names) && !reason; i++) {
        g_autoptr(JsonObject) state = qos_ctl_read_job(ctl, names[i], &reason);
        *ret_job = state ? qos_ctl_state_job(state, names[i]) : NULL;
        if (*ret_job)
            return g_steal_pointer(&state);
    }
    if (reason) {
        g_propagate_error(error, g_steal_pointer(&reason));
        return NULL;
    }
    g_autoptr(JsonObject) list = qos_ctl_read(ctl, QOS_CTL_JOBS, error);
    if (list && !qos_ctl_state_job(list, id))
        no_such_job(list, id, error);
    if (!list || !qos_ctl_state_job(list, id))
        return NULL;
    g_autoptr(JsonObject) all = qos_ctl_read(ctl, QOS_CTL_STATE, error);
    *ret_job = all ? qos_ctl_state_job(all, id) : NULL;
    if (all && !*ret_job)
        no_such_job(all, id, error);
    return *ret_job ? g_steal_pointer(&all) : NULL;
}

/* The job, and the rules that it waited for. */
static JsonNode *why_node(JsonObject *state, JsonObject *job)
{
    JsonNode *node = json_node_new(JSON_NODE_OBJECT);
    JsonObject *why = json_object_new();
    JsonArray *waits = json_object_get_array_member(job, "wait"), *rules = json_array_new();
    for (guint i = 0; i < json_array_get_length(waits); i++) {
        JsonObject *wait = json_array_get_object_element(waits, i);
        JsonObject *rule = qos_ctl_waited_rule(state, wait);
        if (rule)
            json_array_add_object_element(rules, json_object_ref(rule));
    }
    json_object_set_double_member(why, "now", qos_ctl_state_number(state, "now"));
    json_object_set_object_member(why, "job", json_object_ref(job));
    json_object_set_array_member(why, "rules", rules);
    if (qos_ctl_cluster(state))
        json_object_set_member(why, "cluster", json_object_dup_member(state, "cluster"));
    if (json_object_has_member(state, "adapt"))
        json_object_set_member(why, "adapt", json_object_dup_member(state, "adapt"));
    json_node_take_object(node, why);
    return node;
}

gboolean qos_ctl_why(QosCtl *ctl, GError **error)
{
    if (!qos_ctl_parse(ctl, NULL, NULL, error))
        return FALSE;
    const char *id = qos_ctl_argument(ctl, 0);
    if (!id)
        return qos_ctl_usage_error(error, "which job? 'qosfsctl jobs' lists them");
    JsonObject *job;
    g_autoptr(JsonObject) state = read_job(ctl, id, &job, error);
    if (!state)
        return FALSE;
    if (ctl->json)
        qos_ctl_print_json(why_node(state, job), FALSE);
    else
        qos_ctl_print(qos_ctl_render_why(state, job));
    return TRUE;
}

/* Writes the id in quotes: without them "clear" means all jobs, and blanks at the ends are lost. */
static gboolean write_clear(const QosCtl *ctl, const char *id, GError **error)
{
    g_autoptr(GString) line = g_string_new("\"");
    for (const char *at = id; *at; at++)
        g_string_append_printf(line, g_ascii_isalnum(*at) ? "%c" : "\\x%02X", (guchar)*at);
    g_string_append_c(line, '"');
    if (strlen(id) > QOS_JOB_ID_MAX) {
        qos_set_error(error, ENOENT, "the name is longer than any job's");
        return FALSE;
    }
    return qos_ctl_mount_write(ctl->mountpoint, "job_stats", line->str, error);
}

/* Forgets one job's totals, of the id as it is or as it is printed. */
static gboolean clear_job(const QosCtl *ctl, const char *id, GError **error)
{
    g_autofree char *plain = qos_ctl_unescape(id);
    const char *const names[] = {id, plain};
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(GError) reason = NULL;
        if (write_clear(ctl, names[i], &reason))
            return TRUE;
        if (!g_error_matches(reason, QOS_ERROR, ENOENT)) {
            g_propagate_error(error, g_steal_pointer(&reason));
            return FALSE;
        }
    }
    g_autoptr(JsonObject) state = qos_ctl_read(ctl, QOS_CTL_JOBS, error);
    JsonObject *job = state ? qos_ctl_state_job(state, id) : NULL;
    /* A mount of an older version knows no quotes, and takes "clear" for all. */
    if (job && !g_str_equal(qos_ctl_state_text(job, "id"), "clear"))
        return qos_ctl_mount_write(ctl->mountpoint, "job_stats", qos_ctl_state_text(job, "id"),
                                   error);
    return state && no_such_job(state, id, error);
}

gboolean qos_ctl_clear(QosCtl *ctl, GError **error)
{
    gboolean all = FALSE;
    const GOptionEntry entries[] = {
        {"all", 'a', 0, G_OPTION_ARG_NONE, &all, "Clear the totals of all jobs", NULL},
        {NULL},
    };
    if (!qos_ctl_parse(ctl, entries, NULL, error))
        return FALSE;
    const char *name = qos_ctl_argument(ctl, 0);
    if (all && name)
        return qos_ctl_usage_error(error, "give a JOB or --all, not both");
    if (!all && !name)
        return qos_ctl_usage_error(error, "which job? Give a JOB, or --all");
    return all ? qos_ctl_mount_write(ctl->mountpoint, "job_stats", "clear", error)
               : clear_job(ctl, name, error);
}
