/*
 * The table of a mount's budgets, with the time stepped by hand and the server's answers made by
 * hand: what is reported when, and which rates are in force.
 */
#include "budgets_fixture.h"

#include <errno.h>

/* --- one class --- */

/* Wakes, reports, is granted, and rests, to the digit. */
static void test_one_class(void)
{
    World w;
    Item item;
    QosRequest *waiting[2];

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000 floor=10%");
    enforce(&w);
    const QosTime start = w.f.now;
    g_assert_false(step_at(&w, start, &item));
    g_assert_cmpint(w.next, ==, QOS_NEVER);
    g_assert_null(use(&w, "j", 0)); /* its part of the floor is 12.5 a second: one goes */
    g_assert_cmpuint(w.wakes, ==, 1);
    waiting[0] = use(&w, "j", 0);
    waiting[1] = use(&w, "j", 0);
    g_assert_nonnull(waiting[0]);
    g_assert_cmpuint(w.wakes, ==, 1);
    g_assert_cmpuint(rate(&w, "j"), ==, 12500);
    g_assert_false(step_at(&w, start, &item));
    g_assert_cmpint(w.next, ==, start + E / 4);

    g_assert_true(step_at(&w, start + E / 4, &item));
    g_assert_cmpuint(item.rule, ==, 5);
    g_assert_cmpstr(item.class, ==, "j");
    g_assert_cmpuint(item.ticket, ==, ((guint64)3 << QOS_BUDGET_TICKET_BITS) + 1);
    g_assert_cmpuint(item.demand, ==, 120 * KILO + 20 * KILO); /* 3 in E/4; 2 wait, in E */
    g_assert_cmpuint(item.served, ==, 1 * KILO);
    g_assert_cmpuint(item.held, ==, 12500);
    g_assert_cmpint(w.next, ==, w.f.now + E * 3 / 2); /* nothing is answered so far */
    grant(&w, &item, 70 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 70 * KILO);
    g_assert_false(step_at(&w, start + E, &item));
    g_assert_cmpint(w.next, ==, start + E / 4 + E);

    drain(&w, waiting, 2);
    w.f.now = start + E;
    use_many(&w, "j", 1);
    g_assert_true(step_at(&w, start + E / 4 + E, &item));
    g_assert_cmpuint(item.demand, ==, 1); /* one came, two were taken back */
    g_assert_cmpuint(item.served, ==, 2 * KILO);
    grant(&w, &item, 70 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 12500); /* FAIR: it is not given more than it wants */

    g_assert_true(step_at(&w, start + E / 4 + 2 * E, &item)); /* idle for an epoch: says so once */
    g_assert_cmpuint(item.count, ==, 0);
    g_assert_cmpuint(item.held, ==, 0);
    g_assert_cmpuint(item.ticket, ==, ((guint64)3 << QOS_BUDGET_TICKET_BITS) + 3);
    g_assert_cmpint(w.next, <=, w.f.now + LEASE);
    g_assert_false(step_at(&w, start + 20 * E, &item));
    g_assert_cmpint(w.next, ==, QOS_NEVER);

    use_many(&w, "j", 1);
    g_assert_cmpuint(w.wakes, ==, 2);
    g_assert_false(step_at(&w, start + 21 * E, &item));
    g_assert_true(step_at(&w, start + 21 * E + E / 4, &item));
    g_assert_cmpuint(item.demand, ==, 40 * KILO);
    g_assert_cmpuint(item.served, ==, 1 * KILO); /* counted anew */
    world_clear(&w);
}

/* An answer to a report that was made again is void. A class that hears nothing asks after 3/2 E,
 * and is at its floor when its lease has ended. */
static void test_lost_and_late_grants(void)
{
    World w;
    Item first, second;
    QosRequest *waiting;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000 depth=1 floor=0%");
    enforce(&w);
    const QosTime start = w.f.now;
    waiting = use(&w, "j", 0); /* there is no floor */
    g_assert_nonnull(waiting);
    g_assert_false(step_at(&w, start, &first));
    g_assert_true(step_at(&w, start + E / 4, &first));
    g_assert_cmpuint(first.demand, ==, 50 * KILO);
    grant(&w, &first, 30 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 30 * KILO);
    const QosTime until = w.f.now + LEASE - QOS_BUDGET_DRIFT(LEASE);

    g_assert_true(step_at(&w, start + E / 4 + E, &first));
    g_assert_false(step_at(&w, start + E / 4 + 2 * E, &second));
    g_assert_true(step_at(&w, start + E / 4 + 5 * E / 2, &second));
    g_assert_cmpuint(second.ticket, ==, first.ticket + 1);
    grant(&w, &first, 20 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 30 * KILO);
    QosTime at = w.next;
    while (at < until) {
        step_at(&w, at, &second);
        g_assert_cmpint(w.next, <=, MAX(until, w.f.now + E * 3 / 2));
        at = w.next;
        g_assert_cmpuint(rate(&w, "j"), ==, 30 * KILO);
    }
    g_assert_cmpint(at, ==, until);
    step_at(&w, until, &first);
    g_assert_cmpuint(rate(&w, "j"), ==, 0);
    step_at(&w, w.next, &second);
    grant(&w, &second, 5 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 5 * KILO);
    drain(&w, &waiting, 1);
    world_clear(&w);
}

/* A request of no bytes waits for the debt of one that went, or for the first token of a class
 * without a floor. So that is what the mount asks for. */
static void test_waits_for_no_bytes(void)
{
    static const struct {
        const char *command;
        guint64 bytes; /* of the request before it; 0: there is none */
        guint64 came, lacking;
    } cases[] = {
        /* 12 bytes of the depth are this mount's, and one token must be there */
        {"start all jobid={*} bps=1000K depth=auto:1000 floor=10%", 100000, 4000000, 99989},
        {"start all jobid={*} bps=1000K floor=0%", 0, 0, 1},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        World w;
        Item item;

        world_init(&w);
        rule(&w, 5, cases[i].command);
        enforce(&w);
        const QosTime start = w.f.now;
        if (cases[i].bytes > 0)
            g_assert_null(use(&w, "j", cases[i].bytes));
        QosRequest *waiting = use(&w, "j", 0);
        g_assert_nonnull(waiting);
        g_assert_false(step_at(&w, start, &item));
        g_assert_true(step_at(&w, start + E / 4, &item));
        g_assert_cmpuint(item.unit, ==, QOS_UNIT_BYTES);
        g_assert_cmpuint(item.demand, ==, (cases[i].came + cases[i].lacking * 10) * KILO);
        grant(&w, &item, 1000000 * KILO); /* no more than is wanted comes of it */
        w.f.now += E;
        g_assert_true(next(&w.f) == waiting);
        leave(&w.f, waiting);
        g_assert_true(step_at(&w, w.f.now, &item)); /* it is idle */
        g_assert_cmpuint(item.count, ==, 0);
        world_clear(&w);
    }
}

/* --- several --- */

static const Item *item_of(const Item *items, guint count, const char *class, guint unit)
{
    for (guint i = 0; i < count; i++) {
        if (strcmp(items[i].class, class) == 0 && items[i].unit == unit)
            return &items[i];
    }
    return NULL;
}

/* Two jobs with two units each, in one frame. A unit that is idle rests by itself. */
static void test_classes_and_units(void)
{
    World w;
    Item items[ITEMS_MAX];

    world_init(&w);
    rule(&w, 5, "start a jobid={a} rate=1000 bps=1000K floor=50%");
    rule(&w, 6, "start b jobid={b} rate=10000 bps=10000K floor=50% share=hard away=stop");
    enforce(&w);
    const QosTime start = w.f.now;
    use(&w, "a", 4000);
    use(&w, "b", 0);
    step(&w, items);
    g_assert_cmpuint(unit_rate(&w, "a", QOS_UNIT_BYTES), ==, (guint64)64000 * KILO);
    w.f.now = start + E / 4;
    g_assert_cmpuint(step(&w, items), ==, 3); /* "b" moved no byte */
    g_assert_cmpuint(item_of(items, 3, "a", QOS_UNIT_BYTES)->demand, ==,
                     (guint64)160 * 1000 * KILO);
    g_assert_cmpuint(item_of(items, 3, "a", QOS_UNIT_OPERATIONS)->demand, ==, 40 * KILO);
    g_assert_cmpuint(item_of(items, 3, "b", QOS_UNIT_OPERATIONS)->rule, ==, 6);
    /* HARD: a report reserves the floor, 10,000 x 50 % / 8 */
    g_assert_cmpuint(item_of(items, 3, "b", QOS_UNIT_OPERATIONS)->demand, ==, 625 * KILO);
    grant(&w, item_of(items, 3, "a", QOS_UNIT_BYTES), 100.5 * 1000 * KILO);
    grant(&w, item_of(items, 3, "a", QOS_UNIT_OPERATIONS), 30 * KILO);
    g_assert_cmpuint(unit_rate(&w, "a", QOS_UNIT_BYTES), ==, (guint64)100500 * KILO);
    g_assert_cmpuint(rate(&w, "a"), ==, 62500); /* not below the floor */

    use(&w, "b", 1);
    w.f.now = start + E / 4 + E;
    const guint count = step(&w, items);
    g_assert_cmpuint(count, ==, 2); /* both of "a" are idle; "b" was not answered */
    g_assert_cmpuint(items[0].count + items[1].count, ==, 0);
    w.f.now += E / 4;
    g_assert_cmpuint(step(&w, items), ==, 1);
    g_assert_nonnull(item_of(items, 1, "b", QOS_UNIT_BYTES));
    world_clear(&w);
}

/* A class that is gone says that it is idle; if it comes again its tickets go on. */
static void test_gone_and_back(void)
{
    World w;
    Item item;
    guint64 ticket;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    enforce(&w);
    use_many(&w, "j", 1);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    const guint64 id = class_id(&w, "j");
    w.f.now += 60 * QOS_SECOND; /* nobody stepped meanwhile */
    qos_sched_expire(w.f.sched, w.f.now);
    g_assert_true(step_at(&w, w.f.now, &item));
    g_assert_cmpuint(item.count, ==, 0);
    ticket = item.ticket;
    g_assert_cmpint(w.next, ==, QOS_NEVER);
    use_many(&w, "j", 1);
    g_assert_cmpuint(class_id(&w, "j"), !=, id);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    g_assert_cmpuint(item.ticket, ==, ticket + 1);
    g_assert_cmpuint(item.served, ==, 1 * KILO);
    world_clear(&w);
}

/* Thousands of classes go in pages, and wake the caller once. */
static void test_many(void)
{
    World w;
    g_autofree Item *items = g_new(Item, 2 * MANY);
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=900000 floor=50%");
    enforce(&w);
    for (guint i = 0; i < MANY; i++) {
        g_autofree char *job = g_strdup_printf("job-with-a-long-name.of.an.array.%u", i);
        use(&w, job, 0);
    }
    g_assert_cmpuint(w.wakes, ==, 1);
    step(&w, items);
    w.f.now += E / 4;
    g_byte_array_set_size(w.frames, 0);
    qos_budgets_step(w.budgets, w.f.sched, w.f.now, w.frames);
    g_assert_cmpuint(w.frames->len, >, 2 * QOS_WIRE_PAGE_MAX);
    const guint count = read_frames(w.frames, items, 2 * MANY);
    g_assert_cmpuint(count, ==, MANY);
    for (guint i = 0; i < count; i++)
        g_assert_true(g_hash_table_add(seen, items[i].class));
    world_clear(&w);
}

/* --- rules --- */

/* A list that replaces another keeps classes with their rates, as rules have the same ids. */
static void test_another_list(void)
{
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000 floor=8%");
    enforce(&w);
    use_many(&w, "j", 1);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    grant(&w, &item, 30 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 30 * KILO);
    const guint64 id = class_id(&w, "j");

    w.list.version = 2;
    rule(&w, 7, "start other uid={12} rate=7");
    enforce(&w);
    g_assert_cmpuint(class_id(&w, "j"), ==, id);
    g_assert_cmpuint(rate(&w, "j"), ==, 30 * KILO);
    rule(&w, 5, "start all jobid={*} rate=20 floor=8%"); /* changed: below what is granted */
    enforce(&w);
    g_assert_cmpuint(class_id(&w, "j"), ==, id);
    g_assert_cmpuint(rate(&w, "j"), ==, 20 * KILO);
    rule(&w, 5, "start all jobid={*} rate=1000 floor=8%"); /* only the server gives more */
    enforce(&w);
    g_assert_cmpuint(rate(&w, "j"), ==, 20 * KILO);
    g_assert_cmpuint(qos_budgets_terms(w.budgets).version, ==, 2);
    g_assert_cmpuint(qos_budgets_terms(w.budgets).rules, ==, 2);

    rule(&w, 5, "start all jobid={*} rate=none bps=1M floor=8%");
    enforce(&w);
    g_assert_cmpuint(unit_rate(&w, "j", QOS_UNIT_BYTES), ==, (guint64)10485 * KILO);
    g_assert_cmpuint(class_id(&w, "j"), ==, 0); /* no bound on operations any more */
    qos_budgets_set_rules(w.budgets, w.f.sched, NULL, NULL, w.f.now);
    g_assert_null(qos_sched_cluster_rules(w.f.sched));
    g_assert_false(qos_budgets_step(w.budgets, w.f.sched, w.f.now, w.frames) != QOS_NEVER);
    world_clear(&w);
}

/* Parts of the floors: when a list is in force nobody has more of them than it says. */
static void test_floor_parts(void)
{
    static const struct {
        guint parts;
        guint64 floor;
    } cases[] = {{8, 12500}, {16, 6250}, {0, 0}, {64, 1562}, {8, 12500}};
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    enforce(&w);
    use_many(&w, "rests", 1);
    step_at(&w, w.f.now, &item);
    step_at(&w, w.f.now + E / 4, &item);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *job = g_strdup_printf("new-%u", i);
        QosRequest *request = request_new(&w.f, job, QOS_OP_READ, 0);
        qos_sched_is_limited(w.f.sched, request, w.f.now); /* a class that no step has seen */
        request_free(request);
        w.list.parts = cases[i].parts;
        enforce(&w);
        g_assert_cmpuint(rate(&w, "rests"), ==, cases[i].floor);
        g_assert_cmpuint(rate(&w, job), ==, cases[i].floor);
    }
    world_clear(&w);
}

static void test_expiry(void)
{
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    rule(&w, 6, "start more uid={1} rate=1000");
    g_array_index(w.list.rules, QosWireRule, 0).left = 3 * QOS_SECOND;
    enforce(&w);
    step_at(&w, w.f.now, &item);
    g_assert_cmpint(w.next, ==, w.f.now + 3 * QOS_SECOND);
    step_at(&w, w.next, &item);
    g_assert_cmpint(w.next, ==, QOS_NEVER);
    g_assert_cmpuint(qos_budgets_terms(w.budgets).rules, ==, 1);
    g_assert_cmpuint(qos_rules_count(qos_sched_cluster_rules(w.f.sched)), ==, 2);
    world_clear(&w);
}

static void test_bad_lists(void)
{
    static const struct {
        guint64 id;
        const char *command;
        int error;
        const char *named;
    } cases[] = {
        {9, "start all jobid={*} rate=1", EEXIST, "all"},
        {9, "start default jobid={*} rate=1", EEXIST, "default"},
        {9, "start bad jobid={*} rate=x", EINVAL, "x"},
        {9, "start bad jobid={*} rate=1 rank=all", EINVAL, "bad"},
        {9, "change all rate=1", EINVAL, "all"},
        {9, "start bad jobid={*} share=hard away=open", EINVAL, "bad"},
        {9, "start bad jobid={*} passthrough", EINVAL, "bad"},
        {G_MAXUINT64, "start bad jobid={*} rate=1", ERANGE, "bad"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        World w;
        world_init(&w);
        rule(&w, 5, "start all jobid={*} rate=1000");
        rule(&w, cases[i].id, cases[i].command);
        g_assert_null(qos_budgets_read_rules(&w.list, w.f.now, &error));
        g_assert_error(error, QOS_ERROR, cases[i].error);
        g_assert_nonnull(strstr(error->message, cases[i].named));
        world_clear(&w);
    }
}

/* --- dry runs, and what is broken --- */

/* A dry run asks for what comes, and tells as served what its rate would have let go. */
static void test_dry_run(void)
{
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000 dryrun");
    enforce(&w);
    use_many(&w, "j", 100);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    g_assert_cmpuint(item.demand, ==, 4000 * KILO);
    g_assert_cmpuint(item.served, ==, 312); /* 12.5 a second for 25 ms */
    grant(&w, &item, 500 * KILO);
    use_many(&w, "j", 100);
    g_assert_true(step_at(&w, w.f.now + E, &item));
    g_assert_cmpuint(item.demand, ==, 1000 * KILO);
    g_assert_cmpuint(item.served, ==, 312 + 50 * KILO);
    world_clear(&w);
}

static void test_broken_grants(void)
{
    static const guint8 junk[] = {5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'j', 2, 0, 0, 0, 255, 255};
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000");
    enforce(&w);
    use_many(&w, "j", 1);
    step_at(&w, w.f.now, &item);
    g_assert_true(step_at(&w, w.f.now + E / 4, &item));
    for (gsize length = 1; length <= sizeof(junk); length++)
        g_assert_false(qos_budgets_grant(w.budgets, w.f.sched, junk, length, w.f.now));
    Item other = item;
    other.rule = 6; /* a rule, a class and a unit that are not there */
    grant(&w, &other, 1);
    other = item;
    other.unit = QOS_UNIT_BYTES;
    grant(&w, &other, 1);
    other = item;
    g_strlcpy(other.class, "k", sizeof(other.class));
    grant(&w, &other, 1);
    g_assert_cmpuint(rate(&w, "j"), ==, 12500);
    grant(&w, &item, 30 * KILO);
    g_assert_cmpuint(rate(&w, "j"), ==, 30 * KILO);
    world_clear(&w);
}

/* uid 7 and gid 7 are classes of their own when a rule goes from one to the other. */
static void test_other_per(void)
{
    World w;
    Item item;

    world_init(&w);
    rule(&w, 5, "start all jobid={*} rate=1000 per=uid");
    enforce(&w);
    QosRequest *request = request_new(&w.f, "j", QOS_OP_READ, 0);
    request->uid = 0;
    g_assert_cmpint(enter(&w.f, request), ==, QOS_GO);
    leave(&w.f, request);
    const guint64 id = class_id(&w, "0");
    g_assert_cmpuint(id, !=, 0);
    step_at(&w, w.f.now, &item);
    rule(&w, 5, "start all jobid={*} rate=1000 per=rule");
    enforce(&w);
    request = request_new(&w.f, "j", QOS_OP_READ, 0);
    request->uid = 0;
    g_assert_cmpint(enter(&w.f, request), ==, QOS_GO);
    leave(&w.f, request);
    g_assert_cmpuint(class_id(&w, ""), >, id);
    world_clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budgets/one-class", test_one_class);
    g_test_add_func("/budgets/lost-and-late-grants", test_lost_and_late_grants);
    g_test_add_func("/budgets/waits-for-no-bytes", test_waits_for_no_bytes);
    g_test_add_func("/budgets/classes-and-units", test_classes_and_units);
    g_test_add_func("/budgets/gone-and-back", test_gone_and_back);
    g_test_add_func("/budgets/many", test_many);
    g_test_add_func("/budgets/another-list", test_another_list);
    g_test_add_func("/budgets/floor-parts", test_floor_parts);
    g_test_add_func("/budgets/expiry", test_expiry);
    g_test_add_func("/budgets/bad-lists", test_bad_lists);
    g_test_add_func("/budgets/dry-run", test_dry_run);
    g_test_add_func("/budgets/broken-grants", test_broken_grants);
    g_test_add_func("/budgets/other-per", test_other_per);
    return g_test_run();
}
