/*
 * Several mounts' budgets and the coordinator of one class (core/budget.h), with the time stepped
 * by hand: together the mounts have the rule's rate, and each has its part of it.
 */
#include "budgets_fixture.h"

#define MOUNTS  4
#define R       2000
#define TICK    (5 * QOS_MILLISECOND)
#define CLIENTS 100

typedef struct {
    World mounts[MOUNTS];
    gboolean is_on[MOUNTS], was_on[MOUNTS];
    guint waiting[MOUNTS], served[MOUNTS];
    QosBudget *budget;
    QosTime now, closed;
    gboolean is_hard;
} Site;

static void site_init(Site *site, gboolean is_hard)
{
    const QosBudgetConfig config = {.limit = R * QOS_BUDGET_UNIT,
                                    .share = is_hard ? QOS_BUDGET_HARD : QOS_BUDGET_FAIR,
                                    .floor = 10,
                                    .epoch = E,
                                    .lease = LEASE,
                                    .registered = MOUNTS};

    *site = (Site){.is_hard = is_hard};
    for (guint i = 0; i < MOUNTS; i++) {
        World *world = &site->mounts[i];
        world_init(world);
        world->list.parts = MOUNTS;
        rule(world, 5,
             is_hard ? "start all jobid={*} rate=2000 share=hard"
                     : "start all jobid={*} rate=2000");
        enforce(world);
        site->now = world->f.now;
    }
    site->budget = qos_budget_new(&config, TRUE, site->now);
    site->closed = site->now;
    for (guint i = 0; i < MOUNTS; i++)
        g_assert_cmpuint(qos_budget_join(site->budget, i, 1, site->now), ==, 50 * KILO);
}

static void site_clear(Site *site)
{
    for (guint i = 0; i < MOUNTS; i++) {
        World *world = &site->mounts[i];
        qos_sched_set_cluster_rules(world->f.sched, NULL, 0, site->now);
        for (QosRequest *request; (request = next(&world->f)) != NULL;)
            leave(&world->f, request);
        world_clear(world);
    }
    qos_budget_free(site->budget);
}

/* The mount's clients: each has one request under way, and nothing else to do. */
static void serve(Site *site, guint number)
{
    World *world = &site->mounts[number];
    QosRequest *request;

    while ((request = next(&world->f)) != NULL) {
        leave(&world->f, request);
        site->waiting[number]--;
        site->served[number]++;
    }
    while (site->is_on[number] && site->waiting[number] < CLIENTS) {
        request = request_new(&world->f, "j", QOS_OP_READ, 0);
        if (enter(&world->f, request) == QOS_WAIT) {
            site->waiting[number]++;
        } else {
            leave(&world->f, request);
            site->served[number]++;
        }
    }
}

/* What the mount reports goes to the coordinator. */
static void pass_reports(Site *site, guint number)
{
    const GByteArray *frames = site->mounts[number].frames;
    QosBudgetReport report = {0};
    QosWireBudget item;

    if (frames->len == 0)
        return;
    const guint8 *payload = frames->data + QOS_WIRE_LENGTH_SIZE + 1;
    gsize length = frames->len - QOS_WIRE_LENGTH_SIZE - 1;
    g_assert_true(qos_wire_get_budget(&payload, &length, &item));
    g_assert_cmpuint(length, ==, 0);
    g_assert_true(qos_budget_report_decode(item.bytes, item.length, &report));
    g_assert_true(qos_budget_report(site->budget, number, &report, site->now));
    qos_budget_report_clear(&report);
}

static void answer(Site *site)
{
    g_autoptr(GArray) answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));

    qos_budget_close(site->budget, site->now, answers);
    site->closed = site->now;
    for (guint i = 0; i < answers->len; i++) {
        const QosBudgetAnswer *to = &g_array_index(answers, QosBudgetAnswer, i);
        const Item item = {.rule = 5, .class = "j"};
        grant_terms(&site->mounts[to->to], &item, &to->grant);
    }
}

/* All of them go on for `duration`. */
static void run(Site *site, QosTime duration)
{
    const QosTime end = site->now + duration;

    for (guint i = 0; i < MOUNTS; i++)
        site->served[i] = 0;
    while (site->now < end) {
        guint64 sum = 0;
        site->now += TICK;
        for (guint i = 0; i < MOUNTS; i++) {
            World *world = &site->mounts[i];
            Item items[ITEMS_MAX];
            world->f.now = site->now;
            site->was_on[i] |= site->is_on[i];
            serve(site, i);
            step(world, items);
            pass_reports(site, i);
        }
        if (site->now - site->closed >= E ||
            (site->now - site->closed >= E / 2 && qos_budget_is_complete(site->budget)))
            answer(site);
        for (guint i = 0; i < MOUNTS; i++)
            sum += site->was_on[i] ? rate(&site->mounts[i], "j") : 0;
        if (site->is_hard)
            g_assert_cmpuint(sum, <=, R * QOS_BUDGET_UNIT);
    }
}

static void assert_served(const Site *site, guint number, guint least, guint most)
{
    g_assert_cmpuint(site->served[number], >=, least);
    g_assert_cmpuint(site->served[number], <=, most);
}

/* One alone has all but what is kept free; two have halves; three have thirds, within 3 E. */
static void share(gboolean is_hard)
{
    const guint whole = is_hard ? R * 78 / 100 : R * 97 / 100; /* HARD: floors of the idle, 1 % */
    Site site;

    site_init(&site, is_hard);
    for (guint count = 1; count <= 3; count++) {
        site.is_on[count - 1] = TRUE;
        run(&site, 5 * E);
        run(&site, QOS_SECOND);
        for (guint i = 0; i < MOUNTS; i++)
            assert_served(&site, i, i < count ? whole / count : 0,
                          i < count ? R * 104 / 100 / count : 0);
    }
    site.is_on[1] = FALSE; /* what it had is back soon, and it may come again */
    run(&site, 10 * E);
    run(&site, QOS_SECOND);
    assert_served(&site, 0, whole / 2, R * 104 / 200);
    assert_served(&site, 1, 0, 0);
    site.is_on[1] = TRUE;
    run(&site, 5 * E);
    run(&site, QOS_SECOND);
    assert_served(&site, 1, whole / 3, R * 104 / 300);
    site_clear(&site);
}

static void test_fair(void)
{
    share(FALSE);
}

static void test_hard(void)
{
    share(TRUE);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budgets-shared/fair", test_fair);
    g_test_add_func("/budgets-shared/hard", test_hard);
    return g_test_run();
}
