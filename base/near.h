/*
 * Finds the known name that a mistyped word most likely meant, for a hint in an error message.
 *
 * A candidate is near if its edit distance is small (Damerau and Levenshtein). That is the number
 * of bytes to insert, delete, replace, or swap with their neighbour in order to turn one name into
 * the other; each byte is edited once. The comparison ignores the case of ASCII letters.
 */
#pragma once

#include <glib.h>

/* The distance of two names, or anything above `limit` where it is larger. */
guint qos_near_distance(const char *a, const char *b, guint limit);
/* The largest distance from `name` at which a candidate is near: beyond it a hint would be a
 * guess. */
guint qos_near_limit(const char *name);

/* The nearest of the names that there are. */
typedef struct {
    const char *name;    /* as it was typed */
    const char *nearest; /* the first of the nearest that were considered; NULL: none is near */
    guint distance;      /* its own, or the limit */
} QosNear;

/* Both names are borrowed. */
void qos_near_init(QosNear *near, const char *name);
void qos_near_consider(QosNear *near, const char *candidate);
