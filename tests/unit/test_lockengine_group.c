/*
 * What a mount borrows of a group of inodes: how it is parted with other mounts, and what is used
 * of it while it is called back.
 */
#include "lockengine_fixture.h"

static QosCreditVerdict get_one(World *w, guint mount, guint place, Use *use)
{
    QosCredit want = qos_credit_span(place, place, TRUE);
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, "group", 5);
    *use = (Use){.use.done = done};
    use->verdict = qos_lockengine_get(w->mounts[mount].engine, &resource, &want,
                                      QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, &use->use, w->now);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &want);
    return use->verdict;
}

/* Two inodes of a group are called back together, and the user of the first waits for the second:
 * that one goes, and comes back. */
static void test_group_in_order(void)
{
    World w;
    Use first, second, others_first, others_second;

    init(&w);
    get_one(&w, 0, 5, &first);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(get_one(&w, 1, 5, &others_first), ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(get_one(&w, 1, 6, &others_second), ==, QOS_CREDIT_WAITING);
    drain_server(&w);
    while (carry(&w, &w.mounts[1]))
        drain_server(&w); /* both callbacks reach the first mount, which has not acted yet */
    g_assert_cmpint(get_one(&w, 0, 6, &second), ==, QOS_CREDIT_WAITING);
    pass(&w, QOS_SECOND);
    g_assert_cmpint(others_first.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(others_second.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_WAITING);
    qos_lockengine_put(w.mounts[1].engine, &others_second.use, w.now);
    pass(&w, QOS_SECOND);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[0].engine, &second.use, w.now);
    qos_lockengine_put(w.mounts[0].engine, &first.use, w.now);
    pass(&w, QOS_SECOND);
    g_assert_cmpint(others_first.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &others_first.use, w.now);
    clear(&w);
}

/* The asker was killed, and its credit comes all the same. That is counted, because others may
 * since have changed what was looked at before without the credit. */
static void test_group_comes_for_nobody(void)
{
    World w;
    Use killed, next;

    init(&w);
    QosLockengine *engine = w.mounts[0].engine;
    g_assert_cmpint(get_one(&w, 0, 5, &killed), ==, QOS_CREDIT_WAITING);
    carry(&w, &w.mounts[0]); /* the server has granted it */
    g_assert_true(qos_lockengine_withdraw(engine, &killed.use, w.now));
    g_assert_cmpuint(qos_lockengine_grants(engine), ==, 0);
    settle(&w);
    g_assert_false(killed.is_done);
    g_assert_cmpint(get_one(&w, 0, 6, &next), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(qos_lockengine_grants(engine), ==, 1);
    qos_lockengine_put(engine, &next.use, w.now);
    clear(&w);
}

/* A drop that was put together before a number of it came into use again is not carried out: it is
 * told again. */
static void test_group_used_while_dropped(void)
{
    World w;
    Use first, second, others[4];

    init(&w);
    get_one(&w, 0, 5, &first);
    pass(&w, QOS_MILLISECOND);
    get_one(&w, 1, 5, &others[0]);
    get_one(&w, 1, 6, &others[1]);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(others[1].verdict, ==, QOS_CREDIT_GRANTED);
    w.mounts[0].is_stubborn = TRUE;
    get_one(&w, 0, 6, &second);
    for (guint i = 2; i < 4; i++) { /* the second joins what is to go after the first */
        get_one(&w, 1, 5 + i, &others[i]);
        pass(&w, QOS_MILLISECOND);
    }
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_WAITING);
    qos_lockengine_put(w.mounts[1].engine, &others[1].use, w.now);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_GRANTED);
    release(&w, 0);
    release(&w, 0); /* with what is in use */
    release(&w, 0); /* and without */
    w.mounts[0].is_stubborn = FALSE;
    qos_lockengine_put(w.mounts[0].engine, &second.use, w.now);
    pass(&w, QOS_SECOND);
    for (guint i = 2; i < 4; i++) {
        g_assert_cmpint(others[i].verdict, ==, QOS_CREDIT_GRANTED);
        qos_lockengine_put(w.mounts[1].engine, &others[i].use, w.now);
    }
    qos_lockengine_put(w.mounts[0].engine, &first.use, w.now);
    pass(&w, QOS_SECOND);
    g_assert_cmpint(others[0].verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &others[0].use, w.now);
    clear(&w);
}

/* What has gone is asked for again, and comes, while the rest of what is wanted is forgotten: that
 * goes all the same. */
static void test_group_regained_while_dropped(void)
{
    Use mine, first, second;
    World w;

    init(&w);
    g_assert_cmpint(get_one(&w, 0, 4, &mine), ==, QOS_CREDIT_WAITING);
    pass(&w, QOS_MILLISECOND);
    qos_lockengine_put(w.mounts[0].engine, &mine.use, w.now);
    w.mounts[0].is_stubborn = TRUE;
    get_one(&w, 1, 6, &first);
    pass(&w, QOS_MILLISECOND);
    get_one(&w, 1, 5, &second);
    pass(&w, QOS_MILLISECOND);
    release(&w, 0);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(get_one(&w, 0, 6, &mine), ==, QOS_CREDIT_WAITING);
    qos_lockengine_put(w.mounts[1].engine, &first.use, w.now);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(mine.verdict, ==, QOS_CREDIT_GRANTED);
    release(&w, 0);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[0].engine, &mine.use, w.now);
    qos_lockengine_put(w.mounts[1].engine, &second.use, w.now);
    clear(&w);
}

/* Uses one of the group; how many requests that took. */
static guint64 visit_one(World *w, guint mount, guint place)
{
    guint64 before = status_of(w, mount).enqueues;
    Use use;

    get_one(w, mount, place, &use);
    pass(w, QOS_MILLISECOND);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w->mounts[mount].engine, &use.use, w->now);
    pass(w, QOS_MILLISECOND);
    return status_of(w, mount).enqueues - before;
}

/* A mount that looks at a whole group that another has and does not use asks eleven times, not
 * 1,024. */
static void test_group_goes_over(void)
{
    World w;

    init(&w);
    g_assert_cmpuint(visit_one(&w, 0, 0), ==, 1);
    for (guint round = 0; round < 4; round++) {
        guint64 requests = 0;
        for (guint i = 0; i < QOS_INODES_GROUP_MAX; i++)
            requests += visit_one(&w, (round + 1) % 2, i);
        g_assert_cmpuint(requests, ==, 11);
    }
    clear(&w);
}

/* Two that work on the same group in turn part it, and then ask no more. */
static void test_group_is_parted(void)
{
    guint64 requests = 1;
    World w;

    init(&w);
    for (guint round = 0; round < 8 && requests > 0; round++) {
        requests = 0;
        for (guint i = 0; i < QOS_INODES_GROUP_MAX; i++)
            requests += visit_one(&w, i % 2, i);
        g_test_message("%" G_GUINT64_FORMAT " requests", requests);
    }
    g_assert_cmpuint(requests, ==, 0);
    clear(&w);
}

/* What is used between the call and its release stays, though it lies beside what was wanted. */
static void test_group_used_beside(void)
{
    Use first, wanted, beside, others;
    World w;

    init(&w);
    g_assert_cmpuint(visit_one(&w, 0, 0), ==, 1);
    visit_one(&w, 1, 100); /* now two go at a time */
    w.mounts[0].is_stubborn = TRUE;
    get_one(&w, 1, 200, &wanted);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpuint(w.mounts[0].credit.spans[0].last, ==, 201);
    g_assert_cmpint(get_one(&w, 0, 201, &beside), ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[0].engine, &beside.use, w.now);
    release(&w, 0);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(wanted.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(get_one(&w, 0, 201, &first), ==, QOS_CREDIT_GRANTED); /* it is still here */
    g_assert_cmpint(get_one(&w, 1, 201, &others), ==, QOS_CREDIT_WAITING);
    w.mounts[0].is_stubborn = FALSE;
    pass(&w, QOS_MILLISECOND);
    qos_lockengine_put(w.mounts[0].engine, &first.use, w.now);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(others.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &others.use, w.now);
    qos_lockengine_put(w.mounts[1].engine, &wanted.use, w.now);
    clear(&w);
}

/* The second calls for two of what the first has, and uses one of: the other one goes at once. */
static void call_for_two(World *w, Use *held, Use *first, Use *second)
{
    g_assert_cmpuint(visit_one(w, 0, 0), ==, 1);
    g_assert_cmpint(get_one(w, 0, 200, held), ==, QOS_CREDIT_GRANTED);
    get_one(w, 1, 200, first);
    get_one(w, 1, 201, second);
    pass(w, QOS_MILLISECOND);
    g_assert_cmpint(first->verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(second->verdict, ==, QOS_CREDIT_GRANTED);
}

/* The first uses it no more: that one alone is to be forgotten. */
static void give_up_held(World *w, Use *held)
{
    w->mounts[0].is_stubborn = TRUE;
    qos_lockengine_put(w->mounts[0].engine, &held->use, w->now);
    pass(w, QOS_MILLISECOND);
    g_assert_cmpuint(w->mounts[0].credit.count, ==, 1);
    g_assert_cmpuint(w->mounts[0].credit.spans[0].first, ==, 200);
    g_assert_cmpuint(w->mounts[0].credit.spans[0].last, ==, 200);
    release(w, 0);
}

/* What another has had and left since it called for it is not wanted any more, though it has not
 * got all that it called for. */
static void test_group_wanted_once(void)
{
    Use held, first, second, again;
    World w;

    init(&w);
    call_for_two(&w, &held, &first, &second);
    qos_lockengine_put(w.mounts[1].engine, &second.use, w.now);
    get_one(&w, 0, 201, &again);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(again.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[0].engine, &again.use, w.now);
    give_up_held(&w, &held);
    w.mounts[0].is_stubborn = FALSE;
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &first.use, w.now);
    clear(&w);
}

/* The same, and then the other wants it once more: that is a new call, though the first is not
 * answered to the end. */
static void test_group_wanted_anew(void)
{
    Use held, first, second, again, third;
    World w;

    init(&w);
    g_assert_cmpuint(visit_one(&w, 0, 0), ==, 1);
    g_assert_cmpint(get_one(&w, 0, 200, &held), ==, QOS_CREDIT_GRANTED);
    get_one(&w, 1, 200, &first);
    get_one(&w, 1, 201, &second);
    pass(&w, QOS_MILLISECOND);
    qos_lockengine_put(w.mounts[1].engine, &second.use, w.now);
    get_one(&w, 0, 201, &again);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(again.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[0].engine, &again.use, w.now);
    get_one(&w, 1, 201, &third);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(third.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &third.use, w.now);
    qos_lockengine_put(w.mounts[0].engine, &held.use, w.now);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &first.use, w.now);
    clear(&w);
}

/* What a mount gives back, and has again as a grant of something else was on its way meanwhile, is
 * called for once more. */
static void test_group_crosses_grant(void)
{
    Use held, first, second, other;
    World w;

    init(&w);
    g_assert_cmpuint(visit_one(&w, 0, 0), ==, 1);
    visit_one(&w, 1, 300);
    g_assert_cmpint(get_one(&w, 0, 200, &held), ==, QOS_CREDIT_GRANTED);
    w.mounts[0].is_stubborn = TRUE;
    get_one(&w, 1, 200, &first);
    get_one(&w, 1, 201, &second);
    pass(&w, QOS_MILLISECOND); /* 201 is being forgotten */
    g_assert_cmpint(get_one(&w, 0, 300, &other), ==, QOS_CREDIT_WAITING);
    carry(&w, &w.mounts[0]);
    drain_server(&w);
    take_events(&w, &w.mounts[1]);
    carry(&w, &w.mounts[1]); /* 300: the grant is on its way */
    qos_lockengine_release(w.mounts[0].engine, &w.mounts[0].dropped, &w.mounts[0].credit, w.now);
    w.mounts[0].is_stubborn = FALSE;
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &second.use, w.now);
    qos_lockengine_put(w.mounts[0].engine, &other.use, w.now);
    qos_lockengine_put(w.mounts[0].engine, &held.use, w.now);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &first.use, w.now);
    clear(&w);
}

/* What was called for and has gone already need not be forgotten again. */
static void test_group_told_of_what_it_has(void)
{
    Use held, first, second;
    World w;

    init(&w);
    call_for_two(&w, &held, &first, &second);
    give_up_held(&w, &held);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &first.use, w.now);
    qos_lockengine_put(w.mounts[1].engine, &second.use, w.now);
    clear(&w);
}

static gboolean keep_one(World *w, guint mount, guint place)
{
    QosCredit credit = qos_credit_span(place, place, TRUE);
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, "group", 5);
    const gboolean is_kept = qos_lockengine_keep(w->mounts[mount].engine, &resource, &credit);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &credit);
    return is_kept;
}

/* What the mount says that it keeps stays, if nobody wants it; the rest goes along. */
static void test_group_kept_beside(void)
{
    Use wanted, kept;
    World w;

    init(&w);
    g_assert_cmpuint(visit_one(&w, 0, 0), ==, 1);
    g_assert_false(keep_one(&w, 0, 5)); /* nothing was told */
    visit_one(&w, 1, 100);
    visit_one(&w, 1, 104); /* now four go at a time */
    w.mounts[0].is_stubborn = TRUE;
    get_one(&w, 1, 200, &wanted);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpuint(w.mounts[0].credit.spans[0].last, ==, 203);
    g_assert_true(keep_one(&w, 0, 203));
    g_assert_false(keep_one(&w, 0, 200));
    release(&w, 0);
    pass(&w, QOS_MILLISECOND);
    g_assert_cmpint(wanted.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[1].engine, &wanted.use, w.now);
    w.mounts[0].is_stubborn = FALSE;
    g_assert_cmpint(get_one(&w, 0, 203, &kept), ==, QOS_CREDIT_GRANTED);
    qos_lockengine_put(w.mounts[0].engine, &kept.use, w.now);
    g_assert_cmpuint(visit_one(&w, 1, 202), ==, 0);
    clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/group-in-order", test_group_in_order);
    g_test_add_func("/lockengine/group-comes-for-nobody", test_group_comes_for_nobody);
    g_test_add_func("/lockengine/group-used-while-dropped", test_group_used_while_dropped);
    g_test_add_func("/lockengine/group-regained-while-dropped", test_group_regained_while_dropped);
    g_test_add_func("/lockengine/group-goes-over", test_group_goes_over);
    g_test_add_func("/lockengine/group-is-parted", test_group_is_parted);
    g_test_add_func("/lockengine/group-used-beside", test_group_used_beside);
    g_test_add_func("/lockengine/group-wanted-once", test_group_wanted_once);
    g_test_add_func("/lockengine/group-wanted-anew", test_group_wanted_anew);
    g_test_add_func("/lockengine/group-crosses-grant", test_group_crosses_grant);
    g_test_add_func("/lockengine/group-told-of-what-it-has", test_group_told_of_what_it_has);
    g_test_add_func("/lockengine/group-kept-beside", test_group_kept_beside);
    return g_test_run();
}
