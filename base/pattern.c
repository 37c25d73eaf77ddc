/*
 * A pattern is compiled into elements, and each element consumes a definite part of the text: a
 * literal one character, a range a whole run of digits. A star consumes what the other elements
 * leave.
 *
 * One resume point is enough, because an element that begins later in the text also ends no
 * earlier. So the first place at which the elements between two stars match leaves the most text to
 * the rest, and only the last star ever needs to take one character more.
 */
#include "base/pattern.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

typedef enum { LITERAL, STAR, RANGE } Kind;

typedef struct {
    Kind kind;
    char character;     /* LITERAL */
    guint first, count; /* RANGE: its intervals in the pattern's array */
} Element;

typedef struct {
    guint64 low, high; /* both included */
} Interval;

struct QosPattern {
    char *text;    /* as it was given, for errors */
    char *literal; /* NULL where there is a star or a range */
    GArray *elements;
    GArray *intervals;
};

void qos_pattern_free(QosPattern *pattern)
{
    if (pattern == NULL)
        return;
    g_free(pattern->text);
    g_free(pattern->literal);
    g_array_unref(pattern->elements);
    g_array_unref(pattern->intervals);
    g_free(pattern);
}

/* A number at *at, which is moved past it. Saturates, for texts; compiled bounds are checked. */
static guint64 take_number(const char **at)
{
    guint64 value = 0;

    for (; g_ascii_isdigit(**at); (*at)++) {
        guint64 digit = (guint64)(**at - '0');

        value = value > (G_MAXUINT64 - digit) / 10 ? G_MAXUINT64 : value * 10 + digit;
    }
    return value;
}

/* "LOW" or "LOW-HIGH" at *at. */
static gboolean compile_interval(QosPattern *pattern, const char **at, GError **error)
{
    const char *start = *at;
    Interval interval;
    gboolean valid = g_ascii_isdigit(**at);

    interval.low = interval.high = take_number(at);
    if (valid && **at == '-') {
        (*at)++;
        valid = g_ascii_isdigit(**at);
        interval.high = take_number(at);
    }
    if (!valid || (**at != ',' && **at != ']')) {
        qos_set_error(error, EINVAL, "\"%s\": expected a number or LOW-HIGH at \"%s\"",
                      pattern->text, start);
        return FALSE;
    }
    if (interval.high == G_MAXUINT64) {
        qos_set_error(error, EINVAL, "\"%s\": too large a number at \"%s\"", pattern->text, start);
        return FALSE;
    }
    if (interval.low > interval.high) {
        qos_set_error(error, EINVAL, "\"%s\": the range at \"%s\" is reversed", pattern->text,
                      start);
        return FALSE;
    }
    g_array_append_val(pattern->intervals, interval);
    return TRUE;
}

/* "[1-3,7]" at *at, which is moved past it. */
static gboolean compile_range(QosPattern *pattern, const char **at, GError **error)
{
    Element element = {.kind = RANGE, .first = pattern->intervals->len};

    if (strchr(*at, ']') == NULL) {
        qos_set_error(error, EINVAL, "\"%s\": \"[\" without \"]\"; write \"\\[\" for the character",
                      pattern->text);
        return FALSE;
    }
    do {
        (*at)++; /* past "[" or "," */
        if (!compile_interval(pattern, at, error))
            return FALSE;
    } while (**at == ',');
    (*at)++;
    element.count = pattern->intervals->len - element.first;
    g_array_append_val(pattern->elements, element);
    return TRUE;
}

static gboolean compile(QosPattern *pattern, GError **error)
{
    g_autoptr(GString) literal = g_string_new(NULL);
    gboolean is_literal = TRUE;

    for (const char *at = pattern->text; *at != '\0';) {
        Element element = {.kind = LITERAL};

        if (*at == '[') {
            is_literal = FALSE;
            if (!compile_range(pattern, &at, error))
                return FALSE;
            continue;
        }
        if (*at == '*') {
            is_literal = FALSE;
            element.kind = STAR;
            while (at[1] == '*')
                at++;
        } else if (*at == '\\' && *++at == '\0') {
            qos_set_error(error, EINVAL, "\"%s\": \"\\\" at the end; write \"\\\\\" for it",
                          pattern->text);
            return FALSE;
        }
        element.character = *at++;
        g_array_append_val(pattern->elements, element);
        g_string_append_c(literal, element.character);
    }
    if (is_literal)
        pattern->literal = g_string_free(g_steal_pointer(&literal), FALSE);
    return TRUE;
}

QosPattern *qos_pattern_new(const char *text, gsize length, GError **error)
{
    g_autoptr(QosPattern) pattern = NULL;

    if (length == 0 || *text == '\0') {
        qos_set_error(error, EINVAL, "an empty pattern; \"*\" matches everything");
        return NULL;
    }
    pattern = g_new0(QosPattern, 1);
    pattern->text = g_strndup(text, length);
    pattern->elements = g_array_new(FALSE, FALSE, sizeof(Element));
    pattern->intervals = g_array_new(FALSE, FALSE, sizeof(Interval));
    return compile(pattern, error) ? g_steal_pointer(&pattern) : NULL;
}

static gboolean is_within(const QosPattern *pattern, const Element *range, guint64 value)
{
    for (guint i = range->first; i < range->first + range->count; i++) {
        const Interval *interval = &g_array_index(pattern->intervals, Interval, i);

        if (value >= interval->low && value <= interval->high)
            return TRUE;
    }
    return FALSE;
}

/* Lets `element` eat at *at. */
static gboolean eat(const QosPattern *pattern, const Element *element, const char **at)
{
    if (element->kind == RANGE)
        return g_ascii_isdigit(**at) && is_within(pattern, element, take_number(at));
    return *(*at)++ == element->character;
}

/* The first place from `at` on at which `element` may begin after a star: a range not in the middle
 * of a number. */
static const char *first_start(const Element *element, const char *text, const char *at)
{
    if (element->kind == RANGE && at > text && g_ascii_isdigit(at[-1])) {
        while (g_ascii_isdigit(*at))
            at++;
    }
    return at;
}

gboolean qos_pattern_matches(const QosPattern *pattern, const char *text)
{
    const Element *element = (const Element *)(gpointer)pattern->elements->data;
    const Element *end = element + pattern->elements->len;
    const Element *resume = NULL; /* after the last star */
    const char *resume_at = NULL; /* what that star has left to it */
    const char *at = text;

    if (pattern->literal != NULL)
        return strcmp(pattern->literal, text) == 0;
    for (;;) {
        if (element == end && *at == '\0')
            return TRUE;
        if (element != end && element->kind == STAR) {
            if (++element == end)
                return TRUE;
            resume = element;
            resume_at = at = first_start(resume, text, at);
        } else if (element == end || *at == '\0' || !eat(pattern, element++, &at)) {
            if (resume == NULL || *resume_at == '\0')
                return FALSE;
            element = resume;
            resume_at = at = first_start(resume, text, resume_at + 1);
        }
    }
}

const char *qos_pattern_literal(const QosPattern *pattern)
{
    return pattern->literal;
}
