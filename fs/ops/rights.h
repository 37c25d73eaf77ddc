/*
 * The capabilities of callers: what they give on the store, they give through the mount.
 *
 * A capability may let a caller do what its uid does not allow: backup programs have file or
 * ambient capabilities, and root of a container has some and lacks others. The store sees the
 * daemon's thread instead. A FUSE request names the caller's uid and gid, but no capabilities, and
 * an ordinary caller has none: its requests must not pay for the question.
 *
 * An ordinary caller's request begins without capabilities. If the store refuses it (EPERM, EACCES,
 * ENOSPC, EDQUOT), the daemon asks the kernel for the effective capabilities of the calling thread,
 * takes on those, and runs the operation again. A few operations do not fail without a capability,
 * but do something else; for these the daemon asks before. The calling thread sleeps until the
 * request is answered, so that its capabilities cannot change meanwhile. A capability that a
 * program drops is therefore lost with the next call.
 *
 * Root and the daemon's own user mostly have capabilities. Their requests begin with those that the
 * cache of callers remembers, if capget(2) says the same. If it does not, they are read anew.
 *
 * In another user namespace than the daemon's, a capability counts only for files with an owner and
 * a group that have ids there, as in the kernel's capable_wrt_inode_uidgid(). CAP_SYS_ADMIN,
 * CAP_SYS_RESOURCE, CAP_MKNOD and CAP_LINUX_IMMUTABLE count for nothing there.
 *
 * The kernel judges most calls itself before it asks the daemon (default_permissions), by the
 * attributes that it remembers. If its judgement depends on the caller alone, the operation gives
 * the capability to the thread without a question (qos_cred_give).
 *
 * The kernel may act under other credentials than the calling process has: overlayfs uses those of
 * its mounter. The request then has the mounter's uid and the process's pid, and nobody tells the
 * mounter's capabilities. If the uids differ, root has what the kernel checks by itself, and root
 * of the process's user namespace has the same for the files of that namespace.
 *
 * Limit: a process that has the mounter's uid without its capabilities is judged by its own.
 *
 * Limit: the capabilities of a process that /proc does not show, as one in a pid namespace outside
 * the daemon's, are not known. Root there has what the kernel checks by itself, others have none.
 */
#pragma once

#include "fs/request/op.h"

/* The capabilities with which the request begins. */
guint64 qos_rights_first(const QosOp *op);
/* The store has failed the operation with `error`. TRUE if this thread has got capabilities of the
 * caller that may help, so that the operation is to run again. */
gboolean qos_rights_appeal(QosOp *op, int error);
/* Gives this thread the caller's capabilities, if these have `capabilities`: before an operation
 * that does not fail without them, but does something else. */
void qos_rights_claim(QosOp *op, guint64 capabilities);
