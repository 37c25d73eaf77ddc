/*
 * The resource manager with a root and mounts: the verbs and flags, with the time stepped by hand.
 * Upgrades, types and leases have files of their own; test_credit_tree.c goes on with deeper trees
 * and random faults.
 */
#include "credit_fixture.h"

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

/* What is in use is not dropped, because its user may cache more. Other uses of the resource go on.
 */
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

static void take_two(gboolean is_rising)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 1);
    QosResource file = inode(7);
    file.type = QOS_RESOURCE_EXTENT;
    QosCredit low = qos_credit_span(5, 6, TRUE), high = qos_credit_span(8, 9, TRUE);
    get_of(&c, 4, file, is_rising ? low : high, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    other = (Use){.hold.after = &one.hold};
    qos_credit_get(c.nodes[4].owner, c.now, &file, is_rising ? &high : &low, 0, &other.hold);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_nonnull(other.hold.book);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &low);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &high);
    cluster_clear(&c);
}

/* An assertion fails if a caller takes two resources in the wrong order. */
static void test_order(void)
{
    if (g_test_subprocess()) {
        take_two(FALSE);
        return;
    }
    take_two(TRUE);
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    g_test_trap_assert_failed();
    g_test_trap_assert_stderr("*may_follow*");
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
    g_test_add_func("/credit/order", test_order);
    g_test_add_func("/credit/withdraw", test_withdraw);
    g_test_add_func("/credit/reserve", test_reserve);
    g_test_add_func("/credit/full", test_full);
    g_test_add_func("/credit/contention", test_contention);
    return g_test_run();
}
