/*
 * Grants that are wider than what was asked for. Whoever asks for an inode of a group of neighbours
 * is likely to ask for the others: it gets, of the same kind, all of the group that nobody else has
 * or waits for, and a mount that is alone asks once for a group. When a second one comes, it calls
 * back just what it wants, and so the two split the group, if need be down to single inodes.
 *
 * In a group over which there was a conflict lately, only what is free around it: the piece between
 * what others have. Who is called back may give more than was wanted (fs/lockengine/yield.h), and
 * so says where he is not; what is free elsewhere for a moment others are about to ask for again.
 */
#include "core/credit_private.h"

#define CALM (3 * QOS_SECOND) /* without a conflict, before it is widened again */

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

/* What others wait for stays theirs. Once nothing is left but what the borrower has anyhow, it is
 * all the same what else they wait for. */
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
