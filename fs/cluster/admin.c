/*
 * Commands to the lock server (fs/cluster/admin.h).
 *
 * A question leaves the table under the lock, by the thread that is going to answer it. So it is
 * answered once, whatever comes at the same time.
 */
#include "fs/cluster/admin.h"

#include <errno.h>

#include "core/wire_cluster.h"
#include "fs/caller/signals.h"
#include "sys/mutex.h"

#define LOOK_AGAIN   (50 * QOS_MILLISECOND)
#define LOOKS        32 /* questions that are looked at so often */
#define USER_MAX     (QOS_ADMIN_MAX - QOS_ADMIN_MAX / 8)
#define REPLY_ERRORS 512 /* errnos of FUSE end before it: the kernel does not take others */

typedef struct {
    guint64 id;
    guint32 uid;
    pid_t pid;
    QosTime since; /* of qos_lockclient_clock() */
    QosAdminFunc answer;
    gpointer arg;
} Question;

struct QosAdmin {
    QosMutex lock;         /* all of it */
    QosLockclient *client; /* NULL: there was no connection yet */
    gboolean is_connected;
    guint64 last;          /* id */
    GHashTable *questions; /* id -> Question, owned */
};

QosAdmin *qos_admin_new(void)
{
    QosAdmin *admin = g_new0(QosAdmin, 1);

    qos_mutex_init(&admin->lock, QOS_MUTEX_ADMIN);
    admin->questions = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    return admin;
}

void qos_admin_free(QosAdmin *admin)
{
    if (admin == NULL)
        return;
    g_assert(g_hash_table_size(admin->questions) == 0);
    g_hash_table_unref(admin->questions);
    qos_mutex_destroy(&admin->lock);
    g_free(admin);
}

/* Takes `question`, which is in no table. */
static void answer(Question *question, int error, const char *text)
{
    question->answer(error < REPLY_ERRORS ? error : EIO, text, question->arg);
    g_free(question);
}

/* The caller answers it. NULL: another thread does, or has. */
static Question *take(QosAdmin *admin, guint64 id)
{
    gpointer question = NULL;

    qos_mutex_lock(&admin->lock);
    g_hash_table_steal_extended(admin->questions, &id, NULL, &question);
    qos_mutex_unlock(&admin->lock);
    return question;
}

/* --- asking --- */

static guint count_of_locked(const QosAdmin *admin, guint32 uid)
{
    GHashTableIter iter;
    gpointer question;
    guint count = 0;

    g_hash_table_iter_init(&iter, admin->questions);
    while (g_hash_table_iter_next(&iter, NULL, &question))
        count += ((const Question *)question)->uid == uid;
    return count;
}

/* NULL: it waits for its answer, and is not the caller's any more; *ret_id is its. Else it does
 * not, for that reason, and *ret_error is set. */
static const char *add(QosAdmin *admin, Question *question, guint64 *ret_id, int *ret_error)
{
    const char *reason = NULL;

    qos_mutex_lock(&admin->lock);
    if (!admin->is_connected) {
        *ret_error = ENOTCONN;
        reason = "the lock server is away; 'qosfsctl status' says why";
    } else if (g_hash_table_size(admin->questions) >= QOS_ADMIN_MAX ||
               count_of_locked(admin, question->uid) >= USER_MAX) {
        *ret_error = EBUSY;
        reason = "too many commands wait for the lock server's answer; try again";
    } else {
        *ret_id = question->id = ++admin->last;
        g_hash_table_insert(admin->questions, &question->id, question);
    }
    qos_mutex_unlock(&admin->lock);
    return reason;
}

/* Sends a question that is in the table. */
static void send_question(QosAdmin *admin, guint64 id, guint32 uid, const char *command)
{
    const QosWireAdmin message = {.id = id, .uid = uid, .command = (char *)command};
    GByteArray *frames = g_byte_array_new();
    Question *question;

    qos_wire_put_admin(frames, &message);
    if (qos_lockclient_send(admin->client, frames)) {
        qos_lockclient_call_at(admin->client, qos_lockclient_clock() + LOOK_AGAIN);
        return;
    }
    question = take(admin, id);
    if (question != NULL)
        answer(question, ENOTCONN, "the connection to the lock server broke, or takes nothing");
}

void qos_admin_ask(QosAdmin *admin, guint32 uid, pid_t pid, const char *command, QosAdminFunc func,
                   gpointer arg)
{
    Question *question = g_new(Question, 1);
    const char *reason;
    guint64 id;
    int error;

    *question = (Question){
        .uid = uid, .pid = pid, .since = qos_lockclient_clock(), .answer = func, .arg = arg};
    if (!qos_wire_is_command(command)) {
        answer(question, EINVAL,
               "a command is UTF-8 without control characters, neither empty nor beyond 65535 "
               "bytes");
        return;
    }
    reason = add(admin, question, &id, &error);
    if (reason == NULL)
        send_question(admin, id, uid, command);
    else
        answer(question, error, reason);
}

/* --- what the lock client tells --- */

/* All that wait; the caller frees the list, and answers them. */
static GList *take_all_locked(QosAdmin *admin)
{
    GList *questions = g_hash_table_get_values(admin->questions);

    g_hash_table_steal_all(admin->questions);
    return questions;
}

static void answer_all(GList *questions, int error, const char *text)
{
    for (GList *link = questions; link != NULL; link = link->next)
        answer(link->data, error, text);
    g_list_free(questions);
}

void qos_admin_connected(QosAdmin *admin, QosLockclient *client, gboolean is_connected)
{
    GList *questions;

    qos_mutex_lock(&admin->lock);
    if (admin->client == NULL) /* it stays the same, and is read without the lock afterwards */
        admin->client = client;
    admin->is_connected = is_connected;
    questions = is_connected ? NULL : take_all_locked(admin);
    qos_mutex_unlock(&admin->lock);
    answer_all(questions, ENOTCONN,
               "the connection to the lock server broke before its answer came; it may have "
               "carried the command out");
}

gboolean qos_admin_result(QosAdmin *admin, const guint8 *payload, gsize length)
{
    QosWireAdminResult result;
    Question *question;

    if (!qos_wire_get_admin_result(payload, length, &result))
        return FALSE;
    question = take(admin, result.id);
    if (question != NULL)
        answer(question, (int)result.error, result.text);
    qos_wire_admin_result_clear(&result);
    return TRUE;
}

/* Takes those that have waited for too long; the caller frees the list, and answers them. */
static GList *take_late_locked(QosAdmin *admin, QosTime now)
{
    GHashTableIter iter;
    gpointer question;
    GList *late = NULL;

    g_hash_table_iter_init(&iter, admin->questions);
    while (g_hash_table_iter_next(&iter, NULL, &question)) {
        if (now - ((const Question *)question)->since >= QOS_ADMIN_PATIENCE) {
            late = g_list_prepend(late, question);
            g_hash_table_iter_steal(&iter);
        }
    }
    return late;
}

/* Copies of those that wait. Free with g_array_unref(). */
static GArray *copy_locked(const QosAdmin *admin)
{
    GArray *copies = g_array_new(FALSE, FALSE, sizeof(Question));
    GHashTableIter iter;
    gpointer question;

    g_hash_table_iter_init(&iter, admin->questions);
    while (g_hash_table_iter_next(&iter, NULL, &question))
        g_array_append_vals(copies, question, 1);
    return copies;
}

/* Reads /proc for each of them. */
static void answer_killed(QosAdmin *admin, const GArray *copies)
{
    for (guint i = 0; i < copies->len; i++) {
        const Question *copy = &g_array_index(copies, Question, i);
        Question *question = qos_signals_of(copy->pid).is_killed ? take(admin, copy->id) : NULL;

        if (question != NULL)
            answer(question, EINTR, "the process was killed while it waited for the lock server");
    }
}

void qos_admin_due(QosAdmin *admin)
{
    const QosTime now = qos_lockclient_clock();
    g_autoptr(GArray) waiting = NULL;
    GList *late;

    qos_mutex_lock(&admin->lock);
    late = take_late_locked(admin, now);
    waiting = copy_locked(admin);
    qos_mutex_unlock(&admin->lock);
    answer_all(late, ETIMEDOUT,
               "the lock server has not answered within 10 s; it may yet carry the command out");
    answer_killed(admin, waiting);
    if (waiting->len > 0)
        qos_lockclient_call_at(admin->client, now + LOOK_AGAIN * (1 + waiting->len / LOOKS));
}
