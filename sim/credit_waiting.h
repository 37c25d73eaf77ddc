/*
 * Sees in the books of all owners of a simulated cluster that nobody waits for nothing.
 */
#pragma once

#include "sim/cluster.h"

/* After a step of `node`, which is an owner: fails where somebody waits, and who stands in his way
 * is not called upon for it, or has forgotten that he was. */
void qos_waiting_check(const QosNode *node);
