/*
 * Random operations under random faults in a tree of a root (1), servers (2 and 3) and mounts (4 to
 * 8, below 2 or 3). What holds in every step: no two holds anywhere conflict, the counts balance,
 * tokens grow; and in the end every request has ended. QOSFS_SEED=N repeats one.
 */
#include "credit_fixture.h"

#define USES      24
#define RESOURCES 3

typedef struct {
    Cluster cluster;
    Use uses[USES];
    QosOwnerId at[USES];                   /* the owner of the use */
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
    return hold->user == NULL ? 0 : GPOINTER_TO_UINT(hold->user) - 1;
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
    const char *only = g_getenv("QOSFS_SEED");
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
    g_test_add_data_func("/credit-random/no-faults", GUINT_TO_POINTER(0), test_random);
    g_test_add_data_func("/credit-random/losses", GUINT_TO_POINTER(1), test_random);
    g_test_add_data_func("/credit-random/crashes", GUINT_TO_POINTER(2), test_random);
    return g_test_run();
}
