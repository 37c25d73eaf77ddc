/*
 * The credits on inodes that one operation takes, holds and puts, with a lock server.
 *
 * There are two inodes at most. Their credits are taken one after the other, in the order of
 * resources. If the next credit is not here, the operation waits for it, and keeps using those that
 * it has. This cannot make a circle, because an operation that waits for these has no credit that
 * comes later in the order. While it waits it holds no thread; the gate resumes it, and it goes on
 * where it was. Only for the first millisecond it keeps its thread, which reads the answer
 * (qos_lockclient_await).
 *
 * If an operation that only reads is refused, it goes on without the credit. A change that is
 * refused puts what it has, and waits until it is to ask for all again (qos_lockclient_retry).
 * If there is no hope, it goes on without the credit, or fails with -ENOLCK
 * (docs/design/coherence.md).
 *
 *     qos_op_credits_add()          what the operation needs is known
 *     qos_op_credits_take()         before the store is looked at        FALSE: it waits
 *     qos_op_credits_will_change()  what it changes besides turns out there
 *     qos_op_credits_settle()       before the reply                     FALSE: it waits
 *     qos_op_credits_free()         puts everything
 *
 * To settle is to take write credits after the change, in two steps. First those that were lost
 * while the store was called are taken once more, and those of a file that has grown and that
 * another mount waits for. Then come those of what was changed.
 *
 * A waiting operation is taken back if its caller is killed or the mount ends: it goes on with an
 * error.
 *
 * Lock: `lock` of all that wait; taken before the lock client's and the gate's.
 */
#pragma once

#include "fs/coherence/namecache.h"
#include "fs/gate/gate.h"
#include "fs/lockclient/client.h"
#include "fs/request/op.h"

/* The operations of a mount that wait for credits. */
typedef struct QosCreditWaiters QosCreditWaiters;

/* Both are borrowed. */
QosCreditWaiters *qos_credit_waiters_new(QosLockclient *client, QosGate *gate);
/* Takes back all that wait (-ENOTCONN), and lets none wait any more. */
void qos_credit_waiters_stop(QosCreditWaiters *waiters);
/* None is left. NULL is allowed. */
void qos_credit_waiters_free(QosCreditWaiters *waiters);

QosOpCredits *qos_op_credits_new(QosCreditWaiters *waiters);
void qos_op_credits_free(QosOpCredits *credits); /* NULL is allowed */
/* Two, zeroed at first: what the operation does with its names (fs/coherence/names.c). */
QosNameLook *qos_op_credits_looks(QosOpCredits *credits);

/* Before the first take: the inode `number` of the store, to change or only to read. Two at most;
 * the same again is one. */
void qos_op_credits_add(QosOpCredits *credits, guint64 number, gboolean writes);
/* Takes the credits of op->coherence.credits. FALSE: the operation waits, and does not belong to
 * the caller any more; the gate resumes it, to call this again. TRUE: it holds all credits that can
 * be had, or there is an error. */
gboolean qos_op_credits_take(QosOp *op);
/* Puts what is held; it may be taken again. */
void qos_op_credits_put(QosOpCredits *credits);
/* The operation, behind qos_op_credits_take(), is about to change this inode too. Two at most. */
void qos_op_credits_will_change(QosOpCredits *credits, guint64 number);
/* Nothing was changed: the store has refused, or was not called yet. */
void qos_op_credits_changed_nothing(QosOpCredits *credits);
/* As qos_op_credits_take(), of what is to be taken after the change. */
gboolean qos_op_credits_settle(QosOp *op);
/* Instead of take and settle, for a change that is made before its turn: takes the credits that are
 * here, without asking the server. FALSE: some are not here, and nothing is held. */
gboolean qos_op_credits_take_here(QosOp *op);
/* TRUE if the operation, which was made, may have made a file longer, and another mount waits for
 * its credit. That mount must know the new size before the reply (docs/design/coherence.md). */
gboolean qos_op_credits_is_awaited(const QosOp *op);
/* The change was made early, and a credit was lost meanwhile, or another mount waits for one. Puts
 * what is held; qos_op_credits_settle() is to be called in the operation's turn. */
void qos_op_credits_settle_later(QosOpCredits *credits);
/* TRUE from when qos_op_credits_settle() found something to take. */
gboolean qos_op_credits_is_settling(const QosOpCredits *credits);

/* 0, or the -errno with which the operation is to end without being run. */
int qos_op_credits_error(const QosOpCredits *credits);

/* It waits for no credit, and is to end with `error` (-errno). */
void qos_op_credits_fail(QosOpCredits *credits, int error);

/* Behind qos_op_credits_take(): TRUE where there is something to hold, and all of it was had. */
gboolean qos_op_credits_is_whole(const QosOpCredits *credits);
/* Behind the call on the store: the same, and nothing was lost since, by our clock. */
gboolean qos_op_credits_stayed_whole(const QosOpCredits *credits);
/* How often all was lost (qos_lockclient_losses) when the first of what is held was asked for. */
guint qos_op_credits_losses(const QosOpCredits *credits);
/* TRUE where a credit on the inode is held, and no session was lost since. Behind a look at
 * qos_lockclient_valid(). */
gboolean qos_op_credits_holds(const QosOpCredits *credits, guint64 number);
/* The same. For an inode that was not added: whether a credit to read it was here all the time
 * since qos_op_credits_take(). Asks no server. */
gboolean qos_op_credits_covers(const QosOpCredits *credits, guint64 number);
