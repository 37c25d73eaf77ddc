/*
 * A session as its lender sees it: who is welcome, how long the lease runs, what becomes of what
 * one had who has gone, and the grace.
 */
#include "core/credit_private.h"

/* Of the lease: the age of a callback from which on the lease is not renewed. */
#define ANSWER_PART 8

void qos_peer_close(QosPeer *peer)
{
    peer->state = QOS_SESSION_NONE;
    peer->until = 0;
    peer->resend_at = peer->acknowledge_at = QOS_NEVER;
    qos_peer_clear_queue(peer);
}

static QosTime lease_for(const QosOwner *owner, QosTime now)
{
    if (owner->above == NULL)
        return owner->config.lease;
    return CLAMP((owner->above->until - now) / 2, 0, owner->config.lease);
}

void qos_peer_renew_lease(QosOwner *owner, QosPeer *peer, guint64 sequence, QosTime now)
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

void qos_peer_remove_requests(QosOwner *owner, QosPeer *peer, QosTime now)
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
    qos_peer_close(peer);
    qos_peer_remove_requests(owner, peer, now);
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

void qos_grace_end(QosOwner *owner, QosTime now)
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
    qos_owner_pump_all(owner, now);
}

void qos_grace_arrived(QosOwner *owner, QosPeer *peer, QosTime now)
{
    peer->is_reclaiming = FALSE;
    if (!peer->is_awaited)
        return;
    peer->is_awaited = FALSE;
    if (--owner->awaited == 0 && qos_owner_in_grace(owner))
        qos_grace_end(owner, now);
}

void qos_peer_evict(QosOwner *owner, QosPeer *peer, QosTime now)
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
    qos_peer_open(owner, peer);
    peer->is_reclaiming =
        qos_owner_in_grace(owner) && peer->is_awaited && peer->hello_flags & QOS_HELLO_RECLAIMS;
    peer->lease = lease_for(owner, now);
    peer->until = now + peer->lease + QOS_LEASE_DRIFT(peer->lease);
    qos_peer_send_bare(owner, peer, QOS_MESSAGE_WELCOME,
                       peer->is_reclaiming ? QOS_WELCOME_RECLAIM : 0);
    qos_peer_schedule(owner, peer);
    /* What it has lent may still be in use: then the grace goes on. */
    if (!peer->is_reclaiming && !(peer->hello_flags & QOS_HELLO_LENDS))
        qos_grace_arrived(owner, peer, now);
}

void qos_peer_greeted(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message, QosTime now)
{
    if (message->session < peer->session || !owner->config.lends ||
        !qos_owner_is_alive(owner, now) ||
        lease_for(owner, now) < owner->config.lease / ANSWER_PART)
        return;
    /* If it ended before anything came, its welcome may have been lost: then it begins again. */
    if (message->session == peer->session &&
        (peer->state != QOS_SESSION_NONE || peer->received > 0)) {
        if (peer->state == QOS_SESSION_OPEN && peer->received == 0)
            qos_peer_send_bare(owner, peer, QOS_MESSAGE_WELCOME,
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

void qos_peer_reset(QosOwner *owner, QosPeer *peer, guint64 session)
{
    guint64 known = peer->session;

    peer->session = session;
    qos_peer_send_bare(owner, peer, QOS_MESSAGE_RESET, 0);
    peer->session = known;
}
