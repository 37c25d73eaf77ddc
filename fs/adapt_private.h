/*
 * What the files of adaptive sharing share: adapt.c has the dispatch, adapt_period.c has what is
 * done once a period.
 */
#pragma once

#include "fs/adapt.h"
#include "fs/adapt_anticipation.h"
#include "fs/adapt_fair.h"
#include "fs/adapt_paper.h"
#include "fs/capacity.h"
#include "fs/jobs.h"

/* Paper's buckets hold parts of tokens, so that few of them in a long period are a rate, too. One
 * that lets a request go at the first part is as deep as Lustre's tbf_depth, three whole ones. */
#define QOS_PAPER_TOKEN QOS_COST_UNIT
#define QOS_PAPER_DEPTH (2 * QOS_PAPER_TOKEN + 1)

/* Where a job waits. Fair has one place, in order of virtual time. Paper: until it has a token;
 * with one, by its priority; or without a rule, in order of arrival. */
enum { QOS_ADAPT_WAITING, QOS_ADAPT_DUE, QOS_ADAPT_FALLBACK, QOS_ADAPT_PLACES };

/* Beyond it virtual time begins anew, which is O(n): far from overflow, and seldom. */
#define QOS_VIRTUAL_TIME_MAX (G_GINT64_CONSTANT(1) << 60)

/* State per job, in the job and in the arrays: the law's, `jobs` and `seen`. */
G_STATIC_ASSERT(sizeof(QosShare) + MAX(sizeof(QosFairJob), sizeof(QosPaperJob)) + sizeof(QosJob *) +
                    sizeof(QosTime) <=
                256);

struct QosAdapt {
    QosAdaptConfig config;
    GPtrArray *jobs;                   /* of QosJob, one reference each: the members */
    GArray *seen;                      /* of QosTime, by the same index: their last requests */
    GArray *fair;                      /* of QosFairJob, likewise, in mode fair; */
    GArray *paper;                     /* of QosPaperJob, in mode paper */
    QosHeap waiting[QOS_ADAPT_PLACES]; /* of QosShare.order */
    gint64 due_number;                 /* paper: of the last that came to be due */
    gint64 virtual_time;               /* fair: 0 to QOS_VIRTUAL_TIME_MAX, ns */
    double level;           /* fair: units of entitlement per weight, as of the last step */
    const QosJob *lender;   /* fair: the job that lent most in the last period, */
    const QosJob *borrower; /* and the one that borrowed most; members, or NULL */
    gboolean has_records;   /* fair: as of the last step */
    gint64 restored; /* fair: sum of the records, as absolutes, that were restored in this period */
    QosTime period_start;
    QosShareChanges changes;
    QosCapacity capacity;
    QosAnticipation anticipation; /* fair */
    gboolean is_throttling;       /* paper: in this period, a job waited for tokens */
    gint64 served;                /* paper: requests that went in this period */
    double token_part;            /* paper: of a token, that no period has given out yet */
};

static inline QosTime *qos_adapt_seen_of(const QosAdapt *adapt, const QosJob *job)
{
    return &g_array_index(adapt->seen, QosTime, job->share.member - 1);
}

static inline QosFairJob *qos_adapt_fair_of(const QosAdapt *adapt, const QosJob *job)
{
    return &g_array_index(adapt->fair, QosFairJob, job->share.member - 1);
}

static inline QosPaperJob *qos_adapt_paper_of(const QosAdapt *adapt, const QosJob *job)
{
    return &g_array_index(adapt->paper, QosPaperJob, job->share.member - 1);
}

/* The share that a place in the heap belongs to. */
static inline QosShare *qos_adapt_share_of(QosHeapNode *order)
{
    return (QosShare *)((char *)order - G_STRUCT_OFFSET(QosShare, order));
}

/* What so many operations a second bring in a period; at least 1. */
gint64 qos_adapt_units(const QosAdapt *adapt, double operations_per_second);
/* Paper: puts all that wait where they belong by their rates. */
void qos_adapt_order_anew(QosAdapt *adapt, QosTime now);
/* Ends a membership. */
void qos_adapt_leave(QosAdapt *adapt, guint index);
