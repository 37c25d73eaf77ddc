/*
 * Patterns over names: literal characters, `*` (any run of characters, also none), `[1-128]` or
 * `[1-3,7]` (a decimal number in these ranges, leading zeros allowed), and `\` before a character
 * that is meant as itself (`\*`, `\[`, `\\`).
 *
 * Matching is iterative with a single resume point. For a pattern of p elements and a text of t
 * characters it takes at most about t x (p + t) steps, so a mistyped rule cannot stall the mount
 * (docs/reference/rules.md, "Unlike Lustre"). A number range takes all digits at its place. Behind
 * a `*` it does not start in the middle of a number, so `*[1-3]` does not match "node12".
 */
#pragma once

#include <glib.h>

typedef struct QosPattern QosPattern;

/* NULL with a QOS_ERROR EINVAL that names what is wrong: an empty pattern, a bracket that is not
 * closed, a range that is reversed or no number, a `\` at the end. */
QosPattern *qos_pattern_new(const char *text, gsize length, GError **error);
void qos_pattern_free(QosPattern *pattern); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosPattern, qos_pattern_free)

gboolean qos_pattern_matches(const QosPattern *pattern, const char *text);
/* The only text that matches, where the pattern has neither `*` nor a range; else NULL. */
const char *qos_pattern_literal(const QosPattern *pattern);
