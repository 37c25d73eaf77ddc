/*
 * What the numbered messages of a session do. The session has put them in order, but their contents
 * are not trusted: a message that makes no sense is answered by FALSE, which ends the session.
 */
#include "core/credit_private.h"
#include "core/proof.h"

#define REQUESTS_MAX 65536 /* of one borrower that wait; further ones are denied */

/* The lender's side */

/* The borrower gave something back before our last grant reached it, and that grant gives it back
 * again. The borrower then takes it out of its callback (end_want() below). So the lender takes it
 * out of the callback too, and will call it back once more. */
static void want_again(const QosResourceType *type, QosSublet *sublet, const QosCredit *keeps)
{
    if (sublet->callback == NULL || type->divisible)
        return;
    QosCredit regained = qos_credit_copy(type, &sublet->credit);
    type->diff(&regained, keeps);
    type->yield(&sublet->callback->wanted, &regained);
    qos_credit_clear(type, &regained);
}

/* The borrower keeps just that. */
static gboolean take_back(QosOwner *owner, QosPeer *peer, const QosResource *resource,
                          const QosCredit *keeps, QosToken token, guint64 answered, guint flags,
                          QosTime now)
{
    QosBook *book = qos_table_find(&owner->table, resource);
    QosSublet *sublet = book != NULL ? qos_sublet_find(book, peer) : NULL;

    if (sublet == NULL)
        return TRUE;
    const QosResourceType *type = qos_book_type(book);
    QosCallback *callback = sublet->callback;
    const gboolean is_answer = callback != NULL && answered == callback->id;
    const gboolean is_put_off = (flags & (QOS_CANCEL_BUSY | QOS_CANCEL_GRACE)) != 0;
    if (token == sublet->token && !type->matches(keeps, &sublet->credit))
        return FALSE;
    if (callback != NULL && (flags & QOS_CANCEL_BUSY) != 0 && answered <= callback->id)
        callback->busy_id = MAX(callback->busy_id, answered);
    if (is_answer && is_put_off) {
        if (qos_callback_is_due(callback))
            g_queue_unlink(&peer->callbacks, &callback->link);
        callback->is_busy = (flags & QOS_CANCEL_BUSY) != 0;
        callback->is_in_grace = !callback->is_busy;
    } else if (is_answer) {
        qos_callback_clear(sublet);
    }
    if (token != sublet->token)
        want_again(type, sublet, keeps);
    if (token == sublet->token && !type->matches(&sublet->credit, keeps)) {
        qos_sublet_keep(owner, sublet, keeps);
        book->token = ++owner->token;
    }
    if (qos_credit_is_empty(type, &sublet->credit))
        qos_sublet_remove(owner, sublet);
    qos_book_pump(owner, book, now);
    return TRUE;
}

static gboolean handle_cancels(QosOwner *owner, QosPeer *peer, const GArray *items, QosTime now)
{
    for (guint i = 0; items != NULL && i < items->len; i++) {
        const QosCreditItem *item = &g_array_index(items, QosCreditItem, i);
        if (!take_back(owner, peer, &item->resource, &item->credit, item->token, 0, 0, now))
            return FALSE;
    }
    return TRUE;
}

static gboolean handle_cancel(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                              QosTime now)
{
    return handle_cancels(owner, peer, message->more, now) &&
           take_back(owner, peer, &message->resource, &message->credit, message->granted,
                     message->request, message->flags, now);
}

static gboolean handle_enqueue(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                               QosTime now)
{
    const guint allowed =
        QOS_CREDIT_NON_BLOCK_REMOTE | QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT | QOS_CREDIT_UPGRADE;
    QosCreditVerdict verdict = QOS_CREDIT_DENIED;
    QosTime delay = 0;

    if (!handle_cancels(owner, peer, message->more, now))
        return FALSE;
    if (peer->requests.length < REQUESTS_MAX) {
        QosBook *book = qos_book_get(owner, &message->resource);
        QosCreditRequest request = {.book = book,
                                    .peer = peer,
                                    .id = message->request,
                                    .want = qos_credit_copy(qos_book_type(book), &message->credit),
                                    .flags = message->flags & allowed};
        verdict = qos_request_start(owner, &request, now, &delay);
    }
    if (verdict != QOS_CREDIT_GRANTED && verdict != QOS_CREDIT_WAITING) {
        QosCreditMessage reply = {.type = QOS_MESSAGE_DENIED,
                                  .request = message->request,
                                  .delay = verdict == QOS_CREDIT_RETRY ? delay : 0,
                                  .resource = message->resource};
        qos_peer_send(owner, peer, &reply, now);
    }
    return TRUE;
}

static gboolean handle_withdraw(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                                QosTime now)
{
    QosBook *book = qos_table_find(&owner->table, &message->resource);

    for (GList *link = peer->requests.head; link != NULL; link = link->next) {
        QosCreditRequest *request = link->data;
        if (request->id != message->request || request->book != book)
            continue;
        qos_request_remove(owner, request, now);
        qos_book_pump(owner, book, now); /* it may have barred others */
        break;
    }
    return TRUE;
}

/* Whether the credit was granted to this borrower before the restart, and the sum of its claims is
 * no more than it can have had. */
static gboolean may_claim(const QosOwner *owner, const QosPeer *peer, const QosCreditItem *item)
{
    const QosOwnerConfig *config = &owner->config;
    const gsize bytes = qos_credit_size(qos_resource_type(item->resource.type), &item->credit);

    return peer->is_reclaiming && item->token < owner->first_token &&
           item->proof == qos_proof(config->key, peer->id, item->token, &item->resource) &&
           (config->may_claim == NULL || config->may_claim(peer->id, bytes, config->arg));
}

static gboolean claim(QosOwner *owner, QosPeer *peer, const QosCreditItem *item)
{
    if (!may_claim(owner, peer, item))
        return FALSE;
    QosBook *book = qos_book_get(owner, &item->resource);
    const QosResourceType *type = qos_book_type(book);
    QosCredit room = qos_book_room(book, peer);
    gboolean is_free = qos_sublet_find(book, peer) == NULL && type->matches(&item->credit, &room) &&
                       !qos_credit_is_empty(type, &item->credit);

    qos_credit_clear(type, &room);
    if (is_free) {
        QosSublet *sublet = qos_sublet_add(owner, book, peer);
        qos_sublet_grow(owner, sublet, &item->credit);
        sublet->token = item->token;
    }
    qos_book_tidy(owner, book);
    return is_free;
}

static gboolean handle_reclaim(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                               QosTime now)
{
    for (guint i = 0; message->more != NULL && i < message->more->len; i++) {
        if (!claim(owner, peer, &g_array_index(message->more, QosCreditItem, i)))
            return FALSE;
    }
    if (message->flags & QOS_RECLAIM_LAST)
        qos_grace_arrived(owner, peer, now);
    return TRUE;
}

/* The borrower's side */

/* The lender tells what this owner had before its restart. */
static gboolean handle_restore(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    if (!owner->is_restoring)
        return FALSE;
    for (guint i = 0; message->more != NULL && i < message->more->len; i++) {
        const QosCreditItem *item = &g_array_index(message->more, QosCreditItem, i);
        const QosResourceType *type = qos_resource_type(item->resource.type);
        QosBook *book = qos_book_get(owner, &item->resource);
        gboolean is_new =
            qos_credit_is_empty(type, &book->borrowed) && !qos_credit_is_empty(type, &item->credit);
        if (is_new) {
            book->borrowed = qos_credit_copy(type, &item->credit);
            book->granted = item->token;
            *qos_table_proof(&owner->table, book) = item->proof;
            book->token = owner->token;
        }
        qos_book_tidy(owner, book);
        if (!is_new)
            return FALSE;
    }
    if (message->flags & QOS_RESTORE_LAST) {
        owner->is_restoring = FALSE;
        qos_owner_pump_all(owner, now);
    }
    return TRUE;
}

static QosCreditRequest *find_asked(const QosBook *book, guint64 id)
{
    if (book == NULL || book->busy == NULL || id == 0)
        return NULL;
    for (GList *link = book->busy->requests.head; link != NULL; link = link->next) {
        QosCreditRequest *request = link->data;
        if (request->asked == id)
            return request;
    }
    return NULL;
}

/* A new grant ends the callback's claim on what it grants. Messages come in order: the owner that
 * called back before this grant is done with that part, or calls back again. Otherwise what is
 * granted while the callback is answered bit by bit would go back at once. */
static void end_want(QosBook *book, const QosCredit *granted)
{
    const QosResourceType *type = qos_book_type(book);

    if (book->busy == NULL || book->busy->callback == 0 || type->divisible)
        return;
    QosCredit gained = qos_credit_copy(type, granted);
    type->diff(&gained, &book->borrowed);
    type->yield(&book->busy->wanted, &gained);
    qos_credit_clear(type, &gained);
}

static gboolean handle_grant(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    QosBook *book = qos_book_get(owner, &message->resource);
    const QosResourceType *type = qos_book_type(book);
    QosCreditRequest *request = find_asked(book, message->request);

    if (message->granted <= book->granted || !type->matches(&book->borrowed, &message->credit)) {
        qos_book_tidy(owner, book);
        return FALSE;
    }
    end_want(book, &message->credit);
    qos_credit_clear(type, &book->borrowed);
    book->borrowed = qos_credit_copy(type, &message->credit);
    book->granted = message->granted;
    *qos_table_proof(&owner->table, book) = message->proof;
    owner->token = MAX(owner->token, message->granted);
    book->token = owner->token;
    if (request != NULL) { /* it comes first: nothing else takes away what came for it */
        request->asked = 0;
        qos_request_retry(owner, request, now);
    }
    qos_book_pump(owner, book, now);
    return TRUE;
}

static gboolean handle_denied(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    QosBook *book = qos_table_find(&owner->table, &message->resource);
    QosCreditRequest *request = find_asked(book, message->request);

    if (request == NULL)
        return TRUE;
    request->asked = 0;
    qos_request_finish(owner, request, message->delay > 0 ? QOS_CREDIT_RETRY : QOS_CREDIT_DENIED,
                       message->delay, now);
    qos_book_pump(owner, book, now);
    return TRUE;
}

static gboolean handle_revoke(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    if (message->request == 0)
        return FALSE;
    QosBook *book = qos_book_get(owner, &message->resource);
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = qos_book_busy(book);
    if (type->divisible)
        qos_credit_clear(type, &busy->wanted); /* the last one says how much */
    if (!type->matches(&message->credit, &busy->wanted)) {
        busy->is_user_told = FALSE;
        busy->has_user_agreed = FALSE;
    }
    type->join(&busy->wanted, &message->credit);
    if (!qos_credit_is_sendable(type, &busy->wanted)) { /* all between its ends, then */
        QosCredit whole = qos_credit_span(busy->wanted.spans[0].first,
                                          busy->wanted.spans[busy->wanted.count - 1].last, TRUE);
        qos_credit_clear(type, &busy->wanted);
        busy->wanted = whole;
    }
    qos_book_note_conflict(book, now);
    busy->callback = message->request;
    busy->flags = message->flags;
    busy->is_busy = FALSE;
    qos_book_pump(owner, book, now);
    return TRUE;
}

gboolean qos_owner_handle(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                          QosTime now)
{
    switch ((QosMessageType)message->type) {
    case QOS_MESSAGE_RENEW:
        return TRUE;
    case QOS_MESSAGE_ENQUEUE:
        return handle_enqueue(owner, peer, message, now);
    case QOS_MESSAGE_WITHDRAW:
        return handle_withdraw(owner, peer, message, now);
    case QOS_MESSAGE_CANCEL:
        return handle_cancel(owner, peer, message, now);
    case QOS_MESSAGE_RECLAIM:
        return handle_reclaim(owner, peer, message, now);
    case QOS_MESSAGE_GRANT:
        return handle_grant(owner, message, now);
    case QOS_MESSAGE_DENIED:
        return handle_denied(owner, message, now);
    case QOS_MESSAGE_REVOKE:
        return handle_revoke(owner, message, now);
    case QOS_MESSAGE_RESTORE:
        return handle_restore(owner, message, now);
    default:
        return FALSE;
    }
}
