/*
 * Backing files of passthrough. fs/store/passthrough.h has the contract.
 *
 * Whether a file is in passthrough is settled when it enters the table, and stays so until it
 * leaves. So each of the opens that it counts can read it without the lock. The kernel ends an
 * inode's passthrough before it sends the last RELEASE, so the next open may choose anew.
 */
#include "fs/store/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/ioctl.h>

#include "sys/mutex.h"

/* Since Linux 6.9; older headers do not have them. */
#ifndef FUSE_DEV_IOC_BACKING_OPEN
struct fuse_backing_map {
    gint32 fd;
    guint32 flags;
    guint64 padding;
};
#define FUSE_DEV_IOC_BACKING_OPEN  _IOW(229, 1, struct fuse_backing_map)
#define FUSE_DEV_IOC_BACKING_CLOSE _IOW(229, 2, guint32)
#endif

struct QosBacking {
    QosBackings *backings;
    const QosInode *inode; /* the key */
    guint opens;           /* under the table's lock */
    /* --- read-only --- */
    gint32 id; /* the kernel's name of the backing file, or 0 */
    uid_t uid; /* of the user that registered it */
    gid_t gid;
    gboolean keeps_suid; /* its writes do not clear suid bits */
};

struct QosBackings {
    struct fuse_session *session;
    QosGate *gate;
    gint has_warned;  /* atomic */
    gint were_used;   /* atomic */
    QosMutex lock;    /* the rest */
    GHashTable *open; /* QosInode -> QosBacking */
};

QosBackings *qos_backings_new(struct fuse_session *session, QosGate *gate)
{
    QosBackings *backings = g_new0(QosBackings, 1);

    qos_mutex_init(&backings->lock, QOS_MUTEX_BACKINGS);
    backings->open = g_hash_table_new(NULL, NULL);
    backings->session = session;
    backings->gate = gate;
    return backings;
}

void qos_backings_free(QosBackings *backings)
{
    if (backings == NULL)
        return;
    g_hash_table_unref(backings->open);
    qos_mutex_destroy(&backings->lock);
    g_free(backings);
}

/* --- the kernel --- */

static void warn_once(QosBackings *backings, int error)
{
    const char *hint = error == EPERM   ? "that takes root (CAP_SYS_ADMIN)"
                       : error == ELOOP ? "the store is itself stacked on another file system"
                                        : "that takes Linux 6.9 with FUSE passthrough";

    if (g_atomic_int_compare_and_exchange(&backings->has_warned, FALSE, TRUE))
        g_warning("passthrough: the kernel does not take a file of the store (%s): %s; jobs with "
                  "such a rule are served like others, without a bound",
                  g_strerror(error), hint);
}

/* The id of the open file `fd`, or 0. The kernel keeps this thread's identity with it. */
static gint32 register_file(QosBackings *backings, int fd)
{
    struct fuse_backing_map map = {.fd = fd};
    int id, error;

    qos_cred_raise_admin();
    id = ioctl(fuse_session_fd(backings->session), FUSE_DEV_IOC_BACKING_OPEN, &map);
    error = errno;
    qos_cred_lower();
    if (id > 0) {
        g_atomic_int_set(&backings->were_used, TRUE);
        return id;
    }
    warn_once(backings, error);
    return 0;
}

gboolean qos_backings_were_used(QosBackings *backings)
{
    return g_atomic_int_get(&backings->were_used);
}

static void unregister_file(QosBackings *backings, gint32 id)
{
    guint32 which = (guint32)id;

    if (id == 0)
        return;
    qos_cred_raise_admin();
    (void)ioctl(fuse_session_fd(backings->session), FUSE_DEV_IOC_BACKING_CLOSE, &which);
    qos_cred_lower();
}

/* --- the table --- */

static QosBacking *add_locked(QosBackings *backings, const QosInode *inode, gint32 id,
                              const QosCaller *opener)
{
    QosBacking *backing = g_new(QosBacking, 1);

    *backing = (QosBacking){
        .backings = backings,
        .inode = inode,
        .id = id,
        .uid = opener->uid,
        .gid = opener->gid,
        .keeps_suid = qos_cred_keeps_suid(),
    };
    g_hash_table_insert(backings->open, (gpointer)inode, backing);
    return backing;
}

static QosBacking *count_open(QosBackings *backings, const QosLoan *file, int fd,
                              const QosCaller *opener, gboolean wants)
{
    gint32 id = 0;
    QosBacking *backing;

    qos_mutex_lock(&backings->lock);
    backing = g_hash_table_lookup(backings->open, file->inode);
    if (backing == NULL && wants) {
        qos_mutex_unlock(&backings->lock);
        id = register_file(backings, fd);
        qos_mutex_lock(&backings->lock);
        backing = g_hash_table_lookup(backings->open, file->inode);
    }
    if (backing == NULL) {
        backing = add_locked(backings, file->inode, id, opener);
        id = 0;
    }
    backing->opens++;
    qos_mutex_unlock(&backings->lock);
    unregister_file(backings, id);
    return backing;
}

QosBackingOpen qos_backings_join(QosBackings *backings, const QosLoan *file, int fd, int flags,
                                 const QosCaller *opener, gboolean wants)
{
    QosBacking *backing = count_open(backings, file, fd, opener, wants);
    QosBackingOpen open = {.backing = backing, .id = backing->id};

    if (open.id == 0)
        return open;
    open.is_direct = !wants || (flags & O_APPEND) != 0 || opener->uid != backing->uid ||
                     opener->gid != backing->gid || qos_cred_keeps_suid() != backing->keeps_suid;
    if (!open.is_direct) {
        open.job = opener->job;
        qos_gate_count_passthrough(backings->gate, open.job, 1);
    }
    return open;
}

void qos_backing_leave(QosBackingOpen *open)
{
    QosBacking *backing = open->backing;
    QosBackings *backings;
    gboolean is_last;

    if (backing == NULL)
        return;
    backings = backing->backings;
    if (open->job != NULL)
        qos_gate_count_passthrough(backings->gate, open->job, -1);
    qos_mutex_lock(&backings->lock);
    backing->opens--;
    is_last = backing->opens == 0;
    if (is_last)
        g_hash_table_remove(backings->open, backing->inode);
    qos_mutex_unlock(&backings->lock);
    *open = (QosBackingOpen){0};
    if (!is_last)
        return;
    unregister_file(backings, backing->id);
    g_free(backing);
}
