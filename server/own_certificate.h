/*
 * The server's own certificate and key.
 */
#pragma once

#include <gio/gio.h>

/* Reads both (PEM files), and shakes hands with itself: GIO does not look whether they belong
 * together, and every mount would be refused. NULL with an error, which names no setting. */
GTlsCertificate *qos_own_certificate_read(const char *certificate, const char *key, GError **error);
