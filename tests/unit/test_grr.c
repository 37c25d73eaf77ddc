/*
 * The policy grr: alone it is a round robin over groups, with peers all serve the same group. The
 * jobs alpha, beta and gamma are in different groups, job34 is in alpha's.
 */
#include <errno.h>

#include "sched_fixture.h"

#define EPOCH (20 * QOS_MILLISECOND)

static QosRequest *queue(Fixture *f, const char *job, guint64 bytes)
{
    QosRequest *request = request_new(f, job, QOS_OP_READ, bytes);

    g_assert_cmpint(enter(f, request), ==, QOS_WAIT);
    return request;
}

/* Ends `running` and returns what goes next, which has to be of `job`. */
static QosRequest *then(Fixture *f, QosRequest *running, const char *job)
{
    leave(f, running);
    QosRequest *request = next(f);
    g_assert_nonnull(request);
    g_assert_cmpstr(request->job->id, ==, job);
    return request;
}

/* The group with the most bytes is first; then each has its turn, of one epoch. Jobs of one group
 * take turns within it. */
static void test_alone(void)
{
    static const char *const order[] = {"beta",  "beta",  "alpha", "job34", "gamma",
                                        "gamma", "beta",  "beta",  "alpha", "job34",
                                        "gamma", "gamma", "beta",  "beta"};
    Fixture f;

    fixture_init(&f, &qos_policy_grr, 1);
    QosRequest *running = request_new(&f, "first", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    for (guint i = 0; i < 6; i++) {
        queue(&f, "gamma", 1000);
        queue(&f, "alpha", 1000);
        queue(&f, "job34", 1000);
        queue(&f, "beta", 10000);
    }
    for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
        running = then(&f, running, order[i]);
        f.now += EPOCH / 2;
    }
    /* Time stands still: a group has its turn to the end of what it has, and then, at once, the
     * next has; a new one is first. */
    queue(&f, "hog", 1);
    queue(&f, "hog", 1);
    for (guint i = 0; i < 2; i++)
        running = then(&f, running, "hog");
    for (guint i = 0; i < 8; i++)
        running = then(&f, running, i % 2 == 0 ? "alpha" : "job34");
    for (guint i = 0; i < 2; i++)
        running = then(&f, running, "gamma");
    leave(&f, running);
    g_assert_null(next(&f));
    fixture_clear(&f);
}

/* What does not wait has no turn. */
static void test_nothing_waits(void)
{
    Fixture f;

    fixture_init(&f, &qos_policy_grr, 8);
    for (guint i = 0; i < 100; i++) {
        QosRequest *request = request_new(&f, "alpha", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, request), ==, QOS_GO);
        leave(&f, request);
    }
    fixture_clear(&f);
}

/* --- with peers: two schedulers and a coordinator; messages arrive at once --- */

typedef struct {
    QosPolicyContext context;
    void *policy;
    QosEpochHandler *handler;
    GArray *out;
} Mount;

typedef struct {
    QosJobs registry;
    QosEpochHandler *coordinator;
    GArray *out;
    Mount mounts[2]; /* the nodes 2 and 3 */
} Cluster;

static QosEpochHandler *handler_new(guint64 parent)
{
    const QosEpochConfig config = {.parent = parent,
                                   .incarnation = 1,
                                   .timeout = QOS_SECOND,
                                   .retry = QOS_SECOND,
                                   .patience = 2 * QOS_SECOND,
                                   .reduction = qos_policy_grr.reduction};
    return qos_epoch_tree_new(&config);
}

static void cluster_init(Cluster *cluster)
{
    qos_jobs_init(&cluster->registry, 0);
    cluster->coordinator = handler_new(QOS_EPOCH_HERE);
    cluster->out = qos_epoch_actions_new();
    for (guint i = 0; i < 2; i++) {
        Mount *mount = &cluster->mounts[i];

        mount->handler = handler_new(1);
        mount->out = qos_epoch_actions_new();
        mount->context = (QosPolicyContext){
            .max_wait = QOS_NEVER, .epochs = mount->handler, .epoch_actions = mount->out};
        mount->policy = qos_policy_grr.init(&mount->context, 0);
    }
}

static void cluster_clear(Cluster *cluster)
{
    for (guint i = 0; i < 2; i++) {
        Mount *mount = &cluster->mounts[i];

        qos_policy_grr.shutdown(mount->policy, 0);
        qos_policy_grr.fini(mount->policy);
        qos_epoch_free(mount->handler);
        g_array_unref(mount->out);
    }
    qos_epoch_free(cluster->coordinator);
    g_array_unref(cluster->out);
    qos_jobs_clear(&cluster->registry);
}

/* Calls the scheduler of the mount back. */
static void call_back(Mount *mount, QosTime now)
{
    QosEpochMessage answer;

    while (qos_epoch_take_call_back(mount->out, &answer)) {
        gsize length = 0;
        gconstpointer data = answer.data ? g_bytes_get_data(answer.data, &length) : NULL;

        qos_policy_grr.start_epoch(mount->policy, answer.epoch, data, length, now);
        qos_epoch_message_clear(&answer);
    }
}

/* Delivers what the mounts and the coordinator have to send. */
static void deliver(Cluster *cluster, QosTime now)
{
    for (guint i = 0; i < 2; i++) {
        Mount *mount = &cluster->mounts[i];

        for (guint m = 0; m < mount->out->len; m++) {
            const QosEpochAction *action = &g_array_index(mount->out, QosEpochAction, m);
            g_assert_cmpuint(action->to, ==, 1);
            qos_epoch_receive(cluster->coordinator, 2 + i, &action->message, now, cluster->out);
        }
        g_array_set_size(mount->out, 0);
    }
    for (guint m = 0; m < cluster->out->len; m++) {
        const QosEpochAction *action = &g_array_index(cluster->out, QosEpochAction, m);
        Mount *mount = &cluster->mounts[action->to - 2];

        qos_epoch_receive(mount->handler, 1, &action->message, now, mount->out);
        call_back(mount, now);
    }
    g_array_set_size(cluster->out, 0);
}

static void wait_in(Cluster *cluster, guint mount, const char *job, guint count, guint64 bytes)
{
    for (guint i = 0; i < count; i++) {
        QosRequest *request = g_new0(QosRequest, 1);

        request->job = qos_jobs_job(&cluster->registry, job, 0);
        request->bytes = bytes;
        request->link.data = request;
        qos_policy_grr.incoming(cluster->mounts[mount].policy, request, 0);
    }
}

static void keep_request(QosRequest *request, void *arg)
{
    *(QosRequest **)arg = request;
}

/* The next request of the mount has to be of `job`; NULL: there is none. */
static void serve(Cluster *cluster, guint mount, const char *job, QosTime now)
{
    QosRequest *request = NULL;

    qos_policy_grr.get_next(cluster->mounts[mount].policy, now, keep_request, &request);
    deliver(cluster, now);
    g_assert_cmpstr(request != NULL ? request->job->id : NULL, ==, job);
    if (request != NULL)
        request_free(request);
}

/* One mount has most of beta, the other most of alpha: both serve what has most in both. Where a
 * mount has nothing of it, it serves something else. */
static void test_peers(void)
{
    Cluster cluster;
    QosTime now = EPOCH;

    cluster_init(&cluster);
    wait_in(&cluster, 0, "alpha", 4, 50000);
    wait_in(&cluster, 0, "beta", 4, 30000);
    wait_in(&cluster, 1, "beta", 4, 30000);
    wait_in(&cluster, 1, "gamma", 8, 1000);
    serve(&cluster, 0, "beta", now); /* asks: the first epoch is its own, with alpha */
    serve(&cluster, 1, "beta", now); /* asks, and has to wait */
    now += EPOCH;
    serve(&cluster, 0, "alpha", now); /* asks: now both begin the next */
    g_assert_cmpint(cluster.coordinator->epoch & 0xffff, ==, 2);
    /* alpha had its turn; of the others beta has most. */
    serve(&cluster, 0, "beta", now);
    serve(&cluster, 1, "beta", now);
    serve(&cluster, 1, "beta", now);
    now += EPOCH;
    serve(&cluster, 0, "beta", now);
    serve(&cluster, 1, "beta", now);
    g_assert_cmpint(cluster.coordinator->epoch & 0xffff, ==, 3);
    /* gamma's turn; the first mount has none, and asks for the next while it serves the others. */
    serve(&cluster, 1, "gamma", now);
    serve(&cluster, 0, "alpha", now);
    serve(&cluster, 0, "beta", now);
    serve(&cluster, 0, "alpha", now);
    serve(&cluster, 0, "alpha", now);
    serve(&cluster, 0, NULL, now); /* it takes no part any more: the other is alone */
    now += EPOCH;
    for (guint i = 0; i < 7; i++)
        serve(&cluster, 1, "gamma", now);
    serve(&cluster, 1, NULL, now);
    g_assert_cmpint(cluster.coordinator->state, ==, QOS_EPOCH_IDLE);
    g_assert_cmpint(cluster.coordinator->epoch & 0xffff, ==, 4);
    cluster_clear(&cluster);
}

/* A mount that joins learns which jobs had turns, and knows it once the others have left. */
static void test_turns_are_learned(void)
{
    Cluster cluster;

    cluster_init(&cluster);
    wait_in(&cluster, 0, "alpha", 3, 1000);
    serve(&cluster, 0, "alpha", 0); /* alpha's turn */
    wait_in(&cluster, 1, "gamma", 3, 1000);
    serve(&cluster, 1, "gamma", 0);
    serve(&cluster, 0, "alpha", EPOCH); /* gamma's turn, in both */
    serve(&cluster, 0, "alpha", EPOCH);
    serve(&cluster, 0, NULL, EPOCH);
    wait_in(&cluster, 1, "alpha", 1, 50000);
    wait_in(&cluster, 1, "beta", 2, 1000);
    serve(&cluster, 1, "gamma", 2 * EPOCH); /* asks: alpha had a turn, beta has not */
    serve(&cluster, 1, "beta", 2 * EPOCH);
    serve(&cluster, 1, "beta", 2 * EPOCH);
    serve(&cluster, 1, "alpha", 2 * EPOCH);
    serve(&cluster, 1, "gamma", 2 * EPOCH);
    cluster_clear(&cluster);
}

/* Cut off from its peers a mount goes by its own wish, and takes part again. */
static void test_cut_off(void)
{
    Cluster cluster;
    Mount *mount = &cluster.mounts[0];
    QosRequest *request = NULL;

    cluster_init(&cluster);
    wait_in(&cluster, 0, "alpha", 2, 1000);
    wait_in(&cluster, 0, "beta", 2, 20000);
    qos_policy_grr.get_next(mount->policy, 0, keep_request, &request);
    request_free(request);
    g_array_set_size(mount->out, 0); /* lost */
    qos_epoch_tick(mount->handler, 2 * QOS_SECOND, mount->out);
    call_back(mount, 2 * QOS_SECOND);
    g_array_set_size(mount->out, 0);
    serve(&cluster, 0, "beta", 2 * QOS_SECOND);
    g_assert_cmpint(cluster.coordinator->epoch, ==, 0);
    serve(&cluster, 0, "alpha", 2 * QOS_SECOND + EPOCH);
    g_assert_cmpint(mount->handler->state, ==, QOS_EPOCH_WAITING);
    g_assert_cmpint(cluster.coordinator->epoch & 0xffff, ==, 1);
    serve(&cluster, 0, "alpha", 2 * QOS_SECOND + EPOCH);
    g_assert_cmpint(mount->handler->state, ==, QOS_EPOCH_IDLE);
    cluster_clear(&cluster);
}

/* A policy that is being left takes part no more, and hands out what it holds. */
static void test_shutdown(void)
{
    Cluster cluster;

    cluster_init(&cluster);
    wait_in(&cluster, 0, "alpha", 2, 3000);
    wait_in(&cluster, 0, "beta", 2, 1000);
    serve(&cluster, 0, "beta", 0);
    g_assert_cmpint(cluster.coordinator->state, ==, QOS_EPOCH_WAITING);
    qos_policy_grr.shutdown(cluster.mounts[0].policy, 0);
    deliver(&cluster, 0);
    g_assert_cmpint(cluster.coordinator->state, ==, QOS_EPOCH_IDLE);
    serve(&cluster, 0, "alpha", EPOCH);
    serve(&cluster, 0, "alpha", 2 * EPOCH);
    g_assert_cmpint(cluster.coordinator->epoch & 0xffff, ==, 1);
    wait_in(&cluster, 0, "alpha", 1, 1000); /* it is taken up again */
    serve(&cluster, 0, "alpha", 3 * EPOCH);
    g_assert_cmpint(cluster.coordinator->epoch & 0xffff, ==, 2);
    serve(&cluster, 0, "beta", 3 * EPOCH);
    serve(&cluster, 0, NULL, 3 * EPOCH);
    cluster_clear(&cluster);
}

/* --- the reduction --- */

#define NUMBERS 129

static void random_wish(guint64 *numbers)
{
    for (guint i = 0; i < NUMBERS; i++)
        numbers[i] = ((guint64)g_test_rand_int() << 32 | (guint32)g_test_rand_int()) >>
                     g_test_rand_int_range(0, 60);
}

static void test_reduction(void)
{
    const QosEpochReduction *reduction = &qos_policy_grr.reduction;
    guint64 a[NUMBERS], b[NUMBERS], c[NUMBERS], one[NUMBERS], two[NUMBERS], other[NUMBERS];
    const gsize size = sizeof(a);

    for (guint round = 0; round < 1000; round++) {
        random_wish(a);
        random_wish(b);
        random_wish(c);
        reduction->combine(one, a, size, b, size);
        reduction->combine(two, b, size, a, size);
        g_assert_cmpmem(one, size, two, size);
        reduction->combine(two, one, size, c, size); /* (a b) c */
        reduction->combine(other, b, size, c, size);
        reduction->combine(one, a, size, other, size); /* a (b c) */
        g_assert_cmpmem(one, size, two, size);
        reduction->swab(one, size);
        g_assert_cmpuint(one[7], ==, GUINT64_SWAP_LE_BE(two[7]));
    }
    /* What is longer than a wish, or no whole number, is left alone. */
    guint64 longer[NUMBERS + 1] = {0};
    guint64 room[NUMBERS + 1] = {0};
    reduction->combine(room, longer, sizeof(longer), longer, sizeof(longer));
    reduction->combine(room, longer, 3, longer, sizeof(longer));
    reduction->swab(longer, 3);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/grr/alone", test_alone);
    g_test_add_func("/grr/nothing-waits", test_nothing_waits);
    g_test_add_func("/grr/peers", test_peers);
    g_test_add_func("/grr/turns-are-learned", test_turns_are_learned);
    g_test_add_func("/grr/cut-off", test_cut_off);
    g_test_add_func("/grr/shutdown", test_shutdown);
    g_test_add_func("/grr/reduction", test_reduction);
    return g_test_run();
}
