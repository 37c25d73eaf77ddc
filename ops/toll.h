/*
 * Where a job in debt pays (docs/architecture.md, "What holds a lock does not wait").
 *
 * A request for which the kernel holds a lock that other jobs may want goes at once, also where
 * its job has no token left (fs/sched.h, `holds_lock`). A job that does nothing else would never
 * pay. So what it works on becomes a toll: for TOLL_TIME after the last such request the kernel is
 * not to believe its attributes, and asks for them (GETATTR) before it takes the lock: of a
 * directory each time that it walks through, of a file before each read through the page cache and
 * where somebody asks for them. GETATTR itself holds nothing: there the job in debt waits, and any
 * other job passes.
 *
 * Of a directory the kernel asks once more under the lock, to see whether the caller may make or
 * remove a name; where he does not own it, for its ACL too (GETXATTR), which never waits. So a
 * thread that has paid has a ticket, with which it need not wait again until it has done what it
 * came for: an operation that changes the directory, or TICKET_LOOKUPS look-ups (a makes two), or
 * nothing for TICKET_TIME. Who may have come into the directory before the kernel knew of its toll,
 * and lives since then, has such a ticket once.
 *
 * Whoever asks may hold the lock also where there is no toll yet, as his job came into debt by
 * something else, by a write: the kernel asks under the lock if the directory has changed while he
 * waited for it. So for GRACE_TIME after a change nobody waits who asks; if his job is in debt, his
 * request raises the toll. Later he waits until somebody seems to want the lock (ops/approaches.h).
 *
 * Of a file that is in the page cache others read a page in less than a microsecond, and would ask
 * each time. So its toll is closed only for CLOSED_TIME after the job in debt has read or passed,
 * which is when it comes to read again; in between the kernel may believe what others were told.
 * Only where it was told something since is it told to forget: by that news it would ignore the
 * very answer that lets the job pass, and its read would end at the file's old end.
 *
 * Who waits there needs a token of the class that is in debt. Where rules tell operations apart,
 * that is not the class of GETATTR: then he pays for the operation that he came for, which costs
 * nothing any more when he does it.
 *
 * These times run while the mount is used: a pause in which no request comes counts 100 ms, however
 * long it is. The daemon, or the machine, may have stood still, and who queued for a lock before
 * still does.
 *
 * A thread of its own tells the kernel to forget what it believes: a notification must not be sent
 * from a handler. Who raises the toll waits for that before he replies, so that nobody of his job
 * slips by meanwhile.
 *
 * Lock: `lock` of the tolls; never held while the kernel is told.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>

#include "base/opcode.h"
#include "base/time.h"

typedef struct QosTolls QosTolls;

/* `session` is borrowed. `clock` is qos_gate_now(), or a test's. Starts its thread (after the
 * daemon's fork); NULL where that fails. */
QosTolls *qos_tolls_new(struct fuse_session *session, QosTime (*clock)(void));
/* Ends the thread. The session must still be there. NULL is allowed. */
void qos_tolls_free(QosTolls *tolls);

/* A job whose operation `opcode` is in debt works in the directory, or on the file, `ino`. */
void qos_tolls_raise(QosTolls *tolls, fuse_ino_t ino, QosOpcode opcode, gboolean is_directory);

/* The directory `ino` was changed: the kernel asks for its attributes anew, also who waits for its
 * lock. Before the reply. */
void qos_tolls_note_change(QosTolls *tolls, fuse_ino_t ino);

/* An answer is about to tell the kernel the attributes of `ino`. TRUE: it may believe them for a
 * while. Cheap where there is no toll at all. */
gboolean qos_tolls_may_believe(QosTolls *tolls, fuse_ino_t ino);

typedef enum {
    QOS_TOLL_NONE,
    QOS_TOLL_FREE, /* he may hold the lock */
    QOS_TOLL_DUE,
} QosTollState;
/* What `tid`, who lives since `start` (QosCaller), meets who asks for the attributes of `ino`. DUE:
 * he waits until *ret_opcode has a token. */
QosTollState qos_tolls_meet(QosTolls *tolls, fuse_ino_t ino, pid_t tid, guint64 start,
                            QosOpcode *ret_opcode);
/* He passes: gives him a ticket, where there is a directory's toll; closes a file's, where he had
 * to wait. `prepaid`: the opcode that he paid for; QOS_OP_COUNT = none. */
void qos_tolls_pass(QosTolls *tolls, fuse_ino_t ino, pid_t tid, QosOpcode prepaid,
                    gboolean has_waited);
/* He does `opcode` in the directory: a look-up or a reading (a ticket is good for some), or a
 * change (for one). TRUE where he has paid for it. */
gboolean qos_tolls_use(QosTolls *tolls, fuse_ino_t ino, pid_t tid, QosOpcode opcode);
