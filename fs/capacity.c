/*
 * Capacity and depth of the store (fs/capacity.h).
 *
 * Measuring. Replies are counted in windows. A window has at least WINDOW and WINDOW_REPLIES, so
 * that it tells a hundredth from noise; if the store is slow, it takes more time. If requests
 * waited nearly all the window long, the store was saturated, and the window shows what the store
 * can serve. The estimate is the mean of the middle half of the last QOS_CAPACITY_RATES such
 * windows. A window ends by its replies, so a stall of the store spoils only one window, which
 * falls out of the middle half. A step of the capacity is followed within that many windows. What
 * an idle store served is a lower bound: if the estimate is below it, the estimate rises towards
 * it.
 *
 * Latency does not show a full store here: a read from the store's cache takes a hundredth of a
 * read from its disk, and the mix of them changes by the minute. So the signs are waiting requests
 * (the store can be measured) and throughput.
 *
 * The depth is the number of requests that must be inside for the whole throughput. More bring
 * nothing, and make a queue in the store in which all jobs wait alike, whatever their share: a job
 * with two processes gets two places in it. So the least depth that is enough is sought.
 *
 * The search begins with START requests inside and doubles them, with short windows, while that
 * brings START_GAIN. If the last doubling brought less than START_SURE, the depth before it times
 * the gain is enough, instead of twice that depth. So the shares hold from the first request on,
 * and the whole throughput is there in some tenths of a second. If the store is START_FAR away or
 * more, each step takes some of its round trips, so the number is multiplied by four. If that
 * serves surely less than in proportion, what comes in a round trip is enough (Little's law), and
 * some more, because jitter leaves gaps.
 *
 * The search may be misled: it may have measured other requests than those that wait now, for
 * example names before data, so that more inside seemed to bring nothing. So it goes on if less
 * than OTHER_LOAD of what it found is served, at a step or in the DOUBTED_WINDOWS that follow.
 * After its end it goes on only once, because a store that dips looks the same, and as it recovers
 * the gain looks like that of more inside.
 *
 * Then come trials. Windows at the depth in force and at a candidate alternate, and what the
 * candidate serves beyond its goal adds up until it is more than chance makes of so many pairs. The
 * noise says what chance makes: it is the mean of the middle half of the last QOS_CAPACITY_ERRORS,
 * and an error is how far a window was from the estimate before it.
 *
 *   less   The candidate is the geometric mean of what is enough and what is too few, so that 64
 *          slots are found to be 60 too many in three trials. It is enough if LESS_KEEPS of the
 *          throughput stay, less LESS_NOISE times the noise. A clear loss ends the trial at once,
 *          within LOSS_WINDOW. Each pair may cost throughput, so windows of rest lie between them.
 *   more   The candidate is half as many again. If it brings MORE_BRINGS, it is what is enough. A
 *          clear gain ends the trial at once; a small one may take MORE_PAIRS_MAX pairs to be told
 *          from noise. Only windows in which requests waited are compared, because otherwise new
 *          load would be taken for gain.
 *
 * If no request waits for a slot, all may be waiting inside: CROWD others there are enough for a
 * trial. In force is a quarter more than what is enough, because an almost flat curve still rises
 * there. When measurements are noisy, a trial cannot tell 3 requests inside from 4, although the
 * fourth is worth about 1 % of the throughput. So noise alone adds one request, or two (NOISY,
 * VERY_NOISY), without a trial.
 *
 * Once the least depth is found, trials pause. Most of them then look for more, because that costs
 * nothing, and shows within a second or two what a changed store or load needs. What was too few is
 * tried again soon, and the more seldom the more often it was too few.
 */
#include "fs/capacity.h"

#include <math.h>
#include <stdlib.h>

#define WINDOW             (50 * QOS_MILLISECOND)
#define WINDOW_REPLIES     32
#define SLOW_WINDOW        (500 * QOS_MILLISECOND)
#define SLOW_REPLIES       8
#define SLOWEST_WINDOW     (2 * QOS_SECOND)
#define ENDLESS_WINDOW     (20 * QOS_SECOND)
#define SATURATED_PART     0.9  /* of a window, for what was served to be what the store can */
#define BOUND_PART         0.25 /* of the way, for each window: what it tells is noisy */
#define COMPARABLE_PART    0.5  /* for it to be compared with another depth */
#define CROWD              3    /* others inside: they may wait for each other there */
#define LEAST              2    /* one to be served, one on its way */
#define NOISY              0.02 /* a third stands by, as the second may come too late, */
#define VERY_NOISY         0.03 /* and a fourth, as two may pass while one is served */
#define LESS_KEEPS         0.99
#define LESS_NOISE         0.5
#define LESS_PAIRS_MAX     10
#define MORE_BRINGS        1.01
#define MORE_SURE          2 /* times what is chance, as what is found costs the small jobs */
#define MORE_PAIRS_MAX     64
#define START              3
#define START_WINDOW       (10 * QOS_MILLISECOND)
#define START_REPLIES      16
#define START_GAIN         1.2
#define START_SURE         1.1  /* so short windows differ by half of that anyway */
#define A_TRIFLE           0.1  /* of a request: any more is one that may be missing */
#define OTHER_LOAD         0.75 /* of what as many or fewer inside served just before */
#define DOUBTED_WINDOWS    16
#define START_ROUNDS       3 /* of all that is inside, where the store is far away, */
#define START_FAR          (100 * QOS_MILLISECOND) /* as such a window shows */
#define SURELY             0.95                    /* of that */
#define CARRIED_SURELY     1.1 /* times what comes in a round trip: jitter leaves gaps */
#define SURELY_LESS        0.7 /* than in proportion, at most */
#define VARIED             0.6 /* standard deviation of latencies that are uniform from 0 on */
#define FAR_ROUND          (20 * QOS_MILLISECOND)
#define DEEP               48  /* from here on four times as many are tried, */
#define PROPORTIONAL       0.9 /* if twice as many served nearly twice as much */
#define ROUNDS             2   /* of all that is inside, for a window that tells something */
#define MANY_ROUNDS        16
#define CHANCE             3 /* times the noise: 1.4 standard deviations of a pair's ratio */
#define SEEN_MIN           6 /* pairs, and errors before: until then little is known of the noise */
#define ANOTHER_STORE      0.5 /* of the estimate beside it: a trial tells nothing meanwhile */
#define CLEAR_LOSS         0.9
#define CLEAR_GAIN         1.2
#define CLEARLY_NO_GAIN    1.01
#define LOSS_WINDOW        (10 * QOS_MILLISECOND) /* shows a clear one */
#define PAUSE_WINDOWS      16
#define REST_WINDOWS       8 /* a pair costs what less does not serve */
#define BELIEF_MIN         2
#define BELIEF_MAX         8 /* trials for more, until what is too few is tried again */
#define PATIENCE           8 /* times what a request spends inside */
#define PATIENCE_MIN       (20 * QOS_MILLISECOND)
#define PATIENCE_MAX       (5 * QOS_SECOND)
#define STALL              2
#define STALL_MAX          (30 * QOS_SECOND)
#define GROWTH_PER_SECOND  1.0 /* of the estimate, while it is what holds requests back */
#define GROWTH_TIME_MAX    QOS_SECOND
#define ESTIMATE_MAX       1e14 /* units/s, as QOS_ADAPT_CAPACITY_MAX */
#define WINDOW_REPLIES_MAX (1 << 20)

/* --- the noise --- */

static int compare_doubles(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

/* The mean of the middle half of them; 0 of none. */
static double middle(const double *values, guint count)
{
    double sorted[QOS_CAPACITY_ERRORS];
    guint left_out = count / 4; /* on each side */
    double sum = 0;

    memcpy(sorted, values, count * sizeof(double));
    qsort(sorted, count, sizeof(double), compare_doubles);
    for (guint i = left_out; i < count - left_out; i++)
        sum += sorted[i];
    return count > 0 ? sum / (count - 2 * left_out) : 0;
}

/* A window of saturation served so much, at the depth in force. */
static void add_rate(QosCapacity *capacity, double rate)
{
    if (capacity->rate_count > 0 && capacity->estimate > 0) {
        capacity->errors[capacity->error_count++ % QOS_CAPACITY_ERRORS] =
            fabs(rate / capacity->estimate - 1);
        capacity->noise = middle(capacity->errors, MIN(capacity->error_count, QOS_CAPACITY_ERRORS));
    }
    capacity->rates[capacity->rate_count++ % QOS_CAPACITY_RATES] = rate;
    capacity->estimate = middle(capacity->rates, MIN(capacity->rate_count, QOS_CAPACITY_RATES));
}

static void forget_noise(QosCapacity *capacity)
{
    capacity->error_count = 0;
    capacity->noise = 0;
}

/* --- the depth in force --- */

static guint with_reserve(const QosCapacity *capacity, guint enough)
{
    const guint by_noise =
        (capacity->noise > NOISY ? 1 : 0) + (capacity->noise > VERY_NOISY ? 1 : 0);

    return MAX(enough + enough / 4, LEAST + by_noise);
}

/* The depth that is in force but for trials. */
static guint depth_in_force(const QosCapacity *capacity)
{
    return MIN(with_reserve(capacity, MAX(capacity->enough, LEAST)), capacity->slots);
}

/* The depth that is to be in force. */
static guint depth_of(const QosCapacity *capacity)
{
    return capacity->is_trying ? MIN(capacity->candidate, capacity->slots)
                               : depth_in_force(capacity);
}

/* Begins at the depth that is to be in force by now. */
static void begin_window(QosCapacity *capacity, guint skip, QosTime now)
{
    const guint before = capacity->depth;

    capacity->depth = depth_of(capacity);
    capacity->stall = MIN(STALL * capacity->interval * MAX(capacity->depth, before), STALL_MAX);
    capacity->patience =
        CLAMP(PATIENCE * capacity->interval * capacity->depth, PATIENCE_MIN, PATIENCE_MAX);
    capacity->skip = skip;
    capacity->start = now;
    capacity->idle = 0;
    capacity->idle_since = now;
    capacity->replies = 0;
    capacity->units = 0;
    capacity->inside = G_MAXUINT;
}

/* Searches for what is enough, from so many on. */
static void search_from(QosCapacity *capacity, guint enough)
{
    capacity->is_starting = TRUE;
    capacity->round = G_MAXINT64;
    capacity->enough = MIN(enough, capacity->slots);
    capacity->too_few = 0;
    capacity->trial = QOS_CAPACITY_TRIAL_NONE;
    capacity->is_trying = FALSE;
    capacity->base = 0;
    capacity->pause = 0;
    capacity->rate_count = 0;
    forget_noise(capacity);
}

void qos_capacity_start(QosCapacity *capacity, QosTime now)
{
    search_from(capacity, START);
    capacity->doubted = DOUBTED_WINDOWS;
    capacity->goes_on = FALSE;
    begin_window(capacity, depth_of(capacity),
                 now); /* as one more comes where the first seem to hang */
}

void qos_capacity_init(QosCapacity *capacity, double estimate, guint slots, QosTime now)
{
    *capacity = (QosCapacity){.estimate = estimate, .slots = slots};
    qos_capacity_start(capacity, now);
}

void qos_capacity_tell(QosCapacity *capacity, double estimate)
{
    capacity->estimate = estimate;
    capacity->rate_count = 0;
}

void qos_capacity_set_slots(QosCapacity *capacity, guint slots, QosTime now)
{
    if (capacity->slots == slots)
        return;
    capacity->slots = slots;
    qos_capacity_start(capacity, now);
}

void qos_capacity_set_saturated(QosCapacity *capacity, gboolean is_saturated, QosTime now)
{
    if (is_saturated == capacity->is_saturated)
        return;
    capacity->is_saturated = is_saturated;
    if (!is_saturated) {
        capacity->idle_since = now;
        return;
    }
    capacity->idle += now - capacity->idle_since;
    if (capacity->idle > WINDOW && !capacity->is_trying)
        begin_window(capacity, capacity->is_starting ? depth_of(capacity) : 1, now);
}

/* --- trials --- */

/* The depth to try between `too_few` and `enough`; 0 if there is none. */
static guint less(const QosCapacity *capacity)
{
    guint low = MAX(capacity->too_few, LEAST - 1);

    if (capacity->enough <= low || capacity->enough - low <= capacity->enough / 8 + 1)
        return 0;
    return MAX((guint)sqrt((double)low * (double)capacity->enough), low + 1);
}

/* Tries less if there is a depth to try, or if what was too few may be enough by now; else more. */
static void choose_candidate(QosCapacity *capacity)
{
    guint depth = depth_of(capacity);

    capacity->trial = QOS_CAPACITY_TRIAL_LESS;
    capacity->candidate = less(capacity);
    if (capacity->candidate > 0)
        return;
    if (capacity->too_few >= LEAST && capacity->believed == 0) {
        capacity->candidate = capacity->too_few;
        return;
    }
    capacity->trial = QOS_CAPACITY_TRIAL_MORE;
    capacity->candidate = MIN(MAX(depth * 3 / 2, depth + 1), capacity->slots);
}

/* No trial of more begins if the last window was not saturated throughout, because a gain may then
 * come from new load. */
static void begin_trial(QosCapacity *capacity, gboolean is_saturated)
{
    choose_candidate(capacity);
    if (capacity->trial == QOS_CAPACITY_TRIAL_MORE && !is_saturated) {
        capacity->trial = QOS_CAPACITY_TRIAL_NONE;
        return;
    }
    if (capacity->trial == QOS_CAPACITY_TRIAL_MORE && capacity->believed > 0)
        capacity->believed--;
    if (capacity->candidate == depth_of(capacity))
        capacity->trial = QOS_CAPACITY_TRIAL_NONE;
    capacity->pairs = 0;
    capacity->surplus = 0;
    capacity->rest = 0;
    capacity->pause = PAUSE_WINDOWS;
}

/* A depth that was found too few once may be so by chance, or because the store's cache took all at
 * that time. If it is found too few again, it is believed for twice as long. */
static void believe_too_few(QosCapacity *capacity, guint depth)
{
    capacity->belief = depth == capacity->too_few
                           ? CLAMP(2 * capacity->belief, BELIEF_MIN, BELIEF_MAX)
                           : BELIEF_MIN;
    capacity->believed = capacity->belief;
    capacity->too_few = depth;
}

static void end_trial(QosCapacity *capacity, gboolean is_good)
{
    if (capacity->trial == QOS_CAPACITY_TRIAL_LESS && is_good) {
        capacity->enough = capacity->candidate;
        if (capacity->too_few >= capacity->enough)
            capacity->too_few = capacity->enough / 2; /* a step at a time */
    } else if (capacity->trial == QOS_CAPACITY_TRIAL_LESS) {
        believe_too_few(capacity, capacity->candidate);
    } else if (is_good) {
        capacity->too_few = capacity->enough;
        capacity->believed = BELIEF_MAX / 2; /* first see how much more it takes */
        capacity->enough = capacity->candidate;
    }
    /* After a result that leaves something to try, the next trial begins at once. */
    if (less(capacity) > 0 || is_good)
        capacity->pause = 0;
    capacity->trial = QOS_CAPACITY_TRIAL_NONE;
}

/* TRUE where a trial of less has ended; sets whether the candidate is enough. For a loss, the
 * allowance for chance stays below the step that is tried, because otherwise a noisy trial would
 * never end. */
static gboolean is_less_judged(const QosCapacity *capacity, double chance, gboolean *ret_is_good)
{
    const double step = (double)capacity->candidate / MAX(depth_in_force(capacity), 1);

    *ret_is_good = capacity->surplus > 0;
    return capacity->surplus > chance || capacity->surplus < -MIN(chance, (1 - step) / 4) ||
           capacity->pairs == LESS_PAIRS_MAX;
}

/* The same for a trial of more. Such a trial costs only time, so it gets more pairs. */
static gboolean is_more_judged(const QosCapacity *capacity, double chance, gboolean *ret_is_good)
{
    *ret_is_good = capacity->surplus > MORE_SURE * chance;
    return *ret_is_good || capacity->surplus < -chance || capacity->pairs == MORE_PAIRS_MAX;
}

/* What a window at the candidate must serve, in parts of the one before it. In a trial of less, at
 * most half of what the step can cost counts as no loss. */
static double goal(const QosCapacity *capacity)
{
    const double step = (double)capacity->candidate / MAX(depth_in_force(capacity), 1);

    return capacity->trial == QOS_CAPACITY_TRIAL_LESS
               ? MAX(LESS_KEEPS - LESS_NOISE * capacity->noise, (1 + step) / 2)
               : MORE_BRINGS;
}

/* A window at the candidate has ended, after one at the depth in force. One pair is enough where it
 * is clear. */
static void judge(QosCapacity *capacity, double ratio)
{
    const gboolean is_less = capacity->trial == QOS_CAPACITY_TRIAL_LESS;
    const gboolean is_clear =
        is_less ? ratio < CLEAR_LOSS : ratio < CLEARLY_NO_GAIN || ratio > CLEAR_GAIN;
    gboolean is_good;

    capacity->pairs++;
    capacity->surplus += ratio - goal(capacity);
    const double chance = CHANCE * capacity->noise * sqrt(capacity->pairs);
    const gboolean is_enough =
        capacity->pairs > 1 && capacity->pairs + capacity->error_count >= SEEN_MIN;
    if ((is_enough || is_clear) && (is_less ? is_less_judged(capacity, chance, &is_good)
                                            : is_more_judged(capacity, chance, &is_good)))
        end_trial(capacity, is_good);
    else if (is_less)
        capacity->rest = REST_WINDOWS;
}

/* Ends the search's beginning. A trial of less takes some round trips in which less is served. If
 * round trips are long, there is no trial for a while, and never one of a depth that is surely too
 * small. By Little's law, even if no request waits inside, as many must be inside as come in a
 * round trip. */
static void end_start(QosCapacity *capacity)
{
    const double carried = (double)capacity->round / (double)MAX(capacity->interval, 1);

    capacity->is_starting = FALSE;
    if (capacity->round < FAR_ROUND)
        return;
    capacity->pause = PAUSE_WINDOWS;
    const guint surely_too_few = (guint)MIN(SURELY * carried, capacity->enough - 1);
    capacity->too_few = MAX(capacity->too_few, surely_too_few);
    capacity->belief = capacity->believed = BELIEF_MAX;
}

/* TRUE where the store is so far away that each step of the search takes long. */
static gboolean is_far_away(const QosCapacity *capacity)
{
    return capacity->round != G_MAXINT64 && capacity->round >= START_FAR;
}

/* So much less than in proportion is surely less, whatever the latencies of so many replies. */
static double surely_less(const QosCapacity *capacity)
{
    const double chance =
        VARIED * sqrt(1.0 / MAX(capacity->base_replies, 1) + 1.0 / MAX(capacity->replies, 1));

    return MIN(1 - CHANCE * chance, SURELY_LESS);
}

/* The search ends, because more inside bring nothing: sets what is enough. For a far store it is
 * what comes in a round trip. The round trip of a near store is hardly known, so for that it is
 * what the last step but one had. */
static void settle_start(QosCapacity *capacity, guint before, double ratio)
{
    const double carried = (double)capacity->round / (double)MAX(capacity->interval, 1);
    const gboolean is_deep = is_far_away(capacity) || capacity->enough >= DEEP;
    const double needed =
        is_deep ? CARRIED_SURELY * carried + sqrt(carried) : with_reserve(capacity, before) * ratio;

    if (is_deep || ratio < START_SURE)
        capacity->enough = CLAMP((guint)ceil(needed - A_TRIFLE), before, capacity->enough);
}

/* `enough` for the next window; the last brought `ratio` times what the one before did. */
static guint next_start(const QosCapacity *capacity, guint before, double ratio)
{
    const gboolean is_proportional = ratio >= PROPORTIONAL * capacity->enough / MAX(before, 1);
    const gboolean is_far_off = capacity->enough >= DEEP && is_proportional;
    const gboolean is_fast = is_far_away(capacity) && (capacity->enough < DEEP || is_proportional);

    return MIN((is_far_off || is_fast ? 4 : 2) * capacity->enough, capacity->slots);
}

/* A window of the search's beginning has ended, at `enough`. As in begin_trial(), only one that was
 * saturated is compared with. */
static void start_on(QosCapacity *capacity, double rate, gboolean is_saturated)
{
    /* More inside served so much less: these are other requests. */
    if (rate < OTHER_LOAD * capacity->base)
        capacity->base = 0;
    if (capacity->base == 0 && !is_saturated)
        return;
    const guint before = capacity->base_enough;
    const double ratio = capacity->base > 0 ? rate / capacity->base : 0;
    const double step = (double)capacity->enough / MAX(before, 1);
    const QosTime round = capacity->interval * capacity->depth;
    /* While more inside brings so much more, hardly any of them waits there. */
    if (capacity->base == 0 || ratio >= SURELY_LESS * step || round < capacity->round)
        capacity->round = round;
    const gboolean may_be_deeper = capacity->enough < capacity->slots;
    const gboolean is_surely_full =
        is_far_away(capacity) && may_be_deeper && ratio < surely_less(capacity) * step;
    if (capacity->base > 0 && (ratio < START_GAIN || is_surely_full)) {
        end_start(capacity);
        settle_start(capacity, before, ratio);
    } else if (!may_be_deeper || !is_saturated) {
        end_start(capacity);
    } else {
        if (capacity->base > 0)
            believe_too_few(capacity, before);
        capacity->base = rate;
        capacity->base_replies = capacity->replies;
        capacity->base_enough = capacity->enough;
        capacity->rate_count = 0; /* they were of less than the store can */
        forget_noise(capacity);
        capacity->enough = next_start(capacity, before, ratio);
    }
}

/* --- windows --- */

/* TRUE where more requests were inside all the time than the depth lets in, because lock holders
 * pass beside it. Such a window tells nothing about the depth. During the search's beginning it
 * shows how many were inside. */
static gboolean is_beyond(const QosCapacity *capacity)
{
    return capacity->inside > qos_capacity_most(capacity->depth);
}

/* TRUE where the search was ended by windows of other requests than those that wait now. */
static gboolean was_misled(QosCapacity *capacity, double rate)
{
    if (capacity->is_starting || capacity->is_trying || capacity->doubted == 0 ||
        is_beyond(capacity))
        return FALSE;
    capacity->doubted--;
    return !capacity->goes_on && rate < OTHER_LOAD * capacity->estimate;
}

static void measured(QosCapacity *capacity, double rate, double saturated_part)
{
    gboolean is_saturated = saturated_part >= SATURATED_PART;
    gboolean is_comparable = saturated_part >= COMPARABLE_PART || capacity->inside >= CROWD;

    if (is_saturated && was_misled(capacity, rate)) {
        search_from(capacity, capacity->enough);
        capacity->goes_on = TRUE;
        return;
    }
    if (!capacity->is_trying && is_saturated) {
        add_rate(capacity, rate);
    } else if (rate > capacity->estimate) {
        capacity->estimate += (rate - capacity->estimate) * BOUND_PART;
    }
    if (is_beyond(capacity) && !capacity->is_starting) {
        capacity->is_trying = FALSE;
        capacity->trial = QOS_CAPACITY_TRIAL_NONE;
        return;
    }
    if (capacity->is_trying) {
        capacity->is_trying = FALSE;
        /* At a larger depth no request may be left to wait, but the window still shows whether more
         * is served. */
        if (is_comparable || capacity->trial == QOS_CAPACITY_TRIAL_MORE)
            judge(capacity, rate / capacity->base);
        else
            capacity->trial = QOS_CAPACITY_TRIAL_NONE;
        return;
    }
    if (!is_comparable)
        return;
    if (capacity->is_starting) {
        if (is_beyond(capacity)) {
            capacity->depth = capacity->enough = MIN(capacity->inside + 1, capacity->slots);
            capacity->base = 0;
        }
        start_on(capacity, rate, is_saturated);
        return;
    }
    if (capacity->pause > 0)
        capacity->pause--;
    const gboolean is_another = fabs(rate / capacity->estimate - 1) > ANOTHER_STORE;
    if (capacity->trial == QOS_CAPACITY_TRIAL_MORE && (!is_saturated || is_another))
        capacity->trial = QOS_CAPACITY_TRIAL_NONE;
    if (capacity->trial == QOS_CAPACITY_TRIAL_NONE && capacity->pause == 0)
        begin_trial(capacity, is_saturated);
    capacity->base = rate;
    if (capacity->rest > 0 && capacity->trial != QOS_CAPACITY_TRIAL_NONE) {
        capacity->rest--;
        return;
    }
    capacity->is_trying = capacity->trial != QOS_CAPACITY_TRIAL_NONE && rate > 0;
}

/* TRUE where the store has become so slow that a whole round takes too long: some replies must be
 * enough. */
static gboolean is_endless(const QosCapacity *capacity, QosTime length)
{
    return (length >= ENDLESS_WINDOW && capacity->replies >= SLOW_REPLIES) ||
           capacity->replies >= WINDOW_REPLIES_MAX;
}

/* Replies of a far store come in bursts, as many as are inside. So its windows have a whole number
 * of such rounds, or many rounds. */
static gboolean is_round(const QosCapacity *capacity, QosTime length)
{
    const guint round = MAX(capacity->depth, capacity->inside + 1);

    if (!capacity->is_starting && capacity->doubted == 0 && capacity->round < FAR_ROUND)
        return TRUE;
    return (capacity->replies % round == 0 &&
            (capacity->is_starting || capacity->replies / round >= ROUNDS)) ||
           (!capacity->is_starting && length / MANY_ROUNDS >= capacity->round);
}

static gboolean is_complete(const QosCapacity *capacity, double rate, QosTime length)
{
    const guint replies = capacity->replies;

    if (is_endless(capacity, length))
        return TRUE;
    if (!is_round(capacity, length))
        return FALSE;
    if (capacity->is_starting)
        return (length >= START_WINDOW && replies >= START_REPLIES) ||
               (length >= START_FAR && replies >= START_ROUNDS * capacity->depth);
    if (capacity->is_trying && capacity->pairs == 0 && replies >= WINDOW_REPLIES &&
        rate < CLEAR_LOSS * capacity->base)
        return TRUE;
    return (length >= WINDOW && replies >= WINDOW_REPLIES) ||
           (length >= SLOW_WINDOW && replies >= SLOW_REPLIES) || length >= SLOWEST_WINDOW;
}

void qos_capacity_replied(QosCapacity *capacity, gint64 units, guint inside, QosTime now)
{
    if (capacity->skip > 0) {
        if (--capacity->skip == 0)
            begin_window(capacity, 0, now);
        return;
    }
    capacity->units += units;
    capacity->replies++;
    capacity->inside = MIN(capacity->inside, inside);
    QosTime length = now - capacity->start;
    if (length < LOSS_WINDOW)
        return;
    double rate = (double)capacity->units * (double)QOS_SECOND / (double)length;
    if (!is_complete(capacity, rate, length))
        return;
    QosTime idle = capacity->idle + (capacity->is_saturated ? 0 : now - capacity->idle_since);
    capacity->interval = length / capacity->replies;
    measured(capacity, rate, 1 - (double)idle / (double)length);
    /* If the depth changes, the replies of the requests inside still belong to the last depth: skip
     * them. */
    guint next = depth_of(capacity);
    begin_window(capacity, next != capacity->depth ? MAX(next, capacity->depth) : 0, now);
}

QosTime qos_capacity_patience(const QosCapacity *capacity, gint64 units)
{
    const double took = (double)units / capacity->estimate * (double)QOS_SECOND;

    return MAX(capacity->patience, (QosTime)MIN(PATIENCE * took, (double)PATIENCE_MAX));
}

void qos_capacity_raise(QosCapacity *capacity, QosTime elapsed)
{
    double seconds = (double)MIN(elapsed, GROWTH_TIME_MAX) / (double)QOS_SECOND;

    capacity->estimate = MIN(capacity->estimate * (1 + GROWTH_PER_SECOND * seconds), ESTIMATE_MAX);
    capacity->rate_count = 0; /* they were of a lower one */
}
