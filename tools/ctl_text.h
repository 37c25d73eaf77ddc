/*
 * Text for users: escaping names that others chose, hints for mistyped names, tables, and numbers
 * with their units.
 */
#pragma once

#include <glib.h>

/* `text` with control characters, what has no shape and bytes that are no UTF-8 as \xHH; free with
 * g_free. */
char *qos_ctl_escape(const char *text);

/* `text` without its \xHH (a byte), as qos_ctl_escape() and the mount's reports write them, and
 * \uHHHH and \UHHHHHHHH, as job_stats does; free with g_free. */
char *qos_ctl_unescape(const char *text);

/* "; did you mean 'jobs'?" or "; did you mean 'a', 'b' or 'c'?", escaped, of the names near to
 * `name`; "" where none is. `names` holds const char *. Free with g_free. */
char *qos_ctl_hint(const char *name, const GPtrArray *names);
/* The same with the word `group` (or NULL) and a blank before each name: "; did you mean 'rule
 * start'?" */
char *qos_ctl_hint_of(const char *group, const char *name, const GPtrArray *names);

/* Where text goes to; all 0 for a file or a pipe. */
typedef struct {
    guint width;  /* columns of the terminal, 0 = as wide as it needs */
    guint height; /* lines of it; 0 also where it clears no screen */
    gboolean bold;
} QosCtlStyle;

typedef struct {
    const char *title;
    gboolean right;    /* numbers: aligned to the right */
    gboolean flexible; /* names: cut with a ~ where the terminal is too narrow */
    gboolean optional; /* left out where all its cells are empty */
} QosCtlColumn;

typedef struct QosCtlTable QosCtlTable;

/* The first column matters most: where cutting is not enough, columns go from the right. `columns`
 * is borrowed. */
QosCtlTable *qos_ctl_table_new(const QosCtlColumn *columns, guint count);
void qos_ctl_table_free(QosCtlTable *table); /* NULL is allowed */
/* Fills the next cell, row by row; takes `cell`, which is escaped text. */
void qos_ctl_table_add(QosCtlTable *table, char *cell);
/* Header and rows, each line ended; free with g_free. */
char *qos_ctl_table_print(const QosCtlTable *table, const QosCtlStyle *style);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosCtlTable, qos_ctl_table_free)

/* A duration in seconds, and bytes a second, as people read them; free with g_free. */
char *qos_ctl_format_seconds(double seconds);
char *qos_ctl_format_byte_rate(double rate);
/* "0", "0.4", "23", "12345": operations a second; free with g_free. */
char *qos_ctl_format_rate(double rate);
