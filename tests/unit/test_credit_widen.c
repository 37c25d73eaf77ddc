/*
 * Groups of inodes: what is granted beyond what was asked for, and how two mounts split a group.
 */
#include "core/credit_private.h"
#include "credit_fixture.h"

/* A root and two mounts, 4 and 5. */
static void cluster_start(Cluster *c)
{
    cluster_init(c);
    start(c, 1);
    for (QosOwnerId id = 4; id <= 5; id++) {
        node_config(c, id, 1);
        start(c, id);
    }
    run(c, 10 * QOS_MILLISECOND);
}

static QosResource group(void)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, "group", 5);
    return resource;
}

static QosCreditVerdict ask(Cluster *c, QosOwnerId id, guint64 first, guint64 last, gboolean writes,
                            Use *use)
{
    QosCredit want = qos_credit_span(first, last, writes);

    get_of(c, id, group(), want, 0, use);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &want);
    run(c, 20 * QOS_MILLISECOND);
    return use->verdict;
}

/* Gets one inode and puts it. */
static void touch(Cluster *c, QosOwnerId id, guint64 inode_number, gboolean writes)
{
    Use use;

    g_assert_cmpint(ask(c, id, inode_number, inode_number, writes, &use), ==, QOS_CREDIT_GRANTED);
    put(c, id, &use);
    run(c, 20 * QOS_MILLISECOND);
}

static void assert_has(Cluster *c, QosOwnerId id, const char *expected)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosResource resource = group();
    QosCredit owned = qos_credit_owned(c->nodes[id].owner, &resource);
    g_autofree char *text = qos_credit_text(type, &owned);

    g_assert_cmpstr(text, ==, expected);
    qos_credit_clear(type, &owned);
}

/* A mount that is alone asks once for a group, and once more when it begins to write. */
static void test_alone(void)
{
    Cluster c;

    cluster_start(&c);
    touch(&c, 4, 7, FALSE);
    assert_has(&c, 4, "0-1023r");
    touch(&c, 4, 7, TRUE);
    assert_has(&c, 4, "0-1023w");
    run(&c, QOS_SECOND);
    guint64 messages = c.messages;
    for (guint i = 0; i < QOS_INODES_GROUP_MAX; i++) {
        Use use;
        g_assert_cmpint(ask(&c, 4, i, i, i % 2, &use), ==, QOS_CREDIT_GRANTED);
        g_assert_cmpuint(use.hold.credit.spans[0].first, ==, i); /* just that is in use */
        g_assert_cmpuint(use.hold.credit.spans[0].last, ==, i);
        put(&c, 4, &use);
    }
    /* In these 20 s there were renewals of two leases, and their acknowledgements. */
    g_assert_cmpuint(c.messages - messages, <, 100);
    g_assert_cmpuint(qos_owner_lent(c.nodes[1].owner), ==, 1);
    cluster_clear(&c);
}

static void test_readers_share(void)
{
    Cluster c;

    cluster_start(&c);
    touch(&c, 4, 7, FALSE);
    touch(&c, 5, 9, FALSE);
    assert_has(&c, 4, "0-1023r");
    assert_has(&c, 5, "0-1023r");
    cluster_clear(&c);
}

/* The second one gets what it wants, and nothing around it. */
static void test_split(void)
{
    Cluster c;

    cluster_start(&c);
    touch(&c, 4, 7, TRUE);
    touch(&c, 5, 100, TRUE);
    assert_has(&c, 4, "0-99w,101-1023w");
    assert_has(&c, 5, "100-100w");
    touch(&c, 5, 102, FALSE);
    assert_has(&c, 4, "0-99w,101-101w,102-102r,103-1023w");
    assert_has(&c, 5, "100-100w,102-102r");
    touch(&c, 4, 100, TRUE); /* it stays with what it wants too */
    assert_has(&c, 4, "0-101w,102-102r,103-1023w");
    assert_has(&c, 5, "102-102r");
    cluster_clear(&c);
}

/* In a group in conflict just the free piece around it is given, for three seconds. */
static void test_calm(void)
{
    QosCredit all = qos_credit_span(0, G_MAXUINT64, TRUE);
    QosResource resource = group();
    Cluster c;

    cluster_start(&c);
    touch(&c, 4, 7, TRUE);
    touch(&c, 5, 100, TRUE);
    node_config(&c, 6, 1);
    start(&c, 6);
    run(&c, 20 * QOS_MILLISECOND);
    touch(&c, 6, 500, TRUE);
    qos_credit_cancel(c.nodes[4].owner, clock_of(&c, 4), &resource, &all, FALSE);
    run(&c, 20 * QOS_MILLISECOND);
    assert_has(&c, 4, "-");
    touch(&c, 5, 102, TRUE);
    assert_has(&c, 5, "0-499w");
    run(&c, 4 * QOS_SECOND);
    touch(&c, 4, 600, FALSE);
    assert_has(&c, 4, "501-1023r");
    touch(&c, 4, 600, TRUE);
    assert_has(&c, 4, "501-1023w");
    touch(&c, 5, 600, TRUE);
    assert_has(&c, 5, "0-499w,600-600w");
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &all);
    cluster_clear(&c);
}

/* What another waits for is not taken on the way. */
static void test_others_wait(void)
{
    Cluster c;
    Use held, waits;

    cluster_start(&c);
    g_assert_cmpint(ask(&c, 4, 5, 5, TRUE, &held), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(ask(&c, 5, 5, 6, TRUE, &waits), ==, QOS_CREDIT_WAITING);
    assert_has(&c, 4, "0-1023w");
    put(&c, 4, &held);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(waits.verdict, ==, QOS_CREDIT_GRANTED);
    assert_has(&c, 4, "0-4w,7-1023w");
    assert_has(&c, 5, "5-6w");
    cluster_clear(&c);
}

/* Of two that waited for the end of the grace neither gets what the other wants. */
static void test_after_grace(void)
{
    Cluster c;
    Use one, other;

    cluster_start(&c);
    node_config(&c, 6, 1)->caches = TRUE; /* it would be told of a callback */
    start(&c, 6);
    run(&c, 10 * QOS_MILLISECOND);
    crash(&c, 5);
    crash(&c, 1);
    start(&c, 1);
    run(&c, LEASE / 2);
    g_assert_true(is_alive(&c, 6) && qos_owner_in_grace(c.nodes[1].owner));
    g_assert_cmpint(ask(&c, 6, 0, 9, TRUE, &one), ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(ask(&c, 4, 20, 29, TRUE, &other), ==, QOS_CREDIT_WAITING);
    run(&c, 2 * LEASE);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    assert_has(&c, 6, "0-19w,30-1023w");
    assert_has(&c, 4, "20-29w");
    g_assert_cmpuint(c.nodes[6].conflicts, ==, 0);
    cluster_clear(&c);
}

/* A group has 1,024 inodes: what is beyond is nobody's. */
static void test_beyond(void)
{
    Cluster c;
    Use use;

    cluster_start(&c);
    g_assert_cmpint(ask(&c, 4, 1024, 1024, FALSE, &use), ==, QOS_CREDIT_DENIED);
    cluster_clear(&c);
}

/* A mount that uses one number, and waits for a later one behind the very mount that wants both,
 * drops the whole group meanwhile: what nobody uses of it goes at once, though not all that is
 * wanted does.
 */
static void test_dropped_while_in_use(void)
{
    const guint flags = QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT;
    QosCredit three = qos_credit_span(3, 3, FALSE), four = qos_credit_span(4, 4, FALSE);
    QosCredit four_to_write = qos_credit_span(4, 4, TRUE), all = qos_credit_span(0, 1023, TRUE);
    QosResource resource = group();
    Use first, second, theirs[2];
    Cluster c;

    cluster_init(&c);
    start(&c, 1);
    for (QosOwnerId id = 4; id <= 5; id++) {
        node_config(&c, id, 1)->caches = TRUE;
        start(&c, id);
    }
    run(&c, 10 * QOS_MILLISECOND);
    c.nodes[5].agrees = TRUE;
    g_assert_cmpint(ask(&c, 4, 3, 3, TRUE, &first), ==, QOS_CREDIT_GRANTED);
    get_of(&c, 5, group(), four, flags, &theirs[0]);
    get_of(&c, 5, group(), three, flags, &theirs[1]);
    run(&c, 20 * QOS_MILLISECOND);
    get_of(&c, 4, group(), four_to_write, flags, &second);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_WAITING);

    c.nodes[4].agrees = TRUE;
    g_assert_false(qos_credit_cancel(c.nodes[4].owner, clock_of(&c, 4), &resource, &all, FALSE));
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(theirs[0].verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(theirs[1].verdict, ==, QOS_CREDIT_WAITING);
    put(&c, 5, &theirs[0]);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &second);
    put(&c, 4, &first);
    run(&c, 20 * QOS_MILLISECOND);
    g_assert_cmpint(theirs[1].verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 5, &theirs[1]);
    cluster_clear(&c);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &three);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &four);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &four_to_write);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &all);
}

/* --- the law itself, against one that goes from place to place --- */

#define PLACES 48

enum { NONE, READ, WRITE };

static QosCredit credit_of(const guint8 *rungs)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit credit = {0};

    for (guint i = 0; i < PLACES; i++) {
        QosCredit one = qos_credit_span(i, i, rungs[i] == WRITE);
        if (rungs[i] != NONE)
            type->join(&credit, &one);
        qos_credit_clear(type, &one);
    }
    return credit;
}

/* Pieces of chance. */
static void draw(GRand *random, guint8 *rungs)
{
    guint8 rung = NONE;

    for (guint i = 0; i < PLACES; i++) {
        if (g_rand_int_range(random, 0, 5) == 0)
            rung = (guint8)g_rand_int_range(random, NONE, WRITE + 1);
        rungs[i] = rung;
    }
}

static void expect(const guint8 *room, const guint8 *wanted, guint place, gboolean writes,
                   gboolean is_calm, guint8 *ret_rungs)
{
    const guint8 kind = writes ? WRITE : READ;

    for (guint i = 0; i < PLACES; i++) {
        guint8 rung = MIN(room[i], kind);
        if (wanted[i] == WRITE)
            rung = NONE;
        else if (wanted[i] == READ)
            rung = MIN(rung, READ);
        ret_rungs[i] = rung;
    }
    if (!is_calm) {
        guint first = place, last = place;
        guint8 below = place > 0 ? ret_rungs[place - 1] : NONE;
        guint8 above = place + 1 < PLACES ? ret_rungs[place + 1] : NONE;
        while (first > 0 && below != NONE && ret_rungs[first - 1] == below)
            first--;
        while (last + 1 < PLACES && above != NONE && ret_rungs[last + 1] == above)
            last++;
        for (guint i = 0; i < PLACES; i++)
            ret_rungs[i] = i >= first && i <= last ? ret_rungs[i] : NONE;
    }
    ret_rungs[place] = MAX(ret_rungs[place], kind);
}

static void test_law(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    g_autoptr(GRand) random = g_rand_new_with_seed(6);
    guint8 room[PLACES], wanted[PLACES], expected[PLACES];

    for (guint round = 0; round < 20000; round++) {
        const guint place = (guint)g_rand_int_range(random, 0, PLACES);
        const gboolean is_calm = g_rand_boolean(random);
        draw(random, room);
        draw(random, wanted);
        if (room[place] == NONE)
            continue; /* then nothing is granted */
        const gboolean writes = room[place] == WRITE && g_rand_boolean(random);
        QosBusy busy = {.contended = is_calm ? 0 : QOS_SECOND};
        QosBook book = {.resource = group(), .busy = &busy};
        QosCreditRequest other = {.peer = (QosPeer *)&wanted, .want = credit_of(wanted)};
        const QosCreditRequest request = {.book = &book, .peer = (QosPeer *)&room};
        other.book_link.data = &other;
        g_queue_push_tail_link(&busy.requests, &other.book_link);
        QosCredit free = credit_of(room), chosen = qos_credit_span(place, place, writes);
        qos_request_widen(&request, &free, &chosen, 2 * QOS_SECOND);
        expect(room, wanted, place, writes, is_calm, expected);
        QosCredit right = credit_of(expected);
        g_autofree char *text = qos_credit_text(type, &chosen);
        g_autofree char *right_text = qos_credit_text(type, &right);
        g_assert_cmpstr(text, ==, right_text);
        qos_credit_clear(type, &right);
        qos_credit_clear(type, &chosen);
        qos_credit_clear(type, &free);
        qos_credit_clear(type, &other.want);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit-widen/alone", test_alone);
    g_test_add_func("/credit-widen/readers-share", test_readers_share);
    g_test_add_func("/credit-widen/split", test_split);
    g_test_add_func("/credit-widen/calm", test_calm);
    g_test_add_func("/credit-widen/others-wait", test_others_wait);
    g_test_add_func("/credit-widen/after-grace", test_after_grace);
    g_test_add_func("/credit-widen/beyond", test_beyond);
    g_test_add_func("/credit-widen/dropped-while-in-use", test_dropped_while_in_use);
    g_test_add_func("/credit-widen/law", test_law);
    return g_test_run();
}
