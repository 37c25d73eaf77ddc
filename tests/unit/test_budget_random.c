/*
 * The laws of reports and of what is handed out, by random values. A failure prints its seed:
 * QOSFS_SEED=n runs that one alone.
 */
#include <math.h>

#include "core/budget.h"

#define SEEDS   2000
#define MEMBERS 12
#define R       (G_GUINT64_CONSTANT(1000000) * QOS_BUDGET_UNIT)

typedef void (*Property)(GRand *random);

static void each_seed(Property property)
{
    const char *given = g_getenv("QOSFS_SEED");
    const guint64 first = given != NULL ? g_ascii_strtoull(given, NULL, 10) : 1;

    for (guint64 seed = first; seed < first + (given != NULL ? 1 : SEEDS); seed++) {
        g_autoptr(GRand) random = g_rand_new_with_seed((guint32)seed);
        g_test_message("QOSFS_SEED=%" G_GUINT64_FORMAT, seed); /* the last one is the one */
        property(random);
    }
}

/* Of any size: each number of digits is as likely. */
static guint64 any_rate(GRand *random)
{
    return (guint64)exp2(g_rand_double_range(random, 0, 63.9)) - 1;
}

static void any_report(GRand *random, QosBudgetReport *report)
{
    QosBudgetReport one = {0};
    const guint count = (guint)g_rand_int_range(random, 0, 6);

    qos_budget_report_clear(report);
    for (guint i = 0; i < count; i++) {
        qos_budget_report_set(&one, any_rate(random), any_rate(random),
                              (guint64)g_rand_int_range(random, 1, 1000));
        one.served = any_rate(random);
        qos_budget_report_add(report, &one);
    }
    qos_budget_report_clear(&one);
}

static void combine_is_lawful(GRand *random)
{
    QosBudgetReport a = {0}, b = {0}, c = {0}, left = {0}, right = {0}, none = {0};

    any_report(random, &a);
    any_report(random, &b);
    any_report(random, &c);
    qos_budget_report_copy(&left, &a); /* (a + b) + c */
    qos_budget_report_add(&left, &b);
    qos_budget_report_add(&left, &c);
    qos_budget_report_copy(&right, &c); /* (c + b) + a */
    qos_budget_report_add(&right, &b);
    qos_budget_report_add(&right, &a);
    g_assert_true(qos_budget_report_equal(&left, &right));
    qos_budget_report_copy(&right, &b); /* a + (b + c) */
    qos_budget_report_add(&right, &c);
    qos_budget_report_copy(&left, &a);
    qos_budget_report_add(&left, &right);
    qos_budget_report_add(&none, &left); /* 0 + x = x + 0 = x */
    g_assert_true(qos_budget_report_equal(&none, &left));
    qos_budget_report_clear(&none);
    qos_budget_report_add(&left, &none);
    qos_budget_report_add(&right, &a);
    g_assert_true(qos_budget_report_equal(&left, &right));
    qos_budget_report_clear(&a);
    qos_budget_report_clear(&b);
    qos_budget_report_clear(&c);
    qos_budget_report_clear(&left);
    qos_budget_report_clear(&right);
}

static void test_combine(void)
{
    each_seed(combine_is_lawful);
}

static void bytes_are_the_report(GRand *random)
{
    QosBudgetReport report = {0}, again = {0};
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    any_report(random, &report);
    report.ticket = any_rate(random);
    qos_budget_report_encode(&report, bytes);
    g_assert_true(qos_budget_report_decode(bytes->data, bytes->len, &again));
    g_assert_true(qos_budget_report_equal(&report, &again));
    qos_budget_report_clear(&again);
    for (guint length = 0; length < bytes->len; length++)
        g_assert_false(qos_budget_report_decode(bytes->data, length, &again));
    qos_budget_report_clear(&report);
}

static void test_bytes(void)
{
    each_seed(bytes_are_the_report);
}

/* A grant that is encoded once is told to many: each has a ticket of its own. */
static void ticket_is_replaced(GRand *random)
{
    QosBudgetGrant grant = {.level = 5, .rest = 4, .raise = 3, .raise_rest = 2, .lease = 1};
    g_autoptr(GByteArray) bytes = g_byte_array_new(), other = g_byte_array_new();

    grant.ticket = any_rate(random);
    qos_budget_grant_encode(&grant, bytes);
    grant.ticket = any_rate(random);
    qos_budget_grant_encode(&grant, other);
    qos_budget_grant_set_ticket(bytes, grant.ticket);
    g_assert_cmpmem(bytes->data, bytes->len, other->data, other->len);
}

static void test_ticket(void)
{
    each_seed(ticket_is_replaced);
}

/* The sum of what members take at the level is at most B, by whole numbers; and is not far below.
 */
static void level_hands_out_no_more(GRand *random)
{
    guint64 demands[MEMBERS], weights[MEMBERS];
    QosBudgetReport sum = {0}, one = {0};
    const double budget = (double)(any_rate(random) >> 4);
    double taken = 0, exact = 0;

    for (guint i = 0; i < MEMBERS; i++) {
        demands[i] = MIN(any_rate(random), QOS_BUDGET_RATE_MAX);
        weights[i] = (guint64)g_rand_int_range(random, 1, 100);
        qos_budget_report_set(&one, demands[i], 0, weights[i]);
        qos_budget_report_add(&sum, &one);
    }
    const double level = qos_budget_level(&sum, budget);
    for (guint i = 0; i < MEMBERS; i++) {
        taken += floor(MIN((double)demands[i], level * (double)weights[i]));
        exact += (double)demands[i];
    }
    g_assert_cmpfloat(taken, <=, budget);
    g_assert_cmpfloat(taken + MEMBERS * 100, >=, MIN(budget, exact) * 0.97);
    qos_budget_report_clear(&sum);
    qos_budget_report_clear(&one);
}

static void test_level(void)
{
    each_seed(level_hands_out_no_more);
}

typedef struct {
    QosBudget *root, *combiner;
    QosBudgetMount mounts[MEMBERS]; /* the second half is the combiner's */
    QosTime now;
    GArray *answers;
    gboolean is_joined[MEMBERS];
    guint64 floors[MEMBERS]; /* that they may use before they have joined */
} World;

static void deliver(World *world, GRand *random, gboolean is_combiners)
{
    for (guint i = 0; i < world->answers->len; i++) {
        const QosBudgetAnswer *answer = &g_array_index(world->answers, QosBudgetAnswer, i);
        if (g_rand_int_range(random, 0, 5) == 0)
            continue; /* lost */
        if (!is_combiners && answer->to == MEMBERS) {
            GArray *outer = world->answers;
            world->answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));
            qos_budget_pass_down(world->combiner, &answer->grant, world->now, world->answers);
            deliver(world, random, TRUE);
            g_array_unref(world->answers);
            world->answers = outer;
        } else {
            qos_budget_mount_grant(&world->mounts[answer->to], &answer->grant, world->now);
        }
    }
    g_array_set_size(world->answers, 0);
}

static void assert_sum(const World *world)
{
    guint64 sum = 0;

    for (guint i = 0; i < MEMBERS; i++)
        sum += qos_budget_mount_rate(&world->mounts[i], world->now);
    g_assert_cmpuint(sum, <=, R);
    g_assert_cmpuint(sum, <=, qos_budget_state(world->root, world->now).in_force);
    g_assert_cmpuint(qos_budget_state(world->root, world->now).in_force, <=, R);
}

/* A mount joins with its first report, and is lent just what it had used before. */
static void join(World *world, guint number)
{
    if (world->is_joined[number])
        return;
    world->is_joined[number] = TRUE;
    g_assert_cmpuint(qos_budget_join(number < MEMBERS / 2 ? world->root : world->combiner, number,
                                     1, world->now),
                     ==, world->floors[number]);
}

static void any_step(World *world, GRand *random)
{
    QosBudgetReport report = {0};
    const guint number = (guint)g_rand_int_range(random, 0, MEMBERS);
    const guint64 demand =
        g_rand_int_range(random, 0, 4) == 0 ? 0 : (guint64)(g_rand_double(random) * R);

    world->now += g_rand_int_range(random, 0, 60) * QOS_MILLISECOND;
    assert_sum(world);
    join(world, number);
    switch (g_rand_int_range(random, 0, 8)) {
    case 0:
        qos_budget_close(world->root, world->now, world->answers);
        deliver(world, random, FALSE);
        break;
    case 1:
        if (qos_budget_pass_up(world->combiner, world->now, &report) &&
            g_rand_int_range(random, 0, 5) > 0)
            qos_budget_report(world->root, MEMBERS, &report, world->now);
        break;
    default:
        qos_budget_mount_report(&world->mounts[number], demand, 0, world->now, &report);
        if (g_rand_int_range(random, 0, 5) > 0)
            qos_budget_report(number < MEMBERS / 2 ? world->root : world->combiner, number, &report,
                              world->now);
    }
    qos_budget_report_clear(&report);
    assert_sum(world);
}

/* Losses and any order, a tree and mounts beside it, one clock: at every step. Most mounts join
 * late, and use their floors before. */
static void hard_is_hard(GRand *random)
{
    QosBudgetConfig config = {.limit = R,
                              .share = QOS_BUDGET_HARD,
                              .floor = (guint)g_rand_int_range(random, 0, 51),
                              .epoch = QOS_BUDGET_EPOCH,
                              .lease = QOS_SECOND,
                              .registered = MEMBERS};
    World world = {.root = qos_budget_new(&config, TRUE, 0),
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer))};

    config.registered = MEMBERS / 2;
    const guint64 pool = qos_budget_join(world.root, MEMBERS, MEMBERS / 2, 0);
    world.combiner = qos_budget_combiner_new(&config, pool, 1, 0);
    for (guint i = 0; i < MEMBERS; i++) {
        world.floors[i] = R / 100 * config.floor / MEMBERS;
        if (i >= MEMBERS / 2)
            world.floors[i] = pool / (MEMBERS / 2);
        qos_budget_mount_init(&world.mounts[i], &config, 1, world.floors[i], 1);
        if (g_rand_int_range(random, 0, 4) == 0)
            join(&world, i);
    }
    for (guint i = 0; i < 200; i++)
        any_step(&world, random);
    qos_budget_free(world.root);
    qos_budget_free(world.combiner);
    g_array_unref(world.answers);
}

static void test_hard(void)
{
    each_seed(hard_is_hard);
}

/* --- floors in more parts --- */

#define OLD (MEMBERS / 2) /* mounts that are there before */

typedef struct {
    QosBudget *root;
    QosBudgetConfig before, after;
    QosBudgetMount mounts[MEMBERS]; /* the second half comes when all others have acknowledged */
    guint acknowledged;
    gboolean is_asked, is_changed[MEMBERS], is_joined[MEMBERS];
    QosTime now;
    GArray *answers;
} Parts;

/* Of R, in so many parts. */
static guint64 floor_of(const QosBudgetConfig *config)
{
    return (guint64)((double)(R / 100 * config->floor) / (double)config->registered);
}

static gboolean is_there(const Parts *parts, guint number)
{
    return number < OLD || parts->acknowledged == OLD;
}

static void parts_sum(const Parts *parts)
{
    guint64 sum = 0;

    for (guint i = 0; i < MEMBERS; i++)
        sum += is_there(parts, i) ? qos_budget_mount_rate(&parts->mounts[i], parts->now) : 0;
    g_assert_cmpuint(sum, <=, R);
    g_assert_cmpuint(sum, <=, qos_budget_state(parts->root, parts->now).in_force);
}

/* The server is the first to know, and newcomers are told when all others have put it in force. */
static void change_parts(Parts *parts, guint number)
{
    while (parts->acknowledged < OLD && (number >= OLD || parts->is_changed[number]))
        number = (number + 1) % OLD;
    if (!parts->is_asked) {
        parts->is_asked = TRUE;
        qos_budget_configure(parts->root, &parts->after);
    } else if (parts->acknowledged < OLD) {
        parts->is_changed[number] = TRUE;
        parts->acknowledged++;
        qos_budget_mount_configure(&parts->mounts[number], &parts->after, floor_of(&parts->after));
    }
}

static void answer_parts(Parts *parts, GRand *random)
{
    qos_budget_close(parts->root, parts->now, parts->answers);
    for (guint i = 0; i < parts->answers->len; i++) {
        const QosBudgetAnswer *answer = &g_array_index(parts->answers, QosBudgetAnswer, i);
        if (g_rand_int_range(random, 0, 5) > 0)
            qos_budget_mount_grant(&parts->mounts[answer->to], &answer->grant, parts->now);
    }
    g_array_set_size(parts->answers, 0);
}

static void parts_step(Parts *parts, GRand *random)
{
    QosBudgetReport report = {0};
    const guint number = (guint)g_rand_int_range(random, 0, MEMBERS);
    const guint64 demand =
        g_rand_int_range(random, 0, 4) == 0 ? 0 : (guint64)(g_rand_double(random) * R);

    parts->now += g_rand_int_range(random, 0, 60) * QOS_MILLISECOND;
    parts_sum(parts);
    /* The acknowledgements come fast, so that no lease ends meanwhile. */
    const gint what = g_rand_int_range(random, 0, parts->is_asked ? 48 : 400);
    if (what % 8 == 0) {
        answer_parts(parts, random);
    } else if (what < (parts->is_asked ? 32 : 4)) {
        change_parts(parts, number);
    } else if (is_there(parts, number)) {
        if (!parts->is_joined[number])
            qos_budget_join(parts->root, number, 1, parts->now);
        parts->is_joined[number] = TRUE;
        qos_budget_mount_report(&parts->mounts[number], demand, 0, parts->now, &report);
        if (g_rand_int_range(random, 0, 5) > 0)
            g_assert_true(qos_budget_report(parts->root, number, &report, parts->now));
        qos_budget_report_clear(&report);
    }
    parts_sum(parts);
}

/* While the floors are divided into twice as many parts: reports are taken, and the sum holds. */
static void hard_while_parts_change(GRand *random)
{
    Parts parts = {.before = {.limit = R,
                              .share = QOS_BUDGET_HARD,
                              .floor = (guint)g_rand_int_range(random, 0, 51),
                              .epoch = QOS_BUDGET_EPOCH,
                              .lease = QOS_SECOND,
                              .registered = OLD},
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer))};

    parts.after = parts.before;
    parts.after.registered = MEMBERS;
    parts.root = qos_budget_new(&parts.before, TRUE, 0);
    for (guint i = 0; i < MEMBERS; i++) {
        const QosBudgetConfig *config = i < OLD ? &parts.before : &parts.after;
        qos_budget_mount_init(&parts.mounts[i], config, 1, floor_of(config), 1);
    }
    for (guint i = 0; i < 300; i++)
        parts_step(&parts, random);
    qos_budget_free(parts.root);
    g_array_unref(parts.answers);
}

static void test_parts(void)
{
    each_seed(hard_while_parts_change);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget-random/combine", test_combine);
    g_test_add_func("/budget-random/bytes", test_bytes);
    g_test_add_func("/budget-random/ticket", test_ticket);
    g_test_add_func("/budget-random/level", test_level);
    g_test_add_func("/budget-random/hard", test_hard);
    g_test_add_func("/budget-random/parts", test_parts);
    return g_test_run();
}
