/*
 * The resource manager with a root and mounts: every verb, every flag, leases and restarts, with
 * the time stepped by hand. test_credit_tree.c goes on with deeper trees and random faults.
 */
#include "credit_fixture.h"

/* A root and `count` mounts, from 4 on. */
static void mounts_init(Cluster *c, guint count)
{
    cluster_init(c);
    start(c, 1);
    for (QosOwnerId id = 4; id < 4 + count; id++) {
        node_config(c, id, 1);
        start(c, id);
    }
    run(c, 10 * QOS_MILLISECOND);
    for (QosOwnerId id = 4; id < 4 + count; id++)
        g_assert_true(is_alive(c, id));
}

static guint32 owned_writes(Cluster *c, QosOwnerId id)
{
    QosResource resource = inode(7);
    return qos_credit_owned(c->nodes[id].owner, &resource).writes;
}

static guint32 owned_reads(Cluster *c, QosOwnerId id)
{
    QosResource resource = inode(7);
    return qos_credit_owned(c->nodes[id].owner, &resource).reads;
}

static void test_root_alone(void)
{
    Cluster c;
    Use one, other;
    cluster_init(&c);
    start(&c, 1);
    g_assert_cmpint(get(&c, 1, writing, 0, &one), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(get(&c, 1, writing, 0, &other), ==, QOS_CREDIT_GRANTED); /* they share */
    g_assert_cmpuint(one.hold.credit.writes, ==, QOS_INODE_ATTRIBUTES);
    put(&c, 1, &one);
    put(&c, 1, &one); /* once more changes nothing */
    put(&c, 1, &other);
    g_assert_cmpuint(c.messages, ==, 0);
    cluster_clear(&c);
}

static void test_cached(void)
{
    Cluster c;
    Use use;
    mounts_init(&c, 1);
    g_assert_cmpint(get(&c, 4, writing, QOS_CREDIT_NON_BLOCK_LOCAL, &use), ==, QOS_CREDIT_DENIED);
    g_assert_cmpint(get(&c, 4, writing, 0, &use), ==, QOS_CREDIT_WAITING);
    run(&c, 2 * QOS_MILLISECOND);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &use);
    run(&c, QOS_SECOND);
    guint64 messages = c.messages;
    g_assert_cmpint(get(&c, 4, reading, QOS_CREDIT_NON_BLOCK_LOCAL, &use), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(c.messages, ==, messages);
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 1);
    cluster_clear(&c);
}

static void test_callback(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    g_assert_cmpint(got(&c, 4, writing, 0, &one), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(got(&c, 5, reading, QOS_CREDIT_NON_BLOCK_REMOTE, &other), ==,
                    QOS_CREDIT_DENIED);
    g_assert_cmpint(got(&c, 5, reading, 0, &other), ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(c.nodes[4].conflicts, ==, 1);
    put(&c, 4, &one);
    run(&c, 3 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, one.hold.token);
    g_assert_cmpuint(owned_reads(&c, 4), ==, QOS_INODE_ATTRIBUTES); /* only the writing is gone */
    g_assert_cmpuint(owned_writes(&c, 4), ==, 0);
    cluster_clear(&c);
}

/* What is cached is given up at once, or when the user has dropped it. */
static void test_callback_of_cached(void)
{
    for (guint caches = 0; caches < 2; caches++) {
        Cluster c;
        Use one, other;
        QosResource resource = inode(7);
        cluster_init(&c);
        start(&c, 1);
        node_config(&c, 4, 1)->caches = caches;
        node_config(&c, 5, 1);
        start(&c, 4);
        start(&c, 5);
        run(&c, 10 * QOS_MILLISECOND);
        g_assert_cmpint(got(&c, 4, writing, 0, &one), ==, QOS_CREDIT_GRANTED);
        put(&c, 4, &one);
        get(&c, 5, writing, 0, &other);
        run(&c, 10 * QOS_MILLISECOND);
        g_assert_cmpuint(c.nodes[4].conflicts, ==, caches);
        if (caches) {
            g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
            qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &writing, FALSE);
            run(&c, 10 * QOS_MILLISECOND);
        }
        g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
        g_assert_cmpuint(owned_reads(&c, 4), ==, 0);
        cluster_clear(&c);
    }
}

/* What is in use is not dropped: who uses it may cache more. Other uses of the resource go on. */
static void test_callback_of_used(void)
{
    Cluster c;
    Use one, two, other;
    QosResource resource;
    cluster_init(&c);
    start(&c, 1);
    node_config(&c, 4, 1)->caches = TRUE;
    node_config(&c, 5, 1);
    start(&c, 4);
    start(&c, 5);
    run(&c, 10 * QOS_MILLISECOND);
    qos_resource_init(&resource, QOS_RESOURCE_EXTENT, "f", 1);
    QosCredit whole = qos_credit_span(0, 99, TRUE);
    QosCredit part = qos_credit_span(10, 19, TRUE);
    QosCredit rest = qos_credit_span(20, 29, TRUE);
    get_of(&c, 4, resource, whole, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    get_of(&c, 5, resource, part, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpuint(c.nodes[4].conflicts, ==, 0);
    put(&c, 4, &one);
    g_assert_cmpuint(c.nodes[4].conflicts, ==, 1);
    g_assert_cmpint(get_of(&c, 4, resource, rest, 0, &two), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(get_of(&c, 4, resource, part, 0, &one), ==, QOS_CREDIT_WAITING);
    put(&c, 4, &two);
    g_assert_cmpuint(c.nodes[4].conflicts, ==, 1); /* nothing new to drop */
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &part, FALSE);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 5, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &one);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    qos_credit_clear(type, &whole);
    qos_credit_clear(type, &part);
    qos_credit_clear(type, &rest);
    cluster_clear(&c);
}

static void count_forgotten(gpointer extra, gpointer arg)
{
    g_assert_cmpint(*(int *)extra, ==, 42);
    ++*(guint *)arg;
}

static void test_extra(void)
{
    Cluster c;
    Use use;
    QosResource resource = inode(7);
    guint forgotten = 0;
    mounts_init(&c, 0);
    QosOwnerConfig *config = node_config(&c, 4, 1);
    config->extra = sizeof(int);
    config->forgotten = count_forgotten;
    config->arg = &forgotten;
    start(&c, 4);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_null(qos_owner_extra(c.nodes[4].owner, &resource));
    got(&c, 4, writing, 0, &use);
    int *extra = qos_hold_extra(&use.hold);
    g_assert_cmpint(*extra, ==, 0);
    *extra = 42;
    g_assert_true(qos_owner_extra(c.nodes[4].owner, &resource) == extra);
    g_assert_true(qos_resource_equal(qos_extra_resource(extra), &resource));
    g_assert_true(qos_extra_is_held(extra));
    put(&c, 4, &use);
    g_assert_null(qos_hold_extra(&use.hold));
    g_assert_false(qos_extra_is_held(extra));
    g_assert_cmpuint(forgotten, ==, 0);
    qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &writing, TRUE);
    g_assert_cmpuint(forgotten, ==, 1);
    cluster_clear(&c);
}

/* Only what another wants is taken. */
static void test_partial_callback(void)
{
    Cluster c;
    Use one, other;
    QosResource resource;
    mounts_init(&c, 2);
    qos_resource_init(&resource, QOS_RESOURCE_EXTENT, "f", 1);
    QosCredit whole = qos_credit_span(0, G_MAXUINT64, TRUE);
    QosCredit part = qos_credit_span(100, 199, TRUE);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    get_of(&c, 4, resource, whole, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    put(&c, 4, &one);
    get_of(&c, 5, resource, part, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    QosCredit left = qos_credit_owned(c.nodes[4].owner, &resource);
    g_autofree char *text = qos_credit_text(type, &left);
    g_assert_cmpstr(text, ==, "0-99w,200-18446744073709551615w");
    qos_credit_clear(type, &left);
    qos_credit_clear(type, &whole);
    qos_credit_clear(type, &part);
    cluster_clear(&c);
}

static void test_cancel(void)
{
    Cluster c;
    Use use;
    QosResource resource = inode(7);
    mounts_init(&c, 1);
    g_assert_cmpint(got(&c, 4, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    g_assert_false(qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &writing, FALSE));
    put(&c, 4, &use);
    g_assert_true(qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &reading, FALSE));
    g_assert_cmpuint(owned_writes(&c, 4), ==, 0);
    g_assert_cmpuint(owned_reads(&c, 4), ==, QOS_INODE_ATTRIBUTES);
    g_assert_true(qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &writing, FALSE));
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 0);
    cluster_clear(&c);
}

/* Lazy cancels cost no message of their own. */
static void test_lazy_cancel(void)
{
    Cluster c;
    Use use;
    mounts_init(&c, 1);
    for (guint8 i = 0; i < 100; i++) {
        get_of(&c, 4, inode(i), writing, 0, &use);
        run(&c, 5 * QOS_MILLISECOND);
        put(&c, 4, &use);
    }
    run(&c, QOS_SECOND);
    guint64 messages = c.messages;
    for (guint8 i = 0; i < 100; i++) {
        QosResource resource = inode(i);
        g_assert_true(qos_credit_cancel(c.nodes[4].owner, c.now, &resource, &writing, TRUE));
    }
    get_of(&c, 4, inode(200), writing, 0, &use);
    run(&c, 5 * QOS_MILLISECOND);
    g_assert_cmpuint(c.messages, ==, messages + 2);
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 1);
    cluster_clear(&c);
}

static void test_withdraw(void)
{
    Cluster c;
    Use one, other, third;
    mounts_init(&c, 3);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, writing, QOS_CREDIT_RESERVE, &other);
    g_assert_cmpint(got(&c, 6, reading, 0, &third), ==, QOS_CREDIT_WAITING);
    put(&c, 5, &other); /* it waits: now nothing bars the third */
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(third.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* Readers that come and go, so that there is always one. */
static guint rounds_until_written(guint flags)
{
    Cluster c;
    Use readers[2], writer;
    guint round = 0;
    mounts_init(&c, 3);
    got(&c, 4, reading, 0, &readers[0]);
    got(&c, 6, writing, flags, &writer);
    for (; round < 50 && writer.verdict == QOS_CREDIT_WAITING; round++) {
        guint next = (round + 1) % 2;
        get(&c, 4 + next, reading, 0, &readers[next]);
        run(&c, 5 * QOS_MILLISECOND);
        put(&c, 4 + round % 2, &readers[round % 2]);
        run(&c, 5 * QOS_MILLISECOND);
    }
    cluster_clear(&c);
    return round;
}

static void test_reserve(void)
{
    g_assert_cmpuint(rounds_until_written(0), ==, 50);
    g_assert_cmpuint(rounds_until_written(QOS_CREDIT_RESERVE), ==, 1);
}

static void test_upgrade(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, reading, 0, &other);
    put(&c, 5, &other);
    g_assert_cmpint(convert(&c, 4, writing, 0, &one), ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(one.hold.credit.reads, ==, QOS_INODE_ATTRIBUTES); /* held all the time */
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(one.hold.credit.writes, ==, QOS_INODE_ATTRIBUTES);

    get(&c, 5, reading, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(convert(&c, 4, reading, 0, &one), ==, QOS_CREDIT_GRANTED); /* down, at once */
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_two_upgrades(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, reading, 0, &other);
    convert(&c, 4, writing, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    convert(&c, 5, writing, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_DENIED);
    g_assert_cmpuint(other.hold.credit.reads, ==, QOS_INODE_ATTRIBUTES);
    put(&c, 5, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* Each wants of a file what the other has locked: not the same bytes. */
static void test_crossed_upgrades(void)
{
    Cluster c;
    Use one, other;
    QosResource file;
    QosCredit low = qos_credit_span(2, 3, TRUE), high = qos_credit_span(5, 8, FALSE);
    QosCredit wants_high = qos_credit_span(5, 8, TRUE), wants_low = qos_credit_span(3, 3, FALSE);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    mounts_init(&c, 2);
    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    get_of(&c, 4, file, low, 0, &one);
    get_of(&c, 5, file, high, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    convert(&c, 4, wants_high, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    convert(&c, 5, wants_low, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_DENIED);
    put(&c, 5, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    qos_credit_clear(type, &low);
    qos_credit_clear(type, &high);
    qos_credit_clear(type, &wants_low);
    qos_credit_clear(type, &wants_high);
    cluster_clear(&c);
}

/* Each of four wants the byte that the next one has, and the last one that of the first. */
static void test_circle_of_upgrades(void)
{
    enum { MOUNTS = 4 };
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    Cluster c;
    Use uses[MOUNTS];
    QosCredit bytes[MOUNTS];
    QosResource file;
    mounts_init(&c, MOUNTS);
    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    for (guint i = 0; i < MOUNTS; i++) {
        bytes[i] = qos_credit_span(i, i, TRUE);
        get_of(&c, 4 + i, file, bytes[i], 0, &uses[i]);
    }
    run(&c, 10 * QOS_MILLISECOND);
    for (guint i = 0; i < MOUNTS; i++) {
        g_assert_cmpint(uses[i].verdict, ==, QOS_CREDIT_GRANTED);
        convert(&c, 4 + i, bytes[(i + 1) % MOUNTS], 0, &uses[i]);
        run(&c, 10 * QOS_MILLISECOND);
    }
    for (guint i = 0; i < MOUNTS - 1; i++)
        g_assert_cmpint(uses[i].verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(uses[MOUNTS - 1].verdict, ==, QOS_CREDIT_DENIED);
    for (guint i = MOUNTS; i-- > 1;) { /* as each gives up, the one before it goes on */
        put(&c, 4 + i, &uses[i]);
        run(&c, 10 * QOS_MILLISECOND);
        g_assert_cmpint(uses[i - 1].verdict, ==, QOS_CREDIT_GRANTED);
    }
    for (guint i = 0; i < MOUNTS; i++)
        qos_credit_clear(type, &bytes[i]);
    cluster_clear(&c);
}

/* `count` single bytes from `first`, each `step` behind the other. */
static QosCredit comb(guint64 first, guint count, guint64 step)
{
    QosCredit credit = {.spans = g_new0(QosSpan, count), .count = count};

    for (guint i = 0; i < count; i++)
        credit.spans[i] = (QosSpan){first + i * step, first + i * step, TRUE};
    return credit;
}

static QosCreditVerdict got_bytes(Cluster *c, QosOwnerId id, QosCredit want, Use *use)
{
    QosResource file;

    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    get_of(c, id, file, want, 0, use);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &want);
    run(c, 20 * QOS_MILLISECOND);
    return use->verdict;
}

/* What would be in more pieces than can be sent is denied, and what was had stays. */
static void test_pieces(void)
{
    Cluster c;
    Use many, more, whole;
    mounts_init(&c, 2);
    g_assert_cmpint(got_bytes(&c, 4, comb(0, QOS_CREDIT_SPANS_MAX + 1, 2), &more), ==,
                    QOS_CREDIT_DENIED);
    g_assert_cmpint(got_bytes(&c, 4, comb(0, QOS_CREDIT_SPANS_MAX, 2), &many), ==,
                    QOS_CREDIT_GRANTED);
    g_assert_cmpint(got_bytes(&c, 4, comb(100000, 1, 1), &more), ==, QOS_CREDIT_DENIED);
    g_assert_nonnull(many.hold.book);
    put(&c, 4, &many);
    g_assert_cmpint(got_bytes(&c, 5, qos_credit_span(0, 100000, TRUE), &whole), ==,
                    QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* Who has a whole file cached, and of whom every other byte is wanted, gives back what he does not
 * use; and if what he uses is in too many pieces itself, the other is denied. */
static void test_pieces_called_back(void)
{
    Cluster c;
    Use whole, one, two, other;
    mounts_init(&c, 2);
    got_bytes(&c, 4, qos_credit_span(0, 100000, TRUE), &whole);
    got_bytes(&c, 4, comb(0, 3000, 4), &one);
    put(&c, 4, &whole);
    g_assert_cmpint(got_bytes(&c, 5, comb(1, QOS_CREDIT_SPANS_MAX, 2), &other), ==,
                    QOS_CREDIT_GRANTED);
    g_assert_nonnull(one.hold.book);
    put(&c, 5, &other);
    put(&c, 4, &one);
    got_bytes(&c, 4, qos_credit_span(0, 100000, TRUE), &whole);
    got_bytes(&c, 4, comb(0, 3000, 4), &one);
    got_bytes(&c, 4, comb(2, 3000, 4), &two);
    put(&c, 4, &whole);
    g_assert_cmpint(got_bytes(&c, 5, comb(1, QOS_CREDIT_SPANS_MAX, 2), &other), ==,
                    QOS_CREDIT_DENIED);
    run(&c, 3 * LEASE);
    g_assert_nonnull(one.hold.book);
    g_assert_nonnull(two.hold.book);
    put(&c, 4, &two);
    run(&c, QOS_SECOND);
    g_assert_cmpint(got_bytes(&c, 5, comb(1, QOS_CREDIT_SPANS_MAX, 2), &other), ==,
                    QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* A message has less than 1 MiB, however many pieces it tells of. */
static void test_pieces_in_batches(void)
{
    Cluster c;
    Use use;
    mounts_init(&c, 1);
    for (guint i = 0; i < 20; i++) {
        QosResource file;
        QosCredit want = comb(0, QOS_CREDIT_SPANS_MAX, 2);
        qos_resource_init(&file, QOS_RESOURCE_EXTENT, &i, sizeof(i));
        get_of(&c, 4, file, want, 0, &use);
        qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &want);
        run(&c, 5 * QOS_MILLISECOND);
        put(&c, 4, &use);
    }
    c.longest = 0;
    crash(&c, 1);
    start(&c, 1);
    run(&c, LEASE / 2);
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 20);
    g_assert_cmpuint(c.longest, <, 1 << 20);
    g_assert_cmpuint(c.longest, >, 1 << 19);
    cluster_clear(&c);
}

/* An upgrade is served before who waits for what its owner holds. */
static void test_upgrade_before_wait(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, writing, QOS_CREDIT_RESERVE, &other);
    convert(&c, 4, writing, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &one);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_open_file(void)
{
    Cluster c;
    Use writer, denied, waiting;
    QosResource file;
    const QosCredit writes = {.reads = QOS_OPEN_WRITE};
    const QosCredit executes = {.reads = QOS_OPEN_EXECUTE};
    mounts_init(&c, 3);
    qos_resource_init(&file, QOS_RESOURCE_OPEN, "f", 1);
    get_of(&c, 4, file, writes, 0, &writer);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(writer.verdict, ==, QOS_CREDIT_GRANTED);
    get_of(&c, 5, file, executes, 0, &denied);
    get_of(&c, 6, file, executes, QOS_CREDIT_WAIT, &waiting);
    run(&c, 5 * LEASE); /* whoever holds it is asked, says no, and keeps his lease */
    g_assert_cmpint(denied.verdict, ==, QOS_CREDIT_DENIED);
    g_assert_cmpint(waiting.verdict, ==, QOS_CREDIT_WAITING);
    put(&c, 4, &writer);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(waiting.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_lasting(void)
{
    Cluster c;
    Use lock, io;
    mounts_init(&c, 2);
    got(&c, 4, writing, QOS_CREDIT_LASTING, &lock);
    g_assert_cmpint(got(&c, 5, writing, 0, &io), ==, QOS_CREDIT_DENIED);
    /* What does not conflict with those that have been put off is served. */
    Use again;
    g_assert_cmpint(get(&c, 4, writing, QOS_CREDIT_LASTING, &again), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* Bytes of a file that are locked at one mount (4) and asked for at another (5), without waiting:
 * each is told how it is when he asks, not how it was. */
static QosCreditVerdict try_span(Cluster *c, guint64 first, guint64 last, gboolean writes)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    QosCredit want = qos_credit_span(first, last, writes);
    QosResource file;
    Use use;

    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    get_of(c, 5, file, want, QOS_CREDIT_LASTING, &use);
    run(c, 100 * QOS_MILLISECOND);
    if (use.verdict == QOS_CREDIT_GRANTED)
        put(c, 5, &use);
    qos_credit_clear(type, &want);
    return use.verdict;
}

static void test_busy_no_more(void)
{
    for (guint caches = 0; caches < 2; caches++) {
        Cluster c;
        Use lock;
        QosResource file;
        QosCredit whole = qos_credit_span(0, 99, TRUE);
        QosCredit half = qos_credit_span(0, 49, TRUE);
        QosCredit shared = qos_credit_span(0, 49, FALSE);
        const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);

        cluster_init(&c);
        start(&c, 1);
        node_config(&c, 4, 1)->caches = caches;
        c.nodes[4].agrees = TRUE;
        node_config(&c, 5, 1);
        start(&c, 4);
        start(&c, 5);
        run(&c, 10 * QOS_MILLISECOND);
        qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
        get_of(&c, 4, file, whole, QOS_CREDIT_LASTING, &lock);
        run(&c, 10 * QOS_MILLISECOND);
        g_assert_cmpint(try_span(&c, 20, 79, TRUE), ==, QOS_CREDIT_DENIED);
        g_assert_cmpint(try_span(&c, 20, 79, FALSE), ==, QOS_CREDIT_DENIED);
        convert(&c, 4, half, QOS_CREDIT_LASTING, &lock);
        g_assert_cmpint(try_span(&c, 40, 79, TRUE), ==, QOS_CREDIT_DENIED);
        g_assert_cmpint(try_span(&c, 50, 79, TRUE), ==, QOS_CREDIT_GRANTED);
        g_assert_cmpint(try_span(&c, 90, 99, TRUE), ==, QOS_CREDIT_GRANTED);
        convert(&c, 4, shared, QOS_CREDIT_LASTING, &lock);
        g_assert_cmpint(try_span(&c, 20, 30, TRUE), ==, QOS_CREDIT_DENIED);
        g_assert_cmpint(try_span(&c, 20, 30, FALSE), ==, QOS_CREDIT_GRANTED);
        put(&c, 4, &lock);
        g_assert_cmpint(try_span(&c, 0, 99, TRUE), ==, QOS_CREDIT_GRANTED);
        qos_credit_clear(type, &whole);
        qos_credit_clear(type, &half);
        qos_credit_clear(type, &shared);
        cluster_clear(&c);
    }
}

static void amounts(const QosResource *resource, QosCredit *ret_credit, gpointer arg)
{
    if (resource->type == QOS_RESOURCE_QUANTITY)
        ret_credit->amount = 100;
    else
        *ret_credit = qos_credit_span(1000, 1999, TRUE);
    (void)arg;
}

static void test_amounts(void)
{
    Cluster c;
    Use first, second, third;
    QosResource space;
    cluster_init(&c);
    c.nodes[1].config.capital = amounts;
    start(&c, 1);
    for (QosOwnerId id = 4; id < 7; id++) {
        node_config(&c, id, 1);
        start(&c, id);
    }
    run(&c, 10 * QOS_MILLISECOND);
    qos_resource_init_kind(&space, QOS_RESOURCE_QUANTITY, QOS_QUANTITY_GRANT, "store", 5);
    get_of(&c, 4, space, (QosCredit){.amount = 60}, 0, &first);
    get_of(&c, 5, space, (QosCredit){.amount = 30}, 0, &second);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpuint(first.hold.credit.amount, ==, 60);
    g_assert_cmpuint(second.hold.credit.amount, ==, 30);
    get_of(&c, 6, space, (QosCredit){.amount = 11}, 0, &third);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(third.verdict, ==, QOS_CREDIT_DENIED); /* all is held */
    put(&c, 4, &first);
    put(&c, 5, &second);
    run(&c, 10 * QOS_MILLISECOND);
    get_of(&c, 6, space, (QosCredit){.amount = 95}, 0, &third); /* from both */
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(third.verdict, ==, QOS_CREDIT_GRANTED);
    get_of(&c, 4, space, (QosCredit){.amount = 6}, QOS_CREDIT_WAIT, &first);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_WAITING);
    put(&c, 6, &third);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_identifiers(void)
{
    Cluster c;
    Use uses[3];
    QosResource fids;
    QosCredit many = qos_credit_span(0, 399, TRUE);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_IDENTIFIER);
    cluster_init(&c);
    c.nodes[1].config.capital = amounts;
    start(&c, 1);
    node_config(&c, 4, 1);
    node_config(&c, 5, 1);
    start(&c, 4);
    start(&c, 5);
    run(&c, 10 * QOS_MILLISECOND);
    qos_resource_init_kind(&fids, QOS_RESOURCE_IDENTIFIER, QOS_IDENTIFIER_FID, "fs", 2);
    for (guint i = 0; i < 3; i++)
        get_of(&c, 4 + i % 2, fids, many, 0, &uses[i]);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(uses[0].verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(uses[1].verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(uses[2].verdict, ==, QOS_CREDIT_DENIED);
    QosCredit common = qos_credit_copy(type, &uses[0].hold.credit);
    type->intersect(&common, &uses[1].hold.credit);
    g_assert_true(qos_credit_is_empty(type, &common));
    g_assert_cmpuint(uses[0].hold.credit.spans[0].first, >=, 1000);
    qos_credit_clear(type, &common);
    qos_credit_clear(type, &many);
    cluster_clear(&c);
}

/* Those that nobody uses are called back when another wants them; those in use are not. */
static void test_idle_identifiers(void)
{
    Cluster c;
    Use used, idle, wants, more;
    QosResource fids;
    QosCredit four = qos_credit_span(0, 399, TRUE), five = qos_credit_span(0, 499, TRUE);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_IDENTIFIER);
    mounts_init(&c, 0);
    crash(&c, 1);
    c.nodes[1].config.capital = amounts;
    start(&c, 1);
    for (QosOwnerId id = 4; id < 6; id++) {
        node_config(&c, id, 1);
        start(&c, id);
    }
    run(&c, 10 * QOS_MILLISECOND);
    qos_resource_init_kind(&fids, QOS_RESOURCE_IDENTIFIER, QOS_IDENTIFIER_FID, "fs", 2);
    get_of(&c, 4, fids, four, 0, &used);
    run(&c, 10 * QOS_MILLISECOND);
    get_of(&c, 4, fids, four, 0, &idle);
    run(&c, 10 * QOS_MILLISECOND);
    put(&c, 4, &idle);
    get_of(&c, 5, fids, five, 0, &wants);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(wants.verdict, ==, QOS_CREDIT_GRANTED);
    QosCredit left = qos_credit_owned(c.nodes[4].owner, &fids);
    g_assert_cmpuint(qos_credit_count(type, &left), ==, 500); /* no more than was wanted went */
    g_assert_true(type->matches(&used.hold.credit, &left));
    get_of(&c, 5, fids, four, 0, &more);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(more.verdict, ==, QOS_CREDIT_DENIED);
    qos_credit_clear(type, &left);
    qos_credit_clear(type, &four);
    qos_credit_clear(type, &five);
    cluster_clear(&c);
}

static gboolean refuse(QosOwnerId borrower G_GNUC_UNUSED, const QosResource *resource,
                       QosTime now G_GNUC_UNUSED, QosTime *ret_delay, gpointer arg G_GNUC_UNUSED)
{
    *ret_delay = 5 * QOS_SECOND;
    return resource->name[0] != 9;
}

static void test_full(void)
{
    Cluster c;
    Use use;
    cluster_init(&c);
    c.nodes[1].config.may_grant = refuse;
    start(&c, 1);
    node_config(&c, 4, 1);
    start(&c, 4);
    run(&c, 10 * QOS_MILLISECOND);
    get_of(&c, 4, inode(9), reading, 0, &use);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_RETRY);
    g_assert_cmpint(use.delay, ==, 5 * QOS_SECOND);
    g_assert_cmpint(got(&c, 4, reading, 0, &use), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* A resource that goes to and fro is denied for a while. */
static void test_contention(void)
{
    Cluster c;
    Use use;
    guint granted = 0, denied = 0;
    cluster_init(&c);
    c.nodes[1].config.contention = 10;
    start(&c, 1);
    for (QosOwnerId id = 4; id < 6; id++) {
        node_config(&c, id, 1);
        start(&c, id);
    }
    run(&c, 10 * QOS_MILLISECOND);
    for (guint i = 0; i < 20; i++) {
        get(&c, 4 + i % 2, writing, 0, &use);
        run(&c, 10 * QOS_MILLISECOND);
        granted += use.verdict == QOS_CREDIT_GRANTED;
        denied += use.verdict == QOS_CREDIT_DENIED;
        put(&c, 4 + i % 2, &use);
    }
    g_assert_cmpuint(granted, >=, 10);
    g_assert_cmpuint(denied, >=, 3);
    run(&c, 2 * QOS_SECOND);
    g_assert_cmpint(got(&c, 4, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &use);
    g_assert_cmpint(got(&c, 5, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* A holder that is cut off stops before another is granted, and learns what it lost: also with
 * clocks that are as wrong as they may be. */
static void test_eviction(gconstpointer data)
{
    Cluster c;
    Use one, other;
    cluster_init(&c);
    c.nodes[1].drift = GPOINTER_TO_INT(data);
    c.nodes[4].drift = -GPOINTER_TO_INT(data);
    start(&c, 1);
    for (QosOwnerId id = 4; id < 6; id++) {
        node_config(&c, id, 1);
        start(&c, id);
    }
    run(&c, 10 * QOS_MILLISECOND);
    got(&c, 4, writing, 0, &one);
    QosToken token = one.hold.token;
    c.nodes[4].is_deaf = TRUE;
    get(&c, 5, writing, 0, &other);
    QosTime cut = c.now;
    QosTime stopped = 0;
    while (other.verdict == QOS_CREDIT_WAITING) {
        run(&c, QOS_MILLISECOND);
        if (stopped == 0 && !is_alive(&c, 4))
            stopped = c.now;
    }
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, token);
    g_assert_cmpint(stopped, >, 0);
    g_assert_cmpint(c.now - cut, <=, LEASE + LEASE / 25);
    g_assert_cmpint(c.now - stopped, >=, 0);
    g_assert_null(one.hold.book);
    g_assert_cmpuint(c.nodes[4].lost, ==, 1);
    c.nodes[4].is_deaf = FALSE;
    run(&c, 5 * QOS_SECOND);
    put(&c, 5, &other);
    g_assert_cmpint(got(&c, 4, writing, 0, &one), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* One that lives but does not answer is not renewed. */
static void test_no_answer(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, writing, 0, &one);
    get(&c, 5, writing, 0, &other);
    run(&c, LEASE / 2);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    run(&c, LEASE);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_null(one.hold.book);
    g_assert_cmpuint(c.nodes[4].lost, ==, 1);
    cluster_clear(&c);
}

static void test_leases_are_renewed(void)
{
    Cluster c;
    Use one;
    mounts_init(&c, 1);
    got(&c, 4, writing, 0, &one);
    c.messages = 0;
    run(&c, 100 * LEASE);
    g_assert_nonnull(one.hold.book);
    g_assert_cmpuint(c.messages, <=, 100 * 10); /* four and their answers in each */
    cluster_clear(&c);
}

static void test_borrower_restarts(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, writing, 0, &one);
    crash(&c, 4);
    get(&c, 5, writing, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    start(&c, 4);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* What was had is had again; nothing else is granted until all have come. */
static void test_lender_restarts(void)
{
    Cluster c;
    Use one, other, late;
    mounts_init(&c, 3);
    got(&c, 4, writing, 0, &one);
    got(&c, 5, reading, 0, &other);
    QosToken token = one.hold.token;
    put(&c, 5, &other);
    g_assert_nonnull(one.hold.book);
    crash(&c, 1);
    c.nodes[6].is_deaf = TRUE;
    start(&c, 1);
    g_assert_true(qos_owner_in_grace(c.nodes[1].owner));
    run(&c, 5 * QOS_SECOND);
    g_assert_true(qos_owner_in_grace(c.nodes[1].owner));
    g_assert_nonnull(one.hold.book);
    get(&c, 5, writing, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    c.nodes[6].is_deaf = FALSE;
    run(&c, 5 * QOS_SECOND);
    g_assert_false(qos_owner_in_grace(c.nodes[1].owner));
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING); /* for who still holds it */
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 1);
    put(&c, 4, &one);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, token);
    g_assert_cmpint(got(&c, 6, writing, QOS_CREDIT_NON_BLOCK_REMOTE, &late), ==, QOS_CREDIT_DENIED);
    cluster_clear(&c);
}

/* A copy of the HELLO with which a borrower once began: it says that it has nothing, but that was
 * long ago. */
static void test_late_hello(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, writing, 0, &one);
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO,
                                    .session = G_GUINT64_CONSTANT(1) << 32 | 1};
    crash(&c, 1);
    c.nodes[4].is_deaf = TRUE;
    start(&c, 1);
    run(&c, 10 * QOS_MILLISECOND);
    qos_owner_receive(c.nodes[1].owner, 4, &hello, clock_of(&c, 1));
    run(&c, 3 * QOS_SECOND); /* the other has come */
    g_assert_nonnull(one.hold.book);
    g_assert_true(qos_owner_in_grace(c.nodes[1].owner));
    get(&c, 5, writing, 0, &other);
    c.nodes[4].is_deaf = FALSE;
    run(&c, LEASE / 2);
    g_assert_nonnull(one.hold.book);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    cluster_clear(&c);
}

static void test_grace_ends(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, writing, 0, &one);
    crash(&c, 1);
    c.nodes[4].is_deaf = TRUE;
    start(&c, 1);
    run(&c, LEASE);
    g_assert_true(qos_owner_in_grace(c.nodes[1].owner));
    g_assert_null(one.hold.book);
    run(&c, LEASE);
    g_assert_false(qos_owner_in_grace(c.nodes[1].owner));
    g_assert_cmpint(got(&c, 5, writing, 0, &other), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(g_hash_table_size(c.nodes[1].clients), ==, 1);
    cluster_clear(&c);
}

/* A borrower that breaks the rules: what the root says to it last, with the message sent after a
 * HELLO. */
static guint answer_to(QosCreditMessage message, const QosOwnerId *clients, guint count)
{
    QosOwnerConfig config;
    QosOutput output;
    guint last = QOS_MESSAGE_TYPES;
    QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .session = 5};

    qos_owner_config_init(&config, 1, 2);
    config.lends = TRUE;
    QosOwner *root = qos_owner_new(&config, clients, count, QOS_SECOND);
    qos_owner_receive(root, 4, &hello, QOS_SECOND);
    qos_owner_saved(root, 4, QOS_SECOND);
    message.session += 5;
    message.lender = 2;
    message.sequence = 1;
    qos_owner_receive(root, 4, &message, QOS_SECOND);
    while (qos_owner_output(root, &output)) {
        if (output.kind == QOS_OUTPUT_SEND)
            last = output.message->type;
    }
    g_assert_cmpuint(qos_owner_lent(root), ==, last == QOS_MESSAGE_GRANT);
    qos_owner_free(root);
    return last;
}

static void test_rules_broken(void)
{
    static const QosOwnerId clients[] = {4, 5};
    QosCreditItem item = {.resource = inode(7), .credit = writing, .token = 1};
    GArray *items = g_array_new(FALSE, FALSE, sizeof(item));
    g_array_append_val(items, item);
    QosCreditMessage good = {
        .type = QOS_MESSAGE_ENQUEUE, .request = 1, .resource = inode(7), .credit = writing};
    QosCreditMessage ahead = good;
    ahead.token = (QosToken)3 << QOS_TOKEN_INCARNATION_SHIFT;
    QosCreditMessage unknown = good;
    unknown.session = 1;
    QosCreditMessage late = good;
    late.session = -1;
    QosCreditMessage claim = {.type = QOS_MESSAGE_RECLAIM, .more = items};
    QosCreditMessage grant = good;
    grant.type = QOS_MESSAGE_GRANT;
    g_assert_cmpuint(answer_to(good, NULL, 0), ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(answer_to(ahead, NULL, 0), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(answer_to(unknown, NULL, 0), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(answer_to(late, NULL, 0), ==, QOS_MESSAGE_WELCOME); /* to the HELLO */
    g_assert_cmpuint(answer_to(grant, NULL, 0), ==, QOS_MESSAGE_WELCOME);
    g_assert_cmpuint(answer_to(claim, NULL, 0), ==, QOS_MESSAGE_RESET);
    /* In the grace too, as it has said that it has nothing. */
    g_assert_cmpuint(answer_to(claim, clients, 2), ==, QOS_MESSAGE_RESET);
    g_array_unref(items);
}

/* Who had much does not make others wait: it is taken by and by, and nobody gets it twice. */
static void test_eviction_by_and_by(void)
{
    enum { COUNT = 2500, PART = 1024 };
    Cluster c;
    Use other;
    mounts_init(&c, 2);
    for (guint number = 0; number < COUNT; number++) {
        QosResource resource;
        Use use;
        qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, sizeof(number));
        get_of(&c, 4, resource, writing, 0, &use);
        run(&c, 3 * QOS_MILLISECOND);
        g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
        put(&c, 4, &use);
    }
    crash(&c, 4);
    QosOwner *root = c.nodes[1].owner;
    while (qos_owner_lent(root) == COUNT) /* run() would go on with what is due then */
        step(&c, c.now + 10 * QOS_MILLISECOND);
    g_assert_cmpuint(qos_owner_lent(root), ==, COUNT - PART);
    g_assert_true(g_hash_table_contains(c.nodes[1].clients, GUINT_TO_POINTER(4)));
    g_assert_cmpint(qos_owner_next(root), <=, clock_of(&c, 1) + 1);
    qos_owner_tick(root, clock_of(&c, 1) + 1);
    g_assert_cmpuint(qos_owner_lent(root), ==, COUNT - 2 * PART);
    run(&c, QOS_MILLISECOND);
    g_assert_cmpuint(qos_owner_lent(root), ==, 0);
    g_assert_false(g_hash_table_contains(c.nodes[1].clients, GUINT_TO_POINTER(4)));
    g_assert_cmpint(got(&c, 5, writing, 0, &other), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit/root-alone", test_root_alone);
    g_test_add_func("/credit/cached", test_cached);
    g_test_add_func("/credit/callback", test_callback);
    g_test_add_func("/credit/callback-of-cached", test_callback_of_cached);
    g_test_add_func("/credit/callback-of-used", test_callback_of_used);
    g_test_add_func("/credit/extra", test_extra);
    g_test_add_func("/credit/partial-callback", test_partial_callback);
    g_test_add_func("/credit/cancel", test_cancel);
    g_test_add_func("/credit/lazy-cancel", test_lazy_cancel);
    g_test_add_func("/credit/withdraw", test_withdraw);
    g_test_add_func("/credit/reserve", test_reserve);
    g_test_add_func("/credit/upgrade", test_upgrade);
    g_test_add_func("/credit/two-upgrades", test_two_upgrades);
    g_test_add_func("/credit/crossed-upgrades", test_crossed_upgrades);
    g_test_add_func("/credit/circle-of-upgrades", test_circle_of_upgrades);
    g_test_add_func("/credit/upgrade-before-wait", test_upgrade_before_wait);
    g_test_add_func("/credit/pieces", test_pieces);
    g_test_add_func("/credit/pieces-called-back", test_pieces_called_back);
    g_test_add_func("/credit/pieces-in-batches", test_pieces_in_batches);
    g_test_add_func("/credit/open-file", test_open_file);
    g_test_add_func("/credit/lasting", test_lasting);
    g_test_add_func("/credit/busy-no-more", test_busy_no_more);
    g_test_add_func("/credit/amounts", test_amounts);
    g_test_add_func("/credit/identifiers", test_identifiers);
    g_test_add_func("/credit/idle-identifiers", test_idle_identifiers);
    g_test_add_func("/credit/full", test_full);
    g_test_add_func("/credit/contention", test_contention);
    g_test_add_data_func("/credit/eviction", GINT_TO_POINTER(0), test_eviction);
    g_test_add_data_func("/credit/eviction-late", GINT_TO_POINTER(-10000), test_eviction);
    g_test_add_data_func("/credit/eviction-early", GINT_TO_POINTER(10000), test_eviction);
    g_test_add_func("/credit/eviction-by-and-by", test_eviction_by_and_by);
    g_test_add_func("/credit/no-answer", test_no_answer);
    g_test_add_func("/credit/leases-are-renewed", test_leases_are_renewed);
    g_test_add_func("/credit/borrower-restarts", test_borrower_restarts);
    g_test_add_func("/credit/lender-restarts", test_lender_restarts);
    g_test_add_func("/credit/late-hello", test_late_hello);
    g_test_add_func("/credit/grace-ends", test_grace_ends);
    g_test_add_func("/credit/rules-broken", test_rules_broken);
    return g_test_run();
}
