/*
 * qosfsctl rule: lists the rules, and changes them in Lustre's command language (qosfs-rules(7)).
 */
#include <stdio.h>

#include "tools/ctl.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_render.h"

/* Rules take effect only under the policy tbf. If another policy is in force, the user is told so
 * when listing or changing rules. */
static void note_policy(JsonObject *state)
{
    JsonObject *tbf = qos_ctl_state_named(state, "policies", "tbf");
    if (tbf && !g_str_equal(qos_ctl_state_text(tbf, "state"), "started"))
        fprintf(stderr,
                "%s: note: the policy is not tbf, so that no rule is in force; 'qosfsctl policy "
                "tbf' changes that\n",
                g_get_prgname());
}

/* Likewise for shares of a store that nobody shares. */
static void note_sharing(JsonObject *state, const char *name)
{
    JsonObject *rule = qos_ctl_state_named(state, "rules", name);
    gboolean wants =
        rule && (qos_ctl_state_count(rule, "weight") > 0 || qos_ctl_state_count(rule, "min") > 0);
    if (wants && !qos_ctl_sharing(state))
        fprintf(stderr,
                "%s: note: the store is not shared, so that weight= and min= do nothing; 'qosfsctl "
                "set adapt fair' changes that\n",
                g_get_prgname());
}

/* Reservations that the store cannot keep. Rules are for each job that matches: so this is the
 * least that they reserve. */
static void note_reservations(JsonObject *state, const char *name)
{
    JsonObject *rule = qos_ctl_state_named(state, "rules", name);
    JsonObject *adapt = qos_ctl_sharing(state);
    JsonArray *rules = json_object_get_array_member(state, "rules");
    double sum = 0;

    if (!rule || !adapt || qos_ctl_state_count(rule, "min") == 0)
        return;
    for (guint i = 0; i < json_array_get_length(rules); i++)
        sum += qos_ctl_state_number(json_array_get_object_element(rules, i), "min");
    if (sum > qos_ctl_state_number(adapt, "capacity"))
        fprintf(stderr,
                "%s: warning: the rules reserve %.0f op/s (min=), and the store is taken for %.0f: "
                "where all want theirs, each has a part\n",
                g_get_prgname(), sum, qos_ctl_state_number(adapt, "capacity"));
}

gboolean qos_ctl_rule_list(QosCtl *ctl, GError **error)
{
    gboolean commands = FALSE;
    const GOptionEntry entries[] = {
        {"commands", 'c', 0, G_OPTION_ARG_NONE, &commands,
         "Print the commands that make these rules anew, for a shell", NULL},
        {NULL},
    };
    if (!qos_ctl_parse(ctl, entries, NULL, error))
        return FALSE;
    if (commands && ctl->json)
        return qos_ctl_usage_error(error, "give --commands or --json, not both");
    g_autoptr(JsonObject) state = qos_ctl_read(ctl, QOS_CTL_RULES, error);
    if (!state)
        return FALSE;
    QosCtlStyle style = qos_ctl_style();
    if (commands)
        qos_ctl_print(qos_ctl_render_rule_commands(state));
    else if (ctl->json)
        qos_ctl_print_json(qos_ctl_state_rules(state), FALSE);
    else
        qos_ctl_print(qos_ctl_render_rules(state, &style));
    fflush(stdout);
    note_policy(state);
    return TRUE;
}

/* The words after `rule` are Lustre's command as it stands: the mount parses it, so that there is
 * one grammar and one set of reasons. */
gboolean qos_ctl_rule_send(QosCtl *ctl, GError **error)
{
    if (!qos_ctl_parse(ctl, NULL, NULL, error))
        return FALSE;
    const char *verb = ctl->command->name + sizeof("rule ") - 1;
    g_autofree char *words = g_strjoinv(" ", ctl->arguments + 1);
    g_autofree char *command = g_strdup_printf("%s %s", verb, words);
    if (!qos_ctl_mount_set(ctl->mountpoint, "nrs_tbf_rule", command, error))
        return FALSE;
    g_autoptr(JsonObject) state = qos_ctl_read(ctl, QOS_CTL_RULES, NULL);
    if (state) {
        note_policy(state);
        note_sharing(state, qos_ctl_argument(ctl, 0));
        note_reservations(state, qos_ctl_argument(ctl, 0));
    }
    return TRUE;
}
