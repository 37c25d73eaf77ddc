/*
 * A lease ends every wait. So in a trial it would hide a wait for a credit that no holder has been
 * asked to give. This check finds such a wait at once, whatever faults there are.
 *
 * In an owner's own books, each waiting request and each callback must wait for a holder that has
 * been called back for exactly that. And if two owners have received all messages that they have
 * sent each other, each must know the callbacks and requests that the other counts on.
 */
#include "sim/credit_waiting.h"

#include "core/credit_private.h"
#include "sim/trial_credit.h"

/* Whether some of the called part of `has` is not in `known`. */
static gboolean is_forgotten(const QosResourceType *type, const QosCredit *called,
                             const QosCredit *known, const QosCredit *has)
{
    QosCredit more = qos_credit_copy(type, called);

    type->diff(&more, known);
    const gboolean is_more = type->conflicts(&more, has);
    qos_credit_clear(type, &more);
    return is_more;
}

static const QosNode *node_of(const QosNode *node, QosOwnerId id)
{
    return node->cluster->nodes->pdata[id - 1];
}

static const char *name_of(const QosNode *node, const QosPeer *peer)
{
    return peer ? node_of(node, peer->id)->name : "a user";
}

static void fail(const QosNode *node, const char *who, const QosBook *book, const QosCredit *wanted,
                 const char *why)
{
    const QosResourceType *type = qos_book_type(book);
    g_autofree char *text = qos_credit_text(type, wanted);

    qos_cluster_fail(node->cluster, "%s waits at %s for %s of %s, and %s", who, node->name, text,
                     type->name, why);
}

/* The node's owner if it can grant and ask now; else NULL, because everything waits for a lender or
 * a grace. */
static const QosOwner *working(const QosNode *node)
{
    const QosCreditWorld *world = node->cluster->arg;
    const QosOwner *owner = world->observer.owner(node);

    return owner && qos_owner_is_alive(owner, qos_node_now(node)) && !qos_owner_in_grace(owner) &&
                   !owner->is_restoring &&
                   (!owner->above || owner->above->state == QOS_SESSION_OPEN)
               ? owner
               : NULL;
}

/* Whether lender and borrower are in one session, and none of their messages is on its way. */
static gboolean have_heard_all(const QosPeer *below, const QosOwner *borrower)
{
    const QosPeer *above = borrower->above;

    return below && below->state == QOS_SESSION_OPEN && above->state == QOS_SESSION_OPEN &&
           below->session == above->session && below->numbered == above->received &&
           above->numbered == below->received && !borrower->lazy;
}

/* Whether the borrower knows that some of the wanted part of its credit is called back, or a
 * message on its way may change that. */
static gboolean is_called(const QosNode *node, const QosSublet *sublet, const QosCredit *wanted)
{
    const QosResourceType *type = qos_book_type(sublet->book);
    const QosOwner *owner = working(node_of(node, sublet->peer->id));

    if (!owner || !have_heard_all(sublet->peer, owner))
        return TRUE;
    const QosBook *book = qos_table_find(&owner->table, &sublet->book->resource);
    if (!book || !book->busy || book->busy->callback == 0)
        return FALSE;
    QosCredit keeps = qos_credit_copy(type, &sublet->credit);
    QosCredit gives = qos_credit_copy(type, &sublet->credit);
    type->yield(&keeps, &book->busy->wanted);
    type->diff(&gives, &keeps);
    const gboolean gives_some = type->conflicts(&gives, wanted);
    qos_credit_clear(type, &keeps);
    qos_credit_clear(type, &gives);
    return gives_some;
}

/* --- in an owner's own books --- */

/* Whether a borrower below with a conflicting credit is called back for it, so that its answer lets
 * the request be tried again, or that credit is about to change. */
static gboolean waits_below(const QosNode *node, const QosBook *book, const QosPeer *peer,
                            const QosCredit *wanted)
{
    const QosResourceType *type = qos_book_type(book);
    gboolean waits = FALSE;

    for (const QosSublet *sublet = book->sublets; sublet && !waits; sublet = sublet->next)
        waits = sublet->peer != peer && type->conflicts(&sublet->credit, wanted) &&
                is_called(node, sublet, wanted);
    return waits;
}

static gboolean is_held(const QosBook *book, const QosCredit *wanted)
{
    const QosResourceType *type = qos_book_type(book);
    gboolean is_held = FALSE;

    for (const QosHold *hold = book->holds; hold; hold = hold->next)
        is_held |= type->divisible || type->conflicts(&hold->credit, wanted);
    return is_held;
}

/* Of what is divisible, parts of some are called back until there is enough. */
static gboolean waits_for_part(const QosBook *book)
{
    gboolean waits = FALSE;

    for (const QosSublet *sublet = book->sublets; sublet; sublet = sublet->next)
        waits |= sublet->callback != NULL;
    return waits;
}

/* Whether the lender is asked for it, perhaps by another request for as much or more. */
static gboolean is_asked_for(const QosCreditRequest *request)
{
    const QosResourceType *type = qos_book_type(request->book);

    for (const GList *link = request->book->busy->requests.head; link; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->asked != 0 && type->matches(&request->want, &other->want))
            return TRUE;
    }
    return FALSE;
}

/* Whether the request waits behind a callback from above, or behind a reservation. */
static gboolean is_behind(const QosCreditRequest *request)
{
    const QosBusy *busy = request->book->busy;
    const QosResourceType *type = qos_book_type(request->book);

    if (request->flags & QOS_CREDIT_UPGRADE)
        return FALSE;
    if (busy->callback != 0 && (!busy->is_busy || busy->flags & QOS_CREDIT_RESERVE) &&
        (type->divisible || type->conflicts(&request->want, &busy->wanted)))
        return TRUE;
    for (const GList *link = busy->requests.head; link->data != request; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->flags & QOS_CREDIT_RESERVE && other->peer != request->peer &&
            (type->divisible || type->conflicts(&request->want, &other->want)))
            return TRUE;
    }
    return FALSE;
}

static void check_request(const QosNode *node, const QosOwner *owner,
                          const QosCreditRequest *request)
{
    const QosBook *book = request->book;
    const QosResourceType *type = qos_book_type(book);
    const gboolean is_short = type->divisible || !type->matches(&request->want, &book->borrowed);
    gboolean waits = is_behind(request);

    if (waits)
        return;
    if (is_short && owner->above)
        waits = is_asked_for(request);
    if (type->divisible)
        waits |= waits_for_part(book) || request->flags & QOS_CREDIT_WAIT;
    else
        waits |= waits_below(node, book, request->peer, &request->want) ||
                 (request->peer && is_held(book, &request->want));
    if (!waits)
        fail(node, name_of(node, request->peer), book, &request->want,
             "nobody is called back for it");
}

/* The callback from above is not answered yet. */
static void check_callback(const QosNode *node, const QosOwner *owner, const QosBook *book)
{
    const QosCreditNode *state = node->state;
    const QosResourceType *type = qos_book_type(book);
    const QosBusy *busy = book->busy;
    gboolean waits = busy->is_busy || busy->is_in_grace;

    if (type->divisible) {
        waits |= waits_for_part(book);
    } else {
        waits |= waits_below(node, book, NULL, &busy->wanted);
        waits |= is_held(book, &busy->wanted);
        waits |= owner->config.caches && state->drop[book->resource.type] != QOS_NEVER;
    }
    if (!waits)
        fail(node, node->parent->name, book, &busy->wanted, "nobody is called back for it");
}

static void check_books(const QosNode *node, const QosOwner *owner)
{
    for (const QosBook *book = NULL; (book = qos_table_next(&owner->table, book)) != NULL;) {
        if (!book->busy)
            continue;
        if (book->busy->callback != 0)
            check_callback(node, owner, book);
        for (const GList *link = book->busy->requests.head; link; link = link->next)
            check_request(node, owner, link->data);
    }
}

/* --- between two owners --- */

static void check_called(const QosNode *lender, const QosSublet *sublet, const QosNode *node,
                         const QosOwner *owner)
{
    const QosResourceType *type = qos_book_type(sublet->book);
    const QosBook *book = qos_table_find(&owner->table, &sublet->book->resource);
    const QosCallback *callback = sublet->callback;

    if (book && book->busy && book->busy->callback == callback->id &&
        (type->divisible ||
         !is_forgotten(type, &callback->wanted, &book->busy->wanted, &book->borrowed)))
        return;
    g_autofree char *why = g_strdup_printf("%s has forgotten that it was called back", node->name);
    fail(lender, "somebody", sublet->book, &callback->wanted, why);
}

static void check_asked(const QosNode *node, const QosCreditRequest *request, const QosPeer *below)
{
    for (const GList *link = below->requests.head; link; link = link->next) {
        const QosCreditRequest *asked = link->data;
        if (asked->id == request->asked &&
            qos_resource_equal(&asked->book->resource, &request->book->resource))
            return;
    }
    fail(node, name_of(node, request->peer), request->book, &request->want,
         "the lender does not know of it");
}

static void check_pair(const QosNode *lender, const QosOwner *above, const QosNode *node,
                       const QosOwner *owner)
{
    const QosOwnerId id = owner->config.id;
    const QosPeer *below = g_hash_table_lookup(above->peers, &id);

    if (!have_heard_all(below, owner))
        return;
    for (const QosSublet *sublet = below->sublets; sublet; sublet = sublet->peer_next)
        if (sublet->callback)
            check_called(lender, sublet, node, owner);
    for (const QosBook *book = NULL; (book = qos_table_next(&owner->table, book)) != NULL;)
        for (const GList *link = book->busy ? book->busy->requests.head : NULL; link;
             link = link->next)
            if (((const QosCreditRequest *)link->data)->asked != 0)
                check_asked(node, link->data, below);
}

void qos_waiting_check(const QosNode *node)
{
    const QosOwner *owner = working(node);

    if (!owner)
        return;
    check_books(node, owner);
    for (guint i = 0; i < node->cluster->nodes->len; i++) {
        const QosNode *other = node->cluster->nodes->pdata[i];
        const QosOwner *others =
            other->parent == node || node->parent == other ? working(other) : NULL;
        if (!others)
            continue;
        if (other->parent == node)
            check_pair(node, owner, other, others);
        else
            check_pair(other, others, node, owner);
    }
}
