/*
 * The capabilities of callers. fs/ops/rights.h has the contract.
 */
#include "fs/ops/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/caller/proc.h"
#include "fs/request/fs.h"
#include "fs/store/inode.h"

#define ALL    (~G_GUINT64_CONSTANT(0))
#define ROOM   QOS_CAPABILITY(CAP_SYS_RESOURCE)
#define OWNER  QOS_CAPABILITY(CAP_FOWNER)
#define FSETID QOS_CAPABILITY(CAP_FSETID)
/* Permission bits. */
#define ACCESS (QOS_CAPABILITY(CAP_DAC_OVERRIDE) | QOS_CAPABILITY(CAP_DAC_READ_SEARCH))
/* The capabilities that count in another user namespace; and the part of them that counts for
 * names. */
#define OF_FILES (OF_NAMES | QOS_CAPABILITY(CAP_CHOWN) | QOS_CAPABILITY(CAP_SETFCAP))
#define OF_NAMES (ACCESS | OWNER | FSETID)
/* Root has these if the daemon cannot see the capabilities by which the kernel judges: the kernel
 * checks these by itself before it asks. */
#define OF_UNSEEN (OF_FILES | QOS_CAPABILITY(CAP_MKNOD))

/* JUDGED are the operations for which the store looks at capabilities, beside the room for data. */
#define BIT(opcode) ((QosOpcodeSet)1 << (opcode))
#define TAKES_ROOM  (BIT(QOS_OP_WRITE) | MOVES_DATA)
#define MOVES_DATA  (BIT(QOS_OP_FALLOCATE) | BIT(QOS_OP_COPY))
#define CHANGES_NAME                                                                               \
    (BIT(QOS_OP_MKNOD) | BIT(QOS_OP_MKDIR) | BIT(QOS_OP_SYMLINK) | BIT(QOS_OP_LINK) |              \
     BIT(QOS_OP_UNLINK) | BIT(QOS_OP_RMDIR) | BIT(QOS_OP_RENAME) | BIT(QOS_OP_CREATE))
#define TAKES_NAME (BIT(QOS_OP_UNLINK) | BIT(QOS_OP_RMDIR) | BIT(QOS_OP_RENAME))
#define JUDGED                                                                                     \
    (CHANGES_NAME | BIT(QOS_OP_LOOKUP) | BIT(QOS_OP_READDIR) | BIT(QOS_OP_OPEN) |                  \
     BIT(QOS_OP_OPENDIR) | BIT(QOS_OP_SETATTR) | BIT(QOS_OP_ACCESS) | BIT(QOS_OP_GETXATTR) |       \
     BIT(QOS_OP_SETXATTR) | BIT(QOS_OP_LISTXATTR) | BIT(QOS_OP_REMOVEXATTR) | BIT(QOS_OP_IOCTL))
/* The kernel does not judge these before it asks. */
#define JUDGED_HERE_ALONE (BIT(QOS_OP_LISTXATTR) | BIT(QOS_OP_IOCTL) | MOVES_DATA)

/* It may be another thread than the one that opened the file. Not of a release, which may have been
 * answered before. */
static pid_t calling_thread(const QosOp *op)
{
    return fuse_req_ctx(op->fuse)->pid;
}

static gboolean is_one_of(const QosOp *op, QosOpcodeSet opcodes)
{
    return (opcodes & BIT(op->entry.request.opcode)) != 0;
}

/* --- the beginning --- */

static guint64 in_own_namespace(pid_t tid, guint64 effective)
{
    switch (qos_proc_namespace(tid)) {
    case QOS_NAMESPACE_OWN:
        return effective;
    case QOS_NAMESPACE_UNKNOWN:
        return effective & OF_UNSEEN;
    default:
        return 0;
    }
}

/* The cache of callers is not right any more. */
static guint64 read_anew(const QosOp *op, pid_t tid)
{
    guint64 effective;

    return qos_proc_acts_as(tid, op->caller->uid, &effective) ? in_own_namespace(tid, effective)
                                                              : OF_UNSEEN;
}

/* As the cache of callers knows them. */
static guint64 remembered(const QosCaller *caller)
{
    switch (caller->namespace) {
    case QOS_NAMESPACE_OWN:
        return caller->capabilities;
    case QOS_NAMESPACE_UNKNOWN:
        return OF_UNSEEN;
    default:
        return 0;
    }
}

static guint64 first_of_trusted(const QosOp *op)
{
    const QosCaller *caller = op->caller;
    guint64 effective;
    pid_t tid;

    if (caller->is_proxy)
        return OF_UNSEEN;
    if (caller->namespace == QOS_NAMESPACE_OTHER || !is_one_of(op, JUDGED | MOVES_DATA))
        return remembered(caller);
    tid = calling_thread(op);
    if (tid == 0)
        return OF_UNSEEN;
    effective = qos_proc_capabilities(tid);
    if (caller->namespace == QOS_NAMESPACE_UNKNOWN)
        return OF_UNSEEN & effective;
    if (effective != caller->capabilities)
        return read_anew(op, tid);
    return is_one_of(op, JUDGED_HERE_ALONE) ? in_own_namespace(tid, effective) : effective;
}

guint64 qos_rights_first(const QosOp *op)
{
    return qos_cred_trusts(op->caller->uid) ? first_of_trusted(op) & ~ROOM : 0;
}

/* --- in another user namespace --- */

typedef struct {
    const QosOp *op;
    const QosIdMaps *maps;
    guint64 usable; /* what is left of the capabilities */
} Judgement;

static gboolean has_owner(const QosIdMaps *maps, const struct stat *stat)
{
    return qos_id_ranges_have(maps->uids, stat->st_uid);
}

static gboolean has_both(const QosIdMaps *maps, const struct stat *stat)
{
    return has_owner(maps, stat) && qos_id_ranges_have(maps->gids, stat->st_gid);
}

/* The one file that the operation is about. The kernel's inode_owner_or_capable() checks the id of
 * the owner alone. */
static void judge_object(Judgement *judgement, int fd)
{
    struct stat stat;

    if (fstatat(fd, "", &stat, AT_EMPTY_PATH) != 0 || !has_owner(judgement->maps, &stat))
        judgement->usable = 0;
    else if (!has_both(judgement->maps, &stat))
        judgement->usable &= OWNER;
}

/* One of several files that the operation touches. ACCESS counts for all of them or for none: if a
 * file has no ids in the namespace, it must let the caller pass (`mask`) without. */
static void judge_part(Judgement *judgement, int fd, int mask)
{
    struct stat stat;

    judgement->usable &= OF_NAMES;
    if (fstatat(fd, "", &stat, AT_EMPTY_PATH) != 0) {
        judgement->usable = 0;
        return;
    }
    if (!has_both(judgement->maps, &stat)) {
        judgement->usable &= ~FSETID;
        if (faccessat(fd, "", mask, AT_EACCESS | AT_EMPTY_PATH) != 0)
            judgement->usable &= ~ACCESS;
    }
}

/* The file to which a new name is given. */
static void judge_linked(Judgement *judgement, int fd)
{
    struct stat stat;

    judge_part(judgement, fd, R_OK | W_OK);
    if (fstatat(fd, "", &stat, AT_EMPTY_PATH) != 0 || !has_owner(judgement->maps, &stat))
        judgement->usable &= ~OWNER;
}

/* The file that loses its name in `parent`: the sticky bit may protect it. If it is a directory
 * that moves, the kernel also demands that it is writable. */
static void judge_victim(Judgement *judgement, int parent, const char *name)
{
    struct stat stat;
    int result;

    if (name == NULL)
        return;
    qos_cred_raise();
    result = fstatat(parent, name, &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
    qos_cred_lower();
    if (result != 0 || has_both(judgement->maps, &stat))
        return;
    judgement->usable &= ~OWNER;
    if (S_ISDIR(stat.st_mode) && judgement->op->target.other_node != 0 &&
        faccessat(parent, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) != 0)
        judgement->usable &= ~ACCESS;
}

/* The directory or file `node`, of which the operation has the name `name`, or NULL. */
static void judge_node(Judgement *judgement, fuse_ino_t node, const char *name)
{
    const QosOp *op = judgement->op;
    g_auto(QosInodeRef) file = {0};

    if (node == 0)
        return;
    if (qos_inodes_get(op->fs->inodes, node, &file) != 0) {
        judgement->usable = 0;
        return;
    }
    if (is_one_of(op, BIT(QOS_OP_LINK)) && node == op->target.other_node) {
        judge_linked(judgement, file.fd);
    } else if (is_one_of(op, CHANGES_NAME)) {
        judge_part(judgement, file.fd, W_OK | X_OK);
        if (is_one_of(op, TAKES_NAME))
            judge_victim(judgement, file.fd, name);
    } else if (is_one_of(op, BIT(QOS_OP_LOOKUP) | BIT(QOS_OP_READDIR))) {
        judge_part(judgement, file.fd, X_OK);
    } else {
        judge_object(judgement, file.fd);
    }
}

/* The part of `capabilities`, had in another namespace, that counts for all files that the
 * operation touches. It is judged once, while the thread has no capability. A proxy has them if it
 * acts for root there. */
static guint64 usable_there(QosOp *op, pid_t tid, guint64 capabilities, gboolean is_proxy)
{
    g_auto(QosIdMaps) maps = {0};
    Judgement judgement = {.op = op, .maps = &maps, .usable = capabilities & OF_FILES};

    if (judgement.usable == 0 || op->target.node == 0 || op->progress.is_from_elsewhere ||
        !is_one_of(op, JUDGED))
        return 0;
    op->progress.is_from_elsewhere = TRUE;
    qos_proc_read_maps(tid, &maps);
    if (is_proxy && !qos_id_ranges_have_root(maps.uids, op->caller->uid))
        return 0;
    judge_node(&judgement, op->target.node, op->target.name);
    judge_node(&judgement, op->target.other_node, op->target.other_name);
    return judgement.usable;
}

/* --- asking the kernel --- */

/* The capabilities in `wanted` that count for the operation. */
static guint64 find_what_counts(QosOp *op, pid_t tid, guint64 wanted)
{
    guint64 effective = wanted;
    const gboolean acts_itself = qos_proc_acts_as(tid, fuse_req_ctx(op->fuse)->uid, &effective);

    switch (qos_proc_namespace(tid)) {
    case QOS_NAMESPACE_OWN:
        return acts_itself ? effective & wanted : 0;
    case QOS_NAMESPACE_OTHER:
        return usable_there(op, tid, effective & wanted, !acts_itself);
    default:
        return 0;
    }
}

/* TRUE if this thread has got one of `wanted` that it had not. */
static gboolean take_what_counts(QosOp *op, guint64 wanted)
{
    const pid_t tid = calling_thread(op);
    const guint64 missing = wanted & qos_cred_missing();
    guint64 found;

    if (missing == 0 || tid == 0)
        return FALSE;
    found = find_what_counts(op, tid, missing);
    qos_cred_give(found);
    return found != 0;
}

/* The kernel has let most callers pass that the store refuses, so that this is rare. */
gboolean qos_rights_appeal(QosOp *op, int error)
{
    const gboolean lacks_room = error == -ENOSPC || error == -EDQUOT;

    if (lacks_room && is_one_of(op, JUDGED | TAKES_ROOM))
        return take_what_counts(op, ROOM);
    if ((error == -EPERM || error == -EACCES) && is_one_of(op, JUDGED))
        return take_what_counts(op, ALL & ~ROOM);
    return FALSE;
}

/* Most callers have none, and capget(2) says so at once. */
void qos_rights_claim(QosOp *op, guint64 capabilities)
{
    const gboolean has_some = !qos_cred_has(capabilities) && qos_cred_missing() != 0 &&
                              qos_proc_capabilities(calling_thread(op)) != 0;

    if (has_some || op->caller->is_proxy)
        take_what_counts(op, ALL & ~ROOM);
}
