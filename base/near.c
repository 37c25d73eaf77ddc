/*
 * The edit distance by dynamic programming (base/near.h). A cell holds the distance between the
 * first i bytes of one name and the first j bytes of the other. Cells are computed row by row, and
 * each row needs only the two rows before it.
 */
#include "base/near.h"

#include <string.h>

#define ROWS 3

static gboolean is_same(char a, char b)
{
    return g_ascii_tolower(a) == g_ascii_tolower(b);
}

guint qos_near_distance(const char *a, const char *b, guint limit)
{
    const gsize rows = strlen(a), columns = strlen(b);
    g_autofree guint *cells = NULL;
    guint *row[ROWS]; /* of this beginning of `a`, and those before */

    if (MAX(rows, columns) - MIN(rows, columns) > limit)
        return limit + 1;
    cells = g_new(guint, ROWS * (columns + 1));
    for (guint k = 0; k < ROWS; k++)
        row[k] = cells + k * (columns + 1);
    for (gsize j = 0; j <= columns; j++)
        row[0][j] = (guint)j;
    for (gsize i = 1; i <= rows; i++) {
        guint *next = row[2];

        row[2] = row[1];
        row[1] = row[0];
        row[0] = next;
        next[0] = (guint)i;
        for (gsize j = 1; j <= columns; j++) {
            next[j] = row[1][j - 1] + !is_same(a[i - 1], b[j - 1]);
            next[j] = MIN(next[j], MIN(row[1][j], next[j - 1]) + 1);
            if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]))
                next[j] = MIN(next[j], row[2][j - 2] + 1);
        }
    }
    return row[0][columns];
}

guint qos_near_limit(const char *name)
{
    const guint length = (guint)strlen(name);

    return length < 2 ? 0 : MAX(1, length / 3);
}

void qos_near_init(QosNear *near, const char *name)
{
    *near = (QosNear){.name = name, .distance = qos_near_limit(name)};
}

void qos_near_consider(QosNear *near, const char *candidate)
{
    const guint distance = qos_near_distance(near->name, candidate, near->distance);

    if (distance < near->distance || (distance == near->distance && near->nearest == NULL)) {
        near->distance = distance;
        near->nearest = candidate;
    }
}
