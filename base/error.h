/*
 * The one error domain: the code of a GError in it is an errno value, the message says what is
 * wrong, where, and what to do, in words for the person who caused it.
 */
#pragma once

#include <glib.h>

#define QOS_ERROR (qos_error_quark())
GQuark qos_error_quark(void);

/* Sets *error (which may be NULL) to `errno_code` with a formatted message, which is one line: each
 * control character in it becomes `?`. */
void qos_set_error(GError **error, int errno_code, const char *format, ...) G_GNUC_PRINTF(3, 4);
/* A thread cannot be started (EAGAIN), and what bounds them. */
void qos_set_thread_error(GError **error);
