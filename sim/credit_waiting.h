/*
 * Checks in the books of all owners of a simulated cluster that no request waits in vain.
 */
#pragma once

#include "sim/cluster.h"

/* After a step of `node`, which is an owner: fails if a request waits and the holder in its way was
 * not called back for it, or has forgotten the callback. */
void qos_waiting_check(const QosNode *node);
