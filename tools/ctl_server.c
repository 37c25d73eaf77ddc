/*
 * qosfsctl server ...: shows what a qosfs-server reports (server/control.h), and changes its
 * settings.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "tools/ctl.h"
#include "tools/ctl_render.h"
#include "tools/ctl_socket.h"

#define AGE_MAX 86400 /* s: beyond a day it does not matter how long a credit may stay */

/* --- asking --- */

static const char *path_of(const QosCtl *ctl)
{
    return ctl->socket ? ctl->socket : QOS_CTL_SOCKET_DEFAULT;
}

static char *ask(const QosCtl *ctl, const char *request, GError **error)
{
    return qos_ctl_socket_ask(path_of(ctl), request, NULL, error);
}

static gboolean has_object(JsonObject *parent, const char *member)
{
    JsonNode *node = json_object_get_member(parent, member);

    return node && JSON_NODE_HOLDS_OBJECT(node);
}

static gboolean has_shape(JsonObject *state)
{
    JsonNode *mounts = json_object_get_member(state, "mounts");

    return has_object(state, "pool") && has_object(state, "tunables") &&
           has_object(state, "connections") &&
           has_object(json_object_get_object_member(state, "connections"), "refused") && mounts &&
           JSON_NODE_HOLDS_ARRAY(mounts);
}

/* A new reference. */
static JsonObject *read_state(const QosCtl *ctl, GError **error)
{
    g_autofree char *text = ask(ctl, "state", error);
    g_autoptr(JsonNode) root = text ? json_from_string(text, NULL) : NULL;

    if (!text)
        return NULL;
    if (root && JSON_NODE_HOLDS_OBJECT(root) && has_shape(json_node_get_object(root)))
        return json_object_ref(json_node_get_object(root));
    qos_set_error(
        error, EPROTO,
        "%s: what answers there is no qosfs-server of this version; --socket names another",
        path_of(ctl));
    return NULL;
}

/* Of a command without options of its own. */
static JsonObject *parse_and_read(QosCtl *ctl, GError **error)
{
    return qos_ctl_parse(ctl, NULL, NULL, error) ? read_state(ctl, error) : NULL;
}

/* --- status --- */

/* What SLR is to a mount of average size: bytes that it has cached x milliseconds without use
 * (core/pool.h). */
static void append_age(GString *text, JsonObject *pool)
{
    double granted = qos_ctl_state_number(pool, "granted");
    double clients = qos_ctl_state_number(pool, "clients");
    double age = granted > 0 ? qos_ctl_state_number(pool, "rate") * clients / granted / 1000 : 0;
    g_autofree char *shown = qos_ctl_format_seconds(MIN(age, AGE_MAX));

    if (age > 0)
        g_string_append_printf(text,
                               "idle      credits go back after %s%s without use, on average\n",
                               age > AGE_MAX ? "more than " : "", shown);
}

static void append_pool(GString *text, JsonObject *pool)
{
    gint64 limit = qos_ctl_state_count(pool, "limit");
    g_autofree char *granted = qos_format_bytes((guint64)qos_ctl_state_count(pool, "granted"));
    g_autofree char *most = qos_format_bytes((guint64)limit);
    g_autofree char *hard = qos_format_bytes((guint64)qos_ctl_state_count(pool, "hard_limit"));
    g_autofree char *in = qos_ctl_format_byte_rate(qos_ctl_state_number(pool, "grant_speed"));
    g_autofree char *out = qos_ctl_format_byte_rate(qos_ctl_state_number(pool, "cancel_speed"));
    gint64 refused = qos_ctl_state_count(pool, "refused");

    g_string_append_printf(text, "pool      %s granted of %s (at most %s), %s granted, %s back\n",
                           granted, most, hard, in, out);
    append_age(text, pool);
    if (refused > 0)
        g_string_append_printf(text, "refused   %" G_GINT64_FORMAT " grants for want of room\n",
                               refused);
    if (*qos_ctl_state_text(pool, "advice")) {
        g_autofree char *advice = qos_ctl_escape(qos_ctl_state_text(pool, "advice"));
        g_string_append_printf(text, "advice    %s\n", advice);
    }
}

static gint64 count_refused(JsonObject *state)
{
    JsonObject *connections = json_object_get_object_member(state, "connections");
    JsonObject *refused = json_object_get_object_member(connections, "refused");
    g_autoptr(GList) reasons = json_object_get_members(refused);
    gint64 sum = 0;

    for (GList *reason = reasons; reason; reason = reason->next)
        sum += qos_ctl_state_count(refused, reason->data);
    return sum;
}

static char *render_status(JsonObject *state)
{
    JsonArray *mounts = json_object_get_array_member(state, "mounts");
    g_autofree char *store = qos_ctl_escape(qos_ctl_state_text(state, "store"));
    g_autofree char *trouble = qos_ctl_escape(qos_ctl_state_text(state, "database"));
    g_autofree char *uptime = qos_ctl_format_seconds(qos_ctl_state_number(state, "uptime"));
    GString *text = g_string_new(NULL);

    g_string_append_printf(text, "server    %s, start %" G_GINT64_FORMAT ", up %s\n",
                           qos_ctl_state_text(state, "id"),
                           qos_ctl_state_count(state, "incarnation"), uptime);
    g_string_append_printf(text, "store     %s\n",
                           *store ? store : "not known before a mount comes");
    if (qos_ctl_state_flag(state, "grace"))
        g_string_append_printf(text,
                               "grace     %" G_GINT64_FORMAT " mounts are to come back first\n",
                               qos_ctl_state_count(state, "awaited"));
    g_string_append_printf(text, "database  %s\n", *trouble ? trouble : "works");
    g_string_append_printf(text,
                           "mounts    %u ('qosfsctl server mounts'), %" G_GINT64_FORMAT
                           " evicted, %" G_GINT64_FORMAT " refused\n",
                           json_array_get_length(mounts), qos_ctl_state_count(state, "evictions"),
                           count_refused(state));
    g_string_append_printf(text, "credits   %" G_GINT64_FORMAT "\n",
                           qos_ctl_state_count(state, "credits"));
    append_pool(text, json_object_get_object_member(state, "pool"));
    return g_string_free(text, FALSE);
}

gboolean qos_ctl_server_status(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) state = parse_and_read(ctl, error);
    if (!state)
        return FALSE;
    if (ctl->json) {
        json_object_remove_member(state, "mounts"); /* a command of its own */
        JsonNode *node = json_node_new(JSON_NODE_OBJECT);
        json_node_set_object(node, state);
        qos_ctl_print_json(node, FALSE);
    } else {
        qos_ctl_print(render_status(state));
    }
    return TRUE;
}

/* --- mounts --- */

static char *count_of(JsonObject *object, const char *member)
{
    return g_strdup_printf("%" G_GINT64_FORMAT, qos_ctl_state_count(object, member));
}

static char *render_mounts(JsonObject *state, const QosCtlStyle *style)
{
    static const QosCtlColumn columns[] = {
        {.title = "MOUNT", .flexible = TRUE},    {.title = "ID"},
        {.title = "CONNECTED", .right = TRUE},   {.title = "CREDITS", .right = TRUE},
        {.title = "BYTES", .right = TRUE},       {.title = "CALLED BACK", .right = TRUE},
        {.title = "PRINCIPAL", .flexible = TRUE}};
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    JsonArray *mounts = json_object_get_array_member(state, "mounts");

    for (guint i = 0; i < json_array_get_length(mounts); i++) {
        JsonObject *mount = json_array_get_object_element(mounts, i);
        double connected = qos_ctl_state_number(mount, "connected");
        gboolean is_gone = json_object_get_null_member(mount, "connected");
        qos_ctl_table_add(table, qos_ctl_escape(qos_ctl_state_text(mount, "name")));
        qos_ctl_table_add(table, qos_ctl_escape(qos_ctl_state_text(mount, "id")));
        qos_ctl_table_add(table, is_gone ? g_strdup("-") : qos_ctl_format_seconds(connected));
        qos_ctl_table_add(table, count_of(mount, "credits"));
        qos_ctl_table_add(table, qos_format_bytes((guint64)qos_ctl_state_count(mount, "bytes")));
        qos_ctl_table_add(table, count_of(mount, "called_back"));
        qos_ctl_table_add(table, qos_ctl_escape(qos_ctl_state_text(mount, "principal")));
    }
    return qos_ctl_table_print(table, style);
}

gboolean qos_ctl_server_mounts(QosCtl *ctl, GError **error)
{
    const QosCtlStyle style = qos_ctl_style();

    g_autoptr(JsonObject) state = parse_and_read(ctl, error);
    if (!state)
        return FALSE;
    if (ctl->json)
        qos_ctl_print_json(json_object_dup_member(state, "mounts"), FALSE);
    else
        qos_ctl_print(render_mounts(state, &style));
    return TRUE;
}

/* --- settings --- */

static gboolean check_setting(JsonObject *state, const char *name, GError **error)
{
    return qos_ctl_check_setting(json_object_get_object_member(state, "tunables"), name,
                                 "qosfsctl server get", error);
}

/* "limit=1G", and what is different about the next start. */
static char *render_setting(JsonObject *tunables, const char *name)
{
    JsonObject *tunable = json_object_get_object_member(tunables, name);
    const char *value = qos_ctl_state_text(tunable, "value");
    const char *next = qos_ctl_state_text(tunable, "next");

    if (g_str_equal(value, next))
        return g_strdup_printf("%s=%s\n", name, value);
    return g_strdup_printf("%s=%s (from the next start on: %s)\n", name, value, next);
}

static void print_settings(JsonObject *tunables, const char *name)
{
    g_autoptr(GList) members = json_object_get_members(tunables);

    if (name) {
        JsonObject *tunable = json_object_get_object_member(tunables, name);
        qos_ctl_print(g_strconcat(qos_ctl_state_text(tunable, "value"), "\n", NULL));
        return;
    }
    for (GList *member = members; member; member = member->next)
        qos_ctl_print(render_setting(tunables, member->data));
}

gboolean qos_ctl_server_get(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) state = parse_and_read(ctl, error);
    const char *name = qos_ctl_argument(ctl, 0);
    if (!state)
        return FALSE;
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    if (name && !check_setting(state, name, error))
        return FALSE;
    if (ctl->json)
        qos_ctl_print_json(name ? json_object_dup_member(tunables, name)
                                : json_object_dup_member(state, "tunables"),
                           FALSE);
    else
        print_settings(tunables, name);
    return TRUE;
}

/* Sends `request` and its words (`second` may be NULL), each of which must be one. What the server
 * has to say of it is told. */
static gboolean command(const QosCtl *ctl, const char *request, const char *first,
                        const char *second, GError **error)
{
    g_autofree char *line = g_strjoin(" ", request, first, second, NULL);
    const char *const words[] = {first, second, NULL};

    for (guint i = 0; words[i]; i++) {
        if (*words[i] && !strpbrk(words[i], " \n"))
            continue;
        g_autofree char *escaped = qos_ctl_escape(words[i]);
        return qos_ctl_usage_error(error, "'%s' is not one word", escaped);
    }
    g_autofree char *answer = ask(ctl, line, error);
    if (answer && *answer)
        fprintf(stderr, "%s: note: %s\n", g_get_prgname(), answer);
    return answer != NULL;
}

/* Tells the user if the server takes up the new value only at its next start. */
static void note_next_start(const QosCtl *ctl, const char *name)
{
    g_autoptr(JsonObject) state = read_state(ctl, NULL);
    if (!state)
        return;
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    JsonObject *tunable = json_object_get_object_member(tunables, name);
    const char *value = qos_ctl_state_text(tunable, "value");
    if (!g_str_equal(value, qos_ctl_state_text(tunable, "next")))
        fprintf(stderr, "%s: note: that holds from the server's next start on, until then %s=%s\n",
                g_get_prgname(), name, value);
}

gboolean qos_ctl_server_set(QosCtl *ctl, GError **error)
{
    g_autofree char *name = NULL;
    const char *value;

    if (!qos_ctl_parse(ctl, NULL, NULL, error) || !qos_ctl_take_setting(ctl, &name, &value, error))
        return FALSE;
    g_autoptr(JsonObject) state = read_state(ctl, error);
    if (!state || !check_setting(state, name, error) || !command(ctl, "set", name, value, error))
        return FALSE;
    note_next_start(ctl, name);
    return TRUE;
}

gboolean qos_ctl_server_metrics(QosCtl *ctl, GError **error)
{
    if (!qos_ctl_parse(ctl, NULL, NULL, error))
        return FALSE;
    char *text = ask(ctl, "metrics", error);
    if (text)
        qos_ctl_print(text);
    return text != NULL;
}

gboolean qos_ctl_server_evict(QosCtl *ctl, GError **error)
{
    return qos_ctl_parse(ctl, NULL, NULL, error) &&
           command(ctl, "evict", qos_ctl_argument(ctl, 0), NULL, error);
}
