/*
 * Extended attributes, among them POSIX ACLs.
 *
 * They are the store's own, and are reached by the path of the inode's descriptor, because that
 * serves files of every type. Only the root's user.qosfs.* belong to control.
 */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/xattr.h>

#include "fs/caller/proc.h"
#include "fs/control/control.h"
#include "fs/ops/operations.h"
#include "fs/ops/privileges.h"
#include "fs/ops/rights.h"
#include "fs/store/mount_flags.h"
#include "fs/transport/reply_buffer.h"

#define CAPABILITIES "security.capability"

typedef struct {
    QosOp op;
    fuse_ino_t ino;
    const char *name;
    const void *value;
    size_t size;
    int flags;
} XattrOp;

/* The xattrs that the kernel asks for by itself, some while it has the file's lock: before a write,
 * and to see whether a caller that does not own a directory may make or remove a name there. */
static const char *const asked_by_kernel[] = {CAPABILITIES, "system.posix_acl_access",
                                              "system.posix_acl_default", NULL};

#define ACLS "system.posix_acl_"

static XattrOp *xattr_op_new(fuse_req_t request, fuse_ino_t ino, const char *name, QosOpcode opcode,
                             int (*run)(QosOp *op))
{
    XattrOp *op = qos_op_new(request, sizeof(*op), opcode, run);

    op->ino = op->op.target.node = ino;
    op->name = name == NULL ? NULL : qos_op_strdup(&op->op, name);
    return op;
}

/* The file's path, good while it is lent: setxattr() and the like take no descriptor that has
 * O_PATH. 0, or -errno. */
static int get_path(const QosOp *op, fuse_ino_t ino, QosInodeRef *file,
                    char path[QOS_PROC_PATH_MAX])
{
    const int error = qos_inodes_get(op->fs->inodes, ino, file);

    if (error == 0)
        qos_proc_path(file->fd, path);
    return error;
}

/* An ACL changes the mode. The kernel forgets both when it has the answer, but would believe an
 * earlier request's answer that comes after it. */
static void tell_of_change(const QosOp *op, const char *name)
{
    if (g_str_has_prefix(name, ACLS))
        qos_privileges_forget_attributes(op, op->target.node);
}

/* The kernel demands CAP_SYS_ADMIN for trusted names before it sends the request, and the store
 * says ENODATA to a reader without it. Setting an ACL without CAP_FSETID may clear the sgid bit. */
static void bring_capabilities(XattrOp *xattr)
{
    if (g_str_has_prefix(xattr->name, "trusted."))
        qos_cred_give(QOS_CAPABILITY(CAP_SYS_ADMIN));
    else if (xattr->value != NULL && g_str_has_prefix(xattr->name, ACLS))
        qos_rights_claim(&xattr->op, QOS_CAPABILITY(CAP_FSETID));
}

static int run_setxattr(QosOp *op)
{
    XattrOp *xattr = (XattrOp *)op;
    char path[QOS_PROC_PATH_MAX];
    g_auto(QosInodeRef) file = {0};
    int error = get_path(op, xattr->ino, &file, path);

    if (error != 0)
        return error;
    bring_capabilities(xattr);
    if (setxattr(path, xattr->name, xattr->value, xattr->size, xattr->flags) != 0)
        return -errno;
    tell_of_change(op, xattr->name);
    return 0;
}

void qosfs_op_setxattr(fuse_req_t request, fuse_ino_t ino, const char *name, const char *value,
                       size_t size, int flags)
{
    XattrOp *xattr;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, EPERM);
        return;
    }
    if (ino == FUSE_ROOT_ID && qos_control_setxattr(request, name, value, size))
        return;
    xattr = xattr_op_new(request, ino, name, QOS_OP_SETXATTR, run_setxattr);
    xattr->value = qos_op_memdup(&xattr->op, value, size);
    xattr->size = xattr->op.entry.request.data = size;
    xattr->flags = flags;
    qos_op_lock_file(&xattr->op, ino, NULL);
    qos_op_submit(&xattr->op);
}

/* A size of 0 asks for the length alone. */
static void reply_value(QosOp *op, size_t size, const void *value, size_t length)
{
    if (size == 0) {
        op->reply.kind = QOS_REPLY_XATTR;
        op->reply.count = length;
    } else {
        op->reply.kind = QOS_REPLY_DATA;
        op->reply.data.bytes = value;
        op->reply.data.length = length;
    }
}

/* Whether a program that is executed from the file gets none of its capabilities. */
static gboolean hides_capabilities(const QosInodeRef *file)
{
    return (qos_inode_ref_forbids(file) & MS_NOSUID) != 0;
}

static int run_getxattr(QosOp *op)
{
    XattrOp *xattr = (XattrOp *)op;
    char path[QOS_PROC_PATH_MAX];
    void *value = qos_reply_buffer(xattr->size);
    g_auto(QosInodeRef) file = {0};
    int error = get_path(op, xattr->ino, &file, path);
    ssize_t length;

    if (error != 0)
        return error;
    bring_capabilities(xattr);
    length = getxattr(path, xattr->name, value, xattr->size);
    error = length < 0 ? -errno : 0;
    if ((error == 0 || error == -ERANGE) && g_str_equal(xattr->name, CAPABILITIES) &&
        hides_capabilities(&file))
        return -ENODATA;
    /* The kernel asks before it judges by the mode, and a store that knows no ACLs has none there:
     * it would pass any error other than "none" on to callers that are not the owner. */
    if (error == -EOPNOTSUPP && g_str_has_prefix(xattr->name, ACLS))
        return -ENODATA;
    if (error != 0)
        return error;
    reply_value(op, xattr->size, value, (size_t)length);
    return 0;
}

void qosfs_op_getxattr(fuse_req_t request, fuse_ino_t ino, const char *name, size_t size)
{
    XattrOp *xattr;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, ENODATA);
        return;
    }
    if (ino == FUSE_ROOT_ID && qos_control_getxattr(request, name, size))
        return;
    xattr = xattr_op_new(request, ino, name, QOS_OP_GETXATTR, run_getxattr);
    xattr->size = size;
    if (g_strv_contains(asked_by_kernel, name)) {
        xattr->op.target.may_be_unasked = TRUE;
        qos_op_lock_file(&xattr->op, ino, NULL);
    }
    qos_op_submit(&xattr->op);
}

/* Takes out the names that are control's: the root of the store may have them, from a backup of a
 * mount by a version that listed them. Returns the new length. */
static ssize_t without_settings(char *names, ssize_t length)
{
    ssize_t kept = 0;

    for (ssize_t at = 0; at < length;) {
        const ssize_t size = (ssize_t)strlen(names + at) + 1;

        if (!g_str_has_prefix(names + at, QOS_XATTR_PREFIX)) {
            memmove(names + kept, names + at, (gsize)size);
            kept += size;
        }
        at += size;
    }
    return kept;
}

/* Takes one out of the list of names; its new length. */
static ssize_t leave_out(char *names, ssize_t length, const char *name)
{
    for (char *one = names; one < names + length; one += strlen(one) + 1) {
        const size_t size = strlen(one) + 1;

        if (!g_str_equal(one, name))
            continue;
        memmove(one, one + size, (size_t)(names + length - (one + size)));
        return length - (ssize_t)size;
    }
    return length;
}

/* The store's names: into the thread's buffer of XATTR_LIST_MAX. Trusted names are listed only with
 * CAP_SYS_ADMIN. */
static ssize_t list_store(QosOp *op, fuse_ino_t ino, char *names)
{
    char path[QOS_PROC_PATH_MAX];
    g_auto(QosInodeRef) file = {0};
    int error = get_path(op, ino, &file, path);
    ssize_t length;

    if (error != 0)
        return error;
    qos_rights_claim(op, QOS_CAPABILITY(CAP_SYS_ADMIN));
    length = listxattr(path, names, XATTR_LIST_MAX);
    if (length < 0)
        return -errno;
    return length > 0 && hides_capabilities(&file) ? leave_out(names, length, CAPABILITIES)
                                                   : length;
}

/*
 * The settings of the root are not listed; nor do other file systems list their xattrs for
 * administrators. Programs that copy what is listed (rsync -X, cp -a, tar --xattrs) would carry
 * them into backups, and a restore would set another mount's.
 */
static int run_listxattr(QosOp *op)
{
    XattrOp *xattr = (XattrOp *)op;
    char *names = qos_reply_buffer(XATTR_LIST_MAX);
    ssize_t length = list_store(op, xattr->ino, names);

    if (length < 0)
        return (int)length;
    if (xattr->ino == FUSE_ROOT_ID)
        length = without_settings(names, length);
    if (xattr->size != 0 && (size_t)length > xattr->size)
        return -ERANGE;
    reply_value(op, xattr->size, names, (size_t)length);
    return 0;
}

void qosfs_op_listxattr(fuse_req_t request, fuse_ino_t ino, size_t size)
{
    XattrOp *xattr;

    if (qos_control_owns(ino)) {
        if (size == 0)
            fuse_reply_xattr(request, 0);
        else
            fuse_reply_buf(request, NULL, 0);
        return;
    }
    xattr = xattr_op_new(request, ino, NULL, QOS_OP_LISTXATTR, run_listxattr);
    xattr->size = size;
    qos_op_submit(&xattr->op);
}

/* A change of a file takes its capabilities away, and the kernel sends a REMOVEXATTR for that in
 * the name of the caller. A program that calls removexattr(2) itself needs CAP_SETFCAP, which the
 * kernel checks first, and the store lets it. So if the store refuses, the request is the kernel's
 * own. A daemon of an ordinary user cannot remove them, and need not, because the store does so at
 * the change that follows. If it is refused, only root is told. */
static int drop_capabilities(const QosOp *op, const char *path)
{
    int error;

    qos_cred_raise();
    error = removexattr(path, CAPABILITIES) == 0 ? 0 : -errno;
    qos_cred_lower();
    return error == -EPERM && op->caller->uid != 0 ? 0 : error;
}

static int run_removexattr(QosOp *op)
{
    XattrOp *xattr = (XattrOp *)op;
    char path[QOS_PROC_PATH_MAX];
    g_auto(QosInodeRef) file = {0};
    int error = get_path(op, xattr->ino, &file, path);

    if (error != 0)
        return error;
    bring_capabilities(xattr);
    if (removexattr(path, xattr->name) == 0) {
        tell_of_change(op, xattr->name);
        return 0;
    }
    return errno == EPERM && g_str_equal(xattr->name, CAPABILITIES) ? drop_capabilities(op, path)
                                                                    : -errno;
}

void qosfs_op_removexattr(fuse_req_t request, fuse_ino_t ino, const char *name)
{
    XattrOp *xattr;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, EPERM);
        return;
    }
    if (ino == FUSE_ROOT_ID && qos_control_removexattr(request, name))
        return;
    xattr = xattr_op_new(request, ino, name, QOS_OP_REMOVEXATTR, run_removexattr);
    qos_op_lock_file(&xattr->op, ino, NULL);
    qos_op_submit(&xattr->op);
}
