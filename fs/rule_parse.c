/*
 * Parses the text of a command into its parts. One table says for each option its name, what values
 * it takes, and how these are read. So an error always names the offending text and what is allowed
 * there.
 */
#include "fs/rule_private.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "base/words.h"

#define BLANKS      " \t"
#define NAME_LETTER G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_"

static const char *const verbs[] = {
    [QOS_RULE_START] = "start", [QOS_RULE_CHANGE] = "change", [QOS_RULE_STOP] = "stop"};

static const char *const per_names[] = {
    [QOS_PER_JOBID] = "jobid",
    [QOS_PER_UID] = "uid",
    [QOS_PER_GID] = "gid",
    [QOS_PER_RULE] = "rule",
    [QOS_PER_JOBID_OPCODE] = "jobid+opcode",
    NULL,
};

const char *const qos_rule_scopes[] = {
    [QOS_SCOPE_MOUNT] = "mount", [QOS_SCOPE_CLUSTER] = "cluster", NULL};
const char *const qos_rule_shares[] = {[QOS_RULE_FAIR] = "fair", [QOS_RULE_HARD] = "hard", NULL};
const char *const qos_rule_aways[] = {[QOS_RULE_AWAY_FLOOR] = "floor",
                                      [QOS_RULE_AWAY_OPEN] = "open",
                                      [QOS_RULE_AWAY_STOP] = "stop",
                                      NULL};

const char *qos_per_name(QosPer per)
{
    return per_names[per];
}

/* --- options: each setter writes its fields of command->options, or returns FALSE --- */

static gboolean parse_count(const char *value, gint64 maximum, gint64 *ret_count)
{
    if (strcmp(value, "none") != 0)
        return qos_parse_integer("", value, 1, maximum, ret_count, NULL);
    *ret_count = 0;
    return TRUE;
}

static gboolean parse_amount(const char *value, const char *none, gint64 maximum, gint64 *ret_bytes)
{
    if (strcmp(value, none) != 0)
        return qos_parse_bytes(value, ret_bytes, NULL) && *ret_bytes > 0 && *ret_bytes <= maximum;
    *ret_bytes = 0;
    return TRUE;
}

static gboolean set_rate(QosRuleCommand *command, const char *value)
{
    return parse_count(value, QOS_RATE_MAX, &command->options.rate);
}

static gboolean set_bps(QosRuleCommand *command, const char *value)
{
    return parse_amount(value, "none", QOS_BPS_MAX, &command->options.bps);
}

static gboolean set_depth(QosRuleCommand *command, const char *value)
{
    QosRule *options = &command->options;
    const char *colon = strchr(value, ':');
    g_autofree char *operations =
        colon == NULL ? g_strdup(value) : g_strndup(value, (gsize)(colon - value));

    if (strcmp(operations, "auto") == 0)
        options->depth_ops = 0;
    else if (!qos_parse_integer("", operations, 1, QOS_DEPTH_MAX, &options->depth_ops, NULL))
        return FALSE;
    if (colon == NULL)
        return TRUE;
    command->given |= QOS_OPTION_DEPTH_BYTES;
    return parse_amount(colon + 1, "auto", QOS_DEPTH_BYTES_MAX, &options->depth_bytes);
}

/* The place of `value` in `words`, which NULL ends. */
static gboolean parse_word(const char *const *words, const char *value, guint *ret_place)
{
    for (guint i = 0; words[i] != NULL; i++) {
        if (strcmp(value, words[i]) == 0) {
            *ret_place = i;
            return TRUE;
        }
    }
    return FALSE;
}

static gboolean set_per(QosRuleCommand *command, const char *value)
{
    return parse_word(per_names, value, &command->options.per);
}

static gboolean set_weight(QosRuleCommand *command, const char *value)
{
    return parse_count(value, QOS_WEIGHT_MAX, &command->options.weight);
}

static gboolean set_minimum(QosRuleCommand *command, const char *value)
{
    return parse_count(value, QOS_RATE_MAX, &command->options.minimum);
}

static gboolean set_expire(QosRuleCommand *command, const char *value)
{
    command->options.expires = QOS_NEVER;
    return strcmp(value, "none") == 0 ||
           (qos_parse_duration(value, &command->options.expires, NULL) &&
            command->options.expires > 0);
}

static gboolean parse_switch(const char *value, gboolean *ret_on)
{
    *ret_on = *value == '1';
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
}

static gboolean set_dryrun(QosRuleCommand *command, const char *value)
{
    return parse_switch(value, &command->options.dryrun);
}

static gboolean set_passthrough(QosRuleCommand *command, const char *value)
{
    return parse_switch(value, &command->options.passthrough);
}

static gboolean set_scope(QosRuleCommand *command, const char *value)
{
    return parse_word(qos_rule_scopes, value, &command->options.scope);
}

static gboolean set_share(QosRuleCommand *command, const char *value)
{
    return parse_word(qos_rule_shares, value, &command->options.share);
}

static gboolean set_floor(QosRuleCommand *command, const char *value)
{
    gsize length = strlen(value);
    g_autofree char *number = NULL;
    gint64 percent;

    if (length == 0 || value[length - 1] != '%')
        return FALSE;
    number = g_strndup(value, length - 1);
    if (!qos_parse_integer("", number, 0, QOS_FLOOR_MAX, &percent, NULL))
        return FALSE;
    command->options.floor = (guint)percent;
    return TRUE;
}

static gboolean set_away(QosRuleCommand *command, const char *value)
{
    return parse_word(qos_rule_aways, value, &command->options.away);
}

#define SWITCHES (QOS_OPTION_DRYRUN | QOS_OPTION_PASSTHROUGH) /* alone: =1 */

/* rank= is read apart, because a name has errors of its own. */
static const struct {
    const char *name;
    QosRuleOption option;
    gboolean (*set)(QosRuleCommand *command, const char *value);
    const char *allowed;
} options[] = {
    {"rate", QOS_OPTION_RATE, set_rate, "operations a second from 1 to 999999, or none: no bound"},
    {"bps", QOS_OPTION_BPS, set_bps,
     "bytes a second, such as 500K, 20M or 1.5G, from 1 to 1P, or none: no bound"},
    {"depth", QOS_OPTION_DEPTH, set_depth,
     "OPS or OPS:BYTES, such as 10 or 10:4M, each from 1 to 1000000 or 1P, or auto"},
    {"per", QOS_OPTION_PER, set_per, "jobid, uid, gid, rule or jobid+opcode"},
    {"rank", QOS_OPTION_RANK, NULL, "the name of a rule"},
    {"weight", QOS_OPTION_WEIGHT, set_weight, "a share from 1 to 10000, or none"},
    {"min", QOS_OPTION_MINIMUM, set_minimum, "operations a second from 1 to 999999, or none"},
    {"expire", QOS_OPTION_EXPIRE, set_expire,
     "seconds, or a time such as 30s, 10m, 2h or 1d, or none"},
    {"dryrun", QOS_OPTION_DRYRUN, set_dryrun, "0 or 1"},
    {"passthrough", QOS_OPTION_PASSTHROUGH, set_passthrough, "0 or 1"},
    {"scope", QOS_OPTION_SCOPE, set_scope, "mount or cluster"},
    {"share", QOS_OPTION_SHARE, set_share, "fair or hard"},
    {"floor", QOS_OPTION_FLOOR, set_floor, "a percentage from 0% to 50%, such as 10%"},
    {"away", QOS_OPTION_AWAY, set_away, "floor, open or stop"},
};

/* --- the command --- */

/* The next word at *at, which is moved past it, or NULL at the end. */
static char *take_word(const char **at)
{
    const char *start = *at + strspn(*at, BLANKS);
    gsize length = strcspn(start, BLANKS);

    *at = start + length;
    return length > 0 ? g_strndup(start, length) : NULL;
}

static gboolean parse_name(const char *text, char *ret_name, GError **error)
{
    g_autofree char *quoted = qos_quote(text);
    gsize length = strlen(text);

    if (length > QOS_RULE_NAME_MAX) {
        qos_set_error(error, ENAMETOOLONG, "%s: a rule's name has at most %d characters", quoted,
                      QOS_RULE_NAME_MAX);
        return FALSE;
    }
    if (length == 0) {
        qos_set_error(error, EINVAL, "the name of a rule is missing");
        return FALSE;
    }
    if (strspn(text, NAME_LETTER) != length) {
        qos_set_error(error, EINVAL, "%s: a rule's name consists of A-Z, a-z, 0-9 and _", quoted);
        return FALSE;
    }
    g_strlcpy(ret_name, text, QOS_RULE_NAME_MAX + 1);
    return TRUE;
}

static gboolean unknown_option(QosRuleVerb verb, const char *word, GError **error)
{
    g_autofree char *quoted = qos_quote(word);

    qos_set_error(error, EINVAL,
                  strstr(word, "={") == NULL
                      ? "unknown option %s; options are rate=, bps=, depth=, per=, rank=, weight=, "
                        "min=, expire=, dryrun=, passthrough=, scope=, share=, floor= and away="
                  : verb == QOS_RULE_START
                      ? "%s: conditions are joined by \"&\" (and) or \",\" (or), without a blank"
                      : "%s: the conditions of a rule stay: stop it and start another",
                  quoted);
    return FALSE;
}

/* The place in the table of the option `name`, which ends at `length`; the table's end if there is
 * none. */
static guint find_option(const char *name, gsize length)
{
    guint i = 0;

    while (i < G_N_ELEMENTS(options) &&
           (strlen(options[i].name) != length || strncmp(name, options[i].name, length) != 0))
        i++;
    return i;
}

static gboolean parse_option(QosRuleCommand *command, const char *word, GError **error)
{
    g_autofree char *quoted = qos_quote(word);
    gsize length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    guint i = find_option(word, length);

    if (i == G_N_ELEMENTS(options))
        return unknown_option(command->verb, word, error);
    if (value == NULL)
        value = (options[i].option & SWITCHES) != 0 ? "1" : "";
    if ((command->given & options[i].option) != 0) {
        qos_set_error(error, EINVAL, "%s: %s= is given twice", quoted, options[i].name);
        return FALSE;
    }
    command->given |= options[i].option;
    if (options[i].option == QOS_OPTION_RANK)
        return parse_name(value, command->rank, error);
    if (options[i].set(command, value))
        return TRUE;
    qos_set_error(error, EINVAL, "%s: %s= takes %s", quoted, options[i].name, options[i].allowed);
    return FALSE;
}

/* The verb at *at, after an optional "reg". */
static gboolean parse_verb(QosRuleCommand *command, const char **at, GError **error)
{
    g_autofree char *word = take_word(at);
    g_autofree char *quoted = NULL;

    if (g_strcmp0(word, "reg") == 0) {
        g_free(word);
        word = take_word(at);
    }
    for (guint i = 0; word != NULL && i < G_N_ELEMENTS(verbs); i++) {
        if (strcmp(word, verbs[i]) == 0) {
            command->verb = i;
            return TRUE;
        }
    }
    quoted = qos_quote(word == NULL ? "" : word);
    qos_set_error(error, EINVAL, "%s: a command begins with start, change or stop", quoted);
    return FALSE;
}

static gboolean parse_conditions(QosRuleCommand *command, const char **at, GError **error)
{
    *at += strspn(*at, BLANKS);
    command->condition = qos_condition_parse(at, error);
    if (command->condition == NULL)
        return FALSE;
    if (**at != '\0' && strchr(BLANKS, **at) == NULL) {
        g_autofree char *quoted = qos_quote(*at);

        qos_set_error(error, EINVAL, "expected a blank, \"&\" or \",\" after the conditions at %s",
                      quoted);
        return FALSE;
    }
    return TRUE;
}

static gboolean parse_options(QosRuleCommand *command, const char *at, GError **error)
{
    for (;;) {
        g_autofree char *word = take_word(&at);

        if (word == NULL)
            break;
        if (command->verb == QOS_RULE_STOP) {
            g_autofree char *quoted = qos_quote(word);

            qos_set_error(error, EINVAL, "%s: stop takes the name of one rule, and no more",
                          quoted);
            return FALSE;
        }
        if (!parse_option(command, word, error))
            return FALSE;
    }
    if (command->verb == QOS_RULE_CHANGE && command->given == 0) {
        qos_set_error(error, EINVAL, "change %s: to what? Give an option, such as rate=100",
                      command->name);
        return FALSE;
    }
    return TRUE;
}

/* Refuses what a message, a list or a terminal could not show. */
static gboolean check_characters(const char *text, GError **error)
{
    if (!g_utf8_validate(text, -1, NULL)) {
        qos_set_error(error, EINVAL, "the command is not UTF-8");
        return FALSE;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (g_ascii_iscntrl(*at) && *at != '\t') {
            qos_set_error(error, EINVAL,
                          "the command has a control character (0x%02x) at byte %" G_GSIZE_FORMAT
                          "; give one command at a time",
                          (guint)*at, (gsize)(at - text));
            return FALSE;
        }
    }
    return TRUE;
}

gboolean qos_rule_command_parse(QosRuleCommand *command, const char *text, GError **error)
{
    g_autofree char *line = g_strstrip(g_strdup(text));
    g_autofree char *name = NULL;
    const char *at = line;

    *command = (QosRuleCommand){.options.expires = QOS_NEVER};
    if (!check_characters(line, error) || !parse_verb(command, &at, error))
        return FALSE;
    name = take_word(&at);
    return parse_name(name == NULL ? "" : name, command->name, error) &&
           (command->verb != QOS_RULE_START || parse_conditions(command, &at, error)) &&
           parse_options(command, at, error);
}

void qos_rule_command_clear(QosRuleCommand *command)
{
    g_clear_pointer(&command->condition, qos_condition_unref);
}
