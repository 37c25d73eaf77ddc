/*
 * The resource manager in trees, step by step: a root (1), servers (2 and 3), mounts (4 to 8, below
 * 2 or 3). test_credit_random.c has the same trees under random operations.
 */
#include "credit_fixture.h"

static void tree_init(Cluster *c)
{
    cluster_init(c);
    start(c, 1);
    for (QosOwnerId id = 2; id <= NODES; id++) {
        node_config(c, id, id <= 3 ? 1 : 2 + id % 2);
        start(c, id);
    }
    run(c, 2 * QOS_SECOND);
    for (QosOwnerId id = 2; id <= NODES; id++)
        g_assert_true(is_alive(c, id));
}

/* Mounts 4, 6, 8 are below server 2; 5 and 7 below 3. */
static void test_hops(void)
{
    Cluster c;
    Use uses[3], writer;
    tree_init(&c);
    g_assert_cmpint(got(&c, 4, reading, 0, &uses[0]), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(got(&c, 6, reading, 0, &uses[1]), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(got(&c, 5, reading, 0, &uses[2]), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 2);
    g_assert_cmpuint(qos_owner_lent(c.nodes[2].owner), ==, 2);
    put(&c, 4, &uses[0]);
    put(&c, 5, &uses[2]);
    g_assert_cmpint(got(&c, 7, writing, 0, &writer), ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(c.nodes[6].conflicts, ==, 1); /* the holder is told, two hops away */
    put(&c, 6, &uses[1]);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(writer.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(qos_owner_lent(c.nodes[2].owner), ==, 0);
    g_assert_cmpuint(writer.hold.token, >, uses[0].hold.token);
    g_assert_cmpuint(writer.hold.token, >, uses[1].hold.token);
    cluster_clear(&c);
}

/* What a server has is lent on without a word to the root. */
static void test_server_lends_on(void)
{
    Cluster c;
    Use use;
    tree_init(&c);
    g_assert_cmpint(got(&c, 4, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &use);
    c.nodes[1].is_deaf = TRUE;
    g_assert_cmpint(got(&c, 6, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_upgrades_below_two_servers(void)
{
    Cluster c;
    Use one, other;
    tree_init(&c);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, reading, 0, &other);
    convert(&c, 4, writing, 0, &one);
    convert(&c, 5, writing, 0, &other);
    run(&c, 20 * QOS_MILLISECOND);
    guint denied = (one.verdict == QOS_CREDIT_DENIED) + (other.verdict == QOS_CREDIT_DENIED);
    g_assert_cmpuint(denied, ==, 1);
    Use *loser = one.verdict == QOS_CREDIT_DENIED ? &one : &other;
    Use *winner = loser == &one ? &other : &one;
    put(&c, loser == &one ? 4 : 5, loser);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(winner->verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_open_file_two_hops(void)
{
    Cluster c;
    Use holder, denied;
    tree_init(&c);
    got(&c, 4, writing, QOS_CREDIT_LASTING, &holder);
    g_assert_cmpint(got(&c, 5, reading, 0, &denied), ==, QOS_CREDIT_DENIED);
    g_assert_cmpint(got(&c, 6, reading, 0, &denied), ==, QOS_CREDIT_DENIED);
    g_assert_cmpint(got(&c, 5, reading, QOS_CREDIT_WAIT, &denied), ==, QOS_CREDIT_WAITING);
    put(&c, 4, &holder);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(denied.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* A dead server: those below it stop before others are given what they had. */
static void test_server_dies(void)
{
    Cluster c;
    Use one, other;
    tree_init(&c);
    got(&c, 4, writing, 0, &one);
    c.nodes[1].is_deaf = TRUE; /* it does not learn of the tokens that the server gives now */
    for (guint i = 0; i < 20; i++) {
        put(&c, i % 2 ? 6 : 4, &one);
        run(&c, 20 * QOS_MILLISECOND);
        g_assert_cmpint(got(&c, i % 2 ? 4 : 6, writing, 0, &one), ==, QOS_CREDIT_GRANTED);
    }
    crash(&c, 2);
    c.nodes[1].is_deaf = FALSE;
    get(&c, 5, writing, 0, &other);
    while (one.hold.book != NULL) {
        g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
        run(&c, 20 * QOS_MILLISECOND);
    }
    while (other.verdict == QOS_CREDIT_WAITING)
        run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, one.hold.token);
    start(&c, 2);
    run(&c, 2 * LEASE);
    put(&c, 5, &other);
    g_assert_cmpint(got(&c, 4, writing, 0, &one), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* It comes back at once, but those below it may go on until its old lease ends. */
static void test_server_restarts(void)
{
    Cluster c;
    Use one, other;
    tree_init(&c);
    got(&c, 4, writing, 0, &one);
    c.nodes[4].is_deaf = TRUE;
    crash(&c, 2);
    start(&c, 2);
    get(&c, 5, writing, 0, &other);
    while (other.verdict == QOS_CREDIT_WAITING)
        run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_false(is_alive(&c, 4));
    cluster_clear(&c);
}

/* What all are lent to, at both levels. */
static guint64 lent(const Cluster *c)
{
    guint64 sum = 0;

    for (QosOwnerId id = 1; id <= 3; id++)
        sum += qos_owner_lent(c->nodes[id].owner);
    return sum;
}

/* A server restarts: its lender restores what it had, its mounts reclaim that, and it is as if
 * nothing had been. */
static void test_server_reclaims(void)
{
    Cluster c;
    Use uses[20], other;
    QosToken newest = 0;
    tree_init(&c);
    for (guint i = 0; i < G_N_ELEMENTS(uses); i++) {
        get_of(&c, i % 2 ? 4 : 6, inode((guint8)i), writing, 0, &uses[i]);
        run(&c, 10 * QOS_MILLISECOND);
        g_assert_cmpint(uses[i].verdict, ==, QOS_CREDIT_GRANTED);
        newest = MAX(newest, uses[i].hold.token);
    }
    const guint64 before = lent(&c);
    crash(&c, 2);
    start(&c, 2);
    g_assert_true(qos_owner_in_grace(c.nodes[2].owner));
    run(&c, LEASE / 2);
    g_assert_false(qos_owner_in_grace(c.nodes[2].owner));
    g_assert_cmpuint(lent(&c), ==, before);
    for (guint i = 0; i < G_N_ELEMENTS(uses); i++)
        g_assert_nonnull(uses[i].hold.book); /* used all the time */
    get_of(&c, 5, inode(3), writing, 0, &other);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    put(&c, 4, &uses[3]);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, newest);
    cluster_clear(&c);
}

/* What it gives afterwards has larger tokens than what it gave before, of which its lender never
 * heard. */
static void test_server_tokens(void)
{
    Cluster c;
    Use use;
    tree_init(&c);
    g_assert_cmpint(got(&c, 4, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    c.nodes[1].is_deaf = TRUE;
    for (guint i = 0; i < 20; i++) {
        put(&c, i % 2 ? 6 : 4, &use);
        g_assert_cmpint(got(&c, i % 2 ? 4 : 6, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    }
    QosToken token = use.hold.token;
    crash(&c, 2);
    c.nodes[1].is_deaf = FALSE;
    start(&c, 2);
    run(&c, LEASE / 2);
    put(&c, 4, &use);
    g_assert_cmpint(got(&c, 6, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(use.hold.token, >, token);
    cluster_clear(&c);
}

static guint letters_to(const Cluster *c, QosOwnerId id)
{
    guint count = 0;

    for (guint i = 0; i < c->letters->len; i++)
        count += ((const Letter *)c->letters->pdata[i])->to == id;
    return count;
}

/* Mounts that come before it knows what it has wait, and lose nothing. */
static void test_server_claims_wait(void)
{
    Cluster c;
    Use use, other;
    tree_init(&c);
    got(&c, 4, writing, 0, &use);
    crash(&c, 2);
    start(&c, 2);
    while (letters_to(&c, 2) < 2) /* WELCOME and RESTORE */
        g_assert_true(step(&c, c.now + QOS_SECOND));
    g_ptr_array_set_size(c.letters, (gint)c.letters->len - 1);
    get_of(&c, 4, inode(8), writing, 0, &other);
    run(&c, 20 * QOS_MILLISECOND); /* mount 4 learns that it has restarted, and says hello to it */
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(qos_owner_lent(c.nodes[2].owner), ==, 0);
    run(&c, 3 * QOS_SECOND);
    g_assert_nonnull(use.hold.book);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(qos_owner_lent(c.nodes[2].owner), ==, 2);
    cluster_clear(&c);
}

/* The root restarts while it restores: a server that does not know all that it had claims nothing,
 * so that the root's grace waits for those below it. */
static void test_server_and_root_restart(void)
{
    Cluster c;
    Use use, other;
    tree_init(&c);
    g_assert_cmpint(got(&c, 4, writing, 0, &use), ==, QOS_CREDIT_GRANTED); /* the last restored */
    for (guint i = 0; i < 2 * QOS_CREDIT_BATCH; i++) {
        QosResource resource;
        qos_resource_init(&resource, QOS_RESOURCE_INODE, &i, sizeof(i));
        get_of(&c, 4, resource, writing, 0, &other);
        run(&c, 5 * QOS_MILLISECOND);
        put(&c, 4, &other);
    }
    c.nodes[4].is_deaf = TRUE;
    crash(&c, 2);
    start(&c, 2);
    while (letters_to(&c, 2) < 4) /* WELCOME, and three times RESTORE */
        g_assert_true(step(&c, c.now + QOS_SECOND));
    g_ptr_array_set_size(c.letters, (gint)c.letters->len - 1);
    run(&c, 2 * QOS_MILLISECOND);
    crash(&c, 1);
    start(&c, 1);
    get(&c, 5, writing, 0, &other);
    while (is_alive(&c, 4)) {
        if (other.verdict != QOS_CREDIT_WAITING) /* its server had no lender */
            get(&c, 5, writing, 0, &other);
        run(&c, 20 * QOS_MILLISECOND);
        g_assert_cmpint(other.verdict, !=, QOS_CREDIT_GRANTED);
    }
    g_assert_null(use.hold.book);
    cluster_clear(&c);
}

/* A callback in its grace costs a server nothing: the holders of what is wanted are not known yet.
 */
static void test_server_grace_is_no_delay(void)
{
    Cluster c;
    Use kept, wanted, other;
    tree_init(&c);
    got(&c, 4, writing, 0, &kept);
    get_of(&c, 6, inode(8), writing, 0, &wanted);
    run(&c, 10 * QOS_MILLISECOND);
    c.nodes[6].is_deaf = TRUE;
    crash(&c, 2);
    start(&c, 2);
    run(&c, 10 * QOS_MILLISECOND);
    get_of(&c, 5, inode(8), writing, 0, &other);
    while (other.verdict == QOS_CREDIT_WAITING && c.now < 10 * LEASE)
        run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_false(is_alive(&c, 6));
    g_assert_nonnull(kept.hold.book);
    cluster_clear(&c);
}

/* One that was away for longer than its lease has lost it, and waits for nobody. */
static void test_server_comes_late(void)
{
    Cluster c;
    Use one, other;
    tree_init(&c);
    got(&c, 4, writing, 0, &one);
    crash(&c, 2);
    run(&c, 2 * LEASE);
    start(&c, 2);
    run(&c, 3 * QOS_SECOND);
    g_assert_false(qos_owner_in_grace(c.nodes[2].owner));
    g_assert_cmpuint(lent(&c), ==, 0);
    g_assert_cmpint(got(&c, 4, writing, 0, &other), ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_root_restarts(void)
{
    Cluster c;
    Use one, other;
    tree_init(&c);
    got(&c, 4, writing, 0, &one);
    QosToken token = one.hold.token;
    crash(&c, 1);
    start(&c, 1);
    run(&c, 5 * QOS_SECOND);
    g_assert_false(qos_owner_in_grace(c.nodes[1].owner));
    g_assert_nonnull(one.hold.book); /* the server has reclaimed it, and the mount knows nothing */
    g_assert_cmpint(got(&c, 5, writing, 0, &other), ==, QOS_CREDIT_WAITING);
    put(&c, 4, &one);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, token);
    cluster_clear(&c);
}

/* A server was welcomed to the grace, but its claims do not come. It lends on under the tokens that
 * it heard of until its lease ends: what is granted afterwards is above them. */
static void test_claims_are_lost(void)
{
    Cluster c;
    Use use, other;
    QosToken token = 0;
    tree_init(&c);
    g_assert_cmpint(got(&c, 4, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &use);
    crash(&c, 1);
    start(&c, 1);
    const QosToken first = qos_owner_token(c.nodes[1].owner);
    while (qos_owner_token(c.nodes[2].owner) < first) /* until it is welcomed */
        g_assert_true(step(&c, c.now + QOS_SECOND));
    c.nodes[1].is_deaf = TRUE;
    for (guint i = 0; i < 20; i++) {
        g_assert_cmpint(got(&c, i % 2 ? 4 : 6, writing, 0, &use), ==, QOS_CREDIT_GRANTED);
        token = use.hold.token;
        put(&c, i % 2 ? 4 : 6, &use);
    }
    get(&c, 1, writing, 0, &other);
    run(&c, 2 * LEASE);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(other.hold.token, >, token);
    cluster_clear(&c);
}

static void test_amounts_below_two_servers(void)
{
    Cluster c;
    Use one, other;
    QosResource quota;
    cluster_init(&c);
    c.nodes[1].config.capital = quantities;
    start(&c, 1);
    for (QosOwnerId id = 2; id <= 5; id++) {
        node_config(&c, id, id <= 3 ? 1 : 2 + id % 2);
        start(&c, id);
    }
    run(&c, 2 * QOS_SECOND);
    qos_resource_init_kind(&quota, QOS_RESOURCE_QUANTITY, QOS_QUANTITY_QUOTA, "u", 1);
    get_of(&c, 4, quota, (QosCredit){.amount = 900}, 0, &one);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &one);
    get_of(&c, 5, quota, (QosCredit){.amount = 500}, 0, &other);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(qos_credit_owned(c.nodes[4].owner, &quota).amount, ==, 500);
    cluster_clear(&c);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit-tree/hops", test_hops);
    g_test_add_func("/credit-tree/server-lends-on", test_server_lends_on);
    g_test_add_func("/credit-tree/two-upgrades", test_upgrades_below_two_servers);
    g_test_add_func("/credit-tree/open-file", test_open_file_two_hops);
    g_test_add_func("/credit-tree/server-dies", test_server_dies);
    g_test_add_func("/credit-tree/server-restarts", test_server_restarts);
    g_test_add_func("/credit-tree/server-reclaims", test_server_reclaims);
    g_test_add_func("/credit-tree/server-tokens", test_server_tokens);
    g_test_add_func("/credit-tree/server-claims-wait", test_server_claims_wait);
    g_test_add_func("/credit-tree/server-and-root-restart", test_server_and_root_restart);
    g_test_add_func("/credit-tree/server-grace-is-no-delay", test_server_grace_is_no_delay);
    g_test_add_func("/credit-tree/server-comes-late", test_server_comes_late);
    g_test_add_func("/credit-tree/root-restarts", test_root_restarts);
    g_test_add_func("/credit-tree/claims-are-lost", test_claims_are_lost);
    g_test_add_func("/credit-tree/amounts", test_amounts_below_two_servers);
    return g_test_run();
}
