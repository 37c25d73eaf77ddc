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

struct QosPassthrough {
    QosPassthroughs *passthroughs;
    const QosInode *inode; /* the key */
    guint opens;           /* under the table's lock */
    /* --- read-only --- */
    gint32 id; /* the kernel's name of the backing file, or 0 */
    uid_t uid; /* of the user that registered it */
    gid_t gid;
    gboolean keeps_suid; /* its writes do not clear suid bits */
};

struct QosPassthroughs {
    struct fuse_session *session;
    QosGate *gate;
    gint has_warned;  /* atomic */
    gint were_used;   /* atomic */
    QosMutex lock;    /* the rest */
    GHashTable *open; /* QosInode -> QosPassthrough */
};

QosPassthroughs *qos_passthroughs_new(struct fuse_session *session, QosGate *gate)
{
    QosPassthroughs *passthroughs = g_new0(QosPassthroughs, 1);

    qos_mutex_init(&passthroughs->lock, QOS_MUTEX_PASSTHROUGHS);
    passthroughs->open = g_hash_table_new(NULL, NULL);
    passthroughs->session = session;
    passthroughs->gate = gate;
    return passthroughs;
}

void qos_passthroughs_free(QosPassthroughs *passthroughs)
{
    if (passthroughs == NULL)
        return;
    g_hash_table_unref(passthroughs->open);
    qos_mutex_destroy(&passthroughs->lock);
    g_free(passthroughs);
}

/* --- the kernel --- */

static void warn_once(QosPassthroughs *passthroughs, int error)
{
    const char *hint = error == EPERM   ? "that takes root (CAP_SYS_ADMIN)"
                       : error == ELOOP ? "the store is itself stacked on another file system"
                                        : "that takes Linux 6.9 with FUSE passthrough";

    if (g_atomic_int_compare_and_exchange(&passthroughs->has_warned, FALSE, TRUE))
        g_warning("passthrough: the kernel does not take a file of the store (%s): %s; jobs with "
                  "such a rule are served like others, without a bound",
                  g_strerror(error), hint);
}

/* The id of the open file `fd`, or 0. The kernel keeps this thread's identity with it. */
static gint32 register_file(QosPassthroughs *passthroughs, int fd)
{
    struct fuse_backing_map map = {.fd = fd};
    int id, error;

    qos_cred_raise_admin();
    id = ioctl(fuse_session_fd(passthroughs->session), FUSE_DEV_IOC_BACKING_OPEN, &map);
    error = errno;
    qos_cred_lower();
    if (id > 0) {
        g_atomic_int_set(&passthroughs->were_used, TRUE);
        return id;
    }
    warn_once(passthroughs, error);
    return 0;
}

gboolean qos_passthroughs_were_used(QosPassthroughs *passthroughs)
{
    return g_atomic_int_get(&passthroughs->were_used);
}

static void unregister_file(QosPassthroughs *passthroughs, gint32 id)
{
    guint32 which = (guint32)id;

    if (id == 0)
        return;
    qos_cred_raise_admin();
    (void)ioctl(fuse_session_fd(passthroughs->session), FUSE_DEV_IOC_BACKING_CLOSE, &which);
    qos_cred_lower();
}

/* --- the table --- */

static QosPassthrough *add_locked(QosPassthroughs *passthroughs, const QosInode *inode, gint32 id,
                                  const QosCaller *opener)
{
    QosPassthrough *passthrough = g_new(QosPassthrough, 1);

    *passthrough = (QosPassthrough){
        .passthroughs = passthroughs,
        .inode = inode,
        .id = id,
        .uid = opener->uid,
        .gid = opener->gid,
        .keeps_suid = qos_cred_keeps_suid(),
    };
    g_hash_table_insert(passthroughs->open, (gpointer)inode, passthrough);
    return passthrough;
}

static QosPassthrough *count_open(QosPassthroughs *passthroughs, const QosInodeRef *file, int fd,
                                  const QosCaller *opener, gboolean wants)
{
    gint32 id = 0;
    QosPassthrough *passthrough;

    qos_mutex_lock(&passthroughs->lock);
    passthrough = g_hash_table_lookup(passthroughs->open, file->inode);
    if (passthrough == NULL && wants) {
        qos_mutex_unlock(&passthroughs->lock);
        id = register_file(passthroughs, fd);
        qos_mutex_lock(&passthroughs->lock);
        passthrough = g_hash_table_lookup(passthroughs->open, file->inode);
    }
    if (passthrough == NULL) {
        passthrough = add_locked(passthroughs, file->inode, id, opener);
        id = 0;
    }
    passthrough->opens++;
    qos_mutex_unlock(&passthroughs->lock);
    unregister_file(passthroughs, id);
    return passthrough;
}

QosPassthroughOpen qos_passthroughs_join(QosPassthroughs *passthroughs, const QosInodeRef *file,
                                         int fd, int flags, const QosCaller *opener, gboolean wants)
{
    QosPassthrough *passthrough = count_open(passthroughs, file, fd, opener, wants);
    QosPassthroughOpen open = {.passthrough = passthrough, .id = passthrough->id};

    if (open.id == 0)
        return open;
    open.is_direct = !wants || (flags & O_APPEND) != 0 || opener->uid != passthrough->uid ||
                     opener->gid != passthrough->gid ||
                     qos_cred_keeps_suid() != passthrough->keeps_suid;
    if (!open.is_direct) {
        open.job = opener->job;
        qos_gate_count_passthrough(passthroughs->gate, open.job, 1);
    }
    return open;
}

void qos_passthrough_leave(QosPassthroughOpen *open)
{
    QosPassthrough *passthrough = open->passthrough;
    QosPassthroughs *passthroughs;
    gboolean is_last;

    if (passthrough == NULL)
        return;
    passthroughs = passthrough->passthroughs;
    if (open->job != NULL)
        qos_gate_count_passthrough(passthroughs->gate, open->job, -1);
    qos_mutex_lock(&passthroughs->lock);
    passthrough->opens--;
    is_last = passthrough->opens == 0;
    if (is_last)
        g_hash_table_remove(passthroughs->open, passthrough->inode);
    qos_mutex_unlock(&passthroughs->lock);
    *open = (QosPassthroughOpen){0};
    if (!is_last)
        return;
    unregister_file(passthroughs, passthrough->id);
    g_free(passthrough);
}
