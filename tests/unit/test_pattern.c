/*
 * Patterns: what matches, what does not, against a plain recursive matcher, and how long it takes.
 */
#include "base/pattern.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

static gboolean matches(const char *pattern_text, const char *text)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(QosPattern) pattern = qos_pattern_new(pattern_text, strlen(pattern_text), &error);

    g_assert_no_error(error);
    return qos_pattern_matches(pattern, text);
}

static void test_literals(void)
{
    g_assert_true(matches("dd.0", "dd.0"));
    g_assert_false(matches("dd.0", "dd.00"));
    g_assert_false(matches("dd.0", "dd."));
    g_assert_false(matches("dd.0", ""));
    g_assert_false(matches("dd.0", "ddx0"));
    g_assert_false(matches("dd.0", "DD.0"));
}

static void test_stars(void)
{
    g_assert_true(matches("*", ""));
    g_assert_true(matches("*", "anything"));
    g_assert_true(matches("*b", "*ab")); /* Lustre's matcher says no */
    g_assert_true(matches("*b", "b"));
    g_assert_false(matches("*b", "bc"));
    g_assert_true(matches("a*", "a"));
    g_assert_true(matches("a**b", "ab"));
    g_assert_true(matches("a*b*c", "a-b-b-c"));
    g_assert_false(matches("a*b*c", "a-c-b"));
    g_assert_true(matches("*ab*ab*", "abab"));
    g_assert_false(matches("*ab*ab*", "aba"));
    g_assert_true(matches("*aab", "aaaab"));
}

static void test_ranges(void)
{
    g_assert_true(matches("node[1-128]", "node1"));
    g_assert_true(matches("node[1-128]", "node128"));
    g_assert_true(matches("node[1-128]", "node007"));
    g_assert_false(matches("node[1-128]", "node129"));
    g_assert_false(matches("node[1-128]", "node0"));
    g_assert_false(matches("node[1-128]", "node"));
    g_assert_false(matches("node[1-128]", "node1x"));
    g_assert_true(matches("node[1-3,7]", "node7"));
    g_assert_false(matches("node[1-3,7]", "node5"));
    g_assert_true(matches("[5].[6]", "5.6"));
    g_assert_true(matches("job1[0-9]", "job15"));
    g_assert_false(matches("[1-9]", "99999999999999999999999999999999"));
    g_assert_true(matches("192.168.*.[1-128]@tcp", "192.168.33.99@tcp"));
}

static void test_a_range_after_a_star_takes_a_whole_number(void)
{
    g_assert_false(matches("*[1-3]", "node12"));
    g_assert_true(matches("*[1-3]", "node3"));
    g_assert_true(matches("*[1-3]", "3"));
    g_assert_true(matches("*[1-3]*", "12 3"));
    g_assert_false(matches("*[1-3]*", "12 4"));
    g_assert_false(matches("a1*[2-3]", "a12"));
    g_assert_true(matches("a1*[2-3]", "a1-2"));
}

static void test_escapes(void)
{
    g_assert_true(matches("123\\[4].host", "123[4].host"));
    g_assert_false(matches("123[4].host", "123[4].host"));
    g_assert_true(matches("\\*", "*"));
    g_assert_false(matches("\\*", "x"));
    g_assert_true(matches("\\\\*", "\\x"));
    g_assert_true(matches("\\d", "d"));
}

static void expect_literal(const char *text, const char *expected)
{
    g_autoptr(QosPattern) pattern = qos_pattern_new(text, strlen(text), NULL);

    g_assert_cmpstr(qos_pattern_literal(pattern), ==, expected);
}

static void test_literal_text(void)
{
    expect_literal("dd.0", "dd.0");
    expect_literal("1\\[2]", "1[2]");
    expect_literal("dd*", NULL);
    expect_literal("dd[0]", NULL);
}

static void test_errors(void)
{
    static const char *const texts[] = {"",
                                        "[",
                                        "a[",
                                        "[]",
                                        "[a]",
                                        "[1-]",
                                        "[-1]",
                                        "[3-1]",
                                        "[1,]",
                                        "[,1]",
                                        "[1-2",
                                        "[1 2]",
                                        "[1-2-3]",
                                        "[+1]",
                                        "[99999999999999999999]",
                                        "a\\",
                                        "[1[2]]",
                                        "[18446744073709551615]",
                                        "[18446744073709551616]"};

    for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
        g_autoptr(GError) error = NULL;

        g_assert_null(qos_pattern_new(texts[i], strlen(texts[i]), &error));
        g_assert_error(error, QOS_ERROR, EINVAL);
        g_assert_nonnull(strstr(error->message, texts[i]));
    }
    qos_pattern_free(NULL);
}

static void test_length_is_respected(void)
{
    g_autoptr(QosPattern) pattern = qos_pattern_new("dd.0 dd.1", 4, NULL);

    g_assert_true(qos_pattern_matches(pattern, "dd.0"));
    g_assert_cmpstr(qos_pattern_literal(pattern), ==, "dd.0");
}

/* Patterns for which a recursive matcher needs exponential time: it would not end before the test's
 * time is up. */
static void test_no_pattern_explodes(void)
{
    g_autoptr(GString) stars = g_string_new(NULL);
    g_autofree char *text = g_strnfill(20000, 'a');
    g_autofree char *digits = g_strnfill(20000, '1');

    g_assert_false(matches("*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    for (int i = 0; i < 1000; i++)
        g_string_append(stars, "*a");
    g_string_append_c(stars, 'b');
    g_assert_false(matches(stars->str, text));
    g_string_truncate(stars, stars->len - 1);
    g_assert_true(matches(stars->str, text));
    g_assert_false(matches("*1[2]*", digits));
    g_assert_false(matches("*[1]*[1]*[1]*1[1]", digits));
}

/* The definition, for stars alone: slow and plain. */
static gboolean reference(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return reference(pattern + 1, text) || (*text != '\0' && reference(pattern, text + 1));
    if (*pattern == '\0' || *text == '\0')
        return *pattern == *text;
    return *pattern == *text && reference(pattern + 1, text + 1);
}

static void fill(char *text, int maximum, const char *alphabet)
{
    int length = g_test_rand_int_range(0, maximum + 1);

    for (int i = 0; i < length; i++)
        text[i] = alphabet[g_test_rand_int_range(0, (gint)strlen(alphabet))];
    text[length] = '\0';
}

static void test_random(void)
{
    int matched = 0;

    for (int i = 0; i < 100000; i++) {
        char pattern[9], text[11];

        fill(pattern, 8, "ab**");
        fill(text, 10, "ab");
        if (pattern[0] == '\0')
            continue;
        g_assert_true(matches(pattern, text) == reference(pattern, text));
        matched += matches(pattern, text);
    }
    g_assert_cmpint(matched, >, 10000); /* both answers were tried */
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pattern/literals", test_literals);
    g_test_add_func("/pattern/stars", test_stars);
    g_test_add_func("/pattern/ranges", test_ranges);
    g_test_add_func("/pattern/range-after-star", test_a_range_after_a_star_takes_a_whole_number);
    g_test_add_func("/pattern/escapes", test_escapes);
    g_test_add_func("/pattern/literal-text", test_literal_text);
    g_test_add_func("/pattern/errors", test_errors);
    g_test_add_func("/pattern/length", test_length_is_respected);
    g_test_add_func("/pattern/no-explosion", test_no_pattern_explodes);
    g_test_add_func("/pattern/random", test_random);
    return g_test_run();
}
