/*
 * How a request is met. What is free for who asks, the room, is what was borrowed less all that
 * others have (qos_book_room). If it is enough, it is granted. Else
 *
 *   1. what was not borrowed is asked for above, by an ENQUEUE of its own; of an amount all of it,
 * and what is free is given back with the same message: so no two owners each keep a part of what
 *      neither has enough of;
 *   2. who has what conflicts is called back: all at once for locks, of amounts the largest holder
 * first;
 *   3. the request waits, and is tried again whenever something changed (qos_book_pump).
 *
 * Requests wait in this order: upgrades, since those before whom they would wait wait for what they
 * hold; reserved ones; others. Those behind may be served before, unless they conflict with a
 * reserved one: so only reserved requests never starve.
 *
 * A callback from above is a request that comes first of all: while it lasts, nothing that
 * conflicts is granted here.
 */
#include "core/credit_private.h"

static gboolean is_lasting(const QosHold *hold)
{
    return (hold->flags & QOS_CREDIT_LASTING) != 0;
}

/* Identifiers are all alike: nobody is asked for his. */
static gboolean is_called_back(const QosResourceType *type)
{
    return !type->divisible || type->shape == QOS_SHAPE_AMOUNT;
}

QosBusy *qos_book_busy(QosBook *book)
{
    if (book->busy == NULL)
        book->busy = g_new0(QosBusy, 1);
    return book->busy;
}

/* What peers have */

QosSublet *qos_sublet_find(const QosBook *book, const QosPeer *peer)
{
    QosSublet *sublet = book->sublets;

    while (sublet != NULL && sublet->peer != peer)
        sublet = sublet->next;
    return sublet;
}

QosSublet *qos_sublet_add(QosOwner *owner, QosBook *book, QosPeer *peer)
{
    QosSublet *sublet = g_new0(QosSublet, 1);

    sublet->book = book;
    sublet->peer = peer;
    sublet->next = book->sublets;
    book->sublets = sublet;
    sublet->link.data = sublet;
    g_queue_push_tail_link(&peer->sublets, &sublet->link);
    owner->lent++;
    if (owner->config.counted != NULL)
        owner->config.counted(peer->id, &book->resource, TRUE, owner->config.arg);
    return sublet;
}

void qos_callback_clear(QosSublet *sublet)
{
    QosCallback *callback = sublet->callback;

    if (callback == NULL)
        return;
    if (!callback->is_busy)
        g_queue_unlink(&sublet->peer->callbacks, &callback->link);
    qos_credit_clear(qos_book_type(sublet->book), &callback->wanted);
    g_free(callback);
    sublet->callback = NULL;
}

void qos_sublet_remove(QosOwner *owner, QosSublet *sublet)
{
    QosBook *book = sublet->book;
    QosSublet **place = &book->sublets;

    while (*place != sublet)
        place = &(*place)->next;
    *place = sublet->next;
    qos_callback_clear(sublet);
    qos_credit_clear(qos_book_type(book), &sublet->credit);
    g_queue_unlink(&sublet->peer->sublets, &sublet->link);
    owner->lent--;
    if (owner->config.counted != NULL)
        owner->config.counted(sublet->peer->id, &book->resource, FALSE, owner->config.arg);
    g_free(sublet);
}

QosCredit qos_book_room(const QosBook *book, const QosPeer *peer)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit room = qos_credit_copy(type, &book->borrowed);

    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (type->divisible || sublet->peer != peer)
            type->yield(&room, &sublet->credit);
    }
    if (type->divisible || peer != NULL) { /* local users share locks */
        for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next)
            type->yield(&room, &hold->credit);
    }
    return room;
}

#ifdef NDEBUG
void qos_book_check(const QosBook *book G_GNUC_UNUSED)
{
}
#else
/* All that is lent is borrowed, and nobody's conflicts with another's. */
void qos_book_check(const QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit left = qos_credit_copy(type, &book->borrowed);

    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        g_assert(type->matches(&sublet->credit, &book->borrowed));
        g_assert(!type->divisible || type->matches(&sublet->credit, &left));
        if (sublet->next != NULL)
            g_assert(!type->conflicts(&sublet->credit, &sublet->next->credit));
        type->yield(&left, &sublet->credit);
    }
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next) {
        g_assert(type->matches(&hold->credit, &left));
        if (type->divisible)
            type->yield(&left, &hold->credit);
    }
    qos_credit_clear(type, &left);
}
#endif

/* Callbacks */

static void call_back(QosOwner *owner, QosSublet *sublet, const QosCredit *wanted, guint flags,
                      QosTime now)
{
    const QosResourceType *type = qos_book_type(sublet->book);
    QosCallback *callback = sublet->callback;

    if (callback != NULL && type->matches(wanted, &callback->wanted))
        return;
    if (callback == NULL) {
        callback = sublet->callback = g_new0(QosCallback, 1);
        callback->link.data = callback;
        callback->is_busy = TRUE; /* not in the queue */
    }
    type->join(&callback->wanted, wanted);
    callback->id = ++owner->last_request;
    if (callback->is_busy) {
        callback->is_busy = FALSE;
        callback->since = now;
        g_queue_push_tail_link(&sublet->peer->callbacks, &callback->link);
    }
    QosCreditMessage message = {.type = QOS_MESSAGE_REVOKE,
                                .flags = flags & QOS_CREDIT_RESERVE,
                                .request = callback->id,
                                .resource = sublet->book->resource,
                                .credit = qos_credit_copy(type, wanted)};
    qos_peer_send(owner, sublet->peer, &message, now);
}

static void tell_user(QosOwner *owner, QosBook *book, const QosCredit *wanted)
{
    QosOutputEntry *entry;

    if (qos_book_busy(book)->is_user_told)
        return;
    book->busy->is_user_told = TRUE;
    entry = qos_output_add(owner, QOS_OUTPUT_CONFLICT);
    entry->output.resource = book->resource;
    entry->output.credit = qos_credit_copy(qos_book_type(book), wanted);
}

/* Of amounts: the largest part that was not called back yet; the one who asks may have it too, free
 * or with those below. NULL: there is none, and *ret_waits tells whether an answer is due. */
static QosSublet *largest_sublet(const QosBook *book, gboolean *ret_waits)
{
    QosSublet *largest = NULL;

    *ret_waits = FALSE;
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->callback != NULL)
            *ret_waits |= !sublet->callback->is_busy;
        else if (largest == NULL || sublet->credit.amount > largest->credit.amount)
            largest = sublet;
    }
    return largest;
}

/* To above: this is what we keep. */
static void answer(QosOwner *owner, QosBook *book, gboolean is_busy, QosTime now)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;
    QosCreditMessage message = {.type = QOS_MESSAGE_CANCEL,
                                .flags = is_busy ? QOS_CANCEL_BUSY : 0,
                                .request = busy->callback,
                                .resource = book->resource,
                                .credit = qos_credit_copy(type, &book->borrowed),
                                .granted = book->granted};

    qos_owner_flush_lazy(owner, now);
    qos_peer_send(owner, owner->above, &message, now);
    busy->is_busy = is_busy;
    if (!is_busy) {
        busy->callback = 0;
        qos_credit_clear(type, &busy->wanted);
        busy->is_user_told = FALSE;
        busy->has_user_agreed = FALSE;
    }
}

static void serve_shortage(QosOwner *owner, QosBook *book, QosTime now)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;
    QosCredit given = qos_book_room(book, NULL);
    gboolean waits = FALSE;

    type->intersect(&given, &busy->wanted);
    type->yield(&book->borrowed, &given);
    type->diff(&busy->wanted, &given);
    gboolean has_given = !qos_credit_is_empty(type, &given);
    qos_credit_clear(type, &given);
    if (qos_credit_is_empty(type, &busy->wanted) || qos_credit_is_empty(type, &book->borrowed)) {
        answer(owner, book, FALSE, now);
        return;
    }
    QosSublet *sublet = is_called_back(type) ? largest_sublet(book, &waits) : NULL;
    if (sublet != NULL)
        call_back(owner, sublet, &busy->wanted, busy->flags, now);
    else if (!waits && (has_given || !busy->is_busy))
        answer(owner, book, TRUE, now);
}

/* Answers the callback from above as far as that is possible now. */
static void serve_callback(QosOwner *owner, QosBook *book, QosTime now)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;
    gboolean is_in_use = FALSE;
    gboolean is_long = FALSE;

    if (type->divisible) {
        serve_shortage(owner, book, now);
        return;
    }
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (!type->conflicts(&sublet->credit, &busy->wanted))
            continue;
        call_back(owner, sublet, &busy->wanted, busy->flags, now);
        is_in_use = TRUE;
        is_long |= sublet->callback->is_busy;
    }
    gboolean asks_user = owner->config.caches && !busy->has_user_agreed &&
                         type->conflicts(&book->borrowed, &busy->wanted);
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next) {
        if (!type->conflicts(&hold->credit, &busy->wanted))
            continue;
        is_in_use = asks_user = TRUE;
        is_long |= is_lasting(hold);
    }
    if (asks_user)
        tell_user(owner, book, &busy->wanted);
    if (!is_in_use && !asks_user) {
        type->yield(&book->borrowed, &busy->wanted);
        answer(owner, book, FALSE, now);
    } else if (is_long && !busy->is_busy) {
        answer(owner, book, TRUE, now);
    }
}

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

/* Somebody else's answer from above will do for this one too. */
static gboolean is_asked_for(const QosCreditRequest *request)
{
    const QosResourceType *type = qos_book_type(request->book);

    if (request->asked != 0)
        return TRUE;
    if (type->divisible || request->book->busy == NULL)
        return FALSE;
    for (GList *link = request->book->busy->requests.head; link != NULL; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->asked != 0 && other->flags == request->flags &&
            type->matches(&request->want, &other->want))
            return TRUE;
    }
    return FALSE;
}

/* Meeting requests */

/* Of two that hold what the other waits for, and neither gives up, one has to. */
static gboolean is_deadlocked(const QosCreditRequest *request)
{
    const QosResourceType *type = qos_book_type(request->book);

    if (!(request->flags & QOS_CREDIT_UPGRADE) || request->book->busy == NULL)
        return FALSE;
    for (GList *link = request->book->busy->requests.head; link != NULL; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->flags & QOS_CREDIT_UPGRADE && other->peer != request->peer &&
            type->conflicts(&other->want, &request->want))
            return TRUE;
    }
    return FALSE;
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
    gboolean is_local_use = FALSE;
    gboolean is_long = FALSE;

    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->peer != request->peer && type->conflicts(&sublet->credit, &request->want))
            is_long |= sublet->callback != NULL && sublet->callback->is_busy;
    }
    for (const QosHold *hold = book->holds; hold != NULL && request->peer; hold = hold->next) {
        if (!type->conflicts(&hold->credit, &request->want))
            continue;
        is_local_use = TRUE;
        is_long |= is_lasting(hold);
    }
    if ((is_long && !(request->flags & QOS_CREDIT_WAIT)) || is_contended(owner, request, now))
        return QOS_CREDIT_DENIED;
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->peer != request->peer && type->conflicts(&sublet->credit, &request->want))
            call_back(owner, sublet, &request->want, request->flags, now);
    }
    if (is_local_use)
        tell_user(owner, book, &request->want);
    return QOS_CREDIT_WAITING;
}

static QosCreditVerdict call_amount_back(QosOwner *owner, QosCreditRequest *request,
                                         const QosCredit *room, QosTime now)
{
    const QosResourceType *type = qos_book_type(request->book);
    gboolean waits = FALSE;
    QosSublet *sublet = NULL;

    if (is_called_back(type)) {
        if (request->want.amount > request->book->borrowed.amount)
            return QOS_CREDIT_DENIED; /* there is never so much */
        sublet = largest_sublet(request->book, &waits);
    }
    if (sublet != NULL) {
        QosCredit shortage = request->want;
        type->diff(&shortage, room);
        call_back(owner, sublet, &shortage, request->flags, now);
        return QOS_CREDIT_WAITING;
    }
    return waits || request->flags & QOS_CREDIT_WAIT ? QOS_CREDIT_WAITING : QOS_CREDIT_DENIED;
}

/* The room is not enough: what is to be done for it. */
static QosCreditVerdict resolve(QosOwner *owner, QosCreditRequest *request, const QosCredit *room,
                                QosTime now)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    gboolean is_short = type->divisible || !type->matches(&request->want, &book->borrowed);

    if (request->flags & QOS_CREDIT_NON_BLOCK_LOCAL || is_deadlocked(request))
        return QOS_CREDIT_DENIED;
    if (is_short && owner->above != NULL) {
        if (owner->above->state != QOS_SESSION_OPEN)
            return QOS_CREDIT_ERROR;
        if (!is_asked_for(request))
            ask(owner, request, room, now);
        return QOS_CREDIT_WAITING;
    }
    if (request->flags & QOS_CREDIT_NON_BLOCK_REMOTE || (is_short && !type->divisible))
        return QOS_CREDIT_DENIED;
    return type->divisible ? call_amount_back(owner, request, room, now)
                           : call_holders_back(owner, request, now);
}

/* The one place where a borrower gets more. */
static QosCreditVerdict grant(QosOwner *owner, QosCreditRequest *request, QosCredit *chosen,
                              QosTime now, QosTime *ret_delay)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    QosSublet *sublet = qos_sublet_find(book, request->peer);

    *ret_delay = owner->config.resend;
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
    type->join(&sublet->credit, chosen);
    sublet->token = ++owner->token;
    QosCreditMessage message = {.type = QOS_MESSAGE_GRANT,
                                .request = request->id,
                                .resource = book->resource,
                                .credit = qos_credit_copy(type, &sublet->credit),
                                .granted = sublet->token};
    qos_peer_send(owner, request->peer, &message, now);
    return QOS_CREDIT_GRANTED;
}

static QosCreditVerdict try_request(QosOwner *owner, QosCreditRequest *request, QosTime now,
                                    QosTime *ret_delay)
{
    QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    QosCredit room = qos_book_room(book, request->peer);
    QosCredit chosen = {0};
    QosCreditVerdict verdict;

    if (!type->choose(&request->want, &room, &chosen)) {
        verdict = resolve(owner, request, &room, now);
    } else if (request->peer != NULL) {
        verdict = grant(owner, request, &chosen, now, ret_delay);
        qos_credit_clear(type, &chosen);
    } else {
        qos_hold_add(book, request->hold, chosen, request->flags);
        verdict = QOS_CREDIT_GRANTED;
    }
    qos_credit_clear(type, &room);
    return verdict;
}

/* Something else comes first: a callback from above, or who has reserved before. */
static gboolean is_barred(const QosCreditRequest *request)
{
    const QosBusy *busy = request->book->busy;
    const QosResourceType *type = qos_book_type(request->book);

    if (busy == NULL || request->flags & QOS_CREDIT_UPGRADE)
        return FALSE;
    if (busy->callback != 0 && type->divisible && !busy->is_busy)
        return TRUE; /* once busy, it takes what comes free before anybody else */
    if (busy->callback != 0 && (!busy->is_busy || busy->flags & QOS_CREDIT_RESERVE) &&
        type->conflicts(&request->want, &busy->wanted))
        return TRUE;
    for (GList *link = busy->requests.head; link != NULL && link->data != request;
         link = link->next) {
        const QosCreditRequest *other = link->data;
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

    if (qos_owner_in_grace(owner) || is_barred(request)) {
        if (request->flags & (QOS_CREDIT_NON_BLOCK_LOCAL | QOS_CREDIT_NON_BLOCK_REMOTE))
            verdict = QOS_CREDIT_DENIED;
    } else {
        verdict = try_request(owner, request, now, ret_delay);
    }
    if (verdict == QOS_CREDIT_WAITING)
        enqueue(owner, request);
    else
        qos_credit_clear(qos_book_type(book), &request->want);
    qos_book_check(book);
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

void qos_request_retry(QosOwner *owner, QosCreditRequest *request, QosTime now)
{
    QosTime delay = 0;
    QosCreditVerdict verdict = try_request(owner, request, now, &delay);

    if (verdict != QOS_CREDIT_WAITING)
        qos_request_finish(owner, request, verdict, delay, now);
}

void qos_book_pump(QosOwner *owner, QosBook *book, QosTime now)
{
    if (book->busy != NULL && book->busy->callback != 0)
        serve_callback(owner, book, now);
    if (book->busy != NULL && !qos_owner_in_grace(owner)) {
        GList *next;
        for (GList *link = book->busy->requests.head; link != NULL; link = next) {
            next = link->next;
            if (!is_barred(link->data))
                qos_request_retry(owner, link->data, now);
        }
    }
    qos_book_check(book);
    qos_book_tidy(owner, book);
}
