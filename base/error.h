/*
 * The one error domain of qosfs. The code of a GError in this domain is an errno value. Its message
 * is for the user or administrator that caused the error: what is wrong, where, and what to do.
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
