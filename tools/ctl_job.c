/*
 * qosfsctl jobs, why and clear: what the jobs did and waited for.
 */
#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "base/time.h"
#include "base/units.h"
#include "tools/ctl.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_render.h"

#define WATCH_DEFAULT (2 * QOS_SECOND)
#define WATCH_MIN     (100 * QOS_MILLISECOND) /* less would keep the mount busy with reports */
#define CLEAR_SCREEN  "\033[H\033[J"

typedef struct {
    QosTime watch; /* the interval, 0 = once */
    gint limit;    /* how many jobs, 0 = all */
} JobsOptions;

static gboolean parse_watch(const char *option, const char *value, gpointer data, GError **error)
{
    JobsOptions *options = data;
    g_autoptr(GError) reason = NULL;

    options->watch = WATCH_DEFAULT;
    if (!value)
        return TRUE;
    if (!qos_parse_duration(value, &options->watch, &reason))
        return qos_ctl_usage_error(error, "%s: %s", option, reason->message);
    if (options->watch < WATCH_MIN)
        return qos_ctl_usage_error(error, "%s: '%s' is too short; at least 100ms", option, value);
    return TRUE;
}

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

static gboolean show_jobs(QosCtl *ctl, const JobsOptions *options, GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_read_state(ctl, error);
    if (!state)
        return FALSE;
    QosCtlStyle style = qos_ctl_style();
    guint limit = (guint)options->limit;
    if (ctl->json) {
        qos_ctl_print_json(jobs_node(state, limit), options->watch > 0);
        return TRUE;
    }
    if (options->watch) {
        /* A live table has the screen for itself, and no more rows than it; the headline and the
         * header take two. */
        if (style.height)
            fputs(CLEAR_SCREEN, stdout);
        if (style.height > 3 && (!limit || limit > style.height - 3))
            limit = style.height - 3;
        qos_ctl_print(qos_ctl_render_headline(state, ctl->mountpoint));
    }
    qos_ctl_print(qos_ctl_render_jobs(state, limit, &style));
    return TRUE;
}

gboolean qos_ctl_jobs(QosCtl *ctl, GError **error)
{
    JobsOptions options = {0};
    const GOptionEntry entries[] = {
        {"watch", 'w', G_OPTION_FLAG_OPTIONAL_ARG, G_OPTION_ARG_CALLBACK, (gpointer)parse_watch,
         "Show a live table, anew every SECONDS (2)", "SECONDS"},
        {"limit", 'n', 0, G_OPTION_ARG_INT, &options.limit, "Show the N busiest jobs only", "N"},
        {NULL},
    };
    if (!qos_ctl_parse(ctl, entries, &options, error))
        return FALSE;
    if (options.limit < 0)
        return qos_ctl_usage_error(error, "--limit: %d is no number of jobs", options.limit);
    while (show_jobs(ctl, &options, error)) {
        /* A reader that went away ends the watch. */
        if (!options.watch || fflush(stdout) || ferror(stdout))
            return TRUE;
        g_usleep((gulong)(options.watch / QOS_MICROSECOND));
    }
    return FALSE;
}

/* The job of that id; where there is none, an error that names those like it. */
static JsonObject *find_job(JsonObject *state, const char *id, GError **error)
{
    JsonObject *job = qos_ctl_state_job(state, id);
    if (job)
        return job;
    g_autoptr(GPtrArray) ids = qos_ctl_state_names(state, "jobs", "id");
    g_autofree char *escaped = qos_ctl_escape(id);
    g_autofree char *hint = qos_ctl_hint(id, ids);
    qos_set_error(error, ENOENT, "no job '%s' has used this mount lately%s%s", escaped, hint,
                  *hint ? "" : "; 'qosfsctl jobs' lists those that have");
    return NULL;
}

/* The job, and the rules that it waited for. */
static JsonNode *why_node(JsonObject *state, JsonObject *job)
{
    JsonNode *node = json_node_new(JSON_NODE_OBJECT);
    JsonObject *why = json_object_new();
    JsonArray *waits = json_object_get_array_member(job, "wait"), *rules = json_array_new();
    for (guint i = 0; i < json_array_get_length(waits); i++) {
        JsonObject *wait = json_array_get_object_element(waits, i);
        JsonObject *rule = qos_ctl_state_named(state, "rules", qos_ctl_state_text(wait, "rule"));
        if (rule)
            json_array_add_object_element(rules, json_object_ref(rule));
    }
    json_object_set_double_member(why, "now", qos_ctl_state_number(state, "now"));
    json_object_set_object_member(why, "job", json_object_ref(job));
    json_object_set_array_member(why, "rules", rules);
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
    g_autoptr(JsonObject) state = qos_ctl_read_state(ctl, error);
    JsonObject *job = state ? find_job(state, id, error) : NULL;
    if (!job)
        return FALSE;
    if (ctl->json)
        qos_ctl_print_json(why_node(state, job), FALSE);
    else
        qos_ctl_print(qos_ctl_render_why(state, job));
    return TRUE;
}

/* Forgets one job's totals. The mount takes the word "clear" for all jobs, so a job of that name
 * can not be told to it alone. */
static gboolean clear_job(QosCtl *ctl, const char *name, GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_read_state(ctl, error);
    JsonObject *job = state ? find_job(state, name, error) : NULL;
    if (!job)
        return FALSE;
    const char *id = qos_ctl_state_text(job, "id");
    if (g_str_equal(id, "clear")) {
        qos_set_error(error, EINVAL,
                      "a job named 'clear' can not be cleared alone: to the mount that word means "
                      "all jobs; use 'qosfsctl clear --all'");
        return FALSE;
    }
    return qos_ctl_mount_write(ctl->mountpoint, "job_stats", id, error);
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
