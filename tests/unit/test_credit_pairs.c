/*
 * What renames do: users of several mounts that cache take two inodes of one group, in order, and
 * keep the first while they wait for the second. A mount drops what others want of its cache some
 * time after it was told, and uses it again meanwhile. What holds: no two mounts hold what
 * conflicts, nothing is lost, and nobody waits for long. QOSFS_SEED=N repeats one.
 */
#include "credit_fixture.h"

#define FIRST   4 /* mount */
#define MOUNTS  3
#define USERS   3 /* of a mount */
#define INODES  6
#define TURNS   300 /* of all users together */
#define SEEDS   40
#define PATIENT (2 * QOS_SECOND) /* far from the end of a lease */

typedef struct {
    QosOwnerId mount;
    Use uses[2];
    guint64 numbers[2];
    gboolean writes[2];
    guint asked;   /* for so many */
    QosTime until; /* it does nothing; then goes on */
    QosTime since; /* it has been at these */
} User;

/* A callback that the mount has not answered. */
typedef struct {
    QosOwnerId mount;
    QosCredit wanted;
    QosTime due;
} Drop;

typedef struct {
    Cluster cluster; /* first */
    User users[MOUNTS * USERS];
    GArray *drops;
    guint seed, pairs;
    gboolean is_ending;
} Pairs;

static const QosResourceType *type(void)
{
    return qos_resource_type(QOS_RESOURCE_INODES);
}

static QosResource group(void)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, "group", 5);
    return resource;
}

static QosTime chance(Pairs *p, QosTime most)
{
    return (QosTime)(g_rand_double(p->cluster.random) * (double)most);
}

static void note_conflict(Cluster *c, QosOwnerId id, const QosOutput *output)
{
    Pairs *p = (Pairs *)c;
    const Drop drop = {.mount = id,
                       .wanted = qos_credit_copy(type(), &output->credit),
                       .due = c->now + chance(p, 10 * QOS_MILLISECOND)};

    g_array_append_val(p->drops, drop);
}

static void make_drops(Pairs *p)
{
    const QosResource resource = group();

    for (guint i = 0; i < p->drops->len;) {
        Drop drop = g_array_index(p->drops, Drop, i);

        if (drop.due > p->cluster.now) {
            i++;
            continue;
        }
        g_array_remove_index(p->drops, i);
        qos_credit_cancel(p->cluster.nodes[drop.mount].owner, clock_of(&p->cluster, drop.mount),
                          &resource, &drop.wanted, FALSE);
        drain(&p->cluster, drop.mount);
        qos_credit_clear(type(), &drop.wanted);
    }
}

/* As fs/coherence/op_credits.c does: what is cached, else with patience. */
static void ask(Pairs *p, User *user)
{
    const guint i = user->asked++;
    Use *use = &user->uses[i];
    QosCredit want = qos_credit_span(user->numbers[i], user->numbers[i], user->writes[i]);

    get_of(&p->cluster, user->mount, group(), want, QOS_CREDIT_NON_BLOCK_LOCAL, use);
    if (use->verdict == QOS_CREDIT_DENIED)
        get_of(&p->cluster, user->mount, group(), want, QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, use);
    qos_credit_clear(type(), &want);
}

static void choose(Pairs *p, User *user)
{
    GRand *random = p->cluster.random;

    user->numbers[0] = (guint64)g_rand_int_range(random, 0, INODES - 1);
    user->numbers[1] = (guint64)g_rand_int_range(random, (gint)user->numbers[0] + 1, INODES);
    for (guint i = 0; i < 2; i++)
        user->writes[i] = g_rand_int_range(random, 0, 3) > 0;
    user->since = p->cluster.now;
    p->pairs++;
}

static void put_both(Pairs *p, User *user)
{
    const guint first = (guint)g_rand_int_range(p->cluster.random, 0, 2);

    put(&p->cluster, user->mount, &user->uses[first]);
    put(&p->cluster, user->mount, &user->uses[1 - first]);
    user->asked = 0;
}

static void go_on(Pairs *p, User *user)
{
    const Cluster *c = &p->cluster;

    if (user->asked > 0 && user->uses[user->asked - 1].verdict == QOS_CREDIT_WAITING) {
        if (c->now - user->since > PATIENT)
            g_error("seed %u: mount %u waits for %u and %u since %" G_GINT64_FORMAT " ms", p->seed,
                    (guint)user->mount, (guint)user->numbers[0], (guint)user->numbers[1],
                    (c->now - user->since) / QOS_MILLISECOND);
        return;
    }
    if (user->asked > 0)
        g_assert_cmpint(user->uses[user->asked - 1].verdict, ==, QOS_CREDIT_GRANTED);
    if (c->now < user->until || (p->is_ending && user->asked == 0))
        return;
    if (user->asked == 0)
        choose(p, user);
    if (user->asked < 2)
        ask(p, user);
    else
        put_both(p, user);
    user->until = c->now + chance(p, 5 * QOS_MILLISECOND);
}

static void check_conflicts(const Pairs *p)
{
    for (guint i = 0; i < 2 * MOUNTS * USERS; i++) {
        const User *one = &p->users[i / 2];

        for (guint j = 0; j < 2 * MOUNTS * USERS; j++) {
            const User *other = &p->users[j / 2];

            if (one->mount != other->mount && one->uses[i % 2].hold.book != NULL &&
                other->uses[j % 2].hold.book != NULL && one->writes[i % 2] &&
                one->numbers[i % 2] == other->numbers[j % 2])
                g_error("seed %u: two mounts hold %u", p->seed, (guint)one->numbers[i % 2]);
        }
    }
}

static gboolean are_idle(const Pairs *p)
{
    for (guint i = 0; i < MOUNTS * USERS; i++) {
        if (p->users[i].asked > 0)
            return FALSE;
    }
    return TRUE;
}

static void set_up(Pairs *p, guint seed)
{
    Cluster *c = &p->cluster;

    cluster_init(c);
    c->random = g_rand_new_with_seed(seed);
    c->latency = (1 + seed % 4) * QOS_MILLISECOND; /* in order, as TCP brings them */
    p->seed = seed;
    p->drops = g_array_new(FALSE, FALSE, sizeof(Drop));
    start(c, 1);
    for (guint i = 0; i < MOUNTS; i++) {
        node_config(c, FIRST + i, 1)->caches = TRUE;
        c->nodes[FIRST + i].conflicted = note_conflict;
        start(c, FIRST + i);
    }
    for (guint i = 0; i < MOUNTS * USERS; i++)
        p->users[i].mount = FIRST + i / USERS;
    run(c, 100 * QOS_MILLISECOND);
}

static void play(guint seed)
{
    g_autofree Pairs *p = g_new0(Pairs, 1);

    set_up(p, seed);
    while (!p->is_ending || !are_idle(p)) {
        p->is_ending = p->pairs >= TURNS;
        for (guint i = 0; i < MOUNTS * USERS; i++)
            go_on(p, &p->users[i]);
        make_drops(p);
        check_conflicts(p);
        run(&p->cluster, QOS_MILLISECOND);
    }
    for (guint i = 0; i < MOUNTS; i++)
        g_assert_cmpuint(p->cluster.nodes[FIRST + i].lost, ==, 0);
    for (guint i = 0; i < p->drops->len; i++)
        qos_credit_clear(type(), &g_array_index(p->drops, Drop, i).wanted);
    g_array_unref(p->drops);
    cluster_clear(&p->cluster);
}

static void test_nobody_waits_for_long(void)
{
    const char *only = g_getenv("QOSFS_SEED");

    if (only != NULL) {
        play((guint)g_ascii_strtoull(only, NULL, 10));
        return;
    }
    for (guint seed = 1; seed <= SEEDS; seed++) {
        g_test_message("seed %u", seed);
        play(seed);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit-pairs/nobody-waits-for-long", test_nobody_waits_for_long);
    return g_test_run();
}
