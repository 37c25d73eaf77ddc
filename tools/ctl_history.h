/*
 * The history of the jobs as qosfsctl reads it from .qosfs/history (docs/reference/reports.md):
 * which part a command asks for, and the series that are drawn from it.
 *
 * Its lines are checked when they are read. Ids are shown as qos_ctl_escape() shows them.
 */
#pragma once

#include <glib.h>

#define QOS_CTL_HISTORY_JOBS 500 /* that the series tell apart; the largest */

typedef struct QosCtlHistory QosCtlHistory;

/* Errors: QOS_ERROR EPROTO where a line is not what this qosfsctl knows. */
QosCtlHistory *qos_ctl_history_parse(const char *text, GError **error);
void qos_ctl_history_free(QosCtlHistory *history); /* NULL is allowed */

/* Leaves out what ended before `from` (s since 1970), then all but `jobs` (NULL: none is left out),
 * named as they are or as they are shown. Errors: QOS_ERROR ENOENT with the name of one that did
 * nothing, and the names like it. */
gboolean qos_ctl_history_select(QosCtlHistory *history, gint64 from, const char *const *jobs,
                                GError **error);

/* When the earliest of what is left begins, in s since 1970; G_MAXINT64: nothing is left. */
gint64 qos_ctl_history_begin(const QosCtlHistory *history);

/* The header, and the lines that are left, as the mount wrote them; free with g_free. */
char *qos_ctl_history_csv(const QosCtlHistory *history);

/* Equal slices from `from` on: s since 1970, their length in s, and how many. */
typedef struct {
    gint64 from;
    gint64 step;
    guint count;
} QosCtlSlices;

/* Slices as fine as the mount has them for the last `length` s before `now`, but 721 at most. */
QosCtlSlices qos_ctl_history_slices(gint64 now, gint64 length);

/* Appends the jobs as a JSON array (tools/report.js tells of what), the largest first. No "<" is in
 * it. */
void qos_ctl_history_append_jobs(const QosCtlHistory *history, const QosCtlSlices *slices,
                                 GString *json);
/* Appends `text` as a JSON string without a "<". */
void qos_ctl_history_append_string(GString *json, const char *text);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosCtlHistory, qos_ctl_history_free)
