/*
 * The laws of the pool. core/pool.h has the names.
 *
 * Why one number steers all. A client takes new credits at a speed v, and keeps each until its CLR
 * is above SLR. It has n bytes, and the oldest of them has been there for n / v. So n x n / v =
 * SLR, and n = sqrt(v SLR). All clients together have G = sqrt(SLR) x (the sum of their sqrt(v)).
 * Equal clients have equal caches; a busier one has more, though less than in proportion. G grows
 * with the root of SLR.
 *
 * The law (`steady`) is one integrator, of the logarithm of SLR. Each step:
 *
 *     SLR = SLR x K,   K = exp(GAIN x e),   e = log((L + 1) / (G + 1))
 *
 * Why it is stable. With x = log SLR, and e counted from the fixed point, e = -x / 2. Signals
 * travel by replies, so G follows one step late: x(t + 1) = x(t) - GAIN x x(t - 1) / 2. The
 * characteristic equation is z^2 - z + GAIN / 2 = 0, and GAIN = 1/2 makes 1/2 its double root: the
 * error halves with each step, without a cycle. With d steps of delay the loop is stable as long as
 * GAIN < 4 sin(pi / (4 d + 2)). For GAIN = 1/2 that is up to five steps, so clients may hear of SLR
 * that late (those that ask for credits hear at once). Where G depends less on SLR, for example
 * because all that the clients want fits into L, the loop is still stable, and slower.
 *
 * No dead band: e is 0 at G = L alone, for any L >= 1 (the ones in it are for G = 0, and nothing
 * beside a credit's size). Above L it is
 *
 *     e - min(u, 1)^2,   u = e / log(HL / L),   and what HL refused in the step counts into G,
 *
 * (log(HL / L) is taken as at least 0.1). This is the same at the fixed point, and its size grows
 * with G. If G is at an HL of 1.1 L or more, and clients stand still, each step cuts SLR by 40 % or
 * more. The law ignores how fast G grows: it would overshoot less with that, but cycle where
 * signals are late. Below L, e is at most 1. The least SLR lets a client of average size keep a
 * credit for 1 ms; from there SLR reaches 60 s in 23 steps, and ten hours in 35.
 *
 * A cache fills at the speed of its client, whatever SLR is. If SLR rose all that time, it would be
 * far beyond its fixed point at the end (integrator wind-up). So below L it rises only as far as
 *   - it binds: by the part CS / GS, at most 1. Where nothing is cancelled, nobody misses anything;
 *   - G falls short of the plan: by the part of GP - G that the step did not bring.
 *
 * The seed's law (`hld`), to the letter: K = K x (1 - (G - GP) / L), in an emergency (GS > GSL)
 * K x (1 - (GP - G) / L)^2, with the GP of the step before. Departures of `steady` from it:
 *   - K does not live on from step to step. With SLR = SLR x K that integrates twice: while caches
 *     fill SLR runs up to its ceiling, and then down to its floor.
 *   - GP bounds how fast SLR rises; it is no target, which is L itself.
 *   - HL is the emergency, not GSL: a burst below L harms nobody. The seed's square has the wrong
 *     sign: above GP it raises SLR, below GP it lowers it, for good if the clients stay busy.
 *   - HL refuses with a time to come back instead of waiting.
 * Beyond the seed are floor and cap, and the sequence of signals. The K of `hld` is bounded, so
 * that it stays a number. docs/design/pool.md shows both laws.
 */
#include "core/pool.h"

#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "base/units.h"

#define GAIN        0.5
#define ROOM_MIN    0.1 /* log(HL / L) is taken to be so much at least */
#define ERROR_MAX   1.0
#define PLAN_PART   10         /* GP = G + (L - G) / 10 */
#define GSL_PART    0.05       /* GSL, of L (5.1, point 5) */
#define AGE_FIRST   10000.0    /* ms: the age that the first SLR leaves to a client with all of L */
#define AGE_MAX     36000000.0 /* ms: and the largest, ten hours */
#define AGE_MIN     1.0        /* ms: and the smallest, to each of equal clients */
#define FACTOR_MAX  0x1p100    /* of hld's K, and its inverse */
#define RATE_MAX    0x1p62     /* what a signal can say */
#define AGE_SHORT   1000.0     /* ms: credits that go so soon are of little use */
#define AGE_ADVISED 10         /* s: they are, if they stay so long */
#define SHORT_STEPS 60         /* of AGE_SHORT, before it is said */

gboolean qos_pool_config_check(const QosPoolConfig *config, GError **error)
{
    const char *reason = NULL;

    if (config->limit < 1 || config->limit > QOS_POOL_BYTES_MAX)
        reason = "the limit must be from 1 byte to 1 TiB";
    else if (config->hard_limit < config->limit || config->hard_limit > QOS_POOL_BYTES_MAX)
        reason = "the hard limit must be from the limit to 1 TiB";
    else if (config->floor < 0 || config->floor > config->limit)
        reason = "the floor of a client must be from 0 to the limit";
    else if (config->cap != 0 && (config->cap < config->floor || config->cap < 1))
        reason = "the cap of a client must be its floor at least; 0 is none";
    if (reason != NULL)
        qos_set_error(error, ERANGE, "pool of credits: %s", reason);
    return reason == NULL;
}

static double client_count(const QosPool *pool)
{
    return MAX(pool->clients, 1);
}

static void set_rate(QosPool *pool, double rate)
{
    double limit = (double)pool->config.limit;
    double least = MAX(limit / client_count(pool) * AGE_MIN, 1);

    pool->rate = CLAMP(rate, least, MIN(limit * AGE_MAX, RATE_MAX));
}

static void plan(QosPool *pool)
{
    double granted = (double)pool->granted;

    pool->planned = granted + ((double)pool->config.limit - granted) / PLAN_PART;
}

void qos_pool_init(QosPool *pool, const QosPoolConfig *config, guint64 sequence, QosTime now)
{
    *pool =
        (QosPool){.config = *config, .factor = 1, .sequence = MAX(sequence, 1), .step_began = now};
    plan(pool);
    set_rate(pool, (double)config->limit * AGE_FIRST);
}

void qos_pool_configure(QosPool *pool, const QosPoolConfig *config)
{
    if (config->law != pool->config.law)
        pool->factor = 1;
    pool->config = *config;
    plan(pool);
    set_rate(pool, pool->rate);
    pool->sequence++;
}

void qos_pool_resume(QosPool *pool, gint64 rate)
{
    set_rate(pool, (double)rate);
    pool->sequence++;
}

/* --- counting --- */

static QosTime step_end(const QosPool *pool)
{
    return qos_time_add(pool->step_began, QOS_POOL_STEP);
}

QosPoolVerdict qos_pool_grant(QosPool *pool, QosPoolClient *client, gint64 bytes, QosTime now,
                              QosTime *ret_retry_after)
{
    const QosPoolConfig *config = &pool->config;

    if (bytes > config->hard_limit - pool->granted) {
        pool->refused++;
        pool->step_refused = MIN(pool->step_refused + bytes, QOS_POOL_BYTES_MAX);
        /* SLR falls when the step ends, and within the next one the clients have given back. */
        *ret_retry_after = MAX(step_end(pool) - now, 0) + QOS_POOL_STEP;
        return QOS_POOL_FULL;
    }
    if (config->cap > 0 && bytes > config->cap - client->granted) {
        pool->refused++;
        return QOS_POOL_CAPPED;
    }
    qos_pool_adopt(pool, client, bytes);
    return QOS_POOL_GRANTED;
}

void qos_pool_adopt(QosPool *pool, QosPoolClient *client, gint64 bytes)
{
    bytes = CLAMP(bytes, 0, QOS_POOL_BYTES_MAX - pool->granted);
    client->granted += bytes;
    pool->granted += bytes;
    pool->step_granted += bytes;
}

void qos_pool_cancel(QosPool *pool, QosPoolClient *client, gint64 bytes)
{
    bytes = CLAMP(bytes, 0, client->granted);
    client->granted -= bytes;
    pool->granted -= bytes;
    pool->step_cancelled += bytes;
}

void qos_pool_join(QosPool *pool, QosPoolClient *client)
{
    *client = (QosPoolClient){0};
    pool->clients++;
}

void qos_pool_leave(QosPool *pool, QosPoolClient *client)
{
    qos_pool_cancel(pool, client, client->granted);
    pool->clients--;
}

/* --- the laws --- */

/* How far SLR binds. */
static double binding(const QosPool *pool)
{
    if (pool->step_cancelled >= pool->step_granted)
        return pool->step_cancelled > 0 ? 1 : 0;
    return (double)pool->step_cancelled / (double)pool->step_granted;
}

/* The part of this step's planned growth that is missing, 0 to 1. */
static double shortfall(const QosPool *pool)
{
    double granted = (double)pool->granted;
    double last = granted - (double)pool->step_granted + (double)pool->step_cancelled;

    if (pool->planned <= last)
        return 1;
    return CLAMP((pool->planned - granted) / (pool->planned - last), 0, 1);
}

static double steady_factor(const QosPool *pool)
{
    double limit = log1p((double)pool->config.limit);
    double error = limit - log1p((double)(pool->granted + pool->step_refused));
    double room = MAX(log1p((double)pool->config.hard_limit) - limit, ROOM_MIN);

    if (error < 0)
        error -= MIN(error * error / (room * room), 1);
    else
        error = MIN(error, ERROR_MAX) * binding(pool) * shortfall(pool);
    return exp(GAIN * error);
}

static double hld_factor(const QosPool *pool)
{
    double limit = (double)pool->config.limit;
    double beyond = ((double)pool->granted - pool->planned) / limit;
    gboolean is_emergency = (double)pool->grant_speed > GSL_PART * limit;
    double factor = is_emergency ? (1 + beyond) * (1 + beyond) : 1 - beyond;

    return CLAMP(pool->factor * factor, 1 / FACTOR_MAX, FACTOR_MAX);
}

/* At which age a client of average size gives a credit back, ms. */
static double age_at_cancel(const QosPool *pool)
{
    return pool->rate * client_count(pool) / (double)MAX(pool->granted, 1);
}

/* Converts bytes that were counted over `length` to bytes per step. */
static gint64 per_step(gint64 bytes, QosTime length)
{
    return (gint64)((double)bytes * (double)QOS_POOL_STEP / (double)length);
}

static void step(QosPool *pool, QosTime length)
{
    gint64 room = pool->config.limit - pool->granted;

    pool->grant_speed = per_step(pool->step_granted, length);
    pool->cancel_speed = per_step(pool->step_cancelled, length);
    pool->factor = pool->config.law == QOS_POOL_HLD ? hld_factor(pool) : steady_factor(pool);
    set_rate(pool, pool->rate * pool->factor);
    plan(pool);
    pool->sequence++;
    pool->step_granted = 0;
    pool->step_cancelled = 0;
    pool->step_refused = 0;

    gboolean is_short = pool->cancel_speed > 0 || room < 0;
    is_short = is_short && age_at_cancel(pool) < AGE_SHORT;
    pool->short_steps = is_short ? pool->short_steps + 1 : 0;
}

/* Steps that were slept through are not made up for, because no client has heard of SLR in them
 * either. */
QosTime qos_pool_step(QosPool *pool, QosTime now)
{
    if (now >= step_end(pool)) {
        step(pool, now - pool->step_began);
        pool->step_began = now;
    }
    return step_end(pool);
}

/* Nothing was counted in the last step, which has planned with the G of now, nor in this one: SLR
 * does not bind, and the factor of `steady` is 1 for any G <= L. That of `hld` lives on. */
gboolean qos_pool_rests(const QosPool *pool)
{
    const gboolean was_quiet = pool->grant_speed == 0 && pool->cancel_speed == 0;
    const gboolean is_quiet =
        pool->step_granted == 0 && pool->step_cancelled == 0 && pool->step_refused == 0;

    return was_quiet && is_quiet && pool->granted <= pool->config.limit &&
           pool->config.law == QOS_POOL_STEADY;
}

QosPoolSignal qos_pool_signal(const QosPool *pool)
{
    gint64 share = pool->config.limit / 2 / MAX(pool->clients, 1);

    return (QosPoolSignal){.sequence = pool->sequence,
                           .rate = llround(pool->rate),
                           .floor = MIN(pool->config.floor, share)};
}

char *qos_pool_advice(const QosPool *pool)
{
    if (pool->short_steps < SHORT_STEPS)
        return NULL;
    gint64 wanted = MAX(pool->grant_speed * AGE_ADVISED, pool->granted);
    g_autofree char *age =
        qos_format_duration((gint64)(age_at_cancel(pool) * (double)QOS_MILLISECOND));
    g_autofree char *speed = qos_format_bytes((guint64)pool->grant_speed);
    g_autofree char *limit = qos_format_bytes((guint64)pool->config.limit);
    g_autofree char *better = qos_format_bytes((guint64)wanted);
    return g_strdup_printf("the pool of credits is too small for its clients (%u): they take %s of "
                           "new ones a second and can keep one for %s; raise its limit from %s to "
                           "%s, or spread the clients over more servers",
                           pool->clients, speed, age, limit, better);
}
