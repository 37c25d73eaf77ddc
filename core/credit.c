/*
 * An owner, its outputs, and its local users (core/credit.h).
 *
 * A get that cached credit satisfies costs one look-up: no request, no message and no allocation.
 * Everything else becomes a request (credit_request.c).
 */
#include "core/credit_private.h"

/* Books */

static QosCredit capital_of(const QosOwner *owner, const QosResource *resource)
{
    QosCredit all = {0};

    if (owner->config.capital != NULL) {
        owner->config.capital(resource, &all, owner->config.arg);
        return all;
    }
    switch (qos_resource_type(resource->type)->shape) {
    case QOS_SHAPE_MODES:
        return (QosCredit){.reads = G_MAXUINT32, .writes = G_MAXUINT32};
    case QOS_SHAPE_SPANS:
        return qos_credit_span(
            0, resource->type == QOS_RESOURCE_INODES ? QOS_INODES_GROUP_MAX - 1 : G_MAXUINT64,
            TRUE);
    case QOS_SHAPE_AMOUNT:
        break;
    }
    return all;
}

/* What a root owns of the resource. If that is the same for all resources of a type, their books
 * share its spans. */
static QosCredit root_credit(QosOwner *owner, const QosResource *resource)
{
    const QosResourceType *type = qos_resource_type(resource->type);
    QosCredit *whole = &owner->whole[resource->type];

    if (owner->config.capital != NULL)
        return capital_of(owner, resource);
    if (qos_credit_is_empty(type, whole))
        *whole = capital_of(owner, resource);
    return *whole;
}

static void clear_borrowed(const QosOwner *owner, QosBook *book)
{
    if (owner->above != NULL || owner->config.capital != NULL)
        qos_credit_clear(qos_book_type(book), &book->borrowed);
}

QosBook *qos_book_get(QosOwner *owner, const QosResource *resource)
{
    QosBook *book = qos_table_find(&owner->table, resource);

    if (book != NULL)
        return book;
    book = qos_table_add(&owner->table, resource);
    if (owner->above == NULL) {
        book->borrowed = root_credit(owner, resource);
        book->token = ++owner->token;
    }
    return book;
}

void qos_book_tidy(QosOwner *owner, QosBook *book)
{
    const QosResourceType *type = qos_book_type(book);
    QosBusy *busy = book->busy;

    qos_book_check(book);
    if (busy != NULL && busy->requests.length == 0 && busy->callback == 0 && busy->index == NULL &&
        ((busy->heated == 0 && busy->contended == 0) || book->sublets == NULL)) {
        g_free(busy);
        book->busy = NULL;
    }
    if (book->busy != NULL || book->sublets != NULL || book->holds != NULL ||
        (owner->above != NULL && !qos_credit_is_empty(type, &book->borrowed)))
        return;
    if (owner->config.forgotten != NULL)
        owner->config.forgotten(book + 1, owner->config.arg);
    clear_borrowed(owner, book);
    qos_table_remove(&owner->table, book);
}

gpointer qos_owner_extra(const QosOwner *owner, const QosResource *resource)
{
    QosBook *book = qos_table_find(&owner->table, resource);

    return book != NULL ? book + 1 : NULL;
}

gpointer qos_hold_extra(const QosHold *hold)
{
    return hold->book != NULL ? hold->book + 1 : NULL;
}

gboolean qos_hold_is_wanted(const QosHold *hold)
{
    return hold->book != NULL && hold->book->busy != NULL && hold->book->busy->callback != 0;
}

const QosResource *qos_extra_resource(gconstpointer extra)
{
    return &((const QosBook *)extra - 1)->resource;
}

gboolean qos_extra_is_held(gconstpointer extra)
{
    return ((const QosBook *)extra - 1)->holds != NULL;
}

QosCredit qos_credit_owned(const QosOwner *owner, const QosResource *resource)
{
    const QosBook *book = qos_table_find(&owner->table, resource);

    if (book == NULL)
        return owner->above == NULL ? capital_of(owner, resource) : (QosCredit){0};
    QosCredit owned = qos_credit_copy(qos_book_type(book), &book->borrowed);
    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next)
        qos_book_type(book)->yield(&owned, &sublet->credit);
    return owned;
}

/* Outputs */

QosOutputEntry *qos_output_add(QosOwner *owner, QosOutputKind kind)
{
    QosOutputEntry *entry = g_new0(QosOutputEntry, 1);

    entry->output.kind = kind;
    *owner->last_output = entry;
    owner->last_output = &entry->next;
    return entry;
}

static void output_free(QosOutputEntry *entry)
{
    if (entry == NULL)
        return;
    if (entry->packet != NULL)
        qos_packet_unref(entry->packet);
    if (entry->output.kind == QOS_OUTPUT_CONFLICT || entry->output.kind == QOS_OUTPUT_LOST)
        qos_credit_clear(qos_resource_type(entry->output.resource.type), &entry->output.credit);
    g_free(entry);
}

gboolean qos_owner_output(QosOwner *owner, QosOutput *ret_output)
{
    QosOutputEntry *entry = owner->first_output;

    output_free(owner->taken);
    owner->taken = entry;
    if (entry == NULL)
        return FALSE;
    owner->first_output = entry->next;
    if (entry->next == NULL)
        owner->last_output = &owner->first_output;
    *ret_output = entry->output;
    if (entry->packet != NULL)
        ret_output->message = &entry->packet->message;
    return TRUE;
}

/* Local users */

void qos_hold_add(QosBook *book, QosHold *hold, QosCredit credit, guint flags)
{
    const QosResourceType *type = qos_book_type(book);

    if (book->busy != NULL && (type->divisible || type->conflicts(&credit, &book->busy->wanted))) {
        book->busy->is_user_told = FALSE; /* what the user agreed to give up is in use again */
        book->busy->has_user_agreed = FALSE;
    }
    if (hold->at != NULL) { /* a conversion */
        qos_credit_clear(type, &hold->credit);
    } else {
        hold->book = book;
        hold->next = book->holds;
        hold->at = &book->holds;
        if (hold->next != NULL)
            hold->next->at = &hold->next;
        book->holds = hold;
    }
    hold->credit = credit;
    hold->token = book->token;
    hold->flags = flags | (type->pinned ? QOS_CREDIT_LASTING : 0);
}

void qos_hold_remove(QosHold *hold)
{
    *hold->at = hold->next;
    if (hold->next != NULL)
        hold->next->at = hold->at;
    qos_credit_clear(qos_book_type(hold->book), &hold->credit);
    hold->book = NULL;
    hold->next = NULL;
    hold->at = NULL;
}

/* By far the most frequent case, without the detours of the others. */
static gboolean hold_cached(const QosOwner *owner, QosBook *book, const QosCredit *want,
                            guint flags, QosHold *hold)
{
    const QosResourceType *type = qos_book_type(book);

    if (book->busy != NULL || type->divisible || (owner->lent > 0 && book->sublets != NULL) ||
        !type->matches(want, &book->borrowed))
        return FALSE;
    qos_hold_add(book, hold, qos_credit_copy(type, want), flags);
    return TRUE;
}

static QosCreditVerdict start_local(QosOwner *owner, QosBook *book, const QosCredit *want,
                                    guint flags, QosHold *hold, QosTime now)
{
    QosTime delay = 0;
    QosCreditRequest request = {.book = book,
                                .hold = hold,
                                .want = qos_credit_copy(qos_book_type(book), want),
                                .flags = flags};

    return qos_request_start(owner, &request, now, &delay);
}

/* The order in which a user takes several credits (core/resource.h). */
static gboolean may_follow(const QosHold *before, const QosResource *resource,
                           const QosCredit *want)
{
    const QosResourceType *type = qos_resource_type(resource->type);
    const gint order =
        before->book != NULL ? qos_resource_compare(&before->book->resource, resource) : -1;

    return order < 0 || (order == 0 &&
                         qos_credit_offset(type, &before->credit) <= qos_credit_offset(type, want));
}

QosCreditVerdict qos_credit_get(QosOwner *owner, QosTime now, const QosResource *resource,
                                const QosCredit *want, guint flags, QosHold *hold)
{
    g_assert(hold->book == NULL && hold->request == NULL);
    g_assert(hold->after == NULL || may_follow(hold->after, resource, want));

    if (!qos_owner_is_alive(owner, now)) {
        qos_session_expire(owner, now);
        return QOS_CREDIT_ERROR;
    }
    if (!qos_credit_is_sendable(qos_resource_type(resource->type), want))
        return QOS_CREDIT_DENIED;
    QosBook *book = qos_table_find(&owner->table, resource);
    if (book != NULL && !qos_owner_in_grace(owner) && hold_cached(owner, book, want, flags, hold))
        return QOS_CREDIT_GRANTED;
    return start_local(owner, qos_book_get(owner, resource), want, flags, hold, now);
}

QosCreditVerdict qos_credit_convert(QosOwner *owner, QosTime now, const QosCredit *want,
                                    guint flags, QosHold *hold)
{
    QosBook *book = hold->book;

    if (book == NULL || hold->request != NULL || qos_book_type(book)->divisible ||
        !qos_credit_is_sendable(qos_book_type(book), want))
        return QOS_CREDIT_DENIED;
    if (!qos_owner_is_alive(owner, now)) {
        qos_session_expire(owner, now);
        return QOS_CREDIT_ERROR;
    }
    const QosResourceType *type = qos_book_type(book);
    if (!type->matches(want, &hold->credit))
        return start_local(owner, book, want, flags | QOS_CREDIT_UPGRADE, hold, now);
    qos_credit_clear(type, &hold->credit);
    hold->credit = qos_credit_copy(type, want);
    if (book->busy != NULL || book->sublets != NULL)
        qos_book_pump(owner, book, now);
    return QOS_CREDIT_GRANTED;
}

void qos_credit_put(QosOwner *owner, QosTime now, QosHold *hold)
{
    QosBook *book = hold->request != NULL ? hold->request->book : hold->book;

    if (book == NULL)
        return;
    gboolean is_simple = hold->request == NULL && book->busy == NULL && owner->above != NULL;
    if (hold->request != NULL)
        qos_request_remove(owner, hold->request, now);
    if (hold->book != NULL)
        qos_hold_remove(hold);
    if (!is_simple)
        qos_book_pump(owner, book, now);
}

void qos_credit_withdraw(QosOwner *owner, QosTime now, QosHold *hold)
{
    if (hold->request == NULL)
        return;
    QosBook *book = hold->request->book;
    qos_request_remove(owner, hold->request, now);
    qos_book_pump(owner, book, now);
}

static gboolean is_used_against(const QosBook *book, const QosCredit *theirs)
{
    const QosResourceType *type = qos_book_type(book);

    if (type->divisible) {
        QosCredit room = qos_book_room(book, NULL);
        gboolean is_used = !type->matches(theirs, &room);
        qos_credit_clear(type, &room);
        return is_used;
    }
    for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next) {
        if (type->conflicts(&sublet->credit, theirs))
            return TRUE;
    }
    for (const QosHold *hold = book->holds; hold != NULL; hold = hold->next) {
        if (type->conflicts(&hold->credit, theirs))
            return TRUE;
    }
    return FALSE;
}

gboolean qos_credit_cancel(QosOwner *owner, QosTime now, const QosResource *resource,
                           const QosCredit *theirs, gboolean lazy)
{
    QosBook *book = qos_table_find(&owner->table, resource);

    if (book == NULL)
        return TRUE;
    const QosResourceType *type = qos_book_type(book);
    const gboolean is_called = book->busy != NULL && book->busy->callback != 0 && !type->divisible;
    /* With all of it, unless a cache's user has begun to use some of it again. */
    if (is_called && type->matches(&book->busy->wanted, theirs) &&
        !(owner->config.caches && is_used_against(book, &book->busy->wanted))) {
        book->busy->has_user_agreed = TRUE;
        qos_book_pump(owner, book, now);
        return TRUE;
    }
    if (owner->above == NULL)
        return TRUE; /* there is no lender to give it to */
    const gboolean is_used = is_used_against(book, theirs);
    if (qos_owner_in_grace(owner) || is_used || !qos_book_yield(book, theirs)) {
        if (book->busy != NULL)
            book->busy->is_user_told = FALSE; /* to be told again when the holder puts it */
        /* Asks at once for the unused part, because users of the rest may be waiting for it. */
        if (is_called && is_used && owner->config.caches)
            qos_book_serve_callback(owner, book, now);
        return FALSE;
    }
    qos_owner_give_back(owner, book, now);
    if (!lazy)
        qos_owner_flush_lazy(owner, now);
    if (is_called) {
        book->busy->is_user_told = FALSE; /* of that part of what is wanted */
        qos_book_pump(owner, book, now);
    } else {
        qos_book_tidy(owner, book);
    }
    return TRUE;
}

/* Owners */

void qos_owner_config_init(QosOwnerConfig *config, QosOwnerId id, guint32 incarnation)
{
    *config = (QosOwnerConfig){.id = id,
                               .incarnation = incarnation,
                               .lease = 30 * QOS_SECOND,
                               .resend = 200 * QOS_MILLISECOND,
                               .lockless = QOS_SECOND};
}

QosOwner *qos_owner_new(const QosOwnerConfig *config, const QosOwnerId *clients, guint count,
                        QosTime now)
{
    QosOwner *owner = g_new0(QosOwner, 1);

    g_assert(config->id != 0 && config->incarnation != 0 && !(config->lends && config->caches));
    owner->config = *config;
    owner->token = (guint64)config->incarnation << QOS_TOKEN_INCARNATION_SHIFT;
    owner->first_token = owner->token;
    owner->last_output = &owner->first_output;
    owner->lazy_at = QOS_NEVER;
    owner->peers =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, (GDestroyNotify)qos_peer_free);
    qos_heap_init(&owner->timers);
    qos_table_init(&owner->table, config->extra, !config->lends, config->above != 0);
    for (guint i = 0; i < count; i++) {
        QosPeer *peer = qos_peer_get(owner, clients[i]);
        peer->is_known = TRUE;
        peer->is_awaited = TRUE;
        owner->awaited++;
        owner->grace_until = now + config->lease + QOS_LEASE_DRIFT(config->lease);
    }
    if (config->above != 0) {
        owner->token = 0; /* the lender's, when it has welcomed us */
        owner->is_restoring = config->lends;
        owner->above = qos_peer_get(owner, config->above);
        owner->above->is_above = TRUE;
        qos_session_begin(owner, FALSE, now);
    }
    return owner;
}

void qos_owner_free(QosOwner *owner)
{
    if (owner == NULL)
        return;
    qos_session_lose(owner, 0);
    while (owner->first_output != NULL) {
        QosOutput output;
        qos_owner_output(owner, &output);
    }
    output_free(owner->taken);
    qos_heap_clear(&owner->timers);
    g_hash_table_unref(owner->peers);
    qos_table_clear(&owner->table);
    for (guint i = 0; i < QOS_RESOURCE_TYPES; i++)
        qos_credit_clear(qos_resource_type(i), &owner->whole[i]);
    g_free(owner);
}

gboolean qos_owner_is_alive(const QosOwner *owner, QosTime now)
{
    return owner->above == NULL || now < owner->above->until;
}

QosTime qos_owner_until(const QosOwner *owner)
{
    return owner->above != NULL ? owner->above->until : QOS_NEVER;
}

gboolean qos_owner_in_grace(const QosOwner *owner)
{
    return owner->grace_until != 0;
}

guint64 qos_owner_lent(const QosOwner *owner)
{
    return owner->lent;
}

QosToken qos_owner_token(const QosOwner *owner)
{
    return owner->token;
}

void qos_owner_each_sublet(const QosOwner *owner, QosSubletFunc function, gpointer arg)
{
    for (const QosBook *book = qos_table_next(&owner->table, NULL); book != NULL;
         book = qos_table_next(&owner->table, book)) {
        for (const QosSublet *sublet = book->sublets; sublet != NULL; sublet = sublet->next)
            function(sublet->peer->id, &book->resource, &sublet->credit, sublet->token, arg);
    }
}
