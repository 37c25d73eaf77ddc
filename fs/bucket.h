/*
 * A token bucket with exact sums (seed 000, section 2.1).
 *
 * Definition: a bucket fills with `rate` tokens a second up to `depth`. A request may go while the
 * bucket holds at least one token, and takes its whole cost, which may leave debt. So a request
 * larger than the bucket passes, and the block size does not change the rate. Over any interval of
 * t seconds the bucket lets through at most depth + rate x t + one request.
 *
 *     tokens(now) = min(depth, tokens(then) + (now - then) x rate)        now, then in seconds
 *
 * Whole tokens are kept in `tokens` and the fraction in `carry`, in units of 1/10^9 token. So no
 * residue is lost, however often the bucket is checked (docs/reference/rules.md, "Unlike Lustre").
 * If it is checked late, the depth makes up for the delay; the default depth is sized for that
 * (qos_bucket_default_depth).
 */
#pragma once

#include "base/time.h"

typedef struct {
    gint64 rate;   /* tokens a second, >= 0 */
    gint64 depth;  /* tokens, > 0; 0 with a rate of 0 lets nothing through */
    gint64 tokens; /* whole tokens; negative: debt */
    gint64 carry;  /* [0, 10^9): the fraction of a token */
    QosTime then;  /* when both were right */
} QosBucket;

/* A full bucket. */
void qos_bucket_init(QosBucket *bucket, gint64 rate, gint64 depth, QosTime now);
/* Fills up to `now`; a time before `then` changes nothing. */
void qos_bucket_fill(QosBucket *bucket, QosTime now);
/* Takes `cost` tokens at `now`, into debt where they are not there. Debt ends at -G_MAXINT64 / 2.
 */
void qos_bucket_take(QosBucket *bucket, gint64 cost, QosTime now);
/* The first time at or after `now` at which there is a token; QOS_NEVER - 1 with a rate of 0. */
QosTime qos_bucket_due(const QosBucket *bucket, QosTime now);
/* Another rate or depth from `now` on; what was saved stays, up to the new depth. */
void qos_bucket_change(QosBucket *bucket, gint64 rate, gint64 depth, QosTime now);
/* TRUE where the bucket is as good as new at `now`. */
gboolean qos_bucket_is_full(const QosBucket *bucket, QosTime now);
/* What a late wake-up of 80 ms would otherwise lose, at least `minimum` tokens: machines that are
 * busy are that late, and it is below the 1 % of 10 s that a rate is to be held to. */
gint64 qos_bucket_default_depth(gint64 rate, gint64 minimum);
