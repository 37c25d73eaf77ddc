/*
 * Conditions of rules: an "or" of "and"s of terms. A term matches if one of its values does.
 */
#include "fs/rule_private.h"

#include <errno.h>
#include <string.h>

#include "base/box.h"
#include "base/error.h"
#include "base/pattern.h"
#include "base/words.h"

typedef struct {
    guint32 low, high; /* both included */
} IdRange;

/* FIELD={VALUE ...}; of the values, the kind that the field has. */
typedef struct {
    QosField field;
    GPtrArray *patterns; /* of QosPattern */
    GArray *ranges;      /* of IdRange */
    QosOpcodeSet opcodes;
} Term;

struct QosCondition {
    char *text;
    guint fields;
    GPtrArray *alternatives; /* of GPtrArray of Term */
};

static const struct {
    const char *name;
    QosField field;
} fields[] = {
    {"jobid", QOS_FIELD_JOBID},   {"uid", QOS_FIELD_UID},   {"gid", QOS_FIELD_GID},
    {"opcode", QOS_FIELD_OPCODE}, {"host", QOS_FIELD_HOST},
};

static void term_free(Term *term)
{
    g_ptr_array_unref(term->patterns);
    g_array_unref(term->ranges);
    g_free(term);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Term, term_free)

static Term *term_new(QosField field)
{
    Term *term = g_new0(Term, 1);

    term->field = field;
    term->patterns = g_ptr_array_new_with_free_func((GDestroyNotify)qos_pattern_free);
    term->ranges = g_array_new(FALSE, FALSE, sizeof(IdRange));
    return term;
}

static void condition_clear(QosCondition *condition)
{
    g_free(condition->text);
    g_ptr_array_unref(condition->alternatives);
}

QosCondition *qos_condition_ref(QosCondition *condition)
{
    return qos_box_ref(condition);
}

void qos_condition_unref(QosCondition *condition)
{
    if (condition != NULL)
        qos_box_unref(condition, (GDestroyNotify)condition_clear);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosCondition, qos_condition_unref)

const char *qos_condition_text(const QosCondition *condition)
{
    return condition->text;
}

guint qos_condition_fields(const QosCondition *condition)
{
    return condition->fields;
}

/* --- parsing --- */

/* A number at *at, which is moved past it. */
static gboolean take_id(const char **at, guint32 *ret_id)
{
    guint64 value = 0;

    if (!g_ascii_isdigit(**at))
        return FALSE;
    for (; g_ascii_isdigit(**at) && value <= G_MAXUINT32; (*at)++)
        value = value * 10 + (guint64)(**at - '0');
    *ret_id = (guint32)value;
    return value <= G_MAXUINT32;
}

/* "N", "LOW-HIGH", either in brackets, or "*". */
static gboolean parse_ids(const char *value, IdRange *ret_range)
{
    gboolean bracket = *value == '[';
    const char *at = value + bracket;

    if (strcmp(value, "*") == 0) {
        *ret_range = (IdRange){0, G_MAXUINT32};
        return TRUE;
    }
    if (!take_id(&at, &ret_range->low))
        return FALSE;
    ret_range->high = ret_range->low;
    if (*at == '-') {
        at++;
        if (!take_id(&at, &ret_range->high))
            return FALSE;
    }
    return strcmp(at, bracket ? "]" : "") == 0 && ret_range->low <= ret_range->high;
}

static gboolean add_ids(Term *term, const char *value, GError **error)
{
    IdRange range;

    if (!parse_ids(value, &range)) {
        qos_set_error(error, EINVAL, "\"%s\": expected a number, LOW-HIGH, [LOW-HIGH] or *", value);
        return FALSE;
    }
    g_array_append_val(term->ranges, range);
    return TRUE;
}

static gboolean add_opcode(Term *term, const char *value, GError **error)
{
    QosOpcodeSet opcodes = qos_opcode_set_from_name(value, strlen(value));
    g_autoptr(GString) known = g_string_new("data meta *");

    if (opcodes == 0) {
        for (guint i = 0; i < QOS_OP_COUNT; i++)
            g_string_append_printf(known, " %s", qos_opcode_name(i));
        qos_set_error(error, EINVAL, "\"%s\": unknown operation; there are: %s", value, known->str);
        return FALSE;
    }
    term->opcodes |= opcodes;
    return TRUE;
}

static gboolean add_pattern(Term *term, const char *value, GError **error)
{
    QosPattern *pattern = qos_pattern_new(value, strlen(value), error);

    if (pattern != NULL)
        g_ptr_array_add(term->patterns, pattern);
    return pattern != NULL;
}

static gboolean add_value(Term *term, const char *value, GError **error)
{
    if (strlen(value) > QOS_VALUE_MAX) {
        g_autofree char *quoted = qos_quote(value);

        qos_set_error(error, EINVAL, "%s is longer than %d bytes", quoted, QOS_VALUE_MAX);
        return FALSE;
    }
    switch (term->field) {
    case QOS_FIELD_UID:
    case QOS_FIELD_GID:
        return add_ids(term, value, error);
    case QOS_FIELD_OPCODE:
        return add_opcode(term, value, error);
    case QOS_FIELD_JOBID:
    case QOS_FIELD_HOST:
        return add_pattern(term, value, error);
    }
    g_return_val_if_reached(FALSE);
}

/* FIELD "={" at *at, which is moved past it. The field's name, or NULL. */
static const char *take_field(const char **at, QosField *ret_field)
{
    for (guint i = 0; i < G_N_ELEMENTS(fields); i++) {
        gsize length = strlen(fields[i].name);

        if (strncmp(*at, fields[i].name, length) == 0 && g_str_has_prefix(*at + length, "={")) {
            *at += length + strlen("={");
            *ret_field = fields[i].field;
            return fields[i].name;
        }
    }
    return NULL;
}

/* FIELD={VALUE ...} at *at, which is moved past it; its normal form is added to `text`. */
static Term *parse_term(const char **at, GString *text, GError **error)
{
    g_autoptr(Term) term = NULL;
    g_autofree char *quoted = qos_quote(*at);
    g_auto(GStrv) values = NULL;
    g_autofree char *inside = NULL;
    QosField field;
    gsize length;
    const char *name = take_field(at, &field);
    const char *separator = "";

    if (name == NULL) {
        qos_set_error(error, EINVAL,
                      "expected conditions FIELD={VALUE ...} at %s; fields are jobid, uid, gid, "
                      "opcode and host%s",
                      quoted,
                      g_str_has_prefix(*at, "nid=")
                          ? " (a mount serves one node, so that there is no nid)"
                          : "");
        return NULL;
    }
    length = strcspn(*at, "{}");
    if ((*at)[length] != '}') {
        qos_set_error(error, EINVAL, "\"{\" without \"}\" at %s", quoted);
        return NULL;
    }
    inside = g_strndup(*at, length);
    values = g_strsplit_set(inside, " \t", -1);
    *at += length + 1;
    term = term_new(field);
    g_string_append_printf(text, "%s={", name);
    for (guint i = 0; values[i] != NULL; i++) {
        if (*values[i] == '\0') /* between two blanks */
            continue;
        if (!add_value(term, values[i], error)) {
            g_prefix_error(error, "%s: ", name);
            return NULL;
        }
        g_string_append_printf(text, "%s%s", separator, values[i]);
        separator = " ";
    }
    if (*separator == '\0') {
        qos_set_error(error, EINVAL, "no value in the braces at %s", quoted);
        return NULL;
    }
    g_string_append_c(text, '}');
    return g_steal_pointer(&term);
}

/* Takes `separator`, with blanks around it, at *at. */
static gboolean take_separator(const char **at, char separator, GString *text)
{
    const char *next = *at + strspn(*at, " \t");

    if (*next != separator)
        return FALSE;
    next++;
    *at = next + strspn(next, " \t");
    g_string_append_c(text, separator);
    return TRUE;
}

static GPtrArray *parse_alternative(const char **at, GString *text, guint *seen, GError **error)
{
    g_autoptr(GPtrArray) terms = g_ptr_array_new_with_free_func((GDestroyNotify)term_free);

    do {
        Term *term = parse_term(at, text, error);

        if (term == NULL)
            return NULL;
        *seen |= term->field;
        g_ptr_array_add(terms, term);
    } while (take_separator(at, '&', text));
    return g_steal_pointer(&terms);
}

QosCondition *qos_condition_parse(const char **at, GError **error)
{
    g_autoptr(QosCondition) condition = qos_box_new0(sizeof(QosCondition));
    g_autoptr(GString) text = g_string_new(NULL);

    condition->alternatives = g_ptr_array_new_with_free_func((GDestroyNotify)g_ptr_array_unref);
    do {
        GPtrArray *terms = parse_alternative(at, text, &condition->fields, error);

        if (terms == NULL)
            return NULL;
        g_ptr_array_add(condition->alternatives, terms);
    } while (take_separator(at, ',', text));
    condition->text = g_string_free(g_steal_pointer(&text), FALSE);
    return g_steal_pointer(&condition);
}

/* --- matching --- */

static gboolean any_pattern(const Term *term, const char *text)
{
    for (guint i = 0; i < term->patterns->len; i++) {
        if (qos_pattern_matches(term->patterns->pdata[i], text))
            return TRUE;
    }
    return FALSE;
}

static gboolean any_range(const Term *term, guint32 id)
{
    for (guint i = 0; i < term->ranges->len; i++) {
        const IdRange *range = &g_array_index(term->ranges, IdRange, i);

        if (id >= range->low && id <= range->high)
            return TRUE;
    }
    return FALSE;
}

static gboolean term_matches(const Term *term, const QosRuleSubject *subject)
{
    switch (term->field) {
    case QOS_FIELD_JOBID:
        return any_pattern(term, subject->job);
    case QOS_FIELD_HOST:
        return any_pattern(term, subject->host);
    case QOS_FIELD_UID:
        return any_range(term, subject->uid);
    case QOS_FIELD_GID:
        return any_range(term, subject->gid);
    case QOS_FIELD_OPCODE:
        return (term->opcodes >> subject->opcode & 1) != 0;
    }
    g_return_val_if_reached(FALSE);
}

static gboolean all_terms(const GPtrArray *terms, const QosRuleSubject *subject)
{
    for (guint i = 0; i < terms->len; i++) {
        if (!term_matches(terms->pdata[i], subject))
            return FALSE;
    }
    return TRUE;
}

gboolean qos_condition_matches(const QosCondition *condition, const QosRuleSubject *subject)
{
    for (guint i = 0; i < condition->alternatives->len; i++) {
        if (all_terms(condition->alternatives->pdata[i], subject))
            return TRUE;
    }
    return FALSE;
}

/* Adds the job ids of a term that knows no others; FALSE where there is none in `terms`. */
static gboolean add_exact_jobs(const GPtrArray *terms, GPtrArray *jobs)
{
    for (guint i = 0; i < terms->len; i++) {
        const Term *term = terms->pdata[i];
        guint before = jobs->len;

        if (term->field != QOS_FIELD_JOBID)
            continue;
        for (guint k = 0; k < term->patterns->len; k++) {
            const char *literal = qos_pattern_literal(term->patterns->pdata[k]);

            if (literal != NULL)
                g_ptr_array_add(jobs, (gpointer)literal);
        }
        if (jobs->len == before + term->patterns->len)
            return TRUE;
        g_ptr_array_set_size(jobs, (gint)before);
    }
    return FALSE;
}

GPtrArray *qos_condition_exact_jobs(const QosCondition *condition)
{
    g_autoptr(GPtrArray) jobs = g_ptr_array_new();

    for (guint i = 0; i < condition->alternatives->len; i++) {
        if (!add_exact_jobs(condition->alternatives->pdata[i], jobs))
            return NULL;
    }
    return g_steal_pointer(&jobs);
}
