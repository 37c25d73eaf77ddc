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

#define ITEMS_MAX 2

/* How long a request keeps its thread while it waits for a credit. One that no other mount has in
 * use comes sooner. */
#define LEAD_TIME  QOS_MILLISECOND

#define STOP_PAUSE 1000 /* us: what others do in a moment */

struct QosCreditWaiters {
    QosLockclient *client;
    QosGate *gate;
    QosMutex lock;  /* the rest */
    GQueue waiting; /* of QosOp, by the links of their credits */
    gboolean is_stopping;
};

typedef struct {
    QosLockUse use; /* first; hold.user: the operation */
    guint64 number;
    gboolean writes;
    gboolean is_held;
} Credit;

typedef enum {
    BEFORE_CHANGE,
    LOST_AGAIN, /* what was lost while the store was called, or is awaited, is taken once more */
    CHANGED,    /* what a name turned out to be */
} Phase;

struct QosOpCredits {
    QosCreditWaiters *waiters; /* of the mount */
    Credit items[ITEMS_MAX];   /* in the order of resources */
    guint count, taken;        /* of items; those before `taken` are held or not to be had */
    Phase phase;
    gboolean has_waited, is_retrying;
    gboolean keeps_thread;    /* under the lock: a thread waits with it, and goes on */
    QosCreditVerdict refused; /* what a change needs next; QOS_CREDIT_GRANTED: it is not */
    QosTime since;            /* that it was first (qos_lockclient_retry); 0: never */
    guint losses;             /* of the client's, before the first was taken */
    guint64 changed[ITEMS_MAX];
    guint changed_count;
    QosNameLook looks[ITEMS_MAX];
    guint grants; /* the client's, when it had its own */
    int error;
    GList link; /* in QosCreditWaiters.waiting; data: the operation, or NULL while it is not */
};

QosOpCredits *qos_op_credits_new(QosCreditWaiters *waiters)
{
    QosOpCredits *credits =
        g_malloc(sizeof(*credits)); /* quicker than calloc(), as in fs/request/op.c */

    memset(credits, 0, sizeof(*credits));
    credits->waiters = waiters;
    return credits;
}

void qos_op_credits_add(QosOpCredits *credits, guint64 number, gboolean writes)
{
    Credit *item = credits->items;
    guint place = credits->count;

    for (guint i = 0; i < credits->count; i++) {
        if (item[i].number == number) {
            item[i].writes |= writes;
            return;
        }
    }
    for (; place > 0 && item[place - 1].number > number; place--)
        item[place] = item[place - 1];
    item[place] = (Credit){.number = number, .writes = writes};
    credits->count++;
}

void qos_op_credits_put(QosOpCredits *credits)
{
    for (guint i = 0; i < credits->taken; i++) {
        if (credits->items[i].is_held)
            qos_lockclient_put(credits->waiters->client, &credits->items[i].use);
        credits->items[i].is_held = FALSE;
    }
    credits->taken = 0;
}

void qos_op_credits_free(QosOpCredits *credits)
{
    if (credits == NULL)
        return;
    qos_op_credits_put(credits);
    g_free(credits);
}

QosNameLook *qos_op_credits_looks(QosOpCredits *credits)
{
    return credits->looks;
}

/* --- taking credits --- */

static void end_wait_locked(QosOpCredits *credits)
{
    g_queue_unlink(&credits->waiters->waiting, &credits->link);
    credits->link.data = NULL;
}

/* So much for the next credit. To read, one goes on without; a change is taken care of by
 * retry(). */
static void note_verdict(QosOpCredits *credits, QosCreditVerdict verdict)
{
    Credit *item = &credits->items[credits->taken];

    if (item->writes && verdict != QOS_CREDIT_GRANTED) {
        credits->refused = verdict;
        return;
    }
    item->is_held = verdict == QOS_CREDIT_GRANTED;
    credits->taken++;
}

/* The wait for the next credit, or until it is to be asked for again, has ended so. */
static void note_wait_locked(QosOpCredits *credits, QosCreditVerdict verdict)
{
    if (!credits->is_retrying)
        note_verdict(credits, verdict);
    credits->is_retrying = FALSE;
    end_wait_locked(credits);
}

/* It has ended at once, and the operation is this thread's still. */
static void end_wait(QosOpCredits *credits, QosCreditVerdict verdict)
{
    QosCreditWaiters *waiters = credits->waiters;

    qos_mutex_lock(&waiters->lock);
    note_wait_locked(credits, verdict);
    qos_mutex_unlock(&waiters->lock);
}

/* The operation's wait has ended: a worker goes on with it, if no thread waits with it. */
static void go_on_locked(QosOp *op)
{
    if (!op->coherence.credits->keeps_thread)
        qos_gate_resume(op->coherence.credits->waiters->gate, &op->entry);
}

static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    QosOp *op = use->hold.user;
    QosCreditWaiters *waiters = op->coherence.credits->waiters;

    qos_mutex_lock(&waiters->lock);
    note_wait_locked(op->coherence.credits, verdict);
    go_on_locked(op);
    qos_mutex_unlock(&waiters->lock);
}

/* For the answer this thread waits for `patience` at most; 0: not at all. */
static QosCreditVerdict get(QosOp *op, Credit *item, guint flags, QosTime patience)
{
    QosLockclient *client = op->coherence.credits->waiters->client;
    const guint group = qos_lockclient_group(client);
    QosResource resource;
    QosSpan span;

    if (group == 0)
        return QOS_CREDIT_ERROR; /* there was no server yet */
    const QosCredit want = qos_inode_credit(item->number, group, item->writes, &resource, &span);
    item->use = (QosLockUse){.hold.user = op, .done = done, .goes_on = !item->writes};
    if (item > op->coherence.credits->items)
        item->use.hold.after = &item[-1].use.hold;
    return patience == 0
               ? qos_lockclient_get(client, &resource, &want, flags, &item->use)
               : qos_lockclient_await(client, &resource, &want, flags, &item->use, patience);
}

/* Takes back an operation that waits; it goes on with `error`. FALSE: its credit is coming at this
 * moment, or is yet to be asked for. */
static gboolean take_back_locked(QosOp *op, int error)
{
    QosOpCredits *credits = op->coherence.credits;
    const QosCreditWaiters *waiters = credits->waiters;

    if (!qos_lockclient_withdraw(waiters->client, &credits->items[credits->taken].use))
        return FALSE;
    credits->error = error;
    end_wait_locked(credits);
    go_on_locked(op);
    return TRUE;
}

/* Its caller is killed: it ends with -EINTR (qos_op_pause). */
static gboolean withdraw(QosOp *op)
{
    QosCreditWaiters *waiters = op->coherence.credits->waiters;

    qos_mutex_lock(&waiters->lock);
    gboolean is_taken = op->coherence.credits->link.data != NULL && take_back_locked(op, -EINTR);
    qos_mutex_unlock(&waiters->lock);
    return is_taken;
}

/* From here on the operation may be another thread's at any time. FALSE: the mount ends. */
static gboolean begin_wait(QosOp *op, gboolean keeps_thread)
{
    QosOpCredits *credits = op->coherence.credits;
    QosCreditWaiters *waiters = credits->waiters;

    qos_op_pause(op, credits->phase == BEFORE_CHANGE ? withdraw : NULL);
    credits->has_waited = TRUE;
    credits->keeps_thread = keeps_thread;
    qos_mutex_lock(&waiters->lock);
    gboolean may_wait = !waiters->is_stopping;
    if (may_wait) {
        credits->link.data = op;
        g_queue_push_tail_link(&waiters->waiting, &credits->link);
    }
    qos_mutex_unlock(&waiters->lock);
    return may_wait;
}

/* The thread stops waiting with the operation. TRUE: the operation's wait has ended, and the thread
 * goes on with it. FALSE: it still waits, and may belong to another thread by now. */
static gboolean let_thread_go(QosOpCredits *credits)
{
    QosCreditWaiters *waiters = credits->waiters;

    qos_mutex_lock(&waiters->lock);
    credits->keeps_thread = FALSE;
    const gboolean is_over = credits->link.data == NULL;
    qos_mutex_unlock(&waiters->lock);
    return is_over;
}

/* Takes the next credit, or finds that it is not to be had. FALSE: it waits. */
static gboolean take(QosOp *op, Credit *item)
{
    QosOpCredits *credits = op->coherence.credits;
    QosCreditVerdict verdict = get(op, item, QOS_CREDIT_NON_BLOCK_LOCAL, 0);

    if (verdict == QOS_CREDIT_DENIED && begin_wait(op, TRUE)) {
        qos_ring_flush();
        verdict = get(op, item, QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, LEAD_TIME);
        if (verdict == QOS_CREDIT_WAITING)
            return let_thread_go(credits);
        end_wait(credits, verdict);
        return TRUE;
    }
    note_verdict(credits, verdict);
    return TRUE;
}

/* There is no hope for a change. If there is no server, it goes on without the credit, as all
 * changes do then. If the server is there, but has had no room for long, others may have cached
 * what is to be changed, so the change fails. */
static void give_up(QosOpCredits *credits, QosCreditVerdict verdict)
{
    if (verdict == QOS_CREDIT_ERROR) {
        credits->taken = credits->count;
        return;
    }
    g_warning_once("the lock server has had no room for a credit for %d s: changes fail (ENOLCK) "
                   "until it has; raise its limit, or what one mount may have (cap)",
                   (int)(QOS_LOCKCLIENT_FULL / QOS_SECOND));
    credits->error = -ENOLCK;
}

/* A change was refused a credit: it waits, with none in use, and begins anew. FALSE: it waits. */
static gboolean retry(QosOp *op)
{
    QosOpCredits *credits = op->coherence.credits;
    QosLockUse *use = &credits->items[0].use;
    QosCreditVerdict verdict = credits->refused;
    const QosTime delay = credits->items[credits->taken].use.delay;

    qos_op_credits_put(credits);
    *use = (QosLockUse){.hold.user = op, .done = done, .delay = delay};
    credits->refused = QOS_CREDIT_GRANTED;
    credits->is_retrying = TRUE;
    if (!begin_wait(op, FALSE)) {
        credits->error = -ENOTCONN;
        return TRUE;
    }
    verdict = qos_lockclient_retry(credits->waiters->client, use, verdict, &credits->since);
    if (verdict == QOS_CREDIT_WAITING)
        return FALSE;
    end_wait(credits, verdict);
    give_up(credits, verdict);
    return TRUE;
}

static gboolean take_all(QosOp *op)
{
    QosOpCredits *credits = op->coherence.credits;

    if (credits->taken == 0)
        credits->losses = qos_lockclient_losses(credits->waiters->client);
    while (credits->error == 0 && credits->taken < credits->count) {
        gboolean goes_on = credits->refused != QOS_CREDIT_GRANTED
                               ? retry(op)
                               : take(op, &credits->items[credits->taken]);
        if (!goes_on)
            return FALSE;
    }
    return TRUE;
}

static gboolean holds_any(const QosOpCredits *credits)
{
    gboolean holds = FALSE;

    for (guint i = 0; i < credits->taken; i++)
        holds |= credits->items[i].is_held;
    return holds;
}

/* TRUE if the credits's credits may have been lost, and belong to others now. The lease has run out
 * by our clock since they were taken, or the server did not know us any more. */
static gboolean may_have_lost(const QosOpCredits *credits)
{
    const QosLockclient *client = credits->waiters->client;

    return qos_lockclient_valid(client) == 0 || qos_lockclient_losses(client) != credits->losses;
}

gboolean qos_op_credits_take(QosOp *op)
{
    QosOpCredits *credits = op->coherence.credits;

    if (!take_all(op))
        return FALSE;
    /* An operation that has waited may have slept for long before this. */
    if (credits->has_waited && holds_any(credits) && may_have_lost(credits)) {
        qos_op_credits_put(credits);
        credits->has_waited = FALSE;
        return qos_op_credits_take(op);
    }
    credits->grants = qos_lockclient_grants(credits->waiters->client);
    return TRUE;
}

gboolean qos_op_credits_take_here(QosOp *op)
{
    QosOpCredits *credits = op->coherence.credits;

    credits->losses = qos_lockclient_losses(credits->waiters->client);
    for (; credits->taken < credits->count; credits->taken++) {
        Credit *item = &credits->items[credits->taken];

        if (get(op, item, QOS_CREDIT_NON_BLOCK_LOCAL, 0) != QOS_CREDIT_GRANTED)
            break;
        item->is_held = TRUE;
    }
    if (qos_op_credits_stayed_whole(credits))
        return TRUE;
    qos_op_credits_put(credits);
    return FALSE;
}

/* --- after the change --- */

void qos_op_credits_will_change(QosOpCredits *credits, guint64 number)
{
    g_assert(credits->changed_count < ITEMS_MAX);
    credits->changed[credits->changed_count++] = number;
}

void qos_op_credits_changed_nothing(QosOpCredits *credits)
{
    credits->changed_count = 0;
}

/* A change is in the store, and others may have looked at what was before, and cached it. */
static gboolean has_lost_change(const QosOpCredits *credits)
{
    gboolean is_change = FALSE;

    for (guint i = 0; i < credits->count; i++)
        is_change |= credits->items[i].writes && credits->items[i].is_held;
    return is_change && credits->error == 0 && may_have_lost(credits);
}

/* A WRITE that ends before the file does has not made it longer. */
static gboolean may_have_grown(const QosOp *op)
{
    struct stat stat;

    switch (op->entry.request.opcode) {
    case QOS_OP_WRITE:
        return fstat(op->open_file->fd, &stat) != 0 || stat.st_size <= op->target.end;
    case QOS_OP_SETATTR:
    case QOS_OP_FALLOCATE:
    case QOS_OP_COPY:
        return TRUE;
    default:
        return FALSE;
    }
}

gboolean qos_op_credits_is_awaited(const QosOp *op)
{
    const QosOpCredits *credits = op->coherence.credits;
    gboolean is_wanted = FALSE;

    for (guint i = 0; i < credits->count && credits->error == 0; i++) {
        const Credit *item = &credits->items[i];

        if (item->writes && item->is_held)
            is_wanted |= qos_lockclient_is_wanted(credits->waiters->client, &item->use);
    }
    return is_wanted && may_have_grown(op);
}

static void enter_phase(QosOpCredits *credits, Phase phase)
{
    const guint count = credits->count;

    qos_op_credits_put(credits);
    credits->phase = phase;
    credits->count = 0;
    for (guint i = 0; i < count && phase == LOST_AGAIN; i++) {
        if (credits->items[i].writes)
            credits->items[credits->count++] =
                (Credit){.number = credits->items[i].number, .writes = TRUE};
    }
    for (guint i = 0; i < credits->changed_count && phase == CHANGED; i++)
        qos_op_credits_add(credits, credits->changed[i], TRUE);
}

gboolean qos_op_credits_settle(QosOp *op)
{
    QosOpCredits *credits = op->coherence.credits;

    if (credits->phase == BEFORE_CHANGE &&
        (has_lost_change(credits) || qos_op_credits_is_awaited(op)))
        enter_phase(credits, LOST_AGAIN);
    if (credits->phase == LOST_AGAIN && !take_all(op))
        return FALSE;
    if (credits->phase != CHANGED && credits->changed_count > 0)
        enter_phase(credits, CHANGED);
    return credits->phase != CHANGED || take_all(op);
}

void qos_op_credits_settle_later(QosOpCredits *credits)
{
    enter_phase(credits, LOST_AGAIN);
}

gboolean qos_op_credits_is_settling(const QosOpCredits *credits)
{
    return credits->phase != BEFORE_CHANGE;
}

/* --- what is held --- */

static const Credit *find_item(const QosOpCredits *credits, guint64 number)
{
    for (guint i = 0; i < credits->count; i++) {
        if (credits->items[i].number == number)
            return &credits->items[i];
    }
    return NULL;
}

/* TRUE if the item is held, and no session was lost since the first credit was taken. */
static gboolean is_held(const QosOpCredits *credits, const Credit *item)
{
    return item->is_held && qos_lockclient_losses(credits->waiters->client) == credits->losses;
}

/* Whether a credit to read the inode was here since the operation had its own; without asking. A
 * credit may come although no operation waits for it: the one that waited was killed, or another's
 * answer served it too. */
static gboolean is_here(const QosOpCredits *credits, guint64 number)
{
    QosLockclient *client = credits->waiters->client;
    const guint group = qos_lockclient_group(client);
    QosResource resource;
    QosSpan span;

    if (group == 0)
        return FALSE;
    const QosCredit want = qos_inode_credit(number, group, FALSE, &resource, &span);
    return qos_lockclient_has(client, &resource, &want) &&
           qos_lockclient_grants(client) == credits->grants;
}

gboolean qos_op_credits_holds(const QosOpCredits *credits, guint64 number)
{
    const Credit *item = find_item(credits, number);

    return item != NULL && is_held(credits, item);
}

gboolean qos_op_credits_covers(const QosOpCredits *credits, guint64 number)
{
    const Credit *item = find_item(credits, number);

    return item != NULL ? is_held(credits, item) : is_here(credits, number);
}

gboolean qos_op_credits_is_whole(const QosOpCredits *credits)
{
    gboolean is_whole = credits->count > 0;

    for (guint i = 0; i < credits->count; i++)
        is_whole &= credits->items[i].is_held;
    return is_whole;
}

gboolean qos_op_credits_stayed_whole(const QosOpCredits *credits)
{
    return qos_op_credits_is_whole(credits) && !may_have_lost(credits);
}

guint qos_op_credits_losses(const QosOpCredits *credits)
{
    return credits->losses;
}

int qos_op_credits_error(const QosOpCredits *credits)
{
    return credits->error;
}

/* --- taking operations back --- */

void qos_op_credits_fail(QosOpCredits *credits, int error)
{
    credits->error = error;
}

/* TRUE where some still wait: their credits are coming at this moment, or are yet to be asked for.
 */
static gboolean take_back_all(QosCreditWaiters *waiters)
{
    GList *next;

    qos_mutex_lock(&waiters->lock);
    waiters->is_stopping = TRUE;
    for (GList *link = waiters->waiting.head; link != NULL; link = next) {
        next = link->next;
        take_back_locked(link->data, -ENOTCONN);
    }
    gboolean is_any = !g_queue_is_empty(&waiters->waiting);
    qos_mutex_unlock(&waiters->lock);
    return is_any;
}

void qos_credit_waiters_stop(QosCreditWaiters *waiters)
{
    while (take_back_all(waiters))
        g_usleep(STOP_PAUSE);
}

/* --- life --- */

QosCreditWaiters *qos_credit_waiters_new(QosLockclient *client, QosGate *gate)
{
    QosCreditWaiters *waiters = g_new0(QosCreditWaiters, 1);

    waiters->client = client;
    waiters->gate = gate;
    qos_mutex_init(&waiters->lock, QOS_MUTEX_CREDIT_WAITERS);
    g_queue_init(&waiters->waiting);
    return waiters;
}

void qos_credit_waiters_free(QosCreditWaiters *waiters)
{
    if (waiters == NULL)
        return;
    qos_mutex_destroy(&waiters->lock);
    g_free(waiters);
}
