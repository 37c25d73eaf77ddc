/*
 * What others have of a book, and what is left.
 *
 * Most resources have few borrowers, and their list is walked. If a resource has many borrowers, an
 * index finds a borrower by its peer, and keeps the join of all that they have. So one more
 * borrower costs the same with ten borrowers or with ten thousand.
 *
 * What is given back is taken out of that join where this is possible: for amounts and identifiers.
 * Otherwise it stays in the join, which is then stale: what the join says is free is free, but
 * there may be more. Only if that is not enough is the join computed anew, borrower by borrower.
 *
 * Grants of groups are wider than what was asked for. A borrower that asks for one inode of a group
 * of neighbours is likely to ask for the others. So it gets, with the same kind of use, all of the
 * group that no other borrower has or waits for, and a mount that is alone asks once for a group. A
 * second borrower calls back only what it wants. So the two split the group, if need be down to
 * single inodes.
 *
 * If there was a conflict over a group lately, the grant is widened only within the free piece
 * around what was asked for. A borrower that is called back may give more than was wanted
 * (fs/lockengine/recall.h), and so shows where it has no interest. Other free pieces are likely to
 * be wanted again by other borrowers in a moment.
 */
#include "core/credit_private.h"

#define INDEX_FROM 16 /* borrowers */
#define INDEX_TO   8
#define CALM       (3 * QOS_SECOND) /* without a conflict, before it is widened again */

struct QosSubletIndex {
    GHashTable *by_peer; /* QosPeer -> QosSublet */
    QosCredit joined;    /* at least what they have */
    gboolean is_stale;   /* more than that */
};

static QosSubletIndex *index_of(const QosBook *book)
{
    return book->busy != NULL ? book->busy->index : NULL;
}

/* --- the index --- */

static void make_index(QosBook *book)
{
    QosSubletIndex *index = g_new0(QosSubletIndex, 1);

    index->by_peer = g_hash_table_new(NULL, NULL);
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        g_hash_table_insert(index->by_peer, sublet->peer, sublet);
        qos_book_type(book)->join(&index->joined, &sublet->credit);
    }
    qos_book_busy(book)->index = index;
}

static void drop_index(QosBook *book)
{
    QosSubletIndex *index = g_steal_pointer(&book->busy->index);

    g_hash_table_unref(index->by_peer);
    qos_credit_clear(qos_book_type(book), &index->joined);
    g_free(index);
}

static void index_lost(QosBook *book, const QosCredit *lost)
{
    QosSubletIndex *index = index_of(book);

    if (index == NULL)
        return;
    if (qos_book_type(book)->divisible)
        qos_book_type(book)->yield(&index->joined, lost);
    else
        index->is_stale = TRUE;
}

static void refresh(QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosSubletIndex *index = index_of(book);

    if (index == NULL || !index->is_stale)
        return;
    qos_credit_clear(type, &index->joined);
    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next)
        type->join(&index->joined, &sublet->credit);
    index->is_stale = FALSE;
}

/* --- borrowers --- */

QosSublet *qos_sublet_find(const QosBook *book, const QosPeer *peer)
{
    const QosSubletIndex *index = index_of(book);
    QosSublet *sublet = book->sublets;

    if (index != NULL)
        return g_hash_table_lookup(index->by_peer, peer);
    while (sublet != NULL && sublet->peer != peer)
        sublet = sublet->next;
    return sublet;
}

static void link_in(QosSublet *sublet)
{
    QosBook *book = sublet->book;
    QosPeer *peer = sublet->peer;

    sublet->next = book->sublets;
    sublet->at = &book->sublets;
    if (sublet->next != NULL)
        sublet->next->at = &sublet->next;
    book->sublets = sublet;
    sublet->peer_next = peer->sublets;
    sublet->peer_at = &peer->sublets;
    if (sublet->peer_next != NULL)
        sublet->peer_next->peer_at = &sublet->peer_next;
    peer->sublets = sublet;
}

static void link_out(QosSublet *sublet)
{
    *sublet->at = sublet->next;
    if (sublet->next != NULL)
        sublet->next->at = sublet->at;
    *sublet->peer_at = sublet->peer_next;
    if (sublet->peer_next != NULL)
        sublet->peer_next->peer_at = sublet->peer_at;
}

static guint count_up_to(const QosBook *book, guint most)
{
    guint count = 0;

    for (const QosSublet *sublet = book->sublets; sublet != NULL && count < most;
         sublet = sublet->next)
        count++;
    return count;
}

QosSublet *qos_sublet_add(QosOwner *owner, QosBook *book, QosPeer *peer)
{
    QosSublet *sublet = g_new0(QosSublet, 1);

    sublet->book = book;
    sublet->peer = peer;
    link_in(sublet);
    if (index_of(book) != NULL)
        g_hash_table_insert(index_of(book)->by_peer, peer, sublet);
    else if (count_up_to(book, INDEX_FROM) == INDEX_FROM)
        make_index(book);
    owner->lent++;
    if (owner->config.counted != NULL)
        owner->config.counted(peer->id, &book->resource, TRUE, owner->config.arg);
    return sublet;
}

static void tell_size(QosOwner *owner, const QosSublet *sublet, gsize before)
{
    gint64 change =
        (gint64)qos_credit_size(qos_book_type(sublet->book), &sublet->credit) - (gint64)before;

    if (change != 0 && owner->config.resized != NULL)
        owner->config.resized(sublet->peer->id, &sublet->book->resource, change, owner->config.arg);
}

void qos_sublet_grow(QosOwner *owner, QosSublet *sublet, const QosCredit *more)
{
    const QosResourceType *type = qos_book_type(sublet->book);
    gsize before = qos_credit_size(type, &sublet->credit);

    type->join(&sublet->credit, more);
    if (index_of(sublet->book) != NULL)
        type->join(&index_of(sublet->book)->joined, more);
    tell_size(owner, sublet, before);
}

void qos_sublet_keep(QosOwner *owner, QosSublet *sublet, const QosCredit *keeps)
{
    const QosResourceType *type = qos_book_type(sublet->book);
    gsize before = qos_credit_size(type, &sublet->credit);
    QosCredit lost = sublet->credit;

    sublet->credit = qos_credit_copy(type, keeps);
    type->diff(&lost, keeps);
    index_lost(sublet->book, &lost);
    qos_credit_clear(type, &lost);
    tell_size(owner, sublet, before);
}

void qos_sublet_remove(QosOwner *owner, QosSublet *sublet)
{
    QosBook *book = sublet->book;

    qos_callback_clear(sublet);
    qos_sublet_keep(owner, sublet, &(const QosCredit){0});
    link_out(sublet);
    if (index_of(book) != NULL) {
        g_hash_table_remove(index_of(book)->by_peer, sublet->peer);
        if (g_hash_table_size(index_of(book)->by_peer) < INDEX_TO)
            drop_index(book);
    }
    owner->lent--;
    if (owner->config.counted != NULL)
        owner->config.counted(sublet->peer->id, &book->resource, FALSE, owner->config.arg);
    g_free(sublet);
}

/* --- what is left --- */

static QosCredit in_use(const QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit used = {0};

    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next)
        type->join(&used, &sublet->credit);
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next)
        type->join(&used, &hold->credit);
    return used;
}

gboolean qos_book_yield(QosBook *book, const QosCredit *theirs)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit left = qos_credit_copy(type, &book->borrowed);

    type->yield(&left, theirs);
    if (!qos_credit_is_sendable(type, &left)) {
        QosCredit used = in_use(book);
        type->intersect(&left, &used);
        qos_credit_clear(type, &used);
    }
    if (!qos_credit_is_sendable(type, &left)) {
        qos_credit_clear(type, &left);
        return FALSE;
    }
    qos_credit_clear(type, &book->borrowed);
    book->borrowed = left;
    return TRUE;
}

static void take_holds(const QosBook *book, const QosPeer *peer, QosCredit *room)
{
    const QosResourceType *type = qos_book_type(book);

    if (!type->divisible && peer == NULL)
        return; /* local users share locks */
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next)
        type->yield(room, &hold->credit);
}

static QosCredit room_by_walk(const QosBook *book, const QosPeer *peer)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit room = qos_credit_copy(type, &book->borrowed);

    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (type->divisible || sublet->peer != peer)
            type->yield(&room, &sublet->credit);
    }
    take_holds(book, peer, &room);
    return room;
}

/* There may be more, unless the index is exact for the peer. */
static QosCredit room_by_index(const QosBook *book, const QosPeer *peer)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit room = qos_credit_copy(type, &book->borrowed);

    type->yield(&room, &index_of(book)->joined);
    const QosSublet *sublet = type->divisible ? NULL : qos_sublet_find(book, peer);
    if (sublet != NULL) /* no other borrower has a conflicting credit */
        type->join(&room, &sublet->credit);
    take_holds(book, peer, &room);
    return room;
}

static gboolean is_exact(const QosBook *book, const QosPeer *peer)
{
    const QosSubletIndex *index = index_of(book);

    return index != NULL && (qos_book_type(book)->divisible ||
                             (!index->is_stale && qos_sublet_find(book, peer) == NULL));
}

QosCredit qos_book_room(const QosBook *book, const QosPeer *peer)
{
    return is_exact(book, peer) ? room_by_index(book, peer) : room_by_walk(book, peer);
}

gboolean qos_book_choose(QosBook *book, const QosPeer *peer, const QosCredit *want,
                         QosCredit *ret_room, QosCredit *ret_chosen)
{
    const QosResourceType *type = qos_book_type(book);

    if (index_of(book) != NULL) {
        const gboolean was_exact = is_exact(book, peer);
        *ret_room = room_by_index(book, peer);
        if (type->choose(want, ret_room, ret_chosen))
            return TRUE;
        if (was_exact)
            return FALSE;
        qos_credit_clear(type, ret_room);
        refresh(book);
    }
    *ret_room = qos_book_room(book, peer);
    return type->choose(want, ret_room, ret_chosen);
}

#ifdef NDEBUG
void qos_book_check(const QosBook *book G_GNUC_UNUSED)
{
}
#else
/* Checks that each borrower and hold has no more than the ones before it leave, so that no two
 * conflict. */
void qos_book_check(const QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit left = qos_credit_copy(type, &book->borrowed);

    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        g_assert(type->matches(&sublet->credit, &left));
        g_assert(!index_of(book) || type->matches(&sublet->credit, &index_of(book)->joined));
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

/* --- grants that are wider than what was asked for --- */

void qos_book_note_conflict(QosBook *book, QosTime now)
{
    if (qos_book_type(book)->widened)
        qos_book_busy(book)->contended = now;
}

static gboolean is_calm(QosBook *book, QosTime now)
{
    QosBusy *busy = book->busy;

    if (busy == NULL || busy->contended == 0)
        return TRUE;
    if (now - busy->contended < CALM)
        return FALSE;
    busy->contended = 0;
    return TRUE;
}

static gboolean is_exclusive(const QosCredit *want)
{
    for (guint i = 0; i < want->count; i++) {
        if (!want->spans[i].writes)
            return FALSE;
    }
    return TRUE;
}

/* Keeps the pieces of `wide` that `chosen` is in, or next to: places are below 1,024. */
static void keep_around(QosCredit *wide, const QosCredit *chosen)
{
    guint kept = 0;

    for (guint i = 0; i < wide->count; i++) {
        const QosSpan *piece = &wide->spans[i];
        gboolean is_near = FALSE;
        for (guint k = 0; k < chosen->count && !is_near; k++) {
            const QosSpan *span = &chosen->spans[k];
            is_near = piece->first <= span->last + 1 && span->first <= piece->last + 1;
        }
        if (is_near)
            wide->spans[kept++] = *piece;
    }
    wide->count = kept;
}

/* Takes out of `wide` what other borrowers wait for. Stops when only what the borrower has anyhow
 * is left. */
static void leave_to_others(const QosCreditRequest *request, QosCredit *wide)
{
    const QosResourceType *type = qos_book_type(request->book);
    const QosSublet *sublet = qos_sublet_find(request->book, request->peer);
    const QosCredit had = sublet != NULL ? sublet->credit : (QosCredit){0};
    const GList *link = request->book->busy != NULL ? request->book->busy->requests.head : NULL;

    if (type->matches(wide, &had))
        return;
    for (; link != NULL; link = link->next) {
        const QosCreditRequest *other = link->data;
        if (other->peer == request->peer || !type->conflicts(wide, &other->want))
            continue;
        type->yield(wide, &other->want);
        if (type->matches(wide, &had))
            return;
    }
}

void qos_request_widen(const QosCreditRequest *request, const QosCredit *room, QosCredit *chosen,
                       QosTime now)
{
    const QosResourceType *type = qos_book_type(request->book);

    if (!type->widened)
        return;
    QosCredit wide = qos_credit_span(0, G_MAXUINT64, is_exclusive(chosen));
    type->intersect(&wide, room);
    leave_to_others(request, &wide);
    if (!is_calm(request->book, now))
        keep_around(&wide, chosen);
    type->join(chosen, &wide);
    qos_credit_clear(type, &wide);
}
