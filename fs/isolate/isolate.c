/*
 * Isolation on the way of an operation (fs/isolate/isolate.h).
 */
#include "fs/isolate/isolate.h"

#include <sys/stat.h>

#include "fs/caller/proc.h"
#include "fs/isolate/attr_replies.h"
#include "fs/isolate/boost.h"
#include "fs/isolate/pay_point.h"
#include "fs/store/open_file.h"
#include "fs/store/open_jobs.h"

static pid_t thread_of(const QosOp *op)
{
    return fuse_req_ctx(op->fuse)->pid;
}

/* --- what it costs --- */

/* TRUE of a thread that comes to the pay point for its directory's lock, or for pages. One whose
 * call cannot be read, such as a worker of io_uring, may: it pays, and what it does next is
 * prepaid. */
static gboolean pays_here(pid_t thread, QosCall call)
{
    return qos_call_works_on_names(call) || call == QOS_CALL_READS_DATA ||
           (call == QOS_CALL_UNKNOWN && thread != 0);
}

/* As qos_tolls_meet(). On a file that no other job has open any more nobody pays. */
static QosTollState meet_toll(const QosOp *op, QosOpcode *ret_opcode)
{
    const QosJob *job = op->entry.request.job;
    const QosTollState state =
        qos_tolls_meet(op->fs->tolls, op->node, job, thread_of(op), op->caller->start, ret_opcode);
    const gboolean is_lone = state == QOS_TOLL_DUE && *ret_opcode == QOS_OP_READ &&
                             !qos_openers_has_others(op->fs->openers, op->node, job);

    return is_lone ? QOS_TOLL_FOREIGN : state;
}

/* The kernel asks for attributes for stat(2) and its kin, and by itself: before it takes a
 * directory's lock, under that or a file's, and before a read through the page cache. What the
 * program did not ask for is free. At a pay point a thread of the job in debt waits, if it comes to
 * change or list names, or to read. No other job is charged there, however often it is asked: what
 * the kernel was told it would go on believing. */
static void find_cost_of_attributes(QosOp *op)
{
    const QosFs *fs = op->fs;
    QosRequest *request = &op->entry.request;
    const QosTollState state = meet_toll(op, &request->toll_opcode);
    const gboolean is_pass = state == QOS_TOLL_FREE || state == QOS_TOLL_FOREIGN;
    QosCall call;

    request->is_free = is_pass;
    request->is_imposed =
        state == QOS_TOLL_FOREIGN && (qos_fs_is_shared(fs) || fs->config.attr_timeout > 0);
    if (is_pass || (state == QOS_TOLL_NONE && !qos_gate_is_limited(fs->gate, &op->entry)))
        return;
    call = qos_process_call(thread_of(op));
    request->is_toll = state == QOS_TOLL_DUE && pays_here(thread_of(op), call);
    request->is_free =
        !request->is_toll && call != QOS_CALL_UNKNOWN && call != QOS_CALL_READS_ATTRIBUTES;
}

/* The kernel asks for ACLs and capabilities by itself, before it lets a thread do what that came
 * for: this is free. */
static void find_cost_of_xattr(QosOp *op)
{
    QosCall call;

    if (!qos_gate_is_limited(op->fs->gate, &op->entry))
        return;
    call = qos_process_call(thread_of(op));
    op->entry.request.is_free = call != QOS_CALL_UNKNOWN && call != QOS_CALL_READS_XATTRS;
}

/* --- what holds a lock --- */

/* TRUE where other jobs may want the lock that the kernel holds for it: that of a directory, or of
 * a file that another job has open or has come for. */
static gboolean may_be_wanted(const QosOp *op)
{
    const QosFs *fs = op->fs;
    const QosJob *job = op->entry.request.job;

    if (op->isolation.locks_directory || qos_boosts_want(fs->boosts, op->locks, job))
        return TRUE;
    if (op->locked_file != NULL)
        return qos_open_file_is_shared(op->locked_file);
    return qos_openers_has_others(fs->openers, op->locks, job);
}

/* A thread that has paid at a pay point does not pay again for what it came for. */
static void note_lock(QosOp *op)
{
    QosRequest *request = &op->entry.request;

    if (op->locks == 0)
        return;
    op->isolation.locks_directory =
        op->locks_directory ||
        (op->locked_file == NULL && qos_inodes_is_directory(op->fs->inodes, op->locks));
    request->lock = op->locks;
    request->holds_lock |= may_be_wanted(op);
    if (request->fills_cache ||
        (op->isolation.locks_directory &&
         (request->opcode == QOS_OP_LOOKUP || qos_tolls_count(request->opcode))))
        request->is_free = qos_tolls_use(op->fs->tolls, thread_of(op), request->opcode);
}

static void enter(QosOp *op)
{
    if (op->may_be_unasked && op->entry.request.opcode == QOS_OP_GETATTR)
        find_cost_of_attributes(op);
    else if (op->may_be_unasked)
        find_cost_of_xattr(op);
    note_lock(op);
}

/* The job that wants it may not have found it. */
static void park(QosFs *fs, fuse_ino_t lock, const QosJob *job)
{
    if (qos_boosts_want(fs->boosts, lock, job) || qos_openers_has_others(fs->openers, lock, job))
        qos_gate_release(fs->gate, lock, NULL);
}

/* --- in the store --- */

static int call(QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (request->is_toll)
        qos_tolls_pay(op->fs->tolls, op->node, request->job, request->toll_opcode, thread_of(op),
                      request->prepays ? request->toll_opcode : QOS_OP_COUNT);
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
           qos_tolls_count(request->opcode);
}

static void called(QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (makes_pay_point(op))
        qos_tolls_raise(op->fs->tolls, op->locks, request->job, request->opcode, thread_of(op));
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

/* Where the kernel is told of a change, its thread is likely to wait for the file's pages
 * (fs/isolate/attr_replies.h). */
static gboolean tells_of_change(const QosOp *op, const QosTold *told)
{
    return !told->is_withheld && S_ISREG(told->stat->st_mode) && !qos_fs_is_shared(op->fs) &&
           qos_looks_note(op->fs->looks, told->ino, told->stat->st_mtim, told->stat->st_size);
}

static void reply(QosOp *op, QosTold *told)
{
    if (told->ino == 0)
        return;
    if (told->attr_timeout > 0 && !qos_tolls_may_believe(op->fs->tolls, told->ino))
        told->attr_timeout = 0;
    if (told->is_name && !may_believe_name(op, told))
        told->entry_timeout = 0;
    if (tells_of_change(op, told))
        qos_boost_file(op, told->ino);
}

/* The kernel waits for the pages that it drops. And nobody waits while the kernel holds a lock of a
 * file that another job has open. */
static void reply_open(QosOp *op, fuse_ino_t ino, QosHandle *handle)
{
    QosJob *job = handle->caller->job;
    gboolean is_new;

    if (!op->reply.info.keep_cache && op->fs->config.cache != QOS_CACHE_NONE)
        qos_boost_file(op, ino);
    handle->open_file = qos_openers_join(op->fs->openers, ino, job, &is_new);
    if (is_new)
        qos_gate_release(op->fs->gate, ino, job);
}

const QosHooks qos_isolation_hooks = {
    .enter = enter,
    .park = park,
    .call = call,
    .called = called,
    .reply = reply,
    .reply_open = reply_open,
};
