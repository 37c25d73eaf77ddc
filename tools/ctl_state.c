/*
 * Reads .qosfs/state.json: the shape is checked here, and only here.
 */
#include "tools/ctl_state.h"

#include <errno.h>

#include "base/error.h"
#include "tools/ctl_text.h"

static gboolean wrong_shape(GError **error, const char *member)
{
    qos_set_error(error, EPROTO,
                  "the mount's state.json is not what this qosfsctl knows (\"%s\"): is it of the "
                  "same version as the mount?",
                  member);
    return FALSE;
}

static gboolean check_object(JsonObject *parent, const char *member, GError **error)
{
    JsonNode *node = json_object_get_member(parent, member);
    return (node && JSON_NODE_HOLDS_OBJECT(node)) || wrong_shape(error, member);
}

static gboolean check_list(JsonObject *parent, const char *member, GError **error)
{
    JsonNode *node = json_object_get_member(parent, member);
    if (!node || !JSON_NODE_HOLDS_ARRAY(node))
        return wrong_shape(error, member);
    JsonArray *list = json_node_get_array(node);
    for (guint i = 0; i < json_array_get_length(list); i++)
        if (!JSON_NODE_HOLDS_OBJECT(json_array_get_element(list, i)))
            return wrong_shape(error, member);
    return TRUE;
}

static gboolean check_jobs(JsonObject *state, GError **error)
{
    if (!check_list(state, "jobs", error))
        return FALSE;
    JsonArray *jobs = json_object_get_array_member(state, "jobs");
    for (guint i = 0; i < json_array_get_length(jobs); i++)
        if (!check_list(json_array_get_object_element(jobs, i), "wait", error))
            return FALSE;
    return TRUE;
}

/* What the mount has of rules for all mounts together, if anything. */
static gboolean check_cluster(JsonObject *state, GError **error)
{
    if (!json_object_has_member(state, "cluster"))
        return TRUE;
    if (!check_object(state, "cluster", error))
        return FALSE;
    JsonObject *cluster = json_object_get_object_member(state, "cluster");
    return check_list(cluster, "rules", error) && check_list(cluster, "classes", error);
}

JsonObject *qos_ctl_state_parse(const char *text, gsize length, GError **error)
{
    g_autoptr(JsonParser) parser = json_parser_new_immutable();
    g_autoptr(GError) reason = NULL;
    if (!json_parser_load_from_data(parser, text, (gssize)length, &reason)) {
        qos_set_error(error, EPROTO, "the mount's state.json is no JSON: %s", reason->message);
        return NULL;
    }
    JsonNode *root = json_parser_get_root(parser);
    if (!root || !JSON_NODE_HOLDS_OBJECT(root)) {
        wrong_shape(error, "{}");
        return NULL;
    }
    JsonObject *state = json_node_get_object(root);
    if (!check_list(state, "policies", error) || !check_object(state, "slots", error) ||
        !check_object(state, "tunables", error) || !check_list(state, "rules", error) ||
        !check_jobs(state, error) || !check_cluster(state, error) ||
        (json_object_has_member(state, "server") && !check_object(state, "server", error)))
        return NULL;
    return json_object_ref(state);
}

/* Whether that member is an array of objects. */
static gboolean is_list(JsonObject *parent, const char *member)
{
    return check_list(parent, member, NULL);
}

static gboolean has_answer_shape(JsonNode *root, const char *list)
{
    if (!root || !JSON_NODE_HOLDS_OBJECT(root) || !is_list(json_node_get_object(root), list))
        return FALSE;
    JsonArray *items = json_object_get_array_member(json_node_get_object(root), list);
    for (guint i = 0; i < json_array_get_length(items); i++) {
        JsonObject *item = json_array_get_object_element(items, i);
        if (json_object_has_member(item, "members") && !is_list(item, "members"))
            return FALSE;
    }
    return TRUE;
}

JsonObject *qos_ctl_answer_parse(const char *text, const char *list, GError **error)
{
    g_autoptr(JsonNode) root = json_from_string(text, NULL);

    if (has_answer_shape(root, list))
        return json_object_ref(json_node_get_object(root));
    qos_set_error(error, EPROTO,
                  "the server's answer is not what this qosfsctl knows (\"%s\"): is it of the same "
                  "version as the server?",
                  list);
    return NULL;
}

static JsonNode *value_of(JsonObject *object, const char *member)
{
    JsonNode *node = json_object_get_member(object, member);
    return node && JSON_NODE_HOLDS_VALUE(node) ? node : NULL;
}

double qos_ctl_state_number(JsonObject *object, const char *member)
{
    JsonNode *node = value_of(object, member);
    return node ? json_node_get_double(node) : 0;
}

gint64 qos_ctl_state_count(JsonObject *object, const char *member)
{
    JsonNode *node = value_of(object, member);
    return node ? json_node_get_int(node) : 0;
}

gboolean qos_ctl_state_flag(JsonObject *object, const char *member)
{
    JsonNode *node = value_of(object, member);
    return node && json_node_get_boolean(node);
}

const char *qos_ctl_state_text(JsonObject *object, const char *member)
{
    JsonNode *node = value_of(object, member);
    const char *text = node ? json_node_get_string(node) : NULL;
    return text ? text : "";
}

JsonNode *qos_ctl_state_rules(JsonObject *state)
{
    JsonArray *all = json_array_new();
    JsonNode *node = json_node_init_array(json_node_alloc(), all);
    JsonObject *parts[] = {state, NULL};
    if (json_object_has_member(state, "cluster"))
        parts[1] = json_object_get_object_member(state, "cluster");
    for (guint i = 0; i < G_N_ELEMENTS(parts) && parts[i]; i++) {
        JsonArray *rules = json_object_get_array_member(parts[i], "rules");
        for (guint j = 0; j < json_array_get_length(rules); j++)
            json_array_add_element(all, json_array_dup_element(rules, j));
    }
    json_array_unref(all);
    return node;
}

JsonObject *qos_ctl_state_named(JsonObject *state, const char *list, const char *name)
{
    JsonArray *elements = json_object_get_array_member(state, list);
    for (guint i = 0; i < json_array_get_length(elements); i++) {
        JsonObject *element = json_array_get_object_element(elements, i);
        if (g_str_equal(qos_ctl_state_text(element, "name"), name))
            return element;
    }
    return NULL;
}

JsonObject *qos_ctl_state_job(JsonObject *state, const char *id)
{
    JsonArray *jobs = json_object_get_array_member(state, "jobs");
    JsonObject *meant = NULL;
    g_autofree char *plain = qos_ctl_unescape(id);
    for (guint i = 0; i < json_array_get_length(jobs); i++) {
        JsonObject *job = json_array_get_object_element(jobs, i);
        const char *job_id = qos_ctl_state_text(job, "id");
        if (g_str_equal(job_id, id))
            return job;
        if (g_str_equal(job_id, plain))
            meant = job;
    }
    return meant;
}

JsonObject *qos_ctl_state_latest_wait(JsonObject *job)
{
    JsonArray *waits = json_object_get_array_member(job, "wait");
    JsonObject *latest = NULL;
    for (guint i = 0; i < json_array_get_length(waits); i++) {
        JsonObject *wait = json_array_get_object_element(waits, i);
        if (!latest || qos_ctl_state_number(wait, "last") > qos_ctl_state_number(latest, "last"))
            latest = wait;
    }
    return latest;
}

/* The larger value first. */
static int descending(JsonObject *a, JsonObject *b, const char *member)
{
    double first = qos_ctl_state_number(a, member), second = qos_ctl_state_number(b, member);
    return (first < second) - (first > second);
}

static int compare_jobs(gconstpointer a, gconstpointer b)
{
    JsonObject *first = *(JsonObject *const *)a, *second = *(JsonObject *const *)b;
    int order = descending(first, second, "operation_rate");
    if (!order)
        order = descending(first, second, "byte_rate");
    return order ? order : descending(first, second, "seen");
}

GPtrArray *qos_ctl_state_jobs(JsonObject *state)
{
    JsonArray *jobs = json_object_get_array_member(state, "jobs");
    GPtrArray *sorted = g_ptr_array_new();
    for (guint i = 0; i < json_array_get_length(jobs); i++)
        g_ptr_array_add(sorted, json_array_get_object_element(jobs, i));
    g_ptr_array_sort(sorted, compare_jobs);
    return sorted;
}

GPtrArray *qos_ctl_state_names(JsonObject *state, const char *list, const char *member)
{
    JsonArray *elements = json_object_get_array_member(state, list);
    GPtrArray *names = g_ptr_array_new();
    for (guint i = 0; i < json_array_get_length(elements); i++)
        g_ptr_array_add(names, (gpointer)qos_ctl_state_text(
                                   json_array_get_object_element(elements, i), member));
    return names;
}
