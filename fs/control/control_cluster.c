/*
 * The rules of the cluster, by xattrs of the mountpoint:
 *
 *     setxattr user.qosfs.cluster "rule start big ..."     a command
 *     getxattr user.qosfs.cluster:status                   a question
 *
 * The lock server keeps these rules, and decides which users may change them (server/admins.h). So
 * the mount only passes the command on, with the uid of the caller, and waits for the answer
 * without a thread (fs/cluster/admin.h). last_error has the words of a refusal, also of a question.
 *
 * A program that reads an xattr asks for its length first. Then the server is asked twice, and the
 * answers may differ in length: the second one fails with ERANGE where it does not fit, and the
 * program asks again. So only words that change nothing can be asked this way.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "fs/cluster/admin.h"
#include "fs/control/state.h"

/* A request that waits for the server. */
typedef struct {
    fuse_req_t request;
    gboolean is_set;
    size_t size; /* of a question: as qos_control_getxattr() */
} Waiting;

/* Takes `waiting`. The request's context is libfuse's until the reply. */
static void answer(int error, const char *text, gpointer arg)
{
    g_autofree Waiting *waiting = arg;
    QosControl *control = qos_fs(waiting->request)->control;

    if (error != 0 || waiting->is_set)
        qos_control_keep_error(control, fuse_req_ctx(waiting->request)->uid,
                               error != 0 ? text : NULL);
    if (error != 0 || waiting->is_set)
        fuse_reply_err(waiting->request, error);
    else
        qos_control_answer_value(waiting->request, waiting->size, text, strlen(text));
}

/* Takes `waiting`. */
static void ask(Waiting *waiting, const char *command)
{
    const QosFs *fs = qos_fs(waiting->request);
    const struct fuse_ctx *caller = fuse_req_ctx(waiting->request);

    if (fs->admin == NULL)
        answer(EOPNOTSUPP,
               "this mount has no lock server, so it has no rules of the cluster: "
               "mount with -o server=ADDRESS",
               waiting);
    else
        qos_admin_ask(fs->admin, caller->uid, caller->pid, command, answer, waiting);
}

static Waiting *wait_for_answer(fuse_req_t request, gboolean is_set, size_t size)
{
    Waiting *waiting = g_new(Waiting, 1);

    *waiting = (Waiting){.request = request, .is_set = is_set, .size = size};
    return waiting;
}

void qos_control_tell_cluster(fuse_req_t request, const char *value, size_t size)
{
    Waiting *waiting = wait_for_answer(request, TRUE, 0);
    g_autoptr(GError) error = NULL;
    g_autofree char *command = qos_control_text_of(value, size, &error);

    if (command != NULL)
        ask(waiting, command);
    else
        answer(error->code, error->message, waiting);
}

/* Whether it changes nothing. */
static gboolean is_question(const char *what)
{
    static const char *const questions[] = {"rules", "log", "status", "jobs", "why", NULL};
    g_auto(GStrv) words = g_strsplit(what, " ", 2);

    return g_str_equal(what, "job list") ||
           (words[0] != NULL && g_strv_contains(questions, words[0]));
}

void qos_control_ask_cluster(fuse_req_t request, size_t size, const char *what)
{
    Waiting *waiting = wait_for_answer(request, FALSE, size);

    if (is_question(what))
        ask(waiting, what);
    else
        answer(EINVAL,
               "what can be read of the cluster is: rules, log, status, jobs, why JOB, job list",
               waiting);
}
