/*
 * The protocols of core/ in clusters that fail: their promises hold with all of QOSFS_SEEDS seeds,
 * a rule that is broken on purpose is caught, and a seed always does the same.
 */
#include "sim/trial.h"

#define SEEDS_TO_CATCH 2000 /* a broken rule shows within so many */

static const QosTrial *const trials[] = {&qos_trial_budget, &qos_trial_credit, &qos_trial_epoch,
                                         &qos_trial_pool};

static guint64 seeds_to_run(void)
{
    const char *given = g_getenv("QOSFS_SEEDS");

    return given ? g_ascii_strtoull(given, NULL, 10) : 1000;
}

static void test_promises_hold(gconstpointer data)
{
    QosTrialRun run = {.trial = data};
    const guint64 seeds = seeds_to_run();

    for (run.seed = 1; run.seed <= seeds; run.seed++) {
        g_autofree char *failure = qos_trial_run(&run).failure;
        if (failure)
            g_error("%s, seed %" G_GUINT64_FORMAT ": %s", run.trial->name, run.seed, failure);
    }
}

static void test_broken_rules_are_caught(gconstpointer data)
{
    const QosTrial *trial = data;

    for (const char *const *rule = trial->rules; *rule; rule++) {
        QosTrialRun run = {.trial = trial, .broken = *rule};
        g_autofree char *failure = NULL;
        while (!failure && run.seed < SEEDS_TO_CATCH) {
            run.seed++;
            failure = qos_trial_run(&run).failure;
        }
        if (!failure)
            g_error("%s: nobody has noticed that '%s' is broken", trial->name, *rule);
        g_test_message("%s, seed %" G_GUINT64_FORMAT ": %s", *rule, run.seed, failure);
        run.broken = NULL;
        g_assert_null(qos_trial_run(&run).failure);
    }
}

static void test_seeds_repeat(gconstpointer data)
{
    QosTrialRun run = {.trial = data};

    for (run.seed = 1; run.seed <= 20; run.seed++) {
        const QosTrialResult first = qos_trial_run(&run), second = qos_trial_run(&run);
        g_assert_cmpuint(first.digest, ==, second.digest);
        g_assert_cmpuint(first.steps, ==, second.steps);
        g_assert_cmpstr(first.failure, ==, second.failure);
        g_free(first.failure);
        g_free(second.failure);
    }
}

static void add_tests(const QosTrial *trial)
{
    static const struct {
        const char *name;
        GTestDataFunc function;
    } tests[] = {{"holds", test_promises_hold},
                 {"broken-rules-are-caught", test_broken_rules_are_caught},
                 {"seeds-repeat", test_seeds_repeat}};

    for (guint i = 0; i < G_N_ELEMENTS(tests); i++) {
        g_autofree char *path = g_strdup_printf("/torture/%s/%s", trial->name, tests[i].name);
        g_test_add_data_func(path, trial, tests[i].function);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(trials); i++)
        add_tests(trials[i]);
    return g_test_run();
}
