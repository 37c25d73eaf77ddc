/*
 * The way of an operation, from the handler that submits it to its one reply (fs/ops/dispatch.h).
 */
#include "fs/ops/dispatch.h"

#include <errno.h>
#include <stddef.h>

#include "fs/coherence/coherence.h"
#include "fs/isolate/isolate.h"
#include "fs/ops/rights.h"
#include "fs/request/fs.h"
#include "fs/request/reply.h"
#include "fs/request/wait.h"
#include "fs/store/inode.h"
#include "fs/store/open_file.h"
#include "fs/transport/devfuse.h"
#include "fs/transport/uring.h"

/* Coherence first: what it says of a reply isolation may lower. */
const QosHooks *const qos_hooks[QOS_HOOKS_COUNT] = {&qos_coherence_hooks, &qos_isolation_hooks};

/* Calls a function that returns nothing of all that have it. */
#define CALL_HOOKS(function, ...)                                                                  \
    for (guint hook = 0; hook < QOS_HOOKS_COUNT; hook++) {                                         \
        if (qos_hooks[hook]->function != NULL)                                                     \
            qos_hooks[hook]->function(__VA_ARGS__);                                                \
    }

/* After ESTALE the kernel looks the file up anew, and comes again. If an operation has no name, a
 * store may say ENOENT instead: FUSE's high-level library does, when an open file has lost its
 * name. */
static void note_stale(QosOp *op)
{
    QosInodes *inodes = op->fs->inodes;

    if (op->progress.result == -ENOENT && qos_inodes_is_file(inodes, op->target.node))
        op->progress.result = -ESTALE;
    if (op->progress.result != -ESTALE || op->progress.looks_again)
        return;
    qos_inodes_note_stale(inodes, op->target.node);
    if (op->target.other_node != 0)
        qos_inodes_note_stale(inodes, op->target.other_node);
}

static int try_store(QosOp *op)
{
    int error = 0;

    for (guint i = 0; i < QOS_HOOKS_COUNT && error == 0; i++) {
        if (qos_hooks[i]->call != NULL)
            error = qos_hooks[i]->call(op);
    }
    return error != 0 ? error : op->run(op);
}

/* Makes the backing call as the caller, and again with the caller's capabilities if they may help.
 */
static int call_store(QosOp *op)
{
    int error = qos_cred_assume(op->caller, qos_rights_first(op));

    if (error != 0)
        return error;
    error = try_store(op);
    while (error != 0 && qos_rights_appeal(op, error))
        error = try_store(op);
    return error;
}

static void run(QosOp *op)
{
    op->progress.asked = qos_clock_now();
    op->progress.result = call_store(op);
    op->progress.has_run = TRUE;
    note_stale(op);
    CALL_HOOKS(called, op);
}

/* Takes what the operation needs before the store is called. FALSE: it waits. */
static gboolean prepare(QosOp *op)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->serve != NULL && !qos_hooks[i]->serve(op))
            return FALSE;
    }
    return TRUE;
}

/* Takes what the operation needs before it is answered. FALSE: it waits. */
static gboolean settle(QosOp *op)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->settle != NULL && !qos_hooks[i]->settle(op))
            return FALSE;
    }
    return TRUE;
}

/* Makes the backing call, under the credits that it needs. FALSE: it waits for a credit, and is not
 * this thread's any more. */
static gboolean serve(QosOp *op)
{
    if (!prepare(op))
        return FALSE;
    qos_op_end_wait(op);
    if (!op->progress.has_run)
        run(op);
    return settle(op);
}

static void reply(QosOp *op)
{
    qos_op_reply(op, op->progress.result);
    CALL_HOOKS(leave, op);
}

/* Leaves the gate and replies: in this order, so that its slot is the store's time alone. The
 * program that waits for the reply may get this thread's CPU, and send its next request, before
 * this thread is back. The file is given back first, because that may close it. Two cases reply
 * first: nothing shall wait for the close of a release; and `replies_first`, with which others look
 * at the file while the kernel has its pages locked. FALSE: no request waits at the gate. */
static gboolean finish(QosOp *op)
{
    gboolean replies_first = op->target.is_unawaited || op->coherence.replies_first;
    gboolean do_others_wait;

    if (replies_first)
        reply(op);
    if (op->target.is_unawaited)
        qos_ring_flush(); /* the close may take long */
    qos_op_clear(op);
    do_others_wait =
        qos_gate_leave(op->fs->gate, &op->entry, op->progress.moved, -op->progress.result);
    if (!replies_first) {
        if (!do_others_wait)
            qos_reading_comes_next();
        reply(op);
    }
    qos_op_free(op);
    return do_others_wait;
}

/* Runs a request, and then those that are due when it has left: they need no other thread. */
static void run_entries(QosEntry *entry)
{
    while (entry != NULL && entry->run == run_entries) {
        QosOp *op = (QosOp *)entry;
        QosGate *gate = op->fs->gate;

        qos_op_leave_watch(op);
        if (!serve(op))
            return;
        entry = finish(op) ? qos_gate_next(gate) : NULL;
        if (entry != NULL)
            qos_ring_flush();
    }
    if (entry != NULL)
        entry->run(entry);
}

static void cancel(QosEntry *entry, int error)
{
    QosOp *op = (QosOp *)entry;

    qos_op_leave_watch(op);
    qos_op_reply(op, -error);
    CALL_HOOKS(leave, op);
    qos_op_clear(op);
    qos_op_free(op);
}

/* TRUE for the opener itself, and for what the kernel does on its own: write-back, the last
 * close. */
static gboolean asks_as(const struct fuse_ctx *context, const QosCaller *opener)
{
    return (context->uid == opener->uid && context->gid == opener->gid) ||
           (context->pid == 0 && context->uid == 0 && context->gid == 0);
}

/* Operations that open something: it keeps its job for as long as it is open. */
static gboolean opens(const QosOp *op)
{
    const QosOpcode opcode = op->entry.request.opcode;

    return opcode == QOS_OP_OPEN || opcode == QOS_OP_OPENDIR || opcode == QOS_OP_CREATE;
}

/* The caller, a new reference; NULL: it must be named first. Work on an open file is done as its
 * opener, unless another user asks; the opener's job always pays. A FLUSH is the opener's also
 * then: exec(2) may send it for what it closes, and what /proc says of that thread may come only
 * when exec goes on. */
static QosCaller *find_caller(const QosOp *op)
{
    const struct fuse_ctx *context = fuse_req_ctx(op->fuse);
    QosCaller *opener = op->open_file != NULL ? op->open_file->caller : NULL;
    const gboolean closes = op->entry.request.opcode == QOS_OP_FLUSH;

    if (opener != NULL && (closes || asks_as(context, opener)))
        return qos_caller_ref(opener);
    if (opener != NULL)
        return qos_callers_find(op->fs->callers, context, QOS_CALLER_IDENTITY);
    return qos_callers_find(op->fs->callers, context,
                            opens(op) ? QOS_CALLER_LASTING_JOB : QOS_CALLER_JOB);
}

/* Takes `caller`. */
static void set_caller(QosOp *op, QosCaller *caller)
{
    QosRequest *request = &op->entry.request;

    op->caller = caller;
    request->uid = caller->uid;
    request->gid = caller->gid;
    request->job = qos_job_ref(op->open_file != NULL ? op->open_file->caller->job : caller->job);
    request->user = op->open_file != NULL ? op->open_file->caller->user : caller->user;
}

static int run_done(QosOp *op)
{
    return op->progress.result;
}

/* Only the result waits: what it brought is in the store. */
static void run_early(QosOp *op)
{
    op->progress.result = call_store(op);
    op->run = run_done;
    g_slist_free_full(g_steal_pointer(&op->strings), g_free);
    qos_gate_note_stored(op->fs->gate, &op->entry);
}

/* Its first `count` hooks have begun. */
static void end_early(QosOp *op, guint count, gboolean is_made)
{
    for (guint i = 0; i < count; i++) {
        if (qos_hooks[i]->end_early != NULL)
            qos_hooks[i]->end_early(op, is_made);
    }
}

/* FALSE: the store must not be called before its turn. */
static gboolean begin_early(QosOp *op)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->begin_early != NULL && !qos_hooks[i]->begin_early(op)) {
            end_early(op, i, FALSE);
            return FALSE;
        }
    }
    return TRUE;
}

/* Moves what lies in the reader's buffer to where there is room, if there is any. */
static QosParkPlace find_park_place(QosOp *op)
{
    const gboolean has_data = op->entry.request.data > 0;
    const gboolean may_be_early = has_data && begin_early(op);
    const QosParkPlace place = qos_gate_park_place(op->fs->gate, &op->entry, may_be_early);

    if (place == QOS_PARK_IN_STORE)
        run_early(op);
    if (may_be_early)
        end_early(op, QOS_HOOKS_COUNT, place == QOS_PARK_IN_STORE);
    qos_op_own_data(op, place == QOS_PARK_IN_MEMORY);
    return place;
}

static void refuse(QosOp *op, QosParkPlace reason)
{
    if (reason == QOS_PARK_TOO_MANY)
        g_warning_once(
            "job %s: so many of its reads and writes wait, or of all its user's, that the "
            "kernel's room for requests in the background would fill up: further ones "
            "fail (ENOMEM) until some are served",
            op->entry.request.job->id);
    else if (op->entry.request.data > 0)
        g_warning_once(
            "job %s: the store does not take its writes, and all of parked_mib holds "
            "what waits: writes fail (ENOMEM) until some are served. See the store, and "
            "with a lock server the other mounts that use its files, or raise parked_mib",
            op->entry.request.job->id);
    else
        g_warning_once(
            "job %s: so many of its requests wait, or of all its user's, that they take all "
            "of parked_mib: further ones fail (ENOMEM) until some are served. Raise parked_mib "
            "if the machine has the memory",
            op->entry.request.job->id);
    cancel(&op->entry, ENOMEM);
}

/* Leaves it to the gate, unless it has come due meanwhile. */
static void park(QosOp *op)
{
    QosFs *fs = op->fs;
    const QosRequest *request = &op->entry.request;
    const QosJob *job = request->job;
    const guint64 lock = request->holds_lock ? 0 : request->lock;
    QosParkPlace place;

    if (op->target.is_unawaited)
        qos_op_reply(op, 0);
    place = find_park_place(op);
    if (place == QOS_PARK_NOWHERE || place == QOS_PARK_TOO_MANY) {
        refuse(op, place);
        return;
    }
    qos_op_watch(op);
    if (qos_gate_park(fs->gate, &op->entry))
        run_entries(&op->entry);
    else if (lock != 0)
        CALL_HOOKS(park, fs, lock, job);
}

static void enter(QosOp *op)
{
    CALL_HOOKS(enter, op);
    if (qos_gate_enter(op->fs->gate, &op->entry))
        run_entries(&op->entry);
    else
        park(op);
}

/* A mount of DIR below SRC, as propagation makes one, leads the daemon to itself. It would wait for
 * its own answer, perhaps for ever, because it has a slot. The daemon has no file open there, and
 * an open file is closed whichever process closes it. */
static gboolean comes_from_itself(const QosOp *op)
{
    return op->open_file == NULL && op->caller->process != 0 &&
           op->caller->process == op->fs->process;
}

static void begin(QosOp *op, QosCaller *caller)
{
    set_caller(op, caller);
    if (comes_from_itself(op))
        cancel(&op->entry, ELOOP);
    else
        enter(op);
}

/* A resolver thread goes on with it; what it brought are copies, as it works on no open file. */
static void go_on(QosUnresolved *unresolved, QosCaller *caller)
{
    QosOp *op = (QosOp *)((char *)unresolved - offsetof(QosOp, unresolved));

    if (caller == NULL) {
        cancel(&op->entry, ENOTCONN);
        return;
    }
    begin(op, caller);
}

void qos_op_submit(QosOp *op)
{
    QosCaller *caller = find_caller(op);

    op->entry.run = run_entries;
    op->entry.cancelled = cancel;
    if (caller == NULL) {
        op->unresolved.context = fuse_req_ctx(op->fuse);
        op->unresolved.named = go_on;
        qos_resolver_ask(op->fs->resolver, &op->unresolved);
        return;
    }
    begin(op, caller);
}

void qos_op_submit_urgent(QosOp *op)
{
    op->entry.request.cannot_fail = TRUE;
    qos_op_submit(op);
}

void qos_op_submit_release(QosOp *op)
{
    op->target.is_unawaited = TRUE;
    qos_op_submit_urgent(op);
}
