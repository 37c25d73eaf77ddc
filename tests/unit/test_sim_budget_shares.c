/*
 * 20 jobs on 1 to 50 of 100 mounts share one store (core/budget_shares.h): each job has its part,
 * on however many mounts it works, and what the store can do is used.
 */
#include <math.h>

#include "sim/shares_world.h"

#define SECONDS 70

static const QosSharesWorldConfig usual = {.mounts = 100, .jobs = 20, .most = 50, .seed = 1};

static double worst_share(const QosSharesWorldResult *result)
{
    double worst = 0;

    for (guint i = 0; i < result->count; i++) {
        const QosSharesWorldJob *job = &result->jobs[i];
        const double error = job->served / job->ideal - 1;
        g_test_message("job %u, %u mounts, weight %d: %+.2f %% of its part", i, job->mounts,
                       (int)job->weight, error * 100);
        worst = MAX(worst, fabs(error));
    }
    g_test_message("used %.4f, over in 1 s %.4f, worst share %.4f", result->used, result->over,
                   worst);
    return worst;
}

static void test_shares(void)
{
    QosSharesWorldConfig config = usual;

    for (config.seed = 1; config.seed <= 3; config.seed++) {
        QosSharesWorldResult result = qos_shares_world_run(&config, SECONDS);
        g_assert_cmpfloat(worst_share(&result), <=, 0.05);
        g_assert_cmpfloat(result.used, >=, 0.99);
        g_assert_cmpfloat(result.used, <=, 1.005);
        g_assert_cmpfloat(result.over, <=, 0.05);
        qos_shares_world_result_clear(&result);
    }
}

/* A tenth of the mounts says nothing for 2 s of 10: their jobs lose, and the others do not. */
static void test_silence(void)
{
    QosSharesWorldConfig config = usual;

    config.is_silent = TRUE;
    QosSharesWorldResult result = qos_shares_world_run(&config, SECONDS);
    g_assert_cmpfloat(worst_share(&result), <=, 0.25);
    g_assert_cmpfloat(result.used, >=, 0.98);
    g_assert_cmpfloat(result.used, <=, 1.005);
    g_assert_cmpfloat(result.over, <=, 0.1);
    qos_shares_world_result_clear(&result);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-budget-shares/shares", test_shares);
    g_test_add_func("/sim-budget-shares/silence", test_silence);
    return g_test_run();
}
