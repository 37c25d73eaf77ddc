/*
 * Credits that are ranges of numbers: byte extents (data, fcntl and flock locks), inodes of a
 * group, and identifiers.
 *
 * Each number is on a ladder of its own: not at all, read (shared), write (exclusive). An operation
 * is a table over the two rungs, and one sweep applies it: it walks both lists from piece to piece
 * on which neither changes, so that it takes as many steps as there are ends of spans.
 */
#include "base/bytes.h"
#include "core/resource_private.h"

#define ENCODED_SPAN 17 /* bytes: first, last, write */

enum { NONE, READ, WRITE, RUNGS };

/* [rung of the first][rung of the second] */
typedef const guint8 Table[RUNGS][RUNGS];

static Table joined = {{NONE, READ, WRITE}, {READ, READ, WRITE}, {WRITE, WRITE, WRITE}};
static Table common = {{NONE, NONE, NONE}, {NONE, READ, READ}, {NONE, READ, WRITE}};
static Table lacking = {{NONE, NONE, NONE}, {READ, NONE, NONE}, {WRITE, WRITE, NONE}};
static Table left = {{NONE, NONE, NONE}, {READ, READ, NONE}, {WRITE, READ, NONE}};
static Table clash = {{NONE, NONE, NONE}, {NONE, NONE, READ}, {NONE, READ, READ}};

typedef struct {
    const QosSpan *next;
    guint left;
} Cursor;

/* The rung at `at`, which only grows from call to call, and in `*ret_last` up to where it stays so.
 */
static guint rung_at(Cursor *cursor, guint64 at, guint64 *ret_last)
{
    while (cursor->left > 0 && cursor->next->last < at) {
        cursor->next++;
        cursor->left--;
    }
    if (cursor->left == 0) {
        *ret_last = G_MAXUINT64;
        return NONE;
    }
    if (cursor->next->first > at) {
        *ret_last = cursor->next->first - 1;
        return NONE;
    }
    *ret_last = cursor->next->last;
    return cursor->next->writes ? WRITE : READ;
}

/* Goes over the pieces of all numbers on which neither of two credits changes. */
typedef struct {
    Cursor one, other;
    guint64 first, last; /* the piece */
    guint rung;          /* the table's for it */
    gboolean ended;
} Walk;

static void walk_start(Walk *walk, const QosCredit *one, const QosCredit *other)
{
    *walk = (Walk){.one = {one->spans, one->count},
                   .other = {other->spans, other->count},
                   .last = G_MAXUINT64};
}

static gboolean walk_on(Walk *walk, Table table)
{
    guint64 one_last, other_last;
    guint rung;

    if (walk->ended)
        return FALSE;
    walk->first = walk->last + 1; /* from G_MAXUINT64 to 0 at the start */
    rung = rung_at(&walk->one, walk->first, &one_last);
    walk->rung = table[rung][rung_at(&walk->other, walk->first, &other_last)];
    walk->last = MIN(one_last, other_last);
    walk->ended = walk->last == G_MAXUINT64;
    return TRUE;
}

/* `to` has room for one span more. */
static void append(QosCredit *to, guint64 first, guint64 last, gboolean writes)
{
    if (to->count > 0) {
        QosSpan *tail = &to->spans[to->count - 1];
        if (tail->writes == writes && tail->last + 1 == first) {
            tail->last = last;
            return;
        }
    }
    to->spans[to->count++] = (QosSpan){first, last, writes};
}

/* Gives the room back that was not needed. */
static void fit(QosCredit *credit)
{
    if (credit->count == 0)
        g_clear_pointer(&credit->spans, g_free);
    else
        credit->spans = g_renew(QosSpan, credit->spans, credit->count);
}

static void combine(QosCredit *one, const QosCredit *other, Table table)
{
    QosCredit result = {.spans = g_new(QosSpan, 2 * (one->count + other->count) + 1)};
    Walk walk;

    walk_start(&walk, one, other);
    while (walk_on(&walk, table))
        if (walk.rung != NONE)
            append(&result, walk.first, walk.last, walk.rung == WRITE);
    fit(&result);
    g_free(one->spans);
    *one = result;
}

/* Goes past the spans that end before `at`, of which there may be hundreds. */
static void skip_to(Cursor *cursor, guint64 at)
{
    guint skipped = 0, end = cursor->left;

    while (skipped < end) {
        const guint middle = skipped + (end - skipped) / 2;
        if (cursor->next[middle].last < at)
            skipped = middle + 1;
        else
            end = middle;
    }
    if (skipped > 0)
        *cursor = (Cursor){cursor->next + skipped, cursor->left - skipped};
}

/* Looks only where `one` has something, because elsewhere the table gives nothing. So finding one
 * inode of a group takes no longer if the group is in hundreds of pieces. */
static gboolean anywhere(const QosCredit *one, const QosCredit *other, Table table)
{
    Walk walk;

    if (one->count == 0)
        return FALSE;
    walk_start(&walk, one, other);
    skip_to(&walk.other, one->spans[0].first);
    walk.last = one->spans[0].first - 1; /* the first piece begins behind it */
    while (walk.one.left > 0 && walk_on(&walk, table))
        if (walk.rung != NONE)
            return TRUE;
    return FALSE;
}

static gboolean matches(const QosCredit *want, const QosCredit *have)
{
    return !anywhere(want, have, lacking);
}

static gboolean conflicts(const QosCredit *one, const QosCredit *other)
{
    return one->count <= other->count ? anywhere(one, other, clash) : anywhere(other, one, clash);
}

static void join(QosCredit *to, const QosCredit *with)
{
    combine(to, with, joined);
}

static void intersect(QosCredit *with, const QosCredit *other)
{
    combine(with, other, common);
}

static void diff(QosCredit *want, const QosCredit *have)
{
    combine(want, have, lacking);
}

static void yield(QosCredit *mine, const QosCredit *theirs)
{
    combine(mine, theirs, left);
}

static gboolean choose(const QosCredit *want, const QosCredit *have, QosCredit *chosen)
{
    if (!matches(want, have))
        return FALSE;
    *chosen = qos_credit_copy(&qos_resource_extent, want);
    return TRUE;
}

/* Numbers in all: up to 2^64. */
static unsigned __int128 total(const QosCredit *credit)
{
    unsigned __int128 sum = 0;

    for (guint i = 0; i < credit->count; i++)
        sum += (unsigned __int128)credit->spans[i].last - credit->spans[i].first + 1;
    return sum;
}

/* The lowest piece that is long enough; where none is, the lowest pieces that are enough together.
 */
static gboolean choose_identifiers(const QosCredit *want, const QosCredit *have, QosCredit *chosen)
{
    unsigned __int128 missing = total(want);

    if (missing > total(have))
        return FALSE;
    for (guint i = 0; i < have->count && missing > 0; i++) {
        const QosSpan *span = &have->spans[i];
        if (span->last - span->first >= missing - 1) {
            *chosen = qos_credit_span(span->first, span->first + (guint64)missing - 1, TRUE);
            return TRUE;
        }
    }
    if (missing > 0)
        chosen->spans = g_new(QosSpan, have->count);
    for (const QosSpan *span = have->spans; missing > 0; span++) {
        guint64 more = (guint64)MIN(missing - 1, span->last - span->first);
        append(chosen, span->first, span->first + more, TRUE);
        missing -= (unsigned __int128)more + 1;
    }
    return TRUE;
}

static void encode(const QosCredit *credit, GByteArray *bytes)
{
    qos_bytes_put_u32(bytes, credit->count);
    for (guint i = 0; i < credit->count; i++) {
        qos_bytes_put_u64(bytes, credit->spans[i].first);
        qos_bytes_put_u64(bytes, credit->spans[i].last);
        qos_bytes_put_u8(bytes, credit->spans[i].writes ? 1 : 0);
    }
}

/* TRUE where `span` may follow what was decoded so far: in order, apart, and not to be merged with
 * it. */
static gboolean follows(const QosCredit *credit, const QosSpan *span)
{
    const QosSpan *tail = credit->count > 0 ? &credit->spans[credit->count - 1] : NULL;

    if (span->first > span->last || (tail && span->first <= tail->last))
        return FALSE;
    return !tail || span->writes != tail->writes || span->first != tail->last + 1;
}

static gboolean decode_span(QosSpan *span, const guint8 **bytes, gsize *length)
{
    guint8 writes;

    if (!qos_bytes_take_u64(bytes, length, &span->first) ||
        !qos_bytes_take_u64(bytes, length, &span->last) ||
        !qos_bytes_take_u8(bytes, length, &writes) || writes > 1)
        return FALSE;
    span->writes = writes;
    return TRUE;
}

static gboolean decode_spans(QosCredit *credit, gboolean shared, const guint8 **bytes,
                             gsize *length)
{
    QosCredit decoded = {0};
    guint32 count;

    if (!qos_bytes_take_u32(bytes, length, &count) || count > QOS_CREDIT_SPANS_MAX ||
        *length / ENCODED_SPAN < count)
        return FALSE;
    decoded.spans = count > 0 ? g_new(QosSpan, count) : NULL;
    while (decoded.count < count) {
        QosSpan span;
        if (!decode_span(&span, bytes, length) || !follows(&decoded, &span) ||
            (!span.writes && !shared)) {
            g_free(decoded.spans);
            return FALSE;
        }
        decoded.spans[decoded.count++] = span;
    }
    *credit = decoded;
    return TRUE;
}

static gboolean decode(QosCredit *credit, const guint8 **bytes, gsize *length)
{
    return decode_spans(credit, TRUE, bytes, length);
}

/* Identifiers are always exclusive. */
static gboolean decode_identifiers(QosCredit *credit, const guint8 **bytes, gsize *length)
{
    return decode_spans(credit, FALSE, bytes, length);
}

#define SPANS                                                                                      \
    .shape = QOS_SHAPE_SPANS, .matches = matches, .conflicts = conflicts, .join = join,            \
    .intersect = intersect, .diff = diff, .yield = yield, .encode = encode

const QosResourceType qos_resource_extent = {
    .name = "extent", SPANS, .choose = choose, .decode = decode};
const QosResourceType qos_resource_inodes = {
    .name = "inodes", SPANS, .widened = TRUE, .choose = choose, .decode = decode};
const QosResourceType qos_resource_identifier = {.name = "identifier",
                                                 SPANS,
                                                 .divisible = TRUE,
                                                 .choose = choose_identifiers,
                                                 .decode = decode_identifiers};
