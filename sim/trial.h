/*
 * The trials: for each protocol of core/ a cluster that runs it, and the promises that are checked.
 */
#pragma once

#include "sim/cluster.h"

extern const QosTrial qos_trial_budget, qos_trial_credit, qos_trial_epoch, qos_trial_pool;
