/*
 * The error domain of commands, configuration and tools.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>

G_DEFINE_QUARK(qos - error - quark, qos_error)

/* Text that others wrote, such as a name or the contents of a damaged database, must not start a
 * log line of its own. */
static void make_one_line(char *message)
{
    for (char *c = message; *c != '\0'; c++) {
        if (g_ascii_iscntrl(*c))
            *c = '?';
    }
}

void qos_set_error(GError **error, int errno_code, const char *format, ...)
{
    va_list arguments;

    if (error == NULL)
        return;
    g_return_if_fail(*error == NULL);
    va_start(arguments, format);
    *error = g_error_new_valist(QOS_ERROR, errno_code, format, arguments);
    va_end(arguments);
    make_one_line((*error)->message);
}

void qos_set_thread_error(GError **error)
{
    qos_set_error(error, EAGAIN,
                  "cannot start a thread; see the limits of processes (ulimit -u, pids.max of the "
                  "cgroup) and of memory");
}
