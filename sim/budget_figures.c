/*
 * What bench/budget-figures draws: the same loads under each law (sim/budget_world.h).
 *
 *     budget-figures
 *
 * prints lines of: what, law, time (s), a part of R. What is "sum": served by 100 mounts, in
 * windows of 0.5 s; "newcomer": the rate in force of the tenth mount, which begins to work at 0;
 * "lost": of nine mounts together when the tenth is lost at 0.
 */
#include "sim/budget_runs.h"

#define WINDOW  (500 * QOS_MILLISECOND)
#define LENGTH  (30 * QOS_SECOND)
#define BEGIN   (5 * QOS_SECOND)
#define BEFORE  (QOS_SECOND / 2)
#define AFTER   (3 * QOS_SECOND / 2)
#define POINT   (10 * QOS_MILLISECOND)
#define LATENCY QOS_MILLISECOND

static const struct {
    const char *name;
    QosBudgetLaw law;
    QosBudgetShare share;
} laws[] = {
    {"equal division", QOS_BUDGET_LAW_EQUAL, QOS_BUDGET_FAIR},
    {"dmClock", QOS_BUDGET_LAW_DMCLOCK, QOS_BUDGET_FAIR},
    {"fair", QOS_BUDGET_LAW_SHARED, QOS_BUDGET_FAIR},
    {"hard", QOS_BUDGET_LAW_SHARED, QOS_BUDGET_HARD},
};

static QosBudgetWorldConfig config_of(guint law, guint mounts)
{
    return (QosBudgetWorldConfig){.law = laws[law].law,
                                  .share = laws[law].share,
                                  .mounts = mounts,
                                  .epoch = QOS_BUDGET_EPOCH,
                                  .latency = LATENCY,
                                  .floor = 10,
                                  .seed = 1};
}

static void print(const char *what, guint law, QosTime time, double part)
{
    printf("%s\t%s\t%.2f\t%.4f\n", what, laws[law].name, (double)time / QOS_SECOND, part);
}

static void run_sum(guint law)
{
    const QosBudgetWorldConfig config = config_of(law, 100);
    g_autoptr(QosBudgetWorld) world = qos_budget_world_new(&config);
    double before = 0;

    for (QosTime now = WINDOW; now <= LENGTH; now += WINDOW) {
        qos_budget_world_run(world, now);
        const double served = qos_budget_world_state(world).served;
        const double allowed =
            (double)QOS_BUDGET_WORLD_LIMIT * ((double)WINDOW / (double)QOS_SECOND);
        print("sum", law, now, (served - before) / allowed);
        before = served;
    }
}

static void run_step(const char *what, guint law, gboolean is_lost)
{
    QosBudgetWorldConfig config = config_of(law, 10);
    config.is_steady = TRUE;
    g_autoptr(QosBudgetWorld) world = qos_budget_world_new(&config);

    qos_budget_world_turn(world, 9, is_lost);
    qos_budget_world_run(world, BEGIN - BEFORE);
    for (QosTime now = BEGIN - BEFORE; now <= BEGIN + AFTER; now += POINT) {
        double sum = 0;
        qos_budget_world_run(world, now);
        if (now == BEGIN && is_lost)
            qos_budget_world_kill(world, 9);
        else if (now == BEGIN)
            qos_budget_world_turn(world, 9, TRUE);
        for (guint i = is_lost ? 0 : 9; i < (is_lost ? 9 : 10); i++)
            sum += qos_budget_world_rate(world, i);
        print(what, law, now - BEGIN, sum / (double)QOS_BUDGET_WORLD_LIMIT);
    }
}

int main(int argc, char **argv G_GNUC_UNUSED)
{
    if (argc != 1) {
        fprintf(stderr, "usage: budget-figures\n");
        return 2;
    }
    for (guint i = 0; i < G_N_ELEMENTS(laws); i++) {
        run_sum(i);
        run_step("newcomer", i, FALSE);
        run_step("lost", i, TRUE);
    }
    return 0;
}
