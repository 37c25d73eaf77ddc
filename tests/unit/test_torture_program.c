/*
 * qosfs-torture as a program: a seed that fails is printed with the command that shows it, and that
 * command shows it again and again. The build names the program (QOSFS_TORTURE).
 */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>

#include "tests/unit/program.h"

#define NAME "qosfs-torture"

static Result run(const char *line)
{
    return run_program("QOSFS_TORTURE", line);
}

static void test_nothing_fails(void)
{
    g_auto(Result) result = run("--seeds 3");

    g_assert_cmpint(result.status, ==, 0);
    g_assert_true(g_str_has_prefix(result.out, "12 runs, "));
    g_assert_true(g_str_has_suffix(result.out, " steps: nothing failed\n"));
}

/* A run that was stopped goes on where it was. */
static void test_goes_on(void)
{
    g_autofree char *path = g_build_filename(g_get_tmp_dir(), "qosfs-torture-XXXXXX", NULL);
    const int file = g_mkstemp(path);
    g_autofree char *line = g_strdup_printf("--trial epoch --seed 5 --seeds 3 --progress %s", path);

    g_assert_cmpint(file, >=, 0);
    g_close(file, NULL);
    g_auto(Result) all = run(line);
    g_assert_true(g_str_has_prefix(all.out, "3 runs, "));
    g_assert_true(g_file_set_contents(path, "5 2\n", -1, NULL));
    g_auto(Result) rest = run(line);
    g_assert_true(g_str_has_prefix(rest.out, "1 runs, "));
    g_auto(Result) none = run(line);
    g_assert_true(g_str_has_prefix(none.out, "0 runs, "));
    g_assert_true(g_file_set_contents(path, "6 2\n", -1, NULL)); /* of other seeds */
    g_auto(Result) others = run(line);
    g_assert_true(g_str_has_prefix(others.out, "3 runs, "));
    g_unlink(path);
}

/* A rule of each trial is broken. `seen`: a message of the trace. */
static void test_failure_is_shown(void)
{
    static const struct {
        const char *trial, *rule, *seen;
    } cases[] = {
        {"budget", "ack", "-> root: REPORT "},
        {"credit", "fencing", ": ENQUEUE "},
        {"epoch", "incarnation", "-> root: READY epoch "},
        {"pool", "late-slr", "-> server: ENQUEUE "},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *line = g_strdup_printf("--break %s --seeds 2000", cases[i].rule);
        g_auto(Result) found = run(line);
        g_assert_cmpint(found.status, ==, 1);
        g_auto(GStrv) lines = g_strsplit(found.out, "\n", -1);
        g_assert_cmpuint(g_strv_length(lines), ==, 3); /* the last one is empty */
        g_autofree char *trial = g_strconcat(cases[i].trial, ", seed ", NULL);
        g_assert_true(g_str_has_prefix(lines[0], trial));
        const char *failure = strstr(lines[0], ": ");
        const char *command = strstr(lines[1], NAME " ");
        g_assert_true(failure != NULL && command != NULL);

        g_auto(Result) first = run(command + strlen(NAME " "));
        g_auto(Result) second = run(command + strlen(NAME " "));
        g_autofree char *failed = g_strconcat(" FAILED", failure, "\n", NULL);
        g_assert_cmpint(first.status, ==, 1);
        g_assert_nonnull(strstr(first.out, failed));
        g_assert_true(g_str_has_suffix(first.out, found.out));
        g_assert_cmpstr(first.out, ==, second.out);
        g_assert_nonnull(strstr(first.out, cases[i].seen));
    }
}

static void test_wrong_arguments(void)
{
    static const struct {
        const char *line, *error;
    } cases[] = {
        {"--seeds 0", "--seeds: at least 1"},
        {"--seed x", "x"},
        {"--trial credits", "there is no trial \"credits\"; see --help"},
        {"--break late", "there is no trial with the rule \"late\"; see --help"},
        {"--trial pool --break fencing", "there is no trial \"pool\" with the rule \"fencing\""},
        {"5", "\"5\" is no option"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(Result) result = run(cases[i].line);
        g_test_message("%s: %s", cases[i].line, result.err);
        g_assert_cmpint(result.status, ==, 2);
        g_assert_true(g_str_has_prefix(result.err, NAME ": "));
        g_assert_nonnull(strstr(result.err, cases[i].error));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/torture-program/nothing-fails", test_nothing_fails);
    g_test_add_func("/torture-program/goes-on", test_goes_on);
    g_test_add_func("/torture-program/failure-is-shown", test_failure_is_shown);
    g_test_add_func("/torture-program/wrong-arguments", test_wrong_arguments);
    return g_test_run();
}
