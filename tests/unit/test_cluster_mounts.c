/*
 * Which mount is told which part of floors: with a hard rule the parts that may be in use are at
 * most one whole at any time, whatever is lost, and a restart forgets none of them. The database
 * and the connections are mocks; time is stepped by hand.
 */
#include "server/cluster_mounts.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define MANY  40
#define LEASE QOS_SECOND

/* What a mount really does, unknown to the server. */
typedef struct {
    gboolean is_connected, has_told, has_ack;
    guint told; /* on its way to it */
    guint ack;  /* on its way back */
    guint part; /* in force there: one of so many parts; 0: none */
    guint row;  /* in the database */
    guint row_next;
    guint64 row_number;
} Peer;

typedef struct {
    QosClusterMounts *mounts;
    Peer peers[MANY + 1]; /* by id */
    guint64 number;       /* of changes of the database */
    guint64 version;
    guint tells, lefts, changes;
    gboolean has_hard;
    QosTime now;
} Fixture;

static void tell(const QosClusterMount *mount, guint parts, gpointer arg)
{
    Fixture *fixture = arg;
    Peer *peer = &fixture->peers[mount->id];

    g_assert_true(peer->is_connected);
    if (parts > 0) /* what is durable covers it */
        g_assert_true(peer->row > 0 && peer->row <= parts);
    peer->told = parts;
    peer->has_told = TRUE;
    fixture->tells++;
}

static guint64 save(const QosClusterMount *mount, guint parts, gpointer arg)
{
    Fixture *fixture = arg;

    fixture->peers[mount->id].row_next = parts;
    fixture->peers[mount->id].row_number = ++fixture->number;
    return fixture->number;
}

static void unsave(const QosClusterMount *mount, gpointer arg)
{
    Fixture *fixture = arg;

    fixture->peers[mount->id].row = fixture->peers[mount->id].row_next = 0;
}

static void left(QosOwnerId id G_GNUC_UNUSED, gpointer arg)
{
    ((Fixture *)arg)->lefts++;
}

static void parts_changed(gpointer arg)
{
    ((Fixture *)arg)->changes++;
}

static void start(Fixture *fixture)
{
    const QosClusterMountsCalls calls = {.arg = fixture,
                                         .tell = tell,
                                         .save = save,
                                         .unsave = unsave,
                                         .left = left,
                                         .parts_changed = parts_changed};

    g_clear_pointer(&fixture->mounts, qos_cluster_mounts_free);
    fixture->mounts = qos_cluster_mounts_new(&calls);
    for (guint id = 1; id <= MANY; id++) {
        Peer *peer = &fixture->peers[id];
        peer->is_connected = peer->has_told = peer->has_ack = FALSE;
        peer->row_next = 0;
        if (peer->row > 0)
            qos_cluster_mounts_restore(fixture->mounts, id, "name", peer->row, fixture->now);
    }
}

static void set_list(Fixture *fixture, gboolean has_rules, gboolean has_hard)
{
    fixture->has_hard = has_hard;
    qos_cluster_mounts_set_list(fixture->mounts, ++fixture->version, 0, has_rules, has_hard);
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    fixture->now = 1000 * QOS_SECOND;
    start(fixture);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_cluster_mounts_free(fixture->mounts);
}

static void connect_mount(Fixture *fixture, QosOwnerId id)
{
    g_autofree char *name = g_strdup_printf("m%u", (guint)id);

    fixture->peers[id].is_connected = TRUE;
    fixture->peers[id].has_told = fixture->peers[id].has_ack = FALSE;
    qos_cluster_mounts_connected(fixture->mounts, id, name, fixture->now);
}

static void cut(Fixture *fixture, QosOwnerId id)
{
    fixture->peers[id].is_connected = FALSE;
    qos_cluster_mounts_disconnected(fixture->mounts, id, fixture->now);
}

/* All that was handed over is written. */
static void write_rows(Fixture *fixture)
{
    for (guint id = 1; id <= MANY; id++) {
        Peer *peer = &fixture->peers[id];
        if (peer->row_next > 0)
            peer->row = peer->row_next;
        peer->row_next = 0;
    }
    qos_cluster_mounts_durable(fixture->mounts, fixture->number);
}

/* The list arrives at the mount. */
static void deliver(Fixture *fixture, QosOwnerId id)
{
    Peer *peer = &fixture->peers[id];

    if (!peer->has_told)
        return;
    peer->has_told = FALSE;
    peer->part = peer->ack = peer->told;
    peer->has_ack = TRUE;
}

static void acknowledge(Fixture *fixture, QosOwnerId id)
{
    Peer *peer = &fixture->peers[id];

    if (!peer->has_ack)
        return;
    peer->has_ack = FALSE;
    qos_cluster_mounts_seen(fixture->mounts, id,
                            &(QosWireSeen){.version = fixture->version, .parts = peer->ack});
}

static void come_to_rest(Fixture *fixture)
{
    for (guint round = 0; round < 2 * MANY; round++) {
        write_rows(fixture);
        for (guint id = 1; id <= MANY; id++) {
            deliver(fixture, id);
            acknowledge(fixture, id);
        }
    }
}

/* The sum of the parts in force, in 2^24ths. */
static guint64 in_force(const Fixture *fixture)
{
    guint64 sum = 0;

    for (guint id = 1; id <= MANY; id++) {
        if (fixture->peers[id].part > 0)
            sum += QOS_WIRE_PARTS_MAX / fixture->peers[id].part;
    }
    return sum;
}

static void test_fair(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    connect_mount(fixture, 1);
    g_assert_cmpuint(fixture->tells, ==, 1); /* no list is a list, too */
    come_to_rest(fixture);
    g_assert_cmpuint(fixture->peers[1].row, ==, 0);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 0);

    set_list(fixture, TRUE, FALSE);
    g_assert_true(fixture->peers[1].has_told); /* the list does not wait for the disk */
    g_assert_cmpuint(fixture->peers[1].told, ==, 0);
    come_to_rest(fixture);
    g_assert_cmpuint(fixture->peers[1].part, ==, 8);
    for (guint id = 2; id <= 9; id++)
        connect_mount(fixture, id);
    come_to_rest(fixture);
    g_assert_cmpuint(fixture->changes, ==, 1);
    for (guint id = 1; id <= 9; id++)
        g_assert_cmpuint(fixture->peers[id].part, ==, 16);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 9);

    set_list(fixture, FALSE, FALSE); /* the last rule goes, and with it all floors */
    come_to_rest(fixture);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 0);
    g_assert_cmpuint(fixture->peers[9].row, ==, 0);
}

/* A mount that is cut goes on with its part; with fair rules it is forgotten after ten leases. */
static void test_gone(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    set_list(fixture, TRUE, FALSE);
    connect_mount(fixture, 1);
    come_to_rest(fixture);
    cut(fixture, 1);
    g_assert_cmpint(qos_cluster_mounts_expire(fixture->mounts, LEASE, fixture->now), ==,
                    fixture->now + 10 * LEASE);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 1);
    fixture->now += 10 * LEASE;
    qos_cluster_mounts_expire(fixture->mounts, LEASE, fixture->now);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 0);
    g_assert_cmpuint(fixture->lefts, ==, 1);
    g_assert_cmpuint(fixture->peers[1].row, ==, 0);
}

/* With a hard rule it stays known, also over a restart, until it is forgotten. */
static void test_hard_gone(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autoptr(GError) error = NULL;

    set_list(fixture, TRUE, TRUE);
    for (guint id = 1; id <= 2; id++)
        connect_mount(fixture, id);
    come_to_rest(fixture);
    cut(fixture, 1);
    fixture->now += 1000 * LEASE;
    g_assert_cmpint(qos_cluster_mounts_expire(fixture->mounts, LEASE, fixture->now), ==, QOS_NEVER);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 2);
    g_assert_false(qos_cluster_mounts_forget(fixture->mounts, "m2", &error));
    g_assert_error(error, QOS_ERROR, EBUSY);
    g_clear_error(&error);
    start(fixture);
    set_list(fixture, TRUE, TRUE);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 2);
    g_assert_true(qos_cluster_mounts_forget(fixture->mounts, "1", &error));
    g_assert_no_error(error);
    g_assert_false(qos_cluster_mounts_forget(fixture->mounts, "m1", &error));
    g_assert_error(error, QOS_ERROR, ENOENT);
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 1);
    g_assert_cmpuint(fixture->peers[1].row, ==, 0);
}

/* A newcomer has no floor until the others have acknowledged the larger N. */
static void test_hard_newcomer(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    set_list(fixture, TRUE, TRUE);
    for (guint id = 1; id <= 8; id++)
        connect_mount(fixture, id);
    come_to_rest(fixture);
    g_assert_cmpuint(in_force(fixture), ==, QOS_WIRE_PARTS_MAX);
    connect_mount(fixture, 9);
    write_rows(fixture);
    deliver(fixture, 9);
    acknowledge(fixture, 9);
    g_assert_cmpuint(fixture->peers[9].part, ==, 0);
    for (guint id = 1; id <= 8; id++) {
        g_assert_cmpuint(fixture->peers[id].told, ==, 16);
        g_assert_false(fixture->peers[9].has_told);
        deliver(fixture, id);
        acknowledge(fixture, id);
        write_rows(fixture);
        if (id == 1) /* has made room */
            break;
    }
    deliver(fixture, 9);
    g_assert_cmpuint(fixture->peers[9].part, ==, 16);
    g_assert_cmpuint(in_force(fixture), ==, QOS_WIRE_PARTS_MAX);
    come_to_rest(fixture);
    g_assert_cmpuint(qos_cluster_mounts_in_use(fixture->mounts), ==, 9 * QOS_WIRE_PARTS_MAX / 16);
}

static void test_goodbye(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    set_list(fixture, TRUE, TRUE);
    connect_mount(fixture, 1);
    come_to_rest(fixture);
    guint tells = fixture->tells;
    qos_cluster_mounts_seen(fixture->mounts, 1, &(QosWireSeen){.version = QOS_WIRE_SEEN_GOODBYE});
    g_assert_cmpuint(qos_cluster_mounts_known(fixture->mounts), ==, 0);
    g_assert_cmpuint(fixture->peers[1].row, ==, 0);
    set_list(fixture, TRUE, TRUE);
    g_assert_cmpuint(fixture->tells, ==, tells);
    cut(fixture, 1);
    g_assert_null(qos_cluster_mounts_find(fixture->mounts, 1));
}

/* Whatever comes and goes, is lost and comes late: with a hard rule the parts in force are at most
 * one whole, and the server knows no less of them than there is. */
static void test_random(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    set_list(fixture, TRUE, TRUE);
    for (guint step = 0; step < 200000; step++) {
        QosOwnerId id = (QosOwnerId)g_test_rand_int_range(1, MANY + 1);
        Peer *peer = &fixture->peers[id];

        switch (g_test_rand_int_range(0, 16)) {
        case 0:
            if (peer->is_connected)
                cut(fixture, id);
            break;
        case 1:
        case 2:
            connect_mount(fixture, id); /* perhaps anew */
            break;
        case 3:
        case 4:
            write_rows(fixture);
            break;
        case 5:
            if (g_test_rand_int_range(0, 200) == 0) {
                start(fixture);
                set_list(fixture, TRUE, TRUE);
            }
            break;
        case 6:
            if (!peer->is_connected && g_test_rand_int_range(0, 4) == 0) { /* it is gone, really */
                g_autofree char *name = g_strdup_printf("%x", (guint)id);
                peer->part = 0;
                peer->has_told = peer->has_ack = FALSE;
                qos_cluster_mounts_forget(fixture->mounts, name, NULL);
            }
            break;
        case 7:
        case 8:
        case 9:
        case 10:
            deliver(fixture, id);
            break;
        default:
            acknowledge(fixture, id);
        }
        g_assert_cmpuint(in_force(fixture), <=, QOS_WIRE_PARTS_MAX);
        g_assert_cmpuint(qos_cluster_mounts_in_use(fixture->mounts), >=, in_force(fixture));
    }
    for (guint id = 1; id <= MANY; id++)
        connect_mount(fixture, id);
    come_to_rest(fixture);
    for (guint id = 1; id <= MANY; id++)
        g_assert_cmpuint(fixture->peers[id].part, ==, 64);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/cluster-mounts/fair", Fixture, NULL, set_up, test_fair, tear_down);
    g_test_add("/cluster-mounts/gone", Fixture, NULL, set_up, test_gone, tear_down);
    g_test_add("/cluster-mounts/hard-gone", Fixture, NULL, set_up, test_hard_gone, tear_down);
    g_test_add("/cluster-mounts/hard-newcomer", Fixture, NULL, set_up, test_hard_newcomer,
               tear_down);
    g_test_add("/cluster-mounts/goodbye", Fixture, NULL, set_up, test_goodbye, tear_down);
    g_test_add("/cluster-mounts/random", Fixture, NULL, set_up, test_random, tear_down);
    return g_test_run();
}
