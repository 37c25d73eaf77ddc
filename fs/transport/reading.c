/*
 * Who is about to read (fs/transport/reading.h).
 */
#include "fs/transport/reading.h"

static _Thread_local gint *this_count;
static _Thread_local gboolean is_counted; /* ahead */

void qos_reading_join(gint *count)
{
    this_count = count;
}

void qos_reading_comes_next(void)
{
    if (this_count == NULL || is_counted)
        return;
    g_atomic_int_inc(this_count);
    is_counted = TRUE;
}

gint qos_reading_begin(void)
{
    const gint before =
        is_counted ? g_atomic_int_get(this_count) - 1 : g_atomic_int_add(this_count, 1);

    is_counted = FALSE;
    return before + 1;
}
