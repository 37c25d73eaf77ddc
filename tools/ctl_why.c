/*
 * qosfsctl why: explains in sentences why a job is as slow as it is. They say how long it waited
 * and for what, how much its rule allows, how much of the time was the store's own, and what waits
 * now.
 */
#include "base/units.h"
#include "fs/jobs.h"
#include "fs/rule.h"
#include "tools/ctl_render.h"

/* The rule by which jobs divide what the store can do, over all mounts. */
static gboolean is_sharing(JsonObject *wait)
{
    return qos_ctl_is_of_cluster(wait) &&
           g_str_equal(qos_ctl_state_text(wait, "rule"), QOS_RULE_SHARING_NAME);
}

/* "Rule hog", "Cluster rule hog", "The mount's slots", "Other rules", as a sentence begins or goes
 * on. */
static char *cause(JsonObject *wait, gboolean begins)
{
    const char *name = qos_ctl_state_text(wait, "rule");

    if (g_str_equal(name, QOS_WAIT_SHARE))
        return g_strdup(begins ? "Sharing the store" : "their turn");
    if (g_str_equal(name, QOS_WAIT_SLOTS))
        return g_strdup(begins ? "The mount's slots" : "the mount's slots");
    if (g_str_equal(name, QOS_WAIT_CREDIT))
        return g_strdup(begins ? "What other mounts may have cached"
                               : "what other mounts may have cached");
    if (g_str_equal(name, QOS_WAIT_OTHERS))
        return g_strdup(begins ? "Other rules" : "one of many rules");
    if (is_sharing(wait))
        return g_strdup(begins ? "Sharing the store with all mounts"
                               : "their turn among the jobs of all mounts");
    g_autofree char *escaped = qos_ctl_escape(name);
    if (qos_ctl_is_of_cluster(wait))
        return g_strconcat(begins ? "Cluster rule " : "cluster rule ", escaped, NULL);
    return g_strconcat(begins ? "Rule " : "rule ", escaped, NULL);
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static const char *plural(gint64 count)
{
    return count == 1 ? "" : "s";
}

/* "2 s ago", or with the date where that is a minute and more: "5 m 0 s ago (2026-08-01 10:32:05)".
 */
static char *ago(JsonObject *state, double when)
{
    double age = MAX(0, qos_ctl_state_number(state, "now") - when);
    if (age < 0.5)
        return g_strdup("just now");
    if (age < 60)
        return g_strdup_printf("%.0f s ago", age);
    g_autofree char *text = qos_ctl_format_seconds(age);
    g_autoptr(GDateTime) date = g_date_time_new_from_unix_local((gint64)CLAMP(when, 0, 1e11));
    g_autofree char *stamp = date ? g_date_time_format(date, "%F %T") : g_strdup("?");
    return g_strdup_printf("%s ago (%s)", text, stamp);
}

/* "100 op/s", "10.0 MiB/s", "100 op/s and 10.0 MiB/s"; NULL where there is no bound. */
static char *rule_limit(JsonObject *rule)
{
    gint64 rate = qos_ctl_state_count(rule, "rate"), bps = qos_ctl_state_count(rule, "bps");
    g_autofree char *bytes = qos_format_bytes((guint64)MAX(0, bps));
    if (rate > 0 && bps > 0)
        return g_strdup_printf("%" G_GINT64_FORMAT " op/s and %s/s", rate, bytes);
    if (rate > 0)
        return g_strdup_printf("%" G_GINT64_FORMAT " op/s", rate);
    return bps > 0 ? g_strdup_printf("%s/s", bytes) : NULL;
}

/* The users, groups or jobs that one bucket of the rule serves. */
static const char *rule_sharer(JsonObject *rule)
{
    static const char *const names[][2] = {
        {"uid", "to each user, whatever the number of jobs"},
        {"gid", "to each group, whatever the number of its jobs"},
        {"rule", "to all that it matches together"},
        {"jobid+opcode", "to each job for each kind of operation"},
    };
    const char *per = qos_ctl_state_text(rule, "per");
    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        if (g_str_equal(per, names[i][0]))
            return names[i][1];
    return "to each job";
}

/* What the rule allows: on this mount, or on all mounts together and of that on this one. */
static void append_rule(GString *text, JsonObject *state, JsonObject *wait)
{
    const gboolean is_cluster = qos_ctl_is_of_cluster(wait);
    JsonObject *rule = qos_ctl_waited_rule(state, wait);
    if (!rule) {
        g_string_append(text, "  There is no such rule any more.\n");
        return;
    }
    g_autofree char *limit = rule_limit(rule);
    if (!limit) {
        g_string_append(text, "  It has no limit any more.\n");
        return;
    }
    if (is_sharing(wait)) {
        g_string_append_printf(text,
                               "  The jobs of all mounts divide %s by weight ('qosfsctl cluster "
                               "why' has each one's part).\n",
                               limit);
        qos_ctl_append_budget(text, state, rule);
        return;
    }
    const char *raw = qos_ctl_state_text(rule, "conditions");
    g_autofree char *conditions = qos_ctl_escape(raw);
    gboolean matches_all = !*raw || g_str_equal(raw, "*");
    g_string_append_printf(text, "  It allows %s %s%s%s%s.\n", limit, rule_sharer(rule),
                           is_cluster ? ", on all mounts together" : "",
                           matches_all ? "" : "; it is for ", matches_all ? "" : conditions);
    if (is_cluster)
        qos_ctl_append_budget(text, state, rule);
}

/* How long requests waited for it. A line without any is of requests that still wait. */
static void append_wait_times(GString *text, JsonObject *state, JsonObject *wait)
{
    gint64 count = qos_ctl_state_count(wait, "count");
    double waited = qos_ctl_state_number(wait, "waited");
    g_autofree char *who = cause(wait, TRUE);
    g_autofree char *first = ago(state, qos_ctl_state_number(wait, "first"));
    g_autofree char *last = ago(state, qos_ctl_state_number(wait, "last"));
    if (count == 0) {
        g_string_append_printf(text, "\n%s made requests wait that have not gone yet.\n", who);
        g_string_append_printf(text, "  First %s, last %s.\n", first, last);
        return;
    }
    g_autofree char *total = qos_ctl_format_seconds(waited);
    g_autofree char *average = qos_ctl_format_seconds(waited / (double)count);
    g_autofree char *longest = qos_ctl_format_seconds(qos_ctl_state_number(wait, "longest"));
    g_string_append_printf(text, "\n%s made %" G_GINT64_FORMAT " request%s wait, %s in all: ", who,
                           count, plural(count), total);
    g_string_append_printf(text, "%s on average, %s at most.\n  First %s, last %s.\n", average,
                           longest, first, last);
}

/* Requests waited for the lock server, which may be away itself. */
static void append_credit(GString *text, JsonObject *state)
{
    g_string_append(text,
                    "  The lock server was asked for a credit first, and may have had to call "
                    "it back from another mount.\n");
    if (!json_object_has_member(state, "server"))
        return;
    JsonObject *server = json_object_get_object_member(state, "server");
    g_autofree char *condition = qos_ctl_escape(qos_ctl_state_text(server, "state"));
    g_autofree char *reason = qos_ctl_escape(qos_ctl_state_text(server, "reason"));
    if (!g_str_equal(condition, "up"))
        g_string_append_printf(text, "  Now the mount is without it: %s%s%s%s.\n", condition,
                               *reason ? " (" : "", reason, *reason ? ")" : "");
}

static void append_wait(GString *text, JsonObject *state, JsonObject *wait)
{
    const char *name = qos_ctl_state_text(wait, "rule");

    append_wait_times(text, state, wait);
    if (g_str_equal(name, QOS_WAIT_SHARE))
        g_string_append(text,
                        "  The store is shared and had enough to do: it was not the job's turn.\n");
    else if (g_str_equal(name, QOS_WAIT_SLOTS))
        g_string_append_printf(
            text,
            "  %" G_GINT64_FORMAT
            " requests may be in the store at once, and one job has no more than its share.\n",
            qos_ctl_state_count(json_object_get_object_member(state, "slots"), "total"));
    else if (g_str_equal(name, QOS_WAIT_CREDIT))
        append_credit(text, state);
    else if (!g_str_equal(name, QOS_WAIT_OTHERS))
        append_rule(text, state, wait);
}

/* Where the time of its requests went. */
static void append_store(GString *text, JsonObject *job)
{
    gint64 requests = qos_ctl_state_count(job, "requests");
    double store = qos_ctl_state_number(job, "store_time");
    double all = store + qos_ctl_state_number(job, "wait_time");
    g_autofree char *total = qos_ctl_format_seconds(store);
    g_autofree char *average = qos_ctl_format_seconds(requests > 0 ? store / (double)requests : 0);
    double share = percent(store, all);
    g_string_append_printf(text,
                           "The store took %s to do its work, %s a request: %.3g %% of the time "
                           "that its requests took",
                           total, average, share);
    g_string_append_printf(text, all > store ? "; waiting was the other %.3g %%.\n" : ".\n",
                           100 - share);
}

/* How long that takes at the rate of now; or, where the last that came has waited longer than that
 * already (the class pays for what it did before), how long it has. */
static void append_backlog(GString *text, gint64 waiting, double rate, double last_waits)
{
    double backlog = rate >= 0.05 ? (double)waiting / rate : 0;
    g_autofree char *time = qos_ctl_format_seconds(MAX(backlog, last_waits));

    if (last_waits > backlog)
        g_string_append_printf(text, ", %sfor %s so far", waiting == 1 ? "" : "the last of them ",
                               time);
    else if (backlog > 0)
        g_string_append_printf(text, ": at this rate that takes %s", time);
}

/* What it gets and what waits now; for what is a guess: what was waited for last. */
static void append_now(GString *text, JsonObject *state, JsonObject *job)
{
    gint64 waiting = qos_ctl_state_count(job, "waiting");
    gint64 running = qos_ctl_state_count(job, "running");
    double rate = qos_ctl_state_number(job, "operation_rate");
    g_autofree char *operations = qos_ctl_format_rate(rate);
    g_autofree char *bytes = qos_ctl_format_byte_rate(qos_ctl_state_number(job, "byte_rate"));
    JsonObject *latest = qos_ctl_state_latest_wait(job);

    if (!waiting && !running && rate < 0.05) {
        g_string_append(text, "Now it asks for nothing.\n");
        return;
    }
    g_string_append_printf(
        text, "Now it gets %s op/s and %s; %" G_GINT64_FORMAT " of its requests %s in the store",
        operations, bytes, running, running == 1 ? "is" : "are");
    if (waiting == 0) {
        g_string_append(text, " and none waits.\n");
        return;
    }
    g_string_append_printf(text, " and %" G_GINT64_FORMAT " wait%s", waiting,
                           waiting == 1 ? "s" : "");
    double last_waits = 0;
    if (latest) {
        g_autofree char *what = cause(latest, FALSE);
        g_string_append_printf(text, " for %s", what);
        if (json_object_has_member(latest, "last"))
            last_waits = qos_ctl_state_number(state, "now") - qos_ctl_state_number(latest, "last");
    }
    append_backlog(text, waiting, rate, last_waits);
    g_string_append(text, ".\n");
}

/* What is not in its totals. */
static void append_passthrough(GString *text, JsonObject *job)
{
    gint64 files = qos_ctl_state_count(job, "passthrough");

    if (files > 0)
        g_string_append_printf(text,
                               "A rule with passthrough exempts it: the kernel itself reads and "
                               "writes %" G_GINT64_FORMAT " of its open files, uncounted.\n",
                               files);
}

/* What one job may have open is bounded. */
static void append_refused_opens(GString *text, JsonObject *job)
{
    gint64 refused = qos_ctl_state_count(job, "opens_refused");
    gint64 files = qos_ctl_state_count(job, "open_files");

    if (refused > 0)
        g_string_append_printf(text,
                               "%" G_GINT64_FORMAT
                               " open%s failed (EMFILE), as the daemon keeps some descriptors for "
                               "other jobs; it has %" G_GINT64_FORMAT " file%s open.\n",
                               refused, plural(refused), files, plural(files));
}

static int compare_waits(gconstpointer a, gconstpointer b)
{
    double first = qos_ctl_state_number(*(JsonObject *const *)a, "waited");
    double second = qos_ctl_state_number(*(JsonObject *const *)b, "waited");
    return (first < second) - (first > second);
}

static void append_waits(GString *text, JsonObject *state, JsonObject *job)
{
    JsonArray *waits = json_object_get_array_member(job, "wait");
    g_autoptr(GPtrArray) sorted = g_ptr_array_new();
    for (guint i = 0; i < json_array_get_length(waits); i++)
        g_ptr_array_add(sorted, json_array_get_object_element(waits, i));
    g_ptr_array_sort(sorted, compare_waits);
    for (guint i = 0; i < sorted->len; i++)
        append_wait(text, state, sorted->pdata[i]);
}

char *qos_ctl_render_why(JsonObject *state, JsonObject *job)
{
    g_autofree char *id = qos_ctl_escape(qos_ctl_state_text(job, "id"));
    g_autofree char *since = ago(state, qos_ctl_state_number(job, "started"));
    g_autofree char *waited = qos_ctl_format_seconds(qos_ctl_state_number(job, "wait_time"));
    gint64 requests = qos_ctl_state_count(job, "requests");
    gint64 waits = qos_ctl_state_count(job, "waits");
    gint64 nodes = qos_ctl_state_count(job, "nodes");

    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "Job %s", id);
    if (nodes > 0)
        g_string_append_printf(text, " (%" G_GINT64_FORMAT " node%s)", nodes, plural(nodes));
    if (waits > 0)
        g_string_append_printf(text,
                               " waited %s: %" G_GINT64_FORMAT " of its %" G_GINT64_FORMAT
                               " request%s had to (%.3g %%).",
                               waited, waits, requests, plural(requests),
                               percent((double)waits, (double)requests));
    else if (qos_ctl_state_count(job, "waiting") > 0)
        g_string_append(text, " waits for the first time, and still does.");
    else if (requests == 1)
        g_string_append(text, " never waited: its one request went to the store at once.");
    else
        g_string_append_printf(
            text, " never waited: all its %" G_GINT64_FORMAT " requests went to the store at once.",
            requests);
    g_string_append_printf(text, " First seen %s.\n", since);
    append_waits(text, state, job);
    qos_ctl_append_share(text, state, job);
    g_string_append_c(text, '\n');
    append_passthrough(text, job);
    append_refused_opens(text, job);
    if (requests > 0)
        append_store(text, job);
    append_now(text, state, job);
    return g_string_free(text, FALSE);
}
