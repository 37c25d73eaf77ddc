/*
 * What each operation needs, and what the kernel may keep of its answer; fs/coherence/coherence.h
 * tells the way from the one to the other.
 */
#include "fs/coherence/coherence.h"

#include <errno.h>
#include <fcntl.h>

#include "fs/coherence/invalidator.h"
#include "fs/coherence/op_credits.h"
#include "fs/coherence/readdirplus.h"
#include "fs/coherence/stale_pages.h"
#include "fs/request/fs.h"
#include "fs/request/wait.h"
#include "fs/store/inode.h"
#include "fs/store/open_file.h"
#include "sys/mutex.h"

/* An answer may be as late as that part of what is left of the lease before the kernel starts to
 * count the time for which it may believe it. */
#define LATE_PART 2

struct QosCoherence {
    const QosFs *fs;
    QosPages *pages;
    QosLists *lists;
    QosInvalidator *invalidator;
    QosClaims *claims;
    QosNamecache *names;
    QosMutex names_lock; /* of `names` */
};

/* --- what an operation needs --- */

typedef enum { NOTHING, READS, CHANGES } Need;

typedef struct {
    Need node, other; /* of op->node and op->other_node */
} Needs;

/* Of what is not here the kernel keeps nothing, and nothing is changed. OPEN, the root's GETATTR,
 * and what is looked up or listed, are tried for (qos_coherence_attr_timeout). A READDIR without
 * attributes has no node.
 */
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

/* Whoever walks to the files of `.qosfs` asks for these first, and is to wait for no server. */
static gboolean asks_of_root(const QosOp *op)
{
    return op->entry.request.opcode == QOS_OP_GETATTR && op->node == FUSE_ROOT_ID;
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
static gboolean needs_claim(const QosOp *op, Needs needs)
{
    return needs.node != NOTHING || needs.other != NOTHING ||
           op->entry.request.opcode == QOS_OP_OPEN || asks_of_root(op) || qos_op_locks_pages(op);
}

/* --- the way of an operation --- */

/* The inode as the operation has it on loan by an open file; else NULL. */
static const QosLoan *loan_of(const QosOp *op, fuse_ino_t ino)
{
    const QosHandle *handle = op->handle != NULL ? op->handle : op->reply.handle;

    return handle != NULL && qos_loan_is_of(&handle->file, ino) ? &handle->file : NULL;
}

static gboolean find_number(const QosOp *op, fuse_ino_t node, guint64 *ret_number,
                            gboolean *ret_may_cache)
{
    const QosLoan *loan = loan_of(op, node);

    return loan != NULL ? qos_loan_number(loan, ret_number, ret_may_cache)
                        : qos_inodes_number(op->fs->inodes, node, ret_number, ret_may_cache);
}

static void add(const QosOp *op, guint64 number, gboolean may_cache, Need need)
{
    if (may_cache || need == CHANGES)
        qos_claim_add(op->claim, number, need == CHANGES);
}

static void add_nodes(QosOp *op, Needs needs)
{
    guint64 number;
    gboolean may_cache;

    if (needs.node != NOTHING && op->node != 0 &&
        find_number(op, op->node, &op->node_number, &op->caches_node))
        add(op, op->node_number, op->caches_node, needs.node);
    if (needs.other != NOTHING && op->other_node != 0 &&
        find_number(op, op->other_node, &number, &may_cache))
        add(op, number, may_cache, needs.other);
}

/* What shows that lists have arrived (fs/coherence/readdirplus.h). */
static void note_lists(const QosOp *op)
{
    const QosCoherence *coherence = op->fs->coherence;
    const QosOpcode opcode = op->entry.request.opcode;
    gboolean was_late = FALSE;

    if (opcode != QOS_OP_READ && opcode != QOS_OP_WRITE)
        was_late = qos_lists_note_arrived(coherence->lists, fuse_req_ctx(op->fuse)->pid, NULL);
    if (opcode == QOS_OP_READDIR || opcode == QOS_OP_CLOSEDIR)
        was_late |= qos_lists_note_arrived(coherence->lists, g_atomic_int_get(&op->handle->reader),
                                           op->handle);
    if (was_late)
        qos_invalidator_outdate_names(coherence->invalidator);
}

void qos_coherence_begin(QosOp *op)
{
    if (op->fs->coherence == NULL)
        return;
    note_lists(op);
    if (op->handle != NULL)
        qos_handle_note_use(op->handle);
    if (qos_op_locks_pages(op))
        qos_old_pages_begin(op, op->fs->coherence->pages);
}

/* FALSE: it needs none. */
static gboolean begin_claim(QosOp *op)
{
    const QosCoherence *coherence = op->fs->coherence;
    const Needs needs = needs_of(op);

    qos_invalidator_confirm(coherence->invalidator, op->node);
    if (!needs_claim(op, needs))
        return FALSE;
    op->names_epoch = qos_namecache_epoch(coherence->names);
    op->claim = qos_claim_new(coherence->claims);
    add_nodes(op, needs);
    return TRUE;
}

/* Its change is made: under its credit, or that is taken once more before the answer. */
static gboolean is_made(const QosOp *op)
{
    return op->entry.request.is_stored || (op->claim != NULL && qos_claim_is_settling(op->claim));
}

/* A drop waits for the pages that a READ has locked, and a credit may wait for the drop. So beside
 * a drop the READ takes the credit only if it is here. */
static gboolean may_wait(const QosOp *op)
{
    return !op->entry.request.fills_cache || !qos_coherence_is_dropping(op->fs, op->node);
}

/* A GETATTR that waits for pages to be dropped: it ends with -EINTR. */
static gboolean withdraw_from_pages(QosOp *op)
{
    if (!qos_pages_withdraw(op->fs->coherence->pages, op->node, &op->entry))
        return FALSE;
    qos_claim_fail(op->claim, -EINTR);
    qos_gate_resume(op->fs->gate, &op->entry);
    return TRUE;
}

gboolean qos_coherence_enter(QosOp *op)
{
    QosCoherence *coherence = op->fs->coherence;
    const gboolean is_new = op->claim == NULL;

    if (coherence == NULL || is_made(op) || (is_new && !begin_claim(op)))
        return TRUE;
    if (is_new && !may_wait(op))
        qos_claim_take_here(op);
    else if (!qos_claim_take(op))
        return FALSE;
    if (op->entry.request.opcode == QOS_OP_GETATTR && qos_claim_error(op->claim) == 0 &&
        qos_old_pages_hold(op, coherence->pages)) {
        /* What drops them may wait for others, who may wait for our credit. */
        qos_claim_put(op->claim);
        qos_op_pause(op, withdraw_from_pages);
        if (qos_pages_await(coherence->pages, op->node, fuse_req_ctx(op->fuse)->pid, &op->entry))
            return FALSE;
        return qos_coherence_enter(op);
    }
    if (qos_op_locks_pages(op))
        qos_old_pages_enter(op, coherence->pages, qos_claim_is_whole(op->claim));
    return TRUE;
}

gboolean qos_coherence_settle(QosOp *op)
{
    if (op->claim == NULL)
        return TRUE;
    if (!qos_claim_is_settling(op->claim) && qos_op_locks_pages(op))
        qos_old_pages_settle(op, op->fs->coherence->pages, qos_claim_stayed_whole(op->claim));
    if (op->entry.request.opcode == QOS_OP_READDIR && !qos_claim_stayed_whole(op->claim))
        qos_lists_note_late(op->fs->coherence->lists, op->node);
    return qos_claim_settle(op);
}

gboolean qos_coherence_begin_early(QosOp *op)
{
    if (op->fs->coherence == NULL || !begin_claim(op))
        return TRUE;
    if (!qos_old_pages_follow(op) && qos_claim_take_here(op))
        return TRUE;
    g_clear_pointer(&op->claim, qos_claim_free);
    return FALSE;
}

/* Others may see it from now on, so that this kernel must not show what it knew before: it takes
 * that from the answer otherwise. */
void qos_coherence_end_early(QosOp *op, gboolean is_made)
{
    const gboolean is_covered = op->claim != NULL && qos_claim_stayed_whole(op->claim);

    if (op->claim == NULL)
        return;
    if (is_made && qos_op_locks_pages(op))
        qos_old_pages_settle(op, op->fs->coherence->pages, is_covered);
    if (is_made) /* attributes alone: the kernel waits for no page, nor for a lock */
        fuse_lowlevel_notify_inval_inode(op->fs->session, op->node, -1, 0);
    if (is_made && (!is_covered || qos_claim_is_awaited(op)))
        qos_claim_settle_later(op->claim);
    else
        g_clear_pointer(&op->claim, qos_claim_free);
}

int qos_coherence_error(const QosOp *op)
{
    return op->claim != NULL ? qos_claim_error(op->claim) : 0;
}

gboolean qos_coherence_needs_file(const QosOp *op)
{
    return op->fs->coherence != NULL && qos_op_locks_pages(op);
}

void qos_coherence_leave(QosOp *op)
{
    if (op->fs->coherence == NULL)
        return;
    if (qos_op_locks_pages(op))
        qos_old_pages_leave(op, op->fs->coherence->pages);
    g_clear_pointer(&op->claim, qos_claim_free);
}

/* --- names --- */

void qos_coherence_look(QosOp *op, const QosLoan *parent, const char *name, gboolean changes,
                        QosNameLook *ret_look)
{
    QosCoherence *coherence = op->fs->coherence;
    guint64 folder;
    gboolean may_cache;

    *ret_look = (QosNameLook){.number = QOS_NAME_UNKNOWN};
    if (op->claim == NULL || name == NULL || !qos_loan_number(parent, &folder, &may_cache))
        return;
    qos_namecache_begin(coherence->names, folder, name, op->names_epoch,
                        qos_claim_losses(op->claim), ret_look);
    if (!changes)
        return;
    qos_mutex_lock(&coherence->names_lock);
    qos_namecache_take(coherence->names, ret_look);
    qos_mutex_unlock(&coherence->names_lock);
}

static guint64 number_of(const QosOp *op, const struct stat *stat)
{
    return qos_inodes_is_shared(op->fs->inodes, stat->st_dev) ? stat->st_ino : QOS_NAME_UNKNOWN;
}

/* By our clock the credits are held still: what was known is true, and the store need not say. */
void qos_coherence_touch(QosOp *op, const QosLoan *parent, const char *name, QosNameLook *ret_look)
{
    struct stat stat;

    qos_coherence_look(op, parent, name, TRUE, ret_look);
    if (op->claim == NULL)
        return;
    if (ret_look->number == QOS_NAME_UNKNOWN || !qos_claim_stayed_whole(op->claim))
        ret_look->number =
            fstatat(parent->fd, name, &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0
                ? number_of(op, &stat)
                : QOS_NAME_UNKNOWN;
    if (ret_look->number != QOS_NAME_UNKNOWN && ret_look->number != QOS_NAME_NONE)
        qos_claim_touch(op->claim, ret_look->number);
}

void qos_coherence_found(QosOp *op, const QosNameLook *look, int error, const struct stat *stat)
{
    guint64 number = QOS_NAME_UNKNOWN;

    if (error == 0)
        number = number_of(op, stat);
    else if (error == -ENOENT && !look->changes)
        number = QOS_NAME_NONE;
    qos_coherence_name_is(op, look, number);
}

void qos_coherence_name_is(QosOp *op, const QosNameLook *look, guint64 number)
{
    QosCoherence *coherence = op->fs->coherence;

    if (look->length == 0)
        return;
    if (!qos_claim_holds(op->claim, look->folder))
        number = QOS_NAME_UNKNOWN;
    qos_mutex_lock(&coherence->names_lock);
    qos_namecache_found(coherence->names, look, number);
    qos_mutex_unlock(&coherence->names_lock);
}

/* --- time-outs --- */

static double valid_seconds(const QosFs *fs)
{
    if (fs->config.cache == QOS_CACHE_NONE)
        return 0;
    return (double)qos_lockclient_valid(fs->lockclient) / (double)(LATE_PART * QOS_SECOND);
}

/* What a change brings the kernel believes whenever it comes to it, also after it was told to
 * forget. */
static gboolean is_believed_late(const QosOp *op)
{
    return needs_of_opcode[op->entry.request.opcode].node == CHANGES;
}

/* By a time of change that is new to it the kernel finds by itself that pages are old; but not by
 * that which comes with SETATTR. */
static gboolean look(QosOp *op, fuse_ino_t ino, QosInodeLook *ret_look)
{
    const QosLoan *loan = loan_of(op, ino);
    const gboolean drops = op->entry.request.opcode != QOS_OP_SETATTR;

    if (loan == NULL)
        return qos_inodes_look(op->fs->inodes, ino, drops, ret_look);
    if (drops)
        qos_loan_note_drop(loan);
    qos_loan_look(loan, ret_look);
    return TRUE;
}

static gboolean keeps(QosOp *op, fuse_ino_t ino, const QosInodeLook *seen)
{
    return seen->may_cache && qos_claim_covers(op->claim, seen->number) &&
           !qos_old_pages_are_there(op->fs, op->fs->coherence->pages, ino, seen->filled_era);
}

/* Those of a new file, which the kernel asks for at once, as it opens the file. Who tells it to
 * forget them waits until they have arrived (fs/coherence/invalidator.h). */
static gboolean sends_attributes(QosOp *op, fuse_ino_t ino, const QosInodeLook *seen)
{
    QosHandle *handle = op->reply.handle;

    if (handle == NULL || !qos_loan_note_sent(&handle->file))
        return FALSE;
    if (keeps(op, ino, seen)) {
        g_atomic_int_set(&handle->is_sent, TRUE);
        return TRUE;
    }
    qos_loan_note_arrived(&handle->file);
    return FALSE;
}

gboolean qos_coherence_covers(const QosOp *op, const QosLoan *file)
{
    guint64 number;
    gboolean may_cache;

    return qos_loan_number(file, &number, &may_cache) && may_cache && op->claim != NULL &&
           qos_claim_covers(op->claim, number);
}

/* Where the credit is not here, what was had under it was dropped when it was lost, or is queued to
 * be. So while somebody may be writing into the pages they stay. */
gboolean qos_coherence_opens(QosOp *op, fuse_ino_t ino, const QosLoan *file)
{
    const struct fuse_file_info *info = &op->reply.info;
    gboolean keeps_pages = FALSE;

    if (valid_seconds(op->fs) > 0) {
        QosInodeLook seen;

        qos_loan_look(file, &seen);
        keeps_pages = keeps(op, ino, &seen) || qos_loan_has_writers(file);
    }
    if (!info->direct_io || valid_seconds(op->fs) > 0) /* what is open past them can be mapped */
        qos_loan_note_pages(file);
    if (!keeps_pages || (info->flags & O_TRUNC) != 0)
        qos_loan_note_drop(file);
    return keeps_pages;
}

double qos_coherence_attr_timeout(QosOp *op, fuse_ino_t ino)
{
    const double seconds = valid_seconds(op->fs);
    QosInodeLook seen;

    if (!look(op, ino, &seen) || seconds == 0)
        return 0;
    if (is_believed_late(op))
        return sends_attributes(op, ino, &seen) ? seconds : 0;
    return keeps(op, ino, &seen) ? seconds : 0;
}

double qos_coherence_entry_timeout(const QosOp *op)
{
    const double seconds = valid_seconds(op->fs);

    if (!qos_invalidator_forgets_names(op->fs->coherence->invalidator) || !op->caches_node)
        return 0;
    return qos_claim_holds(op->claim, op->node_number) ? seconds : 0;
}

gboolean qos_coherence_lists(QosOp *op)
{
    const pid_t reader = fuse_req_ctx(op->fuse)->pid;

    /* Who is in another namespace cannot be told from others. */
    if (reader == 0 || qos_coherence_entry_timeout(op) == 0)
        return FALSE;
    qos_lists_note_sent(op->fs->coherence->lists, reader, op->handle, op->node);
    g_atomic_int_set(&op->handle->reader, reader);
    return TRUE;
}

gboolean qos_coherence_tells(const QosOp *op, guint64 number, gboolean is_new)
{
    return !(is_new && qos_inodes_knows(op->fs->inodes, number)) &&
           qos_claim_covers(op->claim, number);
}

gboolean qos_coherence_is_dropping(const QosFs *fs, fuse_ino_t ino)
{
    return fs->coherence != NULL && qos_pages_are_old(fs->coherence->pages, ino);
}

/* --- life --- */

void qos_coherence_forget(QosCoherence *coherence, const QosResource *resource,
                          const QosCredit *credit, QosLossKind kind)
{
    qos_invalidator_forget(coherence->invalidator, resource, credit, kind);
}

void qos_coherence_hurry(QosCoherence *coherence, const QosResource *resource)
{
    qos_invalidator_hurry(coherence->invalidator, resource);
}

QosCoherence *qos_coherence_new(const QosFs *fs)
{
    QosCoherence *coherence = g_new0(QosCoherence, 1);

    coherence->fs = fs;
    coherence->claims = qos_claims_new(fs->lockclient, fs->gate);
    coherence->lists = qos_lists_new();
    coherence->names = qos_namecache_new();
    qos_mutex_init(&coherence->names_lock, QOS_MUTEX_COHERENCE);
    coherence->pages = qos_pages_new(fs->session, fs->gate, fs->inodes, qos_gate_now);
    if (coherence->pages != NULL)
        coherence->invalidator =
            qos_invalidator_new(fs, coherence->pages, coherence->lists, coherence->names);
    if (coherence->invalidator != NULL)
        return coherence;
    qos_coherence_free(coherence);
    return NULL;
}

void qos_coherence_meet_kernel(QosCoherence *coherence, guint minor)
{
    qos_invalidator_meet_kernel(coherence->invalidator, minor);
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
    qos_claims_stop(coherence->claims);
    qos_invalidator_stop(coherence->invalidator);
}

void qos_coherence_free(QosCoherence *coherence)
{
    if (coherence == NULL)
        return;
    qos_invalidator_free(coherence->invalidator);
    qos_pages_free(coherence->pages);
    qos_lists_free(coherence->lists);
    qos_claims_free(coherence->claims);
    qos_mutex_destroy(&coherence->names_lock);
    qos_namecache_free(coherence->names);
    g_free(coherence);
}
