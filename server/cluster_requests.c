/*
 * The requests of administrators and users on the cluster: the same at the control socket and from
 * a mount (server/cluster.h has the list).
 *
 * Reading is answered at once. What changes something is permitted or refused at once, and answered
 * when it is durable. Refusals are in the log, as many as its bound allows. The log of rules
 * (`log`) has the commands on rules alone, because each job's start would push one of them out;
 * those on jobs and mounts are in the server's own log.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "server/cluster_private.h"

/* What is being answered. */
typedef struct {
    QosCluster *cluster;
    const QosAsker *asker;
    gsize room; /* bytes of the answer */
    QosClusterAnswer done;
    gpointer arg;
} Ask;

static void refuse(const Ask *ask, const GError *error)
{
    ask->done(error->code, error->message, ask->arg);
}

/* Answers with the text, which is freed. */
static void answer(const Ask *ask, char *text)
{
    ask->done(0, text, ask->arg);
    g_free(text);
}

static void note_refusal(QosCluster *cluster, const char *asker, const char *text)
{
    g_autofree char *safe = g_strescape(text, NULL);

    cluster->refused++;
    qos_complain(&cluster->complaints, G_LOG_LEVEL_WARNING, qos_cluster_now(),
                 "%s may not change the rules of the cluster, and was refused: %.100s", asker,
                 safe);
}

/* TRUE, or it is answered. */
static gboolean is_permitted(const Ask *ask, const char *text)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *asker = NULL;

    if (qos_admins_permit(ask->cluster->options, ask->asker, &error))
        return TRUE;
    asker = qos_asker_text(ask->asker);
    note_refusal(ask->cluster, asker, text);
    refuse(ask, error);
    return FALSE;
}

/* --- what waits for the database --- */

static QosClusterRequest *add_request(const Ask *ask, const char *text)
{
    QosClusterRequest *request = g_new0(QosClusterRequest, 1);

    request->cluster = ask->cluster;
    request->done = ask->done;
    request->arg = ask->arg;
    request->asker = qos_asker_text(ask->asker);
    request->text = g_strdup(text);
    request->link.data = request;
    g_queue_push_tail_link(&ask->cluster->requests, &request->link);
    return request;
}

/* Answers it, unless the asker is gone, and frees it. */
static void end_request(QosClusterRequest *request, const GError *error)
{
    g_queue_unlink(&request->cluster->requests, &request->link);
    if (request->done != NULL)
        request->done(error != NULL ? error->code : 0, error != NULL ? error->message : "",
                      request->arg);
    g_free(request->asker);
    g_free(request->text);
    g_free(request);
}

void qos_cluster_requests_durable(QosCluster *cluster, guint64 number)
{
    for (GList *link = cluster->requests.head, *next; link != NULL; link = next) {
        QosClusterRequest *request = link->data;
        next = link->next;
        if (request->number > 0 && request->number <= number)
            end_request(request, NULL);
    }
}

void qos_cluster_forget(QosCluster *cluster, gconstpointer arg)
{
    for (GList *link = cluster->requests.head; link != NULL; link = link->next) {
        QosClusterRequest *request = link->data;
        if (request->arg == arg)
            request->done = NULL;
    }
}

/* Answers when the change of that number is durable. */
static void wait_for(const Ask *ask, const char *text, guint64 number)
{
    QosClusterRequest *request = add_request(ask, text);

    request->number = number;
    g_message("%s: %s", request->asker, text);
}

static gboolean has_room(const Ask *ask, GError **error)
{
    if (ask->cluster->requests.length < QOS_CLUSTER_REQUESTS_MAX)
        return TRUE;
    qos_set_error(error, EBUSY,
                  "%u requests wait for the database already: try again; if it stays so, see "
                  "'qosfsctl server status' for what is wrong with it",
                  ask->cluster->requests.length);
    return FALSE;
}

/* --- rules --- */

static void rule_done(const GError *error, gpointer arg)
{
    QosClusterRequest *request = arg;

    if (error != NULL && error->code == EPERM && request->number == 0)
        g_info("%s: %s: %s", request->asker, request->text, error->message);
    else if (error == NULL)
        g_message("%s: rule %s: version %" G_GUINT64_FORMAT, request->asker, request->text,
                  qos_cluster_rules_version(request->cluster->rules));
    end_request(request, error);
}

static void take_rule(const Ask *ask, const char *command)
{
    if (!is_permitted(ask, command))
        return;
    qos_cluster_rules_command(ask->cluster->rules, ask->cluster->options, ask->asker, command,
                              qos_cluster_wall(), rule_done, add_request(ask, command));
}

/* --- jobs --- */

static void set_job(const Ask *ask, const char *words)
{
    QosCluster *cluster = ask->cluster;
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strconcat("job set ", words, NULL);
    QosServerJob job = {0};

    if (!is_permitted(ask, text))
        return;
    if (!has_room(ask, &error) || !qos_server_job_parse(words, qos_cluster_wall(), &job, &error) ||
        !qos_server_jobs_set(cluster->jobs, &job, &error)) {
        refuse(ask, error);
    } else {
        wait_for(ask, text,
                 qos_server_db_save_job(cluster->db, job.id, job.nodes, job.weight, job.expires));
        qos_cluster_arm(cluster, qos_cluster_now() + QOS_SECOND);
    }
    qos_server_job_clear(&job);
}

static void clear_job(const Ask *ask, const char *id)
{
    g_autofree char *text = g_strconcat("job clear ", id, NULL);
    g_autoptr(GError) error = NULL;

    if (!is_permitted(ask, text))
        return;
    if (!has_room(ask, &error)) {
        refuse(ask, error);
        return;
    }
    if (!qos_server_jobs_clear(ask->cluster->jobs, id)) {
        qos_set_error(&error, ENOENT, "nothing was told of a job %s", id);
        refuse(ask, error);
        return;
    }
    wait_for(ask, text, qos_server_db_forget_job(ask->cluster->db, id));
}

/* --- mounts --- */

static void forget_mount(const Ask *ask, const char *what)
{
    g_autofree char *text = g_strconcat("forget ", what, NULL);
    g_autofree char *asker = qos_asker_text(ask->asker);
    g_autoptr(GError) error = NULL;

    if (!is_permitted(ask, text))
        return;
    if (!qos_cluster_mounts_forget(ask->cluster->mounts, what, &error)) {
        refuse(ask, error);
        return;
    }
    g_message("%s: %s", asker, text);
    ask->done(0, "", ask->arg);
}

/* --- all --- */

/* The rest of `text` behind the words `head`, or NULL; blanks around it are cut. */
static char *behind(const char *text, const char *head)
{
    gsize length = strlen(head);

    if (strncmp(text, head, length) != 0 || text[length] != ' ')
        return NULL;
    return g_strstrip(g_strdup(text + length));
}

/* TRUE: it was such a request. */
static gboolean take_reading(const Ask *ask, const char *text)
{
    const QosCluster *cluster = ask->cluster;
    g_autofree char *job = behind(text, "why");

    if (g_str_equal(text, "status"))
        answer(ask, qos_cluster_report_status(cluster, ask->room));
    else if (g_str_equal(text, "rules"))
        answer(ask, qos_cluster_report_rules(cluster, ask->room));
    else if (g_str_equal(text, "log"))
        answer(ask, qos_cluster_report_log(cluster, ask->room));
    else if (g_str_equal(text, "jobs"))
        answer(ask, qos_cluster_report_classes(cluster, ask->room));
    else if (g_str_equal(text, "job list"))
        answer(ask, qos_cluster_report_jobs(cluster, ask->room));
    else if (job != NULL && *job != '\0')
        answer(ask, qos_cluster_report_why(cluster, job, ask->room));
    else
        return FALSE;
    return TRUE;
}

static gboolean take_change(const Ask *ask, const char *text)
{
    static const struct {
        const char *head;
        void (*take)(const Ask *ask, const char *rest);
    } changes[] = {{"rule", take_rule},
                   {"job set", set_job},
                   {"job clear", clear_job},
                   {"forget", forget_mount}};

    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autofree char *rest = behind(text, changes[i].head);
        if (rest == NULL || *rest == '\0')
            continue;
        changes[i].take(ask, rest);
        return TRUE;
    }
    return FALSE;
}

void qos_cluster_ask(QosCluster *cluster, const QosAsker *asker, const char *text,
                     gboolean is_local, QosClusterAnswer done, gpointer arg)
{
    const Ask ask = {.cluster = cluster,
                     .asker = asker,
                     .room = is_local ? G_MAXSIZE : QOS_CLUSTER_ANSWER_MAX,
                     .done = done,
                     .arg = arg};
    g_autofree char *request = g_strstrip(g_strdup(text));
    g_autoptr(GError) error = NULL;

    if (take_reading(&ask, request) || take_change(&ask, request))
        return;
    qos_set_error(&error, EINVAL,
                  "there is no such request of the cluster: there are rule start|change|stop ..., "
                  "rules, log, status, jobs, why JOB, job set|clear|list ... and forget MOUNT");
    refuse(&ask, error);
}
