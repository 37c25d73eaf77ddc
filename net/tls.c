/*
 * Bounds the TLS version; net/tls.h says why that needs an environment variable and a check.
 */
#include "net/tls.h"

#define PRIORITY       "G_TLS_GNUTLS_PRIORITY" /* glib-networking reads it at its first use */
#define USUAL_PRIORITY "NORMAL:%COMPAT"        /* what it takes without that variable */
#define NEEDED         "TLS 1.2 or later is needed"

void qos_tls_refuse_old_versions(void)
{
    const char *given = g_getenv(PRIORITY);
    g_autofree char *priority =
        g_strconcat(given != NULL ? given : USUAL_PRIORITY, ":-VERS-TLS1.0:-VERS-TLS1.1", NULL);

    g_setenv(PRIORITY, priority, TRUE);
}

const char *qos_tls_version_fault(GTlsConnection *tls)
{
    GTlsProtocolVersion version = g_tls_connection_get_protocol_version(tls);

    return version == G_TLS_PROTOCOL_VERSION_TLS_1_2 || version == G_TLS_PROTOCOL_VERSION_TLS_1_3
               ? NULL
               : "the handshake agreed on another version: " NEEDED;
}

char *qos_tls_handshake_fault(const GError *error)
{
    /* An alert of the other side arrives as MISC, without its kind. */
    gboolean may_be_old = g_error_matches(error, G_TLS_ERROR, G_TLS_ERROR_NOT_TLS) ||
                          g_error_matches(error, G_TLS_ERROR, G_TLS_ERROR_MISC);

    return g_strdup_printf("%s%s", error->message, may_be_old ? " (" NEEDED ")" : "");
}
