/* Escaping, hints and tables of qosfsctl. */
#include "tools/ctl_text.h"

#include <string.h>

/* A byte, or a character, each as reports write it; what is no escape stays. */
static void test_unescape(void)
{
    static const char *const cases[][2] = {
        {"a\\x20b", "a b"},
        {"\\xC3\\xa4", "\xc3\xa4"},
        {"\\u00E4", "\xc3\xa4"},
        {"\\U0001F600", "\xf0\x9f\x98\x80"},
        {"\\uD800", "\\uD800"},
        {"\\u00E", "\\u00E"},
        {"\\", "\\"},
        {"\\n", "\\n"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *plain = qos_ctl_unescape(cases[i][0]);
        g_assert_cmpstr(plain, ==, cases[i][1]);
    }
}

static void test_escape(void)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"dd.1000", "dd.1000"},
        {"a b\tc\n", "a b\\x09c\\x0a"},
        {"\033[31mred", "\\x1b[31mred"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"\xe2\x80\xaeright", "\\xe2\\x80\\xaeright"}, /* turns the writing around */
        {"\xc2\x9b", "\\xc2\\x9b"},                    /* CSI in one character */
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *escaped = qos_ctl_escape(cases[i][0]);
        g_assert_cmpstr(escaped, ==, cases[i][1]);
    }
}

static void check_hint(const char *name, const char *expected)
{
    static const char *const names[] = {"status", "jobs", "policy", "rule", "dd.1000", "dd.1001"};
    g_autoptr(GPtrArray) array = g_ptr_array_new();
    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        g_ptr_array_add(array, (gpointer)names[i]);
    g_autofree char *hint = qos_ctl_hint(name, array);
    g_assert_cmpstr(hint, ==, expected);
}

static void test_hint(void)
{
    check_hint("stauts", "; did you mean 'status'?"); /* neighbours swapped */
    check_hint("job", "; did you mean 'jobs'?");      /* one missing */
    check_hint("jobss", "; did you mean 'jobs'?");    /* one too many */
    check_hint("polici", "; did you mean 'policy'?"); /* one replaced */
    check_hint("dd.100", "; did you mean 'dd.1000' or 'dd.1001'?");
    check_hint("1001", "; did you mean 'dd.1001'?"); /* a part of it */
    check_hint("frobnicate", "");
    check_hint("", "");
}

static void test_hint_is_short(void)
{
    g_autoptr(GPtrArray) array = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < 1000; i++)
        g_ptr_array_add(array, g_strdup_printf("job.%03u", i));
    g_autofree char *hint = qos_ctl_hint("job.", array);
    g_assert_cmpstr(hint, ==,
                    "; did you mean 'job.000', 'job.001', 'job.002', 'job.003' or 'job.004'?");
}

static const QosCtlColumn columns[] = {
    {.title = "NAME", .flexible = TRUE},
    {.title = "COUNT", .right = TRUE},
    {.title = "NOTE", .optional = TRUE},
    {.title = "LAST"},
};

static char *print(const QosCtlStyle *style, const char *const *cells)
{
    g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
    for (; *cells; cells++)
        qos_ctl_table_add(table, g_strdup(*cells));
    return qos_ctl_table_print(table, style);
}

static void test_table(void)
{
    static const char *const cells[] = {"a", "1", "", "x", "longer", "12345678", "", "", NULL};
    g_autofree char *plain = print(&(QosCtlStyle){0}, cells);
    g_assert_cmpstr(plain, ==,
                    "NAME       COUNT  LAST\n"
                    "a              1  x\n"
                    "longer  12345678\n");
    g_autofree char *bold = print(&(QosCtlStyle){.bold = TRUE, .width = 80}, cells);
    g_assert_cmpstr(bold, ==,
                    "\033[1mNAME       COUNT  LAST\033[0m\n"
                    "a              1  x\n"
                    "longer  12345678\n");
    static const char *const none[] = {NULL};
    g_autofree char *empty = print(&(QosCtlStyle){0}, none);
    g_assert_cmpstr(empty, ==, "NAME  COUNT  LAST\n");
}

static void test_table_narrow(void)
{
    static const char *const cells[] = {"abcdefghijklmnopqrstuvwxyz", "1", "note", "last", NULL};
    g_autofree char *cut = print(&(QosCtlStyle){.width = 33}, cells);
    g_assert_cmpstr(cut, ==,
                    "NAME            COUNT  NOTE  LAST\n"
                    "abcdefghijklm~      1  note  last\n");
    g_autofree char *without = print(&(QosCtlStyle){.width = 20}, cells);
    g_assert_cmpstr(without, ==,
                    "NAME          COUNT\n"
                    "abcdefghijk~      1\n");
    /* The first column stays, however narrow it is. */
    g_autofree char *first = print(&(QosCtlStyle){.width = 1}, cells);
    g_assert_cmpstr(first, ==, "NAME\nabcdefghijk~\n");
}

static void test_table_wide_characters(void)
{
    static const char *const cells[] = {
        "\xe6\x97\xa5\xe6\x9c\xac", "1", "", "x", "ab", "2", "", "y", NULL};
    g_autofree char *text = print(&(QosCtlStyle){0}, cells);
    g_assert_cmpstr(text, ==,
                    "NAME  COUNT  LAST\n"
                    "\xe6\x97\xa5\xe6\x9c\xac      1  x\n"
                    "ab        2  y\n");
}

/* Whatever is in it and however narrow the terminal, no line but that of a lone first column is
 * wider. */
static void test_table_fits(void)
{
    GRand *random = g_rand_new_with_seed(20);
    for (guint round = 0; round < 2000; round++) {
        g_autoptr(QosCtlTable) table = qos_ctl_table_new(columns, G_N_ELEMENTS(columns));
        guint rows = (guint)g_rand_int_range(random, 0, 5);
        for (guint i = 0; i < rows * G_N_ELEMENTS(columns); i++)
            qos_ctl_table_add(table, g_strnfill((gsize)g_rand_int_range(random, 0, 40), 'x'));
        guint width = (guint)g_rand_int_range(random, 12, 100);
        g_autofree char *text = qos_ctl_table_print(table, &(QosCtlStyle){.width = width});
        g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
        g_assert_cmpuint(g_strv_length(lines), ==, rows + 2);
        for (char **line = lines; *line; line++)
            g_assert_cmpuint(strlen(*line), <=, width);
    }
    g_rand_free(random);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/escape", test_escape);
    g_test_add_func("/ctl/unescape", test_unescape);
    g_test_add_func("/ctl/hint", test_hint);
    g_test_add_func("/ctl/hint/short", test_hint_is_short);
    g_test_add_func("/ctl/table", test_table);
    g_test_add_func("/ctl/table/narrow", test_table_narrow);
    g_test_add_func("/ctl/table/wide-characters", test_table_wide_characters);
    g_test_add_func("/ctl/table/fits", test_table_fits);
    return g_test_run();
}
