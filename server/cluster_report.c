/*
 * What the server says of the cluster, as JSON: one object each.
 *
 *     status  version, rules, epoch_ms, lease_ms, floor_parts, mounts_known, mounts_connected,
 *             mounts_behind, mounts: [{name, id, is_connected, version, floor_parts (both null:
 *             nothing acknowledged), silent_s}], more; sharing: {capacity} or null: op/s that jobs
 *             divide (adapt=fair)
 *     rules   version, rules: [{id, name, command, expires_s (or null)}], more
 *     log     log: [{time, who, command, version, error, result}], the newest first, more;
 *             version: null where the command was refused
 *     jobs    classes: [{rule, class, unit, limit, demand, served, in_force, level (or null),
 *             share, mounts, silent}], those that want most first, more. A job that divides what
 *             the store can do has entitlement and weight, too; its limit is what it was given.
 *     why     job, nodes, weight, classes: as in jobs, each with members: [{mount, demand, held,
 *             bound, is_silent}], more
 *     job list
 *             jobs: [{id, nodes, weight, expires_s}], more
 *
 * Rates are in units a second. An answer to a mount has a bound: `more` says how many items were
 * left out of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/report_json.h"
#include "server/cluster_private.h"

#define FRAME 512 /* bytes of an answer without its lists */

static const char *const unit_names[QOS_WIRE_UNITS] = {"operations", "bytes"};

/* --- answers with a bound --- */

static char *text_of(JsonNode *node)
{
    g_autoptr(JsonGenerator) generator = json_generator_new();

    json_generator_set_root(generator, node);
    return json_generator_to_data(generator, NULL);
}

/* Ends the object; the builder is empty then. */
static JsonNode *end_object(JsonBuilder *json)
{
    JsonNode *node;

    json_builder_end_object(json);
    node = json_builder_get_root(json);
    json_builder_reset(json);
    return node;
}

/* A list that takes items while there is room. */
typedef struct {
    JsonBuilder *json;
    JsonBuilder *item; /* where the next one is built */
    gsize room;
    guint more; /* were left out */
} List;

static List list_begin(JsonBuilder *json, const char *name, gsize room)
{
    qos_json_begin_array(json, name);
    return (List){.json = json,
                  .item = json_builder_new(),
                  .room = room == G_MAXSIZE ? room : room - MIN(room, FRAME)};
}

static JsonBuilder *list_item(List *list)
{
    json_builder_begin_object(list->item);
    return list->item;
}

static void list_add(List *list)
{
    JsonNode *node = end_object(list->item);

    if (list->room != G_MAXSIZE) {
        g_autofree char *text = text_of(node);
        gsize length = strlen(text) + 1;
        if (list->more > 0 || length > list->room) {
            list->more++;
            json_node_unref(node);
            return;
        }
        list->room -= length;
    }
    json_builder_add_value(list->json, node); /* takes it */
}

static void list_end(List *list)
{
    json_builder_end_array(list->json);
    qos_json_add_count(list->json, "more", list->more);
    g_object_unref(list->item);
}

/* Frees the builder. */
static char *answer(JsonBuilder *json)
{
    g_autoptr(JsonNode) node = end_object(json);
    g_autofree char *text = text_of(node);

    g_object_unref(json);
    return g_strconcat(text, "\n", NULL);
}

static JsonBuilder *begin_answer(void)
{
    JsonBuilder *json = json_builder_new();

    json_builder_begin_object(json);
    return json;
}

/* --- members --- */

static double seconds(QosTime time)
{
    return (double)time / (double)QOS_SECOND;
}

static double units(guint64 rate)
{
    return (double)rate / QOS_BUDGET_UNIT;
}

static void add_null(JsonBuilder *json, const char *name)
{
    json_builder_set_member_name(json, name);
    json_builder_add_null_value(json);
}

static void add_left(JsonBuilder *json, const char *name, QosTime expires, QosTime wall)
{
    if (expires == QOS_NEVER)
        add_null(json, name);
    else
        qos_json_add_number(json, name, seconds(MAX(expires - wall, 0)));
}

static void add_id(JsonBuilder *json, QosOwnerId id)
{
    char text[17];

    g_snprintf(text, sizeof(text), "%" G_GINT64_MODIFIER "x", id);
    qos_json_add_text(json, "id", text); /* more bits than JSON's numbers have */
}

/* --- status --- */

static void add_mount(JsonBuilder *json, const QosClusterMount *mount, QosTime now)
{
    qos_json_add_text(json, "name", mount->name);
    add_id(json, mount->id);
    qos_json_add_boolean(json, "is_connected", mount->is_connected);
    if (mount->has_seen) {
        qos_json_add_count(json, "version", mount->seen_version);
        qos_json_add_count(json, "floor_parts", mount->seen_parts);
    } else {
        add_null(json, "version");
        add_null(json, "floor_parts");
    }
    qos_json_add_number(json, "silent_s", seconds(now - MAX(mount->heard, mount->since)));
}

static void add_sharing(JsonBuilder *json, const QosCluster *cluster)
{
    const guint capacity = qos_cluster_rules_sharing(cluster->rules);

    if (capacity == 0) {
        add_null(json, "sharing");
        return;
    }
    qos_json_begin_object(json, "sharing");
    qos_json_add_count(json, "capacity", capacity);
    json_builder_end_object(json);
}

char *qos_cluster_report_status(const QosCluster *cluster, gsize room)
{
    g_autoptr(GPtrArray) mounts = qos_cluster_mounts_list(cluster->mounts);
    JsonBuilder *json = begin_answer();
    QosTime now = qos_cluster_now();
    QosClusterState state;
    List list;

    qos_cluster_state(cluster, &state);
    qos_json_add_count(json, "version", state.version);
    qos_json_add_count(json, "rules", state.rules);
    qos_json_add_count(json, "epoch_ms", (guint64)(state.epoch / QOS_MILLISECOND));
    qos_json_add_count(json, "lease_ms", (guint64)(state.lease / QOS_MILLISECOND));
    qos_json_add_count(json, "floor_parts", state.parts);
    qos_json_add_count(json, "mounts_known", state.known);
    qos_json_add_count(json, "mounts_connected", state.connected);
    qos_json_add_count(json, "mounts_behind", state.behind);
    add_sharing(json, cluster);
    list = list_begin(json, "mounts", room);
    for (guint i = 0; i < mounts->len; i++) {
        add_mount(list_item(&list), mounts->pdata[i], now);
        list_add(&list);
    }
    list_end(&list);
    return answer(json);
}

/* --- rules and their log --- */

char *qos_cluster_report_rules(const QosCluster *cluster, gsize room)
{
    const QosRules *rules = qos_cluster_rules_list(cluster->rules);
    JsonBuilder *json = begin_answer();
    QosTime wall = qos_cluster_wall();
    List list;

    qos_json_add_count(json, "version", qos_cluster_rules_version(cluster->rules));
    list = list_begin(json, "rules", room);
    for (guint i = 0; i < qos_rules_count(rules); i++) {
        const QosRule *rule = qos_rules_get(rules, i);
        g_autofree char *command = qos_rule_command(rule);
        JsonBuilder *item;

        if (rule->condition == NULL)
            continue;
        item = list_item(&list);
        qos_json_add_count(item, "id", qos_cluster_rules_id(cluster->rules, rule->name));
        qos_json_add_text(item, "name", rule->name);
        qos_json_add_text(item, "command", command);
        add_left(item, "expires_s", rule->expires, wall);
        list_add(&list);
    }
    list_end(&list);
    return answer(json);
}

static void add_entry(JsonBuilder *json, const QosServerDbLogEntry *entry)
{
    static const char head[] = "version "; /* as server/cluster_rules.c writes it */
    g_autoptr(GDateTime) date = g_date_time_new_from_unix_utc(entry->time / QOS_SECOND);
    g_autofree char *time = date != NULL ? g_date_time_format(date, "%Y-%m-%dT%H:%M:%SZ") : NULL;

    qos_json_add_text(json, "time", time);
    qos_json_add_text(json, "who", entry->principal);
    qos_json_add_text(json, "command", entry->command);
    if (entry->error == 0 && g_str_has_prefix(entry->result, head))
        qos_json_add_count(json, "version", strtoull(entry->result + strlen(head), NULL, 10));
    else
        add_null(json, "version");
    qos_json_add_count(json, "error", entry->error);
    qos_json_add_text(json, "result", entry->result);
}

char *qos_cluster_report_log(const QosCluster *cluster, gsize room)
{
    const GPtrArray *log = qos_cluster_rules_log(cluster->rules);
    JsonBuilder *json = begin_answer();
    List list = list_begin(json, "log", room);

    for (guint i = log->len; i-- > 0;) {
        add_entry(list_item(&list), log->pdata[i]);
        list_add(&list);
    }
    list_end(&list);
    return answer(json);
}

/* --- classes --- */

typedef struct {
    QosServerBudgetsClass class;
    char *rule_name, *class_name; /* copies */
} Class;

static void class_free(gpointer data)
{
    Class *class = data;

    g_free(class->rule_name);
    g_free(class->class_name);
    g_free(class);
}

static void take_class(const QosServerBudgetsClass *item, gpointer arg)
{
    Class *class = g_new0(Class, 1);

    class->class = *item;
    class->class.rule_name = class->rule_name = g_strdup(item->rule_name);
    class->class.class_name = class->class_name = g_strdup(item->class_name);
    g_ptr_array_add(arg, class);
}

static gint by_demand(gconstpointer one, gconstpointer other)
{
    const QosServerBudgetsClass *a = &(*(Class *const *)one)->class;
    const QosServerBudgetsClass *b = &(*(Class *const *)other)->class;

    if (a->demand != b->demand)
        return a->demand > b->demand ? -1 : 1;
    int order = strcmp(a->class_name, b->class_name);
    return order != 0 ? order : (int)a->unit - (int)b->unit;
}

/* Of Class, those that want most first. Free with g_ptr_array_unref(). */
static GPtrArray *classes_of(const QosCluster *cluster)
{
    GPtrArray *classes = g_ptr_array_new_with_free_func(class_free);

    qos_server_budgets_each(cluster->budgets, take_class, classes, qos_cluster_now());
    g_ptr_array_sort(classes, by_demand);
    return classes;
}

static void add_class(JsonBuilder *json, const QosCluster *cluster,
                      const QosServerBudgetsClass *class)
{
    const QosRule *rule =
        qos_rules_by_name(qos_cluster_rules_list(cluster->rules), class->rule_name);

    qos_json_add_text(json, "rule", class->rule_name);
    qos_json_add_text(json, "class", class->class_name);
    qos_json_add_text(json, "unit", unit_names[class->unit]);
    qos_json_add_number(json, "limit", units(class->limit));
    qos_json_add_number(json, "demand", units(class->demand));
    qos_json_add_number(json, "served", units(class->served));
    qos_json_add_number(json, "in_force", units(class->state.in_force));
    if (class->state.level < (double)G_MAXUINT64)
        qos_json_add_number(json, "level", class->state.level / QOS_BUDGET_UNIT);
    else
        add_null(json, "level");
    qos_json_add_text(json, "share",
                      rule != NULL && rule->share == QOS_RULE_HARD ? "hard" : "fair");
    qos_json_add_count(json, "mounts", class->state.members);
    qos_json_add_count(json, "silent", class->state.silent);
    if (!class->is_divided)
        return;
    qos_json_add_number(json, "entitlement", units(class->entitlement));
    qos_json_add_count(json, "weight", class->weight);
}

char *qos_cluster_report_classes(const QosCluster *cluster, gsize room)
{
    g_autoptr(GPtrArray) classes = classes_of(cluster);
    JsonBuilder *json = begin_answer();
    List list = list_begin(json, "classes", room);

    for (guint i = 0; i < classes->len; i++) {
        add_class(list_item(&list), cluster, &((const Class *)classes->pdata[i])->class);
        list_add(&list);
    }
    list_end(&list);
    return answer(json);
}

/* --- why --- */

typedef struct {
    const QosCluster *cluster;
    List list;
    QosTime now;
} Members;

static void take_member(const QosServerBudgetsMember *member, gpointer arg)
{
    Members *members = arg;
    const QosClusterMount *mount =
        qos_cluster_mounts_find(members->cluster->mounts, member->client);
    g_autofree char *name = mount != NULL
                                ? g_strdup(mount->name)
                                : g_strdup_printf("%" G_GINT64_MODIFIER "x", member->client);
    JsonBuilder *json = list_item(&members->list);

    qos_json_add_text(json, "mount", name);
    qos_json_add_number(json, "demand", units(member->demand));
    qos_json_add_number(json, "held", units(member->held));
    qos_json_add_number(json, "bound", units(member->bound));
    qos_json_add_boolean(json, "is_silent", member->is_silent);
    list_add(&members->list);
}

/* Whether the class is the job's: by its id, or by an operation and its id. */
static gboolean is_of_job(const char *class_name, const char *job)
{
    const char *colon = strchr(class_name, ':');

    return g_str_equal(class_name, job) || (colon != NULL && g_str_equal(colon + 1, job));
}

static void add_members(JsonBuilder *json, const QosCluster *cluster,
                        const QosServerBudgetsClass *class, gsize room)
{
    Members members = {.cluster = cluster, .now = qos_cluster_now()};

    members.list = list_begin(json, "members", room);
    qos_server_budgets_each_member(cluster->budgets, class->rule, class->class_name, class->unit,
                                   take_member, &members, members.now);
    list_end(&members.list);
}

char *qos_cluster_report_why(const QosCluster *cluster, const char *job, gsize room)
{
    g_autoptr(GPtrArray) classes = classes_of(cluster);
    const QosServerJob *told = qos_server_jobs_find(cluster->jobs, job);
    JsonBuilder *json = begin_answer();
    guint count = 0, mounts = 0;
    List list;

    for (guint i = 0; i < classes->len; i++) {
        const Class *class = classes->pdata[i];
        if (!is_of_job(class->class_name, job))
            continue;
        count++;
        mounts = MAX(mounts, class->class.state.members);
    }
    qos_json_add_text(json, "job", job);
    qos_json_add_count(json, "nodes", told != NULL ? told->nodes : mounts);
    qos_json_add_count(json, "weight", told != NULL ? told->weight : 1);
    list = list_begin(json, "classes", room);
    for (guint i = 0; i < classes->len; i++) {
        const Class *class = classes->pdata[i];
        if (!is_of_job(class->class_name, job))
            continue;
        JsonBuilder *item = list_item(&list);
        add_class(item, cluster, &class->class);
        add_members(item, cluster, &class->class, room == G_MAXSIZE ? room : room / (count + 1));
        list_add(&list);
    }
    list_end(&list);
    return answer(json);
}

/* --- sizes of jobs --- */

char *qos_cluster_report_jobs(const QosCluster *cluster, gsize room)
{
    g_autoptr(GPtrArray) jobs = qos_server_jobs_list(cluster->jobs);
    JsonBuilder *json = begin_answer();
    QosTime wall = qos_cluster_wall();
    List list = list_begin(json, "jobs", room);

    for (guint i = 0; i < jobs->len; i++) {
        const QosServerJob *job = jobs->pdata[i];
        JsonBuilder *item = list_item(&list);

        qos_json_add_text(item, "id", job->id);
        qos_json_add_count(item, "nodes", job->nodes);
        qos_json_add_count(item, "weight", job->weight);
        add_left(item, "expires_s", job->expires, wall);
        list_add(&list);
    }
    list_end(&list);
    return answer(json);
}
