/*
 * qosfs-sim: runs scenarios, one way of sharing beside the other, and prints what each job got.
 */
#include <stdio.h>

#include "sim/metrics.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(QosScenario) scenario = qos_scenario_load(argv[i], &error);
        if (!scenario) {
            fprintf(stderr, "%s\n", error->message);
            return 1;
        }
        g_autoptr(QosReference) reference = qos_reference_new(scenario);
        printf("%s\n", scenario->title);
        for (const QosSharing *s = qos_sharings; s->name; s++) {
            gint64 t = g_get_monotonic_time();
            g_autoptr(QosSimulation) r = qos_simulate(scenario, s, NULL);
            t = g_get_monotonic_time() - t;
            QosMetrics m;
            qos_metrics(reference, r, &m);
            printf("%-10s %.0f/s util %.4f err %.4f jain %.4f least %.3f settle %.1f wake %.4f "
                   "repaid %.1f burst %.3f/%.3f/%.3f s, %.2f x | %.2f M/s |",
                   s->title, m.rate, m.utilization, m.share_error, m.jain, m.least, m.settle,
                   m.waking, m.repayment, m.burst_median, m.burst_p99, m.burst_longest,
                   m.burst_factor, r->served / (double)t);
            for (guint k = 0; k < r->jobs->len && k < 5; k++) {
                const QosSimulatedJob *j = r->jobs->pdata[k];
                printf(" %s %lu", j->name, j->served);
            }
            printf("\n");
        }
    }
    return 0;
}
