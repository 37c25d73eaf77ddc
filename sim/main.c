/*
 * qosfs-sim: runs scenarios, one way of sharing beside the other, and prints what each job got.
 */
#include <stdio.h>
#include <string.h>

#include "sim/metrics.h"
#include "sim/simulator.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(QosScenario) scenario = qos_scenario_load(argv[i], &error);
        if (!scenario) {
            fprintf(stderr, "%s\n", error->message);
            return 1;
        }
        g_autoptr(QosSimulation) base = NULL;
        printf("%s\n", scenario->title);
        for (const QosSharing *s = qos_sharings; s->name; s++) {
            gint64 t = g_get_monotonic_time();
            QosSimulation *r = qos_simulate(scenario, s);
            t = g_get_monotonic_time() - t;
            if (!base)
                base = r;
            QosMetrics m;
            qos_metrics(scenario, r, base, &m);
            printf("%-10s %.0f/s util %.3f err %.4f jain %.4f least %.3f burst %.0f/%.0f/%.0f ms | "
                   "%.2f M/s |",
                   s->title, m.rate, m.utilization, m.share_error, m.jain, m.least,
                   m.burst_median / 1e6, m.burst_p99 / 1e6, m.burst_longest / 1e6,
                   r->served / (double)t);
            for (guint k = 0; k < r->jobs->len && k < 5; k++) {
                QosSimulatedJob *j = r->jobs->pdata[k];
                printf(" %s %lu", j->name, j->served);
            }
            printf("\n");
        }
    }
}
