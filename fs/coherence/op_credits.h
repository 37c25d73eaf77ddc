/*
 * The credits on inodes that one operation takes, holds and puts, with a lock server.
 *
 * A claim is of two inodes at most. Their credits are taken one after the other, in the order of
 * resources. If the next credit is not here, the operation waits for it, and keeps using those that
 * it has. This cannot make a circle, because an operation that waits for these has no credit that
 * comes later in the order. While it waits it holds no thread; the gate resumes it, and it goes on
 * where it was. Only for the first millisecond it keeps its thread, which reads the answer
 * (qos_lockclient_await).
 *
 * If an operation that only reads is refused, it goes on without the credit. A change that is
 * refused puts what it has, and waits until it is to ask for all again (qos_lockclient_postpone).
 * If there is no hope, it goes on without the credit, or fails with -ENOLCK
 * (docs/design/coherence.md).
 *
 *     qos_claim_add()       what the operation needs is known
 *     qos_claim_take()      before the store is looked at        FALSE: it waits
 *     qos_claim_touch()     what it changes besides turns out there
 *     qos_claim_settle()    before the reply                     FALSE: it waits
 *     qos_claim_free()      puts everything
 *
 * To settle is to take write credits after the change, in two steps. First those that were lost
 * while the store was called are taken once more, and those of a file that has grown and that
 * another mount waits for. Then come those of what was touched.
 *
 * A waiting operation is taken back if its caller is killed or the mount ends: it goes on with an
 * error.
 *
 * Lock: `lock` of all claims; taken before the lock client's and the gate's.
 */
#pragma once

#include "fs/coherence/namecache.h"
#include "fs/gate/gate.h"
#include "fs/lockclient/client.h"
#include "fs/request/op.h"

/* The claims of a mount. */
typedef struct QosClaims QosClaims;

/* Both are borrowed. */
QosClaims *qos_claims_new(QosLockclient *client, QosGate *gate);
/* Takes back all that wait (-ENOTCONN), and lets none wait any more. */
void qos_claims_stop(QosClaims *claims);
/* None is left. NULL is allowed. */
void qos_claims_free(QosClaims *claims);

QosClaim *qos_claim_new(QosClaims *claims);
void qos_claim_free(QosClaim *claim); /* NULL is allowed */
/* Two, zeroed at first: what the operation does with its names (fs/coherence/names.c). */
QosNameLook *qos_claim_looks(QosClaim *claim);

/* Before the first take: the inode `number` of the store, to change or only to read. Two at most;
 * the same again is one. */
void qos_claim_add(QosClaim *claim, guint64 number, gboolean writes);
/* Takes the credits of op->coherence.claim. FALSE: the operation waits, and does not belong to the
 * caller any more; the gate resumes it, to call this again. TRUE: it holds all credits that can be
 * had, or there is an error. */
gboolean qos_claim_take(QosOp *op);
/* Puts what is held; it may be taken again. */
void qos_claim_put(QosClaim *claim);
/* The operation, behind qos_claim_take(), is about to change this inode too. Two at most. */
void qos_claim_touch(QosClaim *claim, guint64 number);
/* Nothing was touched: the store has refused, or was not called yet. */
void qos_claim_touch_none(QosClaim *claim);
/* As qos_claim_take(), of what is to be taken after the change. */
gboolean qos_claim_settle(QosOp *op);
/* Instead of take and settle, for a change that is made before its turn: takes the credits that are
 * here, without asking the server. FALSE: some are not here, and nothing is held. */
gboolean qos_claim_take_here(QosOp *op);
/* TRUE if the operation, which was made, may have made a file longer, and another mount waits for
 * its credit. That mount must know the new size before the reply (docs/design/coherence.md). */
gboolean qos_claim_is_awaited(const QosOp *op);
/* The change was made early, and a credit was lost meanwhile, or another mount waits for one. Puts
 * what is held; qos_claim_settle() is to be called in the operation's turn. */
void qos_claim_settle_later(QosClaim *claim);
/* TRUE from when qos_claim_settle() found something to take. */
gboolean qos_claim_is_settling(const QosClaim *claim);

/* 0, or the -errno with which the operation is to end without being run. */
int qos_claim_error(const QosClaim *claim);

/* It waits for no credit, and is to end with `error` (-errno). */
void qos_claim_fail(QosClaim *claim, int error);

/* Behind qos_claim_take(): TRUE where there is something to hold, and all of it was had. */
gboolean qos_claim_is_whole(const QosClaim *claim);
/* Behind the call on the store: the same, and nothing was lost since, by our clock. */
gboolean qos_claim_stayed_whole(const QosClaim *claim);
/* How often all was lost (qos_lockclient_losses) when the first of what is held was asked for. */
guint qos_claim_losses(const QosClaim *claim);
/* TRUE where a credit on the inode is held, and no session was lost since. Behind a look at
 * qos_lockclient_valid(). */
gboolean qos_claim_holds(const QosClaim *claim, guint64 number);
/* The same. For an inode that was not added: whether a credit to read it was here all the time
 * since qos_claim_take(). Asks no server. */
gboolean qos_claim_covers(const QosClaim *claim, guint64 number);
