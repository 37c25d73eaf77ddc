/*
 * The token bucket; fs/bucket.h has the definition.
 *
 * After a long pause the product of a time and a rate needs more than 64 bits. If it does not fit,
 * it is computed in 128 bits.
 */
#include "fs/bucket.h"

#define UNITS_PER_TOKEN QOS_SECOND /* a rate of r tokens/s fills r units in each nanosecond */

__extension__ typedef __int128 Wide;

void qos_bucket_init(QosBucket *bucket, gint64 rate, gint64 depth, QosTime now)
{
    *bucket = (QosBucket){.rate = rate, .depth = depth, .tokens = depth, .then = now};
}

void qos_bucket_fill(QosBucket *bucket, QosTime now)
{
    if (now <= bucket->then)
        return;

    QosTime elapsed = now - bucket->then;
    guint64 gained, carry;
    gint64 units;
    bucket->then = now;
    if (!__builtin_mul_overflow(elapsed, bucket->rate, &units) &&
        !__builtin_add_overflow(units, bucket->carry, &units)) {
        gained = units / UNITS_PER_TOKEN;
        carry = units % UNITS_PER_TOKEN;
    } else {
        Wide wide = (Wide)elapsed * bucket->rate + bucket->carry;
        Wide whole = wide / UNITS_PER_TOKEN;
        gained = whole > G_MAXINT64 ? G_MAXINT64 : (guint64)whole;
        carry = (guint64)(wide % UNITS_PER_TOKEN);
    }

    guint64 missing =
        bucket->tokens >= bucket->depth ? 0 : (guint64)bucket->depth - (guint64)bucket->tokens;
    if (gained >= missing) {
        bucket->tokens = bucket->depth;
        bucket->carry = 0;
    } else {
        bucket->tokens += (gint64)gained;
        bucket->carry = (gint64)carry;
    }
}

void qos_bucket_take(QosBucket *bucket, gint64 cost, QosTime now)
{
    const gint64 floor = -(G_MAXINT64 / 2);

    qos_bucket_fill(bucket, now);
    if (__builtin_sub_overflow(bucket->tokens, cost, &bucket->tokens) || bucket->tokens < floor)
        bucket->tokens = cost < 0 ? bucket->depth : floor;
    if (bucket->tokens >= bucket->depth) {
        bucket->tokens = bucket->depth;
        bucket->carry = 0;
    }
}

/* The same of a bucket without a token; apart, because most have one. */
G_GNUC_NO_INLINE static QosTime next_token(const QosBucket *bucket, QosTime now)
{
    if (bucket->rate == 0)
        return QOS_NEVER - 1;

    Wide units = ((Wide)1 - bucket->tokens) * UNITS_PER_TOKEN - bucket->carry;
    Wide wait = (units + bucket->rate - 1) / bucket->rate;
    if (wait > QOS_NEVER - 1 - bucket->then)
        return QOS_NEVER - 1;
    return MAX(now, bucket->then + (QosTime)wait);
}

QosTime qos_bucket_due(const QosBucket *bucket, QosTime now)
{
    return bucket->tokens >= 1 ? now : next_token(bucket, now);
}

void qos_bucket_change(QosBucket *bucket, gint64 rate, gint64 depth, QosTime now)
{
    qos_bucket_fill(bucket, now);
    bucket->rate = rate;
    bucket->depth = depth;
    if (bucket->tokens >= depth) {
        bucket->tokens = depth;
        bucket->carry = 0;
    }
}

gboolean qos_bucket_is_full(const QosBucket *bucket, QosTime now)
{
    QosBucket later = *bucket;
    qos_bucket_fill(&later, now);
    return later.tokens >= later.depth;
}

gint64 qos_bucket_default_depth(gint64 rate, gint64 minimum)
{
    return MAX(minimum, rate / 25 * 2 + rate % 25 * 2 / 25);
}
