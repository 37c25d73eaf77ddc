/*
 * What qosfsctl prints: text made from the mount's state (tools/ctl_state.h), and nothing else. All
 * text ends with a newline; free with g_free.
 */
#pragma once

#include "tools/ctl_state.h"
#include "tools/ctl_text.h"

char *qos_ctl_render_status(JsonObject *state);
char *qos_ctl_render_policies(JsonObject *state);
char *qos_ctl_render_tunables(JsonObject *state);
/* The value alone; `name` exists. */
char *qos_ctl_render_tunable(JsonObject *state, const char *name);
char *qos_ctl_render_rules(JsonObject *state, const QosCtlStyle *style);
/* The commands that make these rules on a mount that has none, a line each. */
char *qos_ctl_render_rule_commands(JsonObject *state);
/* The busiest `limit` jobs (0 = all), the busiest first. */
char *qos_ctl_render_jobs(JsonObject *state, guint limit, const QosCtlStyle *style);
/* One line that sums the mount up, above a live table. */
char *qos_ctl_render_headline(JsonObject *state, const char *mountpoint);

/* Why `job` (of `state`) is as slow as it is, in sentences (ctl_why.c). */
char *qos_ctl_render_why(JsonObject *state, JsonObject *job);

/* --- the rules for all mounts together (ctl_budget.c) --- */

/* What the mount knows of them, or NULL where it has none. Borrowed. */
JsonObject *qos_ctl_cluster(JsonObject *state);
/* TRUE where a rule is one of them, or a job's wait was for one. */
gboolean qos_ctl_is_of_cluster(JsonObject *object);
/* The rule that an element of "wait" is of, or NULL where it is gone, or was none. Borrowed. */
JsonObject *qos_ctl_waited_rule(JsonObject *state, JsonObject *wait);
/* Lines of `status`; nothing where the mount has none. */
void qos_ctl_append_cluster(GString *text, JsonObject *state);
/* Lines of `why`: what the mount may use of such a rule, which is an element of qos_ctl_cluster().
 */
void qos_ctl_append_budget(GString *text, JsonObject *state, JsonObject *rule);

/* --- the adaptive sharing (ctl_share.c) --- */

/* How the mount shares, or NULL where it does not. Borrowed. */
JsonObject *qos_ctl_sharing(JsonObject *state);
/* The job's part, or NULL where it has none now. Borrowed. */
JsonObject *qos_ctl_share(JsonObject *job);
/* A line of `status`; nothing where the mount does not share. */
void qos_ctl_append_sharing(GString *text, JsonObject *state);
/* A paragraph of `why`, likewise. */
void qos_ctl_append_share(GString *text, JsonObject *state, JsonObject *job);
