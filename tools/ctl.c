/*
 * What the commands of qosfsctl share: the command line, the mount's state, and standard output.
 */
#include "tools/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "base/words.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_state.h"

gboolean qos_ctl_usage_error(GError **error, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    g_autofree char *message = g_strdup_vprintf(format, values);
    va_end(values);
    g_set_error_literal(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED, message);
    return FALSE;
}

const char *qos_ctl_argument(const QosCtl *ctl, guint index)
{
    return index + 1 < g_strv_length(ctl->arguments) ? ctl->arguments[index + 1] : NULL;
}

gboolean qos_ctl_take_setting(const QosCtl *ctl, char **ret_name, const char **ret_value,
                              GError **error)
{
    const char *first = qos_ctl_argument(ctl, 0), *value = qos_ctl_argument(ctl, 1);
    const char *equals = strchr(first, '=');

    if (!value && !equals)
        return qos_ctl_usage_error(error, "which value? It takes %s", ctl->command->parameters);
    *ret_name = value ? g_strdup(first) : g_strndup(first, (gsize)(equals - first));
    *ret_value = value ? value : equals + 1;
    return TRUE;
}

gboolean qos_ctl_no_such(GError **error, const char *what, const char *name, const GPtrArray *names,
                         const char *advice)
{
    g_autofree char *escaped = qos_ctl_escape(name);
    g_autofree char *hint = qos_ctl_hint(name, names);

    qos_set_error(error, ENOENT, "there is no %s '%s'%s%s", what, escaped, *hint ? hint : "; ",
                  *hint ? "" : advice);
    return FALSE;
}

gboolean qos_ctl_check_setting(JsonObject *tunables, const char *name, const char *lister,
                               GError **error)
{
    if (json_object_has_member(tunables, name))
        return TRUE;
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    g_autoptr(GList) members = json_object_get_members(tunables);
    for (GList *member = members; member; member = member->next)
        g_ptr_array_add(names, member->data);
    g_autofree char *advice =
        g_strdup_printf("'%s' lists those that can be changed while it runs", lister);
    return qos_ctl_no_such(error, "setting", name, names, advice);
}

static gboolean check_argument_count(const QosCtl *ctl, GError **error)
{
    guint count = g_strv_length(ctl->arguments) - 1;
    const QosCtlCommand *command = ctl->command;
    if (count < command->minimum)
        return qos_ctl_usage_error(error, "too few arguments: it takes %s", command->parameters);
    if (count > command->maximum) {
        g_autofree char *extra = qos_ctl_escape(qos_ctl_argument(ctl, command->maximum));
        return qos_ctl_usage_error(error, "too many arguments, from '%s' on: it takes %s", extra,
                                   command->parameters ? command->parameters : "none");
    }
    return TRUE;
}

/* `reason` is GOption's, and ends with the option. Always FALSE. */
static gboolean unknown_option(const char *reason, const GOptionEntry *const *tables,
                               GError **error)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);

    g_ptr_array_add(names, g_strdup("--help"));
    for (; *tables; tables++)
        for (const GOptionEntry *entry = *tables; entry->long_name; entry++)
            g_ptr_array_add(names, g_strconcat("--", entry->long_name, NULL));
    const char *word = strrchr(reason, ' ') + 1;
    g_autofree char *hint = qos_ctl_hint(g_str_has_prefix(word, "--") ? word : "", names);
    return qos_ctl_usage_error(error, "%s%s", reason,
                               *hint ? hint : "; an argument that begins with - stands after --");
}

gboolean qos_ctl_parse_words(GOptionContext *context, const GOptionEntry *const *tables,
                             char ***words, GError **error)
{
    gboolean help = FALSE;
    const GOptionEntry entries[] = {
        {"help", 'h', 0, G_OPTION_ARG_NONE, &help, "Print this help", NULL}, {NULL}};
    g_autoptr(GError) reason = NULL;

    /* GOption's own takes the -h of "-hog" for it, and ends with success. */
    g_option_context_set_help_enabled(context, FALSE);
    g_option_group_add_entries(g_option_context_get_main_group(context), entries);
    if (!g_option_context_parse_strv(context, words, &reason)) {
        if (g_error_matches(reason, G_OPTION_ERROR, G_OPTION_ERROR_UNKNOWN_OPTION))
            return unknown_option(reason->message, tables, error);
        g_propagate_error(error, g_steal_pointer(&reason));
        return FALSE;
    }
    if (!help)
        return TRUE;
    qos_ctl_print(g_option_context_get_help(context, TRUE, NULL));
    if (fflush(stdout) == 0)
        exit(QOS_CTL_OK);
    qos_set_error(error, errno, "cannot write: %s", g_strerror(errno));
    return FALSE;
}

/* Takes a "--" off: GOption leaves it where an argument that follows looks like an option. */
static void drop_separator(char **arguments)
{
    while (*arguments && !g_str_equal(*arguments, "--"))
        arguments++;
    if (!*arguments)
        return;
    g_free(*arguments);
    for (; *arguments; arguments++)
        arguments[0] = arguments[1];
}

/* The options that say what to ask; the rows end with NULL. */
static void add_targets(const QosCtlCommand *command, const GOptionEntry *mount,
                        const GOptionEntry *server, const GOptionEntry **tables, guint *count)
{
    if (!g_str_has_prefix(command->name, "server "))
        tables[(*count)++] = mount;
    if (g_str_has_prefix(command->name, "server ") || g_str_has_prefix(command->name, "cluster "))
        tables[(*count)++] = server;
}

gboolean qos_ctl_parse(QosCtl *ctl, const GOptionEntry *options, gpointer data, GError **error)
{
    const QosCtlCommand *command = ctl->command;
    gboolean is_cluster = g_str_has_prefix(command->name, "cluster ");
    gboolean is_server = g_str_has_prefix(command->name, "server ");
    char *directory = NULL;
    const GOptionEntry mount[] = {
        {"mount", 'm', 0, G_OPTION_ARG_FILENAME, &directory, "The mount to talk to", "DIR"}, {0}};
    const GOptionEntry server[] = {{"socket", 's', 0, G_OPTION_ARG_FILENAME, &ctl->socket,
                                    "The server's control socket", "PATH"},
                                   {0}};
    const GOptionEntry json[] = {
        {"json", 'j', 0, G_OPTION_ARG_NONE, &ctl->json, "Print JSON", NULL}, {0}};
    g_autofree char *name = g_strconcat("qosfsctl ", command->name, NULL);
    g_autoptr(GOptionContext) context = g_option_context_new(command->parameters);
    GOptionGroup *group = g_option_group_new(NULL, NULL, NULL, data, NULL);

    g_set_prgname(name);
    g_option_context_set_summary(context, command->summary);
    g_option_context_set_description(context, command->details);
    const GOptionEntry *tables[5] = {NULL}; /* the last is NULL */
    guint count = 0;
    add_targets(command, mount, server, tables, &count);
    if (command->json)
        tables[count++] = json;
    if (options)
        tables[count++] = options;
    for (guint i = 0; i < count; i++) {
        g_option_group_add_entries(group, tables[i]);
        qos_words_split(&ctl->arguments, tables[i]);
    }
    g_option_context_set_main_group(context, group);
    if (!qos_ctl_parse_words(context, tables, &ctl->arguments, error))
        return FALSE;
    drop_separator(ctl->arguments);
    if (directory) {
        g_free(ctl->directory);
        ctl->directory = directory;
    }
    if (ctl->json && !command->json)
        return qos_ctl_usage_error(error, "it has no --json");
    if (ctl->socket && !*ctl->socket)
        return qos_ctl_usage_error(error, "--socket: the path is empty");
    if (is_cluster && ctl->socket && ctl->directory)
        return qos_ctl_usage_error(error, "give --mount or --socket, not both");
    if (!check_argument_count(ctl, error))
        return FALSE;
    if (is_server || is_cluster)
        return TRUE;
    ctl->mountpoint = qos_ctl_mount_find(ctl->directory, error);
    return ctl->mountpoint != NULL;
}

#define WATCH_DEFAULT (2 * QOS_SECOND)
#define WATCH_MIN     (100 * QOS_MILLISECOND) /* less would keep the mount busy with reports */
#define CLEAR_SCREEN  "\033[H\033[J"

gboolean qos_ctl_parse_watch(const char *option, const char *value, gpointer data, GError **error)
{
    QosCtlTableOptions *options = data;
    g_autoptr(GError) reason = NULL;

    options->watch = WATCH_DEFAULT;
    if (!value)
        return TRUE;
    if (!qos_parse_duration(value, &options->watch, &reason))
        return qos_ctl_usage_error(error, "%s: %s", option, reason->message);
    if (options->watch < WATCH_MIN)
        return qos_ctl_usage_error(error, "%s: '%s' is too short; at least 100ms", option, value);
    return TRUE;
}

gboolean qos_ctl_check_limit(const QosCtlTableOptions *options, GError **error)
{
    return options->limit >= 0 ||
           qos_ctl_usage_error(error, "--limit: %d is no number of jobs", options->limit);
}

gboolean qos_ctl_watch(const QosCtlTableOptions *options,
                       gboolean (*show)(gpointer data, GError **error), gpointer data,
                       GError **error)
{
    while (show(data, error)) {
        /* A reader that went away ends the watch. */
        if (!options->watch || fflush(stdout) || ferror(stdout))
            return TRUE;
        g_usleep((gulong)(options->watch / QOS_MICROSECOND));
    }
    return FALSE;
}

guint qos_ctl_begin_screen(const QosCtlStyle *style, guint limit)
{
    if (style->height)
        fputs(CLEAR_SCREEN, stdout);
    return style->height > 3 && (!limit || limit > style->height - 3) ? style->height - 3 : limit;
}

JsonObject *qos_ctl_read(const QosCtl *ctl, const char *file, GError **error)
{
    gsize length;
    g_autoptr(GError) reason = NULL;
    g_autofree char *text = qos_ctl_mount_read(ctl->mountpoint, file, &length, &reason);
    if (g_error_matches(reason, QOS_ERROR, EPROTO) && !g_str_equal(file, QOS_CTL_STATE))
        return qos_ctl_read(ctl, QOS_CTL_STATE, error);
    if (text)
        return qos_ctl_state_parse(text, length, error);
    g_propagate_error(error, g_steal_pointer(&reason));
    return NULL;
}

JsonObject *qos_ctl_read_job(const QosCtl *ctl, const char *id, GError **error)
{
    gsize length;
    g_autofree char *text = qos_ctl_mount_read_job(ctl->mountpoint, id, &length, error);
    return text ? qos_ctl_state_parse(text, length, error) : NULL;
}

JsonObject *qos_ctl_parse_and_read(QosCtl *ctl, GError **error)
{
    return qos_ctl_parse(ctl, NULL, NULL, error) ? qos_ctl_read(ctl, QOS_CTL_STATUS, error) : NULL;
}

void qos_ctl_print(char *text)
{
    fputs(text, stdout);
    g_free(text);
}

void qos_ctl_print_json(JsonNode *node, gboolean compact)
{
    g_autofree char *text = json_to_string(node, !compact);
    puts(text);
    json_node_unref(node);
}

QosCtlStyle qos_ctl_style(void)
{
    const char *no_color = g_getenv("NO_COLOR");
    gboolean is_dumb = g_strcmp0(g_getenv("TERM"), "dumb") == 0;
    gboolean bold = !is_dumb && !(no_color && *no_color);
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return (QosCtlStyle){0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
        return (QosCtlStyle){.bold = bold};
    return (QosCtlStyle){.width = size.ws_col, .height = is_dumb ? 0 : size.ws_row, .bold = bold};
}
