/*
 * How one operation takes, holds and puts its credits. fs/coherence/op_credits.h has the contract.
 */
#include "fs/coherence/op_credits.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/coherence/inode_credit.h"
#include "fs/request/wait.h"
#include "fs/store/open_file.h"
#include "fs/transport/uring.h"
#include "sys/mutex.h"

#define PARTS_MAX 2

/* How long a request keeps its thread while it waits for a credit. One that no other mount has in
 * use comes sooner. */
#define LEAD_TIME  QOS_MILLISECOND

#define STOP_PAUSE 1000 /* us: what others do in a moment */

struct QosClaims {
    QosLockclient *client;
    QosGate *gate;
    QosMutex lock;  /* the rest */
    GQueue waiting; /* of QosOp, by the links of their claims */
    gboolean is_stopping;
};

typedef struct {
    QosLockUse use; /* first; hold.user: the operation */
    guint64 number;
    gboolean writes;
    gboolean is_held;
} Part;

typedef enum {
    BEFORE_CHANGE,
    LOST_AGAIN, /* what was lost while the store was called, or is awaited, is taken once more */
    TOUCHED,    /* what a name turned out to be */
} Phase;

struct QosClaim {
    QosClaims *claims;     /* of the mount */
    Part parts[PARTS_MAX]; /* in the order of resources */
    guint count, taken;    /* of parts; those before `taken` are held or not to be had */
    Phase phase;
    gboolean has_waited, is_postponed;
    gboolean keeps_thread;    /* under the lock: a thread waits with it, and goes on */
    QosCreditVerdict refused; /* what a change needs next; QOS_CREDIT_GRANTED: it is not */
    QosTime since;            /* that it was first (qos_lockclient_postpone); 0: never */
    guint losses;             /* of the client's, before the first was taken */
    guint64 touched[PARTS_MAX];
    guint touched_count;
    QosNameLook looks[PARTS_MAX];
    guint grants; /* the client's, when it had its own */
    int error;
    GList link; /* in QosClaims.waiting; data: the operation, or NULL while it is not */
};

QosClaim *qos_claim_new(QosClaims *claims)
{
    QosClaim *claim = g_malloc(sizeof(*claim)); /* quicker than calloc(), as in fs/request/op.c */

    memset(claim, 0, sizeof(*claim));
    claim->claims = claims;
    return claim;
}

void qos_claim_add(QosClaim *claim, guint64 number, gboolean writes)
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

void qos_claim_put(QosClaim *claim)
{
    for (guint i = 0; i < claim->taken; i++) {
        if (claim->parts[i].is_held)
            qos_lockclient_put(claim->claims->client, &claim->parts[i].use);
        claim->parts[i].is_held = FALSE;
    }
    claim->taken = 0;
}

void qos_claim_free(QosClaim *claim)
{
    if (claim == NULL)
        return;
    qos_claim_put(claim);
    g_free(claim);
}

QosNameLook *qos_claim_looks(QosClaim *claim)
{
    return claim->looks;
}

/* --- taking credits --- */

static void end_wait_locked(QosClaim *claim)
{
    g_queue_unlink(&claim->claims->waiting, &claim->link);
    claim->link.data = NULL;
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
static void note_wait_locked(QosClaim *claim, QosCreditVerdict verdict)
{
    if (!claim->is_postponed)
        note_verdict(claim, verdict);
    claim->is_postponed = FALSE;
    end_wait_locked(claim);
}

/* It has ended at once, and the operation is this thread's still. */
static void end_wait(QosClaim *claim, QosCreditVerdict verdict)
{
    QosClaims *claims = claim->claims;

    qos_mutex_lock(&claims->lock);
    note_wait_locked(claim, verdict);
    qos_mutex_unlock(&claims->lock);
}

/* The operation's wait has ended: a worker goes on with it, if no thread waits with it. */
static void go_on_locked(QosOp *op)
{
    if (!op->coherence.claim->keeps_thread)
        qos_gate_resume(op->coherence.claim->claims->gate, &op->entry);
}

static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    QosOp *op = use->hold.user;
    QosClaims *claims = op->coherence.claim->claims;

    qos_mutex_lock(&claims->lock);
    note_wait_locked(op->coherence.claim, verdict);
    go_on_locked(op);
    qos_mutex_unlock(&claims->lock);
}

/* For the answer this thread waits for `patience` at most; 0: not at all. */
static QosCreditVerdict get(QosOp *op, Part *part, guint flags, QosTime patience)
{
    QosLockclient *client = op->coherence.claim->claims->client;
    const guint group = qos_lockclient_group(client);
    QosResource resource;
    QosSpan span;

    if (group == 0)
        return QOS_CREDIT_ERROR; /* there was no server yet */
    const QosCredit want = qos_inode_credit(part->number, group, part->writes, &resource, &span);
    part->use = (QosLockUse){.hold.user = op, .done = done, .goes_on = !part->writes};
    if (part > op->coherence.claim->parts)
        part->use.hold.after = &part[-1].use.hold;
    return patience == 0
               ? qos_lockclient_get(client, &resource, &want, flags, &part->use)
               : qos_lockclient_await(client, &resource, &want, flags, &part->use, patience);
}

/* Takes back an operation that waits; it goes on with `error`. FALSE: its credit is coming at this
 * moment, or is yet to be asked for. */
static gboolean take_back_locked(QosOp *op, int error)
{
    QosClaim *claim = op->coherence.claim;
    const QosClaims *claims = claim->claims;

    if (!qos_lockclient_withdraw(claims->client, &claim->parts[claim->taken].use))
        return FALSE;
    claim->error = error;
    end_wait_locked(claim);
    go_on_locked(op);
    return TRUE;
}

/* Its caller is killed: it ends with -EINTR (qos_op_pause). */
static gboolean withdraw(QosOp *op)
{
    QosClaims *claims = op->coherence.claim->claims;

    qos_mutex_lock(&claims->lock);
    gboolean is_taken = op->coherence.claim->link.data != NULL && take_back_locked(op, -EINTR);
    qos_mutex_unlock(&claims->lock);
    return is_taken;
}

/* From here on the operation may be another thread's at any time. FALSE: the mount ends. */
static gboolean begin_wait(QosOp *op, gboolean keeps_thread)
{
    QosClaim *claim = op->coherence.claim;
    QosClaims *claims = claim->claims;

    qos_op_pause(op, claim->phase == BEFORE_CHANGE ? withdraw : NULL);
    claim->has_waited = TRUE;
    claim->keeps_thread = keeps_thread;
    qos_mutex_lock(&claims->lock);
    gboolean may_wait = !claims->is_stopping;
    if (may_wait) {
        claim->link.data = op;
        g_queue_push_tail_link(&claims->waiting, &claim->link);
    }
    qos_mutex_unlock(&claims->lock);
    return may_wait;
}

/* The thread stops waiting with the operation. TRUE: the operation's wait has ended, and the thread
 * goes on with it. FALSE: it still waits, and may belong to another thread by now. */
static gboolean let_thread_go(QosClaim *claim)
{
    QosClaims *claims = claim->claims;

    qos_mutex_lock(&claims->lock);
    claim->keeps_thread = FALSE;
    const gboolean is_over = claim->link.data == NULL;
    qos_mutex_unlock(&claims->lock);
    return is_over;
}

/* Takes the next credit, or finds that it is not to be had. FALSE: it waits. */
static gboolean take(QosOp *op, Part *part)
{
    QosClaim *claim = op->coherence.claim;
    QosCreditVerdict verdict = get(op, part, QOS_CREDIT_NON_BLOCK_LOCAL, 0);

    if (verdict == QOS_CREDIT_DENIED && begin_wait(op, TRUE)) {
        qos_ring_flush();
        verdict = get(op, part, QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, LEAD_TIME);
        if (verdict == QOS_CREDIT_WAITING)
            return let_thread_go(claim);
        end_wait(claim, verdict);
        return TRUE;
    }
    note_verdict(claim, verdict);
    return TRUE;
}

/* There is no hope for a change. If there is no server, it goes on without the credit, as all
 * changes do then. If the server is there, but has had no room for long, others may have cached
 * what is to be changed, so the change fails. */
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
    QosClaim *claim = op->coherence.claim;
    QosLockUse *use = &claim->parts[0].use;
    QosCreditVerdict verdict = claim->refused;
    const QosTime delay = claim->parts[claim->taken].use.delay;

    qos_claim_put(claim);
    *use = (QosLockUse){.hold.user = op, .done = done, .delay = delay};
    claim->refused = QOS_CREDIT_GRANTED;
    claim->is_postponed = TRUE;
    if (!begin_wait(op, FALSE)) {
        claim->error = -ENOTCONN;
        return TRUE;
    }
    verdict = qos_lockclient_postpone(claim->claims->client, use, verdict, &claim->since);
    if (verdict == QOS_CREDIT_WAITING)
        return FALSE;
    end_wait(claim, verdict);
    give_up(claim, verdict);
    return TRUE;
}

static gboolean take_all(QosOp *op)
{
    QosClaim *claim = op->coherence.claim;

    if (claim->taken == 0)
        claim->losses = qos_lockclient_losses(claim->claims->client);
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

/* TRUE if the claim's credits may have been lost, and belong to others now. The lease has run out
 * by our clock since they were taken, or the server did not know us any more. */
static gboolean may_have_lost(const QosClaim *claim)
{
    const QosLockclient *client = claim->claims->client;

    return qos_lockclient_valid(client) == 0 || qos_lockclient_losses(client) != claim->losses;
}

gboolean qos_claim_take(QosOp *op)
{
    QosClaim *claim = op->coherence.claim;

    if (!take_all(op))
        return FALSE;
    /* An operation that has waited may have slept for long before this. */
    if (claim->has_waited && holds_any(claim) && may_have_lost(claim)) {
        qos_claim_put(claim);
        claim->has_waited = FALSE;
        return qos_claim_take(op);
    }
    claim->grants = qos_lockclient_grants(claim->claims->client);
    return TRUE;
}

gboolean qos_claim_take_here(QosOp *op)
{
    QosClaim *claim = op->coherence.claim;

    claim->losses = qos_lockclient_losses(claim->claims->client);
    for (; claim->taken < claim->count; claim->taken++) {
        Part *part = &claim->parts[claim->taken];

        if (get(op, part, QOS_CREDIT_NON_BLOCK_LOCAL, 0) != QOS_CREDIT_GRANTED)
            break;
        part->is_held = TRUE;
    }
    if (qos_claim_stayed_whole(claim))
        return TRUE;
    qos_claim_put(claim);
    return FALSE;
}

/* --- after the change --- */

void qos_claim_touch(QosClaim *claim, guint64 number)
{
    g_assert(claim->touched_count < PARTS_MAX);
    claim->touched[claim->touched_count++] = number;
}

void qos_claim_touch_none(QosClaim *claim)
{
    claim->touched_count = 0;
}

/* A change is in the store, and others may have looked at what was before, and cached it. */
static gboolean has_lost_change(const QosClaim *claim)
{
    gboolean is_change = FALSE;

    for (guint i = 0; i < claim->count; i++)
        is_change |= claim->parts[i].writes && claim->parts[i].is_held;
    return is_change && claim->error == 0 && may_have_lost(claim);
}

/* A WRITE that ends before the file does has not made it longer. */
static gboolean may_have_grown(const QosOp *op)
{
    struct stat stat;

    switch (op->entry.request.opcode) {
    case QOS_OP_WRITE:
        return fstat(op->handle->fd, &stat) != 0 || stat.st_size <= op->end;
    case QOS_OP_SETATTR:
    case QOS_OP_FALLOCATE:
    case QOS_OP_COPY:
        return TRUE;
    default:
        return FALSE;
    }
}

gboolean qos_claim_is_awaited(const QosOp *op)
{
    const QosClaim *claim = op->coherence.claim;
    gboolean is_wanted = FALSE;

    for (guint i = 0; i < claim->count && claim->error == 0; i++) {
        const Part *part = &claim->parts[i];

        if (part->writes && part->is_held)
            is_wanted |= qos_lockclient_is_wanted(claim->claims->client, &part->use);
    }
    return is_wanted && may_have_grown(op);
}

static void enter_phase(QosClaim *claim, Phase phase)
{
    const guint count = claim->count;

    qos_claim_put(claim);
    claim->phase = phase;
    claim->count = 0;
    for (guint i = 0; i < count && phase == LOST_AGAIN; i++) {
        if (claim->parts[i].writes)
            claim->parts[claim->count++] = (Part){.number = claim->parts[i].number, .writes = TRUE};
    }
    for (guint i = 0; i < claim->touched_count && phase == TOUCHED; i++)
        qos_claim_add(claim, claim->touched[i], TRUE);
}

gboolean qos_claim_settle(QosOp *op)
{
    QosClaim *claim = op->coherence.claim;

    if (claim->phase == BEFORE_CHANGE && (has_lost_change(claim) || qos_claim_is_awaited(op)))
        enter_phase(claim, LOST_AGAIN);
    if (claim->phase == LOST_AGAIN && !take_all(op))
        return FALSE;
    if (claim->phase != TOUCHED && claim->touched_count > 0)
        enter_phase(claim, TOUCHED);
    return claim->phase != TOUCHED || take_all(op);
}

void qos_claim_settle_later(QosClaim *claim)
{
    enter_phase(claim, LOST_AGAIN);
}

gboolean qos_claim_is_settling(const QosClaim *claim)
{
    return claim->phase != BEFORE_CHANGE;
}

/* --- what is held --- */

static const Part *find_part(const QosClaim *claim, guint64 number)
{
    for (guint i = 0; i < claim->count; i++) {
        if (claim->parts[i].number == number)
            return &claim->parts[i];
    }
    return NULL;
}

/* TRUE if the part is held, and no session was lost since the first credit was taken. */
static gboolean is_held(const QosClaim *claim, const Part *part)
{
    return part->is_held && qos_lockclient_losses(claim->claims->client) == claim->losses;
}

/* Whether a credit to read the inode was here since the operation had its own; without asking. A
 * credit may come although no operation waits for it: the one that waited was killed, or another's
 * answer served it too. */
static gboolean is_here(const QosClaim *claim, guint64 number)
{
    QosLockclient *client = claim->claims->client;
    const guint group = qos_lockclient_group(client);
    QosResource resource;
    QosSpan span;

    if (group == 0)
        return FALSE;
    const QosCredit want = qos_inode_credit(number, group, FALSE, &resource, &span);
    return qos_lockclient_has(client, &resource, &want) &&
           qos_lockclient_grants(client) == claim->grants;
}

gboolean qos_claim_holds(const QosClaim *claim, guint64 number)
{
    const Part *part = find_part(claim, number);

    return part != NULL && is_held(claim, part);
}

gboolean qos_claim_covers(const QosClaim *claim, guint64 number)
{
    const Part *part = find_part(claim, number);

    return part != NULL ? is_held(claim, part) : is_here(claim, number);
}

gboolean qos_claim_is_whole(const QosClaim *claim)
{
    gboolean is_whole = claim->count > 0;

    for (guint i = 0; i < claim->count; i++)
        is_whole &= claim->parts[i].is_held;
    return is_whole;
}

gboolean qos_claim_stayed_whole(const QosClaim *claim)
{
    return qos_claim_is_whole(claim) && !may_have_lost(claim);
}

guint qos_claim_losses(const QosClaim *claim)
{
    return claim->losses;
}

int qos_claim_error(const QosClaim *claim)
{
    return claim->error;
}

/* --- taking operations back --- */

void qos_claim_fail(QosClaim *claim, int error)
{
    claim->error = error;
}

/* TRUE where some still wait: their credits are coming at this moment, or are yet to be asked for.
 */
static gboolean take_back_all(QosClaims *claims)
{
    GList *next;

    qos_mutex_lock(&claims->lock);
    claims->is_stopping = TRUE;
    for (GList *link = claims->waiting.head; link != NULL; link = next) {
        next = link->next;
        take_back_locked(link->data, -ENOTCONN);
    }
    gboolean is_any = !g_queue_is_empty(&claims->waiting);
    qos_mutex_unlock(&claims->lock);
    return is_any;
}

void qos_claims_stop(QosClaims *claims)
{
    while (take_back_all(claims))
        g_usleep(STOP_PAUSE);
}

/* --- life --- */

QosClaims *qos_claims_new(QosLockclient *client, QosGate *gate)
{
    QosClaims *claims = g_new0(QosClaims, 1);

    claims->client = client;
    claims->gate = gate;
    qos_mutex_init(&claims->lock, QOS_MUTEX_CLAIMS);
    g_queue_init(&claims->waiting);
    return claims;
}

void qos_claims_free(QosClaims *claims)
{
    if (claims == NULL)
        return;
    qos_mutex_destroy(&claims->lock);
    g_free(claims);
}
