/*
 * What the store can do, C, found from all mounts: for core/budget_shares.h.
 *
 * The problem: each mount finds what the store can do while it is used (fs/capacity.h), but what
 * one mount is served tells nothing of the store when others use it too.
 *
 * A mount's own search for the depth tells when the store is saturated: requests wait because
 * enough are inside. So a mount adds to what it was served in an epoch how much of that was served
 * while requests waited so. Both add up over mounts. The law is in core/budget_capacity.c.
 *
 * Pure: time is an argument. The caller locks.
 */
#pragma once

#include "base/time.h"

/* Embedded. Rates are in thousandths of a unit a second, as in core/budget.h. */
typedef struct {
    double estimate;       /* C */
    double growth;         /* in a second, as a part of C, while it is too low */
    gboolean is_saturated; /* in the latest epoch */
} QosBudgetCapacity;

/* `estimate` > 0: to begin with. It may be far too low or too high. */
void qos_budget_capacity_init(QosBudgetCapacity *capacity, double estimate);
/*
 * An epoch of `elapsed` > 0 has ended. `served`: what all mounts were served in it, a rate;
 * `saturated`: how much of that while the store was saturated, as the mounts say: 0 to `served`.
 * Returns C.
 */
double qos_budget_capacity_step(QosBudgetCapacity *capacity, double served, double saturated,
                                QosTime elapsed);
