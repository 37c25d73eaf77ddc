/*
 * The pool of credits that a server grants (seed 001): how many bytes of them there are, and the
 * one signal, SLR, by which all clients size their caches so that together they fill it.
 *
 * The seed's quantities (5.2). Sizes are bytes of the server's memory: a credit, and its resource
 * where it is the first one on it.
 *
 *     L    limit: what is to be granted        G    granted
 *     HL   hard limit: no new grant beyond     GP   G as planned for the next step
 *     T    the length of a step                GS   granted in the last step
 *     GSL  GS beyond it is an emergency        CS   cancelled in the last step
 *     K    what a step multiplies SLR by
 *     SLR  server lock rate, in byte-milliseconds: a client gives a cached credit back when its
 *     CLR  = bytes that the client has cached x milliseconds since the credit was used (LA)
 *          is above the last SLR that the client heard (fs/lockcache.h)
 *
 * A pool counts; it does not know the credits. Pure: time is an argument; the caller locks.
 */
#pragma once

#include "base/time.h"

#define QOS_POOL_STEP      QOS_SECOND                   /* T */
#define QOS_POOL_BYTES_MAX (G_GINT64_CONSTANT(1) << 40) /* of L, HL and G */

typedef enum {
    QOS_POOL_STEADY, /* the default */
    QOS_POOL_HLD,    /* law=hld: as published, for comparison */
} QosPoolLaw;

typedef struct {
    QosPoolLaw law;
    gint64 limit;      /* L: 1 to QOS_POOL_BYTES_MAX */
    gint64 hard_limit; /* HL: L to QOS_POOL_BYTES_MAX */
    gint64 floor;      /* what a client may keep cached whatever SLR; of all of them no more than
                          half of L */
    gint64 cap;        /* what one client may have; 0: as much as there is */
} QosPoolConfig;

/* What a client has of the pool: a part of its session. */
typedef struct {
    gint64 granted;
} QosPoolClient;

/* Sent with every reply and callback. The larger sequence is the newer signal, whenever it
 * arrives; 0 is no signal, which is no value of SLR either. */
typedef struct {
    guint64 sequence;
    gint64 rate;  /* SLR */
    gint64 floor; /* bytes that this client may keep cached whatever SLR */
} QosPoolSignal;

typedef struct {
    QosPoolConfig config;
    guint clients;
    gint64 granted;      /* G */
    double planned;      /* GP, as of the last step */
    gint64 grant_speed;  /* GS */
    gint64 cancel_speed; /* CS */
    gint64 step_granted; /* both, of the step under way */
    gint64 step_cancelled;
    gint64 step_refused; /* likewise, at HL */
    double factor;       /* K */
    double rate;         /* SLR */
    guint64 sequence;    /* of the signal */
    QosTime step_began;
    guint short_steps; /* for how many steps the cluster has not fitted */
    guint64 refused;   /* grants: HL or a cap */
} QosPool;

typedef enum {
    QOS_POOL_GRANTED,
    QOS_POOL_FULL,   /* HL: come back after *ret_retry_after */
    QOS_POOL_CAPPED, /* the client is to give some of its own back first (qos_lockcache_evict) */
} QosPoolVerdict;

/* FALSE where a number is out of its range; *error (QOS_ERROR, ERANGE) says which. */
gboolean qos_pool_config_check(const QosPoolConfig *config, GError **error);
/* `config` has passed the check. `sequence`: above that of any pool before this one (saved, or
 * from the server's incarnation), so that late signals of these are known as old. */
void qos_pool_init(QosPool *pool, const QosPoolConfig *config, guint64 sequence, QosTime now);
/* Another configuration from now on; what is granted stays granted. */
void qos_pool_configure(QosPool *pool, const QosPoolConfig *config);
/* SLR goes on from `rate`, the newest value that clients have heard from the server before this
 * one. Otherwise they would give back what that server let them keep. */
void qos_pool_resume(QosPool *pool, gint64 rate);

void qos_pool_join(QosPool *pool, QosPoolClient *client);
/* The client has gone, and with it all that it had. */
void qos_pool_leave(QosPool *pool, QosPoolClient *client);

/* A new credit of `bytes` (> 0). Between L and HL it is granted too: SLR sees to the rest.
 * *ret_retry_after (a duration) is set for QOS_POOL_FULL only. G <= HL after it, unless G was
 * above HL before: by adoption, or because HL was lowered. */
QosPoolVerdict qos_pool_grant(QosPool *pool, QosPoolClient *client, gint64 bytes, QosTime now,
                              QosTime *ret_retry_after);
/* Counts what the client has already: a credit that it reclaims after a restart, or one that a
 * conversion made larger by `bytes`. Never refused. */
void qos_pool_adopt(QosPool *pool, QosPoolClient *client, gint64 bytes);
/* A credit came back, or a conversion made it smaller by `bytes`. More than the client has counts
 * as all of it. */
void qos_pool_cancel(QosPool *pool, QosPoolClient *client, gint64 bytes);

/* Ends the step if it is over at `now`; returns when to call it again. */
QosTime qos_pool_step(QosPool *pool, QosTime now);
/* TRUE: steps leave SLR and GP as they are until something is counted, a client comes or goes, or
 * the pool is configured. Until then the caller need not call qos_pool_step(). */
gboolean qos_pool_rests(const QosPool *pool);
QosPoolSignal qos_pool_signal(const QosPool *pool);

/* Where the clients want far more than there is, what to tell the administrator; else NULL. Free
 * with g_free(). */
char *qos_pool_advice(const QosPool *pool);
