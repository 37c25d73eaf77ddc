/*
 * qosfsctl status, policy, get and set: the mount as a whole.
 *
 * Names are looked up in the mount's state before anything is set. So a mistyped name gives an
 * error with a hint, and never sets an xattr that the mount does not know.
 */
#include <string.h>

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
        qos_ctl_print_json(json_object_dup_member(state, "policies"), FALSE);
    else if (!name)
        qos_ctl_print(qos_ctl_render_policies(state));
    if (!name)
        return TRUE;
    if (!qos_ctl_state_named(state, "policies", name)) {
        g_autoptr(GPtrArray) names = qos_ctl_state_names(state, "policies", "name");
        return qos_ctl_no_such(error, "policy", name, names, "'qosfsctl policy' lists them");
    }
    return qos_ctl_mount_set(ctl->mountpoint, "nrs_policies", name, error);
}

gboolean qos_ctl_get(QosCtl *ctl, GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_parse_and_read(ctl, error);
    if (!state)
        return FALSE;
    const char *name = qos_ctl_argument(ctl, 0);
    JsonObject *tunables = json_object_get_object_member(state, "tunables");
    if (name && !qos_ctl_check_setting(tunables, name, "qosfsctl get", error))
        return FALSE;
    if (ctl->json && name)
        qos_ctl_print_json(json_object_dup_member(tunables, name), FALSE);
    else if (ctl->json)
        qos_ctl_print_json(json_object_dup_member(state, "tunables"), FALSE);
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
    g_autoptr(JsonObject) state = qos_ctl_read(ctl, QOS_CTL_STATUS, error);
    return state &&
           qos_ctl_check_setting(json_object_get_object_member(state, "tunables"), name,
                                 "qosfsctl get", error) &&
           qos_ctl_mount_set(ctl->mountpoint, name, value, error);
}
