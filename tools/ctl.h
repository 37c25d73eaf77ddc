/*
 * qosfsctl's commands, and what they share: options, the mount, the exit code.
 *
 * A command is a row of the table in qosfsctl.c and a function run(), which names its options, has
 * the command line parsed by qos_ctl_parse(), asks the mount (ctl_mount.h) and prints
 * (ctl_render.h).
 */
#pragma once

#include <json-glib/json-glib.h>

#include "base/time.h"
#include "tools/ctl_text.h"

/* Exit codes; qosfsctl(1) explains them. */
typedef enum {
    QOS_CTL_OK = 0,
    QOS_CTL_FAILED = 1,    /* the mount refused, or could not be asked */
    QOS_CTL_USAGE = 2,     /* the command line is wrong (G_OPTION_ERROR) */
    QOS_CTL_NOT_FOUND = 3, /* no such job, rule, policy, setting or mount (ENOENT) */
} QosCtlExit;

typedef struct QosCtl QosCtl;

typedef struct {
    const char *name;       /* one word to three */
    const char *parameters; /* as --help shows them; NULL = none */
    const char *summary;
    const char *details; /* what --help says below the options; NULL = nothing */
    guint minimum;       /* how many arguments */
    guint maximum;
    gboolean json; /* has --json */
    gboolean (*run)(QosCtl *ctl, GError **error);
} QosCtlCommand;

struct QosCtl {
    const QosCtlCommand *command;
    char **arguments; /* owned; the program first, after qos_ctl_parse() the command's arguments
                         alone */
    char *directory;  /* owned; -m, or NULL */
    char *mountpoint; /* owned; found by qos_ctl_parse(), but for `server` and `cluster` */
    char *socket;     /* owned; --socket, of commands for a server or a cluster */
    gboolean json;
};

/* Sets `error` to one of usage (G_OPTION_ERROR). Always FALSE. */
gboolean qos_ctl_usage_error(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Parses `words` (owned, replaced) as g_option_context_parse_strv() does, where `tables` (which end
 * with NULL) are the context's options. Exits for --help. */
gboolean qos_ctl_parse_words(GOptionContext *context, const GOptionEntry *const *tables,
                             char ***words, GError **error);
/*
 * Parses ctl->arguments by the command's row and its own `options` (ended by {NULL}; may be NULL),
 * and finds the mount, where it is for one; a command of `cluster` looks for one itself. `data` is
 * given to callbacks. Exits for --help.
 */
gboolean qos_ctl_parse(QosCtl *ctl, const GOptionEntry *options, gpointer data, GError **error);
/* What a command with a table has in common with others: QOS_CTL_WATCH_OPTION, with
 * the struct as qos_ctl_parse()'s `data`, and --limit. */
typedef struct {
    QosTime watch; /* the interval, 0 = once */
    gint limit;    /* how many rows, 0 = all; >= 0 if qos_ctl_check_limit() says so */
} QosCtlTableOptions;
gboolean qos_ctl_parse_watch(const char *option, const char *value, gpointer data, GError **error);
gboolean qos_ctl_check_limit(const QosCtlTableOptions *options, GError **error);
#define QOS_CTL_WATCH_OPTION                                                                       \
    {                                                                                              \
        "watch", 'w', G_OPTION_FLAG_OPTIONAL_ARG, G_OPTION_ARG_CALLBACK,                           \
            (gpointer)qos_ctl_parse_watch, "Show a live table, anew every SECONDS (2)", "SECONDS"  \
    }
/* Shows the table once, or again and again until interrupted. `show` prints it. */
gboolean qos_ctl_watch(const QosCtlTableOptions *options,
                       gboolean (*show)(gpointer data, GError **), gpointer data, GError **error);
/* Before a live table: it has the screen for itself. How many rows there is room for, at most
 * `limit`; 0: all. Two lines are left for a headline and the header. */
guint qos_ctl_begin_screen(const QosCtlStyle *style, guint limit);

/* An argument, from 0; NULL beyond the last. */
const char *qos_ctl_argument(const QosCtl *ctl, guint index);

/* The arguments NAME VALUE, or NAME=VALUE as `get` prints it. The name is the caller's to free, the
 * value is borrowed of the arguments. */
gboolean qos_ctl_take_setting(const QosCtl *ctl, char **ret_name, const char **ret_value,
                              GError **error);

/* Sets `error` to QOS_ERROR ENOENT: there is no `what` of that name, but of `names` (const char *)
 * those like it, or else `advice`. Always FALSE. */
gboolean qos_ctl_no_such(GError **error, const char *what, const char *name, const GPtrArray *names,
                         const char *advice);
/* Is the setting among `tunables`, which the command `lister` lists? Errors as of
 * qos_ctl_no_such(). */
gboolean qos_ctl_check_setting(JsonObject *tunables, const char *name, const char *lister,
                               GError **error);

/* The files of .qosfs with the mount's state: all of it, and parts, because of thousands of jobs it
 * is megabytes. What a part leaves out is an empty list. */
#define QOS_CTL_STATE  "state.json"
#define QOS_CTL_STATUS "status.json" /* neither rules nor jobs */
#define QOS_CTL_RULES  "rules.json"  /* no jobs */
#define QOS_CTL_JOBS   "jobs.json"   /* no rules; of the jobs what a list shows */
/* Reads one of these; a new reference. A mount of an older version has the whole alone, and that is
 * read. */
JsonObject *qos_ctl_read(const QosCtl *ctl, const char *file, GError **error);
/* The state with this job alone, and the rules that it waited for. NULL without an error: the mount
 * knows no such job, or is of an older version. */
JsonObject *qos_ctl_read_job(const QosCtl *ctl, const char *id, GError **error);
/* Parses, and reads QOS_CTL_STATUS, for a command without options of its own. */
JsonObject *qos_ctl_parse_and_read(QosCtl *ctl, GError **error);
/* Prints and frees. */
void qos_ctl_print(char *text);
/* Prints as JSON and frees `node`: indented; as one line where `compact`. */
void qos_ctl_print_json(JsonNode *node, gboolean compact);
/* How standard output wants its text. */
QosCtlStyle qos_ctl_style(void);

/* ctl_rule.c */
gboolean qos_ctl_rule_list(QosCtl *ctl, GError **error);
gboolean qos_ctl_rule_send(QosCtl *ctl, GError **error); /* start, change, stop */
/* ctl_job.c */
gboolean qos_ctl_jobs(QosCtl *ctl, GError **error);
gboolean qos_ctl_why(QosCtl *ctl, GError **error);
gboolean qos_ctl_clear(QosCtl *ctl, GError **error);
/* ctl_report.c */
gboolean qos_ctl_report(QosCtl *ctl, GError **error);
/* ctl_server.c */
gboolean qos_ctl_server_status(QosCtl *ctl, GError **error);
gboolean qos_ctl_server_mounts(QosCtl *ctl, GError **error);
gboolean qos_ctl_server_get(QosCtl *ctl, GError **error);
gboolean qos_ctl_server_set(QosCtl *ctl, GError **error);
gboolean qos_ctl_server_metrics(QosCtl *ctl, GError **error);
gboolean qos_ctl_server_evict(QosCtl *ctl, GError **error);
/* ctl_cluster.c */
gboolean qos_ctl_cluster_rule_send(QosCtl *ctl, GError **error); /* start, change, stop */
gboolean qos_ctl_cluster_rule_list(QosCtl *ctl, GError **error);
gboolean qos_ctl_cluster_rule_log(QosCtl *ctl, GError **error);
gboolean qos_ctl_cluster_status(QosCtl *ctl, GError **error);
gboolean qos_ctl_cluster_jobs(QosCtl *ctl, GError **error);
gboolean qos_ctl_cluster_why(QosCtl *ctl, GError **error);
gboolean qos_ctl_cluster_job_send(QosCtl *ctl, GError **error); /* set, clear */
gboolean qos_ctl_cluster_job_list(QosCtl *ctl, GError **error);
gboolean qos_ctl_cluster_forget(QosCtl *ctl, GError **error);
/* ctl_settings.c */
gboolean qos_ctl_status(QosCtl *ctl, GError **error);
gboolean qos_ctl_policy(QosCtl *ctl, GError **error);
gboolean qos_ctl_get(QosCtl *ctl, GError **error);
gboolean qos_ctl_set(QosCtl *ctl, GError **error);
