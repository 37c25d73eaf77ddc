/*
 * The search for C (core/budget_capacity.h).
 *
 *   saturated          most of what was served was served while requests waited for room in the
 *                      store: what was served is what the store can do, and C goes there. By
 *                      FALL_MAX in an epoch at most, because a store that stalls for a moment
 * serves nothing and is soon back. all of C is used   and the store is not saturated: C may be too
 * low, and grows. Slowly at first, because C was right a moment ago: GROWTH_MIN in a second. Twice
 * as fast with each second that it goes on, up to GROWTH_MAX, because then the store has changed.
 *   neither            the mounts want less than C: nothing is known, and C stays.
 *
 * So C swings around what the store can do by what it grows in the time until saturation shows.
 * This is the additive increase and multiplicative decrease of Chiu and Jain (1989), but that the
 * decrease goes to a measured value.
 *
 * The caller tells the budgets when the store is saturated (qos_budget_shares_set_saturated()):
 * else these would take what the store cannot serve for what mounts do not use, and hand out more.
 *
 * Limits. A mix of requests that the store serves slower is a store that can do less, and is
 * followed. Load on the store that no mount makes is seen in the same way. If mounts take waiting
 * for room where there is room, C falls to what they use; if they do not see that the store is
 * full, C grows for as long as all of it is served.
 */
#include "core/budget_capacity.h"

#include <math.h>

#define MOSTLY       0.5  /* of what was served, for the store to be saturated */
#define USED         0.97 /* of C: then all of it is used */
#define FALL_MAX     0.1  /* of C, in an epoch */
#define FOLLOWS      0.5  /* of the way to what was served, in an epoch */
#define GROWTH_MIN   0.02
#define GROWTH_MAX   1.0
#define ESTIMATE_MIN 1.0
#define ESTIMATE_MAX 1e18 /* QOS_BUDGET_RATE_MAX is 2^60 */

void qos_budget_capacity_init(QosBudgetCapacity *capacity, double estimate)
{
    *capacity = (QosBudgetCapacity){.estimate = CLAMP(estimate, ESTIMATE_MIN, ESTIMATE_MAX),
                                    .growth = GROWTH_MIN};
}

double qos_budget_capacity_step(QosBudgetCapacity *capacity, double served, double saturated,
                                QosTime elapsed)
{
    const double seconds = (double)elapsed / QOS_SECOND;
    double next = capacity->estimate;

    capacity->is_saturated = served <= 0 ? FALSE : saturated >= served * MOSTLY;
    if (capacity->is_saturated) {
        next += (served - next) * FOLLOWS;
        next = MAX(next, capacity->estimate * (1 - FALL_MAX));
        capacity->growth = GROWTH_MIN;
    } else if (served >= capacity->estimate * USED) {
        next *= exp(capacity->growth * seconds);
        capacity->growth = MIN(capacity->growth * exp2(seconds), GROWTH_MAX);
    }
    capacity->estimate = CLAMP(next, ESTIMATE_MIN, ESTIMATE_MAX);
    return capacity->estimate;
}
