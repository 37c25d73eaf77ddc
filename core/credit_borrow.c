/*
 * The borrower's side of a session: how it begins, what is given back and reclaimed, and what is
 * lost when it ends. credit_session.c has the states.
 */
#include "core/credit_private.h"

void qos_session_hello(QosOwner *owner, QosTime now)
{
    QosPeer *above = owner->above;

    above->resend_at = qos_time_add(now, above->resend_after);
    above->resend_after = MIN(2 * above->resend_after, QOS_RESEND_TIMES * owner->config.resend);
    qos_peer_send_bare(owner, above, QOS_MESSAGE_HELLO, above->hello_flags);
    qos_peer_schedule(owner, above);
}

static void clear_lazy(QosOwner *owner)
{
    QosCreditMessage message = {.more = g_steal_pointer(&owner->lazy)};

    owner->lazy_at = QOS_NEVER;
    qos_credit_message_clear(&message);
}

/* The lender has forgotten this owner's requests, and its own callbacks. So these are forgotten
 * here. Waiting requests go on waiting and are sent again in the next session: other owners may
 * have conflicting credits. */
static void forget_dialogue(QosOwner *owner)
{
    clear_lazy(owner);
    for (QosBook *book = qos_table_next(&owner->table, NULL); book != NULL;
         book = qos_table_next(&owner->table, book)) {
        if (book->busy == NULL)
            continue;
        book->busy->callback = 0;
        qos_credit_clear(qos_book_type(book), &book->busy->wanted);
        for (GList *link = book->busy->requests.head; link != NULL; link = link->next)
            ((QosCreditRequest *)link->data)->asked = 0;
    }
}

/* After a time in which nothing could be asked or granted. */
void qos_owner_pump_all(QosOwner *owner, QosTime now)
{
    GPtrArray *books = g_ptr_array_new();

    for (QosBook *book = qos_table_next(&owner->table, NULL); book != NULL;
         book = qos_table_next(&owner->table, book)) {
        if (book->busy != NULL)
            g_ptr_array_add(books, book);
    }
    for (guint i = 0; i < books->len; i++)
        qos_book_pump(owner, books->pdata[i], now);
    g_ptr_array_unref(books);
}

void qos_session_begin(QosOwner *owner, gboolean reclaims, QosTime now)
{
    QosPeer *above = owner->above;

    above->state = QOS_SESSION_HELLO;
    if (reclaims)
        forget_dialogue(owner);
    qos_peer_clear_queue(above);
    above->lender = 0;
    above->received = 0;
    above->session = (guint64)owner->config.incarnation << 32 | ++owner->sessions;
    above->hello_flags = owner->config.lends ? QOS_HELLO_LENDS : 0;
    if (reclaims)
        above->hello_flags |= QOS_HELLO_RECLAIMS;
    else if (owner->is_restoring)
        above->hello_flags |= QOS_HELLO_RESTORES;
    above->hello_sent = now;
    above->renew_at = above->acknowledge_at = QOS_NEVER;
    above->resend_after = owner->config.resend;
    qos_session_hello(owner, now);
}

static void drop_requests(QosOwner *owner, GQueue *requests, QosTime now)
{
    while (requests->length > 0)
        qos_request_finish(owner, requests->head->data, QOS_CREDIT_ERROR, 0, now);
}

static void lose_book(QosOwner *owner, QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);

    while (book->sublets != NULL)
        qos_sublet_remove(owner, book->sublets);
    if (owner->above != NULL && !qos_credit_is_empty(type, &book->borrowed)) {
        QosOutputEntry *entry = qos_output_add(owner, QOS_OUTPUT_LOST);
        entry->output.resource = book->resource;
        entry->output.credit = book->borrowed;
        book->borrowed = (QosCredit){0};
    }
    while (book->holds != NULL)
        qos_hold_remove(book->holds);
    if (book->busy != NULL) {
        qos_credit_clear(type, &book->busy->wanted);
        book->busy->callback = 0;
        book->busy->heated = book->busy->contended = 0;
    }
    qos_book_tidy(owner, book);
}

void qos_session_lose(QosOwner *owner, QosTime now)
{
    GHashTableIter iter;
    QosPeer *peer;

    clear_lazy(owner);
    if (owner->above != NULL) {
        owner->above->state = QOS_SESSION_NONE;
        owner->above->until = 0;
        /* Borrowers that have not come yet may still use what they had. */
        owner->is_restoring |= qos_owner_in_grace(owner);
    }
    g_hash_table_iter_init(&iter, owner->peers);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&peer)) {
        if (peer->is_above)
            continue;
        qos_peer_close(peer);
        qos_peer_forget(owner, peer);
        qos_peer_keep_record(owner, peer, now);
        drop_requests(owner, &peer->requests, now);
    }
    drop_requests(owner, &owner->requests, now);
    for (QosBook *book = qos_table_next(&owner->table, NULL), *next; book != NULL; book = next) {
        next = qos_table_next(&owner->table, book);
        lose_book(owner, book);
    }
}

void qos_session_expire(QosOwner *owner, QosTime now)
{
    if (owner->above == NULL || owner->above->until == 0 || now < owner->above->until)
        return;
    qos_session_lose(owner, now);
    qos_session_begin(owner, FALSE, now);
}

void qos_owner_leave(QosOwner *owner, QosTime now)
{
    if (owner->above == NULL)
        return;
    qos_session_lose(owner, now);
    qos_session_begin(owner, FALSE, now);
}

void qos_owner_reconnected(QosOwner *owner, QosTime now)
{
    QosPeer *above = owner->above;

    if (above == NULL)
        return;
    above->resend_after = owner->config.resend;
    if (above->state == QOS_SESSION_HELLO || above->unacknowledged.length > 0)
        above->resend_at = now;
    if (above->state == QOS_SESSION_OPEN)
        above->renew_at = now;
    qos_peer_schedule(owner, above);
}

void qos_owner_give_back(QosOwner *owner, const QosBook *book, QosTime now)
{
    QosCreditItem item = {.resource = book->resource,
                          .credit = qos_credit_copy(qos_book_type(book), &book->borrowed),
                          .token = book->granted};

    if (owner->lazy != NULL && !qos_batch_has_room(owner->lazy, &item.resource, &item.credit))
        qos_owner_flush_lazy(owner, now);
    if (owner->lazy == NULL)
        owner->lazy = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
    g_array_append_val(owner->lazy, item);
    owner->lazy_at = MIN(owner->lazy_at, qos_time_add(now, owner->config.resend));
}

void qos_owner_take_lazy(QosOwner *owner, QosCreditMessage *message)
{
    message->more = g_steal_pointer(&owner->lazy);
    owner->lazy_at = QOS_NEVER;
}

void qos_owner_flush_lazy(QosOwner *owner, QosTime now)
{
    if (owner->lazy == NULL)
        return;
    QosCreditItem *last = &g_array_index(owner->lazy, QosCreditItem, owner->lazy->len - 1);
    QosCreditMessage message = {.type = QOS_MESSAGE_CANCEL,
                                .resource = last->resource,
                                .credit = last->credit,
                                .granted = last->token};
    g_array_set_size(owner->lazy, owner->lazy->len - 1);
    qos_owner_take_lazy(owner, &message);
    qos_peer_send(owner, owner->above, &message, now);
}

static void send_claims(QosOwner *owner, GArray *items, guint flags, QosTime now)
{
    QosCreditMessage message = {.type = QOS_MESSAGE_RECLAIM, .flags = flags, .more = items};
    qos_peer_send(owner, owner->above, &message, now);
}

static void reclaim_all(QosOwner *owner, QosTime now)
{
    GArray *items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));

    for (QosBook *book = qos_table_next(&owner->table, NULL); book != NULL;
         book = qos_table_next(&owner->table, book)) {
        const QosResourceType *type = qos_book_type(book);
        if (qos_credit_is_empty(type, &book->borrowed))
            continue;
        QosCreditItem item = {.resource = book->resource,
                              .credit = qos_credit_copy(type, &book->borrowed),
                              .token = book->granted,
                              .proof = *qos_table_proof(&owner->table, book)};
        if (!qos_batch_has_room(items, &item.resource, &item.credit)) {
            send_claims(owner, items, 0, now);
            items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
        }
        g_array_append_val(items, item);
    }
    send_claims(owner, items, QOS_RECLAIM_LAST, now);
}

void qos_session_welcomed(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    QosPeer *above = owner->above;

    if (above->state != QOS_SESSION_HELLO || message->session != above->session)
        return;
    gboolean reclaims = (above->hello_flags & QOS_HELLO_RECLAIMS) &&
                        (message->flags & QOS_WELCOME_RECLAIM) && now < above->until;
    gboolean restores =
        (above->hello_flags & QOS_HELLO_RESTORES) && (message->flags & QOS_WELCOME_RESTORE);
    if (!reclaims)
        qos_session_lose(owner, now);
    owner->is_restoring = restores;
    qos_peer_open(owner, above);
    above->lender = message->lender;
    above->lease = MAX(message->lease, 0);
    owner->token = MAX(owner->token, message->token);
    owner->above_token = MAX(owner->above_token, message->token);
    if (!reclaims) /* what is not yet reclaimed has the old lease */
        above->until = above->hello_sent + above->lease - QOS_LEASE_DRIFT(above->lease);
    if (restores)
        owner->first_token = message->token;
    if (reclaims) {
        reclaim_all(owner, now);
        qos_owner_pump_all(owner, now);
    } else if (!restores && qos_owner_in_grace(owner)) {
        qos_grace_end(owner, now); /* there is nothing to reclaim */
    }
    above->renew_at = now; /* behind the claims; or so that the lender hears that it is heard */
    qos_peer_schedule(owner, above);
}

void qos_session_reset(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    QosPeer *above = owner->above;

    if (above->state != QOS_SESSION_OPEN || message->session != above->session)
        return;
    /* A restore that is not complete cannot be claimed, because the lender would take the claim for
     * all that there was. */
    gboolean reclaims = message->lender > above->lender && !owner->is_restoring;
    if (!reclaims)
        qos_session_lose(owner, now);
    qos_session_begin(owner, reclaims, now);
}
