/*
 * Adaptive sharing while everything changes at random: the laws assert their sums in each step,
 * nothing is lost, the store is never idle while somebody waits, and nobody starves.
 */
#include "adapt_fixture.h"

/* The mode, the period, weights and demands. */
static void change_at_random(World *world, GRand *random)
{
    if (g_rand_int_range(random, 0, 4) == 0) {
        world->never_idle = g_rand_int_range(random, 0, 4) > 0;
        set_adapt(world, world->never_idle ? QOS_ADAPT_FAIR : QOS_ADAPT_PAPER, 0,
                  g_rand_int_range(random, 5, 1000) * QOS_MILLISECOND);
    }
    for (guint job = 0; job < world->count; job++) {
        if (g_rand_int_range(random, 0, 4) == 0)
            set_processes(world, job, (guint)g_rand_int_range(random, 0, 12));
        if (g_rand_int_range(random, 0, 16) == 0)
            world->jobs[job]->nodes = (guint)g_rand_int_range(random, 1, 20);
    }
}

/* If all jobs want their entitlements, each job that waits all the time gets at least half of its
 * own. Each job that wants something gets something. */
static void assert_nobody_starves(const World *world, double served)
{
    double nodes = 0;

    for (guint job = 0; job < world->count; job++)
        nodes += world->jobs[job]->nodes;
    for (guint job = 0; job < world->count; job++) {
        double least = world->paused[job] ? 1 : served * world->jobs[job]->nodes / nodes / 2;
        if (world->processes[job] > 0)
            g_assert_cmpfloat((double)world->served[job], >=, least);
    }
}

/* Jobs, weights, demands, modes and periods. */
static void test_random_worlds(void)
{
    for (guint seed = 1; seed <= 30; seed++) {
        GRand *random = g_rand_new_with_seed(seed);
        World world;
        g_test_message("seed %u", seed);
        world_init(&world, &qos_policy_tbf, (guint)g_rand_int_range(random, 1, 40), 1000);
        set_adapt(&world, QOS_ADAPT_FAIR, 0, g_rand_int_range(random, 5, 1000) * QOS_MILLISECOND);
        for (guint job = 0; job < 20; job++) {
            g_autofree char *id = g_strdup_printf("job%u", job);
            world_job(&world, id, (guint)g_rand_int_range(random, 1, 20), 0);
        }
        world.never_idle = TRUE;
        for (guint change = 0; change < 40; change++) {
            change_at_random(&world, random);
            run_anew(&world, 2 * QOS_SECOND);
            if (world.never_idle)
                assert_nobody_starves(&world, 2000);
        }
        world.never_idle = FALSE;
        world_clear(&world);
        g_rand_free(random);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adapt/random-worlds", test_random_worlds);
    return g_test_run();
}
