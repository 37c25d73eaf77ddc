/*
 * Turns a lock server's answers about its cluster into text and tables.
 *
 * Rates are of bytes or of operations, so each number has its unit. A table of rules or a log entry
 * must not lose a part of a command: such text is never cut.
 */
#include "tools/ctl_cluster_render.h"

#include <string.h>

#include "fs/rule.h"

#define CLOSE     0.9  /* of a limit, to be near it */
#define NAMED_MAX 20   /* mounts that `status` names */
#define RATE_MAX  1e15 /* of operations, so that a number keeps to its column */

static char *escaped(JsonObject *object, const char *member)
{
    return qos_ctl_escape(qos_ctl_state_text(object, member));
}

static char *count_of(JsonObject *object, const char *member)
{
    return g_strdup_printf("%" G_GINT64_FORMAT, qos_ctl_state_count(object, member));
}

static gboolean is_null(JsonObject *object, const char *member)
{
    JsonNode *node = json_object_get_member(object, member);
    return !node || !JSON_NODE_HOLDS_VALUE(node);
}

/* An object's member that is no object. */
static gboolean is_nothing(JsonObject *object, const char *member)
{
    return !JSON_NODE_HOLDS_OBJECT(json_object_get_member(object, member));
}

static const char *plural(gint64 count)
{
    return count == 1 ? "" : "s";
}

static gboolean is_of_bytes(JsonObject *class)
{
    return g_str_equal(qos_ctl_state_text(class, "unit"), "bytes");
}

/* "200.0 MiB/s" or "1500 op/s". */
static char *format_rate(double rate, gboolean is_of_bytes)
{
    if (is_of_bytes)
        return qos_ctl_format_byte_rate(rate);
    g_autofree char *operations = qos_ctl_format_rate(CLAMP(rate, 0, RATE_MAX));
    return g_strconcat(operations, " op/s", NULL);
}

static char *rate_of(JsonObject *object, const char *member, gboolean is_of_bytes)
{
    return format_rate(qos_ctl_state_number(object, member), is_of_bytes);
}

/* A class of per=rule has no name: it is all that the rule matches. */
static char *class_name(JsonObject *class)
{
    char *name = escaped(class, "class");
    if (*name)
        return name;
    g_free(name);
    return g_strdup("(all)");
}

/* The line below a list from which the server left some out. */
static void append_more(GString *text, JsonObject *answer)
{
    gint64 more = qos_ctl_state_count(answer, "more");
    if (more > 0)
        g_string_append_printf(text,
                               "%" G_GINT64_FORMAT " more do not fit; ask at the server's machine, "
                               "which shows all\n",
                               more);
}

static char *finish(char *table, JsonObject *answer)
{
    GString *text = g_string_new(table);
    g_free(table);
    append_more(text, answer);
    return g_string_free(text, FALSE);
}

/* --- status --- */

/* In a few words what is wrong with a mount, or NULL. */
static const char *trouble_of(JsonObject *status, JsonObject *mount)
{
    gint64 version = qos_ctl_state_count(status, "version");

    if (!qos_ctl_state_flag(mount, "is_connected"))
        return "away";
    return qos_ctl_state_count(mount, "version") < version ? "behind" : NULL;
}

static char *render_troubles(JsonObject *status, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "MOUNT", .flexible = TRUE},
        {.title = "STATE"},
        {.title = "VERSION", .right = TRUE},
        {.title = "NOT HEARD FOR", .right = TRUE},
        {.title = "ID"},
    };
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    JsonArray *mounts = json_object_get_array_member(status, "mounts");
    guint count = 0;

    for (guint i = 0; i < json_array_get_length(mounts); i++) {
        JsonObject *mount = json_array_get_object_element(mounts, i);
        const char *trouble = trouble_of(status, mount);
        if (!trouble || ++count > NAMED_MAX)
            continue;
        qos_ctl_table_add(table, escaped(mount, "name"));
        qos_ctl_table_add(table, g_strdup(trouble));
        qos_ctl_table_add(table,
                          is_null(mount, "version") ? g_strdup("-") : count_of(mount, "version"));
        qos_ctl_table_add(table,
                          is_null(mount, "silent_s")
                              ? g_strdup("-")
                              : qos_ctl_format_seconds(qos_ctl_state_number(mount, "silent_s")));
        qos_ctl_table_add(table, escaped(mount, "id"));
    }
    if (count == 0)
        return g_strdup("");
    g_autofree char *rows = qos_ctl_table_print(table, style);
    GString *text = g_string_new("\n");
    g_string_append(text, rows);
    if (count > NAMED_MAX)
        g_string_append_printf(text, "%u more; --json has all\n", count - NAMED_MAX);
    return g_string_free(text, FALSE);
}

/* An idle mount says nothing, so a mount is silent where a job's rate depends on it. */
static void append_silent(GString *text, JsonObject *jobs)
{
    g_autoptr(GPtrArray) classes = qos_ctl_cluster_classes(jobs);
    guint count = 0;

    for (guint i = 0; i < classes->len; i++) {
        gint64 silent = qos_ctl_state_count(classes->pdata[i], "silent");
        if (silent <= 0 || ++count > NAMED_MAX)
            continue;
        g_autofree char *class = class_name(classes->pdata[i]);
        g_autofree char *rule = escaped(classes->pdata[i], "rule");
        g_string_append_printf(text,
                               "silent    %" G_GINT64_FORMAT
                               " mount%s of job %s, rule %s ('qosfsctl cluster why')\n",
                               silent, plural(silent), class, rule);
    }
    if (count > NAMED_MAX)
        g_string_append_printf(text, "silent    mounts of %u more jobs\n", count - NAMED_MAX);
}

char *qos_ctl_render_cluster_status(JsonObject *status, JsonObject *jobs, const QosCtlStyle *style)
{
    g_autofree char *epoch =
        qos_ctl_format_seconds(qos_ctl_state_number(status, "epoch_ms") / 1000);
    g_autofree char *lease =
        qos_ctl_format_seconds(qos_ctl_state_number(status, "lease_ms") / 1000);
    gint64 parts = qos_ctl_state_count(status, "floor_parts");
    gint64 behind = qos_ctl_state_count(status, "mounts_behind");
    g_autofree char *troubles = render_troubles(status, style);
    GString *text = g_string_new(NULL);

    g_string_append_printf(text,
                           "rules     %" G_GINT64_FORMAT ", version %" G_GINT64_FORMAT
                           " ('qosfsctl cluster rule list')\n",
                           qos_ctl_state_count(status, "rules"),
                           qos_ctl_state_count(status, "version"));
    if (json_object_has_member(status, "sharing") && !is_nothing(status, "sharing"))
        g_string_append_printf(
            text, "sharing   jobs divide %" G_GINT64_FORMAT " op/s by weight (adapt=fair)\n",
            qos_ctl_state_count(json_object_get_object_member(status, "sharing"), "capacity"));
    g_string_append_printf(text, "epoch     %s; a mount's rate holds for %s without an answer\n",
                           epoch, lease);
    if (parts > 0)
        g_string_append_printf(
            text, "floor     each mount has 1/%" G_GINT64_FORMAT " of a rule's floor\n", parts);
    g_string_append_printf(text,
                           "mounts    %" G_GINT64_FORMAT " known, %" G_GINT64_FORMAT " connected",
                           qos_ctl_state_count(status, "mounts_known"),
                           qos_ctl_state_count(status, "mounts_connected"));
    if (behind > 0)
        g_string_append_printf(text, ", %" G_GINT64_FORMAT " without these rules", behind);
    g_string_append_c(text, '\n');
    if (jobs)
        append_silent(text, jobs);
    g_string_append(text, troubles);
    append_more(text, status);
    return g_string_free(text, FALSE);
}

/* --- rules --- */

/* One rule by its command; `conditions` is NULL where this qosfsctl does not understand it. */
typedef struct {
    char *conditions, *options;
} Parts;

static void clear_parts(Parts *parts)
{
    g_free(parts->conditions);
    g_free(parts->options);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Parts, clear_parts)

static Parts split_command(JsonObject *rule)
{
    const char *command = qos_ctl_state_text(rule, "command");
    const char *name = qos_ctl_state_text(rule, "name");
    g_autoptr(QosRules) empty = qos_rules_new_cluster();
    g_autoptr(QosRules) list = qos_rules_apply(empty, command, 0, NULL);
    const QosRule *parsed = list ? qos_rules_by_name(list, name) : NULL;

    if (!parsed || !parsed->condition)
        return (Parts){.options = qos_ctl_escape(command)};
    g_autofree char *conditions = qos_rule_conditions(parsed);
    g_autofree char *options = qos_rule_options(parsed);
    return (Parts){qos_ctl_escape(conditions), qos_ctl_escape(options)};
}

static char *expiry_of(JsonObject *object)
{
    return is_null(object, "expires_s")
               ? g_strdup("")
               : qos_ctl_format_seconds(qos_ctl_state_number(object, "expires_s"));
}

static char *rule_table(JsonArray *rules, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "RULE"},
        {.title = "CONDITIONS"},
        {.title = "OPTIONS"},
        {.title = "EXPIRES IN", .right = TRUE, .optional = TRUE},
        {.title = "VERSION", .right = TRUE},
    };
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));

    for (guint i = 0; i < json_array_get_length(rules); i++) {
        JsonObject *rule = json_array_get_object_element(rules, i);
        g_auto(Parts) parts = split_command(rule);
        qos_ctl_table_add(table, escaped(rule, "name"));
        qos_ctl_table_add(table, g_strdup(parts.conditions ? parts.conditions : "?"));
        qos_ctl_table_add(table, g_strdup(parts.options));
        qos_ctl_table_add(table, expiry_of(rule));
        qos_ctl_table_add(table, count_of(rule, "id"));
    }
    return qos_ctl_table_print(table, &(QosCtlStyle){.bold = style->bold});
}

static char *rule_paragraphs(JsonArray *rules)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < json_array_get_length(rules); i++) {
        JsonObject *rule = json_array_get_object_element(rules, i);
        g_auto(Parts) parts = split_command(rule);
        g_autofree char *name = escaped(rule, "name");
        g_autofree char *expiry = expiry_of(rule);
        g_string_append_printf(text, "%s%s, since version %" G_GINT64_FORMAT, i ? "\n" : "", name,
                               qos_ctl_state_count(rule, "id"));
        if (*expiry)
            g_string_append_printf(text, ", expires in %s", expiry);
        if (parts.conditions)
            g_string_append_printf(text, "\n  %s", parts.conditions);
        g_string_append_printf(text, "\n  %s\n", parts.options);
    }
    return g_string_free(text, FALSE);
}

/* Whether each line has at most so many characters. Bold costs some, which errs on the safe side.
 */
static gboolean fits(const char *text, guint width)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);

    for (char **line = lines; width && *line; line++)
        if (g_utf8_strlen(*line, -1) > (glong)width)
            return FALSE;
    return TRUE;
}

char *qos_ctl_render_cluster_rules(JsonObject *answer, const QosCtlStyle *style)
{
    JsonArray *rules = json_object_get_array_member(answer, "rules");
    g_autofree char *table = rule_table(rules, style);

    return finish(fits(table, style->width) ? g_steal_pointer(&table) : rule_paragraphs(rules),
                  answer);
}

char *qos_ctl_render_cluster_rule_commands(JsonObject *answer)
{
    JsonArray *rules = json_object_get_array_member(answer, "rules");
    GString *text = g_string_new(NULL);

    /* The newest is tried first, so that the last one is to be started first. */
    for (guint i = json_array_get_length(rules); i-- > 0;) {
        JsonObject *rule = json_array_get_object_element(rules, i);
        g_auto(Parts) parts = split_command(rule);
        g_autofree char *name = escaped(rule, "name");
        g_autofree char *conditions = g_shell_quote(parts.conditions ? parts.conditions : "");
        double rest = qos_ctl_state_number(rule, "expires_s");
        if (!parts.conditions)
            g_string_append_printf(text, "# not understood: %s", parts.options);
        else
            g_string_append_printf(text, "qosfsctl cluster rule start %s %s %s", name, conditions,
                                   parts.options);
        if (parts.conditions && rest > 0)
            g_string_append_printf(text, " expire=%.0f", CLAMP(rest, 1, 1e9));
        g_string_append_c(text, '\n');
    }
    return g_string_free(text, FALSE);
}

char *qos_ctl_render_cluster_log(JsonObject *answer)
{
    static const QosCtlColumn columns[] = {{.title = "TIME"},
                                           {.title = "VERSION", .right = TRUE},
                                           {.title = "BY"},
                                           {.title = "COMMAND"}};
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    JsonArray *log = json_object_get_array_member(answer, "log");

    for (guint i = 0; i < json_array_get_length(log); i++) {
        JsonObject *entry = json_array_get_object_element(log, i);
        g_autofree char *command = escaped(entry, "command");
        g_autofree char *result = escaped(entry, "result");
        gboolean is_refused = is_null(entry, "version");
        qos_ctl_table_add(table, escaped(entry, "time"));
        qos_ctl_table_add(table, is_refused ? g_strdup("-") : count_of(entry, "version"));
        qos_ctl_table_add(table, escaped(entry, "who"));
        qos_ctl_table_add(table, is_refused ? g_strdup_printf("%s (refused: %s)", command, result)
                                            : g_steal_pointer(&command));
    }
    return finish(qos_ctl_table_print(table, &(QosCtlStyle){0}), answer);
}

/* --- classes --- */

static int compare_classes(gconstpointer a, gconstpointer b)
{
    JsonObject *first = *(JsonObject *const *)a, *second = *(JsonObject *const *)b;
    double left = qos_ctl_state_number(first, "served");
    double right = qos_ctl_state_number(second, "served");

    if (is_of_bytes(first) != is_of_bytes(second))
        return is_of_bytes(first) ? -1 : 1;
    if (left < right || left > right)
        return left < right ? 1 : -1;
    return strcmp(qos_ctl_state_text(first, "class"), qos_ctl_state_text(second, "class"));
}

GPtrArray *qos_ctl_cluster_classes(JsonObject *jobs)
{
    JsonArray *classes = json_object_get_array_member(jobs, "classes");
    GPtrArray *sorted = g_ptr_array_new();

    for (guint i = 0; i < json_array_get_length(classes); i++)
        g_ptr_array_add(sorted, json_array_get_object_element(classes, i));
    g_ptr_array_sort(sorted, compare_classes);
    return sorted;
}

static void add_class(QosCtlTable *table, JsonObject *class)
{
    gboolean bytes = is_of_bytes(class);
    gint64 silent = qos_ctl_state_count(class, "silent");

    qos_ctl_table_add(table, class_name(class));
    qos_ctl_table_add(table, escaped(class, "rule"));
    qos_ctl_table_add(table, rate_of(class, "served", bytes));
    qos_ctl_table_add(table, rate_of(class, "demand", bytes));
    qos_ctl_table_add(table, rate_of(class, "limit", bytes));
    qos_ctl_table_add(table,
                      is_null(class, "level") ? g_strdup("-") : rate_of(class, "level", bytes));
    qos_ctl_table_add(table, count_of(class, "mounts"));
    qos_ctl_table_add(table, silent > 0 ? count_of(class, "silent") : g_strdup(""));
    qos_ctl_table_add(table, rate_of(class, "in_force", bytes));
    qos_ctl_table_add(table, escaped(class, "share"));
}

/* A mount below its class: what it may use stands where the class has its level. */
static void add_member(QosCtlTable *table, JsonObject *member, gboolean bytes)
{
    g_autofree char *name = escaped(member, "mount");

    qos_ctl_table_add(table, g_strconcat("  ", name, NULL));
    qos_ctl_table_add(table, g_strdup(""));
    qos_ctl_table_add(table,
                      is_null(member, "served") ? g_strdup("") : rate_of(member, "served", bytes));
    qos_ctl_table_add(table, rate_of(member, "demand", bytes));
    qos_ctl_table_add(table, g_strdup(""));
    qos_ctl_table_add(table, rate_of(member, "bound", bytes));
    qos_ctl_table_add(table, g_strdup(""));
    qos_ctl_table_add(table, g_strdup(qos_ctl_state_flag(member, "is_silent") ? "silent" : ""));
    qos_ctl_table_add(table, g_strdup(""));
    qos_ctl_table_add(table, g_strdup(""));
}

static const QosCtlColumn class_columns[] = {
    {.title = "JOB", .flexible = TRUE},   {.title = "RULE"},
    {.title = "SERVED", .right = TRUE},   {.title = "WANTED", .right = TRUE},
    {.title = "LIMIT", .right = TRUE},    {.title = "LEVEL", .right = TRUE},
    {.title = "MOUNTS", .right = TRUE},   {.title = "SILENT", .right = TRUE, .optional = TRUE},
    {.title = "IN FORCE", .right = TRUE}, {.title = "SHARE"},
};

char *qos_ctl_render_cluster_jobs(JsonObject *jobs, guint limit, const QosCtlStyle *style)
{
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(class_columns, G_N_ELEMENTS(class_columns));
    g_autoptr(GPtrArray) classes = qos_ctl_cluster_classes(jobs);

    for (guint i = 0; i < classes->len && (!limit || i < limit); i++) {
        JsonObject *class = classes->pdata[i];
        add_class(table, class);
        if (!json_object_has_member(class, "members"))
            continue;
        JsonArray *members = json_object_get_array_member(class, "members");
        for (guint j = 0; j < json_array_get_length(members); j++)
            add_member(table, json_array_get_object_element(members, j), is_of_bytes(class));
    }
    return finish(qos_ctl_table_print(table, style), jobs);
}

/* --- why --- */

/* There is not enough for all that the mounts ask for. */
static gboolean is_held(JsonObject *class)
{
    return !is_null(class, "level") &&
           qos_ctl_state_number(class, "demand") > qos_ctl_state_number(class, "served");
}

/* A program that waits for each answer before it asks again never wants more than it gets, so that
 * there seems to be enough: then the limit is near. */
static gboolean is_close(JsonObject *class)
{
    return qos_ctl_state_number(class, "demand") >= CLOSE * qos_ctl_state_number(class, "limit");
}

/* "rule big", or of a job that divides what the store can do, what that gives it. */
static char *rule_words(JsonObject *class)
{
    g_autofree char *rule = escaped(class, "rule");

    if (!json_object_has_member(class, "entitlement"))
        return g_strconcat("rule ", rule, NULL);
    g_autofree char *entitlement = rate_of(class, "entitlement", is_of_bytes(class));
    return g_strdup_printf("its share of the store (adapt=fair: weight %" G_GINT64_FORMAT
                           ", entitled to %s)",
                           qos_ctl_state_count(class, "weight"), entitlement);
}

static void append_verdict(GString *text, JsonObject *class)
{
    gboolean bytes = is_of_bytes(class), held = is_held(class);
    const char *verdict = held ? "Held to" : is_close(class) ? "Close to the" : "Within the";
    g_autofree char *rule = rule_words(class);
    g_autofree char *limit = rate_of(class, "limit", bytes);
    g_autofree char *demand = rate_of(class, "demand", bytes);
    g_autofree char *served = rate_of(class, "served", bytes);
    gint64 mounts = qos_ctl_state_count(class, "mounts");
    gint64 silent = qos_ctl_state_count(class, "silent");

    g_string_append_printf(
        text,
        "%s %s %s %s over %" G_GINT64_FORMAT " mount%s: this job wants %s and is served %s.\n",
        verdict, limit, held ? "by" : "of", rule, mounts, plural(mounts), demand, served);
    if (silent > 0)
        g_string_append_printf(text,
                               "  %" G_GINT64_FORMAT " of these mounts %s silent: what it may use "
                               "is not lent to the others before its lease ends.\n",
                               silent, silent == 1 ? "is" : "are");
}

static void append_members(GString *text, JsonObject *class, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "MOUNT", .flexible = TRUE}, {.title = "WANTS", .right = TRUE},
        {.title = "MAY USE", .right = TRUE},  {.title = "HOLDS", .right = TRUE},
        {.title = "", .optional = TRUE},
    };
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    gboolean bytes = is_of_bytes(class);
    g_autofree char *rule = escaped(class, "rule");

    if (!json_object_has_member(class, "members"))
        return;
    JsonArray *members = json_object_get_array_member(class, "members");
    for (guint i = 0; i < json_array_get_length(members); i++) {
        JsonObject *member = json_array_get_object_element(members, i);
        qos_ctl_table_add(table, escaped(member, "mount"));
        qos_ctl_table_add(table, rate_of(member, "demand", bytes));
        qos_ctl_table_add(table, rate_of(member, "bound", bytes));
        qos_ctl_table_add(table, rate_of(member, "held", bytes));
        qos_ctl_table_add(table, g_strdup(qos_ctl_state_flag(member, "is_silent") ? "silent" : ""));
    }
    g_autofree char *rows = qos_ctl_table_print(table, style);
    g_string_append_printf(text, "\nRule %s, %s:\n%s", rule, bytes ? "bytes" : "operations", rows);
    append_more(text, class);
}

/* Those that hold the job come first. */
char *qos_ctl_render_cluster_why(JsonObject *why, const QosCtlStyle *style)
{
    g_autofree char *job = escaped(why, "job");
    g_autoptr(GPtrArray) classes = qos_ctl_cluster_classes(why);
    gint64 nodes = qos_ctl_state_count(why, "nodes"), weight = qos_ctl_state_count(why, "weight");
    GString *text = g_string_new(NULL);

    for (guint pass = 0; pass < 2; pass++)
        for (guint i = 0; i < classes->len; i++)
            if (is_held(classes->pdata[i]) == (pass == 0))
                append_verdict(text, classes->pdata[i]);
    if (classes->len == 0)
        g_string_append_printf(
            text,
            "No rule of the cluster has a class for job %s now: it is idle, no rule is for it "
            "('qosfsctl cluster rule list'), or its rule is for users, groups or all jobs together "
            "('qosfsctl why JOB' on a mount says which holds it).\n",
            job);
    if (nodes > 0)
        g_string_append_printf(text,
                               "It counts as %" G_GINT64_FORMAT
                               " node%s of weight %" G_GINT64_FORMAT
                               " ('qosfsctl cluster job set' changes that).\n",
                               nodes, plural(nodes), weight);
    for (guint i = 0; i < classes->len; i++)
        append_members(text, classes->pdata[i], style);
    append_more(text, why);
    return g_string_free(text, FALSE);
}

/* --- what was said of jobs --- */

char *qos_ctl_render_cluster_job_list(JsonObject *answer, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "JOB", .flexible = TRUE},
        {.title = "NODES", .right = TRUE},
        {.title = "WEIGHT", .right = TRUE},
        {.title = "EXPIRES IN", .right = TRUE},
    };
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    JsonArray *jobs = json_object_get_array_member(answer, "jobs");

    for (guint i = 0; i < json_array_get_length(jobs); i++) {
        JsonObject *job = json_array_get_object_element(jobs, i);
        qos_ctl_table_add(table, escaped(job, "id"));
        qos_ctl_table_add(table, count_of(job, "nodes"));
        qos_ctl_table_add(table, count_of(job, "weight"));
        qos_ctl_table_add(table, expiry_of(job));
    }
    return finish(qos_ctl_table_print(table, style), answer);
}
