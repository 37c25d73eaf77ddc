/*
 * The root's attributes (fs/store/root_attr.h).
 */
#include "fs/store/root_attr.h"

#include <errno.h>
#include <fcntl.h>

#include "base/error.h"
#include "sys/service_thread.h"

struct QosRoot {
    QosGate *gate;
    QosServiceThread thread;
    QosLoan directory;
    QosMutex lock; /* everything below */
    struct stat stat;
    QosTime asked; /* atomic: when the thread asked the store and had no answer yet, 0 = not now */
};

/* TRUE where a request has been in the store for long. */
static gboolean has_delay(QosGate *gate)
{
    QosSchedState state;

    qos_sched_state(qos_gate_lock(gate), &state);
    qos_gate_unlock(gate);
    return qos_gate_now() >= qos_time_add(state.oldest, QOS_ROOT_TIME);
}

static void ask_locked(QosRoot *root)
{
    struct stat stat;
    gboolean is_known;

    __atomic_store_n(&root->asked, qos_gate_now(), __ATOMIC_RELAXED);
    qos_mutex_unlock(&root->lock);
    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    is_known = fstatat(root->directory.fd, "", &stat, AT_EMPTY_PATH) == 0;
    qos_mutex_lock(&root->lock);
    __atomic_store_n(&root->asked, 0, __ATOMIC_RELAXED);
    if (is_known)
        root->stat = stat;
}

/* While no request is in the store it waits at the gate, whose stop ends that. */
static QosTime watch(gpointer data)
{
    QosRoot *root = data;

    qos_mutex_unlock(&root->lock);
    const gboolean has_request = qos_gate_await_request(root->gate);
    qos_mutex_lock(&root->lock);
    if (!has_request)
        return QOS_NEVER;
    const QosTime next = qos_gate_now() + QOS_ROOT_TIME;
    if (has_delay(root->gate))
        ask_locked(root);
    return next;
}

static void clear(QosRoot *root)
{
    qos_loan_return(&root->directory);
    qos_mutex_destroy(&root->lock);
    g_free(root);
}

QosRoot *qos_root_new(QosGate *gate, QosInodes *inodes, GError **error)
{
    QosRoot *root = g_new0(QosRoot, 1);
    int result = qos_inodes_borrow(inodes, FUSE_ROOT_ID, &root->directory);

    root->gate = gate;
    qos_mutex_init(&root->lock, QOS_MUTEX_ROOT);
    if (result == 0 && fstatat(root->directory.fd, "", &root->stat, AT_EMPTY_PATH) != 0)
        result = -errno;
    if (result != 0)
        qos_set_error(error, -result, "cannot ask the store for its root's attributes: %s",
                      g_strerror(-result));
    else if (qos_service_thread_start(&root->thread, "root", &root->lock, watch, root, error))
        return root;
    clear(root);
    return NULL;
}

void qos_root_free(QosRoot *root)
{
    if (root == NULL)
        return;
    qos_service_thread_stop(&root->thread);
    clear(root);
}

void qos_root_note(QosRoot *root, const struct stat *stat)
{
    qos_mutex_lock(&root->lock);
    root->stat = *stat;
    qos_mutex_unlock(&root->lock);
}

gboolean qos_root_recall(QosRoot *root, struct stat *ret_stat)
{
    gboolean is_needed;

    if (__atomic_load_n(&root->asked, __ATOMIC_RELAXED) == 0)
        return FALSE;
    qos_mutex_lock(&root->lock);
    is_needed = root->asked != 0 && qos_gate_now() - root->asked >= QOS_ROOT_TIME;
    *ret_stat = root->stat;
    qos_mutex_unlock(&root->lock);
    return is_needed;
}
