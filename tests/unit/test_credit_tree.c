/*
 * The resource manager in trees: a root (1), servers (2 and 3), mounts (4 to 8, below 2 or 3), and
 * random operations under random faults. What holds in every step: no two holds anywhere conflict,
 * the counts balance, tokens grow; and in the end every request has ended.
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
    g_assert_cmpuint(c.nodes[6].conflicts, ==, 1); /* who holds it is told, two hops away */
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
    while (other.verdict == QOS_CREDIT_WAITING) {
        g_assert_cmpint(other.verdict, !=, QOS_CREDIT_GRANTED);
        run(&c, 20 * QOS_MILLISECOND);
    }
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_null(one.hold.book);
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

/* A callback in its grace costs a server nothing: who holds what is wanted is not known yet. */
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

/* A server that was welcomed to the grace, and whose claims do not come, lends on under the tokens
 * that it heard of until its lease ends: what is granted afterwards is above them. */
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

static void quantities(const QosResource *resource, QosCredit *ret_credit,
                       gpointer arg G_GNUC_UNUSED)
{
    switch (qos_resource_type(resource->type)->shape) {
    case QOS_SHAPE_MODES:
        *ret_credit = (QosCredit){.reads = G_MAXUINT32, .writes = G_MAXUINT32};
        break;
    case QOS_SHAPE_SPANS:
        *ret_credit = qos_credit_span(0, G_MAXUINT64, TRUE);
        break;
    case QOS_SHAPE_AMOUNT:
        ret_credit->amount = 1000;
        break;
    }
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

/* Random operations and faults */

#define USES      24
#define RESOURCES 3

typedef struct {
    Cluster cluster;
    Use uses[USES];
    QosOwnerId at[USES];                   /* whose */
    QosToken tokens[RESOURCES][NODES + 1]; /* the largest that was seen of each */
    guint granted;
} Random;

static gboolean is_held(const Random *r, guint i)
{
    const Node *node = &r->cluster.nodes[r->at[i]];

    return node->owner != NULL && r->uses[i].hold.book != NULL && is_alive(&r->cluster, r->at[i]);
}

static guint number_of(const QosHold *hold)
{
    return ((const Use *)hold)->hold.user == NULL ? 0 : GPOINTER_TO_UINT(hold->user) - 1;
}

static void check_holds(Random *r, guint seed)
{
    for (guint i = 0; i < USES; i++) {
        if (!is_held(r, i))
            continue;
        const QosHold *one = &r->uses[i].hold;
        guint number = number_of(one);
        guint64 amount = 0;
        for (guint j = 0; j < USES; j++) {
            const QosHold *other = &r->uses[j].hold;
            if (!is_held(r, j) || number_of(other) != number)
                continue;
            amount += other->credit.amount;
            if (number < 2 && r->at[i] != r->at[j] &&
                (one->credit.writes & other->credit.reads) != 0)
                g_error("seed %u: %u and %u conflict at %" G_GINT64_FORMAT, seed, i, j,
                        r->cluster.now);
        }
        if (number == 2)
            g_assert_cmpuint(amount, <=, 1000);
        QosToken *largest = &r->tokens[number][r->at[i]];
        for (QosOwnerId id = 1; id <= NODES && number < 2 && one->credit.writes != 0; id++)
            g_assert_true(id == r->at[i] || one->token > r->tokens[number][id]);
        *largest = MAX(*largest, one->token);
    }
}

static QosResource resource_of(guint number)
{
    QosResource resource;

    if (number < 2)
        return inode((guint8)number);
    qos_resource_init_kind(&resource, QOS_RESOURCE_QUANTITY, QOS_QUANTITY_POWER, "p", 1);
    return resource;
}

static void begin(Random *r, guint i)
{
    Cluster *c = &r->cluster;
    guint number = (guint)g_rand_int_range(c->random, 0, RESOURCES);
    QosCredit want = g_rand_boolean(c->random) ? reading : writing;
    guint flags = (guint)g_rand_int_range(c->random, 0, 32) & ~QOS_CREDIT_NON_BLOCK_LOCAL;

    r->at[i] = (QosOwnerId)g_rand_int_range(c->random, 4, NODES + 1);
    if (c->nodes[r->at[i]].owner == NULL)
        return;
    if (number == 2)
        want = (QosCredit){.amount = (guint64)g_rand_int_range(c->random, 1, 700)};
    memset(&r->uses[i], 0, sizeof(Use));
    r->uses[i].hold.user = GUINT_TO_POINTER(number + 1);
    QosResource resource = resource_of(number);
    r->uses[i].verdict = qos_credit_get(c->nodes[r->at[i]].owner, clock_of(c, r->at[i]), &resource,
                                        &want, flags, &r->uses[i].hold);
    drain(c, r->at[i]);
}

static void forget_uses(Random *r, QosOwnerId id)
{
    for (guint i = 0; i < USES; i++) {
        if (r->at[i] == id)
            memset(&r->uses[i], 0, sizeof(Use));
    }
}

static void fault(Random *r)
{
    Cluster *c = &r->cluster;
    QosOwnerId id = (QosOwnerId)g_rand_int_range(c->random, 1, NODES + 1);
    Node *node = &c->nodes[id];

    if (node->is_deaf || (node->owner != NULL && g_rand_boolean(c->random))) {
        node->is_deaf = !node->is_deaf;
    } else if (node->owner != NULL) {
        crash(c, id);
        forget_uses(r, id);
    } else {
        start(c, id);
    }
}

static void operate(Random *r)
{
    Cluster *c = &r->cluster;
    guint i = (guint)g_rand_int_range(c->random, 0, USES);
    Use *use = &r->uses[i];
    Node *node = &c->nodes[r->at[i]];

    if (use->hold.book == NULL && use->hold.request == NULL) {
        begin(r, i);
    } else if (node->owner != NULL && use->hold.book != NULL && use->hold.request == NULL &&
               number_of(&use->hold) < 2 && g_rand_int_range(c->random, 0, 4) == 0) {
        QosCredit want = g_rand_boolean(c->random) ? reading : writing;
        convert(c, r->at[i], want, 0, use);
    } else if (node->owner != NULL && g_rand_int_range(c->random, 0, 3) == 0) {
        put(c, r->at[i], use);
    }
    r->granted += use->hold.book != NULL;
    if (g_rand_int_range(c->random, 0, 8) == 0 && c->nodes[4].owner != NULL) {
        QosResource resource = resource_of((guint)g_rand_int_range(c->random, 0, RESOURCES));
        qos_credit_cancel(c->nodes[4].owner, clock_of(c, 4), &resource, &writing,
                          g_rand_boolean(c->random));
        drain(c, 4);
    }
}

static void settle(Random *r, guint seed)
{
    Cluster *c = &r->cluster;

    c->loss = c->repeat = 0;
    c->jitter = 0;
    for (QosOwnerId id = 1; id <= NODES; id++) {
        c->nodes[id].is_deaf = FALSE;
        if (c->nodes[id].owner == NULL)
            start(c, id);
    }
    for (guint round = 0; round < 40; round++) {
        for (guint i = 0; i < USES; i++) {
            if (r->uses[i].hold.book != NULL && r->uses[i].hold.request == NULL)
                put(c, r->at[i], &r->uses[i]);
        }
        run(c, QOS_SECOND);
        check_holds(r, seed);
    }
    for (guint i = 0; i < USES; i++) {
        if (r->uses[i].hold.request != NULL)
            g_error("seed %u: use %u of %u never ended", seed, i, number_of(&r->uses[i].hold));
        put(c, r->at[i], &r->uses[i]);
    }
}

/* With everything given back, the books are empty. */
static void check_empty(Random *r)
{
    Cluster *c = &r->cluster;

    for (QosOwnerId id = NODES; id >= 2; id--) {
        for (guint number = 0; number < RESOURCES; number++) {
            QosResource resource = resource_of(number);
            QosCredit all = writing; /* stands against whatever is had of it */
            if (number == 2)
                all = qos_credit_owned(c->nodes[id].owner, &resource);
            g_assert_true(
                qos_credit_cancel(c->nodes[id].owner, clock_of(c, id), &resource, &all, FALSE));
            drain(c, id);
        }
        run(c, QOS_SECOND);
    }
    g_assert_cmpuint(qos_owner_lent(c->nodes[1].owner), ==, 0);
}

static guint play(guint seed, guint faults)
{
    Random *r = g_new0(Random, 1);
    Cluster *c = &r->cluster;

    cluster_init(c);
    c->random = g_rand_new_with_seed(seed);
    for (QosOwnerId id = 1; id <= NODES && faults > 1; id++)
        c->nodes[id].drift = g_rand_int_range(c->random, -10000, 10001);
    c->nodes[1].config.capital = quantities;
    start(c, 1);
    for (QosOwnerId id = 2; id <= NODES; id++) {
        node_config(c, id, id <= 3 ? 1 : 2 + id % 2)->contention = seed % 3 == 0 ? 20 : 0;
        c->nodes[id].config.caches = id == 4;
        c->nodes[id].agrees = TRUE;
        start(c, id);
    }
    run(c, QOS_SECOND);
    c->loss = faults * 5;
    c->repeat = faults * 5;
    c->jitter = faults * 20 * QOS_MILLISECOND;
    for (guint i = 0; i < 400; i++) {
        operate(r);
        if (faults > 1 && g_rand_int_range(c->random, 0, 20) == 0)
            fault(r);
        run(c, (QosTime)(g_rand_double(c->random) * (double)QOS_SECOND / 5));
        check_holds(r, seed);
    }
    settle(r, seed);
    check_empty(r);
    guint granted = r->granted;
    cluster_clear(c);
    g_free(r);
    return granted;
}

static void test_random(gconstpointer data)
{
    guint faults = GPOINTER_TO_UINT(data);
    const char *only = g_getenv("SEED");
    guint first = only != NULL ? (guint)g_ascii_strtoull(only, NULL, 10) : 1;
    guint last = only != NULL ? first : 60;
    guint granted = 0;

    for (guint seed = first; seed <= last; seed++) {
        g_test_message("seed %u", seed);
        granted += play(seed, faults);
    }
    g_assert_cmpuint(granted, >, only != NULL ? 0 : 1000);
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
    g_test_add_data_func("/credit-tree/random", GUINT_TO_POINTER(0), test_random);
    g_test_add_data_func("/credit-tree/random-losses", GUINT_TO_POINTER(1), test_random);
    g_test_add_data_func("/credit-tree/random-crashes", GUINT_TO_POINTER(2), test_random);
    return g_test_run();
}
