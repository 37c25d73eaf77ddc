/*
 * Replaces net/munge.c in builds without libmunge: every call fails with ENOTSUP.
 */
#include <errno.h>

#include "base/error.h"
#include "net/munge.h"

gboolean qos_munge_is_built(GError **error)
{
    qos_set_error(error, ENOTSUP, "this program was built without MUNGE (libmunge)");
    return FALSE;
}

gboolean qos_munge_answers(G_GNUC_UNUSED const char *munged, GError **error)
{
    return qos_munge_is_built(error);
}

gboolean qos_munge_shake_hands(G_GNUC_UNUSED QosMungeRole role, G_GNUC_UNUSED GSocket *socket,
                               G_GNUC_UNUSED const char *munged,
                               G_GNUC_UNUSED gboolean (*is_allowed)(uid_t uid, gconstpointer arg),
                               G_GNUC_UNUSED gconstpointer arg, G_GNUC_UNUSED uid_t *ret_uid,
                               G_GNUC_UNUSED GCancellable *cancellable, GError **error)
{
    return qos_munge_is_built(error);
}
