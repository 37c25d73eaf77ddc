/*
 * The credits that operations take; ops/coherence.h tells how.
 */
#include "ops/coherence.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "fs/ring.h"
#include "ops/handle.h"
#include "ops/inode.h"
#include "ops/inode_credit.h"
#include "ops/interrupt.h"
#include "ops/invalidator.h"
#include "ops/old_pages.h"

/* An answer may be as late as that part of what is left of the lease before the kernel starts to
 * count the time for which it may believe it. */
#define LATE_PART  2

#define PARTS_MAX  2

#define STOP_PAUSE 1000 /* us: what others do in a moment */

struct QosCoherence {
    const QosFs *fs;
    QosPages *pages;
    QosInvalidator *invalidator;
    gint begun;           /* atomic: waits for credits so far, modulo 2^32 */
    gint under_way;       /* atomic: of these */
    pthread_mutex_t lock; /* the rest */
    GQueue waiting;       /* of QosOp, by the links of their claims */
    gboolean is_stopping;
};

/* --- what an operation needs --- */

typedef enum { NOTHING, READS, CHANGES } Need;

typedef struct {
    Need node, other; /* of op->node and op->other_node */
} Needs;

/* Of what is not here the kernel keeps nothing, and nothing is changed. OPEN and what is looked up
 * are tried for (qos_coherence_attr_timeout). */
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
    [QOS_OP_IOCTL] = {CHANGES, NOTHING},
};

static Needs needs_of(const QosOp *op)
{
    const QosRequest *request = &op->entry.request;

    if (request->opcode == QOS_OP_OPEN && (op->reply.info.flags & O_TRUNC) != 0)
        return (Needs){CHANGES, NOTHING};
    if (request->opcode == QOS_OP_READ &&
        (!request->fills_cache || qos_coherence_is_dropping(op->fs, op->node)))
        return (Needs){NOTHING, NOTHING};
    return needs_of_opcode[request->opcode];
}

/* --- claims --- */

typedef struct {
    QosLockUse use; /* first; hold.user: the operation */
    guint64 number;
    gboolean writes;
    gboolean is_held;
} Part;

typedef enum {
    BEFORE_CHANGE,
    LOST_AGAIN, /* what was lost while the store was called is taken once more */
    TOUCHED,    /* what a name turned out to be */
} Phase;

struct QosClaim {
    Part parts[PARTS_MAX]; /* in the order of resources */
    guint count, taken;    /* of parts; those before `taken` are held or not to be had */
    Phase phase;
    gboolean has_waited, is_postponed;
    QosCreditVerdict refused; /* what a change needs next; QOS_CREDIT_GRANTED: it is not */
    QosTime since;            /* that it was first (qos_lockclient_postpone); 0: never */
    guint losses;             /* of the client's, before the first was taken */
    guint64 touched[PARTS_MAX];
    guint touched_count;
    gint begun;         /* waits for credits, when it had its own; ... */
    gboolean was_quiet; /* ... and none was under way */
    int error;
    GList link; /* in QosCoherence.waiting; data: the operation, or NULL while it is not */
};

static QosClaim *claim_new(void)
{
    QosClaim *claim = g_malloc(sizeof(*claim)); /* quicker than calloc(), as in ops/op.c */

    memset(claim, 0, sizeof(*claim));
    return claim;
}

static void add_part(QosClaim *claim, guint64 number, gboolean writes)
{
    Part *part = claim->parts;
    guint place = claim->count;

    for (guint i = 0; i < claim->count; i++) {
        if (part[i].number == number) {
            part[i].writes |= writes;
            return;
        }
    }
    for (; place > 0 && part[place - 1].number > number; place--)
        part[place] = part[place - 1];
    part[place] = (Part){.number = number, .writes = writes};
    claim->count++;
}

static void add_node(const QosOp *op, fuse_ino_t node, Need need)
{
    guint64 number;
    gboolean may_cache;

    if (need != NOTHING && node != 0 &&
        qos_inodes_number(op->fs->inodes, node, &number, &may_cache) &&
        (may_cache || need == CHANGES))
        add_part(op->claim, number, need == CHANGES);
}

static void note_quiet(const QosCoherence *coherence, QosClaim *claim)
{
    claim->begun = g_atomic_int_get(&coherence->begun);
    claim->was_quiet = g_atomic_int_get(&coherence->under_way) == 0;
}

/* No credit can have come since note_quiet(). What is here now was here all the time. */
static gboolean was_quiet(const QosCoherence *coherence, const QosClaim *claim)
{
    return claim->was_quiet && claim->begun == g_atomic_int_get(&coherence->begun);
}

static void put_parts(const QosFs *fs, QosClaim *claim)
{
    for (guint i = 0; i < claim->taken; i++) {
        if (claim->parts[i].is_held)
            qos_lockclient_put(fs->lockclient, &claim->parts[i].use);
        claim->parts[i].is_held = FALSE;
    }
    claim->taken = 0;
}

/* --- taking credits --- */

static void end_wait_locked(QosCoherence *coherence, QosClaim *claim)
{
    g_queue_unlink(&coherence->waiting, &claim->link);
    claim->link.data = NULL;
    g_atomic_int_add(&coherence->under_way, -1);
}

/* So much for the next credit. To read, one goes on without; a change is taken care of by
 * postpone(). */
static void note_verdict(QosClaim *claim, QosCreditVerdict verdict)
{
    Part *part = &claim->parts[claim->taken];

    if (part->writes && verdict != QOS_CREDIT_GRANTED) {
        claim->refused = verdict;
        return;
    }
    part->is_held = verdict == QOS_CREDIT_GRANTED;
    claim->taken++;
}

/* The wait for the next credit, or until it is to be asked for again, has ended so. */
static void end_wait(QosCoherence *coherence, QosClaim *claim, QosCreditVerdict verdict)
{
    pthread_mutex_lock(&coherence->lock);
    if (!claim->is_postponed)
        note_verdict(claim, verdict);
    claim->is_postponed = FALSE;
    end_wait_locked(coherence, claim);
    pthread_mutex_unlock(&coherence->lock);
}

static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    QosOp *op = use->hold.user;

    end_wait(op->fs->coherence, op->claim, verdict);
    qos_gate_resume(op->fs->gate, &op->entry);
}

static QosCreditVerdict get(QosOp *op, Part *part, guint flags)
{
    QosLockclient *client = op->fs->lockclient;
    const guint group = qos_lockclient_group(client);
    QosResource resource;
    QosSpan span;

    if (group == 0)
        return QOS_CREDIT_ERROR; /* there was no server yet */
    const QosCredit want = qos_inode_credit(part->number, group, part->writes, &resource, &span);
    part->use = (QosLockUse){.hold.user = op, .done = done};
    return qos_lockclient_get(client, &resource, &want, flags, &part->use);
}

/* From here on the operation may be another thread's at any time. FALSE: the mount ends. */
static gboolean begin_wait(QosCoherence *coherence, QosOp *op)
{
    QosClaim *claim = op->claim;

    qos_op_keep(op, claim->phase == BEFORE_CHANGE);
    claim->has_waited = TRUE;
    pthread_mutex_lock(&coherence->lock);
    gboolean may_wait = !coherence->is_stopping;
    if (may_wait) {
        claim->link.data = op;
        g_queue_push_tail_link(&coherence->waiting, &claim->link);
    }
    pthread_mutex_unlock(&coherence->lock);
    if (may_wait) {
        g_atomic_int_inc(&coherence->under_way);
        g_atomic_int_inc(&coherence->begun);
    }
    return may_wait;
}

/* Takes the next credit, or finds that it is not to be had. FALSE: it waits. */
static gboolean take(QosOp *op, Part *part)
{
    QosCoherence *coherence = op->fs->coherence;
    QosClaim *claim = op->claim;
    QosCreditVerdict verdict = get(op, part, QOS_CREDIT_NON_BLOCK_LOCAL);

    if (verdict == QOS_CREDIT_DENIED && begin_wait(coherence, op)) {
        verdict = get(op, part, QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT);
        if (verdict != QOS_CREDIT_WAITING)
            end_wait(coherence, claim, verdict);
        return verdict != QOS_CREDIT_WAITING;
    }
    note_verdict(claim, verdict);
    return TRUE;
}

/* There is no hope: without a server a change goes on, as all do then; of one that is there, and
 * has no room for so long, others may have cached what is to be changed. */
static void give_up(QosClaim *claim, QosCreditVerdict verdict)
{
    if (verdict == QOS_CREDIT_ERROR) {
        claim->taken = claim->count;
        return;
    }
    g_warning_once("the lock server has had no room for a credit for %d s: changes fail (ENOLCK) "
                   "until it has; raise its limit, or what one mount may have (cap)",
                   (int)(QOS_LOCKCLIENT_FULL / QOS_SECOND));
    claim->error = -ENOLCK;
}

/* A change was refused a credit: it waits, with none in use, and begins anew. FALSE: it waits. */
static gboolean postpone(QosOp *op)
{
    QosCoherence *coherence = op->fs->coherence;
    QosClaim *claim = op->claim;
    QosLockUse *use = &claim->parts[0].use;
    QosCreditVerdict verdict = claim->refused;
    const QosTime delay = claim->parts[claim->taken].use.delay;

    put_parts(op->fs, claim);
    *use = (QosLockUse){.hold.user = op, .done = done, .delay = delay};
    claim->refused = QOS_CREDIT_GRANTED;
    claim->is_postponed = TRUE;
    if (!begin_wait(coherence, op)) {
        claim->error = -ENOTCONN;
        return TRUE;
    }
    verdict = qos_lockclient_postpone(op->fs->lockclient, use, verdict, &claim->since);
    if (verdict == QOS_CREDIT_WAITING)
        return FALSE;
    end_wait(coherence, claim, verdict);
    give_up(claim, verdict);
    return TRUE;
}

static gboolean take_all(QosOp *op)
{
    QosClaim *claim = op->claim;

    if (claim->taken == 0)
        claim->losses = qos_lockclient_losses(op->fs->lockclient);
    while (claim->error == 0 && claim->taken < claim->count) {
        gboolean goes_on = claim->refused != QOS_CREDIT_GRANTED
                               ? postpone(op)
                               : take(op, &claim->parts[claim->taken]);
        if (!goes_on)
            return FALSE;
    }
    return TRUE;
}

static gboolean holds_any(const QosClaim *claim)
{
    gboolean holds = FALSE;

    for (guint i = 0; i < claim->taken; i++)
        holds |= claim->parts[i].is_held;
    return holds;
}

/* What was held may have been lost, and be others' now: the lease has run out, by our clock, since
 * it was taken, or the server did not know us any more. */
static gboolean may_have_lost(const QosOp *op)
{
    const QosLockclient *client = op->fs->lockclient;

    return qos_lockclient_valid(client) == 0 || qos_lockclient_losses(client) != op->claim->losses;
}

/* Takes back an operation that waits; it goes on with `error`. FALSE: its credit is coming at this
 * moment, or is yet to be asked for. */
static gboolean take_back_locked(QosCoherence *coherence, QosOp *op, int error)
{
    QosClaim *claim = op->claim;

    if (!qos_lockclient_withdraw(coherence->fs->lockclient, &claim->parts[claim->taken].use))
        return FALSE;
    claim->error = error;
    end_wait_locked(coherence, claim);
    qos_gate_resume(op->fs->gate, &op->entry);
    return TRUE;
}

gboolean qos_coherence_interrupt(QosOp *op)
{
    QosCoherence *coherence = op->fs->coherence;
    QosClaim *claim = op->claim;

    if (coherence == NULL || claim == NULL)
        return FALSE;
    pthread_mutex_lock(&coherence->lock);
    gboolean is_taken = claim->link.data != NULL && take_back_locked(coherence, op, -EINTR);
    pthread_mutex_unlock(&coherence->lock);
    return is_taken;
}

/* --- the way of an operation --- */

void qos_coherence_begin(QosOp *op)
{
    if (op->fs->coherence == NULL)
        return;
    if (op->handle != NULL)
        qos_handle_note_use(op->handle);
    if (qos_op_locks_pages(op))
        qos_old_pages_begin(op);
}

gboolean qos_coherence_enter(QosOp *op)
{
    QosCoherence *coherence = op->fs->coherence;

    if (coherence == NULL || (op->claim != NULL && op->claim->phase != BEFORE_CHANGE))
        return TRUE;
    if (op->claim == NULL) {
        const Needs needs = needs_of(op);

        op->claim = claim_new();
        add_node(op, op->node, needs.node);
        add_node(op, op->other_node, needs.other);
        qos_invalidator_confirm(coherence->invalidator, op->node);
    }
    if (!take_all(op))
        return FALSE;
    /* Who was just woken may have slept for long. */
    if (op->claim->has_waited && holds_any(op->claim) && may_have_lost(op)) {
        put_parts(op->fs, op->claim);
        op->claim->has_waited = FALSE;
        return qos_coherence_enter(op);
    }
    if (op->entry.request.opcode == QOS_OP_GETATTR && op->claim->error == 0 &&
        qos_old_pages_are_there(op->fs, coherence->pages, op->node)) {
        /* What drops them may wait for others, who may wait for our credit. */
        put_parts(op->fs, op->claim);
        if (qos_pages_await(coherence->pages, op->node, &op->entry))
            return FALSE;
        return qos_coherence_enter(op);
    }
    note_quiet(coherence, op->claim);
    return TRUE;
}

/* It had a credit on op->node, and has it. */
static gboolean is_node_held(const QosOp *op)
{
    const QosClaim *claim = op->claim;

    return claim->count > 0 && claim->parts[0].is_held && !may_have_lost(op);
}

/* A change is in the store, and others may have looked at what was before, and cached it. */
static gboolean has_lost_change(const QosOp *op)
{
    const QosClaim *claim = op->claim;
    gboolean is_change = FALSE;

    for (guint i = 0; i < claim->count; i++)
        is_change |= claim->parts[i].writes && claim->parts[i].is_held;
    return is_change && claim->error == 0 && may_have_lost(op);
}

static void enter_phase(const QosOp *op, Phase phase)
{
    QosClaim *claim = op->claim;
    const guint count = claim->count;

    put_parts(op->fs, claim);
    claim->phase = phase;
    claim->count = 0;
    for (guint i = 0; i < count && phase == LOST_AGAIN; i++) {
        if (claim->parts[i].writes)
            claim->parts[claim->count++] = (Part){.number = claim->parts[i].number, .writes = TRUE};
    }
    for (guint i = 0; i < claim->touched_count && phase == TOUCHED; i++)
        add_part(claim, claim->touched[i], TRUE);
}

gboolean qos_coherence_settle(QosOp *op)
{
    QosClaim *claim = op->claim;

    if (claim == NULL)
        return TRUE;
    if (claim->phase == BEFORE_CHANGE) {
        if (qos_op_locks_pages(op))
            qos_old_pages_settle(op, op->fs->coherence->pages, is_node_held(op));
        if (has_lost_change(op))
            enter_phase(op, LOST_AGAIN);
    }
    if (claim->phase == LOST_AGAIN && !take_all(op))
        return FALSE;
    if (claim->phase != TOUCHED && claim->touched_count > 0)
        enter_phase(op, TOUCHED);
    return claim->phase != TOUCHED || take_all(op);
}

int qos_coherence_error(const QosOp *op)
{
    return op->claim != NULL ? op->claim->error : 0;
}

void qos_coherence_leave(QosOp *op)
{
    if (op->fs->coherence == NULL)
        return;
    if (qos_op_locks_pages(op))
        qos_old_pages_leave(op, op->fs->coherence->pages);
    if (op->claim != NULL)
        put_parts(op->fs, op->claim);
    g_clear_pointer(&op->claim, g_free);
}

void qos_coherence_touch(QosOp *op, int parent, const char *name)
{
    QosClaim *claim = op->claim;
    struct stat stat;

    if (claim == NULL || claim->touched_count == PARTS_MAX ||
        fstatat(parent, name, &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0)
        return;
    if (qos_inodes_is_shared(op->fs->inodes, stat.st_dev))
        claim->touched[claim->touched_count++] = stat.st_ino;
}

/* --- time-outs --- */

static double valid_seconds(const QosFs *fs)
{
    if (fs->config.cache == QOS_CACHE_NONE)
        return 0;
    return (double)qos_lockclient_valid(fs->lockclient) / (double)(LATE_PART * QOS_SECOND);
}

static const Part *find_part(const QosClaim *claim, guint64 number)
{
    for (guint i = 0; i < claim->count; i++) {
        if (claim->parts[i].number == number)
            return &claim->parts[i];
    }
    return NULL;
}

/* No session was lost since the operation has its credits: what is held is. Behind valid_seconds().
 */
static gboolean is_undisturbed(const QosOp *op)
{
    return qos_lockclient_losses(op->fs->lockclient) == op->claim->losses;
}

/* Whether a credit to read the inode was here since the operation had its own; without asking. */
static gboolean is_here(const QosOp *op, guint64 number)
{
    QosLockclient *client = op->fs->lockclient;
    const guint group = qos_lockclient_group(client);
    QosResource resource;
    QosSpan span;

    if (group == 0)
        return FALSE;
    const QosCredit want = qos_inode_credit(number, group, FALSE, &resource, &span);
    return qos_lockclient_has(client, &resource, &want) && was_quiet(op->fs->coherence, op->claim);
}

static gboolean is_covered(QosOp *op, fuse_ino_t ino)
{
    guint64 number;
    gboolean may_cache;

    if (!qos_inodes_number(op->fs->inodes, ino, &number, &may_cache) || !may_cache)
        return FALSE;
    const Part *part = find_part(op->claim, number);
    return part != NULL ? part->is_held && is_undisturbed(op) : is_here(op, number);
}

/* What a change brings the kernel believes whenever it comes to it, also after it was told to
 * forget. */
static gboolean is_believed_late(const QosOp *op)
{
    return needs_of_opcode[op->entry.request.opcode].node == CHANGES;
}

static gboolean keeps(QosOp *op, fuse_ino_t ino)
{
    return is_covered(op, ino) && !qos_old_pages_are_there(op->fs, op->fs->coherence->pages, ino);
}

/* Those of a new file, which the kernel asks for at once, as it opens the file. Who tells it to
 * forget them waits until they have arrived (ops/invalidator.h). */
static gboolean sends_attributes(QosOp *op, fuse_ino_t ino)
{
    QosHandle *handle = op->reply.handle;

    if (handle == NULL || !qos_loan_note_sent(&handle->file))
        return FALSE;
    if (keeps(op, ino)) {
        g_atomic_int_set(&handle->is_sent, TRUE);
        return TRUE;
    }
    qos_loan_note_arrived(&handle->file);
    return FALSE;
}

gboolean qos_coherence_opens(QosOp *op, fuse_ino_t ino, const QosLoan *file)
{
    const struct fuse_file_info *info = &op->reply.info;
    gboolean keeps_pages = !info->direct_io && valid_seconds(op->fs) > 0 && keeps(op, ino);

    if (!info->direct_io)
        qos_loan_note_pages(file);
    if (!keeps_pages || (info->flags & O_TRUNC) != 0)
        qos_inodes_note_drop(op->fs->inodes, ino);
    return keeps_pages;
}

double qos_coherence_attr_timeout(QosOp *op, fuse_ino_t ino)
{
    const double seconds = valid_seconds(op->fs);

    /* By a time of change that is new to it the kernel finds by itself that pages are old. */
    qos_inodes_note_drop(op->fs->inodes, ino);
    if (is_believed_late(op))
        return seconds > 0 && sends_attributes(op, ino) ? seconds : 0;
    return seconds > 0 && keeps(op, ino) ? seconds : 0;
}

double qos_coherence_entry_timeout(const QosOp *op)
{
    const double seconds = valid_seconds(op->fs);
    guint64 number;
    gboolean may_cache;

    if (!qos_invalidator_forgets_names(op->fs->coherence->invalidator) ||
        !qos_inodes_number(op->fs->inodes, op->node, &number, &may_cache) || !may_cache)
        return 0;
    const Part *part = find_part(op->claim, number);
    return part != NULL && part->is_held && is_undisturbed(op) ? seconds : 0;
}

gboolean qos_coherence_is_dropping(const QosFs *fs, fuse_ino_t ino)
{
    return fs->coherence != NULL && qos_pages_are_old(fs->coherence->pages, ino);
}

/* --- life --- */

void qos_coherence_forget(QosCoherence *coherence, const QosResource *resource,
                          const QosCredit *credit, gboolean is_lost)
{
    qos_invalidator_forget(coherence->invalidator, resource, credit, is_lost);
}

QosCoherence *qos_coherence_new(const QosFs *fs)
{
    QosCoherence *coherence = g_new0(QosCoherence, 1);

    coherence->fs = fs;
    pthread_mutex_init(&coherence->lock, NULL);
    g_queue_init(&coherence->waiting);
    coherence->pages = qos_pages_new(fs->session, fs->gate, fs->inodes);
    if (coherence->pages != NULL)
        coherence->invalidator = qos_invalidator_new(fs, coherence->pages);
    if (coherence->invalidator != NULL)
        return coherence;
    qos_coherence_free(coherence);
    return NULL;
}

void qos_coherence_meet_kernel(QosCoherence *coherence, guint minor)
{
    qos_invalidator_meet_kernel(coherence->invalidator, minor);
}

/* TRUE where some still wait: their credits are coming at this moment, or are yet to be asked for.
 */
static gboolean take_back_all(QosCoherence *coherence)
{
    GList *next;

    pthread_mutex_lock(&coherence->lock);
    coherence->is_stopping = TRUE;
    for (GList *link = coherence->waiting.head; link != NULL; link = next) {
        next = link->next;
        take_back_locked(coherence, link->data, -ENOTCONN);
    }
    gboolean is_any = !g_queue_is_empty(&coherence->waiting);
    pthread_mutex_unlock(&coherence->lock);
    return is_any;
}

void qos_coherence_stop(QosCoherence *coherence)
{
    if (coherence == NULL)
        return;
    qos_pages_stop(coherence->pages);
    while (take_back_all(coherence))
        g_usleep(STOP_PAUSE);
    qos_invalidator_stop(coherence->invalidator);
}

void qos_coherence_free(QosCoherence *coherence)
{
    if (coherence == NULL)
        return;
    qos_invalidator_free(coherence->invalidator);
    qos_pages_free(coherence->pages);
    pthread_mutex_destroy(&coherence->lock);
    g_free(coherence);
}
