/*
 * Credits of the types that are not an inode's bits: bytes in many pieces, open files, what is held
 * for long, amounts and identifiers.
 */
#include "credit_fixture.h"

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

/* A mount has a whole file cached, and another wants every other byte. The mount gives back what it
 * does not use. If what it uses is in too many pieces itself, the other is denied. */
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
    run(&c, 5 * LEASE); /* the holder is asked, says no, and keeps its lease */
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
 * each asker is told how it is now, not how it was. */
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

/* A waiter for some bytes does not wait for another waiter of its mount that wants more. */
static void test_part_of_what_another_awaits(void)
{
    const guint lock = QOS_CREDIT_LASTING | QOS_CREDIT_WAIT;
    QosCredit spans[] = {qos_credit_span(0, 1, TRUE), qos_credit_span(1, 7, TRUE),
                         qos_credit_span(2, 2, FALSE)};
    Use there, all, part;
    QosResource file;
    Cluster c;

    mounts_init(&c, 2);
    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    get_of(&c, 4, file, spans[0], lock, &there);
    run(&c, 100 * QOS_MILLISECOND);
    get_of(&c, 5, file, spans[1], lock, &all);
    run(&c, 100 * QOS_MILLISECOND);
    get_of(&c, 5, file, spans[2], lock, &part);
    run(&c, 100 * QOS_MILLISECOND);
    g_assert_cmpint(all.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(part.verdict, ==, QOS_CREDIT_GRANTED);
    for (guint i = 0; i < G_N_ELEMENTS(spans); i++)
        qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &spans[i]);
    cluster_clear(&c);
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

/* A root that has them, and three that borrow of it: 4, 5 and 6. */
static void init_amounts(Cluster *c)
{
    cluster_init(c);
    c->nodes[1].config.capital = amounts;
    start(c, 1);
    for (QosOwnerId id = 4; id < 7; id++) {
        node_config(c, id, 1);
        start(c, id);
    }
    run(c, 10 * QOS_MILLISECOND);
}

static void test_amounts(void)
{
    Cluster c;
    Use first, second, third;
    QosResource space;
    init_amounts(&c);
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

/* The borrower with the most is asked to give first, and alone if that is enough. */
static void test_largest_first(void)
{
    for (QosOwnerId largest = 4; largest < 6; largest++) {
        Cluster c;
        Use uses[2], third;
        QosResource space;
        init_amounts(&c);
        qos_resource_init_kind(&space, QOS_RESOURCE_QUANTITY, QOS_QUANTITY_QUOTA, "user", 4);
        for (QosOwnerId id = 4; id < 6; id++) {
            const QosCredit share = {.amount = id == largest ? 60 : 30};
            get_of(&c, id, space, share, 0, &uses[id - 4]);
            run(&c, 10 * QOS_MILLISECOND);
            put(&c, id, &uses[id - 4]);
        }
        get_of(&c, 6, space, (QosCredit){.amount = 40}, 0, &third);
        run(&c, 20 * QOS_MILLISECOND);
        g_assert_cmpint(third.verdict, ==, QOS_CREDIT_GRANTED);
        g_assert_cmpuint(qos_credit_owned(c.nodes[9 - largest].owner, &space).amount, ==, 30);
        cluster_clear(&c);
    }
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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit/pieces", test_pieces);
    g_test_add_func("/credit/pieces-called-back", test_pieces_called_back);
    g_test_add_func("/credit/pieces-in-batches", test_pieces_in_batches);
    g_test_add_func("/credit/open-file", test_open_file);
    g_test_add_func("/credit/lasting", test_lasting);
    g_test_add_func("/credit/part-of-what-another-awaits", test_part_of_what_another_awaits);
    g_test_add_func("/credit/busy-no-more", test_busy_no_more);
    g_test_add_func("/credit/amounts", test_amounts);
    g_test_add_func("/credit/largest-first", test_largest_first);
    g_test_add_func("/credit/identifiers", test_identifiers);
    g_test_add_func("/credit/idle-identifiers", test_idle_identifiers);
    return g_test_run();
}
