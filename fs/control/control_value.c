/*
 * A value that is set, as text, and why setting it failed. Both the settings of this mount
 * (control.c) and those of the cluster (control_cluster.c) need these.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "fs/control/state.h"

#define VALUE_MAX  16384 /* bytes of a value that is set */
#define ERRORS_MAX 256   /* users with a last error that is kept */

char *qos_control_text_of(const char *value, size_t size, GError **error)
{
    if (size > VALUE_MAX) {
        qos_set_error(error, E2BIG, "the value has %zu bytes; %d are taken", size, VALUE_MAX);
        return NULL;
    }
    if (size > 0 && value[size - 1] == '\0')
        size--;
    if (memchr(value, '\0', size)) {
        qos_set_error(error, EINVAL, "the value has a NUL byte inside");
        return NULL;
    }
    return g_strchomp(g_strndup(value, size));
}

void qos_control_keep_error(QosControl *control, uid_t uid, const char *reason)
{
    qos_mutex_lock(&control->lock);
    if (g_hash_table_size(control->errors) >= ERRORS_MAX)
        g_hash_table_remove_all(control->errors);
    if (reason)
        g_hash_table_replace(control->errors, GUINT_TO_POINTER(uid), g_strdup(reason));
    else
        g_hash_table_remove(control->errors, GUINT_TO_POINTER(uid));
    qos_mutex_unlock(&control->lock);
}
