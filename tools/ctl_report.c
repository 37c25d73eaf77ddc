/*
 * qosfsctl report: the history of the jobs as an HTML page, or as CSV.
 *
 * The build makes one page of tools/report.html, its script and its style (tools/embed.py). This
 * file puts the data into it.
 */
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/time.h"
#include "base/units.h"
#include "tools/ctl.h"
#include "tools/ctl_history.h"
#include "tools/ctl_mount.h"
#include "tools/ctl_state.h"
#include "tools/report_page.h"

#define SINCE_DEFAULT G_GINT64_CONSTANT(86400) /* s */
#define SINCE_LEAST   600 /* s: on a page of less than that there is little to see */
#define SINCE_MIN     60
#define SINCE_MAX     (90 * G_GINT64_CONSTANT(86400)) /* the longest that a mount keeps it */

typedef struct {
    gint64 since; /* s */
    char **jobs;
    char *file;
    gboolean csv;
} ReportOptions;

static gboolean parse_since(const char *option, const char *value, gpointer data, GError **error)
{
    ReportOptions *options = data;
    g_autoptr(GError) reason = NULL;
    QosTime since;

    if (!qos_parse_duration(value, &since, &reason))
        return qos_ctl_usage_error(error, "%s: %s", option, reason->message);
    options->since = since / QOS_SECOND;
    if (options->since < SINCE_MIN || options->since > SINCE_MAX)
        return qos_ctl_usage_error(error, "%s: '%s' is not between a minute and 90 days", option,
                                   value);
    return TRUE;
}

static void append_member(GString *json, const char *name, const char *value)
{
    g_string_append_printf(json, "\"%s\":", name);
    qos_ctl_history_append_string(json, value);
    g_string_append(json, ",\n");
}

static char *make_page(const QosCtl *ctl, const QosCtlHistory *history, gint64 now, gint64 length,
                       GError **error)
{
    g_autoptr(JsonObject) state = qos_ctl_read(ctl, QOS_CTL_STATUS, error);
    if (!state)
        return NULL;
    QosCtlSlices slices = qos_ctl_history_slices(now, length);
    GString *page = g_string_new(report_before);
    g_string_append(page, "{\n");
    append_member(page, "version", qos_ctl_state_text(state, "version"));
    append_member(page, "host", g_get_host_name());
    append_member(page, "source", qos_ctl_state_text(state, "source"));
    append_member(page, "mountpoint", qos_ctl_state_text(state, "mountpoint"));
    g_string_append_printf(page,
                           "\"made\":%" G_GINT64_FORMAT ",\"from\":%" G_GINT64_FORMAT
                           ",\"step\":%" G_GINT64_FORMAT ",\"count\":%u,\n\"jobs\":",
                           now, slices.from, slices.step, slices.count);
    qos_ctl_history_append_jobs(history, &slices, page);
    g_string_append_printf(page, "}%s", report_after);
    return g_string_free(page, FALSE);
}

/* What is no file keeps its place: /dev/null, /dev/stdout, a pipe. */
static gboolean write_into(const char *path, const char *text, GError **error)
{
    FILE *file = fopen(path, "we");
    gboolean good = file && fputs(text, file) >= 0;
    int reason = errno;
    if (file && fclose(file) != 0 && good) {
        good = FALSE;
        reason = errno;
    }
    if (!good)
        qos_set_error(error, reason, "cannot write the report: %s: %s", path, g_strerror(reason));
    return good;
}

/* A file is replaced as a whole, so that nobody sees half of it. GLib's error message names the
 * temporary file, which means nothing to the user, and ends with the text of strerror(3). So only
 * that end is kept. */
static gboolean replace(const char *path, const char *text, GError **error)
{
    g_autoptr(GError) reason = NULL;
    if (g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0666, &reason))
        return TRUE;
    const char *colon = strrchr(reason->message, ':');
    qos_set_error(error, EIO, "cannot write the report: %s%s", path,
                  colon ? colon : reason->message);
    return FALSE;
}

/* Takes over `text`. */
static gboolean put(const ReportOptions *options, char *text, GError **error)
{
    const char *path = options->file;
    GStatBuf status;
    gboolean good = TRUE;
    if (!path)
        fputs(text, stdout);
    else if (g_lstat(path, &status) == 0 && !S_ISREG(status.st_mode))
        good = write_into(path, text, error);
    else
        good = replace(path, text, error);
    g_free(text);
    return good;
}

/* How far back the page goes: no further than the history, where there is one. */
static gint64 page_length(const QosCtlHistory *history, gint64 now, gint64 since)
{
    gint64 begin = qos_ctl_history_begin(history);
    return begin > now ? since : MIN(since, MAX(now - begin, SINCE_LEAST));
}

static gboolean report(const QosCtl *ctl, const ReportOptions *options, GError **error)
{
    gint64 now = g_get_real_time() / G_USEC_PER_SEC;
    g_autofree char *text = qos_ctl_mount_read(ctl->mountpoint, "history", NULL, error);
    g_autoptr(QosCtlHistory) history = text ? qos_ctl_history_parse(text, error) : NULL;
    if (!history || !qos_ctl_history_select(history, now - options->since,
                                            (const char *const *)options->jobs, error))
        return FALSE;
    gint64 length = page_length(history, now, options->since);
    char *made =
        options->csv ? qos_ctl_history_csv(history) : make_page(ctl, history, now, length, error);
    return made && put(options, made, error);
}

gboolean qos_ctl_report(QosCtl *ctl, GError **error)
{
    ReportOptions options = {.since = SINCE_DEFAULT};
    const GOptionEntry entries[] = {
        {"since", 's', 0, G_OPTION_ARG_CALLBACK, (gpointer)parse_since,
         "Go back so long, if there is a history: 1h, 7d (1d)", "TIME"},
        {"job", 'J', 0, G_OPTION_ARG_STRING_ARRAY, &options.jobs,
         "This job alone; may be given again", "JOB"},
        {"csv", 'c', 0, G_OPTION_ARG_NONE, &options.csv, "CSV instead of a page", NULL},
        {"output", 'o', 0, G_OPTION_ARG_FILENAME, &options.file, "Write to FILE", "FILE"},
        {NULL},
    };
    gboolean good = qos_ctl_parse(ctl, entries, &options, error);
    if (good && !options.csv && !options.file && isatty(STDOUT_FILENO))
        good = qos_ctl_usage_error(error, "the report is a page for a browser: name a file with "
                                          "'-o report.html'");
    if (good && options.file && !*options.file)
        good = qos_ctl_usage_error(error, "--output: the name of the file is empty");
    good = good && report(ctl, &options, error);
    g_strfreev(options.jobs);
    g_free(options.file);
    return good;
}
