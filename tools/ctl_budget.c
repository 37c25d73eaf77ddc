/*
 * What qosfsctl says of the rules for all mounts together, as a mount knows them: a line of status,
 * and of why what this mount may use of such a rule now.
 */
#include "base/units.h"
#include "tools/ctl_render.h"

JsonObject *qos_ctl_cluster(JsonObject *state)
{
    return json_object_has_member(state, "cluster")
               ? json_object_get_object_member(state, "cluster")
               : NULL;
}

gboolean qos_ctl_is_of_cluster(JsonObject *object)
{
    return g_str_equal(qos_ctl_state_text(object, "scope"), "cluster");
}

JsonObject *qos_ctl_waited_rule(JsonObject *state, JsonObject *wait)
{
    JsonObject *list = qos_ctl_is_of_cluster(wait) ? qos_ctl_cluster(state) : state;

    return list ? qos_ctl_state_named(list, "rules", qos_ctl_state_text(wait, "rule")) : NULL;
}

/* For how long there has been no server. */
static char *time_away(JsonObject *state, JsonObject *cluster)
{
    return qos_ctl_format_seconds(
        MAX(0, qos_ctl_state_number(state, "now") - qos_ctl_state_number(cluster, "since")));
}

/* "2 by away=floor, 1 by away=open". */
static char *rules_by_away(JsonObject *cluster)
{
    static const char *const names[] = {"floor", "open", "stop"};
    JsonNode *node = json_object_get_member(cluster, "aways");
    GString *text = g_string_new(NULL);

    for (guint i = 0; node && JSON_NODE_HOLDS_OBJECT(node) && i < G_N_ELEMENTS(names); i++) {
        gint64 count = qos_ctl_state_count(json_node_get_object(node), names[i]);
        if (count > 0)
            g_string_append_printf(text, "%s%" G_GINT64_FORMAT " by away=%s", text->len ? ", " : "",
                                   count, names[i]);
    }
    return g_string_free(text, FALSE);
}

void qos_ctl_append_cluster(GString *text, JsonObject *state)
{
    JsonObject *cluster = qos_ctl_cluster(state);

    if (!cluster)
        return;
    g_string_append_printf(
        text,
        "cluster   rules for all mounts: %" G_GINT64_FORMAT ", version %" G_GINT64_FORMAT "\n",
        qos_ctl_state_count(cluster, "count"), qos_ctl_state_count(cluster, "version"));
    if (qos_ctl_state_flag(cluster, "connected"))
        return;
    g_autofree char *time = time_away(state, cluster);
    g_autofree char *lease = qos_ctl_format_seconds(qos_ctl_state_number(cluster, "lease"));
    g_autofree char *aways = rules_by_away(cluster);
    if (qos_ctl_state_flag(cluster, "is_away"))
        g_string_append_printf(text, "          the lock server is away for %s; in force: %s\n",
                               time, aways);
    else
        g_string_append_printf(text,
                               "          the lock server is away for %s; rates hold for up to %s, "
                               "then: %s\n",
                               time, lease, aways);
}

/* "250 op/s", "1.0 MiB/s". */
static char *rate_of(JsonObject *class, const char *member)
{
    const double rate = qos_ctl_state_number(class, member);

    if (g_str_equal(qos_ctl_state_text(class, "unit"), "bytes"))
        return qos_ctl_format_byte_rate(rate);
    g_autofree char *number = qos_ctl_format_rate(rate);
    return g_strconcat(number, " op/s", NULL);
}

/* Of which class of the rule a line is, where it is not the job's. */
static char *class_words(JsonObject *rule, JsonObject *class)
{
    g_autofree char *name = qos_ctl_escape(qos_ctl_state_text(class, "class"));
    const char *per = qos_ctl_state_text(rule, "per");

    if (g_str_equal(per, "uid") || g_str_equal(per, "gid"))
        return g_strdup_printf(" for %s %s", per, name);
    return g_strdup("");
}

static void append_class(GString *text, JsonObject *rule, JsonObject *class)
{
    g_autofree char *words = class_words(rule, class);
    g_autofree char *limit = rate_of(class, "limit");
    g_autofree char *rate = rate_of(class, "rate");
    g_autofree char *demand = rate_of(class, "demand");
    g_autofree char *floor = rate_of(class, "floor");
    JsonNode *node = json_object_get_member(class, "rate");
    const gboolean is_bound = !node || !JSON_NODE_HOLDS_NULL(node);

    if (is_bound)
        g_string_append_printf(text, "  Of %s this mount may use %s now%s", limit, rate, words);
    else
        g_string_append_printf(text, "  Of %s this mount may use any part now%s", limit, words);
    if (qos_ctl_state_flag(class, "is_away"))
        g_string_append_printf(text, ": the lock server is away, and the rule says away=%s.\n",
                               qos_ctl_state_text(rule, "away"));
    else
        g_string_append_printf(text, "; it asked for %s, and has %s in any case.\n", demand, floor);
}

void qos_ctl_append_budget(GString *text, JsonObject *state, JsonObject *rule)
{
    JsonObject *cluster = qos_ctl_cluster(state);
    JsonArray *classes = json_object_get_array_member(cluster, "classes");
    const char *name = qos_ctl_state_text(rule, "name");
    gboolean is_used = FALSE;

    for (guint i = 0; i < json_array_get_length(classes); i++) {
        JsonObject *class = json_array_get_object_element(classes, i);
        if (!g_str_equal(qos_ctl_state_text(class, "rule"), name))
            continue;
        append_class(text, rule, class);
        is_used = TRUE;
    }
    if (!is_used)
        g_string_append(text, "  Nothing here has used it lately.\n");
    if (qos_ctl_state_flag(cluster, "connected"))
        return;
    g_autofree char *time = time_away(state, cluster);
    g_string_append_printf(text, "  This mount has been without the lock server for %s.\n", time);
}
