/*
 * qosfsctl cluster: rules that hold for all mounts together, and what they do.
 *
 * A lock server keeps them. Users reach it in two ways: through any mount that has it, by the xattr
 * user.qosfs.cluster, or at its own machine by its control socket. --socket asks the server there,
 * --mount that mount. Without them it is the mount that other commands would find; where there is
 * none, or it has no server, the default control socket. An error then says what was tried.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tools/ctl.h"
#include "tools/ctl_cluster_render.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_socket.h"

#define CLUSTER "cluster" /* the xattr, and the word of the control socket */
#define MEMBERS 50        /* classes of which --mounts shows the mounts: each is a request */

/* --- asking --- */

static char *ask_socket(const char *path, const char *request, gboolean *ret_reached,
                        GError **error)
{
    g_autofree char *line = g_strdup_printf(CLUSTER " %s", request);
    return qos_ctl_socket_ask(path, line, ret_reached, error);
}

/* "" is the answer to a command. */
static char *ask_mount(const char *mountpoint, const char *request, gboolean is_question,
                       GError **error)
{
    g_autofree char *name = g_strdup_printf(CLUSTER ":%s", request);
    g_autoptr(GError) reason = NULL;

    if (is_question)
        return qos_ctl_mount_get(mountpoint, name, error);
    if (qos_ctl_mount_set(mountpoint, CLUSTER, request, &reason))
        return g_strdup("");
    /* The kernel lets only those set it that may write to the directory, and asks nobody. */
    if (g_error_matches(reason, QOS_ERROR, EACCES))
        qos_set_error(error, EACCES,
                      "%s: you may not write to that directory, so the kernel lets no command "
                      "through; ask at the server's machine (--socket)",
                      mountpoint);
    else
        g_propagate_error(error, g_steal_pointer(&reason));
    return NULL;
}

/* Neither -m nor --socket was given. */
static char *ask_any(const char *request, gboolean is_question, GError **error)
{
    g_autoptr(GError) at_mount = NULL, at_socket = NULL;
    g_autofree char *mountpoint = qos_ctl_mount_find(NULL, &at_mount);
    gboolean reached = FALSE;

    if (mountpoint) {
        char *answer = ask_mount(mountpoint, request, is_question, &at_mount);
        if (answer)
            return answer;
        if (!g_error_matches(at_mount, QOS_ERROR, EOPNOTSUPP)) {
            g_propagate_error(error, g_steal_pointer(&at_mount));
            return NULL;
        }
    }
    char *answer = ask_socket(QOS_CTL_SOCKET_DEFAULT, request, &reached, &at_socket);
    if (answer)
        return answer;
    if (reached)
        g_propagate_error(error, g_steal_pointer(&at_socket));
    else
        qos_set_error(error, at_socket->code, "%s; and before that, of a mount: %s%s%s",
                      at_socket->message, mountpoint ? mountpoint : "", mountpoint ? ": " : "",
                      at_mount->message);
    return NULL;
}

static char *ask(const QosCtl *ctl, const char *request, gboolean is_question, GError **error)
{
    if (strchr(request, '\n')) {
        g_autofree char *shown = qos_ctl_escape(request);
        qos_ctl_usage_error(error, "'%s' has a line break", shown);
        return NULL;
    }
    if (ctl->socket)
        return ask_socket(ctl->socket, request, NULL, error);
    if (!ctl->directory)
        return ask_any(request, is_question, error);
    g_autofree char *mountpoint = qos_ctl_mount_find(ctl->directory, error);
    return mountpoint ? ask_mount(mountpoint, request, is_question, error) : NULL;
}

/* The answer to a question: an object with `list`. A new reference. */
static JsonObject *question(const QosCtl *ctl, const char *request, const char *list,
                            GError **error)
{
    g_autofree char *text = ask(ctl, request, TRUE, error);
    return text ? qos_ctl_answer_parse(text, list, error) : NULL;
}

static void print_answer(JsonObject *answer, gboolean compact)
{
    JsonNode *node = json_node_new(JSON_NODE_OBJECT);
    json_node_set_object(node, answer);
    qos_ctl_print_json(node, compact);
}

/* A command without options of its own, and its answer. */
static JsonObject *parse_and_ask(QosCtl *ctl, const char *request, const char *list, GError **error)
{
    return qos_ctl_parse(ctl, NULL, NULL, error) ? question(ctl, request, list, error) : NULL;
}

/* --- commands --- */

static gboolean command(const QosCtl *ctl, const char *request, GError **error)
{
    g_autofree char *answer = ask(ctl, request, FALSE, error);
    if (answer)
        g_strchomp(answer);
    if (answer && *answer) {
        g_autofree char *note = qos_ctl_escape(answer);
        fprintf(stderr, "%s: note: %s\n", g_get_prgname(), note);
    }
    return answer != NULL;
}

/* The words after `cluster` are the request as it stands: the server parses it, so that there is
 * one grammar and one set of reasons. */
static gboolean send_words(QosCtl *ctl, GError **error)
{
    g_autofree char *words = g_strjoinv(" ", ctl->arguments + 1);
    g_autofree char *request =
        g_strdup_printf("%s %s", ctl->command->name + strlen("cluster "), words);
    return command(ctl, request, error);
}

gboolean qos_ctl_cluster_rule_send(QosCtl *ctl, GError **error)
{
    return qos_ctl_parse(ctl, NULL, NULL, error) && send_words(ctl, error);
}

/* The words are joined by blanks, so an id that is empty, as a variable in a prolog may be, or that
 * has a blank would be taken for other words. */
gboolean qos_ctl_cluster_job_send(QosCtl *ctl, GError **error)
{
    if (!qos_ctl_parse(ctl, NULL, NULL, error))
        return FALSE;
    const char *job = qos_ctl_argument(ctl, 0);
    if (job != NULL && (job[0] == '\0' || strpbrk(job, " \t\n") != NULL))
        return qos_ctl_usage_error(error, "\"%s\" is no job id: it is empty, or has a blank", job);
    return send_words(ctl, error);
}

/* By its name, also as `status` prints it, or its id. */
gboolean qos_ctl_cluster_forget(QosCtl *ctl, GError **error)
{
    if (!qos_ctl_parse(ctl, NULL, NULL, error))
        return FALSE;
    g_autofree char *name = qos_ctl_unescape(qos_ctl_argument(ctl, 0));
    g_autofree char *request = g_strdup_printf("forget %s", name);
    return command(ctl, request, error);
}

/* --- questions --- */

gboolean qos_ctl_cluster_rule_list(QosCtl *ctl, GError **error)
{
    gboolean commands = FALSE;
    const GOptionEntry entries[] = {
        {"commands", 'c', 0, G_OPTION_ARG_NONE, &commands,
         "Print the commands that make these rules anew", NULL},
        {NULL},
    };
    if (!qos_ctl_parse(ctl, entries, NULL, error))
        return FALSE;
    if (commands && ctl->json)
        return qos_ctl_usage_error(error, "give --commands or --json, not both");
    g_autoptr(JsonObject) rules = question(ctl, "rules", "rules", error);
    if (!rules)
        return FALSE;
    QosCtlStyle style = qos_ctl_style();
    if (commands)
        qos_ctl_print(qos_ctl_render_cluster_rule_commands(rules));
    else if (ctl->json)
        print_answer(rules, FALSE);
    else
        qos_ctl_print(qos_ctl_render_cluster_rules(rules, &style));
    return TRUE;
}

gboolean qos_ctl_cluster_rule_log(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) log = parse_and_ask(ctl, "log", "log", error);
    if (log && ctl->json)
        print_answer(log, FALSE);
    else if (log)
        qos_ctl_print(qos_ctl_render_cluster_log(log));
    return log != NULL;
}

/* Prints an answer (NULL: there is an error), as text by `render`. */
static gboolean show(const QosCtl *ctl, JsonObject *answer,
                     char *(*render)(JsonObject *answer, const QosCtlStyle *style))
{
    QosCtlStyle style = qos_ctl_style();
    if (answer && ctl->json)
        print_answer(answer, FALSE);
    else if (answer)
        qos_ctl_print(render(answer, &style));
    return answer != NULL;
}

gboolean qos_ctl_cluster_status(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) status = parse_and_ask(ctl, "status", "mounts", error);
    if (!status || ctl->json)
        return show(ctl, status, NULL);
    g_autoptr(JsonObject) jobs = question(ctl, "jobs", "classes", NULL);
    QosCtlStyle style = qos_ctl_style();
    qos_ctl_print(qos_ctl_render_cluster_status(status, jobs, &style));
    return TRUE;
}

gboolean qos_ctl_cluster_job_list(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) jobs = parse_and_ask(ctl, "job list", "jobs", error);
    return show(ctl, jobs, qos_ctl_render_cluster_job_list);
}

static JsonObject *ask_why(const QosCtl *ctl, const char *job, GError **error)
{
    g_autofree char *request = g_strdup_printf("why %s", job);
    return question(ctl, request, "classes", error);
}

gboolean qos_ctl_cluster_why(QosCtl *ctl, GError **error)
{
    if (!qos_ctl_parse(ctl, NULL, NULL, error))
        return FALSE;
    const char *id = qos_ctl_argument(ctl, 0);
    if (!id)
        return qos_ctl_usage_error(error, "which job? 'qosfsctl cluster jobs' lists them");
    g_autofree char *plain = qos_ctl_unescape(id);
    g_autoptr(JsonObject) why = ask_why(ctl, plain, error);
    return show(ctl, why, qos_ctl_render_cluster_why);
}

/* --- jobs --- */

typedef struct {
    QosCtl *ctl;
    QosCtlTableOptions options;
    gboolean mounts;
} Jobs;

/* Gives each of the first classes its "members", as `why` has them. What cannot be had stays away.
 */
static void add_members(const QosCtl *ctl, JsonObject *jobs, guint limit)
{
    g_autoptr(GPtrArray) classes = qos_ctl_cluster_classes(jobs);

    for (guint i = 0; i < classes->len && i < limit; i++) {
        JsonObject *class = classes->pdata[i];
        const char *const keys[] = {"rule", "class", "unit"};
        g_autoptr(JsonObject) why = ask_why(ctl, qos_ctl_state_text(class, "class"), NULL);
        JsonArray *candidates = why ? json_object_get_array_member(why, "classes") : NULL;
        for (guint j = 0; candidates && j < json_array_get_length(candidates); j++) {
            JsonObject *candidate = json_array_get_object_element(candidates, j);
            guint same = 0;
            for (guint k = 0; k < G_N_ELEMENTS(keys); k++)
                same += g_str_equal(qos_ctl_state_text(candidate, keys[k]),
                                    qos_ctl_state_text(class, keys[k]));
            if (same == G_N_ELEMENTS(keys) && json_object_has_member(candidate, "members"))
                json_object_set_member(class, "members",
                                       json_object_dup_member(candidate, "members"));
        }
    }
}

static void print_headline(JsonObject *jobs)
{
    g_autoptr(GDateTime) now = g_date_time_new_now_local();
    g_autofree char *clock = now ? g_date_time_format(now, "%H:%M:%S") : g_strdup("");

    printf("cluster  %s  jobs under its rules: %u\n", clock,
           json_array_get_length(json_object_get_array_member(jobs, "classes")));
}

static gboolean show_jobs(gpointer data, GError **error)
{
    const Jobs *self = data;
    g_autoptr(JsonObject) jobs = question(self->ctl, "jobs", "classes", error);
    QosCtlStyle style = qos_ctl_style();
    guint limit = (guint)self->options.limit;

    if (!jobs)
        return FALSE;
    if (self->mounts)
        add_members(self->ctl, jobs, limit ? MIN(limit, MEMBERS) : MEMBERS);
    if (self->ctl->json) {
        print_answer(jobs, self->options.watch > 0);
        return TRUE;
    }
    if (self->options.watch) {
        limit = qos_ctl_begin_screen(&style, limit);
        print_headline(jobs);
    }
    qos_ctl_print(qos_ctl_render_cluster_jobs(jobs, limit, &style));
    return TRUE;
}

gboolean qos_ctl_cluster_jobs(QosCtl *ctl, GError **error)
{
    Jobs jobs = {.ctl = ctl};
    const GOptionEntry entries[] = {
        QOS_CTL_WATCH_OPTION,
        {"limit", 'n', 0, G_OPTION_ARG_INT, &jobs.options.limit,
         "Show the N that are served most only", "N"},
        {"mounts", 'M', 0, G_OPTION_ARG_NONE, &jobs.mounts, "Show the mounts of each job below it",
         NULL},
        {NULL},
    };
    return qos_ctl_parse(ctl, entries, &jobs.options, error) &&
           qos_ctl_check_limit(&jobs.options, error) &&
           qos_ctl_watch(&jobs.options, show_jobs, &jobs, error);
}
