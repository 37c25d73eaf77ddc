/*
 * Messages of errors.
 */
#include "base/error.h"

#include <errno.h>

/* SQLite quotes bytes of a damaged database: a line of a log stays one line. */
static void test_one_line(void)
{
    g_autoptr(GError) error = NULL;

    qos_set_error(&error, EUCLEAN, "database %s is damaged", "/a\nb\t\x1b[2J\x7f\xc3\xa9");
    g_assert_error(error, QOS_ERROR, EUCLEAN);
    g_assert_cmpstr(error->message, ==, "database /a?b??[2J?\xc3\xa9 is damaged");
}

static void test_ignored(void)
{
    qos_set_error(NULL, EINVAL, "nobody asks");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/error/one-line", test_one_line);
    g_test_add_func("/error/ignored", test_ignored);
    return g_test_run();
}
