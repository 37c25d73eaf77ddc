/*
 * qosfs-sim: runs scenarios, one way of sharing beside the other, and shows what each job got. See
 * qosfs-sim(1).
 *
 * A scenario is a file, or the name of one that is installed: those lie in share/qosfs/scenarios
 * beside the bin/ that this program is in, or in scenarios/ beside the program where it was built.
 */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/near.h"
#include "base/units.h"
#include "base/words.h"
#include "sim/budget_goals.h"
#include "sim/experiment.h"
#include "sim/figures.h"
#include "sim/grid.h"

#define SUFFIX    ".ini"
#define HOURS_MAX 24

typedef enum { DONE, FAILED, USAGE } ExitCode;

typedef struct {
    char **scenarios;
    char *policies;
    char *seed;
    char *periods;
    char *figures;
    gboolean csv;
    gboolean speed;
    gboolean grid;
    gboolean mounts;
    char *hours;
    gboolean list;
    gboolean version;
    GPtrArray *sharings; /* of const QosSharing, those chosen */
    FILE *table;         /* with figures: the metrics as markdown, */
    FILE *numbers;       /* and as CSV */
} Program;

/* --- arguments --- */

static gboolean usage_error(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean usage_error(GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE, message);
    return FALSE;
}

static gboolean add_sharing(Program *program, const char *name, GError **error)
{
    const QosSharing *sharing = qos_sharing_named(name);
    g_autoptr(GString) names = g_string_new(NULL);
    QosNear near;

    if (sharing != NULL && !g_ptr_array_find(program->sharings, sharing, NULL))
        g_ptr_array_add(program->sharings, (gpointer)sharing);
    if (sharing != NULL)
        return TRUE;
    qos_near_init(&near, name);
    for (sharing = qos_sharings; sharing->name != NULL; sharing++) {
        g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", sharing->name);
        qos_near_consider(&near, sharing->name);
    }
    if (near.nearest != NULL)
        return usage_error(error, "there is no policy '%s'; did you mean '%s'?", name,
                           near.nearest);
    return usage_error(error, "there is no policy '%s'; there are: %s", name, names->str);
}

/* `reason` is GOption's, and ends with the option; of a long one the nearest of `entries` is added.
 * Always FALSE. */
static gboolean refuse_option(const GError *reason, const GOptionEntry *entries, GError **error)
{
    const char *word = strrchr(reason->message, ' ');
    QosNear near;

    if (!g_error_matches(reason, G_OPTION_ERROR, G_OPTION_ERROR_UNKNOWN_OPTION) || word == NULL ||
        !g_str_has_prefix(word, " --"))
        return usage_error(error, "%s", reason->message);
    qos_near_init(&near, word + strlen(" --"));
    qos_near_consider(&near, "help");
    for (; entries->long_name != NULL; entries++) {
        if (entries->long_name[0] != '\0') /* the name of G_OPTION_REMAINING is empty */
            qos_near_consider(&near, entries->long_name);
    }
    if (near.nearest == NULL)
        return usage_error(error, "%s", reason->message);
    return usage_error(error, "%s; did you mean '--%s'?", reason->message, near.nearest);
}

/* The ways of sharing that are named, or all. */
static gboolean choose_sharings(Program *program, GError **error)
{
    g_auto(GStrv) names = g_strsplit(program->policies != NULL ? program->policies : "", ",", 0);

    if (program->policies == NULL) {
        for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++)
            g_ptr_array_add(program->sharings, (gpointer)sharing);
    }
    for (guint i = 0; names[i] != NULL; i++) {
        if (!add_sharing(program, names[i], error))
            return FALSE;
    }
    return program->sharings->len > 0 || usage_error(error, "--policy: which?");
}

static gboolean parse_arguments(Program *program, char ***arguments, GError **error)
{
    const GOptionEntry entries[] = {
        {"policy", 'p', 0, G_OPTION_ARG_STRING, &program->policies,
         "Of none, static, paper, fair, rules, gps (all)", "NAME[,NAME...]"},
        {"seed", 's', 0, G_OPTION_ARG_STRING, &program->seed, "In place of the scenario's", "N"},
        {"period", 't', 0, G_OPTION_ARG_STRING, &program->periods,
         "In place of the scenario's; one run for each", "TIME[,TIME...]"},
        {"csv", 0, 0, G_OPTION_ARG_NONE, &program->csv, "Print CSV", NULL},
        {"figures", 'f', 0, G_OPTION_ARG_FILENAME, &program->figures,
         "Draw figures there, and write metrics.*", "DIR"},
        {"speed", 0, 0, G_OPTION_ARG_NONE, &program->speed, "Print how fast each run was", NULL},
        {"grid", 0, 0, G_OPTION_ARG_NONE, &program->grid,
         "Run the grid of stores; 1: some are left idle", NULL},
        {"hours", 0, 0, G_OPTION_ARG_STRING, &program->hours,
         "With --grid: run each point for so many", "N"},
        {"mounts", 0, 0, G_OPTION_ARG_NONE, &program->mounts,
         "One budget over N mounts; 1: a goal is missed", NULL},
        {"list", 'l', 0, G_OPTION_ARG_NONE, &program->list, "List the scenarios", NULL},
        {"version", 'V', 0, G_OPTION_ARG_NONE, &program->version, "Print the version", NULL},
        {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &program->scenarios, NULL, NULL},
        {NULL}};
    g_autoptr(GOptionContext) context = g_option_context_new("[SCENARIO...]");
    g_autoptr(GError) reason = NULL;

    g_option_context_set_summary(
        context, "Runs scenarios with the scheduler of qosfs in virtual time, and shows what\n"
                 "each job gets.");
    g_option_context_set_description(
        context, "A SCENARIO is a file (with a / or " SUFFIX
                 " in its name) or the name of a shipped\none; all of these by default. See also "
                 "qosfs-sim(1).");
    g_option_context_add_main_entries(context, entries, NULL);
    qos_words_split(arguments, entries);
    if (!g_option_context_parse_strv(context, arguments, &reason))
        return refuse_option(reason, entries, error);
    return choose_sharings(program, error);
}

/* --- scenarios --- */

/* The folder of the shipped scenarios; NULL where there is none. Free with g_free. */
static char *scenario_folder(void)
{
    g_autofree char *program = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *folder = program != NULL ? g_path_get_dirname(program) : g_strdup(".");
    char *candidates[] = {
        g_build_filename(folder, "scenarios", NULL),
        g_build_filename(folder, "..", "share", "qosfs", "scenarios", NULL),
    };
    char *found = NULL;

    for (guint i = 0; i < G_N_ELEMENTS(candidates); i++) {
        if (found == NULL && g_file_test(candidates[i], G_FILE_TEST_IS_DIR))
            found = candidates[i];
        else
            g_free(candidates[i]);
    }
    return found;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the shipped scenarios, in order; strings are owned. */
static GPtrArray *shipped_names(void)
{
    g_autofree char *folder = scenario_folder();
    g_autoptr(GDir) dir = folder != NULL ? g_dir_open(folder, 0, NULL) : NULL;
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    const char *file;

    while (dir != NULL && (file = g_dir_read_name(dir)) != NULL) {
        if (g_str_has_suffix(file, SUFFIX))
            g_ptr_array_add(names, g_strndup(file, strlen(file) - strlen(SUFFIX)));
    }
    g_ptr_array_sort(names, compare_names);
    return names;
}

/* Always NULL. */
static QosScenario *refuse_scenario(const char *name, GError **error)
{
    g_autoptr(GPtrArray) names = shipped_names();
    QosNear near;

    qos_near_init(&near, name);
    for (guint i = 0; i < names->len; i++)
        qos_near_consider(&near, names->pdata[i]);
    if (near.nearest != NULL)
        qos_set_error(error, ENOENT,
                      "there is no scenario '%s'; did you mean '%s'? A file is given as ./%s", name,
                      near.nearest, name);
    else
        qos_set_error(error, ENOENT,
                      "there is no scenario '%s' ('qosfs-sim --list' tells which there are); give "
                      "a file as ./%s",
                      name, name);
    return NULL;
}

static QosScenario *load(const char *name, GError **error)
{
    if (strchr(name, '/') != NULL || g_str_has_suffix(name, SUFFIX))
        return qos_scenario_load(name, error);
    g_autofree char *folder = scenario_folder();
    g_autofree char *file = g_strconcat(name, SUFFIX, NULL);
    g_autofree char *path = folder != NULL ? g_build_filename(folder, file, NULL) : NULL;
    if (path != NULL && g_file_test(path, G_FILE_TEST_EXISTS))
        return qos_scenario_load(path, error);
    return refuse_scenario(name, error);
}

static gboolean override(const Program *program, QosScenario *scenario, GError **error)
{
    g_autoptr(GError) problem = NULL;
    gint64 seed = scenario->seed;

    if (program->seed != NULL &&
        !qos_parse_integer("--seed", program->seed, 0, G_MAXUINT32, &seed, &problem))
        return usage_error(error, "%s", problem->message);
    scenario->seed = (guint32)seed;
    if (program->periods == NULL)
        return TRUE;
    g_autofree char *periods = g_strdelimit(g_strdup(program->periods), ",", ' ');
    return qos_scenario_set_periods(scenario, periods, &problem) ||
           usage_error(error, "--period: %s", problem->message);
}

/* --- output --- */

static FILE *create(const char *directory, const char *name, GError **error)
{
    g_autofree char *path = g_build_filename(directory, name, NULL);
    FILE *file = fopen(path, "w");

    if (file == NULL)
        qos_set_error(error, errno, "cannot write %s: %s", path, g_strerror(errno));
    return file;
}

static gboolean open_output(Program *program, GError **error)
{
    if (program->csv)
        qos_experiment_print_csv_header(stdout);
    if (program->figures == NULL)
        return TRUE;
    if (g_mkdir_with_parents(program->figures, 0777) != 0) {
        qos_set_error(error, errno, "cannot make %s: %s", program->figures, g_strerror(errno));
        return FALSE;
    }
    program->table = create(program->figures, "metrics.md", error);
    if (program->table == NULL)
        return FALSE;
    program->numbers = create(program->figures, "metrics.csv", error);
    if (program->numbers == NULL)
        return FALSE;
    qos_experiment_print_csv_header(program->numbers);
    return TRUE;
}

static gboolean close_file(FILE *file, GError **error)
{
    if (file == NULL || fclose(file) == 0)
        return TRUE;
    if (error == NULL || *error == NULL)
        qos_set_error(error, errno, "cannot write: %s", g_strerror(errno));
    return FALSE;
}

static gboolean run_scenario(Program *program, const char *name, GError **error)
{
    g_autoptr(QosScenario) scenario = load(name, error);

    if (scenario == NULL || !override(program, scenario, error))
        return FALSE;
    g_autoptr(QosExperiment) experiment =
        qos_experiment_run(g_steal_pointer(&scenario), program->sharings);
    if (!qos_experiment_check(experiment, error))
        return FALSE;
    if (program->csv)
        qos_experiment_print_csv(experiment, stdout);
    else
        qos_experiment_print(experiment, program->speed, stdout);
    if (program->figures == NULL)
        return TRUE;
    qos_experiment_print_markdown(experiment, program->table);
    qos_experiment_print_csv(experiment, program->numbers);
    return qos_figures_draw(experiment, program->figures, error);
}

static gboolean run_all(Program *program, GError **error)
{
    g_autoptr(GPtrArray) names = shipped_names();

    if (names->len == 0) {
        qos_set_error(error, ENOENT, "there are no shipped scenarios: give a file");
        return FALSE;
    }
    for (guint i = 0; i < names->len; i++) {
        if (!run_scenario(program, names->pdata[i], error))
            return FALSE;
    }
    return TRUE;
}

static gboolean run_named(Program *program, GError **error)
{
    for (guint i = 0; program->scenarios[i] != NULL; i++) {
        if (!run_scenario(program, program->scenarios[i], error))
            return FALSE;
    }
    return TRUE;
}

static gboolean list(GError **error)
{
    g_autoptr(GPtrArray) names = shipped_names();

    for (guint i = 0; i < names->len; i++) {
        g_autoptr(QosScenario) scenario = load(names->pdata[i], error);
        if (scenario == NULL)
            return FALSE;
        printf("%-12s %s\n", scenario->name, scenario->title);
    }
    return TRUE;
}

static gboolean run_grid(const Program *program, GError **error)
{
    g_autoptr(GError) problem = NULL;
    gint64 hours = 0;

    if (program->scenarios != NULL)
        return usage_error(error, "--grid has stores of its own: it takes no SCENARIO");
    if (program->hours != NULL &&
        !qos_parse_integer("--hours", program->hours, 1, HOURS_MAX, &hours, &problem))
        return usage_error(error, "%s", problem->message);
    const guint missed = qos_grid_print((guint)hours, stdout);
    if (missed > 0)
        qos_set_error(error, ERANGE, "%u points of the grid are not as they should be", missed);
    return missed == 0;
}

static gboolean run_mounts(const Program *program, GError **error)
{
    if (program->scenarios != NULL)
        return usage_error(error, "--mounts has loads of its own: it takes no SCENARIO");
    const guint missed = qos_budget_goals_print(stdout);
    if (missed > 0)
        qos_set_error(error, ERANGE, "%u runs miss their goals", missed);
    return missed == 0;
}

static gboolean run(Program *program, char ***arguments, GError **error)
{
    if (!parse_arguments(program, arguments, error))
        return FALSE;
    if (program->version) {
        puts("qosfs-sim " QOSFS_VERSION);
        return TRUE;
    }
    if (program->list)
        return list(error);
    if (program->hours != NULL && !program->grid)
        return usage_error(error, "--hours is for --grid");
    if (program->grid)
        return run_grid(program, error);
    if (program->mounts)
        return run_mounts(program, error);
    if (!open_output(program, error))
        return FALSE;
    return program->scenarios != NULL ? run_named(program, error) : run_all(program, error);
}

static void clear(Program *program)
{
    g_ptr_array_unref(program->sharings);
    g_strfreev(program->scenarios);
    g_free(program->policies);
    g_free(program->seed);
    g_free(program->hours);
    g_free(program->periods);
    g_free(program->figures);
}

int main(int argc, char **argv)
{
    Program program = {.sharings = g_ptr_array_new()};
    g_auto(GStrv) arguments = g_strdupv(argv);
    g_autoptr(GError) error = NULL;

    (void)argc;
    setlocale(LC_CTYPE, ""); /* not LC_NUMERIC: numbers are for scripts too */
    g_set_prgname("qosfs-sim");
    gboolean ok = run(&program, &arguments, &error);
    ok = close_file(program.table, &error) && ok;
    ok = close_file(program.numbers, &error) && ok;
    ok = close_file(stdout, &error) && ok;
    clear(&program);
    if (ok)
        return DONE;
    fprintf(stderr, "%s: %s\n", g_get_prgname(), error->message);
    if (error->domain != G_OPTION_ERROR)
        return FAILED;
    fprintf(stderr, "Try '%s --help'.\n", g_get_prgname());
    return USAGE;
}
