/*
 * The tunables of a mount: what an administrator may set by name, while mounted (an xattr
 * user.qosfs.NAME) or at mount (-o NAME=VALUE).
 *
 * A set of tunables holds their texts, in canonical form, each one checked. qos_tunables_check()
 * judges a new text and changes nothing, qos_tunables_take() puts it into the set, and
 * qos_tunables_apply() makes the mount do as the set says. A text can be saved after the check and
 * before it is taken, so that setting one is all or nothing.
 *
 * It has no lock; fs/control/control.c has one.
 */
#pragma once

#include "fs/request/fs.h"

typedef enum {
    QOS_TUNABLE_NRS_POLICIES, /* the policy in force: fifo, tbf, jrr, grr */
    QOS_TUNABLE_SLOTS,
    QOS_TUNABLE_JOBID_VAR,
    QOS_TUNABLE_JOBID_NAME,
    QOS_TUNABLE_JOB_CLEANUP_INTERVAL,
    QOS_TUNABLE_METRICS_TOP_JOBS,
    QOS_TUNABLE_PARKED_MIB,
    QOS_TUNABLE_HISTORY_DAYS,
    QOS_TUNABLE_ADAPT, /* off, paper, fair */
    QOS_TUNABLE_CAPACITY,
    QOS_TUNABLE_ADAPT_PERIOD,
    QOS_TUNABLE_ADAPT_BYTES,
    QOS_TUNABLE_ADAPT_METADATA,
    QOS_TUNABLE_COUNT,
} QosTunable;

typedef struct {
    char *text[QOS_TUNABLE_COUNT];
} QosTunables;

/* Their names, ended by NULL. */
extern const char *const qos_tunable_names[QOS_TUNABLE_COUNT + 1];

/* The tunable of that name; FALSE where there is none. */
gboolean qos_tunable_find(const char *name, QosTunable *ret_tunable);
/* What it is for, in one line. */
const char *qos_tunable_help(QosTunable tunable);

/* Sets all to their defaults. */
void qos_tunables_init(QosTunables *tunables);
void qos_tunables_clear(QosTunables *tunables);
void qos_tunables_copy(QosTunables *copy, const QosTunables *tunables);

/* The canonical form of `text`, which may be "default", as a value of `tunable` among the others of
 * the set; free with g_free. NULL with a QOS_ERROR (EINVAL, ERANGE) that names it and says what is
 * wrong. */
char *qos_tunables_check(const QosTunables *tunables, QosTunable tunable, const char *text,
                         GError **error);
/* Checks the options of a mount, `given` (name -> text), before anything else of the mount exists.
 * FALSE with such an error, which says that it is about an option. */
gboolean qos_tunables_check_given(GHashTable *given, GError **error);
/* Replaces one by a text that was checked, which is taken over. */
void qos_tunables_take(QosTunables *tunables, QosTunable tunable, char *text);
/* A checked number; 0 for one that is no number. */
gint64 qos_tunables_number(const QosTunables *tunables, QosTunable tunable);
/* Puts one in force. */
void qos_tunables_apply(const QosTunables *tunables, QosTunable tunable, QosFs *fs);

/* The adaptive sharing that the set describes. */
QosAdaptConfig qos_tunables_adapt(const QosTunables *tunables);
