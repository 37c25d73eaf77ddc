/*
 * Decides which peers may change the rules of the cluster; server/admins.h says which.
 */
#include "server/admins.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* --- certificates --- */

/* The value that begins at *at, up to a ',' or '+' that is not escaped, where *at is then; NULL if
 * it is no text. */
static char *take_value(const char **at)
{
    g_autoptr(GString) value = g_string_new(NULL);
    gboolean is_text = **at != '#';
    const char *next = *at;

    for (; *next != '\0' && *next != ',' && *next != '+'; next++) {
        if (*next != '\\') {
            g_string_append_c(value, *next);
        } else if (g_ascii_isxdigit(next[1]) && g_ascii_isxdigit(next[2])) {
            int byte = g_ascii_xdigit_value(next[1]) << 4 | g_ascii_xdigit_value(next[2]);
            g_string_append_c(value, (char)byte);
            is_text = is_text && byte != 0;
            next += 2;
        } else if (next[1] != '\0') {
            g_string_append_c(value, *++next);
        }
    }
    *at = next;
    return is_text && value->len > 0 ? g_strdup(value->str) : NULL;
}

char *qos_subject_cn(const char *subject)
{
    g_autofree char *cn = NULL;

    for (const char *next = subject; *next != '\0';) {
        next += strspn(next, " ,+");
        gboolean is_cn = g_ascii_strncasecmp(next, "CN=", 3) == 0;
        const char *equals = strchr(next, '=');

        if (equals == NULL)
            return NULL;
        next = equals + 1;
        g_autofree char *value = take_value(&next);
        if (is_cn && (cn != NULL || value == NULL))
            return NULL;
        if (is_cn)
            cn = g_steal_pointer(&value);
    }
    return g_steal_pointer(&cn);
}

/* --- permission --- */

static gboolean is_admin_uid(const QosServerOptions *options, uid_t uid)
{
    for (guint i = 0; i < options->admin_uids->len; i++) {
        if (g_array_index(options->admin_uids, uid_t, i) == uid)
            return TRUE;
    }
    return FALSE;
}

static gboolean is_admin_cn(const QosServerOptions *options, const char *cn)
{
    return cn != NULL &&
           g_ptr_array_find_with_equal_func(options->admin_cns, cn, g_str_equal, NULL);
}

static gboolean is_peer_permitted(const QosServerOptions *options, const QosAsker *asker)
{
    g_autofree char *cn = NULL;

    switch (asker->door) {
    case QOS_DOOR_LOCAL:
        return asker->uid == 0 || asker->uid == geteuid() || is_admin_uid(options, asker->uid);
    case QOS_DOOR_MUNGE:
        return is_admin_uid(options, asker->uid);
    case QOS_DOOR_TLS:
        cn = qos_subject_cn(asker->subject);
        return is_admin_cn(options, cn);
    }
    g_return_val_if_reached(FALSE);
}

/* What would permit the peer. */
static char *advice_of(const QosAsker *asker)
{
    g_autofree char *cn = NULL;

    if (asker->door != QOS_DOOR_TLS)
        return g_strdup_printf("to permit this user, set admin-uid=%u there", asker->uid);
    cn = qos_subject_cn(asker->subject);
    if (cn == NULL)
        return g_strdup_printf("the certificate of this mount (%s) has no CN, or several, so that "
                               "it cannot be named",
                               asker->subject);
    return g_strdup_printf("to permit the mounts with this certificate, set admin-cn=%s there", cn);
}

gboolean qos_admins_permit(const QosServerOptions *options, const QosAsker *asker, GError **error)
{
    gboolean is_own_user = asker->door != QOS_DOOR_TLS && asker->caller == asker->uid;
    g_autofree char *advice = NULL;

    if (!is_peer_permitted(options, asker))
        advice = advice_of(asker);
    else if (asker->caller != 0 && !is_own_user && !is_admin_uid(options, asker->caller))
        advice = g_strdup_printf("to permit user %u of this mount, set admin-uid=%u there",
                                 asker->caller, asker->caller);
    if (advice == NULL)
        return TRUE;
    qos_set_error(error, EPERM,
                  "permission denied: the rules of the cluster are changed by root at the server's "
                  "machine, and by those that its settings name; %s",
                  advice);
    return FALSE;
}

char *qos_asker_text(const QosAsker *asker)
{
    gboolean is_own_user = asker->door != QOS_DOOR_TLS && asker->caller == asker->uid;
    g_autofree char *caller =
        is_own_user ? g_strdup("") : g_strdup_printf(", caller %u", asker->caller);
    g_autofree char *peer = asker->door == QOS_DOOR_TLS ? g_strescape(asker->subject, NULL)
                                                        : g_strdup_printf("uid %u", asker->uid);

    return g_strconcat(asker->door == QOS_DOOR_MUNGE ? "munge " : "", peer, caller, NULL);
}
