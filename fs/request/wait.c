/*
 * How an operation waits. fs/request/wait.h has the contract.
 */
#include "fs/request/wait.h"

#include "fs/request/fs.h"
#include "fs/request/interrupt.h"
#include "fs/transport/uring.h"

void qos_op_own_data(QosOp *op, gboolean moves)
{
    QosOpWait *wait = &op->wait;

    if (moves && !wait->owns_data && op->park != NULL)
        op->park(op);
    if (!wait->owns_data && op->entry.request.data > 0)
        qos_ring_drop_data();
    wait->owns_data = TRUE;
}

static void watch(QosOp *op, gboolean (*withdraw)(QosOp *op))
{
    op->wait.is_watched = op->fs->interrupts != NULL && !op->progress.is_replied;
    if (op->wait.is_watched)
        qos_interrupts_watch(op->fs->interrupts, op, withdraw);
}

void qos_op_watch(QosOp *op)
{
    watch(op, NULL);
}

void qos_op_leave_watch(QosOp *op)
{
    if (op->wait.is_watched)
        qos_interrupts_unwatch(op->fs->interrupts, op);
    op->wait.is_watched = FALSE;
}

void qos_op_pause(QosOp *op, gboolean (*withdraw)(QosOp *op))
{
    if (!op->wait.is_paused)
        qos_gate_pause(op->fs->gate, &op->entry);
    op->wait.is_paused = TRUE;
    qos_op_own_data(op, TRUE);
    if (withdraw != NULL)
        watch(op, withdraw);
}

void qos_op_end_wait(QosOp *op)
{
    qos_op_leave_watch(op);
    if (op->wait.is_paused)
        qos_gate_go_on(op->fs->gate, &op->entry);
    op->wait.is_paused = FALSE;
}
