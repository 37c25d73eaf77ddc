/*
 * Leases, their end, and restarts: what an owner that does not answer loses, and what a borrower or
 * a lender that comes back has.
 */
#include "credit_fixture.h"

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
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING); /* for the present holder */
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 1);
    put(&c, 4, &one);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, token);
    g_assert_cmpint(got(&c, 6, writing, QOS_CREDIT_NON_BLOCK_REMOTE, &late), ==, QOS_CREDIT_DENIED);
    cluster_clear(&c);
}

/* Which message the root, in its second life, has taken for the begin of a lease. */
static guint64 renewed_after(QosOwner *root, QosCreditMessage message)
{
    guint64 renewed = 0;
    QosOutput output;

    message.session = 5;
    message.lender = 2;
    qos_owner_receive(root, 4, &message, QOS_SECOND);
    qos_owner_tick(root, 2 * QOS_SECOND); /* it acknowledges */
    while (qos_owner_output(root, &output)) {
        if (output.kind == QOS_OUTPUT_SEND)
            renewed = output.message->renewed;
    }
    return renewed;
}

/* A borrower that has not claimed all when the grace ends loses the rest. It is promised nothing
 * before. */
static void test_claims_renew_nothing(void)
{
    static const QosOwnerId client = 4;
    QosOwnerConfig config;
    QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .flags = QOS_HELLO_RECLAIMS};
    QosCreditMessage claims = {.type = QOS_MESSAGE_RECLAIM, .sequence = 1};
    QosCreditMessage last = {.type = QOS_MESSAGE_RECLAIM, .flags = QOS_RECLAIM_LAST, .sequence = 2};
    QosCreditMessage renewal = {.type = QOS_MESSAGE_RENEW, .sequence = 3};

    qos_owner_config_init(&config, 1, 2);
    config.lends = TRUE;
    QosOwner *root = qos_owner_new(&config, &client, 1, QOS_SECOND);
    renewed_after(root, hello);
    g_assert_cmpuint(renewed_after(root, claims), ==, 0);
    renewed_after(root, last);
    g_assert_cmpuint(renewed_after(root, renewal), ==, 3);
    qos_owner_free(root);
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

/* An evicted borrower with much does not make others wait: it is taken by and by, and nobody gets
 * it twice. */
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
    g_test_add_data_func("/credit/eviction", GINT_TO_POINTER(0), test_eviction);
    g_test_add_data_func("/credit/eviction-late", GINT_TO_POINTER(-10000), test_eviction);
    g_test_add_data_func("/credit/eviction-early", GINT_TO_POINTER(10000), test_eviction);
    g_test_add_func("/credit/eviction-by-and-by", test_eviction_by_and_by);
    g_test_add_func("/credit/no-answer", test_no_answer);
    g_test_add_func("/credit/leases-are-renewed", test_leases_are_renewed);
    g_test_add_func("/credit/borrower-restarts", test_borrower_restarts);
    g_test_add_func("/credit/lender-restarts", test_lender_restarts);
    g_test_add_func("/credit/claims-renew-nothing", test_claims_renew_nothing);
    g_test_add_func("/credit/late-hello", test_late_hello);
    g_test_add_func("/credit/grace-ends", test_grace_ends);
    return g_test_run();
}
