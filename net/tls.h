/*
 * The TLS versions that mount and server accept: 1.2 and later (RFC 8996 forbids 1.0 and 1.1).
 *
 * GIO has no call to set the lowest version, and GnuTLS still accepts 1.0 by default. So the TLS
 * library is configured by its environment variable. Both sides also check the version after each
 * handshake, because other backends of GIO do not read that variable.
 */
#pragma once

#include <gio/gio.h>

/* Tells the TLS library to refuse old versions. Call it before a second thread exists, because it
 * changes the environment. */
void qos_tls_refuse_old_versions(void);

/* NULL if the finished handshake agreed on TLS 1.2 or later, else the reason to refuse it. Static.
 */
const char *qos_tls_version_fault(GTlsConnection *tls);

/* The reason for a failed handshake, for people. Free it with g_free(). */
char *qos_tls_handshake_fault(const GError *error);
