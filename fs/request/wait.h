/*
 * How an operation waits: it gives up the reader's buffer and its slot in the store. Meanwhile it
 * may be watched, so that it ends if its caller is killed (fs/request/interrupt.h).
 *
 * The thread that has the operation calls these functions, with no lock held.
 */
#pragma once

#include "fs/request/op.h"

/* Nothing of it is to lie in a reader's buffer any more: with `moves` what it needs of that is
 * moved, else it needs nothing. */
void qos_op_own_data(QosOp *op, gboolean moves);
/* It is about to wait in the gate: its caller may be killed meanwhile. */
void qos_op_watch(QosOp *op);
/* It goes on, or is answered: nobody else touches it. Does nothing where it is not watched. */
void qos_op_leave_watch(QosOp *op);
/*
 * In the gate's turn it is going to wait for something else: gives its slot back, and moves what
 * lies in the reader's buffer.
 *
 * `withdraw` takes the operation back when its caller is killed meanwhile; it may be NULL. It has
 * the operation go on by the gate, to end with -EINTR, and returns TRUE. It returns FALSE if the
 * operation does not wait there, yet or any more. Any thread calls it, under the lock of the watch,
 * and the operation is not freed meanwhile.
 */
void qos_op_pause(QosOp *op, gboolean (*withdraw)(QosOp *op));
/* Such a wait is over, or there was none. */
void qos_op_end_wait(QosOp *op);
