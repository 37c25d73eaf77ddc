/*
 * Sessions: what makes messages arrive once and in order, and what ends when they do not.
 *
 *      borrower                       lender
 *      NONE
 *      HELLO      -- HELLO -->        NONE
 *                                     SAVING     until the borrower is on the durable list
 *      OPEN       <-- WELCOME --      OPEN
 *
 * In an open session each side numbers its messages, transmits at most WINDOW of them beyond what
 * the other has acknowledged, and repeats these until it has; what does not come in order is
 * dropped. The borrower names the session, by its incarnation and a number that grows, and both put
 * the name and the lender's incarnation into each message; so what is late is known. To a session
 * that it does not know the lender answers RESET.
 *
 * A lease begins when the borrower sends a message, and the lender's receiving it in order promises
 * it; `renewed` names that message, so that neither a repetition nor a late acknowledgement makes
 * it longer than the lender counts. Nothing is promised while a callback waits for its answer for
 * long.
 */
#include "core/credit_private.h"

#define WINDOW       64   /* messages under way */
#define QUEUE_MAX    8192 /* messages for one peer; with so many, none of its is taken */
#define RESEND_TIMES 16   /* the interval doubles up to so many times the first */
/* Of the lease: the age of a callback from which on the lease is not renewed. */
#define ANSWER_PART 8
#define RENEW_PART  4 /* of the lease: after which it is renewed */

void qos_packet_unref(QosPacket *packet)
{
    if (--packet->references > 0)
        return;
    qos_credit_message_clear(&packet->message);
    g_free(packet);
}

/* Peers */

static void clear_queue(QosPeer *peer)
{
    while (peer->unacknowledged.length > 0)
        qos_packet_unref(g_queue_pop_head_link(&peer->unacknowledged)->data);
}

QosPeer *qos_peer_get(QosOwner *owner, QosOwnerId id)
{
    QosPeer *peer = g_hash_table_lookup(owner->peers, &id);

    if (peer != NULL)
        return peer;
    peer = g_new0(QosPeer, 1);
    peer->id = id;
    peer->resend_at = peer->acknowledge_at = peer->renew_at = QOS_NEVER;
    g_hash_table_insert(owner->peers, &peer->id, peer);
    qos_heap_push(&owner->timers, &peer->timer, QOS_NEVER);
    return peer;
}

void qos_peer_free(QosPeer *peer)
{
    clear_queue(peer);
    g_free(peer);
}

static QosTime due_of(const QosPeer *peer)
{
    QosTime due = MIN(peer->resend_at, peer->acknowledge_at);

    due = MIN(due, peer->renew_at);
    if (peer->state == QOS_SESSION_OPEN || peer->sublets.length > 0 ||
        (peer->is_above && peer->until > 0))
        due = MIN(due, peer->until);
    return due;
}

/* The timer may be early: then the tick finds nothing to do, and sets it right. */
static void schedule(QosOwner *owner, QosPeer *peer)
{
    QosTime due = due_of(peer);

    if (due < peer->timer.key)
        qos_heap_update(&owner->timers, &peer->timer, due);
}

void qos_peer_renew(QosOwner *owner, QosPeer *peer, QosTime now)
{
    peer->renew_at = MIN(peer->renew_at, now);
    schedule(owner, peer);
}

/* Sending */

static void put_out(QosOwner *owner, QosPeer *peer, QosPacket *packet)
{
    QosCreditMessage *message = &packet->message;
    QosOutputEntry *entry = qos_output_add(owner, QOS_OUTPUT_SEND);

    message->session = peer->session;
    message->lender = peer->is_above ? peer->lender : owner->config.incarnation;
    message->acknowledged = peer->received;
    message->renewed = peer->is_above ? 0 : peer->renewed;
    message->lease = peer->is_above ? 0 : peer->lease;
    message->token = owner->token;
    entry->output.peer = peer->id;
    entry->packet = packet;
    packet->references++;
    peer->acknowledge_at = QOS_NEVER;
}

static void send_bare(QosOwner *owner, QosPeer *peer, QosMessageType type, guint flags)
{
    QosPacket *packet = g_new0(QosPacket, 1);

    packet->references = 1;
    packet->message.type = type;
    packet->message.flags = flags;
    put_out(owner, peer, packet);
    qos_packet_unref(packet);
}

static void transmit(QosOwner *owner, QosPeer *peer, QosPacket *packet, QosTime now)
{
    if (packet->sent == QOS_NEVER) {
        packet->sent = now;
        peer->sent = packet->message.sequence;
        if (peer->is_above)
            peer->renew_at = qos_time_add(now, peer->lease / RENEW_PART);
    }
    put_out(owner, peer, packet);
    if (peer->resend_at == QOS_NEVER)
        peer->resend_at = qos_time_add(now, peer->resend_after);
}

void qos_peer_send(QosOwner *owner, QosPeer *peer, QosCreditMessage *message, QosTime now)
{
    QosPacket *packet;

    if (peer->state != QOS_SESSION_OPEN) {
        qos_credit_message_clear(message);
        return;
    }
    packet = g_new0(QosPacket, 1);
    packet->message = *message;
    packet->message.sequence = ++peer->numbered;
    packet->references = 1;
    packet->sent = QOS_NEVER;
    packet->link.data = packet;
    g_queue_push_tail_link(&peer->unacknowledged, &packet->link);
    if (peer->unacknowledged.length <= WINDOW)
        transmit(owner, peer, packet, now);
    schedule(owner, peer);
}

/* All under way, again. */
static void resend(QosOwner *owner, QosPeer *peer, QosTime now)
{
    guint count = 0;

    peer->resend_after = MIN(2 * peer->resend_after, RESEND_TIMES * owner->config.resend);
    peer->resend_at = QOS_NEVER;
    for (GList *link = peer->unacknowledged.head; link != NULL && count < WINDOW;
         link = link->next, count++)
        transmit(owner, peer, link->data, now);
}

static void open_session(QosOwner *owner, QosPeer *peer)
{
    clear_queue(peer);
    peer->state = QOS_SESSION_OPEN;
    peer->numbered = peer->sent = peer->received = peer->renewed = 0;
    peer->resend_after = owner->config.resend;
    peer->resend_at = peer->acknowledge_at = QOS_NEVER;
}

/* The borrower's side */

static void send_hello(QosOwner *owner, QosTime now)
{
    QosPeer *above = owner->above;

    above->resend_at = qos_time_add(now, above->resend_after);
    above->resend_after = MIN(2 * above->resend_after, RESEND_TIMES * owner->config.resend);
    send_bare(owner, above, QOS_MESSAGE_HELLO, above->hello_flags);
    schedule(owner, above);
}

static void clear_lazy(QosOwner *owner)
{
    QosCreditMessage message = {.more = g_steal_pointer(&owner->lazy)};

    owner->lazy_at = QOS_NEVER;
    qos_credit_message_clear(&message);
}

/* What was asked of the lender, and what it asked, it knows no more. */
static void forget_dialogue(QosOwner *owner, QosTime now)
{
    GPtrArray *asked = g_ptr_array_new();

    clear_lazy(owner);
    for (QosBook *book = qos_table_next(&owner->table, NULL), *next; book != NULL; book = next) {
        next = qos_table_next(&owner->table, book);
        if (book->busy == NULL)
            continue;
        book->busy->callback = 0;
        qos_credit_clear(qos_book_type(book), &book->busy->wanted);
        for (GList *link = book->busy->requests.head; link != NULL; link = link->next) {
            QosCreditRequest *request = link->data;
            if (request->asked != 0)
                g_ptr_array_add(asked, request);
        }
    }
    for (guint i = 0; i < asked->len; i++)
        qos_request_finish(owner, asked->pdata[i], QOS_CREDIT_ERROR, 0, now);
    g_ptr_array_unref(asked);
}

/* After a time in which nothing could be asked or granted. */
static void pump_all(QosOwner *owner, QosTime now)
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
        forget_dialogue(owner, now);
    clear_queue(above);
    above->lender = 0;
    above->received = 0;
    above->session = (guint64)owner->config.incarnation << 32 | ++owner->sessions;
    above->hello_flags =
        (owner->config.lends ? QOS_HELLO_LENDS : 0) | (reclaims ? QOS_HELLO_RECLAIMS : 0);
    above->hello_sent = now;
    above->renew_at = above->acknowledge_at = QOS_NEVER;
    above->resend_after = owner->config.resend;
    send_hello(owner, now);
}

static void drop_requests(QosOwner *owner, GQueue *requests, QosTime now)
{
    while (requests->length > 0)
        qos_request_finish(owner, requests->head->data, QOS_CREDIT_ERROR, 0, now);
}

/* A borrower's session ends; what it had and wanted stays. */
static void close_session(QosPeer *peer)
{
    peer->state = QOS_SESSION_NONE;
    peer->until = 0;
    peer->resend_at = peer->acknowledge_at = QOS_NEVER;
    clear_queue(peer);
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
        book->busy->heated = 0;
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
    }
    g_hash_table_iter_init(&iter, owner->peers);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&peer)) {
        if (peer->is_above)
            continue;
        close_session(peer);
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

void qos_owner_give_back(QosOwner *owner, const QosBook *book, QosTime now)
{
    QosCreditItem item = {.resource = book->resource,
                          .credit = qos_credit_copy(qos_book_type(book), &book->borrowed),
                          .token = book->granted};

    if (owner->lazy != NULL && owner->lazy->len == QOS_CREDIT_BATCH)
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
                              .token = book->granted};
        if (items->len == QOS_CREDIT_BATCH) {
            send_claims(owner, items, 0, now);
            items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
        }
        g_array_append_val(items, item);
    }
    send_claims(owner, items, QOS_RECLAIM_LAST, now);
}

static void receive_welcome(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    QosPeer *above = owner->above;

    if (above->state != QOS_SESSION_HELLO || message->session != above->session)
        return;
    gboolean reclaims = (above->hello_flags & QOS_HELLO_RECLAIMS) &&
                        (message->flags & QOS_WELCOME_RECLAIM) && now < above->until;
    if (!reclaims)
        qos_session_lose(owner, now);
    open_session(owner, above);
    above->lender = message->lender;
    above->lease = MAX(message->lease, 0);
    owner->token = MAX(owner->token, message->token);
    owner->above_token = MAX(owner->above_token, message->token);
    if (!reclaims) /* what is not yet reclaimed has the old lease */
        above->until = above->hello_sent + above->lease - QOS_LEASE_DRIFT(above->lease);
    above->renew_at = qos_time_add(now, above->lease / RENEW_PART);
    if (reclaims) {
        reclaim_all(owner, now);
        pump_all(owner, now);
        above->renew_at = now; /* the first message behind the claims */
    }
    schedule(owner, above);
}

static void receive_reset(QosOwner *owner, const QosCreditMessage *message, QosTime now)
{
    QosPeer *above = owner->above;

    if (above->state != QOS_SESSION_OPEN || message->session != above->session)
        return;
    gboolean is_restarted = message->lender > above->lender;
    if (!is_restarted)
        qos_session_lose(owner, now);
    qos_session_begin(owner, is_restarted, now);
}

/* The lender's side */

static QosTime lease_for(const QosOwner *owner, QosTime now)
{
    if (owner->above == NULL)
        return owner->config.lease;
    return CLAMP((owner->above->until - now) / 2, 0, owner->config.lease);
}

static void renew_lease(QosOwner *owner, QosPeer *peer, guint64 sequence, QosTime now)
{
    const GList *oldest = peer->callbacks.head;
    QosTime lease = lease_for(owner, now);

    if (lease <= 0 || peer->is_reclaiming ||
        (oldest != NULL &&
         now - ((const QosCallback *)oldest->data)->since > peer->lease / ANSWER_PART))
        return;
    peer->renewed = sequence;
    peer->lease = lease;
    peer->until = MAX(peer->until, now + lease + QOS_LEASE_DRIFT(lease));
}

static void remove_requests(QosOwner *owner, QosPeer *peer, QosTime now)
{
    while (peer->requests.length > 0) {
        QosCreditRequest *request = peer->requests.head->data;
        QosBook *book = request->book;
        qos_request_remove(owner, request, now);
        qos_book_pump(owner, book, now); /* it may have barred others */
    }
}

/* All that the peer had is free, and it waits for nothing. */
static void take_all(QosOwner *owner, QosPeer *peer, QosTime now)
{
    close_session(peer);
    remove_requests(owner, peer, now);
    if (peer->sublets.length > 0 && peer->hello_flags & QOS_HELLO_LENDS)
        owner->token += owner->above == NULL ? QOS_TOKENS_AHEAD_ROOT : QOS_TOKENS_AHEAD;
    while (peer->sublets.length > 0) {
        QosSublet *sublet = peer->sublets.head->data;
        QosBook *book = sublet->book;
        qos_sublet_remove(owner, sublet);
        book->token = ++owner->token;
        qos_book_pump(owner, book, now);
    }
}

static void end_grace(QosOwner *owner, QosTime now)
{
    GHashTableIter iter;
    QosPeer *peer;

    owner->grace_until = 0;
    owner->awaited = 0;
    g_hash_table_iter_init(&iter, owner->peers);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&peer)) {
        peer->is_reclaiming = FALSE;
        if (peer->is_awaited && peer->state == QOS_SESSION_NONE) {
            peer->is_known = FALSE;
            qos_output_add(owner, QOS_OUTPUT_FORGET)->output.peer = peer->id;
        }
        peer->is_awaited = FALSE;
    }
    pump_all(owner, now);
}

void qos_grace_arrived(QosOwner *owner, QosPeer *peer, QosTime now)
{
    peer->is_reclaiming = FALSE;
    if (!peer->is_awaited)
        return;
    peer->is_awaited = FALSE;
    if (--owner->awaited == 0 && qos_owner_in_grace(owner))
        end_grace(owner, now);
}

static void evict(QosOwner *owner, QosPeer *peer, QosTime now)
{
    if (peer->is_known) {
        peer->is_known = FALSE;
        qos_output_add(owner, QOS_OUTPUT_FORGET)->output.peer = peer->id;
    }
    take_all(owner, peer, now);
    if (peer->is_awaited && qos_owner_in_grace(owner))
        qos_grace_arrived(owner, peer, now);
}

static void welcome(QosOwner *owner, QosPeer *peer, QosTime now)
{
    open_session(owner, peer);
    peer->is_reclaiming =
        qos_owner_in_grace(owner) && peer->is_awaited && peer->hello_flags & QOS_HELLO_RECLAIMS;
    peer->lease = lease_for(owner, now);
    peer->until = now + peer->lease + QOS_LEASE_DRIFT(peer->lease);
    send_bare(owner, peer, QOS_MESSAGE_WELCOME, peer->is_reclaiming ? QOS_WELCOME_RECLAIM : 0);
    schedule(owner, peer);
    /* What it has lent may still be in use: then the grace goes on. */
    if (!peer->is_reclaiming && !(peer->hello_flags & QOS_HELLO_LENDS))
        qos_grace_arrived(owner, peer, now);
}

static void receive_hello(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                          QosTime now)
{
    if (message->session < peer->session || !owner->config.lends ||
        !qos_owner_is_alive(owner, now) ||
        lease_for(owner, now) < owner->config.lease / ANSWER_PART)
        return;
    /* If it ended before anything came, its welcome may have been lost: then it begins again. */
    if (message->session == peer->session &&
        (peer->state != QOS_SESSION_NONE || peer->received > 0)) {
        if (peer->state == QOS_SESSION_OPEN && peer->received == 0)
            send_bare(owner, peer, QOS_MESSAGE_WELCOME,
                      peer->is_reclaiming ? QOS_WELCOME_RECLAIM : 0);
        return;
    }
    gboolean is_restarted = message->session >> 32 != peer->session >> 32;
    if (is_restarted && peer->hello_flags & QOS_HELLO_LENDS && peer->sublets.length > 0 &&
        now < peer->until)
        return; /* those that it lent to may go on so long; it will say hello again */
    take_all(owner, peer, now);
    peer->session = message->session;
    peer->hello_flags = message->flags;
    if (peer->is_known || owner->above != NULL) {
        welcome(owner, peer, now);
        return;
    }
    peer->state = QOS_SESSION_SAVING;
    qos_output_add(owner, QOS_OUTPUT_SAVE)->output.peer = peer->id;
}

void qos_owner_saved(QosOwner *owner, QosOwnerId client, QosTime now)
{
    QosPeer *peer = g_hash_table_lookup(owner->peers, &client);

    if (peer == NULL || peer->state != QOS_SESSION_SAVING)
        return;
    peer->is_known = TRUE;
    welcome(owner, peer, now);
}

static void reset_peer(QosOwner *owner, QosPeer *peer, guint64 session)
{
    guint64 known = peer->session;

    peer->session = session;
    send_bare(owner, peer, QOS_MESSAGE_RESET, 0);
    peer->session = known;
}

/* Both sides */

static void receive_acknowledgement(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                                    QosTime now)
{
    guint64 acknowledged = MIN(message->acknowledged, peer->sent);
    gboolean has_progress = FALSE;

    while (peer->unacknowledged.length > 0) {
        QosPacket *packet = peer->unacknowledged.head->data;
        if (packet->message.sequence > acknowledged)
            break;
        if (peer->is_above && packet->message.sequence == message->renewed && message->lease > 0) {
            peer->lease = message->lease;
            peer->until = MAX(peer->until, qos_time_add(packet->sent, peer->lease) -
                                               QOS_LEASE_DRIFT(peer->lease));
        }
        g_queue_unlink(&peer->unacknowledged, &packet->link);
        qos_packet_unref(packet);
        has_progress = TRUE;
    }
    if (!has_progress)
        return;
    peer->resend_after = owner->config.resend;
    peer->resend_at = QOS_NEVER;
    if (peer->unacknowledged.length == 0)
        return;
    peer->resend_at = qos_time_add(now, peer->resend_after);
    guint count = 0;
    for (GList *link = peer->unacknowledged.head; link != NULL && count < WINDOW;
         link = link->next, count++) {
        if (((QosPacket *)link->data)->sent == QOS_NEVER)
            transmit(owner, peer, link->data, now);
    }
}

/* FALSE: its sender breaks the rules. */
static gboolean receive_token(QosOwner *owner, const QosPeer *peer, const QosCreditMessage *message)
{
    guint64 ahead = owner->above == NULL ? QOS_TOKENS_AHEAD_ROOT : QOS_TOKENS_AHEAD;

    if (peer->is_above)
        owner->above_token = MAX(owner->above_token, message->token);
    else if (!(peer->hello_flags & QOS_HELLO_LENDS))
        return message->token <= owner->token;
    else if (message->token > owner->token + ahead)
        return FALSE;
    owner->token = MAX(owner->token, message->token);
    return TRUE;
}

/* A message that breaks the rules ends the session of who sent it. */
static void reject(QosOwner *owner, QosPeer *peer, QosTime now)
{
    if (peer->is_above) {
        qos_session_lose(owner, now);
        qos_session_begin(owner, FALSE, now);
        return;
    }
    reset_peer(owner, peer, peer->session);
    clear_queue(peer);
    peer->state = QOS_SESSION_NONE; /* what it has stays its own until its lease ends */
    peer->resend_at = QOS_NEVER;
    remove_requests(owner, peer, now);
    schedule(owner, peer);
}

static void receive_numbered(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                             QosTime now)
{
    receive_acknowledgement(owner, peer, message, now);
    if (!receive_token(owner, peer, message)) {
        reject(owner, peer, now);
        return;
    }
    if (message->sequence == 0)
        return;
    peer->acknowledge_at = MIN(peer->acknowledge_at, now + owner->config.resend / 4);
    if (message->sequence != peer->received + 1 || peer->unacknowledged.length > QUEUE_MAX)
        return;
    peer->received++;
    if (!peer->is_above)
        renew_lease(owner, peer, message->sequence, now);
    if (message->type == QOS_MESSAGE_RENEW)
        peer->acknowledge_at = now;
    if (!qos_owner_handle(owner, peer, message, now))
        reject(owner, peer, now);
}

static gboolean is_well_formed(const QosCreditMessage *message, const QosPeer *peer)
{
    static const guint from_lender = 1 << QOS_MESSAGE_WELCOME | 1 << QOS_MESSAGE_RESET |
                                     1 << QOS_MESSAGE_GRANT | 1 << QOS_MESSAGE_DENIED |
                                     1 << QOS_MESSAGE_REVOKE;

    if (message->type == QOS_MESSAGE_RENEW)
        return TRUE;
    return message->type < QOS_MESSAGE_TYPES &&
           ((from_lender >> message->type & 1) != 0) == peer->is_above;
}

void qos_owner_receive(QosOwner *owner, QosOwnerId from, const QosCreditMessage *message,
                       QosTime now)
{
    QosPeer *peer = g_hash_table_lookup(owner->peers, &from);

    qos_session_expire(owner, now);
    if (peer == NULL && from != owner->config.id && owner->config.lends)
        peer = qos_peer_get(owner, from);
    if (peer == NULL || !is_well_formed(message, peer))
        return;
    if (message->type == QOS_MESSAGE_HELLO)
        receive_hello(owner, peer, message, now);
    else if (message->type == QOS_MESSAGE_WELCOME)
        receive_welcome(owner, message, now);
    else if (message->type == QOS_MESSAGE_RESET)
        receive_reset(owner, message, now);
    else if (peer->state == QOS_SESSION_OPEN && message->session == peer->session &&
             message->lender == (peer->is_above ? peer->lender : owner->config.incarnation))
        receive_numbered(owner, peer, message, now);
    else if (!peer->is_above && message->session >= peer->session &&
             peer->state != QOS_SESSION_SAVING)
        reset_peer(owner, peer, message->session);
    schedule(owner, peer);
}

static void tick_peer(QosOwner *owner, QosPeer *peer, QosTime now)
{
    if (peer->is_above) {
        qos_session_expire(owner, now);
    } else if (now >= peer->until &&
               (peer->state == QOS_SESSION_OPEN || peer->sublets.length > 0)) {
        evict(owner, peer, now);
    }
    if (now >= peer->renew_at && peer->state == QOS_SESSION_OPEN) {
        QosCreditMessage message = {.type = QOS_MESSAGE_RENEW};
        peer->renew_at = qos_time_add(now, MAX(peer->lease / RENEW_PART, 1));
        qos_peer_send(owner, peer, &message, now);
    }
    if (now >= peer->resend_at) {
        if (peer->state == QOS_SESSION_HELLO)
            send_hello(owner, now);
        else
            resend(owner, peer, now);
    }
    if (now >= peer->acknowledge_at)
        send_bare(owner, peer, QOS_MESSAGE_RENEW, 0);
}

void qos_owner_tick(QosOwner *owner, QosTime now)
{
    QosHeapNode *node;

    if (owner->grace_until != 0 && now >= owner->grace_until)
        end_grace(owner, now);
    if (now >= owner->lazy_at)
        qos_owner_flush_lazy(owner, now);
    while ((node = qos_heap_peek(&owner->timers)) != NULL && node->key <= now) {
        QosPeer *peer = (QosPeer *)((char *)node - G_STRUCT_OFFSET(QosPeer, timer));
        tick_peer(owner, peer, now);
        qos_heap_update(&owner->timers, node, MAX(due_of(peer), now + 1));
    }
}

QosTime qos_owner_next(const QosOwner *owner)
{
    const QosHeapNode *node = qos_heap_peek(&owner->timers);
    QosTime next = node != NULL ? node->key : QOS_NEVER;

    if (owner->grace_until != 0)
        next = MIN(next, owner->grace_until);
    return MIN(next, owner->lazy_at);
}
