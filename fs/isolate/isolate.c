/*
 * The hooks of isolation on the way of an operation. fs/isolate/isolate.h has the contract.
 */
#include "fs/isolate/isolate.h"

#include <sys/stat.h>

#include "fs/caller/proc.h"
#include "fs/isolate/boost.h"
#include "fs/isolate/pay_point.h"
#include "fs/store/open_file.h"
#include "fs/store/open_jobs.h"

static pid_t thread_of(const QosOp *op)
{
    return fuse_req_ctx(op->fuse)->pid;
}

/* --- what it costs --- */

/* TRUE of a thread that comes to the pay point for its directory's lock, or for pages. A thread
 * with a call that cannot be read, such as a worker of io_uring, may be one: it pays, and what it
 * does next is prepaid. */
static gboolean pays_here(pid_t thread, QosCall call)
{
    return qos_call_works_on_names(call) || call == QOS_CALL_READS_DATA ||
           (call == QOS_CALL_UNKNOWN && thread != 0);
}

/* As qos_pay_points_meet(); but on a file that no other job has open any more, no thread pays. */
static QosPayPointState meet_pay_point(const QosOp *op, QosOpcode *ret_opcode)
{
    const QosJob *job = op->entry.request.job;
    const QosPayPointState state = qos_pay_points_meet(
        op->fs->pay_points, op->target.node, job, thread_of(op), op->caller->start, ret_opcode);
    const gboolean is_lone = state == QOS_PAY_POINT_DUE && *ret_opcode == QOS_OP_READ &&
                             !qos_open_jobs_has_others(op->fs->open_jobs, op->target.node, job);

    return is_lone ? QOS_PAY_POINT_FOREIGN : state;
}

/* The kernel asks for attributes for stat(2) and its kin, and by itself: before it takes a
 * directory's lock, under that or a file's, and before a read through the page cache. A GETATTR
 * that the program did not ask for is free. At a pay point a thread of the job in debt waits, if it
 * comes to change or list names, or to read. Other jobs are not charged there, however often the
 * kernel asks, because without the pay point it would have believed what it was told. */
static void find_cost_of_attributes(QosOp *op)
{
    const QosFs *fs = op->fs;
    QosRequest *request = &op->entry.request;
    const QosPayPointState state = meet_pay_point(op, &request->pay_opcode);
    const gboolean is_pass = state == QOS_PAY_POINT_FREE || state == QOS_PAY_POINT_FOREIGN;
    QosCall call;

    request->is_free = is_pass;
    request->is_imposed =
        state == QOS_PAY_POINT_FOREIGN && (qos_fs_is_shared(fs) || fs->config.attr_timeout > 0);
    if (is_pass || (state == QOS_PAY_POINT_NONE && !qos_gate_is_limited(fs->gate, &op->entry)))
        return;
    call = qos_proc_call(thread_of(op));
    request->is_at_pay_point = state == QOS_PAY_POINT_DUE && pays_here(thread_of(op), call);
    request->is_free =
        !request->is_at_pay_point && call != QOS_CALL_UNKNOWN && call != QOS_CALL_READS_ATTRIBUTES;
}

/* The kernel asks for ACLs and capabilities by itself, before it lets a thread do what that came
 * for: this is free. */
static void find_cost_of_xattr(QosOp *op)
{
    QosCall call;

    if (!qos_gate_is_limited(op->fs->gate, &op->entry))
        return;
    call = qos_proc_call(thread_of(op));
    op->entry.request.is_free = call != QOS_CALL_UNKNOWN && call != QOS_CALL_READS_XATTRS;
}

/* --- what holds a lock --- */

/* A thread that has paid at a pay point does not pay again for what it came for. */
static void note_lock(QosOp *op)
{
    QosRequest *request = &op->entry.request;

    if (op->target.locks == 0)
        return;
    op->isolation.locks_directory =
        op->target.locks_directory || (op->target.locked_file == NULL &&
                                       qos_inodes_is_directory(op->fs->inodes, op->target.locks));
    request->lock = op->target.locks;
    request->holds_lock |= op->isolation.locks_directory || qos_boost_is_contended(op);
    if (request->fills_cache ||
        (op->isolation.locks_directory &&
         (request->opcode == QOS_OP_LOOKUP || qos_pay_points_count(request->opcode))))
        request->is_free = qos_pay_points_use(op->fs->pay_points, thread_of(op), request->opcode);
}

static void enter(QosOp *op)
{
    if (op->target.may_be_unasked && op->entry.request.opcode == QOS_OP_GETATTR)
        find_cost_of_attributes(op);
    else if (op->target.may_be_unasked)
        find_cost_of_xattr(op);
    note_lock(op);
}

/* --- in the store --- */

static int call(QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (request->is_at_pay_point)
        qos_pay_points_pay(op->fs->pay_points, op->target.node, request->job, request->pay_opcode,
                           thread_of(op), request->prepays ? request->pay_opcode : QOS_OP_COUNT);
    return 0;
}

/* TRUE where its job is to pay before it takes the same lock again (fs/isolate/pay_point.h): before
 * it changes or lists the directory, or fills pages of a file that other jobs read. */
static gboolean makes_pay_point(const QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (request->fills_cache)
        return request->holds_lock && request->owes_much;
    return request->holds_lock && request->owes && op->isolation.locks_directory &&
           qos_pay_points_count(request->opcode);
}

static void called(QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (makes_pay_point(op))
        qos_pay_points_raise(op->fs->pay_points, op->target.locks, request->job, request->opcode,
                             thread_of(op));
}

/* --- what is replied --- */

/* Whether the kernel may believe a name of it. Not if another job's requests are parked with the
 * file's lock: a job that comes by name is to look the name up, which boosts them
 * (fs/isolate/boost.h). */
static gboolean may_believe_name(const QosOp *op, const QosTold *told)
{
    const QosRequest *request = &op->entry.request;

    if (S_ISDIR(told->stat->st_mode))
        return TRUE;
    if (request->opcode == QOS_OP_LOOKUP)
        return qos_boost_file(op, told->ino) != QOS_GATE_ANOTHER;
    return qos_gate_holder(op->fs->gate, told->ino, request->job) != QOS_GATE_ANOTHER;
}

/* The kernel may learn of a change from it, and then waits for pages that it drops. */
static gboolean may_drop_pages(const QosOp *op, const QosTold *told)
{
    return !told->is_withheld && S_ISREG(told->stat->st_mode) && !qos_fs_is_shared(op->fs);
}

static void reply(QosOp *op, QosTold *told)
{
    if (told->ino == 0)
        return;
    if (told->attr_timeout > 0 && !qos_pay_points_may_believe(op->fs->pay_points, told->ino))
        told->attr_timeout = 0;
    if (told->is_name && !may_believe_name(op, told))
        told->entry_timeout = 0;
    if (may_drop_pages(op, told))
        qos_boost_file(op, told->ino);
}

static void reply_open(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file)
{
    QosJob *job = open_file->caller->job;
    gboolean is_new;

    open_file->file_jobs = qos_open_jobs_join(op->fs->open_jobs, ino, job, &is_new);
    if (is_new)
        qos_boost_opened(op->fs, ino, job);
}

const QosHooks qos_isolation_hooks = {
    .enter = enter,
    .park = qos_boost_parked,
    .call = call,
    .called = called,
    .reply = reply,
    .reply_open = reply_open,
};
