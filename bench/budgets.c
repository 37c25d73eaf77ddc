/*
 * What budgets of all mounts cost the lock server (server/budgets.h), without a network:
 *
 *     build/bench/bench-budgets [MOUNTS]
 *
 * In each row MOUNTS (2,000) mounts report in each epoch of 100 ms, in 10 s of virtual time. Each
 * has a time of its own within the epoch, in no order, and each wants what changes by chance,
 * together twice the rule. The program prints the CPU time of a report (taking its frame), and of
 * an answer (ending epochs that are due, after each report, and making frames). Then follows what
 * both come to, as a part of one CPU, without the sockets. The mounts' own work is not counted.
 *
 * The rows differ in how many classes there are, each of which as many mounts have: one job on all
 * nodes, many jobs, or a job on each node.
 *
 * Build with -Dbuildtype=release.
 */
#include <malloc.h>
#include <stdio.h>

#include "bench/measure.h"
#include "server/budgets.h"

#define EPOCHS 100
#define RULE   1
#define R      (G_GUINT64_CONSTANT(1000000) * QOS_BUDGET_UNIT)

typedef struct {
    QosBudgetMount budget;
    guint class;
    QosTime at; /* when it reports, in each epoch */
    guint64 served;
    guint grants;
} Mount;

typedef struct {
    QosServerBudgets *server;
    Mount *mounts; /* the clients 1 and on, by `at` */
    guint count;
    QosTime now;
    double taking; /* of CPU, in the sender's end of an answer: not the server's */
} World;

static int by_time(const void *a, const void *b)
{
    const QosTime left = ((const Mount *)a)->at, right = ((const Mount *)b)->at;

    return left < right ? -1 : left > right;
}

static void world_init(World *world, guint mounts, guint classes, QosBudgetShare share)
{
    const guint64 limit = MAX(R / classes, 1);
    const QosServerBudgetRule rule = {
        .id = RULE, .name = "big", .limit = {limit, 0}, .share = share, .floor = 10};
    const QosBudgetConfig config = {.limit = limit,
                                    .share = share,
                                    .floor = 10,
                                    .epoch = QOS_BUDGET_EPOCH,
                                    .lease = QOS_SECOND,
                                    .registered = mounts};
    g_autoptr(GRand) random = g_rand_new_with_seed(1);

    *world = (World){.server = qos_server_budgets_new(0),
                     .mounts = g_new0(Mount, mounts),
                     .count = mounts,
                     .now = 1000 * QOS_SECOND};
    qos_server_budgets_set_rules(world->server, &rule, 1, config.epoch, config.lease, mounts,
                                 world->now);
    for (guint i = 0; i < mounts; i++) {
        Mount *mount = &world->mounts[i];
        mount->class = i % classes;
        mount->at = g_rand_int_range(random, 0, QOS_BUDGET_EPOCH);
        qos_budget_mount_init(&mount->budget, &config, 1, limit / 10 / mounts, 1);
    }
    qsort(world->mounts, mounts, sizeof(Mount), by_time);
}

static void take_grants(QosOwnerId client, const GByteArray *frames, gpointer arg)
{
    World *world = arg;
    Mount *mount = &world->mounts[client - 1];
    const double start = cpu_now();
    const guint8 *payload = frames->data + 5;
    gsize length = frames->len - 5;
    QosWireBudget item;
    QosBudgetGrant grant;

    if (!qos_wire_get_budget(&payload, &length, &item) || length > 0 ||
        !qos_budget_grant_decode(item.bytes, item.length, &grant))
        abort();
    mount->grants += qos_budget_mount_grant(&mount->budget, &grant, world->now);
    world->taking += cpu_now() - start;
}

/* The frame of a mount's report. */
static void make_report(World *world, Mount *mount, guint64 demand, GByteArray *frame)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireBudget item = {.rule = RULE};
    QosBudgetReport report = {0};
    gsize batch = QOS_WIRE_NO_BATCH;

    mount->served += MIN(demand, qos_budget_mount_rate(&mount->budget, world->now)) /
                     (QOS_SECOND / QOS_BUDGET_EPOCH);
    qos_budget_mount_report(&mount->budget, demand, mount->served, world->now, &report);
    qos_budget_report_encode(&report, bytes);
    qos_budget_report_clear(&report);
    g_snprintf(item.class, sizeof(item.class), "%u", 4711 + mount->class);
    item.bytes = bytes->data;
    item.length = bytes->len;
    g_byte_array_set_size(frame, 0);
    qos_wire_put_budget(frame, &batch, QOS_WIRE_BUDGET_REPORT, &item);
}

static size_t memory_used(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void print_row(guint mounts, guint classes, QosBudgetShare share, double clock_time)
{
    g_autoptr(GByteArray) frame = g_byte_array_new();
    g_autoptr(GRand) random = g_rand_new_with_seed(2);
    double reporting = 0, answering = 0, longest = 0;
    guint64 reports = 0, grants = 0;
    const size_t before = memory_used();
    World world;

    world_init(&world, mounts, classes, share);
    for (guint epoch = 0; epoch < EPOCHS; epoch++) {
        const QosTime start = world.now;
        for (guint i = 0; i < mounts; i++) {
            Mount *mount = &world.mounts[i];
            world.now = start + mount->at;
            make_report(&world, mount, g_rand_int_range(random, 1, 1000) * (4 * R / mounts / 1000),
                        frame);
            world.taking = 0;
            const double a = cpu_now();
            if (!qos_server_budgets_report(world.server, i + 1, frame->data + 5, frame->len - 5,
                                           world.now))
                abort();
            const double b = cpu_now();
            qos_server_budgets_tick(world.server, world.now, take_grants, &world);
            const double tick = cpu_now() - b - world.taking - clock_time;
            reporting += b - a - clock_time;
            answering += tick;
            longest = MAX(longest, tick);
            reports++;
        }
        world.now = start + QOS_BUDGET_EPOCH;
    }
    for (guint i = 0; i < mounts; i++)
        grants += world.mounts[i].grants;
    printf("| %u | %u | %s | %.2f | %.2f | %.1f %% | %.2f | %.1f %% | %.0f |\n", mounts, classes,
           share == QOS_BUDGET_HARD ? "hard" : "fair", reporting / (double)reports / 1000,
           answering / (double)grants / 1000,
           100 * (reporting + answering) / (EPOCHS * (double)QOS_BUDGET_EPOCH), longest / 1e6,
           100 * (double)grants / (double)reports,
           (double)(memory_used() - before - mounts * sizeof(Mount)) / mounts);
    qos_server_budgets_free(world.server);
    g_free(world.mounts);
}

static double clock_cost(void)
{
    const double start = cpu_now();

    for (guint i = 0; i < 100000; i++)
        cpu_now();
    return (cpu_now() - start) / 100000;
}

int main(int argc, char **argv)
{
    const guint mounts = MAX(argc > 1 ? (guint)strtoul(argv[1], NULL, 10) : 2000, 1);
    const double clock_time = clock_cost();

    printf("| mounts | classes | share | report, us | answer, us | of a CPU | longest turn, ms | "
           "answered | memory, bytes a mount |\n|---|---|---|---|---|---|---|---|---|\n");
    for (guint share = QOS_BUDGET_FAIR; share <= QOS_BUDGET_HARD; share++) {
        for (guint classes = 1; classes < mounts; classes *= 10)
            print_row(mounts, classes, share, clock_time);
        print_row(mounts, mounts, share, clock_time);
    }
    return 0;
}
