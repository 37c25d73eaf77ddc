/*
 * Interrupts of parked requests (docs/design/architecture.md, "One request's journey").
 *
 * The kernel sends INTERRUPT once for a request, for whichever signal came first, and waits for the
 * reply. A fatal signal (SIGKILL or SIGTERM pending in /proc/TID/status) ends the request with
 * EINTR. Any other signal must neither give EINTR nor hide a later kill. So an interrupted request
 * goes on a watch list. A thread of its own looks at the caller at once, and then every 50 ms until
 * the request runs or the caller is killed. A job may have many such requests; fs/poll_turns.h says
 * how the requests of others are kept from waiting for these.
 *
 * Over io_uring the kernel passes on no signal that came before the request was delivered. That is
 * so for a thread that is killed while it waits for a lock in the kernel, and asks then. So over
 * io_uring each parked request is looked at once.
 *
 * For requests in the background (asynchronous I/O) the kernel sends no INTERRUPT at all, and a
 * killed program waits for them. So their processes are looked at likewise while some are parked
 * (fs/request/background.h).
 *
 * Lock: `lock` of the list; taken inside that of the table of interrupts, and before the gate's. It
 * is not held while /proc is read or a reply is sent.
 */
#pragma once

#include "fs/request/op.h"
#include "fs/transport/interrupt_table.h"

typedef struct QosInterrupts QosInterrupts;

/* `gate` and `table` are borrowed. `may_be_lost`: requests come by io_uring. Starts its thread
 * (after the daemon's fork); NULL where that fails. */
QosInterrupts *qos_interrupts_new(QosGate *gate, QosInterruptTable *table, gboolean may_be_lost);
/* As it was made. */
gboolean qos_interrupts_may_be_lost(const QosInterrupts *interrupts);
/* Ends the thread, once it has answered what it took back. NULL is allowed. */
void qos_interrupts_stop(QosInterrupts *interrupts);
/* Stopped; nothing may be watched any more. NULL is allowed. */
void qos_interrupts_free(QosInterrupts *interrupts);

/* Watches a request that is about to wait: in the gate, before qos_gate_park(), or where `withdraw`
 * takes it back (qos_op_pause). With no lock held. */
void qos_interrupts_watch(QosInterrupts *interrupts, QosOp *op, gboolean (*withdraw)(QosOp *op));
/* Before a parked request runs or is answered: after this, nobody else touches it. */
void qos_interrupts_unwatch(QosInterrupts *interrupts, QosOp *op);
