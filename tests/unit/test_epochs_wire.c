/*
 * The epochs of two mounts over a server, frame by frame: fs/epochs.c at the mounts, with the
 * policy grr in their schedulers, and server/epochs.c. The jobs alpha, beta and gamma are in
 * different groups.
 */
#include "sched_fixture.h"

#include "fs/epochs.h"
#include "server/epochs.h"

#define EPOCH  (20 * QOS_MILLISECOND)
#define SERVER 77
#define MOUNTS 2

typedef struct {
    Fixture fixture;
    QosEpochs *epochs;
    QosRequest *running;
} Mount;

typedef struct {
    QosServerEpochs *server;
    Mount mounts[MOUNTS]; /* the clients 1 and 2 */
    gboolean is_cut[MOUNTS];
} Cluster;

static void cluster_init(Cluster *cluster)
{
    *cluster = (Cluster){.server = qos_server_epochs_new(5)};
    for (guint i = 0; i < MOUNTS; i++) {
        Mount *mount = &cluster->mounts[i];

        fixture_init(&mount->fixture, &qos_policy_grr, 1);
        mount->epochs = qos_epochs_new();
        qos_epochs_join(mount->epochs, mount->fixture.sched, SERVER, 3, 0);
        mount->running = request_new(&mount->fixture, "first", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&mount->fixture, mount->running), ==, QOS_GO);
    }
}

static void cluster_clear(Cluster *cluster)
{
    for (guint i = 0; i < MOUNTS; i++) {
        Mount *mount = &cluster->mounts[i];

        qos_epochs_leave(mount->epochs, mount->fixture.sched, mount->fixture.now);
        fixture_clear(&mount->fixture);
        qos_epochs_free(mount->epochs);
    }
    qos_server_epochs_free(cluster->server);
}

/* The payload of the frame at the front of `bytes`, which moves on. */
static const guint8 *take_frame(const guint8 **bytes, gsize *left, gsize *ret_length)
{
    const guint8 *payload = *bytes + 5;
    guint32 length;

    memcpy(&length, *bytes, sizeof(length));
    length = GUINT32_FROM_LE(length);
    g_assert_cmpuint((*bytes)[4], ==, QOS_WIRE_EPOCH);
    *ret_length = length - 1;
    *bytes += 4 + length;
    *left -= 4 + length;
    return payload;
}

static void to_mount(QosOwnerId client, const GByteArray *frame, gpointer arg)
{
    Cluster *cluster = arg;
    Mount *mount = &cluster->mounts[client - 1];
    const guint8 *bytes = frame->data;
    gsize left = frame->len, length;
    const guint8 *payload = take_frame(&bytes, &left, &length);

    g_assert_cmpuint(left, ==, 0);
    if (!cluster->is_cut[client - 1])
        g_assert_true(qos_epochs_receive(mount->epochs, mount->fixture.sched, payload, length,
                                         mount->fixture.now));
}

/* Everything that is to be sent arrives. */
static void deliver(Cluster *cluster)
{
    QosTime now = 0;

    for (guint i = 0; i < MOUNTS; i++) {
        Mount *mount = &cluster->mounts[i];
        g_autoptr(GByteArray) frames = g_byte_array_new();

        now = MAX(now, mount->fixture.now);
        qos_epochs_step(mount->epochs, mount->fixture.sched, mount->fixture.now, frames);
        g_assert_false(qos_epochs_have_messages(mount->epochs));
        const guint8 *bytes = frames->data;
        gsize left = cluster->is_cut[i] ? 0 : frames->len, length;
        while (left > 0) {
            const guint8 *payload = take_frame(&bytes, &left, &length);
            g_assert_true(qos_server_epochs_receive(cluster->server, i + 1, payload, length, now));
        }
    }
    qos_server_epochs_step(cluster->server, now, to_mount, cluster);
}

static void queue(Cluster *cluster, guint mount, const char *job, guint count, guint64 bytes)
{
    Fixture *f = &cluster->mounts[mount].fixture;

    for (guint i = 0; i < count; i++)
        g_assert_cmpint(enter(f, request_new(f, job, QOS_OP_READ, bytes)), ==, QOS_WAIT);
}

/* What runs at the mount ends, and a request of `job` goes next. */
static void then(Cluster *cluster, guint number, const char *job)
{
    Mount *mount = &cluster->mounts[number];

    leave(&mount->fixture, mount->running);
    mount->running = next(&mount->fixture);
    deliver(cluster);
    g_assert_nonnull(mount->running);
    g_assert_cmpstr(mount->running->job->id, ==, job);
}

static void advance(Cluster *cluster, QosTime duration)
{
    for (guint i = 0; i < MOUNTS; i++)
        cluster->mounts[i].fixture.now += duration;
}

static void finish(Cluster *cluster)
{
    for (guint i = 0; i < MOUNTS; i++) {
        Fixture *f = &cluster->mounts[i].fixture;
        QosRequest *running = cluster->mounts[i].running;

        do
            leave(f, running);
        while ((running = next(f)) != NULL);
    }
}

/* The first mount is alone at first, and has most of alpha. Then both serve beta, of which both
 * together have most among those that had no turn, and then both alpha. */
static void test_same_group(void)
{
    Cluster cluster;

    cluster_init(&cluster);
    queue(&cluster, 0, "alpha", 6, 50000);
    queue(&cluster, 0, "beta", 6, 30000);
    queue(&cluster, 1, "alpha", 6, 100);
    queue(&cluster, 1, "beta", 6, 40000);
    then(&cluster, 0, "beta"); /* asks; until it is answered it goes on with what it has */
    then(&cluster, 1, "beta");
    advance(&cluster, EPOCH);
    then(&cluster, 0, "alpha"); /* asks for the next */
    then(&cluster, 1, "beta");  /* is ready for it too: it begins */
    for (guint i = 0; i < 3; i++) {
        then(&cluster, 0, "beta");
        then(&cluster, 1, "beta");
    }
    advance(&cluster, EPOCH);
    then(&cluster, 0, "beta");
    then(&cluster, 1, "beta");
    for (guint i = 0; i < 3; i++) {
        then(&cluster, 0, "alpha");
        then(&cluster, 1, "alpha");
    }
    g_assert_cmpint(qos_server_epochs_latest(cluster.server) >> QOS_EPOCH_COUNT_BITS, ==, 5);
    finish(&cluster);
    cluster_clear(&cluster);
}

/* A mount whose connection has ended decides by itself, and the other one waits for it no more. */
static void test_connection_ends(void)
{
    Cluster cluster;
    Mount *cut = &cluster.mounts[0];

    cluster_init(&cluster);
    queue(&cluster, 0, "alpha", 6, 1000);
    queue(&cluster, 1, "alpha", 6, 1000);
    queue(&cluster, 1, "beta", 6, 2000);
    then(&cluster, 0, "alpha");
    then(&cluster, 1, "beta");
    qos_epochs_leave(cut->epochs, cut->fixture.sched, cut->fixture.now);
    qos_server_epochs_leave(cluster.server, 1, cut->fixture.now);
    deliver(&cluster);
    const gint64 before = qos_server_epochs_latest(cluster.server);
    queue(&cluster, 0, "beta", 6, 50000);
    advance(&cluster, EPOCH);
    then(&cluster, 0, "beta"); /* its own wish */
    then(&cluster, 1, "beta"); /* asks, and the epoch begins at once */
    g_assert_cmpint(qos_server_epochs_latest(cluster.server), ==, before + 1);
    then(&cluster, 1, "alpha");
    qos_epochs_join(cut->epochs, cut->fixture.sched, SERVER, 3, cut->fixture.now);
    advance(&cluster, EPOCH);
    then(&cluster, 0, "beta"); /* asks: takes part again */
    then(&cluster, 1, "alpha");
    then(&cluster, 0, "beta");
    then(&cluster, 1, "beta");
    finish(&cluster);
    cluster_clear(&cluster);
}

/* A mount that is not ready in time is evicted: the other one's next epoch begins without it. */
static void test_late_mount(void)
{
    Cluster cluster;

    cluster_init(&cluster);
    for (guint i = 0; i < MOUNTS; i++) {
        queue(&cluster, i, "alpha", 6, 1000);
        queue(&cluster, i, "beta", 6, 1000);
        then(&cluster, i, "beta");
    }
    advance(&cluster, EPOCH);
    then(&cluster, 0, "beta");
    then(&cluster, 1, "alpha"); /* both are in alpha's epoch now */
    const gint64 before = qos_server_epochs_latest(cluster.server);
    advance(&cluster, EPOCH);
    then(&cluster, 0, "alpha"); /* ready; the other has a long request */
    deliver(&cluster);
    g_assert_cmpint(qos_server_epochs_latest(cluster.server), ==, before);
    advance(&cluster, 61 * QOS_MILLISECOND);
    deliver(&cluster);
    g_assert_cmpint(qos_server_epochs_latest(cluster.server), ==, before + 1);
    then(&cluster, 0, "beta");
    then(&cluster, 1, "alpha"); /* asks, is told that it is late, and asks anew */
    advance(&cluster, EPOCH);
    then(&cluster, 0, "beta");
    then(&cluster, 1, "beta");
    g_assert_cmpint(qos_server_epochs_latest(cluster.server), ==, before + 2);
    finish(&cluster);
    cluster_clear(&cluster);
}

/* Another server, which counts from less, is followed too. */
static void test_other_server(void)
{
    Cluster cluster;

    cluster_init(&cluster);
    queue(&cluster, 0, "alpha", 9, 1000);
    then(&cluster, 0, "alpha");
    g_assert_cmpint(qos_server_epochs_latest(cluster.server) >> QOS_EPOCH_COUNT_BITS, ==, 5);
    qos_server_epochs_free(cluster.server);
    cluster.server = qos_server_epochs_new(1);
    qos_epochs_join(cluster.mounts[0].epochs, cluster.mounts[0].fixture.sched, SERVER + 1, 4,
                    cluster.mounts[0].fixture.now);
    advance(&cluster, EPOCH);
    then(&cluster, 0, "alpha");
    g_assert_cmpint(qos_server_epochs_latest(cluster.server) >> QOS_EPOCH_COUNT_BITS, ==, 1);
    advance(&cluster, EPOCH);
    then(&cluster, 0, "alpha");
    g_assert_cmpint(qos_server_epochs_latest(cluster.server) & 0xff, ==, 2);
    finish(&cluster);
    cluster_clear(&cluster);
}

/* What a mount does not say to a coordinator is refused, and changes nothing. */
static void test_hostile(void)
{
    static const QosEpochMessage bad[] = {
        {.type = QOS_EPOCH_START, .ticket = 1, .epoch = 1},
        {.type = QOS_EPOCH_REFUSE, .ticket = 1, .epoch = -5},
        {.type = QOS_EPOCH_READY, .ticket = 1}, /* without data */
    };
    QosServerEpochs *server = qos_server_epochs_new(1);

    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GByteArray) frame = g_byte_array_new();

        g_assert_true(qos_wire_put_epoch(frame, &bad[i]));
        g_assert_false(
            qos_server_epochs_receive(server, 1, frame->data + 5, frame->len - 5, QOS_SECOND));
    }
    g_assert_false(qos_server_epochs_receive(server, 1, (const guint8 *)"", 0, QOS_SECOND));
    g_assert_cmpint(qos_server_epochs_step(server, QOS_SECOND, NULL, NULL), ==, QOS_NEVER);
    g_assert_cmpint(qos_server_epochs_latest(server), ==, 0);
    qos_server_epochs_free(server);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/epochs-wire/same-group", test_same_group);
    g_test_add_func("/epochs-wire/connection-ends", test_connection_ends);
    g_test_add_func("/epochs-wire/late-mount", test_late_mount);
    g_test_add_func("/epochs-wire/other-server", test_other_server);
    g_test_add_func("/epochs-wire/hostile", test_hostile);
    return g_test_run();
}
