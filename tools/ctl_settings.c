/*
 * qosfsctl status, policy, get and set: the mount as a whole.
 *
 * Names are looked up in the mount's state before anything is set, so that a mistyped one is an
 * error with a hint, and never an xattr that the mount does not know.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "tools/ctl.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_render.h"

/* The state without its two long lists, which have commands of their own. */
static JsonNode *status_node(JsonObject *state)
{
    JsonNode *node = json_node_new(JSON_NODE_OBJECT);
    JsonObject *status = json_object_new();
    g_autoptr(GList) members = json_object_get_members(state);
    for (GList *member = members; member; member = member->next)
        if (!g_str_equal(member->data, "rules") && !g_str_equal(member->data, "jobs"))
            json_object_set_member(status, member->data,
                                   json_object_dup_member(state, member->data));
    json_node_take_object(node, status);
    return node;
}

gboolean qos_ctl_status(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_parse_and_read(ctl, error);
    if (!state)
        return FALSE;
    if (ctl->json)
        qos_ctl_print_json(status_node(state), FALSE);
    else
        qos_ctl_print(qos_ctl_render_status(state));
    return TRUE;
}

gboolean qos_ctl_policy(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_parse_and_read(ctl, error);
    if (!state)
        return FALSE;
    const char *name = qos_ctl_argument(ctl, 0);
    if (!name && ctl->json)
        qos_ctl_print_json(qos_ctl_member_node(state, "policies"), FALSE);
    else if (!name)
        qos_ctl_print(qos_ctl_render_policies(state));
    if (!name)
        return TRUE;
    if (!qos_ctl_state_named(state, "policies", name)) {
        g_autoptr(GPtrArray) names = qos_ctl_state_names(state, "policies", "name");
        g_autofree char *hint = qos_ctl_hint(name, names);
        qos_set_error(error, ENOENT, "there is no policy '%s'%s%s", name, hint,
                      *hint ? "" : "; 'qosfsctl policy' lists them");
        return FALSE;
    }
    return qos_ctl_mount_set(ctl->mountpoint, "nrs_policies", name, error);
}

static gboolean check_tunable(JsonObject *state, const char *name, GError **error)
{
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    if (json_object_has_member(tunables, name))
        return TRUE;
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    g_autoptr(GList) members = json_object_get_members(tunables);
    for (GList *member = members; member; member = member->next)
        g_ptr_array_add(names, member->data);
    g_autofree char *hint = qos_ctl_hint(name, names);
    qos_set_error(error, ENOENT, "there is no setting '%s'%s%s", name, hint,
                  *hint ? "" : "; 'qosfsctl get' lists them");
    return FALSE;
}

gboolean qos_ctl_get(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_parse_and_read(ctl, error);
    if (!state)
        return FALSE;
    const char *name = qos_ctl_argument(ctl, 0);
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    if (name && !check_tunable(state, name, error))
        return FALSE;
    if (ctl->json && name)
        qos_ctl_print_json(json_object_dup_member(tunables, name), FALSE);
    else if (ctl->json)
        qos_ctl_print_json(qos_ctl_member_node(state, "tunables"), FALSE);
    else if (name)
        qos_ctl_print(qos_ctl_render_tunable(state, name));
    else
        qos_ctl_print(qos_ctl_render_tunables(state));
    return TRUE;
}

gboolean qos_ctl_set(QosCtl *ctl, GError **error)
{
    g_autofree char *name = NULL;
    const char *value;

    if (!qos_ctl_parse(ctl, NULL, NULL, error) || !qos_ctl_take_setting(ctl, &name, &value, error))
        return FALSE;
    g_autoptr(JsonObject) state = qos_ctl_read_state(ctl, error);
    if (!state)
        return FALSE;
    return check_tunable(state, name, error) &&
           qos_ctl_mount_set(ctl->mountpoint, name, value, error);
}
