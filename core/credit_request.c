/*
 * How a request is met. The room is what is free for the requester: what was borrowed, less all
 * that others have (qos_book_room). If the room is enough, the request is granted. Otherwise:
 *
 *   1. What was not borrowed is asked for above, by one ENQUEUE for each request. For an amount the
 *      message asks for all of it and gives back what is free. So two owners never each keep a part
 *      of an amount that neither has enough of.
 *   2. Conflicting holders are called back: for locks all of them at once, for amounts and
 *      identifiers the largest holder first (credit_callback.c).
 *   3. The request waits, and is tried again whenever something changes (qos_book_pump).
 *
 * Waiting requests have an order: first upgrades, then reserved requests, then others. Upgrades
 * come first because the requests that they would otherwise wait for are waiting for what the
 * upgrades hold. A later request may be served before an earlier one, unless it conflicts with a
 * reserved request. So only reserved requests never starve.
 *
 * A callback from above counts as the first request of all: while it lasts, nothing that conflicts
 * with it is granted here.
 */
#include "core/credit_private.h"
#include "core/proof.h"

/* The search for a circle of upgrades compares at most so many pairs, because a borrower that sends
 * thousands of upgrades must not stop all others. A circle that is not found ends when one of its
 * users gives up. */
#define CIRCLE_STEPS_MAX 16384

/* Asking above */

static void ask(QosOwner *owner, QosCreditRequest *request, const QosCredit *room, QosTime now)
{
    const QosResourceType *type = qos_book_type(request->book);
    const guint passed =
        QOS_CREDIT_NON_BLOCK_REMOTE | QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT | QOS_CREDIT_UPGRADE;
    QosCreditMessage message = {.type = QOS_MESSAGE_ENQUEUE,
                                .flags = request->flags & passed,
                                .resource = request->book->resource,
                                .credit = qos_credit_copy(type, &request->want)};

    message.request = request->asked = ++owner->last_request;
    if (type->shape == QOS_SHAPE_AMOUNT && room->amount > 0) {
        type->yield(&request->book->borrowed, room);
        qos_owner_give_back(owner, request->book, now);
    }
    qos_owner_take_lazy(owner, &message);
    qos_peer_send(owner, owner->above, &message, now);
}

/* Whether the answer to another request that is already sent above will also meet this one. The
 * other must ask for as much or more. If its answer may take long (QOS_CREDIT_WAIT), it must ask
 * for exactly as much, because less may be free already. */
static gboolean is_asked_for(const QosCreditRequest *request)
{
    const QosResourceType *type = qos_book_type(request->book);
    gboolean may_take_long = request->flags & QOS_CREDIT_WAIT;

    if (request->asked != 0)
        return TRUE;
    if (type->divisible || request->book->busy == NULL)
        return FALSE;
    for (GList *link = request->book->busy->requests.head; link != NULL; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->asked != 0 && other->flags == request->flags &&
            type->matches(&request->want, &other->want) &&
            (!may_take_long || type->matches(&other->want, &request->want)))
            return TRUE;
    }
    return FALSE;
}

/* Meeting requests */

/* The credit that the requester already has; NULL: none. */
static const QosCredit *had_by(const QosCreditRequest *request)
{
    if (request->peer == NULL)
        return request->hold->book != NULL ? &request->hold->credit : NULL;
    const QosSublet *sublet = qos_sublet_find(request->book, request->peer);
    return sublet != NULL ? &sublet->credit : NULL;
}

/* Whether an upgrade waits for another one: it wants what the other has, and the other keeps that
 * until it has got what it wants itself. */
static gboolean waits_for(const QosCreditRequest *request, const QosCreditRequest *other)
{
    if (other->peer == request->peer)
        return FALSE;
    const QosCredit *theirs = had_by(other);
    return theirs != NULL && qos_book_type(request->book)->conflicts(&request->want, theirs);
}

/* Adds to `circle` the upgrades that `last` waits for. TRUE: one of them waits for the first, which
 * closes the circle. */
static gboolean follow(GPtrArray *circle, const QosCreditRequest *last, guint *steps)
{
    const GQueue *requests = &last->book->busy->requests;

    for (GList *link = requests->head; link != NULL; link = link->next) {
        QosCreditRequest *other = link->data;
        if (!(other->flags & QOS_CREDIT_UPGRADE) || ++*steps > CIRCLE_STEPS_MAX)
            return FALSE; /* upgrades are in front */
        if (other->is_followed || !waits_for(last, other))
            continue;
        other->is_followed = TRUE;
        g_ptr_array_add(circle, other);
        if (waits_for(other, circle->pdata[0]))
            return TRUE;
    }
    return FALSE;
}

/* Upgrades that wait for each other in a circle would wait for ever, because none gives up what it
 * has. So the one that closes the circle is denied. The search starts at this request, nearest
 * first, and visits each upgrade once. */
static gboolean is_deadlocked(QosCreditRequest *request)
{
    gboolean is_closed = FALSE;
    guint steps = 0;

    if (!(request->flags & QOS_CREDIT_UPGRADE) || request->book->busy == NULL)
        return FALSE;
    g_autoptr(GPtrArray) circle = g_ptr_array_new();
    g_ptr_array_add(circle, request);
    request->is_followed = TRUE;
    for (guint i = 0; i < circle->len && !is_closed; i++)
        is_closed = follow(circle, circle->pdata[i], &steps);
    for (guint i = 0; i < circle->len; i++)
        ((QosCreditRequest *)circle->pdata[i])->is_followed = FALSE;
    return is_closed;
}

/* Whether the resource goes to and fro so fast that doing without is better. */
static gboolean is_contended(QosOwner *owner, const QosCreditRequest *request, QosTime now)
{
    if (owner->config.contention == 0 || request->flags & QOS_CREDIT_WAIT)
        return FALSE;
    QosBusy *busy = qos_book_busy(request->book);
    if (now < busy->lockless_until)
        return TRUE;
    if (request->book_link.data != NULL)
        return FALSE; /* it was counted when it came */
    busy->heat = busy->heat * exp(-(double)(now - busy->heated) / (double)QOS_SECOND) + 1;
    busy->heated = now;
    if (busy->heat <= owner->config.contention)
        return FALSE;
    busy->heat = 0;
    busy->lockless_until = qos_time_add(now, owner->config.lockless);
    return TRUE;
}

static QosCreditVerdict call_holders_back(QosOwner *owner, QosCreditRequest *request, QosTime now)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    /* A request that does not wait needs the current state: what was busy before may be free
     * now. */
    guint64 since = request->flags & QOS_CREDIT_WAIT ? 0 : request->since;
    gboolean is_local_use = FALSE;
    gboolean is_long = FALSE;

    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->peer != request->peer && type->conflicts(&sublet->credit, &request->want))
            is_long |= sublet->callback != NULL && sublet->callback->busy_id > request->since;
    }
    for (const QosHold *hold = book->holds; hold != NULL && request->peer; hold = hold->next) {
        if (!type->conflicts(&hold->credit, &request->want))
            continue;
        is_local_use = TRUE;
        is_long |= qos_hold_is_lasting(hold);
    }
    if ((is_long && !(request->flags & QOS_CREDIT_WAIT)) || is_contended(owner, request, now))
        return QOS_CREDIT_DENIED;
    qos_book_note_conflict(book, now);
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->peer != request->peer && type->conflicts(&sublet->credit, &request->want))
            qos_sublet_call_back(owner, sublet, &request->want, request->flags, since, now);
    }
    if (is_local_use)
        qos_book_tell_user(owner, book, &request->want);
    return QOS_CREDIT_WAITING;
}

static QosCreditVerdict call_shortage_back(QosOwner *owner, QosCreditRequest *request,
                                           const QosCredit *room, QosTime now)
{
    const QosResourceType *type = qos_book_type(request->book);
    const guint64 want = qos_credit_count(type, &request->want);
    gboolean waits = FALSE;

    if (want > qos_credit_count(type, &request->book->borrowed))
        return QOS_CREDIT_DENIED; /* there is never so much */
    QosSublet *sublet = qos_book_largest_sublet(request->book, &waits);
    if (sublet != NULL) {
        QosCredit shortage =
            qos_credit_of_count(type, want - MIN(want, qos_credit_count(type, room)));
        qos_sublet_call_back(owner, sublet, &shortage, request->flags, 0, now);
        qos_credit_clear(type, &shortage);
        return QOS_CREDIT_WAITING;
    }
    return waits || request->flags & QOS_CREDIT_WAIT ? QOS_CREDIT_WAITING : QOS_CREDIT_DENIED;
}

/* The room is not enough: asks above, calls holders back, or denies the request. */
static QosCreditVerdict resolve(QosOwner *owner, QosCreditRequest *request, const QosCredit *room,
                                QosTime now)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    gboolean is_short = type->divisible || !type->matches(&request->want, &book->borrowed);

    if (request->flags & QOS_CREDIT_NON_BLOCK_LOCAL || is_deadlocked(request))
        return QOS_CREDIT_DENIED;
    if (is_short && owner->above != NULL) {
        if (!qos_owner_is_alive(owner, now))
            return QOS_CREDIT_ERROR;
        /* Otherwise a session is about to begin, which sends all requests, or the lease is about to
         * end. */
        if (owner->above->state == QOS_SESSION_OPEN && !is_asked_for(request))
            ask(owner, request, room, now);
        return QOS_CREDIT_WAITING;
    }
    if (request->flags & QOS_CREDIT_NON_BLOCK_REMOTE || (is_short && !type->divisible))
        return QOS_CREDIT_DENIED;
    return type->divisible ? call_shortage_back(owner, request, room, now)
                           : call_holders_back(owner, request, now);
}

/* With `more`, what the borrower has can be sent. */
static gboolean may_have(const QosResourceType *type, const QosSublet *sublet,
                         const QosCredit *more)
{
    if (type->shape != QOS_SHAPE_SPANS || sublet == NULL)
        return qos_credit_is_sendable(type, more);
    if (2 * (sublet->credit.count + more->count) < QOS_CREDIT_SPANS_MAX)
        return TRUE; /* at most so many */
    QosCredit all = qos_credit_copy(type, &sublet->credit);
    type->join(&all, more);
    gboolean is_sendable = qos_credit_is_sendable(type, &all);
    qos_credit_clear(type, &all);
    return is_sendable;
}

/* Takes what the borrower gets now out of the callback that it has not answered yet; the borrower
 * does the same (end_want() in credit_receive.c). The next request for it calls back anew. TRUE:
 * the callback wanted some of it. */
static gboolean end_want(const QosResourceType *type, QosSublet *sublet, const QosCredit *chosen)
{
    if (sublet->callback == NULL || type->divisible ||
        !type->conflicts(&sublet->callback->wanted, chosen))
        return FALSE;
    type->yield(&sublet->callback->wanted, chosen);
    return TRUE;
}

/* Calls back anew for the requests that already wait for it and could not bar the borrower from
 * it. */
static void call_anew(QosOwner *owner, QosSublet *sublet, QosTime now)
{
    const QosBook *book = sublet->book;
    const QosResourceType *type = qos_book_type(book);

    if (book->busy == NULL)
        return;
    if (book->busy->callback != 0 && type->conflicts(&sublet->credit, &book->busy->wanted))
        qos_sublet_call_back(owner, sublet, &book->busy->wanted, book->busy->flags, 0, now);
    for (const GList *link = book->busy->requests.head; link != NULL; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->peer != sublet->peer && type->conflicts(&sublet->credit, &other->want) &&
            type->matches(&other->want, &book->borrowed))
            qos_sublet_call_back(owner, sublet, &other->want, other->flags, 0, now);
    }
}

/* The one place where a borrower gets more. */
static QosCreditVerdict grant(QosOwner *owner, QosCreditRequest *request, QosCredit *chosen,
                              QosTime now, QosTime *ret_delay)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    QosSublet *sublet = qos_sublet_find(book, request->peer);

    *ret_delay = owner->config.resend;
    if (!may_have(type, sublet, chosen))
        return QOS_CREDIT_DENIED;
    if (owner->above != NULL && owner->token - owner->above_token >= QOS_TOKENS_AHEAD / 2) {
        qos_peer_renew(owner, owner->above, now); /* the lender is to come up with us */
        return QOS_CREDIT_RETRY;
    }
    if (sublet == NULL) {
        if (owner->config.may_grant != NULL &&
            !owner->config.may_grant(request->peer->id, &book->resource, now, ret_delay,
                                     owner->config.arg))
            return QOS_CREDIT_RETRY;
        sublet = qos_sublet_add(owner, book, request->peer);
    }
    const gboolean was_wanted = end_want(type, sublet, chosen);
    qos_sublet_grow(owner, sublet, chosen);
    sublet->token = ++owner->token;
    QosCreditMessage message = {
        .type = QOS_MESSAGE_GRANT,
        .request = request->id,
        .resource = book->resource,
        .credit = qos_credit_copy(type, &sublet->credit),
        .granted = sublet->token,
        .proof = qos_proof(owner->config.key, request->peer->id, sublet->token, &book->resource)};
    qos_peer_send(owner, request->peer, &message, now);
    if (was_wanted)
        call_anew(owner, sublet, now);
    return QOS_CREDIT_GRANTED;
}

static QosCreditVerdict try_request(QosOwner *owner, QosCreditRequest *request, QosTime now,
                                    QosTime *ret_delay)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    QosCredit room, chosen = {0};
    QosCreditVerdict verdict;

    if (!qos_book_choose(book, request->peer, &request->want, &room, &chosen)) {
        verdict = resolve(owner, request, &room, now);
    } else if (request->peer != NULL) {
        qos_request_widen(request, &room, &chosen, now);
        verdict = grant(owner, request, &chosen, now, ret_delay);
        qos_credit_clear(type, &chosen);
    } else {
        qos_hold_add(book, request->hold, chosen, request->flags);
        verdict = QOS_CREDIT_GRANTED;
    }
    qos_credit_clear(type, &room);
    return verdict;
}

/* The reservations in a queue: the first one, and the first one of another borrower. */
typedef struct {
    const GList *first, *other;
} Reservations;

static void note_reservation(Reservations *reserved, const GList *link)
{
    const QosCreditRequest *request = link->data;

    if (!(request->flags & QOS_CREDIT_RESERVE))
        return;
    if (reserved->first == NULL)
        reserved->first = link;
    else if (reserved->other == NULL &&
             request->peer != ((const QosCreditRequest *)reserved->first->data)->peer)
        reserved->other = link;
}

/* The first reservation that may bar a request of the borrower `peer`. So a borrower with many
 * reservations need not go through all of them for each of its requests. */
static const GList *reserved_before(const Reservations *reserved, const QosPeer *peer)
{
    const GList *first = reserved->first;

    return first != NULL && ((const QosCreditRequest *)first->data)->peer == peer ? reserved->other
                                                                                  : first;
}

/* Whether something else comes first: a callback from above, or an earlier reservation. `from`: the
 * first request in the queue that may be such a reservation; NULL: there is none. */
static gboolean is_barred(const QosCreditRequest *request, const GList *from)
{
    const QosBusy *busy = request->book->busy;
    const QosResourceType *type = qos_book_type(request->book);

    if (busy == NULL || request->flags & QOS_CREDIT_UPGRADE)
        return FALSE;
    if (busy->callback != 0 && type->divisible && !busy->is_busy)
        return TRUE; /* once busy, it takes what comes free before any other request */
    /* The callback does not bar a request for inodes of a group that are not here: it is asked for
     * above, where the order is kept. Otherwise a user that has one inode of the group in use, and
     * asks for a later one, would wait for itself. */
    if (busy->callback != 0 && (!busy->is_busy || busy->flags & QOS_CREDIT_RESERVE) &&
        type->conflicts(&request->want, &busy->wanted) &&
        (!type->widened || type->matches(&request->want, &request->book->borrowed)))
        return TRUE;
    for (const GList *link = from; link != NULL && link->data != request; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (!(other->flags & (QOS_CREDIT_UPGRADE | QOS_CREDIT_RESERVE)))
            return FALSE; /* nor is any request behind it a reservation */
        if (other->flags & QOS_CREDIT_RESERVE && other->peer != request->peer &&
            (type->divisible || type->conflicts(&request->want, &other->want)))
            return TRUE;
    }
    return FALSE;
}

static guint rank_of(const QosCreditRequest *request)
{
    return request->flags & QOS_CREDIT_UPGRADE ? 0 : request->flags & QOS_CREDIT_RESERVE ? 1 : 2;
}

static void enqueue(QosOwner *owner, const QosCreditRequest *from)
{
    QosCreditRequest *request = g_memdup2(from, sizeof(*from));
    GQueue *queue = &qos_book_busy(request->book)->requests;
    GList *before = queue->tail;

    while (before != NULL && rank_of(before->data) > rank_of(request))
        before = before->prev;
    request->book_link.data = request;
    request->owner_link.data = request;
    if (before != NULL)
        g_queue_insert_after_link(queue, before, &request->book_link);
    else
        g_queue_push_head_link(queue, &request->book_link);
    g_queue_push_tail_link(request->peer != NULL ? &request->peer->requests : &owner->requests,
                           &request->owner_link);
    if (request->hold != NULL)
        request->hold->request = request;
}

QosCreditVerdict qos_request_start(QosOwner *owner, QosCreditRequest *request, QosTime now,
                                   QosTime *ret_delay)
{
    QosBook *book = request->book;
    QosCreditVerdict verdict = QOS_CREDIT_WAITING;

    request->since = owner->last_request;
    if (qos_owner_in_grace(owner) ||
        is_barred(request, book->busy != NULL ? book->busy->requests.head : NULL)) {
        if (request->flags & (QOS_CREDIT_NON_BLOCK_LOCAL | QOS_CREDIT_NON_BLOCK_REMOTE))
            verdict = QOS_CREDIT_DENIED;
    } else {
        verdict = try_request(owner, request, now, ret_delay);
    }
    if (verdict == QOS_CREDIT_WAITING)
        enqueue(owner, request);
    else
        qos_credit_clear(qos_book_type(book), &request->want);
    const gboolean is_local = verdict == QOS_CREDIT_GRANTED && request->peer == NULL;
    if (is_local && book->busy != NULL && request->flags & QOS_CREDIT_UPGRADE)
        qos_book_pump(owner, book, now); /* others may wait for what was held instead */
    /* The user may have been about to drop what it now holds again: that is no answer any more. */
    else if (is_local && book->busy != NULL && book->busy->callback != 0)
        qos_book_serve_callback(owner, book, now);
    qos_book_tidy(owner, book);
    return verdict;
}

void qos_request_remove(QosOwner *owner, QosCreditRequest *request, QosTime now)
{
    QosBook *book = request->book;

    g_queue_unlink(&book->busy->requests, &request->book_link);
    g_queue_unlink(request->peer != NULL ? &request->peer->requests : &owner->requests,
                   &request->owner_link);
    if (request->hold != NULL)
        request->hold->request = NULL;
    if (request->asked != 0 && owner->above->state == QOS_SESSION_OPEN) {
        QosCreditMessage message = {
            .type = QOS_MESSAGE_WITHDRAW, .request = request->asked, .resource = book->resource};
        qos_peer_send(owner, owner->above, &message, now);
    }
    qos_credit_clear(qos_book_type(book), &request->want);
    g_free(request);
}

void qos_request_finish(QosOwner *owner, QosCreditRequest *request, QosCreditVerdict verdict,
                        QosTime delay, QosTime now)
{
    if (request->peer == NULL) {
        QosOutputEntry *entry = qos_output_add(owner, QOS_OUTPUT_DONE);
        entry->output.hold = request->hold;
        entry->output.verdict = verdict;
        entry->output.delay = delay;
    } else if (verdict != QOS_CREDIT_GRANTED) {
        QosCreditMessage message = {.type = QOS_MESSAGE_DENIED,
                                    .request = request->id,
                                    .delay = verdict == QOS_CREDIT_RETRY ? delay : 0,
                                    .resource = request->book->resource};
        qos_peer_send(owner, request->peer, &message, now);
    }
    qos_request_remove(owner, request, now);
}

gboolean qos_request_retry(QosOwner *owner, QosCreditRequest *request, QosTime now)
{
    QosTime delay = 0;
    QosCreditVerdict verdict = try_request(owner, request, now, &delay);

    if (verdict == QOS_CREDIT_WAITING)
        return FALSE;
    qos_request_finish(owner, request, verdict, delay, now);
    return TRUE;
}

/* Tries to meet the requests in their order. TRUE: a conversion has given something up that earlier
 * requests may be waiting for. */
static gboolean serve_requests(QosOwner *owner, QosBook *book, QosTime now)
{
    Reservations reserved = {NULL, NULL};
    gboolean has_converted = FALSE;
    GList *next;

    for (GList *link = book->busy->requests.head; link != NULL; link = next) {
        QosCreditRequest *request = link->data;
        const gboolean converts = request->peer == NULL && request->flags & QOS_CREDIT_UPGRADE;
        next = link->next;
        if (is_barred(request, reserved_before(&reserved, request->peer)) ||
            !qos_request_retry(owner, request, now))
            note_reservation(&reserved, link);
        else
            has_converted |= converts;
    }
    return has_converted;
}

void qos_book_pump(QosOwner *owner, QosBook *book, QosTime now)
{
    gboolean is_again = book->busy != NULL;

    while (is_again) {
        if (book->busy->callback != 0)
            qos_book_serve_callback(owner, book, now);
        is_again = !qos_owner_in_grace(owner) && serve_requests(owner, book, now);
    }
    qos_book_tidy(owner, book);
}
