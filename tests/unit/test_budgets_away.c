/*
 * What a mount's budgets do when the server goes and comes back.
 */
#include "budgets_fixture.h"

typedef struct {
    QosBudgetsClass of;
    guint count;
} Told;

static void note_told(const QosBudgetsClass *item, gpointer arg)
{
    Told *told = arg;

    told->of = *item;
    told->count++;
}

static QosBudgetsClass told(World *world)
{
    Told note = {0};

    qos_budgets_each(world->budgets, world->f.sched, note_told, &note, world->f.now);
    g_assert_cmpuint(note.count, ==, 1);
    return note.of;
}

/* The server goes: the lease holds, then what away= says, for classes that rest too, and for new
 * ones at once. It comes back: what away= says holds until the first answer. */
static void test_away(void)
{
    static const struct {
        const char *away;
        guint64 rate;     /* of the class when the server is away */
        guint64 in_force; /* as the scheduler has it */
    } cases[] = {
        {"floor", 12500, 12500},
        {"open", QOS_BUDGET_NO_BOUND, (guint64)1 << 60},
        {"stop", 0, 0},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *command =
            g_strdup_printf("start all jobid={*} rate=1000 away=%s per=rule", cases[i].away);
        World w;
        Item item;
        world_init(&w);
        rule(&w, 5, command);
        enforce(&w);
        use_many(&w, "j", 1);
        step_at(&w, w.f.now, &item);
        g_assert_true(step_at(&w, w.f.now + E / 4, &item));
        grant(&w, &item, 30 * KILO);
        const QosTime until = w.f.now + LEASE - QOS_BUDGET_DRIFT(LEASE);
        const QosTime lost = w.f.now + E / 2;

        w.f.now = lost;
        qos_budgets_set_connected(w.budgets, FALSE, w.f.now);
        QosTime at = lost;
        while (at < lost + LEASE) {
            g_assert_false(step_at(&w, at, &item));
            g_assert_cmpuint(told(&w).rate, ==, w.f.now < until ? 30 * KILO : 12500);
            g_assert_false(told(&w).is_away);
            at = w.next;
        }
        if (i > 0)
            g_assert_cmpint(at, ==, lost + LEASE);
        g_assert_false(step_at(&w, MAX(lost + LEASE, MIN(at, lost + 2 * LEASE)), &item));
        g_assert_cmpint(w.next, ==, QOS_NEVER);
        g_assert_true(told(&w).is_away);
        g_assert_cmpuint(told(&w).rate, ==, cases[i].rate);
        g_assert_cmpuint(told(&w).floor, ==, 12500);
        g_assert_cmpuint(rate(&w, ""), ==, cases[i].in_force);

        w.f.now = lost + 100 * QOS_SECOND; /* one that is made now */
        qos_sched_expire(w.f.sched, w.f.now);
        step_at(&w, w.f.now, &item);
        QosRequest *waiting = use(&w, "k", 0);
        step_at(&w, w.f.now, &item);
        g_assert_cmpuint(rate(&w, ""), ==, cases[i].in_force);

        qos_budgets_set_connected(w.budgets, TRUE, w.f.now);
        g_assert_true(step_at(&w, w.f.now, &item));
        g_assert_cmpuint(item.count, >, 0);
        g_assert_cmpuint(rate(&w, ""), ==, cases[i].in_force);
        grant(&w, &item, 20 * KILO);
        g_assert_false(told(&w).is_away);
        g_assert_cmpuint(told(&w).rate, ==, 20 * KILO);
        drain(&w, &waiting, waiting != NULL);
        world_clear(&w);
    }
}

/* The server restarts within a lease: the class asks it at once, with a ticket that grows, and
 * counts anew what it is served, because this server knows nothing of before. */
static void test_another_life_of_the_server(void)
{
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    enforce(&w);
    use_many(&w, "j", 1);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    const guint64 ticket = item.ticket;
    grant(&w, &item, 40 * KILO);
    w.f.now += E / 2;
    use_many(&w, "j", 2);
    qos_budgets_set_connected(w.budgets, FALSE, w.f.now);
    g_assert_false(step_at(&w, w.f.now + E, &item));
    qos_budgets_set_connected(w.budgets, TRUE, w.f.now);
    use_many(&w, "j", 1);
    enforce(&w);
    g_assert_cmpuint(rate(&w, "j"), ==, 40 * KILO);
    g_assert_true(step_at(&w, w.f.now, &item));
    g_assert_cmpuint(item.ticket, ==, ticket + 1);
    g_assert_cmpuint(item.held, ==, 40 * KILO);
    g_assert_cmpuint(item.served, ==, 1 * KILO);
    world_clear(&w);
}

/* A class that went to rest while there was no server gives its lease back when there is one. */
static void test_rests_while_away(void)
{
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    enforce(&w);
    use_many(&w, "j", 1);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    grant(&w, &item, 40 * KILO);
    qos_budgets_set_connected(w.budgets, FALSE, w.f.now);
    g_assert_false(step_at(&w, w.f.now + E, &item));
    g_assert_cmpuint(rate(&w, "j"), ==, 40 * KILO);
    qos_budgets_set_connected(w.budgets, TRUE, w.f.now);
    g_assert_true(step_at(&w, w.f.now, &item));
    g_assert_cmpuint(item.count, ==, 0);
    g_assert_cmpuint(rate(&w, "j"), ==, 12500);
    world_clear(&w);
}

/* The machine sleeps with a report under way: the server has lent the rate on. The class is at its
 * floor at once, and what was answered before counts no more; it asks at once. */
static void test_slept(void)
{
    World w;
    Item item, before;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    enforce(&w);
    use_many(&w, "j", 1);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    grant(&w, &item, 40 * KILO);
    w.f.now += E / 2;
    use_many(&w, "j", 2);
    g_assert_true(step_at(&w, w.f.now + E / 2, &before));
    g_assert_cmpuint(rate(&w, "j"), ==, 40 * KILO);
    qos_budgets_slept(w.budgets, w.f.sched, w.f.now);
    g_assert_cmpuint(rate(&w, "j"), ==, 12500);
    grant(&w, &before, 40 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 12500);
    QosRequest *waiting = use(&w, "j", 0);
    g_assert_true(step_at(&w, w.f.now, &item));
    g_assert_cmpuint(item.ticket, >, before.ticket);
    grant(&w, &item, 20 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 20 * KILO);
    drain(&w, &waiting, waiting != NULL);
    world_clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budgets-away/away", test_away);
    g_test_add_func("/budgets-away/another-life-of-the-server", test_another_life_of_the_server);
    g_test_add_func("/budgets-away/rests-while-away", test_rests_while_away);
    g_test_add_func("/budgets-away/slept", test_slept);
    return g_test_run();
}
