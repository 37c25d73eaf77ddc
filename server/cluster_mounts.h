/*
 * What each mount has been told of the cluster's rules, and which part of floors it may use.
 *
 * Problem: a rule says which percentage of its rate (floor=) all mounts together may use at once,
 * without asking. Each mount is told N, and uses one of N parts. A mount that is cut off goes on
 * with its part, and one that has not yet heard of a larger N goes on with a larger part. With
 * share=hard the parts in use may never be more than one whole.
 *
 * Solution: N is a power of two, at least 8 and at least the number of mounts that are known or
 * connected. Of each mount the server knows the largest part that it may be using: the smallest N
 * of all that it was told since its last acknowledgement, and of that. With a hard rule in the list
 * a mount is told a larger part than it has only if the sum of the parts of all stays at most one.
 * Until then it is told 0 (no floor), or keeps what it has. Mounts that are to use a smaller part
 * are told at once, so their acknowledgements make room. Without a hard rule all are told N at
 * once.
 *
 * A mount's part is saved before the mount is told of it, so that a restart forgets none. Until
 * that is done a newcomer has the list with 0. A known mount is forgotten when
 *
 *     it acknowledges 0, so that it has no floor any more, or says QOS_WIRE_SEEN_GOODBYE
 *     an administrator says that it is gone (`forget`)
 *     there are fair rules alone, and its connection has been gone for 10 leases
 *
 * N falls only when a quarter of it would do, so that mounts that come and go do not make the list
 * travel to all again and again.
 *
 * Limit: a forgotten mount that is still running uses its part beyond the sum, until it is back or
 * its list is older than any hard rule in force; `forget` is for machines that are gone.
 *
 * Pure: time is an argument, and what comes out are calls. One thread, the main loop's.
 */
#pragma once

#include "core/wire_cluster.h"

#define QOS_CLUSTER_PARTS_MIN   8
#define QOS_CLUSTER_GONE_LEASES 10

typedef struct {
    QosOwnerId id;
    char *name; /* for people */
    gboolean is_connected;
    QosTime since;        /* it is, or is not */
    QosTime heard;        /* its latest frame of the cluster's; 0: none since the start */
    gboolean is_told;     /* in this connection: */
    guint64 told_version; /* the list, */
    guint64 told_serial;  /* with these terms, */
    guint told_parts;     /* and N; 0: no floor */
    gboolean has_seen;    /* it has acknowledged a list in this connection: */
    guint64 seen_version;
    guint seen_parts;
    guint usable;        /* the smallest N that it may be using; 0: it uses no floor */
    guint planned;       /* N that it is told once that is durable; 0: none */
    guint row;           /* what is durable; 0: nothing is */
    guint row_next;      /* what is being saved; 0: nothing */
    guint64 row_number;  /* the change of the database that does so */
    gboolean is_leaving; /* it said goodbye in this connection */
    gboolean is_blocked; /* there is no room for the part that it should have */
} QosClusterMount;

typedef struct {
    gpointer arg;
    /* To be told the list in force, with that N. The mount is connected. */
    void (*tell)(const QosClusterMount *mount, guint parts, gpointer arg);
    /* Saves N of a mount; returns the number for qos_cluster_mounts_durable(). */
    guint64 (*save)(const QosClusterMount *mount, guint parts, gpointer arg);
    void (*unsave)(const QosClusterMount *mount, gpointer arg);
    /* It is known no more: it uses nothing of any rule. */
    void (*left)(QosOwnerId id, gpointer arg);
    /* N is another one: the terms are to be set anew, qos_cluster_mounts_set_list(). */
    void (*parts_changed)(gpointer arg);
} QosClusterMountsCalls;

typedef struct QosClusterMounts QosClusterMounts;

QosClusterMounts *qos_cluster_mounts_new(const QosClusterMountsCalls *calls);
/* NULL is allowed. */
void qos_cluster_mounts_free(QosClusterMounts *mounts);
/* At the start: a mount that may be using one of `parts` parts, which is durable. */
void qos_cluster_mounts_restore(QosClusterMounts *mounts, QosOwnerId id, const char *name,
                                guint parts, QosTime now);

/* The list in force, and a number that grows whenever its terms (epoch, lease) are others. */
void qos_cluster_mounts_set_list(QosClusterMounts *mounts, guint64 version, guint64 serial,
                                 gboolean has_rules, gboolean has_hard);
/* A connection is open; it may replace another one. */
void qos_cluster_mounts_connected(QosClusterMounts *mounts, QosOwnerId id, const char *name,
                                  QosTime now);
void qos_cluster_mounts_disconnected(QosClusterMounts *mounts, QosOwnerId id, QosTime now);
/* A frame of a connected mount came. */
void qos_cluster_mounts_heard(QosClusterMounts *mounts, QosOwnerId id, QosTime now);
void qos_cluster_mounts_seen(QosClusterMounts *mounts, QosOwnerId id, const QosWireSeen *seen);
/* What was saved is durable up to that number. */
void qos_cluster_mounts_durable(QosClusterMounts *mounts, guint64 number);
/* An administrator says that the mount is gone. FALSE: it is connected, or not known: *error
 * (QOS_ERROR; EBUSY, ENOENT) says so. `what` is its name or its id in hexadecimal. */
gboolean qos_cluster_mounts_forget(QosClusterMounts *mounts, const char *what, GError **error);
/* Forgets mounts that have been gone for long, where the law allows. Returns when to call again. */
QosTime qos_cluster_mounts_expire(QosClusterMounts *mounts, QosTime lease, QosTime now);

/* N; QOS_CLUSTER_PARTS_MIN at least. */
guint qos_cluster_mounts_parts(const QosClusterMounts *mounts);
guint qos_cluster_mounts_connected_count(const QosClusterMounts *mounts);
/* Those that may be using a floor. */
guint qos_cluster_mounts_known(const QosClusterMounts *mounts);
/* Connected ones that have not acknowledged the list in force. */
guint qos_cluster_mounts_behind(const QosClusterMounts *mounts);
/* NULL: there is none. */
const QosClusterMount *qos_cluster_mounts_find(const QosClusterMounts *mounts, QosOwnerId id);
/* All that are connected or known, by name. Free with g_ptr_array_unref(); borrowed items. */
GPtrArray *qos_cluster_mounts_list(const QosClusterMounts *mounts);
/* The sum of the parts that may be in use, in 2^24ths: at most 2^24 unless fair rules did it. */
guint64 qos_cluster_mounts_in_use(const QosClusterMounts *mounts);
