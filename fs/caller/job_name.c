/*
 * Makes the JobID of a process from what /proc says of it. fs/caller/job_name.h has the rules.
 *
 * This takes two steps. First the job is found: in a variable, or by a match in the cgroup. Then
 * the format is expanded. The format is checked when the naming is made, so expanding it can fail
 * only if something about the process is not known.
 *
 * All input is under the caller's control. Environments may lack the last NUL, have a megabyte, or
 * contain names that are prefixes of others and control characters in values. So the work is
 * bounded by the length of the input, and the result is short, printable and valid UTF-8.
 */
#include "fs/caller/job_name.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "fs/jobs.h"

#define PROCNAME_UID   "%e.%u"
#define DISABLED_ID    "-"
#define NODE_COUNT_MAX 10000000

typedef enum {
    FROM_VARIABLE,
    FROM_CGROUP,
    FROM_NOTHING, /* nodelocal, procname_uid: the format alone */
    DISABLED,
} JobSource;

struct QosJobNaming {
    gint references; /* atomic */
    JobSource source;
    char *var;
    char *name;
    const char *format;           /* what is expanded: `name`, or that of procname_uid */
    const char *const *variables; /* FROM_VARIABLE: in order of preference, ended by NULL */
    const char *own_variable[2];  /* `variables` for a single one */
    GRegex *regex;                /* FROM_CGROUP */
    char *host;
    char *short_host;
};

static const char *const auto_variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
                                             "FLUX_JOB_ID",  "JOB_ID",    NULL};
static const char *const node_variables[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NUM_NODES",
                                             "FLUX_JOB_NNODES", NULL};

/* --- the format --- */

typedef struct {
    char code; /* the letter; 'j' with `otherwise` for "%j?" */
    gboolean otherwise;
    glong limit; /* characters */
} Code;

/* Reads the code that starts after the percent sign at `text`; returns what follows, NULL where it
 * is none. */
static const char *read_code(const char *text, Code *ret_code)
{
    glong limit = G_MAXLONG;

    if (*text == '.') {
        if (!g_ascii_isdigit(*++text))
            return NULL;
        for (limit = 0; g_ascii_isdigit(*text); text++)
            limit = MIN(limit * 10 + (*text - '0'), QOS_JOB_ID_MAX + 1);
    }
    if (!*text || !strchr("eghHjpu%", *text))
        return NULL;
    *ret_code =
        (Code){.code = *text, .limit = limit, .otherwise = text[0] == 'j' && text[1] == '?'};
    return text + (ret_code->otherwise ? 2 : 1);
}

static gboolean check_format(const char *format, GError **error)
{
    if (!*format) {
        qos_set_error(error, EINVAL, "jobid_name is empty");
        return FALSE;
    }
    for (const char *at = format; *at;) {
        Code code;

        if (g_ascii_iscntrl(*at)) {
            qos_set_error(error, EINVAL, "jobid_name has a control character");
            return FALSE;
        }
        if (*at++ != '%')
            continue;
        at = read_code(at, &code);
        if (!at) {
            qos_set_error(
                error, EINVAL,
                "jobid_name \"%s\": unknown code; there are %%e %%g %%h %%H %%j %%p %%u %%%%, "
                "%%.Nx and %%j?",
                format);
            return FALSE;
        }
    }
    return TRUE;
}

/* Printable, and not what many programs take for the end of a line. */
static gboolean is_of_a_line(gunichar character)
{
    GUnicodeType type = g_unichar_type(character);

    return g_unichar_isprint(character) && type != G_UNICODE_LINE_SEPARATOR &&
           type != G_UNICODE_PARAGRAPH_SEPARATOR;
}

/* Appends up to `limit` characters of `text`, and no more than shows that the id is too long. */
static void append_printable(GString *id, const char *text, glong limit)
{
    while (*text && limit-- > 0 && id->len <= QOS_JOB_ID_MAX) {
        gunichar character = g_utf8_get_char_validated(text, -1);
        gboolean valid = character != (gunichar)-1 && character != (gunichar)-2;

        g_string_append_unichar(id, valid && is_of_a_line(character) ? character : '?');
        text = valid ? g_utf8_next_char(text) : text + 1;
    }
}

/* The text that a code stands for, made in `number` where it is one; NULL where it is not known. */
static const char *code_text(char code, const QosJobNaming *naming, const QosProcess *process,
                             const char *job, char number[16])
{
    switch (code) {
    case 'e':
        return process->comm;
    case 'h':
        return naming->host;
    case 'H':
        return naming->short_host;
    case 'j':
        return job ? job : "";
    case 'g':
        g_snprintf(number, 16, "%u", process->gid);
        return number;
    case 'u':
        g_snprintf(number, 16, "%u", process->uid);
        return number;
    case 'p':
        g_snprintf(number, 16, "%d", process->pid);
        return process->pid ? number : NULL;
    default:
        return "%";
    }
}

/* FALSE where the format asks for something that is not known. `job`: NULL = none. */
static gboolean expand(const char *format, const QosJobNaming *naming, const QosProcess *process,
                       const char *job, GString *id)
{
    while (*format) {
        gsize literal = strcspn(format, "%");
        Code code;
        char number[16];
        const char *text;

        if (literal > 0) {
            g_autofree char *part = g_strndup(format, literal);

            append_printable(id, part, G_MAXLONG);
            format += literal;
            continue;
        }
        format = read_code(format + 1, &code);
        text = code_text(code.code, naming, process, job, number);
        if (!text)
            return FALSE;
        append_printable(id, text, code.limit);
        if (code.otherwise && job)
            break;
    }
    return TRUE;
}

/* --- the job --- */

/* The value of a variable, as getenv(3) finds it: the first of that whole name; NULL where it is
 * not set or empty. */
static char *environment_value(const QosProcess *process, const char *name)
{
    const char *at = process->environment;
    const char *end = at ? at + process->environment_length : NULL;
    gsize name_length = strlen(name);

    while (at < end) {
        gsize length = strnlen(at, (gsize)(end - at));

        if (length > name_length && at[name_length] == '=' && memcmp(at, name, name_length) == 0) {
            gsize skip = name_length + 1;

            return length > skip ? g_strndup(at + skip, length - skip) : NULL;
        }
        at += length + 1;
    }
    return NULL;
}

static char *job_from_environment(const QosJobNaming *naming, const QosProcess *process)
{
    for (const char *const *variable = naming->variables; *variable; variable++) {
        char *job = environment_value(process, *variable);

        if (job)
            return job;
    }
    return NULL;
}

static char *job_from_cgroup(const QosJobNaming *naming, const QosProcess *process)
{
    g_autoptr(GMatchInfo) match = NULL;
    gint groups;

    if (!process->cgroup || !g_regex_match(naming->regex, process->cgroup, 0, &match))
        return NULL;
    groups = g_match_info_get_match_count(match);
    for (gint group = 1; group <= groups; group++) {
        /* The last turn is for the whole match, group 0. */
        g_autofree char *job = g_match_info_fetch(match, group % groups);

        if (job && *job)
            return g_steal_pointer(&job);
    }
    return NULL;
}

/* The number of different hosts in LSB_HOSTS, which names one for each slot. */
static guint count_hosts(const char *text)
{
    g_autoptr(GHashTable) hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_auto(GStrv) words = g_strsplit_set(text, " \t", -1);

    for (char **word = words; *word; word++)
        if (**word)
            g_hash_table_add(hosts, g_strdup(*word));
    return MIN(g_hash_table_size(hosts), NODE_COUNT_MAX);
}

static guint node_count(const QosProcess *process)
{
    g_autofree char *hosts = NULL;

    for (const char *const *variable = node_variables; *variable; variable++) {
        g_autofree char *text = environment_value(process, *variable);
        guint64 nodes;

        if (text && g_ascii_string_to_unsigned(text, 10, 1, NODE_COUNT_MAX, &nodes, NULL))
            return (guint)nodes;
    }
    hosts = environment_value(process, "LSB_HOSTS");
    return hosts ? count_hosts(hosts) : 0;
}

/* Shortens a valid UTF-8 string to QOS_JOB_ID_MAX bytes, or to the end of the character before. */
static gboolean cut(GString *id)
{
    gsize length = QOS_JOB_ID_MAX;

    if (id->len <= length)
        return FALSE;
    while (((guchar)id->str[length] & 0xc0) == 0x80)
        length--;
    g_string_truncate(id, length);
    return TRUE;
}

char *qos_job_find(const QosJobNaming *naming, const QosProcess *process, guint *ret_nodes)
{
    char *job;

    *ret_nodes = 0;
    if (naming->source == FROM_CGROUP)
        return job_from_cgroup(naming, process);
    if (naming->source != FROM_VARIABLE)
        return NULL;
    job = job_from_environment(naming, process);
    if (job != NULL)
        *ret_nodes = node_count(process);
    return job;
}

gboolean qos_job_name(const QosJobNaming *naming, const QosProcess *process, const char *job,
                      char *ret_id)
{
    g_autoptr(GString) id = g_string_sized_new(QOS_JOB_ID_MAX + 8);
    gboolean known, is_cut;

    if (naming->source == DISABLED) {
        g_strlcpy(ret_id, DISABLED_ID, QOS_JOB_ID_MAX + 1);
        return FALSE;
    }
    known = expand(naming->format, naming, process, job, id);
    if (known && id->len == 0)
        known = expand(PROCNAME_UID, naming, process, NULL, id);
    if (!known)
        g_string_printf(id, "%u", process->uid);
    is_cut = cut(id);
    g_strlcpy(ret_id, id->str, QOS_JOB_ID_MAX + 1);
    return is_cut;
}

gboolean qos_job_name_process(const QosJobNaming *naming, const QosProcess *process, char *ret_id,
                              guint *ret_nodes)
{
    g_autofree char *job = qos_job_find(naming, process, ret_nodes);

    return qos_job_name(naming, process, job, ret_id);
}

/* --- the naming --- */

static gboolean is_variable_name(const char *text)
{
    if (!g_ascii_isalpha(*text) && *text != '_')
        return FALSE;
    while (g_ascii_isalnum(*text) || *text == '_')
        text++;
    return !*text;
}

/* Sets what jobid_var stands for. */
static gboolean set_source(QosJobNaming *naming, GError **error)
{
    const char *var = naming->var;
    const char *pattern;

    naming->format = naming->name;
    naming->source = FROM_VARIABLE;
    if (g_str_equal(var, "auto")) {
        naming->variables = auto_variables;
    } else if (g_str_equal(var, "nodelocal")) {
        naming->source = FROM_NOTHING;
    } else if (g_str_equal(var, "procname_uid")) {
        naming->source = FROM_NOTHING;
        naming->format = PROCNAME_UID;
    } else if (g_str_equal(var, "disable")) {
        naming->source = DISABLED;
    } else if (g_str_has_prefix(var, "cgroup:")) {
        g_autoptr(GError) reason = NULL;

        naming->source = FROM_CGROUP;
        pattern = var + strlen("cgroup:");
        naming->regex =
            *pattern ? g_regex_new(pattern, G_REGEX_RAW | G_REGEX_MULTILINE | G_REGEX_OPTIMIZE, 0,
                                   &reason)
                     : NULL;
        if (!naming->regex) {
            qos_set_error(error, EINVAL, "jobid_var \"%s\": %s", var,
                          reason ? reason->message : "the regular expression is empty");
            return FALSE;
        }
    } else if (is_variable_name(var) && !g_str_equal(var, "session")) { /* Lustre's, not built */
        naming->own_variable[0] = var;
        naming->variables = naming->own_variable;
    } else {
        qos_set_error(
            error, EINVAL,
            "jobid_var \"%s\": expected auto, cgroup:REGEX, nodelocal, procname_uid, disable or "
            "the name of an environment variable",
            var);
        return FALSE;
    }
    return TRUE;
}

QosJobNaming *qos_job_naming_new(const char *jobid_var, const char *jobid_name, const char *host,
                                 GError **error)
{
    g_autoptr(QosJobNaming) naming = NULL;

    if (!check_format(jobid_name, error))
        return NULL;
    naming = g_new0(QosJobNaming, 1);
    naming->references = 1;
    naming->var = g_strdup(jobid_var);
    naming->name = g_strdup(jobid_name);
    naming->host = g_strdup(host);
    naming->short_host = g_strndup(host, strcspn(host, "."));
    if (!set_source(naming, error))
        return NULL;
    return g_steal_pointer(&naming);
}

QosJobNaming *qos_job_naming_ref(QosJobNaming *naming)
{
    g_atomic_int_inc(&naming->references);
    return naming;
}

void qos_job_naming_unref(QosJobNaming *naming)
{
    if (!naming || !g_atomic_int_dec_and_test(&naming->references))
        return;
    g_clear_pointer(&naming->regex, g_regex_unref);
    g_free(naming->var);
    g_free(naming->name);
    g_free(naming->host);
    g_free(naming->short_host);
    g_free(naming);
}

QosProcWants qos_job_naming_wants(const QosJobNaming *naming)
{
    switch (naming->source) {
    case FROM_VARIABLE:
        return QOS_PROC_PROGRAM | QOS_PROC_IMAGE | QOS_PROC_ENVIRONMENT;
    case FROM_CGROUP:
        return QOS_PROC_PROGRAM | QOS_PROC_CGROUP;
    case FROM_NOTHING: /* a program has its name */
        return QOS_PROC_PROGRAM;
    default:
        return 0;
    }
}

gboolean qos_job_naming_finds_the_same(const QosJobNaming *naming, const QosJobNaming *other)
{
    return g_str_equal(naming->var, other->var);
}
