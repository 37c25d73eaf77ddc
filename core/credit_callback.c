/*
 * Calling back what others have of a resource: this owner asks the borrowers below and its local
 * users; the lender above asks this owner. A holder gives exactly what conflicts, as soon as it is
 * not in use. A holder that will use it for long says so at once (busy), and gives it later.
 */
#include "core/credit_private.h"

QosBusy *qos_book_busy(QosBook *book)
{
    if (book->busy == NULL)
        book->busy = g_new0(QosBusy, 1);
    return book->busy;
}

/* Callbacks */

void qos_callback_clear(QosSublet *sublet)
{
    QosCallback *callback = sublet->callback;

    if (callback == NULL)
        return;
    if (qos_callback_is_due(callback))
        g_queue_unlink(&sublet->peer->callbacks, &callback->link);
    qos_credit_clear(qos_book_type(sublet->book), &callback->wanted);
    g_free(callback);
    sublet->callback = NULL;
}

void qos_sublet_call_back(QosOwner *owner, QosSublet *sublet, const QosCredit *wanted, guint flags,
                          guint64 since, QosTime now)
{
    const QosResourceType *type = qos_book_type(sublet->book);
    QosCallback *callback = sublet->callback;

    if (callback != NULL && callback->id > since && type->matches(wanted, &callback->wanted))
        return;
    if (callback == NULL) {
        callback = sublet->callback = g_new0(QosCallback, 1);
        callback->link.data = callback;
        callback->is_busy = TRUE; /* not in the queue */
    }
    type->join(&callback->wanted, wanted);
    callback->id = ++owner->last_request;
    if (!qos_callback_is_due(callback)) {
        callback->is_busy = callback->is_in_grace = FALSE;
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

void qos_book_tell_user(QosOwner *owner, QosBook *book, const QosCredit *wanted)
{
    QosOutputEntry *entry;

    if (qos_book_busy(book)->is_user_told)
        return;
    book->busy->is_user_told = TRUE;
    entry = qos_output_add(owner, QOS_OUTPUT_CONFLICT);
    entry->output.resource = book->resource;
    entry->output.credit = qos_credit_copy(qos_book_type(book), wanted);
}

QosSublet *qos_book_largest_sublet(const QosBook *book, gboolean *ret_waits)
{
    const QosResourceType *type = qos_book_type(book);
    QosSublet *largest = NULL;
    guint64 most = 0;

    *ret_waits = FALSE;
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->callback != NULL) {
            *ret_waits |= !sublet->callback->is_busy;
        } else if (largest == NULL || qos_credit_count(type, &sublet->credit) > most) {
            largest = sublet;
            most = qos_credit_count(type, &sublet->credit);
        }
    }
    return largest;
}

/* To above: this is what we keep. `flags`: QOS_CANCEL_BUSY, QOS_CANCEL_GRACE: for now. */
static void answer(QosOwner *owner, QosBook *book, guint flags, QosTime now)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;
    QosCreditMessage message = {.type = QOS_MESSAGE_CANCEL,
                                .flags = flags,
                                .request = busy->callback,
                                .resource = book->resource,
                                .credit = qos_credit_copy(type, &book->borrowed),
                                .granted = book->granted};

    qos_owner_flush_lazy(owner, now);
    qos_peer_send(owner, owner->above, &message, now);
    busy->is_busy = flags == QOS_CANCEL_BUSY;
    busy->is_in_grace = flags == QOS_CANCEL_GRACE;
    if (flags == 0) {
        busy->callback = 0;
        qos_credit_clear(type, &busy->wanted);
        busy->is_user_told = FALSE;
        busy->has_user_agreed = FALSE;
    }
}

/* The holders are not known before a grace has ended, here or below. Until then the callback is
 * answered by QOS_CANCEL_GRACE, so that no borrower is blamed for the delay. */
static void put_off(QosOwner *owner, QosBook *book, QosTime now)
{
    if (!book->busy->is_busy && !book->busy->is_in_grace)
        answer(owner, book, QOS_CANCEL_GRACE, now);
}

static gboolean is_below_in_grace(const QosBook *book)
{
    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (sublet->callback != NULL && sublet->callback->is_in_grace)
            return TRUE;
    }
    return FALSE;
}

/* Gives free parts, up to the amount that is wanted. FALSE: nothing is free, or nothing can be
 * given. */
static gboolean give_free(QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit room = qos_book_room(book, NULL);
    const guint64 wanted = qos_credit_count(type, &book->busy->wanted);
    const guint64 count = MIN(wanted, qos_credit_count(type, &room));
    QosCredit part = qos_credit_of_count(type, count), given = {0};
    gboolean is_given =
        count > 0 && type->choose(&part, &room, &given) && qos_book_yield(book, &given);

    if (is_given) {
        qos_credit_clear(type, &book->busy->wanted);
        book->busy->wanted = qos_credit_of_count(type, wanted - count);
    }
    qos_credit_clear(type, &room);
    qos_credit_clear(type, &part);
    qos_credit_clear(type, &given);
    return is_given;
}

static void serve_shortage(QosOwner *owner, QosBook *book, QosTime now)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;
    const gboolean has_given = give_free(book);
    gboolean waits = FALSE;

    if (qos_credit_is_empty(type, &busy->wanted) || qos_credit_is_empty(type, &book->borrowed)) {
        answer(owner, book, 0, now);
        return;
    }
    QosSublet *sublet = qos_book_largest_sublet(book, &waits);
    if (sublet != NULL)
        qos_sublet_call_back(owner, sublet, &busy->wanted, busy->flags, 0, now);
    else if (!waits && (has_given || !busy->is_busy))
        answer(owner, book, QOS_CANCEL_BUSY, now);
    else if (waits && is_below_in_grace(book))
        put_off(owner, book, now);
}

/* The part of what is wanted that conflicts with no borrower's credit and no local hold. */
static QosCredit unused_part(const QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit part = qos_credit_copy(type, &book->busy->wanted);

    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next)
        type->yield(&part, &sublet->credit);
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next)
        type->yield(&part, &hold->credit);
    return part;
}

/* The unused part of a group is given back at once (qos_credit_cancel). A user that has one inode
 * of the group in use may be waiting for a later one, behind the very requests that want this
 * part. */
static void drop_unused(QosOwner *owner, QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit part = unused_part(book);

    if (type->conflicts(&book->borrowed, &part))
        qos_book_tell_user(owner, book, &part);
    qos_credit_clear(type, &part);
}

/* Gives back the unused part of what is wanted, although the rest will be used for long. FALSE: the
 * user has been asked to drop it, so that it is too early to say what stays. */
static gboolean give_part(QosBook *book, QosOwner *owner, gboolean *ret_given)
{
    const QosResourceType *type = qos_book_type(book);
    QosCredit part = unused_part(book);
    gboolean is_for_user = owner->config.caches && !book->busy->has_user_agreed;

    *ret_given = type->conflicts(&book->borrowed, &part);
    if (*ret_given && is_for_user)
        qos_book_tell_user(owner, book, &part);
    else if (*ret_given)
        *ret_given = qos_book_yield(book, &part);
    qos_credit_clear(type, &part);
    return !*ret_given || !is_for_user;
}

/* Part of what is wanted will be used for long. */
static void answer_busy(QosOwner *owner, QosBook *book, QosTime now)
{
    gboolean has_given;

    if (give_part(book, owner, &has_given) && (has_given || !book->busy->is_busy))
        answer(owner, book, QOS_CANCEL_BUSY, now);
}

/* Answers the callback from above as far as that is possible now. */
void qos_book_serve_callback(QosOwner *owner, QosBook *book, QosTime now)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;
    gboolean is_in_use = FALSE;
    gboolean is_long = FALSE;

    if (qos_owner_in_grace(owner)) {
        put_off(owner, book, now);
        return;
    }
    if (type->divisible) {
        serve_shortage(owner, book, now);
        return;
    }
    for (QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (!type->conflicts(&sublet->credit, &busy->wanted))
            continue;
        qos_sublet_call_back(owner, sublet, &busy->wanted, busy->flags, 0, now);
        is_in_use = TRUE;
        is_long |= sublet->callback->is_busy;
    }
    gboolean is_held = FALSE;
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next) {
        if (!type->conflicts(&hold->credit, &busy->wanted))
            continue;
        is_held = TRUE;
        is_long |= qos_hold_is_lasting(hold);
    }
    gboolean is_cached = owner->config.caches && !busy->has_user_agreed &&
                         type->conflicts(&book->borrowed, &busy->wanted);
    /* While a user holds it, that user may add to the cache. So the cache is dropped when no hold
     * is left. */
    if (owner->config.caches ? is_cached && !is_held : is_held)
        qos_book_tell_user(owner, book, &busy->wanted);
    is_in_use |= is_held;
    if (!is_in_use && !is_cached) {
        if (qos_book_yield(book, &busy->wanted))
            answer(owner, book, 0, now);
        else if (!busy->is_busy)
            answer(owner, book, QOS_CANCEL_BUSY, now);
    } else if (is_long) {
        answer_busy(owner, book, now);
    } else if (is_held && type->widened && owner->config.caches) {
        drop_unused(owner, book);
    } else if (is_below_in_grace(book)) {
        put_off(owner, book, now);
    }
}
