/*
 * The world that sim/shares_world.h tells of. A mount reports each of its jobs once in an epoch, at
 * a moment of its own; the server ends the epoch after E, and its answers come at once.
 */
#include "sim/shares_world.h"

#include <math.h>

#include "core/budget_capacity.h"
#include "sim/budget_load.h"

#define E      QOS_BUDGET_EPOCH
#define STEP   (5 * QOS_MILLISECOND)
#define SETTLE 10 /* s */
#define C      ((double)QOS_SHARES_WORLD_LIMIT)
#define ON     2.0 /* s, on average, of those that come and go */
#define OFF    3.0
#define IDLE   1e-6 /* of a second's speed: less is nothing */

/* One job on one mount. */
typedef struct {
    guint job, mount;
    QosBudgetMount budget;
    QosBudgetLoad load;
    QosTime phase, turn, reported;
    double reported_served, reported_waiting;
    double saturated;        /* an amount: served in this epoch while the store was full, */
    double saturated_before; /* and in the one before */
    double epoch_served;     /* when the epoch began */
} Class;

typedef struct {
    QosSharesWorldConfig config;
    GRand *random;
    QosBudgetConfig budget;
    QosBudgetShares *shares;
    Class *classes;
    guint count;
    QosSharesWorldJob *jobs;
    GArray *answers;
    QosTime now;
    double ideal;         /* the sum of what the jobs were to be served */
    double second_served; /* when the second began */
    double over;
    QosBudgetCapacity capacity;
    double store;        /* what it could do since the begin; an amount */
    double epoch_served; /* when the epoch began */
    double low, high;
} World;

static double exponential(World *world, double mean)
{
    return -log(1 - g_rand_double(world->random)) * mean;
}

static gboolean comes_and_goes(guint job)
{
    return job % 3 == 2;
}

/* --- set-up --- */

static void add_class(World *world, guint job, guint mount, double speed)
{
    Class *class = &world->classes[world->count++];
    QosBudget *budget = qos_budget_shares_job(world->shares, job, world->jobs[job].weight, 0);

    *class = (Class){.job = job, .mount = mount, .turn = QOS_NEVER};
    class->phase = g_rand_int_range(world->random, 0, E / STEP) * STEP;
    class->load.speed = speed;
    qos_budget_load_turn(&class->load, TRUE);
    if (comes_and_goes(job))
        class->turn = (QosTime)(exponential(world, ON) * QOS_SECOND);
    qos_budget_mount_init(&class->budget, &world->budget, 1, 0, 1);
    qos_budget_join(budget, mount, 1, 0);
}

static void set_up(World *world)
{
    const QosSharesWorldConfig *config = &world->config;

    world->jobs = g_new0(QosSharesWorldJob, config->jobs);
    world->classes = g_new0(Class, (gsize)config->jobs * config->most);
    for (guint i = 0; i < config->jobs; i++) {
        QosSharesWorldJob *job = &world->jobs[i];
        const double part = C / config->jobs;
        const double wants = i % 3 == 0 ? 8 : comes_and_goes(i) ? 5 : 0.3;
        const guint first = (guint)g_rand_int_range(world->random, 0, (gint32)config->mounts);
        job->mounts = 1 + (config->most - 1) * i / (config->jobs - 1);
        job->weight = 1 + i % 4;
        job->is_hungry = i % 3 == 0;
        for (guint j = 0; j < job->mounts; j++)
            add_class(world, i, (first + j) % config->mounts, wants * part / job->mounts);
    }
}

/* --- what goes on --- */

static gboolean is_silent(const World *world, guint mount)
{
    return world->config.is_silent && mount % 10 == 0 &&
           world->now % (10 * QOS_SECOND) < 2 * QOS_SECOND;
}

static guint64 demand_of(Class *class, QosTime now)
{
    const double elapsed = (double)MAX(now - class->reported, E / 4) / QOS_SECOND;
    const double came =
        class->load.served - class->reported_served + class->load.waiting - class->reported_waiting;

    if (class->load.inflow <= 0 && class->load.waiting <= class->load.speed * IDLE)
        return 0;
    return MAX((guint64)(MAX(came, 0) / elapsed + class->load.waiting * QOS_SECOND / (double)E), 1);
}

static void report(World *world, Class *class)
{
    QosBudgetReport report = {0};
    const guint64 demand = demand_of(class, world->now);
    QosBudget *budget = qos_budget_shares_job(world->shares, class->job,
                                              world->jobs[class->job].weight, world->now);

    class->reported = world->now;
    class->reported_served = class->load.served;
    class->reported_waiting = class->load.waiting;
    qos_budget_mount_report(&class->budget, demand, (guint64) class->load.served, world->now,
                            &report);
    if (!is_silent(world, class->mount))
        qos_budget_report(budget, class->mount, &report, world->now);
    qos_budget_report_clear(&report);
}

static Class *find(World *world, guint64 job, guint64 mount)
{
    for (guint i = 0; i < world->count; i++) {
        if (world->classes[i].job == job && world->classes[i].mount == mount)
            return &world->classes[i];
    }
    g_assert_not_reached();
}

/* What the store can do now; a rate. */
static double store_now(const World *world)
{
    const gboolean is_half =
        world->config.is_halved && world->now >= 30 * QOS_SECOND && world->now < 90 * QOS_SECOND;

    if (world->config.is_stalling && world->now % (5 * QOS_SECOND) < 200 * QOS_MILLISECOND)
        return 0;
    return world->config.store * C * (is_half ? 0.5 : 1);
}

static double served(const World *world)
{
    double sum = 0;

    for (guint i = 0; i < world->count; i++)
        sum += world->classes[i].load.served;
    return sum;
}

/* As the mount sees it: an amount. Begins the class's next epoch. */
static double saturation_of(World *world, Class *class)
{
    const double all = class->load.served - class->epoch_served;
    const gint error = world->config.is_noisy ? g_rand_int_range(world->random, 0, 5) : 2;
    double seen = world->config.is_noisy ? MIN(class->saturated_before, all) : class->saturated;

    if (error < 2)
        seen = error == 0 ? 0 : all;
    class->saturated_before = class->saturated;
    class->epoch_served = class->load.served;
    class->saturated = 0;
    return seen;
}

/* C is found by what all were served in the epoch, and what they say of the store. */
static void find_capacity(World *world)
{
    QosBudgetConfig config = world->budget;
    const double all = served(world), rate = (all - world->epoch_served) * QOS_SECOND / E;
    const QosTime second = world->now / QOS_SECOND;
    double saturated = 0;

    for (guint i = 0; i < world->count; i++) {
        saturated += saturation_of(world, &world->classes[i]) * QOS_SECOND / E;
    }
    world->epoch_served = all;
    config.limit =
        (guint64)qos_budget_capacity_step(&world->capacity, rate, MIN(saturated, rate), E);
    qos_budget_shares_set_saturated(world->shares, world->capacity.is_saturated);
    qos_budget_shares_configure(world->shares, &config);
    if (second < SETTLE || (world->config.is_halved &&
                            ((second >= 30 && second < 32) || (second >= 90 && second < 100))))
        return;
    if (store_now(world) <= 0)
        return;
    world->low = MIN(world->low, world->capacity.estimate / store_now(world));
    world->high = MAX(world->high, world->capacity.estimate / store_now(world));
}

static void close_epoch(World *world)
{
    if (world->config.store > 0)
        find_capacity(world);
    qos_budget_shares_close(world->shares, world->now, world->answers);
    for (guint i = 0; i < world->answers->len; i++) {
        const QosBudgetSharesAnswer *answer =
            &g_array_index(world->answers, QosBudgetSharesAnswer, i);
        Class *class = find(world, answer->job, answer->answer.to);
        if (!is_silent(world, class->mount))
            qos_budget_mount_grant(&class->budget, &answer->answer.grant, world->now);
    }
    g_array_set_size(world->answers, 0);
}

/* The ideal of this step: what `wants` get of C by weight. */
static void count_ideal(World *world, double *wants)
{
    double left = world->config.store > 0 ? store_now(world) : C, weight;
    gboolean is_changed = TRUE;

    while (is_changed) { /* each round gives those that want less than their part what they want */
        is_changed = FALSE;
        weight = 0;
        for (guint i = 0; i < world->config.jobs; i++)
            weight += wants[i] >= 0 ? (double)world->jobs[i].weight : 0;
        const double level = weight > 0 ? left / weight : 0;
        for (guint i = 0; i < world->config.jobs; i++) {
            if (wants[i] < 0 || wants[i] > level * (double)world->jobs[i].weight)
                continue;
            world->jobs[i].ideal += wants[i] * STEP / QOS_SECOND;
            world->ideal += wants[i] * STEP / QOS_SECOND;
            left -= wants[i];
            wants[i] = -1;
            is_changed = TRUE;
        }
    }
    for (guint i = 0; i < world->config.jobs && weight > 0; i++) {
        if (wants[i] < 0)
            continue;
        const double part = left / weight * (double)world->jobs[i].weight * STEP / QOS_SECOND;
        world->jobs[i].ideal += part;
        world->ideal += part;
    }
}

/* What the class would use of its rate in this step; a rate. */
static double use_of(const World *world, const Class *class)
{
    const double rate = (double)qos_budget_mount_rate(&class->budget, world->now);

    return MIN(rate, class->load.inflow + class->load.waiting * QOS_SECOND / STEP);
}

/* The store serves all alike: by how much less than they might have. */
static double crowding(const World *world)
{
    double sum = 0;

    for (guint i = 0; world->config.store > 0 && i < world->count; i++)
        sum += use_of(world, &world->classes[i]);
    return sum > store_now(world) && sum > 0 ? store_now(world) / sum : 1;
}

static void step(World *world)
{
    g_autofree double *wants = g_new0(double, world->config.jobs);
    const double crowded = crowding(world);

    for (guint i = 0; i < world->count; i++) {
        Class *class = &world->classes[i];
        wants[class->job] += class->load.inflow;
        const double before = class->load.served, rate = use_of(world, class);
        qos_budget_load_advance(&class->load, rate * crowded, world->now + STEP);
        class->saturated += crowded < 1 ? class->load.served - before : 0;
    }
    world->store += store_now(world) * STEP / QOS_SECOND;
    count_ideal(world, wants);
    world->now += STEP;
    for (guint i = 0; i < world->count; i++) {
        Class *class = &world->classes[i];
        if (world->now >= class->turn) {
            const gboolean is_on = class->load.inflow <= 0;
            qos_budget_load_turn(&class->load, is_on);
            class->turn = world->now + (QosTime)(exponential(world, is_on ? ON : OFF) * QOS_SECOND);
        }
        if (world->now % E == class->phase)
            report(world, class);
    }
    if (world->now % E == 0)
        close_epoch(world);
    if (world->now % QOS_SECOND == 0) {
        const double all = served(world);
        if (world->now > SETTLE * QOS_SECOND)
            world->over = MAX(world->over, (all - world->second_served) / C - 1);
        world->second_served = all;
    }
}

/* What was before does not count. */
static void begin(World *world)
{
    for (guint i = 0; i < world->config.jobs; i++)
        world->jobs[i].served = world->jobs[i].ideal = 0;
    for (guint i = 0; i < world->count; i++)
        world->jobs[world->classes[i].job].served -= world->classes[i].load.served;
    world->ideal = world->store = 0;
}

static QosSharesWorldResult finish(World *world)
{
    QosSharesWorldResult result = {
        .over = world->over, .count = world->config.jobs, .jobs = world->jobs};
    double sum = 0;

    for (guint i = 0; i < world->count; i++)
        world->jobs[world->classes[i].job].served += world->classes[i].load.served;
    for (guint i = 0; i < world->config.jobs; i++)
        sum += world->jobs[i].served;
    result.used = sum / world->ideal;
    result.store_used = world->store > 0 ? sum / world->store : 0;
    result.estimate_low = world->low;
    result.estimate_high = world->high;
    qos_budget_shares_free(world->shares);
    g_array_unref(world->answers);
    g_rand_free(world->random);
    g_free(world->classes);
    return result;
}

QosSharesWorldResult qos_shares_world_run(const QosSharesWorldConfig *config, guint seconds)
{
    World world = {.config = *config,
                   .random = g_rand_new_with_seed(config->seed),
                   .budget = {.limit = QOS_SHARES_WORLD_LIMIT,
                              .epoch = E,
                              .lease = qos_budget_lease_for(E),
                              .registered = config->mounts},
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetSharesAnswer))};

    world.shares = qos_budget_shares_new(&world.budget, TRUE, 0);
    set_up(&world);
    qos_budget_capacity_init(&world.capacity, config->store * config->start * C);
    world.low = G_MAXDOUBLE;
    while (world.now < SETTLE * QOS_SECOND)
        step(&world);
    begin(&world);
    while (world.now < seconds * QOS_SECOND)
        step(&world);
    return finish(&world);
}

void qos_shares_world_result_clear(QosSharesWorldResult *result)
{
    g_clear_pointer(&result->jobs, g_free);
}
