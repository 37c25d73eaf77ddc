/*
 * Numbers as people write them: "100", "4K", "1.5G", "30s", and back.
 */
#pragma once

#include <glib.h>

/*
 * A whole number of bytes: digits, optionally a fraction, optionally one of K M G T P (or KiB..,
 * KB..; all powers of 1024; upper or lower case) or B, e.g. "64K", "1.5G". Rounded down. Errors
 * (QOS_ERROR): EINVAL with the offending text where it is no number, negative or has anything after
 * it; ERANGE beyond G_MAXINT64.
 */
gboolean qos_parse_bytes(const char *text, gint64 *ret_bytes, GError **error);
/* A whole decimal number in [minimum, maximum]; `what` names it in the error (EINVAL or ERANGE). */
gboolean qos_parse_integer(const char *what, const char *text, gint64 minimum, gint64 maximum,
                           gint64 *ret_value, GError **error);
/* Seconds, optionally with a fraction and a unit of ms, s, m, h, d: "0.5", "250ms", "2h". Errors as
 * for bytes. */
gboolean qos_parse_duration(const char *text, gint64 *ret_nanoseconds, GError **error);

/* "0 B", "512 B", "4.0 KiB", "1.5 GiB"; free with g_free. */
char *qos_format_bytes(guint64 bytes);
/* "0 s", "850 ns", "12.3 us", "4.0 ms", "1.25 s", "3 m 20 s", "2 h 5 m", "1 d 4 h"; free with
 * g_free. */
char *qos_format_duration(gint64 nanoseconds);
/* The shortest whole number with a unit that is exact, "1M" rather than "1048576", for printing
 * rules; free with g_free. */
char *qos_format_bytes_exact(gint64 bytes);
