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

typedef struct QosBackings QosBackings;
typedef struct QosBacking QosBacking; /* a file that is open */

/* Both are borrowed. */
QosBackings *qos_backings_new(struct fuse_session *session, QosGate *gate);
/* No open may be left. NULL is allowed. */
void qos_backings_free(QosBackings *backings);

/* How an open joins the others of its file. */
typedef struct {
    QosBacking *backing; /* counted in it; NULL: in none */
    gint32 id;           /* what the kernel is to be told; 0: the file is not in passthrough */
    gboolean is_direct;  /* it is, but what this open reads and writes are requests */
    QosJob *job;         /* has it among its `passthrough`; borrowed from the opener, or NULL */
} QosBackingOpen;

/* Counts an open of the file on loan by `opener`: `fd` in the store, with `flags`. It is in
 * passthrough if it `wants` that and that is possible. */
QosBackingOpen qos_backings_join(QosBackings *backings, const QosLoan *file, int fd, int flags,
                                 const QosCaller *opener, gboolean wants);
/* The open is closed; the loan must still be there. Once: it is zeroed. */
void qos_backing_leave(QosBackingOpen *open);
/* TRUE once a file was in passthrough: from then on data may change behind the kernel's pages. */
gboolean qos_backings_were_used(QosBackings *backings);
