/*
 * qosfsctl: rules and reports of a qosfs mount, for users and administrators. See qosfsctl(1).
 *
 * main() takes the options before the command, finds the command in the table and runs it. Each
 * command parses its own options by qos_ctl_parse(). Errors come back as one GError and are printed
 * here; its domain and code decide the exit code.
 */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/words.h"
#include "tools/ctl.h"

#define SYNOPSIS_WIDTH 21

/* The options of a rule; completion in bash takes their names from here. */
#define RULE_OPTIONS                                                                               \
    "Options of the rule:\n"                                                                       \
    "  rate=N|none         operations a second, to 999999\n"                                       \
    "  bps=BYTES|none      bytes a second: 500K, 20M, 1.5G\n"                                      \
    "  depth=OPS[:BYTES]   what may be saved up for a burst; auto: what 80 ms bring\n"             \
    "  per=CLASS           what may have that much each: jobid (the default), uid,\n"              \
    "                      gid or jobid+opcode; or with rule all of them together\n"               \
    "  rank=RULE           its place in the list: just before RULE\n"                              \
    "  weight=N|none       a job's share of the store, with adapt, to 10000\n"                     \
    "  min=N|none          operations a second that it has before shares are made\n"               \
    "  expire=TIME|none    it goes by itself: 30s, 10m, 2h, 1d\n"                                  \
    "  dryrun=0|1          it delays nothing, and counts what it would have delayed\n"             \
    "  passthrough=0|1     the kernel itself reads and writes these files, uncounted\n"

static const char rule_start_help[] =
    "Conditions are FIELD={VALUE ...}, joined by & (and) or , (or), in quotes:\n"
    "  jobid, host         patterns: {dd.* job[1-128]}\n"
    "  uid, gid            numbers: {1000 2000-2999}\n"
    "  opcode              {data}, {meta}, {*}, or such as {read write}\n"
    "\n" RULE_OPTIONS "\n"
    "For example:\n"
    "  qosfsctl rule start hog 'jobid={dd.*}&opcode={data}' bps=20M expire=2h\n"
    "Rules are tried from the newest to the oldest; see qosfs-rules(7).";
/* Of the cluster's rules: these and no others. The manual is checked against this list, too. */
#define CLUSTER_RULE_OPTIONS                                                                       \
    "Options of the rule, which hold for all mounts together:\n"                                   \
    "  rate=N|none         operations a second, to 999999\n"                                       \
    "  bps=BYTES|none      bytes a second: 500K, 20M, 20G\n"                                       \
    "  depth=OPS[:BYTES]   what each mount may save up; auto: what 80 ms bring\n"                  \
    "  per=CLASS           what may have that much each: jobid (the default), uid,\n"              \
    "                      gid or jobid+opcode; or with rule all of them together\n"               \
    "  rank=RULE           its place in the list: just before RULE\n"                              \
    "  expire=TIME|none    it goes by itself: 30s, 10m, 2h, 1d\n"                                  \
    "  dryrun=0|1          it delays nothing, and counts what it would have delayed\n"             \
    "  share=fair|hard     all of it is lent, and paid back; or never more than that\n"            \
    "  floor=N%            of the rates, that the mounts have at once; to 50%\n"                   \
    "  away=floor|open|stop  what a mount has without its lock server\n"

static const char cluster_rule_start_help[] =
    CLUSTER_RULE_OPTIONS "\n"
                         "For example:\n"
                         "  qosfsctl cluster rule start big 'jobid={*}' bps=20G expire=1d\n"
                         "Conditions are those of 'qosfsctl rule start'; see qosfs-rules(7).";
static const char cluster_rule_change_help[] =
    CLUSTER_RULE_OPTIONS "\n"
                         "For example:\n"
                         "  qosfsctl cluster rule change big bps=10G share=hard\n"
                         "See also qosfs-rules(7).";
static const char cluster_job_set_help[] =
    "What the server is told of a job, as by a batch system's prolog:\n"
    "  nodes=N             on how many nodes it runs\n"
    "  weight=N            what one of its nodes weighs\n"
    "  expire=TIME         when it is forgotten: 30s, 2h, 1d or 2026-12-01T12:00:00Z;\n"
    "                      without it after a week\n"
    "\n"
    "For example:\n"
    "  qosfsctl cluster job set 4711 nodes=100 expire=1d";
static const char rule_change_help[] =
    RULE_OPTIONS "\n"
                 "For example:\n"
                 "  qosfsctl rule change hog rate=100 expire=none\n"
                 "See also qosfs-rules(7).";

static const QosCtlCommand commands[] = {
    {"status", NULL, "Show the mount, its policy and what is in it", NULL, 0, 0, TRUE,
     qos_ctl_status},
    {"jobs", NULL, "Show the jobs, the busiest first", NULL, 0, 0, TRUE, qos_ctl_jobs},
    {"why", "JOB", "Explain what a job waited for", NULL, 0, 1, TRUE, qos_ctl_why},
    {"report", NULL, "Draw what the jobs did over time, as a page", NULL, 0, 0, FALSE,
     qos_ctl_report},
    {"clear", "[JOB]", "Forget the totals of a job, or with --all of all", NULL, 0, 1, FALSE,
     qos_ctl_clear},
    {"rule list", NULL, "Show the rules, in the order of matching", NULL, 0, 0, TRUE,
     qos_ctl_rule_list},
    {"rule start", "NAME CONDITIONS [OPTION=VALUE...]", "Add a rule", rule_start_help, 2, G_MAXUINT,
     FALSE, qos_ctl_rule_send},
    {"rule change", "NAME OPTION=VALUE...", "Change a rule's options", rule_change_help, 2,
     G_MAXUINT, FALSE, qos_ctl_rule_send},
    {"rule stop", "NAME", "Remove a rule", NULL, 1, 1, FALSE, qos_ctl_rule_send},
    {"policy", "[NAME]", "Show the policies, or switch to one", NULL, 0, 1, TRUE, qos_ctl_policy},
    {"get", "[NAME]", "Show the settings, or one", NULL, 0, 1, TRUE, qos_ctl_get},
    {"set", "NAME VALUE", "Change a setting", NULL, 1, 2, FALSE, qos_ctl_set},
    {"server status", NULL, "Show a lock server, its pool and its clients", NULL, 0, 0, TRUE,
     qos_ctl_server_status},
    {"server mounts", NULL, "Show the mounts of a lock server, the largest first", NULL, 0, 0, TRUE,
     qos_ctl_server_mounts},
    {"server get", "[NAME]", "Show the settings of a lock server, or one", NULL, 0, 1, TRUE,
     qos_ctl_server_get},
    {"server set", "NAME VALUE", "Change a setting of a lock server", NULL, 1, 2, FALSE,
     qos_ctl_server_set},
    {"server metrics", NULL, "Print a lock server's metrics for Prometheus", NULL, 0, 0, FALSE,
     qos_ctl_server_metrics},
    {"server evict", "ID", "Take all from a mount when its lease ends", NULL, 1, 1, FALSE,
     qos_ctl_server_evict},
    {"cluster status", NULL, "Show the cluster, and the mounts that lack rules", NULL, 0, 0, TRUE,
     qos_ctl_cluster_status},
    {"cluster jobs", NULL, "Show who is served what under the cluster's rules", NULL, 0, 0, TRUE,
     qos_ctl_cluster_jobs},
    {"cluster why", "JOB", "Explain what holds a job on all its mounts", NULL, 0, 1, TRUE,
     qos_ctl_cluster_why},
    {"cluster rule list", NULL, "Show the rules for all mounts together", NULL, 0, 0, TRUE,
     qos_ctl_cluster_rule_list},
    {"cluster rule start", "NAME CONDITIONS [OPTION=VALUE...]", "Add a rule for all mounts",
     cluster_rule_start_help, 2, G_MAXUINT, FALSE, qos_ctl_cluster_rule_send},
    {"cluster rule change", "NAME OPTION=VALUE...", "Change such a rule's options",
     cluster_rule_change_help, 2, G_MAXUINT, FALSE, qos_ctl_cluster_rule_send},
    {"cluster rule stop", "NAME", "Remove such a rule", NULL, 1, 1, FALSE,
     qos_ctl_cluster_rule_send},
    {"cluster rule log", NULL, "Show who changed these rules when", NULL, 0, 0, TRUE,
     qos_ctl_cluster_rule_log},
    {"cluster job list", NULL, "Show what the server was told of jobs", NULL, 0, 0, TRUE,
     qos_ctl_cluster_job_list},
    {"cluster job set", "ID [OPTION=VALUE...]", "Tell the server of a job", cluster_job_set_help, 1,
     G_MAXUINT, FALSE, qos_ctl_cluster_job_send},
    {"cluster job clear", "ID", "Take that back", NULL, 1, 1, FALSE, qos_ctl_cluster_job_send},
    {"cluster forget", "MOUNT", "Take a mount that will not return off the list", NULL, 1, 1, FALSE,
     qos_ctl_cluster_forget},
};

/* The command that the first of `words` name; *ret_count is how many. */
static const QosCtlCommand *find_command(char **words, guint *ret_count)
{
    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        g_auto(GStrv) name = g_strsplit(commands[i].name, " ", -1);
        *ret_count = g_strv_length(name);
        guint same = 0;
        while (same < *ret_count && words[same] && g_str_equal(words[same], name[same]))
            same++;
        if (same == *ret_count)
            return &commands[i];
    }
    return NULL;
}

/* The commands of a group such as "rule" (without it), or the first words of all. Strings are
 * owned. */
static GPtrArray *command_words(const char *group)
{
    g_autofree char *prefix = group ? g_strconcat(group, " ", NULL) : g_strdup("");
    GPtrArray *words = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (!g_str_has_prefix(commands[i].name, prefix))
            continue;
        const char *rest = commands[i].name + strlen(prefix);
        g_autofree char *word = g_strndup(rest, strcspn(rest, " "));
        if (!words->len || !g_str_equal(words->pdata[words->len - 1], word))
            g_ptr_array_add(words, g_steal_pointer(&word));
    }
    return words;
}

static char *join(const GPtrArray *words)
{
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < words->len; i++)
        g_string_append_printf(text, "%s%s", i ? ", " : "", (const char *)words->pdata[i]);
    return g_string_free(text, FALSE);
}

/* The longest beginning of `words` that is a group such as "rule" or "cluster rule"; NULL: none is.
 * *ret_rest is what follows it. Free with g_free. */
static char *find_group(char **words, char ***ret_rest)
{
    g_autofree char *group = NULL;

    for (*ret_rest = words; **ret_rest; ++*ret_rest) {
        g_autofree char *longer = g_strjoin(group ? " " : "", group ? group : "", **ret_rest, NULL);
        g_autoptr(GPtrArray) members = command_words(longer);
        if (!members->len)
            break;
        g_free(group);
        group = g_steal_pointer(&longer);
    }
    return g_steal_pointer(&group);
}

/* `words` name no command: says which there are, below the first words where these are a group. */
static gboolean unknown_command(char **words, GError **error)
{
    char **rest;
    g_autofree char *group = find_group(words, &rest);
    g_autoptr(GPtrArray) candidates = command_words(group);
    g_autofree char *list = join(candidates);
    if (group && !*rest)
        return qos_ctl_usage_error(error, "%s what? One of: %s", group, list);

    /* If the user left the group out, the hint has the full name. */
    for (guint i = 0; !group && i < G_N_ELEMENTS(commands); i++)
        if (strchr(commands[i].name, ' '))
            g_ptr_array_add(candidates, g_strdup(commands[i].name));
    g_autofree char *escaped = qos_ctl_escape(*rest);
    g_autofree char *hint = qos_ctl_hint_of(group, *rest, candidates);
    return qos_ctl_usage_error(error, "there is no command '%s%s%s'%s%s", group ? group : "",
                               group ? " " : "", escaped,
                               *hint ? hint : "; there are: ", *hint ? "" : list);
}

/* Appends the commands with names that begin with `prefix`: one line each, or two, to fit a
 * terminal. */
static void append_commands(GString *text, const char *prefix)
{
    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        const QosCtlCommand *command = &commands[i];
        g_autofree char *synopsis = g_strjoin(" ", command->name, command->parameters, NULL);
        if (!g_str_has_prefix(command->name, prefix))
            continue;
        if (strlen(synopsis) <= SYNOPSIS_WIDTH)
            g_string_append_printf(text, "  %-*s  %s\n", SYNOPSIS_WIDTH, synopsis,
                                   command->summary);
        else
            g_string_append_printf(text, "  %s\n%*s%s\n", synopsis, SYNOPSIS_WIDTH + 4, "",
                                   command->summary);
    }
}

static char *command_list(void)
{
    GString *text = g_string_new("Commands:\n");
    append_commands(text, "");
    g_string_append(text, "\n'qosfsctl COMMAND --help' tells the options of a command; see also\n"
                          "qosfsctl(1) and qosfs-rules(7).");
    return g_string_free(text, FALSE);
}

/* "rule --help": prints the commands of a group. FALSE where `words` do not ask for that. */
static gboolean help_group(char **words)
{
    char **rest;
    g_autofree char *group = find_group(words, &rest);
    if (!group || !*rest || !(g_str_equal(*rest, "--help") || g_str_equal(*rest, "-h")))
        return FALSE;
    g_autofree char *prefix = g_strconcat(group, " ", NULL);
    GString *text = g_string_new(NULL);
    append_commands(text, prefix);
    printf("Commands:\n%s", text->str);
    g_string_free(text, TRUE);
    return TRUE;
}

/* Takes the options before the command off ctl->arguments. */
static gboolean parse_leading_options(QosCtl *ctl, gboolean *ret_version, GError **error)
{
    const GOptionEntry entries[] = {
        {"mount", 'm', 0, G_OPTION_ARG_FILENAME, &ctl->directory, "The mount to talk to", "DIR"},
        {"json", 'j', 0, G_OPTION_ARG_NONE, &ctl->json, "Print JSON", NULL},
        {"version", 'V', 0, G_OPTION_ARG_NONE, ret_version, "Print the version", NULL},
        {NULL}};
    g_autoptr(GOptionContext) context = g_option_context_new("COMMAND [ARGUMENT...]");
    g_autofree char *list = command_list();
    g_option_context_set_summary(context, "Rules and reports of a qosfs mount.");
    g_option_context_set_description(context, list);
    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_strict_posix(context, TRUE);
    qos_words_split(&ctl->arguments, entries);
    return qos_ctl_parse_words(context, (const GOptionEntry *const[]){entries, NULL},
                               &ctl->arguments, error);
}

/* Leaves the program and what follows the first `count` words; "help" becomes --help. */
static void shift(QosCtl *ctl, guint count, gboolean help)
{
    g_autoptr(GStrvBuilder) builder = g_strv_builder_new();
    g_strv_builder_add(builder, ctl->arguments[0]);
    g_strv_builder_addv(builder, (const char **)ctl->arguments + 1 + count);
    if (help)
        g_strv_builder_add(builder, "--help");
    g_strfreev(ctl->arguments);
    ctl->arguments = g_strv_builder_end(builder);
}

static gboolean run(QosCtl *ctl, GError **error)
{
    gboolean version = FALSE;
    guint count;

    if (!parse_leading_options(ctl, &version, error))
        return FALSE;
    if (version) {
        puts("qosfsctl " QOSFS_VERSION);
        return TRUE;
    }
    gboolean help = ctl->arguments[1] && g_str_equal(ctl->arguments[1], "help");
    if (help) {
        shift(ctl, 1, TRUE);
        if (g_str_equal(ctl->arguments[1], "--help"))
            return parse_leading_options(ctl, &version, error);
    }
    if (!ctl->arguments[1])
        return qos_ctl_usage_error(error, "which command?");
    ctl->command = find_command(ctl->arguments + 1, &count);
    if (!ctl->command)
        return help_group(ctl->arguments + 1) || unknown_command(ctl->arguments + 1, error);
    shift(ctl, count, FALSE);
    return ctl->command->run(ctl, error);
}

static QosCtlExit exit_code(const GError *error)
{
    if (error->domain == G_OPTION_ERROR)
        return QOS_CTL_USAGE;
    return g_error_matches(error, QOS_ERROR, ENOENT) ? QOS_CTL_NOT_FOUND : QOS_CTL_FAILED;
}

int main(int argc, char **argv)
{
    QosCtl ctl = {.arguments = g_strdupv(argv)};
    g_autoptr(GError) error = NULL;

    (void)argc;
    setlocale(LC_CTYPE, ""); /* not LC_NUMERIC: numbers are for scripts too */
    g_set_prgname("qosfsctl");
    if (run(&ctl, &error) && (fflush(stdout) || ferror(stdout)))
        qos_set_error(&error, errno, "cannot write: %s", g_strerror(errno));
    QosCtlExit code = error ? exit_code(error) : QOS_CTL_OK;
    if (error) {
        fflush(stdout);
        fprintf(stderr, "%s: %s\n", g_get_prgname(), error->message);
    }
    if (code == QOS_CTL_USAGE)
        fprintf(stderr, "Try '%s --help'.\n", g_get_prgname());
    g_strfreev(ctl.arguments);
    g_free(ctl.directory);
    g_free(ctl.mountpoint);
    g_free(ctl.socket);
    return code;
}
