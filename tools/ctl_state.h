/*
 * The mount's state as qosfsctl reads it: .qosfs/state.json (docs/qosfsctl.1, JSON OUTPUT).
 *
 * Parsing checks the shape once, so that the readers of the result need not. "rules", "jobs" and
 * "policies" are arrays of objects. "tunables", "slots" and, if present, "server" are objects, and
 * so are the parts of a job. So is "cluster", if present, with arrays "rules" and "classes". A
 * missing member counts as 0 or "", because an older daemon has fewer.
 */
#pragma once

#include <json-glib/json-glib.h>

/* A new reference. Errors: QOS_ERROR EPROTO where it is no JSON, or of another shape. */
JsonObject *qos_ctl_state_parse(const char *text, gsize length, GError **error);

/*
 * An answer of a lock server about its cluster (docs/reference/reports.md): an object with `list`,
 * an array of objects; "members" in one of these, if present, is an array of objects too. A new
 * reference; errors likewise.
 */
JsonObject *qos_ctl_answer_parse(const char *text, const char *list, GError **error);

double qos_ctl_state_number(JsonObject *object, const char *member);
gint64 qos_ctl_state_count(JsonObject *object, const char *member);
gboolean qos_ctl_state_flag(JsonObject *object, const char *member);
/* Owned by the object; "" where it is missing. As the mount gave it: escape it before a terminal
 * sees it. */
const char *qos_ctl_state_text(JsonObject *object, const char *member);

/* The element of the array `list` ("rules", "policies") with this "name", or NULL. Borrowed. */
JsonObject *qos_ctl_state_named(JsonObject *state, const char *list, const char *name);
/* All rules that the mount has, its own and those for all mounts together, an array. Free with
 * json_node_unref(). */
JsonNode *qos_ctl_state_rules(JsonObject *state);
/* The job of that id, as it is or as it is printed, with \xHH, or NULL. Borrowed. */
JsonObject *qos_ctl_state_job(JsonObject *state, const char *id);
/* Of what the job waited for ("wait"), what it waited for last, or NULL. Borrowed. */
JsonObject *qos_ctl_state_latest_wait(JsonObject *job);
/* All jobs (borrowed), the busiest first: by operations a second, then bytes a second, then the
 * last seen. */
GPtrArray *qos_ctl_state_jobs(JsonObject *state);
/* What the elements of `list` are called by `member`, for hints. Borrowed strings. */
GPtrArray *qos_ctl_state_names(JsonObject *state, const char *list, const char *member);
