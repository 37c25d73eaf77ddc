/*
 * Pay points: where a job in debt waits for its tokens before it takes a lock in the kernel.
 *
 * A request for which the kernel holds a directory's lock, or pages of a file that another job has
 * open, goes into debt, because other jobs want them (fs/sched.h, `holds_lock`). A job that makes
 * nothing but such requests would stand at the bound on debt, and each of its requests would hold
 * the lock while it waits. So when a request that changes or lists a directory, or fills pages of a
 * file, has gone into debt, that becomes a pay point of the job, for PAY_POINT_TIME after the last
 * such request, or the last payment. Meanwhile the kernel is not to believe its attributes. It asks
 * for them (GETATTR) before it takes the lock, each time that a thread walks through the directory,
 * or reads the file through the page cache, and holds nothing while it waits for the answer. There
 * the job waits.
 *
 * Only a thread of that job waits, and only if its system call changes or lists names, or reads:
 * threads that walk through to something else pass, and so does every other job. None of them is
 * charged: the kernel asks because the daemon took back what it had told.
 *
 * A file that is in the page cache is read in less than a microsecond, and every reader would ask
 * each time, as the kernel keeps one validity for all. So a file becomes a pay point only when the
 * job owes for more than QOS_DEBT_UNTOLD, and it is closed only until the thread that made that
 * READ has come to pay, RETURN_TIME or PAYER_TIME at most. Then the kernel may believe what others
 * were told; it is told to forget when the job owes so much again. What is read may be in the page
 * cache, so that no READ follows a payment: after UNREAD_MAX such payments they do not prolong the
 * pay point any more.
 *
 * The kernel asks for attributes once more under the lock, to see whether the caller may make or
 * remove a name. The thread must not wait then. So a thread that has paid has a pass, which lets it
 * through every pay point until it has done what it came for. That is an operation that changes a
 * directory, or PASS_LOOKUPS look-ups, or nothing for PASS_TIME. rename(2) makes two look-ups
 * under the lock, and before it one for each name on the way that the kernel does not know. A
 * thread that lived before the kernel was told may be under the lock already, and gets one such
 * pass unpaid.
 *
 * The token that a thread has paid is that of the class of the operation that went into debt. If a
 * rule tells operations apart, it pays for one such operation; else for the next, whichever it is.
 * That operation then costs nothing.
 *
 * These times run while the mount is used. A pause in which no request comes counts as 100 ms,
 * however long it is, because the daemon or the machine may have stood still, and threads that
 * queued for a lock before still do.
 *
 * A request that makes a pay point is answered only when the kernel has been told to forget the
 * attributes, so that no thread of its job slips by meanwhile. The request's thread must not tell
 * the kernel itself, because the kernel may wait for that very READ before it takes the
 * notification. So the pay points have a thread that tells it, and a request waits for that no
 * longer than TELLING_TIME. The GETATTR by which a thread pays may tell the kernel at once, because
 * the kernel holds nothing for it but the inode.
 *
 * Limit: a thread with a system call that cannot be read (a worker of io_uring, a program of 32
 * bits) pays here even if it only walks through; its next operation is prepaid then. A thread of
 * another pid namespace is not known at all. It does not wait here, and only the bound on debt
 * holds it. A pass is good for PASS_ASKS questions. If the kernel cannot be told within
 * TELLING_TIME, threads may slip by until it is.
 *
 * Lock: `lock` of the pay points; never held while the kernel is told.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>

#include "base/opcode.h"
#include "base/time.h"
#include "fs/jobs.h"

typedef struct QosPayPoints QosPayPoints;

/* `session` is borrowed. `clock` is qos_clock_now(), or a test's. Starts its thread (after the
 * daemon's fork); NULL where that fails. */
QosPayPoints *qos_pay_points_new(struct fuse_session *session, QosTime (*clock)(void));
/* Ends the thread. The session must still be there. NULL is allowed. */
void qos_pay_points_free(QosPayPoints *pay_points);

/* TRUE for an operation that changes or lists a directory's names. */
gboolean qos_pay_points_count(QosOpcode opcode);
/* The thread `tid` of `job`, which is not looked into, has gone into debt by `opcode` in the
 * directory, or on the file, `ino`. Waits for TELLING_TIME at most. */
void qos_pay_points_raise(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                          QosOpcode opcode, pid_t tid);

/* An answer is about to tell the kernel the attributes of `ino`. TRUE: it may believe them for a
 * while. Cheap where there is no pay point at all. */
gboolean qos_pay_points_may_believe(QosPayPoints *pay_points, fuse_ino_t ino);

typedef enum {
    QOS_PAY_POINT_NONE,    /* no pay point is here */
    QOS_PAY_POINT_FOREIGN, /* of other jobs */
    QOS_PAY_POINT_FREE,    /* of its own job, and the thread has a pass */
    QOS_PAY_POINT_DUE,     /* of its own job */
} QosPayPointState;
/* What the thread `tid` of `job`, which lives since `start` (QosCaller), meets when it asks for the
 * attributes of `ino`. DUE: if it comes to change or list names, or to read, it waits until the job
 * has a token for *ret_opcode. */
QosPayPointState qos_pay_points_meet(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                                     pid_t tid, guint64 start, QosOpcode *ret_opcode);
/* The thread has paid at `ino`, where `job` had gone into debt by `opcode`: for `prepaid`, or with
 * QOS_OP_COUNT for whatever it does next. The pay point stays for another PAY_POINT_TIME. */
void qos_pay_points_pay(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                        QosOpcode opcode, pid_t tid, QosOpcode prepaid);
/* The thread does `opcode` in a directory, or reads. TRUE where it has paid for that. */
gboolean qos_pay_points_use(QosPayPoints *pay_points, pid_t tid, QosOpcode opcode);
