/*
 * Which of the names that there are somebody meant who mistyped one: those near to it by their edit
 * distance, the number of bytes that must be put in, left out or replaced, or swapped with their
 * neighbour, to make one of the other (Damerau and Levenshtein's, each byte edited once). Whether
 * letters are large or small does not count.
 */
#pragma once

#include <glib.h>

/* The distance of two names, or anything above `limit` where it is larger. */
guint qos_near_distance(const char *a, const char *b, guint limit);
/* How far from `name` what was meant may be: what is further off would be a guess. */
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
