/*
 * The policies there are, and the names of their states (fs/policy.h).
 */
#include "fs/policy.h"

#include <string.h>

const QosPolicyClass *const qos_policies[] = {&qos_policy_fifo, &qos_policy_grr, &qos_policy_jrr,
                                              &qos_policy_tbf, NULL};

const char *const qos_policy_state_names[] = {
    [QOS_POLICY_STOPPED] = "stopped",
    [QOS_POLICY_STARTED] = "started",
    [QOS_POLICY_STOPPING] = "stopping",
};

const QosPolicyClass *qos_policy_by_name(const char *name)
{
    for (guint i = 0; qos_policies[i] != NULL; i++) {
        if (strcmp(qos_policies[i]->name, name) == 0)
            return qos_policies[i];
    }
    return NULL;
}
