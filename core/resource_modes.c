/*
 * Credits that are sets of bits: inodes, open files, the cluster's configuration.
 *
 * Each bit is on a ladder of its own: not at all, read (shared), write (exclusive); a written bit
 * is in both masks. The operations below are those of the ladder, for 32 bits at once.
 */
#include "base/bytes.h"
#include "core/resource_private.h"

static gboolean matches(const QosCredit *want, const QosCredit *have)
{
    return (want->reads & ~have->reads) == 0 && (want->writes & ~have->writes) == 0;
}

static gboolean conflicts(const QosCredit *one, const QosCredit *other)
{
    return (one->writes & other->reads) != 0 || (one->reads & other->writes) != 0;
}

static void join(QosCredit *to, const QosCredit *with)
{
    to->reads |= with->reads;
    to->writes |= with->writes;
}

static void intersect(QosCredit *with, const QosCredit *other)
{
    with->reads &= other->reads;
    with->writes &= other->writes;
}

/* A bit that is to be written is asked for whole, though it may be read already. */
static void diff(QosCredit *want, const QosCredit *have)
{
    guint32 missing = (want->reads & ~have->reads) | (want->writes & ~have->writes);

    want->reads &= missing;
    want->writes &= missing;
}

static void yield(QosCredit *mine, const QosCredit *theirs)
{
    mine->writes &= ~theirs->reads;
    mine->reads &= ~theirs->writes;
}

static gboolean choose(const QosCredit *want, const QosCredit *have, QosCredit *chosen)
{
    if (!matches(want, have))
        return FALSE;
    *chosen = *want;
    return TRUE;
}

static void encode(const QosCredit *credit, GByteArray *bytes)
{
    qos_bytes_put_u32(bytes, credit->reads);
    qos_bytes_put_u32(bytes, credit->writes);
}

static gboolean decode(QosCredit *credit, const guint8 **bytes, gsize *length)
{
    guint32 read_bits, write_bits;

    if (!qos_bytes_take_u32(bytes, length, &read_bits) ||
        !qos_bytes_take_u32(bytes, length, &write_bits) || (write_bits & ~read_bits))
        return FALSE;
    *credit = (QosCredit){.reads = read_bits, .writes = write_bits};
    return TRUE;
}

/* The modes that exclude `modes` in other hands, although the two have no bit in common. */
static guint32 open_excluded(guint32 modes)
{
    return (modes & QOS_OPEN_WRITE ? QOS_OPEN_EXECUTE : 0) |
           (modes & QOS_OPEN_EXECUTE ? QOS_OPEN_WRITE : 0);
}

static gboolean open_conflicts(const QosCredit *one, const QosCredit *other)
{
    return conflicts(one, other) || (one->reads & open_excluded(other->reads)) != 0;
}

static void open_yield(QosCredit *mine, const QosCredit *theirs)
{
    guint32 excluded = open_excluded(theirs->reads);

    yield(mine, theirs);
    mine->reads &= ~excluded;
    mine->writes &= ~excluded;
}

#define MODES                                                                                      \
    .shape = QOS_SHAPE_MODES, .matches = matches, .join = join, .intersect = intersect,            \
    .diff = diff, .choose = choose, .encode = encode, .decode = decode

const QosResourceType qos_resource_inode = {
    .name = "inode", MODES, .conflicts = conflicts, .yield = yield};
const QosResourceType qos_resource_config = {
    .name = "config", MODES, .conflicts = conflicts, .yield = yield};
const QosResourceType qos_resource_open = {
    .name = "open", MODES, .pinned = TRUE, .conflicts = open_conflicts, .yield = open_yield};
