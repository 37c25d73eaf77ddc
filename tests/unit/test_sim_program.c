/*
 * qosfs-sim as a program: its arguments, its output, its figures. The build names it (QOSFS_SIM).
 */
#include <glib/gstdio.h>
#include <string.h>

#include "sim/simulator.h"
#include "tests/unit/program.h"

static Result run(const char *line)
{
    return run_program("QOSFS_SIM", line);
}

static void test_repeats(void)
{
    g_auto(Result) first = run("trickle auto-noise tiny");
    g_auto(Result) second = run("trickle auto-noise tiny");
    g_auto(Result) other = run("--seed 2 trickle auto-noise tiny");

    g_assert_cmpint(first.status, ==, 0);
    g_assert_cmpstr(first.err, ==, "");
    g_assert_cmpstr(first.out, ==, second.out);
    g_assert_nonnull(strstr(first.out, "(seed 1)"));
    g_assert_cmpstr(first.out, !=, other.out);
    g_assert_nonnull(strstr(other.out, "(seed 2)"));
}

static void test_wrong_arguments(void)
{
    static const struct {
        const char *line;
        int status;
        const char *message;
    } cases[] = {
        {"--polisy fair tiny", 2, "Unknown option --polisy; did you mean '--policy'?\n"},
        {"--frobnicate tiny", 2, "Unknown option --frobnicate\n"},
        {"-x tiny", 2, "Unknown option -x\n"},
        {"--policy", 2, "Missing argument for --policy\n"},
        {"--policy fiar tiny", 2, "there is no policy 'fiar'; did you mean 'fair'?\n"},
        {"--policy weighted tiny", 2,
         "there is no policy 'weighted'; there are: none, static, paper, fair"},
        {"--policy fair, tiny", 2, "there is no policy ''"},
        {"--policy '' tiny", 2, "--policy: which?"},
        {"--seed x tiny", 2, "--seed: \"x\""},
        {"--seed -1 tiny", 2, "--seed"},
        {"--period 1ms tiny", 2, "--period: out of range: 0.005 to 10 s"},
        {"--period soon tiny", 2, "--period: "},
        {"--grid tiny", 2, "--grid has stores of its own: it takes no SCENARIO"},
        {"--grid --hours 0", 2, "--hours: 0 is not between 1 and 24"},
        {"--grid --hours x", 2, "--hours: \"x\""},
        {"--hours 1 tiny", 2, "--hours is for --grid"},
        {"tyni", 1, "there is no scenario 'tyni' ('qosfs-sim --list' tells which there are)"},
        {"tinny", 1, "there is no scenario 'tinny'; did you mean 'tiny'?"},
        {"./tyni", 1, "./tyni: "},
        {"tyni.ini", 1, "tyni.ini: "},
        {"--figures /dev/null/x tiny", 1, "cannot make /dev/null/x: "},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(Result) result = run(cases[i].line);
        if (result.status != cases[i].status || strstr(result.err, cases[i].message) == NULL)
            g_error("qosfs-sim %s: %d, %s", cases[i].line, result.status, result.err);
        g_assert_true(g_str_has_prefix(result.err, "qosfs-sim: "));
    }
}

static void test_list(void)
{
    g_auto(Result) result = run("--list");
    g_auto(GStrv) lines = g_strsplit(g_strchomp(result.out), "\n", -1);

    g_assert_cmpint(result.status, ==, 0);
    g_assert_cmpuint(g_strv_length(lines), >=, 19);
    g_assert_true(g_str_has_prefix(lines[0], "auto-down "));
}

/* Each line has a value for each column, and the policies are those asked for. */
static void test_csv(void)
{
    g_auto(Result) result = run("--csv --policy fair,none --period 20ms,1s waking");
    g_auto(GStrv) lines = g_strsplit(g_strchomp(result.out), "\n", -1);
    g_auto(GStrv) head = g_strsplit(lines[0], ",", -1);

    g_assert_cmpuint(g_strv_length(lines), ==, 1 + 3 * 3);
    for (guint i = 0; lines[i] != NULL; i++) {
        g_auto(GStrv) fields = g_strsplit(lines[i], ",", -1);
        g_assert_cmpuint(g_strv_length(fields), ==, g_strv_length(head));
    }
    g_assert_true(g_str_has_prefix(lines[1], "waking,1,fair,0.020,,"));
    g_assert_true(g_str_has_prefix(lines[4], "waking,1,fair,1.000,,"));
    g_assert_true(g_str_has_prefix(lines[7], "waking,1,none,0.000,,"));
    g_assert_true(g_str_has_prefix(lines[8], "waking,1,none,0.000,lender,50,"));
}

/* Rules alone are left out where there are none, but not where nothing else is asked for. */
static void test_no_rules(void)
{
    g_auto(Result) alone = run("--policy rules tiny");
    g_auto(Result) beside = run("--policy rules,none tiny");

    g_assert_cmpint(alone.status, ==, 0);
    g_assert_nonnull(strstr(alone.out, "rules alone"));
    g_assert_cmpint(beside.status, ==, 0);
    g_assert_null(strstr(beside.out, "rules alone"));
}

/* Runs a scenario of that text. */
static Result run_text(const char *options, const char *text)
{
    g_autofree char *folder = g_dir_make_tmp("qosfs-program-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "x.ini", NULL);
    g_autofree char *line = g_strdup_printf("%s %s", options, path);

    g_assert_true(g_file_set_contents(path, text, -1, NULL));
    Result result = run(line);
    g_unlink(path);
    g_rmdir(folder);
    return result;
}

/* A job with one request, and one that gets one in a second: 91 of its 100 wait until the end. */
static void test_rates_of_few_requests(void)
{
    g_auto(Result) result =
        run_text("--policy rules", "[scenario]\nduration=10s\n[store]\ncapacity=1000\n"
                                   "[client one]\nrequests=1\n"
                                   "[client none]\nrequests=1\nprocesses=100\nstart=1s\n"
                                   "[rules]\na=0: start r jobid={none} rate=1 depth=1\n");
    static const char *const expected[] = {"  op/s of each job:          one        none\n",
                                           "rules alone                  1.0         1.0\n",
                                           "  requests left without a reply at the end:\n",
                                           "rules alone                    0          91\n"};

    g_assert_cmpint(result.status, ==, 0);
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        if (strstr(result.out, expected[i]) == NULL)
            g_error("there is no \"%s\" in: %s", expected[i], result.out);
    }
}

/* A load far beyond what the store serves ends with a message before it takes the memory. */
static void test_overload(void)
{
    g_auto(Result) result = run_text("", "[store]\ncapacity=10\n[client a]\nrate=1e6\n");

    g_assert_cmpint(result.status, ==, 1);
    g_assert_cmpstr(result.out, ==, "");
    g_assert_nonnull(strstr(result.err, "s with No BW more than 2000000 requests wait"));
}

static void test_full_disk(void)
{
    g_autofree char *line = g_strdup_printf("%s --version >/dev/full", g_getenv("QOSFS_SIM"));
    const char *arguments[] = {"/bin/sh", "-c", line, NULL};
    g_autofree char *messages = NULL;
    int status;

    g_assert_true(g_spawn_sync(NULL, (char **)arguments, NULL, G_SPAWN_DEFAULT, NULL, NULL, NULL,
                               &messages, &status, NULL));
    g_assert_false(g_spawn_check_wait_status(status, NULL));
    g_assert_nonnull(strstr(messages, "cannot write: "));
}

static void remove_folder(const char *folder)
{
    g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_build_filename(folder, name, NULL);
        g_unlink(path);
    }
    g_rmdir(folder);
}

static void assert_holds(const char *folder, const char *name, const char *text)
{
    g_autofree char *path = g_build_filename(folder, name, NULL);
    g_autofree char *content = NULL;

    g_assert_true(g_file_get_contents(path, &content, NULL, NULL));
    if (strstr(content, text) == NULL)
        g_error("%s does not hold \"%s\"", path, text);
}

static void test_figures(void)
{
    g_autofree char *gnuplot = g_find_program_in_path("gnuplot");
    if (gnuplot == NULL) {
        g_test_skip("gnuplot is not installed");
        return;
    }
    g_autofree char *folder = g_dir_make_tmp("qosfs-figures-XXXXXX", NULL);
    g_autofree char *own = g_build_filename(folder, "own.ini", NULL);
    g_autofree char *line = g_strdup_printf("--figures %s/new iv-d iv-e iv-f iv-h %s", folder, own);
    g_autofree char *figures = g_build_filename(folder, "new", NULL);
    g_assert_true(g_file_set_contents(own,
                                      "[scenario]\ntitle=One's own\nduration=1s\n"
                                      "[store]\ncapacity=100\n[client a]\n[figures]\nbars=own\n",
                                      -1, NULL));
    g_auto(Result) result = run(line);

    g_assert_cmpstr(result.err, ==, "");
    g_assert_cmpint(result.status, ==, 0);
    for (guint i = 3; i <= 9; i++) {
        g_autofree char *name = g_strdup_printf("figure-%u.svg", i);
        assert_holds(figures, name, "(op/s)");
        assert_holds(figures, name, "</svg>");
        assert_holds(figures, name, "AdapTBF");
    }
    assert_holds(figures, "figure-7.svg", "record, AdapTBF");
    assert_holds(figures, "own.svg", "One's own");
    assert_holds(figures, "metrics.md", "## Re-compensation (IV-F)");
    assert_holds(figures, "metrics.csv", "iv-h,1,fair,0.010,,");
    remove_folder(figures);
    remove_folder(folder);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (g_getenv("QOSFS_SIM") == NULL)
        g_error("QOSFS_SIM: where is qosfs-sim?");
    g_test_add_func("/sim-program/repeats", test_repeats);
    g_test_add_func("/sim-program/wrong-arguments", test_wrong_arguments);
    g_test_add_func("/sim-program/list", test_list);
    g_test_add_func("/sim-program/csv", test_csv);
    g_test_add_func("/sim-program/no-rules", test_no_rules);
    g_test_add_func("/sim-program/rates-of-few-requests", test_rates_of_few_requests);
    g_test_add_func("/sim-program/overload", test_overload);
    g_test_add_func("/sim-program/full-disk", test_full_disk);
    g_test_add_func("/sim-program/figures", test_figures);
    return g_test_run();
}
