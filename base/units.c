/*
 * Parsing is exact: a decimal fraction is kept as an integer of 18 digits and multiplied in 128
 * bits, never as a double. Further digits are ignored, which is right because results are rounded
 * down.
 */
#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/time.h"

#define FRACTION_UNIT G_GINT64_CONSTANT(1000000000000000000)

typedef struct {
    const char *name;
    gint64 size;
} Unit;

static const char byte_prefixes[] = "KMGTPE"; /* each 1024 of the one before */

static const Unit duration_units[] = {
    {"", QOS_SECOND},       {"ms", QOS_MILLISECOND},     {"s", QOS_SECOND},
    {"m", 60 * QOS_SECOND}, {"h", 60 * 60 * QOS_SECOND}, {"d", 24 * 60 * 60 * QOS_SECOND},
};

/* A number with an optional fraction. */
typedef struct {
    gint64 whole;
    gint64 fraction; /* of FRACTION_UNIT */
    gboolean overflow;
    const char *rest; /* what follows it: the unit */
} Decimal;

/* FALSE where `text` does not begin with a decimal number. */
static gboolean parse_decimal(const char *text, Decimal *decimal)
{
    gint64 place = FRACTION_UNIT;

    *decimal = (Decimal){.rest = text};
    for (; g_ascii_isdigit(*decimal->rest); decimal->rest++) {
        gint64 digit = *decimal->rest - '0';

        if (decimal->whole > (G_MAXINT64 - digit) / 10)
            decimal->overflow = TRUE;
        else
            decimal->whole = decimal->whole * 10 + digit;
    }
    if (decimal->rest == text)
        return FALSE;
    if (*decimal->rest != '.')
        return TRUE;
    if (!g_ascii_isdigit(*++decimal->rest))
        return FALSE;
    for (; g_ascii_isdigit(*decimal->rest); decimal->rest++) {
        place /= 10;
        decimal->fraction += place * (*decimal->rest - '0');
    }
    return TRUE;
}

static gboolean scale(const char *text, const Decimal *decimal, gint64 unit, gint64 *ret_value,
                      GError **error)
{
    __int128 value =
        (__int128)decimal->whole * unit + (__int128)decimal->fraction * unit / FRACTION_UNIT;

    if (decimal->overflow || value > G_MAXINT64) {
        qos_set_error(error, ERANGE, "\"%s\" is too large", text);
        return FALSE;
    }
    *ret_value = (gint64)value;
    return TRUE;
}

/* "", "B", "K", "KB", "KiB", ... up to P; 0 for anything else. */
static gint64 byte_unit(const char *name)
{
    const char *prefix;

    if (*name == '\0' || g_ascii_strcasecmp(name, "B") == 0)
        return 1;
    prefix = strchr(byte_prefixes, g_ascii_toupper(*name));
    name++;
    if (prefix == NULL || *prefix == 'E' ||
        (*name != '\0' && g_ascii_strcasecmp(name, "B") != 0 &&
         g_ascii_strcasecmp(name, "iB") != 0))
        return 0;
    return G_GINT64_CONSTANT(1) << (10 * (prefix - byte_prefixes + 1));
}

static gint64 duration_unit(const char *name)
{
    for (guint i = 0; i < G_N_ELEMENTS(duration_units); i++) {
        if (strcmp(name, duration_units[i].name) == 0)
            return duration_units[i].size;
    }
    return 0;
}

gboolean qos_parse_bytes(const char *text, gint64 *ret_bytes, GError **error)
{
    Decimal decimal;
    gint64 unit = parse_decimal(text, &decimal) ? byte_unit(decimal.rest) : 0;

    if (unit == 0) {
        qos_set_error(error, EINVAL, "\"%s\" is no size: a number, with K, M, G, T or P if need be",
                      text);
        return FALSE;
    }
    return scale(text, &decimal, unit, ret_bytes, error);
}

gboolean qos_parse_duration(const char *text, gint64 *ret_nanoseconds, GError **error)
{
    Decimal decimal;
    gint64 unit = parse_decimal(text, &decimal) ? duration_unit(decimal.rest) : 0;

    if (unit == 0) {
        qos_set_error(error, EINVAL,
                      "\"%s\" is no duration: seconds, or a number with ms, s, m, h or d", text);
        return FALSE;
    }
    return scale(text, &decimal, unit, ret_nanoseconds, error);
}

gboolean qos_parse_integer(const char *what, const char *text, gint64 minimum, gint64 maximum,
                           gint64 *ret_value, GError **error)
{
    char *end;
    gint64 value;
    const char *digits = *text == '-' ? text + 1 : text;

    errno = 0;
    value = g_ascii_strtoll(text, &end, 10);
    if (!g_ascii_isdigit(*digits) || *end != '\0') {
        qos_set_error(error, EINVAL, "%s: \"%s\" is no whole number", what, text);
        return FALSE;
    }
    if (errno == ERANGE || value < minimum || value > maximum) {
        qos_set_error(error, ERANGE,
                      "%s: %s is not between %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT, what,
                      text, minimum, maximum);
        return FALSE;
    }
    *ret_value = value;
    return TRUE;
}

char *qos_format_bytes(guint64 bytes)
{
    double value = (double)bytes;
    const char *prefix = byte_prefixes;

    if (bytes < 1024)
        return g_strdup_printf("%" G_GUINT64_FORMAT " B", bytes);
    /* 1023.95 would be printed as 1024.0. */
    for (value /= 1024; value >= 1023.95; value /= 1024)
        prefix++;
    return g_strdup_printf("%.1f %ciB", value, *prefix);
}

/* "3 m 20 s": whole units of which `small` goes into `large`, seconds being the smallest. */
static char *format_pair(const char *sign, gint64 seconds, gint64 large, char large_name,
                         gint64 small, char small_name)
{
    return g_strdup_printf("%s%" G_GINT64_FORMAT " %c %" G_GINT64_FORMAT " %c", sign,
                           seconds / large, large_name, seconds % large / small, small_name);
}

char *qos_format_duration(gint64 nanoseconds)
{
    const char *sign = nanoseconds < 0 ? "-" : "";
    guint64 magnitude = nanoseconds < 0 ? -(guint64)nanoseconds : (guint64)nanoseconds;
    double value = (double)magnitude;
    gint64 seconds = (gint64)((magnitude + QOS_SECOND / 2) / QOS_SECOND);

    /* Each bound is where the next smaller form would round up to its own end. */
    if (magnitude == 0)
        return g_strdup("0 s");
    if (value < 1e3)
        return g_strdup_printf("%s%.0f ns", sign, value);
    if (value < 999.95e3)
        return g_strdup_printf("%s%.1f us", sign, value / 1e3);
    if (value < 999.95e6)
        return g_strdup_printf("%s%.1f ms", sign, value / 1e6);
    if (value < 59.995e9)
        return g_strdup_printf("%s%.2f s", sign, value / 1e9);
    if (seconds < 60 * 60)
        return format_pair(sign, seconds, 60, 'm', 1, 's');
    if (seconds < 24 * 60 * 60)
        return format_pair(sign, seconds, 60 * 60, 'h', 60, 'm');
    return format_pair(sign, seconds, 24 * 60 * 60, 'd', 60 * 60, 'h');
}

char *qos_format_bytes_exact(gint64 bytes)
{
    int power = 0;

    while (bytes != 0 && bytes % 1024 == 0 && power < 5) {
        bytes /= 1024;
        power++;
    }
    return power == 0 ? g_strdup_printf("%" G_GINT64_FORMAT, bytes)
                      : g_strdup_printf("%" G_GINT64_FORMAT "%c", bytes, byte_prefixes[power - 1]);
}
