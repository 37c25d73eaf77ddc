/*
 * Numbers with units, there and back.
 */
#include "base/units.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

typedef gboolean Parse(const char *text, gint64 *ret_value, GError **error);

#define KIB G_GINT64_CONSTANT(1024)
#define MS  G_GINT64_CONSTANT(1000000)

static void expect_value(Parse *parse, const char *text, gint64 expected)
{
    g_autoptr(GError) error = NULL;
    gint64 value = -1;

    g_assert_true(parse(text, &value, &error));
    g_assert_no_error(error);
    g_assert_cmpint(value, ==, expected);
}

/* The error has the text in it, and nothing is written. */
static void expect_error(Parse *parse, const char *text, int code)
{
    g_autofree char *shown = g_strdelimit(g_strdup(text), "\n", '?'); /* a message is one line */
    g_autoptr(GError) error = NULL;
    gint64 value = -42;

    g_assert_false(parse(text, &value, &error));
    g_assert_error(error, QOS_ERROR, code);
    g_assert_nonnull(strstr(error->message, shown));
    g_assert_cmpint(value, ==, -42);
    g_assert_false(parse(text, &value, NULL));
}

static void test_bytes(void)
{
    expect_value(qos_parse_bytes, "0", 0);
    expect_value(qos_parse_bytes, "1", 1);
    expect_value(qos_parse_bytes, "512B", 512);
    expect_value(qos_parse_bytes, "64K", 64 * KIB);
    expect_value(qos_parse_bytes, "64k", 64 * KIB);
    expect_value(qos_parse_bytes, "64KB", 64 * KIB);
    expect_value(qos_parse_bytes, "64KiB", 64 * KIB);
    expect_value(qos_parse_bytes, "1.5G", 3 * KIB * KIB * KIB / 2);
    expect_value(qos_parse_bytes, "0.1K", 102); /* 102.4 */
    expect_value(qos_parse_bytes, "1.9", 1);
    expect_value(qos_parse_bytes, "8191P", 8191 * KIB * KIB * KIB * KIB * KIB);
    expect_value(qos_parse_bytes, "0.000000000000000000000000000001P", 0);
    expect_value(qos_parse_bytes, "9223372036854775807", G_MAXINT64);
    expect_error(qos_parse_bytes, "9223372036854775808", ERANGE);
    expect_error(qos_parse_bytes, "8192P", ERANGE);
    expect_error(qos_parse_bytes, "99999999999999999999999999P", ERANGE);
}

static void test_what_is_no_size(void)
{
    static const char *const texts[] = {"",    " ",   "x",   "K",   ".5",  "1.",   "1.K", "-1",
                                        "+1",  " 1",  "1 ",  "1 K", "1KK", "1Kx",  "1i",  "1E",
                                        "0x1", "1e3", "1,5", "NaN", "inf", "1BiB", "1\n"};

    for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
        expect_error(qos_parse_bytes, texts[i], EINVAL);
}

static void test_duration(void)
{
    expect_value(qos_parse_duration, "0", 0);
    expect_value(qos_parse_duration, "30", 30000 * MS);
    expect_value(qos_parse_duration, "30s", 30000 * MS);
    expect_value(qos_parse_duration, "0.5", 500 * MS);
    expect_value(qos_parse_duration, "250ms", 250 * MS);
    expect_value(qos_parse_duration, "2m", 120 * 1000 * MS);
    expect_value(qos_parse_duration, "2h", 7200 * 1000 * MS);
    expect_value(qos_parse_duration, "1.5d", 129600 * 1000 * MS);
    expect_value(qos_parse_duration, "0.000000001", 1);
    expect_value(qos_parse_duration, "9223372036.854775807", G_MAXINT64);
    expect_error(qos_parse_duration, "9223372036.854775808", ERANGE);
    expect_error(qos_parse_duration, "-1", EINVAL);
    expect_error(qos_parse_duration, "1M", EINVAL);
    expect_error(qos_parse_duration, "1 s", EINVAL);
    expect_error(qos_parse_duration, "soon", EINVAL);
}

static gboolean parse_small(const char *text, gint64 *ret_value, GError **error)
{
    return qos_parse_integer("size", text, -5, 100, ret_value, error);
}

static gboolean parse_any(const char *text, gint64 *ret_value, GError **error)
{
    return qos_parse_integer("size", text, G_MININT64, G_MAXINT64, ret_value, error);
}

static void test_integer(void)
{
    expect_value(parse_any, "9223372036854775807", G_MAXINT64);
    expect_value(parse_any, "-9223372036854775808", G_MININT64);
    expect_error(parse_any, "9223372036854775808", ERANGE);
    expect_error(parse_any, "-9223372036854775809", ERANGE);
    expect_value(parse_small, "100", 100);
    expect_value(parse_small, "-5", -5);
    expect_value(parse_small, "007", 7);
    expect_error(parse_small, "101", ERANGE);
    expect_error(parse_small, "-6", ERANGE);
    expect_error(parse_small, "99999999999999999999", ERANGE);
    expect_error(parse_small, "", EINVAL);
    expect_error(parse_small, "-", EINVAL);
    expect_error(parse_small, "+1", EINVAL);
    expect_error(parse_small, " 1", EINVAL);
    expect_error(parse_small, "1.0", EINVAL);
    expect_error(parse_small, "1x", EINVAL);
}

static void expect_text(char *text, const char *expected)
{
    g_assert_cmpstr(text, ==, expected);
    g_free(text);
}

static void test_format_bytes(void)
{
    expect_text(qos_format_bytes(0), "0 B");
    expect_text(qos_format_bytes(1023), "1023 B");
    expect_text(qos_format_bytes(4096), "4.0 KiB");
    expect_text(qos_format_bytes(1536 * KIB * KIB), "1.5 GiB");
    expect_text(qos_format_bytes(KIB * KIB - 1), "1.0 MiB"); /* not 1024.0 KiB */
    expect_text(qos_format_bytes(G_MAXUINT64), "16.0 EiB");
}

static void test_format_duration(void)
{
    expect_text(qos_format_duration(0), "0 s");
    expect_text(qos_format_duration(850), "850 ns");
    expect_text(qos_format_duration(12300), "12.3 us");
    expect_text(qos_format_duration(999960), "1.0 ms"); /* not 1000.0 us */
    expect_text(qos_format_duration(4 * MS), "4.0 ms");
    expect_text(qos_format_duration(1250 * MS), "1.25 s");
    expect_text(qos_format_duration(59999 * MS), "1 m 0 s"); /* not 60.00 s */
    expect_text(qos_format_duration(200 * 1000 * MS), "3 m 20 s");
    expect_text(qos_format_duration(7500 * 1000 * MS), "2 h 5 m");
    expect_text(qos_format_duration(100 * 3600 * 1000 * MS), "4 d 4 h");
    expect_text(qos_format_duration(-1250 * MS), "-1.25 s");
    expect_text(qos_format_duration(G_MAXINT64), "106751 d 23 h");
    expect_text(qos_format_duration(G_MININT64), "-106751 d 23 h");
}

/* Whatever is printed exactly is read back as the same number. */
static void test_exact_bytes_round_trip(void)
{
    expect_text(qos_format_bytes_exact(0), "0");
    expect_text(qos_format_bytes_exact(1048576), "1M");
    expect_text(qos_format_bytes_exact(1048577), "1048577");
    expect_text(qos_format_bytes_exact(1536), "1536");
    for (int i = 0; i < 10000; i++) {
        gint64 bytes = (gint64)g_test_rand_int_range(0, 4096) << g_test_rand_int_range(0, 51);
        g_autofree char *text = qos_format_bytes_exact(bytes);

        expect_value(qos_parse_bytes, text, bytes);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/units/bytes", test_bytes);
    g_test_add_func("/units/no-size", test_what_is_no_size);
    g_test_add_func("/units/duration", test_duration);
    g_test_add_func("/units/integer", test_integer);
    g_test_add_func("/units/format-bytes", test_format_bytes);
    g_test_add_func("/units/format-duration", test_format_duration);
    g_test_add_func("/units/exact-bytes", test_exact_bytes_round_trip);
    return g_test_run();
}
