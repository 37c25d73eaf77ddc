/*
 * Files that the kernel reads and writes by itself (FUSE passthrough), for the jobs that a rule
 * with `passthrough` exempts.
 *
 * The kernel does the I/O of an inode in one way at a time: cached, or by itself with one backing
 * file. An open that does not agree with the open ones fails with EIO. So the first open of a file
 * decides for all until the last one is closed, and each open is counted here:
 *
 *     first open by    exempt jobs then   the others
 *     an exempt job    passthrough        requests, uncached; mappings are of the backing file
 *     another          requests           requests, cached or not as the mount's option says
 *
 * The kernel moves the data under the identity with which the backing file was registered: that of
 * the first opener. Quotas and suid bits in the store would be treated as that user's, so another
 * user's open is direct. So is an open with O_APPEND, because the kernel would keep O_APPEND after
 * fcntl() has taken it back.
 *
 * Lock: `lock` of the table of open files; the kernel is not called under it. So two threads may
 * register the same file at once. One registration is then taken back before any open uses it.
 */
#pragma once

#include "fs/caller/cred.h"
#include "fs/gate/gate.h"
#include "fs/store/inode.h"

typedef struct QosPassthroughs QosPassthroughs;
typedef struct QosPassthrough QosPassthrough; /* a file that is open */

/* Both are borrowed. */
QosPassthroughs *qos_passthroughs_new(struct fuse_session *session, QosGate *gate);
/* No open may be left. NULL is allowed. */
void qos_passthroughs_free(QosPassthroughs *passthroughs);

/* How an open joins the others of its file. */
typedef struct {
    QosPassthrough *passthrough; /* counted in it; NULL: in none */
    gint32 id;          /* what the kernel is to be told; 0: the file is not in passthrough */
    gboolean is_direct; /* it is, but what this open reads and writes are requests */
    QosJob *job;        /* has it among its `passthrough`; borrowed from the opener, or NULL */
} QosPassthroughOpen;

/* Counts an open of the file by `opener`: `fd` in the store, with `flags`. It is in
 * passthrough if it `wants` that and that is possible. */
QosPassthroughOpen qos_passthroughs_join(QosPassthroughs *passthroughs, const QosInodeRef *file,
                                         int fd, int flags, const QosCaller *opener,
                                         gboolean wants);
/* The open is closed; the reference must still be there. Once: it is zeroed. */
void qos_passthrough_leave(QosPassthroughOpen *open);
/* TRUE once a file was in passthrough: from then on data may change behind the kernel's pages. */
gboolean qos_passthroughs_were_used(QosPassthroughs *passthroughs);
