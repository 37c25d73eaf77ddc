/*
 * What `qosfsctl cluster` prints: text made from a lock server's answers
 * (qos_ctl_answer_parse(); docs/reference/reports.md has their members), and nothing else. All text
 * ends with a newline; free with g_free.
 */
#pragma once

#include "tools/ctl_state.h"
#include "tools/ctl_text.h"

/* The list's version, the epoch, and by name the mounts that are behind or away; of `jobs` (or
 * NULL) those with silent mounts. */
char *qos_ctl_render_cluster_status(JsonObject *status, JsonObject *jobs, const QosCtlStyle *style);
/* As `rule list` does; where a line would be too wide, a paragraph for each rule, so that nothing
 * is cut. */
char *qos_ctl_render_cluster_rules(JsonObject *rules, const QosCtlStyle *style);
/* The commands that make these rules in a cluster that has none, a line each. */
char *qos_ctl_render_cluster_rule_commands(JsonObject *rules);
/* What was changed or tried by which user, as the server sorts it. A command is as long as it is.
 */
char *qos_ctl_render_cluster_log(JsonObject *log);
/* The `limit` classes (0 = all) that are served most: first those in bytes, then those in
 * operations. Where a class has "members", its mounts follow it. */
char *qos_ctl_render_cluster_jobs(JsonObject *jobs, guint limit, const QosCtlStyle *style);
/* The classes of `jobs` in that order. Borrowed. */
GPtrArray *qos_ctl_cluster_classes(JsonObject *jobs);
/* First a verdict, then the mounts of each class. */
char *qos_ctl_render_cluster_why(JsonObject *why, const QosCtlStyle *style);
/* What was said of jobs by `cluster job set`. */
char *qos_ctl_render_cluster_job_list(JsonObject *jobs, const QosCtlStyle *style);
