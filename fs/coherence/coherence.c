/*
 * The table of what each operation needs, and the hooks that take it. fs/coherence/coherence.h has
 * the contract and its reasons.
 */
#include "fs/coherence/coherence.h"

#include <errno.h>
#include <fcntl.h>

#include "fs/coherence/stale_pages.h"
#include "fs/coherence/state.h"
#include "fs/request/wait.h"
#include "fs/store/open_file.h"

/* --- what an operation needs --- */

typedef enum { NOTHING, READS, CHANGES } Need;

typedef struct {
    Need node, other; /* of op->target.node and op->target.other_node */
} Needs;

/* Operations that are not in this table change nothing, and the kernel keeps nothing of their
 * replies. For OPEN, for the root's GETATTR, and for files that are looked up or listed, a credit
 * is only tried for (qos_coherence_attr_timeout). A READDIR without attributes has no node. */
static const Needs needs_of_opcode[QOS_OP_COUNT] = {
    [QOS_OP_LOOKUP] = {READS, NOTHING},        [QOS_OP_GETATTR] = {READS, NOTHING},
    [QOS_OP_SETATTR] = {CHANGES, NOTHING},     [QOS_OP_MKNOD] = {CHANGES, NOTHING},
    [QOS_OP_MKDIR] = {CHANGES, NOTHING},       [QOS_OP_SYMLINK] = {CHANGES, NOTHING},
    [QOS_OP_LINK] = {CHANGES, CHANGES},        [QOS_OP_UNLINK] = {CHANGES, NOTHING},
    [QOS_OP_RMDIR] = {CHANGES, NOTHING},       [QOS_OP_RENAME] = {CHANGES, CHANGES},
    [QOS_OP_CREATE] = {CHANGES, NOTHING},      [QOS_OP_READ] = {READS, NOTHING},
    [QOS_OP_WRITE] = {CHANGES, NOTHING},       [QOS_OP_GETXATTR] = {READS, NOTHING},
    [QOS_OP_SETXATTR] = {CHANGES, NOTHING},    [QOS_OP_FALLOCATE] = {CHANGES, NOTHING},
    [QOS_OP_REMOVEXATTR] = {CHANGES, NOTHING}, [QOS_OP_COPY] = {CHANGES, NOTHING},
    [QOS_OP_IOCTL] = {CHANGES, NOTHING},       [QOS_OP_READDIR] = {READS, NOTHING},
};

/* A program on its way to the files of `.qosfs` asks for these first, and must not wait for a
 * server. */
static gboolean asks_of_root(const QosOp *op)
{
    return op->entry.request.opcode == QOS_OP_GETATTR && op->target.node == FUSE_ROOT_ID;
}

static Needs needs_of(const QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (asks_of_root(op))
        return (Needs){NOTHING, NOTHING};
    if (request->opcode == QOS_OP_OPEN && (op->reply.info.flags & O_TRUNC) != 0)
        return (Needs){CHANGES, NOTHING};
    if (request->opcode == QOS_OP_READ && !request->fills_cache)
        return (Needs){NOTHING, NOTHING};
    return needs_of_opcode[request->opcode];
}

/* FALSE: nothing is to be taken, tried or looked at later. */
static gboolean needs_credits(const QosOp *op, Needs needs)
{
    return needs.node != NOTHING || needs.other != NOTHING ||
           op->entry.request.opcode == QOS_OP_OPEN || asks_of_root(op) || qos_op_locks_pages(op);
}

/* --- the way of an operation --- */

static gboolean find_number(const QosOp *op, fuse_ino_t node, guint64 *ret_number,
                            gboolean *ret_may_cache)
{
    const QosInodeRef *ref = qos_coherence_ref(op, node);

    return ref != NULL ? qos_inode_ref_number(ref, ret_number, ret_may_cache)
                       : qos_inodes_number(op->fs->inodes, node, ret_number, ret_may_cache);
}

static void add(const QosOp *op, guint64 number, gboolean may_cache, Need need)
{
    if (may_cache || need == CHANGES)
        qos_op_credits_add(op->coherence.credits, number, need == CHANGES);
}

static void add_nodes(QosOp *op, Needs needs)
{
    guint64 number;
    gboolean may_cache;

    if (needs.node != NOTHING && op->target.node != 0 &&
        find_number(op, op->target.node, &number, &may_cache)) {
        op->coherence.node_number = number;
        op->coherence.caches_node = may_cache != FALSE;
        add(op, number, may_cache, needs.node);
    }
    if (needs.other != NOTHING && op->target.other_node != 0 &&
        find_number(op, op->target.other_node, &number, &may_cache))
        add(op, number, may_cache, needs.other);
}

/* Notes which lists have arrived, because this operation has come (fs/coherence/readdirplus.h). */
static void note_readdirplus(const QosOp *op)
{
    const QosCoherence *coherence = op->fs->coherence;
    const QosOpcode opcode = op->entry.request.opcode;
    gboolean was_overdue = FALSE;

    if (opcode != QOS_OP_READ && opcode != QOS_OP_WRITE)
        was_overdue =
            qos_readdirplus_note_arrived(coherence->readdirplus, fuse_req_ctx(op->fuse)->pid, NULL);
    if (opcode == QOS_OP_READDIR || opcode == QOS_OP_CLOSEDIR)
        was_overdue |= qos_readdirplus_note_arrived(
            coherence->readdirplus, g_atomic_int_get(&op->open_file->reader), op->open_file);
    if (was_overdue)
        qos_invalidator_outdate_names(coherence->invalidator);
}

/* Whether pages of the file are being dropped: a READ that fills some must not wait. */
static gboolean is_dropping(const QosFs *fs, fuse_ino_t ino)
{
    return qos_pages_are_stale(fs->coherence->pages, ino);
}

/* Until it is answered, others look at the file of which the kernel has pages locked for it. */
static void enter(QosOp *op)
{
    QosRequest *request = &op->entry.request;

    if (op->fs->coherence == NULL)
        return;
    note_readdirplus(op);
    if (op->open_file != NULL)
        qos_open_file_note_use(op->open_file);
    if (!qos_op_locks_pages(op))
        return;
    op->coherence.replies_first = TRUE;
    qos_stale_pages_begin(op, op->fs->coherence->pages);
    if (request->fills_cache && is_dropping(op->fs, op->target.node))
        request->holds_lock = TRUE;
}

/* FALSE: it needs none. */
static gboolean begin_credits(QosOp *op)
{
    const QosCoherence *coherence = op->fs->coherence;
    const Needs needs = needs_of(op);

    qos_invalidator_confirm(coherence->invalidator, op->target.node);
    if (!needs_credits(op, needs))
        return FALSE;
    op->coherence.names_epoch = qos_namecache_epoch(coherence->names);
    op->coherence.credits = qos_op_credits_new(coherence->credit_waiters);
    op->coherence.is_change = needs_of_opcode[op->entry.request.opcode].node == CHANGES;
    add_nodes(op, needs);
    return TRUE;
}

/* Its change is made: under its credit, or that is taken once more before the answer. */
static gboolean is_made(const QosOp *op)
{
    return op->entry.request.is_stored ||
           (op->coherence.credits != NULL && qos_op_credits_is_settling(op->coherence.credits));
}

/* A drop waits for the pages that a READ has locked, and a credit may wait for the drop. So while
 * pages of its file are being dropped, a READ takes the credit only if it is here. */
static gboolean may_wait(const QosOp *op)
{
    return !op->entry.request.fills_cache || !is_dropping(op->fs, op->target.node);
}

/* A GETATTR that waits for pages to be dropped: it ends with -EINTR. */
static gboolean withdraw_from_pages(QosOp *op)
{
    if (!qos_pages_withdraw(op->fs->coherence->pages, op->target.node, &op->entry))
        return FALSE;
    qos_op_credits_fail(op->coherence.credits, -EINTR);
    qos_gate_resume(op->fs->gate, &op->entry);
    return TRUE;
}

static gboolean serve(QosOp *op)
{
    QosCoherence *coherence = op->fs->coherence;
    const gboolean is_new = op->coherence.credits == NULL;

    if (coherence == NULL || is_made(op) || (is_new && !begin_credits(op)))
        return TRUE;
    if (is_new && !may_wait(op))
        qos_op_credits_take_here(op);
    else if (!qos_op_credits_take(op))
        return FALSE;
    if (op->entry.request.opcode == QOS_OP_GETATTR &&
        qos_op_credits_error(op->coherence.credits) == 0 &&
        qos_stale_pages_hold(op, coherence->pages)) {
        /* The thread that drops them may wait for other requests, which may wait for our credit. */
        qos_op_credits_put(op->coherence.credits);
        qos_op_pause(op, withdraw_from_pages);
        if (qos_pages_await(coherence->pages, op->target.node, fuse_req_ctx(op->fuse)->pid,
                            &op->entry))
            return FALSE;
        return serve(op);
    }
    if (qos_op_locks_pages(op))
        qos_stale_pages_enter(op, coherence->pages, qos_op_credits_is_whole(op->coherence.credits));
    return TRUE;
}

static gboolean settle(QosOp *op)
{
    if (op->coherence.credits == NULL)
        return TRUE;
    if (!qos_op_credits_is_settling(op->coherence.credits) && qos_op_locks_pages(op))
        qos_stale_pages_settle(op, op->fs->coherence->pages,
                               qos_op_credits_stayed_whole(op->coherence.credits));
    if (op->entry.request.opcode == QOS_OP_READDIR &&
        !qos_op_credits_stayed_whole(op->coherence.credits))
        qos_readdirplus_note_overdue(op->fs->coherence->readdirplus, op->target.node);
    return qos_op_credits_settle(op);
}

static gboolean begin_early(QosOp *op)
{
    if (op->fs->coherence == NULL || !begin_credits(op))
        return TRUE;
    if (!qos_stale_pages_may_follow(op) && qos_op_credits_take_here(op))
        return TRUE;
    g_clear_pointer(&op->coherence.credits, qos_op_credits_free);
    return FALSE;
}

/* Others may see it from now on, so that this kernel must not show what it knew before: it takes
 * that from the answer otherwise. */
static void end_early(QosOp *op, gboolean is_made)
{
    const gboolean is_covered =
        op->coherence.credits != NULL && qos_op_credits_stayed_whole(op->coherence.credits);

    if (op->coherence.credits == NULL)
        return;
    if (is_made && qos_op_locks_pages(op))
        qos_stale_pages_settle(op, op->fs->coherence->pages, is_covered);
    if (is_made) /* attributes alone: the kernel waits for no page, nor for a lock */
        fuse_lowlevel_notify_inval_inode(op->fs->session, op->target.node, -1, 0);
    if (is_made && (!is_covered || qos_op_credits_is_awaited(op)))
        qos_op_credits_settle_later(op->coherence.credits);
    else
        g_clear_pointer(&op->coherence.credits, qos_op_credits_free);
}

static int call(QosOp *op)
{
    QosOpCredits *credits = op->coherence.credits;
    const int error = credits != NULL ? qos_op_credits_error(credits) : 0;

    if (credits == NULL || error != 0)
        return error;
    if (op->entry.request.opcode == QOS_OP_READDIR && op->target.node != 0)
        op->coherence.keeps_list = qos_coherence_begin_list(op);
    qos_coherence_drop_names(op); /* of a call that was refused */
    qos_op_credits_changed_nothing(credits);
    return qos_coherence_begin_names(op);
}

static void called(QosOp *op)
{
    if (op->coherence.credits != NULL)
        qos_coherence_end_names(op);
}

static void leave(QosOp *op)
{
    if (op->fs->coherence == NULL)
        return;
    if (qos_op_locks_pages(op))
        qos_stale_pages_leave(op, op->fs->coherence->pages);
    g_clear_pointer(&op->coherence.credits, qos_op_credits_free);
}

/* --- lists --- */

static gboolean list(QosOp *op, guint64 number, const char *name, gboolean is_first)
{
    if (op->fs->coherence == NULL)
        return TRUE;
    if (!qos_coherence_lists(op, number, is_first))
        return FALSE;
    qos_coherence_begin_listed(op, name);
    return TRUE;
}

static void listed(QosOp *op, int error, const struct stat *stat)
{
    if (op->fs->coherence != NULL)
        qos_coherence_end_listed(op, error, stat);
}

/* --- life --- */

void qos_coherence_forget(QosCoherence *coherence, const QosResource *resource,
                          const QosCredit *credit, QosRecallKind kind)
{
    qos_invalidator_forget(coherence->invalidator, resource, credit, kind);
}

void qos_coherence_make_urgent(QosCoherence *coherence, const QosResource *resource)
{
    qos_invalidator_make_urgent(coherence->invalidator, resource);
}

QosCoherence *qos_coherence_new(const QosFs *fs)
{
    QosCoherence *coherence = g_new0(QosCoherence, 1);

    coherence->fs = fs;
    coherence->credit_waiters = qos_credit_waiters_new(fs->lockclient, fs->gate);
    coherence->readdirplus = qos_readdirplus_new();
    coherence->names = qos_namecache_new();
    qos_mutex_init(&coherence->names_lock, QOS_MUTEX_COHERENCE);
    coherence->pages = qos_pages_new(fs->session, fs->gate, fs->inodes, qos_clock_now);
    if (coherence->pages != NULL)
        coherence->invalidator =
            qos_invalidator_new(fs, coherence->pages, coherence->readdirplus, coherence->names);
    if (coherence->invalidator != NULL)
        return coherence;
    qos_coherence_free(coherence);
    return NULL;
}

static void connect(QosFs *fs, const struct fuse_conn_info *connection)
{
    if (fs->coherence != NULL)
        qos_invalidator_meet_kernel(fs->coherence->invalidator, connection->proto_minor);
}

void qos_coherence_end_drops(QosCoherence *coherence)
{
    if (coherence != NULL)
        qos_pages_end_drops(coherence->pages);
}

void qos_coherence_stop(QosCoherence *coherence)
{
    if (coherence == NULL)
        return;
    qos_pages_stop(coherence->pages);
    qos_credit_waiters_stop(coherence->credit_waiters);
    qos_invalidator_stop(coherence->invalidator);
}

void qos_coherence_free(QosCoherence *coherence)
{
    if (coherence == NULL)
        return;
    qos_invalidator_free(coherence->invalidator);
    qos_pages_free(coherence->pages);
    qos_readdirplus_free(coherence->readdirplus);
    qos_credit_waiters_free(coherence->credit_waiters);
    qos_mutex_destroy(&coherence->names_lock);
    qos_namecache_free(coherence->names);
    g_free(coherence);
}

const QosHooks qos_coherence_hooks = {
    .connect = connect,
    .enter = enter,
    .begin_early = begin_early,
    .end_early = end_early,
    .serve = serve,
    .call = call,
    .called = called,
    .settle = settle,
    .leave = leave,
    .reply = qos_coherence_reply,
    .reply_open = qos_coherence_reply_open,
    .reply_opendir = qos_coherence_reply_opendir,
    .list = list,
    .listed = listed,
};
