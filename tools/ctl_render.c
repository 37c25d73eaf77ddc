/*
 * Turns the state of a mount into text and tables.
 */
#include "tools/ctl_render.h"

#include "base/time.h"
#include "base/units.h"
#include "fs/jobs.h"

static char *format_count(gint64 count)
{
    return g_strdup_printf("%" G_GINT64_FORMAT, count);
}

static char *escaped(JsonObject *object, const char *member)
{
    return qos_ctl_escape(qos_ctl_state_text(object, member));
}

static char *count_of(JsonObject *object, const char *member)
{
    return format_count(qos_ctl_state_count(object, member));
}

static char *bytes_of(JsonObject *object, const char *member)
{
    return qos_format_bytes((guint64)MAX(0, qos_ctl_state_count(object, member)));
}

static char *duration_of(JsonObject *object, const char *member)
{
    return qos_ctl_format_seconds(qos_ctl_state_number(object, member));
}

/* How long ago the time `member` was; times of the state are in seconds since 1970. */
static char *age_of(JsonObject *state, JsonObject *object, const char *member)
{
    double age = qos_ctl_state_number(state, "now") - qos_ctl_state_number(object, member);
    /* Whole seconds below a minute: more digits would only flicker. */
    return age < 60 ? g_strdup_printf("%.0f s", MAX(0, age)) : qos_ctl_format_seconds(age);
}

/* The policy in force, then those that are left and still hand out what they hold. */
static void append_policies(GString *text, JsonObject *state)
{
    static const struct {
        const char *phase, *label, *words;
    } lines[] = {
        {"started", "policy    ", ""},
        {"stopping", "          ", "; it takes no more"},
    };
    JsonArray *policies = json_object_get_array_member(state, "policies");
    for (guint i = 0; i < G_N_ELEMENTS(lines); i++) {
        for (guint j = 0; j < json_array_get_length(policies); j++) {
            JsonObject *policy = json_array_get_object_element(policies, j);
            if (!g_str_equal(qos_ctl_state_text(policy, "state"), lines[i].phase))
                continue;
            g_autofree char *name = escaped(policy, "name");
            g_string_append_printf(text, "%s%s, waiting requests: %" G_GINT64_FORMAT "%s\n",
                                   lines[i].label, name, qos_ctl_state_count(policy, "queued"),
                                   lines[i].words);
        }
    }
}

/* What a state has in place of its lists; or NULL. */
static JsonObject *counts_of(JsonObject *state)
{
    JsonNode *node = json_object_get_member(state, "counts");
    return node && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

/* How many jobs have requests in the store or waiting, and how many of them wait. */
static void count_jobs(JsonObject *state, guint *ret_all, guint *ret_active, guint *ret_waiting)
{
    JsonObject *counts = counts_of(state);
    if (counts) {
        *ret_all = (guint)qos_ctl_state_count(counts, "jobs");
        *ret_active = (guint)qos_ctl_state_count(counts, "active");
        *ret_waiting = (guint)qos_ctl_state_count(counts, "waiting");
        return;
    }
    JsonArray *jobs = json_object_get_array_member(state, "jobs");
    *ret_all = json_array_get_length(jobs);
    *ret_active = *ret_waiting = 0;
    for (guint i = 0; i < *ret_all; i++) {
        JsonObject *job = json_array_get_object_element(jobs, i);
        gboolean waits = qos_ctl_state_count(job, "waiting") > 0;
        *ret_waiting += waits;
        *ret_active += waits || qos_ctl_state_count(job, "running") > 0 ||
                       qos_ctl_state_number(job, "operation_rate") >= 0.05;
    }
}

/* The memory of what waits, where it is worth a word or there was no room for more. */
static void append_parked(GString *text, JsonObject *state)
{
    gint64 bytes = qos_ctl_state_count(state, "parked_bytes");
    gint64 refused = qos_ctl_state_count(state, "refused");

    if (bytes < 1 << 20 && refused == 0)
        return;
    g_string_append_printf(
        text, "parked    %.1f of %.1f MiB hold requests that wait, with their data",
        (double)bytes / (1 << 20), (double)qos_ctl_state_count(state, "parked_max") / (1 << 20));
    if (refused != 0)
        g_string_append_printf(text, "; %" G_GINT64_FORMAT " failed for want of room", refused);
    g_string_append_c(text, '\n');
}

/* The lock server, where the mount has one. */
static void append_server(GString *text, JsonObject *state)
{
    if (!json_object_has_member(state, "server"))
        return;
    JsonObject *server = json_object_get_object_member(state, "server");
    g_autofree char *address = escaped(server, "address");
    g_autofree char *condition = escaped(server, "state");
    g_autofree char *reason = escaped(server, "reason");
    g_autofree char *valid = qos_ctl_format_seconds(qos_ctl_state_number(server, "valid"));
    gboolean is_valid = qos_ctl_state_number(server, "valid") > 0;
    g_string_append_printf(text, "server    %s: %s", address, condition);
    if (*reason)
        g_string_append_printf(text, " (%s)", reason);
    if (is_valid && !g_str_equal(condition, "up"))
        g_string_append_printf(text, ", caching for %s more", valid);
    g_string_append_printf(text, is_valid ? "\n" : ", nothing is cached\n");
    g_string_append_printf(
        text,
        "credits   %" G_GINT64_FORMAT ", %" G_GINT64_FORMAT " hits, %" G_GINT64_FORMAT
        " misses, %" G_GINT64_FORMAT " called back\n",
        qos_ctl_state_count(server, "credits"), qos_ctl_state_count(server, "hits"),
        qos_ctl_state_count(server, "misses"), qos_ctl_state_count(server, "revocations"));
}

char *qos_ctl_render_status(JsonObject *state)
{
    JsonObject *slots = json_object_get_object_member(state, "slots");
    JsonObject *counts = counts_of(state);
    gint64 rules = counts ? qos_ctl_state_count(counts, "rules")
                          : json_array_get_length(json_object_get_array_member(state, "rules"));
    g_autofree char *version = escaped(state, "version");
    g_autofree char *source = escaped(state, "source");
    g_autofree char *mountpoint = escaped(state, "mountpoint");
    g_autofree char *uptime = age_of(state, state, "started");
    guint all, active, waiting;

    count_jobs(state, &all, &active, &waiting);
    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "mount     %s on %s, up %s\n", source, mountpoint, uptime);
    g_string_append_printf(text, "daemon    qosfs %s, pid %" G_GINT64_FORMAT "\n", version,
                           qos_ctl_state_count(state, "pid"));
    append_policies(text, state);
    g_string_append_printf(text, "slots     %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " in use",
                           qos_ctl_state_count(slots, "running"),
                           qos_ctl_state_count(slots, "total"));
    if (qos_ctl_state_count(slots, "held"))
        g_string_append_printf(text, ", requests held for their job's %s: %" G_GINT64_FORMAT,
                               qos_ctl_sharing(state) ? "turn" : "share of them",
                               qos_ctl_state_count(slots, "held"));
    g_string_append_c(text, '\n');
    qos_ctl_append_sharing(text, state);
    append_server(text, state);
    qos_ctl_append_cluster(text, state);
    append_parked(text, state);
    g_string_append_printf(text, "rules     %" G_GINT64_FORMAT " ('qosfsctl rule list')\n", rules);
    g_string_append_printf(text, "jobs      %u known, %u active, %u waiting ('qosfsctl jobs')\n",
                           all, active, waiting);
    g_string_append_printf(
        text, "known     files: %" G_GINT64_FORMAT ", callers: %" G_GINT64_FORMAT "\n",
        qos_ctl_state_count(state, "inodes"), qos_ctl_state_count(state, "callers"));
    return g_string_free(text, FALSE);
}

char *qos_ctl_render_headline(JsonObject *state, const char *mountpoint)
{
    JsonObject *slots = json_object_get_object_member(state, "slots");
    g_autofree char *name = qos_ctl_escape(mountpoint);
    g_autoptr(GDateTime) now = g_date_time_new_from_unix_local(qos_ctl_state_count(state, "now"));
    g_autofree char *clock = now ? g_date_time_format(now, "%H:%M:%S") : g_strdup("");
    guint all, active, waiting;

    count_jobs(state, &all, &active, &waiting);
    return g_strdup_printf("%s  %s  jobs: %u, %u active, %u waiting  slots: %" G_GINT64_FORMAT
                           "/%" G_GINT64_FORMAT "\n",
                           name, clock, all, active, waiting, qos_ctl_state_count(slots, "running"),
                           qos_ctl_state_count(slots, "total"));
}

char *qos_ctl_render_policies(JsonObject *state)
{
    static const QosCtlColumn columns[] = {
        {.title = "POLICY"}, {.title = "STATE"}, {.title = "WAITING", .right = TRUE}};
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    JsonArray *policies = json_object_get_array_member(state, "policies");
    for (guint i = 0; i < json_array_get_length(policies); i++) {
        JsonObject *policy = json_array_get_object_element(policies, i);
        qos_ctl_table_add(table, escaped(policy, "name"));
        qos_ctl_table_add(table, escaped(policy, "state"));
        qos_ctl_table_add(table, count_of(policy, "queued"));
    }
    return qos_ctl_table_print(table, &(QosCtlStyle){0});
}

char *qos_ctl_render_tunables(JsonObject *state)
{
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    g_autoptr(GList) names = json_object_get_members(tunables);
    names = g_list_sort(names, (GCompareFunc)g_strcmp0);
    GString *text = g_string_new(NULL);
    for (GList *name = names; name; name = name->next) {
        g_autofree char *escaped_name = qos_ctl_escape(name->data);
        g_autofree char *value = escaped(tunables, name->data);
        g_string_append_printf(text, "%s=%s\n", escaped_name, value);
    }
    return g_string_free(text, FALSE);
}

char *qos_ctl_render_tunable(JsonObject *state, const char *name)
{
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    g_autofree char *value = escaped(tunables, name);
    return g_strconcat(value, "\n", NULL);
}

/* The rule's options, or that it has no limit. */
static char *rule_options(JsonObject *rule)
{
    const char *options = qos_ctl_state_text(rule, "options");
    return *options ? qos_ctl_escape(options) : g_strdup("no limit");
}

static void add_rule(QosCtlTable *table, JsonObject *rule)
{
    gboolean expires = qos_ctl_state_number(rule, "expires_in") > 0;
    gboolean dryrun = qos_ctl_state_flag(rule, "dryrun");
    qos_ctl_table_add(table, escaped(rule, "name"));
    qos_ctl_table_add(table, g_strdup(qos_ctl_is_of_cluster(rule) ? "cluster" : ""));
    qos_ctl_table_add(table, escaped(rule, "conditions"));
    qos_ctl_table_add(table, rule_options(rule));
    qos_ctl_table_add(table, expires ? duration_of(rule, "expires_in") : g_strdup(""));
    qos_ctl_table_add(table, count_of(rule, "requests"));
    qos_ctl_table_add(table, bytes_of(rule, "bytes"));
    qos_ctl_table_add(table, count_of(rule, "waits"));
    qos_ctl_table_add(table, duration_of(rule, "waited"));
    qos_ctl_table_add(table, count_of(rule, "waiting"));
    qos_ctl_table_add(table, count_of(rule, "buckets"));
    qos_ctl_table_add(table, dryrun ? count_of(rule, "dryrun_waits") : g_strdup(""));
}

char *qos_ctl_render_rules(JsonObject *state, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "RULE"},
        {.title = "SCOPE", .optional = TRUE},
        {.title = "CONDITIONS", .flexible = TRUE},
        {.title = "OPTIONS", .flexible = TRUE},
        {.title = "EXPIRES IN", .right = TRUE, .optional = TRUE},
        {.title = "REQUESTS", .right = TRUE},
        {.title = "BYTES", .right = TRUE},
        {.title = "WAITS", .right = TRUE},
        {.title = "WAITED", .right = TRUE},
        {.title = "WAITING", .right = TRUE},
        {.title = "BUCKETS", .right = TRUE},
        {.title = "WOULD WAIT", .right = TRUE, .optional = TRUE},
    };
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    g_autoptr(JsonNode) all = qos_ctl_state_rules(state);
    JsonArray *rules = json_node_get_array(all);
    for (guint i = 0; i < json_array_get_length(rules); i++)
        add_rule(table, json_array_get_object_element(rules, i));
    return qos_ctl_table_print(table, style);
}

char *qos_ctl_render_rule_commands(JsonObject *state)
{
    JsonArray *rules = json_object_get_array_member(state, "rules");
    GString *text = g_string_new(NULL);
    /* The newest is tried first, so that the last one is to be started first. */
    for (guint i = json_array_get_length(rules); i-- > 0;) {
        JsonObject *rule = json_array_get_object_element(rules, i);
        g_autofree char *name = escaped(rule, "name");
        g_autofree char *conditions = g_shell_quote(qos_ctl_state_text(rule, "conditions"));
        g_autofree char *options = escaped(rule, "options");
        double rest = qos_ctl_state_number(rule, "expires_in");
        if (g_str_equal(name, "default"))
            g_string_append_printf(text, "qosfsctl rule change default %s", options);
        else
            g_string_append_printf(text, "qosfsctl rule start %s %s %s", name, conditions, options);
        if (rest > 0)
            g_string_append_printf(text, " expire=%.0f", MAX(rest, 1));
        g_string_append_c(text, '\n');
    }
    return g_string_free(text, FALSE);
}

/* What the job waited for last: the name of a rule, "(slots)", "(share)", or "". */
static char *last_wait(JsonObject *job)
{
    JsonObject *wait = qos_ctl_state_latest_wait(job);
    return wait ? escaped(wait, "rule") : g_strdup("");
}

/* What it is entitled to, asks for and is to have, what it lends (or borrows, below 0) a second,
 * and what of that is not paid back; nothing where it has no share. */
static void add_share(QosCtlTable *table, JsonObject *job)
{
    JsonObject *share = qos_ctl_share(job);
    if (!share) {
        for (guint i = 0; i < 6; i++)
            qos_ctl_table_add(table, g_strdup(""));
        return;
    }
    qos_ctl_table_add(table, count_of(share, "weight"));
    qos_ctl_table_add(table, qos_ctl_format_rate(qos_ctl_state_number(share, "entitlement")));
    qos_ctl_table_add(table, qos_ctl_format_rate(qos_ctl_state_number(share, "demand")));
    qos_ctl_table_add(table, qos_ctl_format_rate(qos_ctl_state_number(share, "allocation")));
    qos_ctl_table_add(table, g_strdup_printf("%+.0f", qos_ctl_state_number(share, "flow")));
    qos_ctl_table_add(table, g_strdup_printf("%+.0f", qos_ctl_state_number(share, "record")));
}

static void add_job(QosCtlTable *table, JsonObject *state, JsonObject *job)
{
    qos_ctl_table_add(table, escaped(job, "id"));
    qos_ctl_table_add(table, qos_ctl_format_rate(qos_ctl_state_number(job, "operation_rate")));
    qos_ctl_table_add(table, qos_ctl_format_byte_rate(qos_ctl_state_number(job, "byte_rate")));
    qos_ctl_table_add(table, count_of(job, "waiting"));
    qos_ctl_table_add(table, duration_of(job, "wait_time"));
    qos_ctl_table_add(table, last_wait(job));
    add_share(table, job);
    qos_ctl_table_add(table, duration_of(job, "store_time"));
    qos_ctl_table_add(table, count_of(job, "requests"));
    qos_ctl_table_add(table, bytes_of(job, "read_bytes"));
    qos_ctl_table_add(table, bytes_of(job, "write_bytes"));
    qos_ctl_table_add(table, count_of(job, "errors"));
    qos_ctl_table_add(table, age_of(state, job, "seen"));
}

char *qos_ctl_render_jobs(JsonObject *state, guint limit, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "JOB", .flexible = TRUE},
        {.title = "OP/S", .right = TRUE},
        {.title = "BYTES/S", .right = TRUE},
        {.title = "WAITING", .right = TRUE},
        {.title = "WAITED", .right = TRUE},
        {.title = "FOR"},
        {.title = "WEIGHT", .right = TRUE, .optional = TRUE},
        {.title = "SHARE", .right = TRUE, .optional = TRUE},
        {.title = "DEMAND", .right = TRUE, .optional = TRUE},
        {.title = "ALLOCATED", .right = TRUE, .optional = TRUE},
        {.title = "LENDS", .right = TRUE, .optional = TRUE},
        {.title = "RECORD", .right = TRUE, .optional = TRUE},
        {.title = "STORE", .right = TRUE},
        {.title = "REQUESTS", .right = TRUE},
        {.title = "READ", .right = TRUE},
        {.title = "WRITTEN", .right = TRUE},
        {.title = "ERRORS", .right = TRUE},
        {.title = "IDLE", .right = TRUE},
    };
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    g_autoptr(GPtrArray) jobs = qos_ctl_state_jobs(state);
    for (guint i = 0; i < jobs->len && (!limit || i < limit); i++)
        add_job(table, state, jobs->pdata[i]);
    return qos_ctl_table_print(table, style);
}
