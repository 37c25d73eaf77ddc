/*
 * What the files of control share: the settings of a mount, and its reports.
 *
 * Order of the locks: setting, lock. Neither is held for a reply.
 */
#pragma once

#include "fs/control/control.h"
#include "sys/mutex.h"

#define QOS_NOT_SAVED G_MAXUINT64 /* QosShareChanges.others: all is to be saved */

/* What the mount tells: in a file of `.qosfs`, or as an xattr. */
typedef struct {
    GString *(*make)(const QosReport *report); /* NULL: the history */
    QosReportJobs jobs;
} QosControlText;

/* A text that a user has open; all open files of that user that have it share this. */
typedef struct {
    GBytes *text;
    QosUser *user; /* NULL: a user that nothing bounds */
    guint opens;   /* how often */
} QosOpenText;

/* Where the requests for texts wait. */
typedef struct {
    GSList *waiting;    /* of Asking (fs/control/control_texts.c) */
    gboolean is_served; /* somebody makes texts for them, or is about to */
} QosControlDesk;

struct QosControl {
    QosFs *fs;
    QosDb *db; /* borrowed; NULL: nothing persists */
    QosTime started;
    char *process; /* the daemon's, as the xattr tells it */

    QosMutex setting;       /* one command at a time, from parsing to putting in force */
    QosMutex lock;          /* what is below */
    QosTime clock_offset;   /* of the wall clock from the gate's, as reports have it */
    QosTunables tunables;   /* changed with both held */
    GHashTable *errors;     /* uid -> why the last set of that user failed */
    GHashTable *texts;      /* of QosOpenText: of the files of .qosfs that are open */
    gsize texts_size;       /* theirs together */
    QosControlDesk reports; /* with all jobs: these take long */
    QosControlDesk brief, history;
    QosGateChanges changes; /* that are not in the database yet */
    QosTime save_due;       /* the saver's own, as the next: of the totals; 0: not started */
    QosShareChanges saved;  /* what is in the database */
    gboolean shares_fail;   /* saving them does, and that was said */
};

/* ns since 1970 */
static inline QosTime qos_wall_now(void)
{
    return g_get_real_time() * QOS_MICROSECOND;
}

/* The rules in force; a new reference. */
static inline QosRules *qos_control_rules(const QosControl *control)
{
    QosRules *rules = qos_rules_ref(qos_sched_rules(qos_gate_lock(control->fs->gate)));

    qos_gate_unlock(control->fs->gate);
    return rules;
}

/* --- fs/control/control_value.c --- */

/* The value of a setting as a string, without the NUL or the blanks that tools put behind it. Free
 * with g_free(). NULL, with *error (QOS_ERROR): it is too long, or is no string. */
char *qos_control_text_of(const char *value, size_t size, GError **error);
/* Keeps the reason why a set of `uid` failed; NULL: it did not. */
void qos_control_keep_error(QosControl *control, uid_t uid, const char *reason);

/* --- fs/control/control_cluster.c --- */

/* Each asks the lock server, and replies when its answer comes: to a set of `cluster`, */
void qos_control_tell_cluster(fuse_req_t request, const char *value, size_t size);
/* and to a read of `cluster:WHAT` into so many bytes. */
void qos_control_ask_cluster(fuse_req_t request, size_t size, const char *what);

/* --- fs/control/control_texts.c --- */

/* Each makes the text, or lets it be made, and replies: to an open of a file for reading, */
void qos_control_ask(fuse_req_t request, const struct fuse_file_info *info,
                     const QosControlText *text);
/* to a read of an xattr into so many bytes, */
void qos_control_ask_value(fuse_req_t request, size_t size, const QosControlText *text);
/* and to a read of what the mount knows of one job. */
void qos_control_ask_job(fuse_req_t request, size_t size, const char *id);
/* Replies with this text, which is kept while it is open: where the mount ends first, the kernel
 * does not tell. */
void qos_control_answer_open(fuse_req_t request, const struct fuse_file_info *info, GBytes *text);
/* Replies with this value of an xattr. */
void qos_control_answer_value(fuse_req_t request, size_t size, const char *value, size_t length);
/* It is closed. */
void qos_control_drop_text(QosControl *control, QosOpenText *open);
GHashTable *qos_control_texts_new(void);
