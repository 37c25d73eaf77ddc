/*
 * The lender's side of a session: which borrowers are welcome, how long the lease runs, what
 * happens to the credits of a borrower that has gone, and the grace after a restart.
 */
#include "core/credit_private.h"
#include "core/proof.h"

/* The lease is not renewed if a callback is older than the lease divided by this. */
#define ANSWER_PART 8
/* Credits that are taken at a time from a borrower that is evicted. */
#define EVICTED 1024

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

/* Moves our token beyond all tokens that the peer may have given to others without our knowledge.
 * The peer counts on from the last of our tokens that it heard of, perhaps in the welcome to a
 * grace in which it claimed nothing. */
static void pass_tokens(QosOwner *owner, const QosPeer *peer)
{
    if (peer->hello_flags & QOS_HELLO_LENDS)
        owner->token += owner->above == NULL ? QOS_TOKENS_AHEAD_ROOT : QOS_TOKENS_AHEAD;
}

/* Ends the peer's session, removes its requests, and frees up to `count` of its credits. */
static void take(QosOwner *owner, QosPeer *peer, guint count, QosTime now)
{
    qos_peer_close(peer);
    qos_peer_remove_requests(owner, peer, now);
    if (peer->sublets != NULL || peer->is_reclaiming)
        pass_tokens(owner, peer);
    for (guint i = 0; i < count && peer->sublets != NULL; i++) {
        QosBook *book = peer->sublets->book;
        qos_sublet_remove(owner, peer->sublets);
        book->token = ++owner->token;
        qos_book_pump(owner, book, now);
    }
}

static void take_all(QosOwner *owner, QosPeer *peer, QosTime now)
{
    take(owner, peer, G_MAXUINT, now);
}

/* The peer has restarted: removes its requests. Its credits stay its own, at least as long as
 * before, because its own borrowers may use them. */
static void keep_all(QosOwner *owner, QosPeer *peer, QosTime now)
{
    QosTime until = peer->until;

    qos_peer_close(peer);
    qos_peer_remove_requests(owner, peer, now);
    pass_tokens(owner, peer);
    peer->until = until;
}

static void send_restored(QosOwner *owner, QosPeer *peer, GArray *items, guint flags, QosTime now)
{
    QosCreditMessage message = {.type = QOS_MESSAGE_RESTORE, .flags = flags, .more = items};
    qos_peer_send(owner, peer, &message, now);
}

/* Tells it what it had, and calls back again what was called back before it restarted. */
static void restore_all(QosOwner *owner, QosPeer *peer, QosTime now)
{
    GArray *items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
    g_autoptr(GPtrArray) wanted = g_ptr_array_new();

    for (QosSublet *sublet = peer->sublets; sublet != NULL; sublet = sublet->peer_next) {
        QosCreditItem item = {
            .resource = sublet->book->resource,
            .credit = qos_credit_copy(qos_book_type(sublet->book), &sublet->credit),
            .token = sublet->token,
            .proof =
                qos_proof(owner->config.key, peer->id, sublet->token, &sublet->book->resource)};
        if (!qos_batch_has_room(items, &item.resource, &item.credit)) {
            send_restored(owner, peer, items, 0, now);
            items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
        }
        g_array_append_val(items, item);
        if (sublet->callback != NULL)
            g_ptr_array_add(wanted, sublet->book);
        qos_callback_clear(sublet);
    }
    send_restored(owner, peer, items, QOS_RESTORE_LAST, now);
    for (guint i = 0; i < wanted->len; i++)
        qos_book_pump(owner, wanted->pdata[i], now);
}

void qos_peer_forget(QosOwner *owner, QosPeer *peer)
{
    if (!peer->is_known || peer->is_awaited)
        return;
    peer->is_known = FALSE;
    qos_output_add(owner, QOS_OUTPUT_FORGET)->output.peer = peer->id;
}

/* Unclaimed credits may have been used under any token so far, in any book. */
static void renew_tokens(QosOwner *owner)
{
    owner->token++;
    for (QosBook *book = NULL; (book = qos_table_next(&owner->table, book)) != NULL;)
        book->token = owner->token;
}

void qos_grace_end(QosOwner *owner, QosTime now)
{
    GHashTableIter iter;
    QosPeer *peer;

    owner->grace_until = 0;
    owner->awaited = 0;
    g_hash_table_iter_init(&iter, owner->peers);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&peer)) {
        gboolean was_awaited = peer->is_awaited;
        if (peer->is_reclaiming)
            pass_tokens(owner, peer);
        peer->is_reclaiming = FALSE;
        peer->is_awaited = FALSE;
        if (was_awaited && peer->state == QOS_SESSION_NONE) {
            qos_peer_forget(owner, peer);
            qos_peer_keep_record(owner, peer, now);
        }
    }
    renew_tokens(owner);
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

/* A HELLO that does not reclaim may be an old message of a borrower that still uses what it had.
 * Only if the borrower goes on with that session has it lost its credits. Credits that it has lent
 * to others may still be in use. */
void qos_grace_heard(QosOwner *owner, QosPeer *peer, QosTime now)
{
    if (peer->is_awaited && !peer->is_reclaiming && !(peer->hello_flags & QOS_HELLO_LENDS))
        qos_grace_arrived(owner, peer, now);
}

/* If the borrower has not claimed everything, the grace goes on to its end, because the borrower
 * may have an older lease. If it had many credits, each tick takes some of them, so that others
 * need not wait for long; the next tick is due at once. */
void qos_peer_evict(QosOwner *owner, QosPeer *peer, QosTime now)
{
    take(owner, peer, peer->hello_flags & QOS_HELLO_LENDS ? G_MAXUINT : EVICTED, now);
    if (peer->sublets != NULL)
        return;
    qos_peer_forget(owner, peer);
    qos_peer_keep_record(owner, peer, now);
}

static void send_welcome(QosOwner *owner, QosPeer *peer)
{
    qos_peer_send_bare(owner, peer, QOS_MESSAGE_WELCOME,
                       (peer->is_reclaiming ? QOS_WELCOME_RECLAIM : 0) |
                           (peer->is_restored ? QOS_WELCOME_RESTORE : 0));
}

static void welcome(QosOwner *owner, QosPeer *peer, QosTime now)
{
    qos_peer_open(owner, peer);
    peer->is_reclaiming =
        qos_owner_in_grace(owner) && peer->is_awaited && peer->hello_flags & QOS_HELLO_RECLAIMS;
    peer->lease = lease_for(owner, now);
    peer->until = MAX(peer->until, now + peer->lease + QOS_LEASE_DRIFT(peer->lease));
    send_welcome(owner, peer);
    if (peer->is_restored)
        restore_all(owner, peer, now);
    qos_peer_schedule(owner, peer);
}

void qos_peer_greeted(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message, QosTime now)
{
    if (message->session < peer->session || !owner->config.lends ||
        !qos_owner_is_alive(owner, now) || owner->is_restoring ||
        lease_for(owner, now) < owner->config.lease / ANSWER_PART)
        return;
    /* If it ended before anything came, its welcome may have been lost: then it begins again. */
    if (message->session == peer->session &&
        (peer->state != QOS_SESSION_NONE || peer->received > 0)) {
        if (peer->state == QOS_SESSION_OPEN && peer->received == 0)
            send_welcome(owner, peer);
        return;
    }
    gboolean is_restarted = message->session >> 32 != peer->session >> 32;
    peer->is_restored = message->flags & QOS_HELLO_RESTORES && peer->sublets != NULL;
    if (peer->is_restored)
        keep_all(owner, peer, now);
    else if (is_restarted && peer->hello_flags & QOS_HELLO_LENDS && peer->sublets != NULL &&
             now < peer->until)
        return; /* its own borrowers may use their credits until then; it will say hello again */
    else
        take_all(owner, peer, now);
    peer->session = message->session;
    peer->hello_flags = message->flags;
    if (peer->is_known) {
        welcome(owner, peer, now);
        return;
    }
    peer->state = QOS_SESSION_SAVING;
    qos_output_add(owner, QOS_OUTPUT_SAVE)->output.peer = peer->id;
}

void qos_owner_saved(QosOwner *owner, QosOwnerId client, QosTime now)
{
    QosPeer *peer = g_hash_table_lookup(owner->peers, &client);

    if (peer == NULL || peer->state != QOS_SESSION_SAVING) {
        if (peer == NULL || !peer->is_known) /* it has gone meanwhile */
            qos_output_add(owner, QOS_OUTPUT_FORGET)->output.peer = client;
        return;
    }
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
