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

static QosSharesWorldResult run_store(const QosSharesWorldConfig *config, guint seconds)
{
    QosSharesWorldResult result = qos_shares_world_run(config, seconds);

    g_test_message("store used %.4f, of what was wanted %.4f, C from %.4f to %.4f",
                   result.store_used, result.used, result.estimate_low, result.estimate_high);
    return result;
}

/* What the store can do is found, wherever the search begins, and by mounts that are often wrong.
 */
static void test_store(void)
{
    static const struct {
        double start;
        gboolean is_noisy, is_stalling;
    } cases[] = {
        {0.1, FALSE, FALSE}, {10, FALSE, FALSE}, {0.1, TRUE, FALSE},
        {1, FALSE, TRUE},    {1, TRUE, TRUE},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        QosSharesWorldConfig config = usual;
        config.store = 0.7;
        config.start = cases[i].start;
        config.is_noisy = cases[i].is_noisy;
        config.is_stalling = cases[i].is_stalling;
        QosSharesWorldResult result = run_store(&config, SECONDS);
        g_assert_cmpfloat(worst_share(&result), <=, 0.05);
        g_assert_cmpfloat(result.used, >=, 0.98);
        g_assert_cmpfloat(result.estimate_low, >=, 0.93);
        g_assert_cmpfloat(result.estimate_high, <=, 1.03);
        qos_shares_world_result_clear(&result);
    }
}

/* And followed while it can do half. */
static void test_store_halves(void)
{
    QosSharesWorldConfig config = usual;

    config.store = 0.7;
    config.start = 1;
    config.is_halved = TRUE;
    QosSharesWorldResult result = run_store(&config, 120);
    g_assert_cmpfloat(worst_share(&result), <=, 0.05);
    g_assert_cmpfloat(result.used, >=, 0.95);
    g_assert_cmpfloat(result.estimate_low, >=, 0.95);
    g_assert_cmpfloat(result.estimate_high, <=, 1.03);
    qos_shares_world_result_clear(&result);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-budget-shares/shares", test_shares);
    g_test_add_func("/sim-budget-shares/silence", test_silence);
    g_test_add_func("/sim-budget-shares/store", test_store);
    g_test_add_func("/sim-budget-shares/store-halves", test_store_halves);
    return g_test_run();
}
