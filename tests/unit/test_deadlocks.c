/*
 * Circles of waits over several mounts: each rule by itself, then random waits against a plain
 * search (the seed is printed; QOSFS_SEED replays it).
 */
#include <stdlib.h>

#include "server/deadlocks.h"

#define MOUNTS 3
#define OWNERS 3 /* of a mount */
#define FILES  4
#define BYTES  8
#define ROUNDS 20000

static QosResource file(guint number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_EXTENT, &number, sizeof(number));
    return resource;
}

static void add(QosWireWait *wait, guint number, guint64 first, guint64 last, gboolean writes)
{
    const QosCreditItem item = {.resource = file(number),
                                .credit = qos_credit_span(first, last, writes)};

    g_array_append_val(wait->items, item);
}

static QosWireWait wait_of(guint64 id, guint64 owner)
{
    return (QosWireWait){
        .id = id, .owner = owner, .items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem))};
}

/* Owner `owner` of the mount has all of one file and waits for all of another, to write both. */
static gboolean tell(QosDeadlocks *deadlocks, QosOwnerId mount, guint64 id, guint64 owner,
                     guint wants, guint has)
{
    QosWireWait wait = wait_of(id, owner);

    add(&wait, wants, 0, G_MAXINT64, TRUE);
    add(&wait, has, 0, G_MAXINT64, TRUE);
    gboolean is_deadlock = qos_deadlocks_tell(deadlocks, mount, &wait);
    qos_wire_wait_clear(&wait);
    return is_deadlock;
}

static void end(QosDeadlocks *deadlocks, QosOwnerId mount, guint64 id)
{
    QosWireWait wait = {.id = id};

    g_assert_false(qos_deadlocks_tell(deadlocks, mount, &wait));
}

static void test_circles(void)
{
    QosDeadlocks *deadlocks = qos_deadlocks_new();

    g_assert_false(tell(deadlocks, 1, 1, 7, 2, 1));
    g_assert_true(tell(deadlocks, 2, 1, 7, 1, 2)); /* another mount's owner 7 is somebody else */
    g_assert_cmpuint(qos_deadlocks_count(deadlocks), ==,
                     1); /* the one that was told waits no more */
    g_assert_false(tell(deadlocks, 2, 2, 8, 3, 2));
    g_assert_false(tell(deadlocks, 3, 1, 7, 4, 3));
    g_assert_true(tell(deadlocks, 1, 2, 9, 1, 4));
    end(deadlocks, 2, 2);
    g_assert_false(tell(deadlocks, 1, 2, 9, 1, 4)); /* the circle is open */
    end(deadlocks, 2, 2);                           /* once more changes nothing */
    qos_deadlocks_forget(deadlocks, 1);
    qos_deadlocks_forget(deadlocks, 1);
    g_assert_cmpuint(qos_deadlocks_count(deadlocks), ==, 1);
    qos_deadlocks_free(deadlocks);
}

/* What an owner has and waits for is as its mount told last. */
static void test_told_again(void)
{
    QosDeadlocks *deadlocks = qos_deadlocks_new();

    g_assert_false(tell(deadlocks, 1, 1, 1, 2, 1));
    g_assert_false(tell(deadlocks, 1, 1, 1, 2, 3)); /* gave file 1 up */
    g_assert_false(tell(deadlocks, 2, 1, 1, 1, 2));
    g_assert_true(tell(deadlocks, 1, 1, 1, 2, 1)); /* and got it again */
    qos_deadlocks_free(deadlocks);
}

static void test_ranges(void)
{
    QosDeadlocks *deadlocks = qos_deadlocks_new();
    QosWireWait one = wait_of(1, 1), other = wait_of(1, 1), third = wait_of(2, 2);

    add(&one, 1, 10, 19, FALSE);
    add(&one, 1, 0, 9, FALSE);
    g_assert_false(qos_deadlocks_tell(deadlocks, 1, &one));
    add(&other, 1, 0, 9, FALSE); /* both read */
    add(&other, 1, 10, 19, TRUE);
    g_assert_false(qos_deadlocks_tell(deadlocks, 2, &other));
    add(&third, 1, 9, 9, TRUE);
    add(&third, 1, 20, 29, TRUE); /* not what anybody waits for */
    g_assert_false(qos_deadlocks_tell(deadlocks, 3, &third));
    other = wait_of(1, 1);
    add(&other, 1, 5, 5, TRUE);
    add(&other, 1, 10, 19, TRUE);
    g_assert_true(qos_deadlocks_tell(deadlocks, 2, &other));
    qos_deadlocks_free(deadlocks);
}

/* Two threads of one process wait: a waiter for the process waits for both. */
static void test_owner_waits_twice(void)
{
    QosDeadlocks *deadlocks = qos_deadlocks_new();

    g_assert_false(tell(deadlocks, 1, 1, 1, 2, 1));
    g_assert_false(tell(deadlocks, 1, 2, 1, 3, 1));
    g_assert_true(tell(deadlocks, 2, 1, 1, 1, 3));
    g_assert_true(tell(deadlocks, 2, 1, 1, 1, 2));
    g_assert_false(tell(deadlocks, 2, 1, 1, 1, 4));
    qos_deadlocks_free(deadlocks);
}

/* A mount that tells too much is not heard, and harms nobody. */
static void test_bounds(void)
{
    QosDeadlocks *deadlocks = qos_deadlocks_new();

    for (guint i = 0; i < QOS_WIRE_WAITS_RANGES_MAX; i++)
        tell(deadlocks, 1, i, i, 2, 1);
    g_assert_cmpuint(qos_deadlocks_count(deadlocks), ==, QOS_WIRE_WAITS_RANGES_MAX / 2);
    g_assert_false(tell(deadlocks, 2, 1, 1, 4, 3));
    g_assert_true(tell(deadlocks, 3, 1, 1, 3, 4));
    qos_deadlocks_forget(deadlocks, 1);
    g_assert_false(tell(deadlocks, 1, 1, 1, 2, 1));
    g_assert_true(tell(deadlocks, 3, 1, 1, 1, 2));
    qos_deadlocks_free(deadlocks);
}

/* Each of `others` has a byte of a file, and the one that closes the circle has the last byte.
 * Tells whether a waiter for `ranges` of the file finds the circle. */
static gboolean is_found(guint ranges, guint others)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    const guint64 last = 2 * QOS_CREDIT_SPANS_MAX;
    QosDeadlocks *deadlocks = qos_deadlocks_new();
    QosWireWait wait;

    for (guint i = 0; i < others; i++) {
        wait = wait_of(i, i);
        add(&wait, 3, 0, 0, TRUE);
        add(&wait, 1, last + 2 + i, last + 2 + i, TRUE);
        g_assert_false(qos_deadlocks_tell(deadlocks, 1, &wait));
    }
    wait = wait_of(1, 1);
    add(&wait, 2, 0, 0, TRUE);
    add(&wait, 1, last, last, TRUE);
    g_assert_false(qos_deadlocks_tell(deadlocks, 2, &wait));
    wait = wait_of(1, 1);
    add(&wait, 1, last, last, TRUE);
    add(&wait, 2, 0, 0, TRUE);
    for (guint i = 1; i < ranges; i++) {
        QosCredit more = qos_credit_span(2 * i, 2 * i, TRUE);
        type->join(&g_array_index(wait.items, QosCreditItem, 0).credit, &more);
        qos_credit_clear(type, &more);
    }
    gboolean is_deadlock = qos_deadlocks_tell(deadlocks, 3, &wait);
    qos_wire_wait_clear(&wait);
    qos_deadlocks_free(deadlocks);
    return is_deadlock;
}

/* What a wait costs the server is bounded by ranges, of which one lock may have thousands. */
static void test_cost(void)
{
    g_assert_true(is_found(1, QOS_DEADLOCKS_RANGES_MAX / 2 - 2)); /* two more close it */
    g_assert_false(is_found(1, QOS_DEADLOCKS_RANGES_MAX / 2 - 1));
    g_assert_true(is_found(1000, QOS_DEADLOCKS_RANGES_MAX / 1001 - 1));
    g_assert_false(is_found(1000, QOS_DEADLOCKS_RANGES_MAX / 1001));
}

/* --- against a plain search --- */

typedef struct {
    gboolean is_there;
    guint wants, has; /* files */
    QosSpan wanted, had;
} Model;

static gboolean waits_for(const Model *one, const Model *other)
{
    return one->wants == other->has && (one->wanted.writes || other->had.writes) &&
           one->wanted.first <= other->had.last && other->had.first <= one->wanted.last;
}

static gboolean reaches(const Model *models, guint from, guint to, gboolean *seen)
{
    for (guint i = 0; i < MOUNTS * OWNERS; i++) {
        if (i == from || !models[i].is_there || seen[i] || !waits_for(&models[from], &models[i]))
            continue;
        seen[i] = TRUE;
        if (i == to || reaches(models, i, to, seen))
            return TRUE;
    }
    return FALSE;
}

static QosSpan random_span(GRand *chance)
{
    guint64 first = (guint64)g_rand_int_range(chance, 0, BYTES);
    guint64 last = first + (guint64)g_rand_int_range(chance, 0, 3);

    return (QosSpan){first, last, g_rand_boolean(chance)};
}

static void test_random(void)
{
    const char *text = g_getenv("QOSFS_SEED");
    guint32 seed = text != NULL ? (guint32)strtoul(text, NULL, 10) : g_random_int();
    GRand *chance = g_rand_new_with_seed(seed);
    QosDeadlocks *deadlocks = qos_deadlocks_new();
    Model models[MOUNTS * OWNERS] = {0};
    guint found = 0;

    g_test_message("QOSFS_SEED=%u", seed);
    for (guint i = 0; i < ROUNDS; i++) {
        guint who = (guint)g_rand_int_range(chance, 0, MOUNTS * OWNERS);
        Model *model = &models[who];
        gboolean seen[MOUNTS * OWNERS] = {FALSE};
        QosWireWait wait = {.id = who, .owner = who / MOUNTS};

        model->is_there = g_rand_int_range(chance, 0, 3) > 0;
        if (model->is_there) {
            *model = (Model){TRUE, (guint)g_rand_int_range(chance, 0, FILES),
                             (guint)g_rand_int_range(chance, 0, FILES), random_span(chance),
                             random_span(chance)};
            wait.items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
            add(&wait, model->wants, model->wanted.first, model->wanted.last, model->wanted.writes);
            add(&wait, model->has, model->had.first, model->had.last, model->had.writes);
        }
        gboolean expected = model->is_there && reaches(models, who, who, seen);
        g_assert_cmpint(qos_deadlocks_tell(deadlocks, who % MOUNTS + 1, &wait), ==, expected);
        model->is_there &= !expected;
        found += expected;
    }
    g_assert_cmpuint(found, >, ROUNDS / 100);
    qos_deadlocks_free(deadlocks);
    g_rand_free(chance);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/deadlocks/circles", test_circles);
    g_test_add_func("/deadlocks/told-again", test_told_again);
    g_test_add_func("/deadlocks/ranges", test_ranges);
    g_test_add_func("/deadlocks/owner-waits-twice", test_owner_waits_twice);
    g_test_add_func("/deadlocks/bounds", test_bounds);
    g_test_add_func("/deadlocks/cost", test_cost);
    g_test_add_func("/deadlocks/random", test_random);
    return g_test_run();
}
