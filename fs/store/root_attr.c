/*
 * The root's attributes (fs/store/root_attr.h).
 */
#include "fs/store/root_attr.h"

#include <errno.h>
#include <fcntl.h>

#include "base/error.h"
#include "sys/mutex.h"

struct QosRootAttr {
    QosGate *gate;
    QosMutex lock;    /* everything below */
    struct stat stat; /* as last seen */
};

QosRootAttr *qos_root_attr_new(QosGate *gate, QosInodes *inodes, GError **error)
{
    QosRootAttr *root = g_new0(QosRootAttr, 1);
    g_auto(QosInodeRef) directory = {0};
    int result = qos_inodes_get(inodes, FUSE_ROOT_ID, &directory);

    root->gate = gate;
    qos_mutex_init(&root->lock, QOS_MUTEX_ROOT_ATTR);
    if (result == 0 && fstatat(directory.fd, "", &root->stat, AT_EMPTY_PATH) != 0)
        result = -errno;
    if (result == 0)
        return root;
    qos_set_error(error, -result, "cannot ask the store for its root's attributes: %s",
                  g_strerror(-result));
    qos_root_attr_free(root);
    return NULL;
}

void qos_root_attr_free(QosRootAttr *root)
{
    if (root == NULL)
        return;
    qos_mutex_destroy(&root->lock);
    g_free(root);
}

void qos_root_attr_note(QosRootAttr *root, const struct stat *stat)
{
    qos_mutex_lock(&root->lock);
    root->stat = *stat;
    qos_mutex_unlock(&root->lock);
}

gboolean qos_root_attr_recall(QosRootAttr *root, struct stat *ret_stat)
{
    QosSchedState state;

    qos_sched_state(qos_gate_lock(root->gate), &state);
    qos_gate_unlock(root->gate);
    if (qos_clock_now() < qos_time_add(state.oldest, QOS_ROOT_ATTR_TIME))
        return FALSE;
    qos_mutex_lock(&root->lock);
    *ret_stat = root->stat;
    qos_mutex_unlock(&root->lock);
    return TRUE;
}
