/*
 * Sessions: they make messages arrive once and in order, and end what depends on them when messages
 * no longer arrive.
 *
 *      borrower                       lender
 *      NONE
 *      HELLO      -- HELLO -->        NONE
 *                                     SAVING     until the borrower is on the durable list
 *      OPEN       <-- WELCOME --      OPEN
 *
 * In an open session each side numbers its messages. It transmits at most WINDOW messages beyond
 * the last one that the other side has acknowledged, and repeats these until they are acknowledged.
 * A message that arrives out of order is dropped. The borrower names the session by its incarnation
 * and a number that grows. Each message carries this name and the lender's incarnation, so late
 * messages are recognised. The lender answers a message of an unknown session by RESET.
 *
 * A lease begins when the borrower sends a message, and is promised when the lender receives that
 * message in order. `renewed` names the message, so neither a repetition nor a late acknowledgement
 * makes the lease longer than the lender counts. Nothing is promised while the answer to a callback
 * is overdue.
 */
#include "core/credit_private.h"

#define WINDOW    64   /* messages under way */
#define QUEUE_MAX 8192 /* messages for one peer; with so many, none of its is taken */

void qos_packet_unref(QosPacket *packet)
{
    if (--packet->references > 0)
        return;
    qos_credit_message_clear(&packet->message);
    g_free(packet);
}

/* Peers */

void qos_peer_clear_queue(QosPeer *peer)
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

void qos_peer_keep_record(QosOwner *owner, QosPeer *peer, QosTime now)
{
    peer->until = qos_time_add(now, owner->config.lease + QOS_LEASE_DRIFT(owner->config.lease));
    qos_peer_schedule(owner, peer);
}

void qos_peer_free(QosPeer *peer)
{
    qos_peer_clear_queue(peer);
    g_free(peer);
}

static QosTime due_of(const QosPeer *peer)
{
    QosTime due = MIN(peer->resend_at, peer->acknowledge_at);

    due = MIN(due, peer->renew_at);
    return peer->until > 0 || peer->sublets != NULL ? MIN(due, peer->until) : due;
}

/* The timer may be early: then the tick finds nothing to do, and sets it right. */
void qos_peer_schedule(QosOwner *owner, QosPeer *peer)
{
    QosTime due = due_of(peer);

    if (due < peer->timer.key)
        qos_heap_update(&owner->timers, &peer->timer, due);
}

void qos_peer_renew(QosOwner *owner, QosPeer *peer, QosTime now)
{
    peer->renew_at = MIN(peer->renew_at, now);
    qos_peer_schedule(owner, peer);
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

void qos_peer_send_bare(QosOwner *owner, QosPeer *peer, QosMessageType type, guint flags)
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
            peer->renew_at = qos_time_add(now, peer->lease / QOS_RENEW_PART);
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
    qos_peer_schedule(owner, peer);
}

/* All under way, again. */
static void resend(QosOwner *owner, QosPeer *peer, QosTime now)
{
    guint count = 0;

    peer->resend_after = MIN(2 * peer->resend_after, QOS_RESEND_TIMES * owner->config.resend);
    peer->resend_at = QOS_NEVER;
    for (GList *link = peer->unacknowledged.head; link != NULL && count < WINDOW;
         link = link->next, count++)
        transmit(owner, peer, link->data, now);
}

void qos_peer_open(QosOwner *owner, QosPeer *peer)
{
    qos_peer_clear_queue(peer);
    peer->state = QOS_SESSION_OPEN;
    peer->numbered = peer->sent = peer->received = peer->renewed = 0;
    peer->resend_after = owner->config.resend;
    peer->resend_at = peer->acknowledge_at = QOS_NEVER;
}

/* Receiving */

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

/* A message that breaks the rules ends its sender's session. */
static void reject(QosOwner *owner, QosPeer *peer, QosTime now)
{
    if (peer->is_above) {
        qos_session_lose(owner, now);
        qos_session_begin(owner, FALSE, now);
        return;
    }
    qos_peer_reset(owner, peer, peer->session);
    qos_peer_clear_queue(peer);
    peer->state = QOS_SESSION_NONE; /* what it has stays its own until its lease ends */
    peer->resend_at = QOS_NEVER;
    qos_peer_remove_requests(owner, peer, now);
    qos_peer_schedule(owner, peer);
}

static void receive_numbered(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                             QosTime now)
{
    receive_acknowledgement(owner, peer, message, now);
    if (!receive_token(owner, peer, message)) {
        reject(owner, peer, now);
        return;
    }
    if (!peer->is_above)
        qos_grace_heard(owner, peer, now);
    if (message->sequence == 0)
        return;
    peer->acknowledge_at = MIN(peer->acknowledge_at, now + owner->config.resend / 4);
    if (message->sequence != peer->received + 1 || peer->unacknowledged.length > QUEUE_MAX)
        return;
    peer->received++;
    if (!peer->is_above)
        qos_peer_renew_lease(owner, peer, message->sequence, now);
    if (message->type == QOS_MESSAGE_RENEW)
        peer->acknowledge_at = now;
    if (!qos_owner_handle(owner, peer, message, now))
        reject(owner, peer, now);
}

gboolean qos_credit_message_is_lenders(const QosCreditMessage *message)
{
    static const guint types = 1 << QOS_MESSAGE_WELCOME | 1 << QOS_MESSAGE_RESET |
                               1 << QOS_MESSAGE_GRANT | 1 << QOS_MESSAGE_DENIED |
                               1 << QOS_MESSAGE_REVOKE | 1 << QOS_MESSAGE_RESTORE;

    return (types >> message->type & 1) != 0;
}

/* It is of a type that the peer may send. */
static gboolean is_well_formed(const QosCreditMessage *message, const QosPeer *peer)
{
    if (message->type == QOS_MESSAGE_RENEW)
        return TRUE;
    return message->type < QOS_MESSAGE_TYPES &&
           qos_credit_message_is_lenders(message) == peer->is_above;
}

void qos_owner_receive(QosOwner *owner, QosOwnerId from, const QosCreditMessage *message,
                       QosTime now)
{
    QosPeer *peer = g_hash_table_lookup(owner->peers, &from);

    qos_session_expire(owner, now);
    if (peer == NULL && from != owner->config.id && owner->config.lends) {
        peer = qos_peer_get(owner, from);
        qos_peer_keep_record(owner, peer, now);
    }
    if (peer == NULL || !is_well_formed(message, peer))
        return;
    if (message->type == QOS_MESSAGE_HELLO)
        qos_peer_greeted(owner, peer, message, now);
    else if (message->type == QOS_MESSAGE_WELCOME)
        qos_session_welcomed(owner, message, now);
    else if (message->type == QOS_MESSAGE_RESET)
        qos_session_reset(owner, message, now);
    else if (peer->state == QOS_SESSION_OPEN && message->session == peer->session &&
             message->lender == (peer->is_above ? peer->lender : owner->config.incarnation))
        receive_numbered(owner, peer, message, now);
    else if (!peer->is_above && message->session >= peer->session &&
             peer->state != QOS_SESSION_SAVING)
        qos_peer_reset(owner, peer, message->session);
    qos_peer_schedule(owner, peer);
}

/* FALSE: nothing is known of it any more. */
static gboolean tick_peer(QosOwner *owner, QosPeer *peer, QosTime now)
{
    if (peer->is_above) {
        qos_session_expire(owner, now);
    } else if (now >= peer->until && (peer->state == QOS_SESSION_OPEN || peer->sublets != NULL)) {
        qos_peer_evict(owner, peer, now);
    } else if (peer->until > 0 && now >= peer->until) {
        if (peer->state == QOS_SESSION_NONE && !peer->is_awaited) {
            qos_peer_forget(owner, peer);
            return FALSE;
        }
        peer->until = 0; /* until it is saved, or the grace ends */
    }
    if (now >= peer->renew_at && peer->state == QOS_SESSION_OPEN) {
        QosCreditMessage message = {.type = QOS_MESSAGE_RENEW};
        peer->renew_at = qos_time_add(now, MAX(peer->lease / QOS_RENEW_PART, 1));
        qos_peer_send(owner, peer, &message, now);
    }
    if (now >= peer->resend_at) {
        if (peer->state == QOS_SESSION_HELLO)
            qos_session_hello(owner, now);
        else
            resend(owner, peer, now);
    }
    if (now >= peer->acknowledge_at)
        qos_peer_send_bare(owner, peer, QOS_MESSAGE_RENEW, 0);
    return TRUE;
}

static void drop_record(QosOwner *owner, QosPeer *peer)
{
    const QosOwnerId id = peer->id;

    qos_heap_remove(&owner->timers, &peer->timer);
    g_hash_table_remove(owner->peers, &id);
}

void qos_owner_tick(QosOwner *owner, QosTime now)
{
    QosHeapNode *node;

    if (owner->grace_until != 0 && now >= owner->grace_until)
        qos_grace_end(owner, now);
    if (now >= owner->lazy_at)
        qos_owner_flush_lazy(owner, now);
    while ((node = qos_heap_peek(&owner->timers)) != NULL && node->key <= now) {
        QosPeer *peer = (QosPeer *)((char *)node - G_STRUCT_OFFSET(QosPeer, timer));
        if (tick_peer(owner, peer, now))
            qos_heap_update(&owner->timers, node, MAX(due_of(peer), now + 1));
        else
            drop_record(owner, peer);
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
