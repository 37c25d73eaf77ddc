/*
 * Patterns over names: literal characters, `*` (any run of characters, also none) and `[1-128]` or
 * `[1-3,7]` (a decimal number in these ranges, leading zeros allowed).
 *
 * Matching is iterative with a single resume point, O(pattern x text) at the worst: a rule that an
 * administrator mistypes cannot stall the mount (lustre-tbf.md, defect 4). A number range takes all
 * digits at its place, and does not start in the middle of a number when it follows a `*`, so that
 * `*[1-3]` does not match "node12".
 */
#pragma once

#include <glib.h>

typedef struct QosPattern QosPattern;

/* NULL with a QOS_ERROR EINVAL that names what is wrong: an empty pattern, a bracket that is not
 * closed, a range that is reversed or no number. */
QosPattern *qos_pattern_new(const char *text, gsize length, GError **error);
void qos_pattern_free(QosPattern *pattern);
gboolean qos_pattern_matches(const QosPattern *pattern, const char *text);
/* TRUE where the pattern has neither `*` nor a range: it matches its own text alone. */
gboolean qos_pattern_is_literal(const QosPattern *pattern);
/* As it was given; owned by the pattern. */
const char *qos_pattern_text(const QosPattern *pattern);
