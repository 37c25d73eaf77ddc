/*
 * One request's journey: how an operation comes from the handler that submits it to its one reply.
 *
 *     submit    the caller and its job are found, or the resolver is asked, and goes on
 *     enter     the gate says go, or wait
 *     park      wait: what lies in the reader's buffer is moved, and a worker does the rest later
 *     serve     go: the credits are taken, the backing call is made as the caller, and once more
 *               if the store refuses and the caller's capabilities may help (fs/ops/rights.h)
 *     finish    the gate is left, the reply is sent, and the operation is freed
 *
 * At these moments isolation and coherence are called, by two tables of the same hooks
 * (fs/request/hooks.h). The handlers call neither; fs/ops/reply.h has the functions that their
 * run() calls.
 *
 * If the gate lets it, the same thread goes from enter to finish, because a hand-over costs more
 * than the work. A wait on the way, for a token or a credit, holds no thread. The operation is left
 * to the object that it waits for, which later has the gate resume it, and `serve` begins anew.
 *
 * An operation on an open file belongs to the opener's job, and runs under the opener's identity
 * unless another user asks.
 *
 * If memory is short for the data that a request brought (entry.request.data), and its credits are
 * at hand (fs/coherence/coherence.h), run() is called at once. A worker sends the answer when the
 * request is due.
 */
#pragma once

#include "fs/request/hooks.h"
#include "fs/request/op.h"

/* What isolation and coherence do on the way, in this order at each moment. */
#define QOS_HOOKS_COUNT 2
extern const QosHooks *const qos_hooks[QOS_HOOKS_COUNT];

/* Sends it through the gate, to run now or later; it is no longer the caller's. */
void qos_op_submit(QosOp *op);
/* For what waits for no token (release, flush): its cost is debt. */
void qos_op_submit_urgent(QosOp *op);
/* The same for a release. The kernel awaits no result of it, so if it has to wait it is answered
 * before. Otherwise it would take some of the kernel's room for requests in the background. */
void qos_op_submit_release(QosOp *op);
