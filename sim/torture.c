/*
 * qosfs-torture: runs the protocols of core/ in clusters with faults, one seed after the other. See
 * docs/design/failures.md.
 *
 * A seed that fails is printed with the command that shows what happened, and the exit status is 1.
 * The last line says how many seeds were run.
 */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sim/trial.h"

#define PROGRESS_EVERY 1000 /* seeds */

static const QosTrial *const trials[] = {&qos_trial_budget, &qos_trial_credit, &qos_trial_epoch,
                                         &qos_trial_pool};

typedef struct {
    char *trial; /* NULL: all */
    char *broken;
    char *progress; /* a file; NULL: none */
    gint64 seed, seeds;
    gboolean is_traced;
} Program;

/* TRUE: `trial` is one to run. */
static gboolean is_chosen(const Program *program, const QosTrial *trial)
{
    if (program->trial && strcmp(program->trial, trial->name) != 0)
        return FALSE;
    return !program->broken || g_strv_contains(trial->rules, program->broken);
}

static gboolean is_any_chosen(const Program *program, GError **error)
{
    g_autofree char *name = program->trial ? g_strdup_printf(" \"%s\"", program->trial) : NULL;
    g_autofree char *rule =
        program->broken ? g_strdup_printf(" with the rule \"%s\"", program->broken) : NULL;

    for (guint i = 0; i < G_N_ELEMENTS(trials); i++) {
        if (is_chosen(program, trials[i]))
            return TRUE;
    }
    qos_set_error(error, EINVAL, "there is no trial%s%s; see --help", name ? name : "",
                  rule ? rule : "");
    return FALSE;
}

static gboolean parse_arguments(Program *program, int *argc, char ***argv, GError **error)
{
    const GOptionEntry entries[] = {
        {"seed", 's', 0, G_OPTION_ARG_INT64, &program->seed, "The first seed; 1 by default", "N"},
        {"seeds", 'n', 0, G_OPTION_ARG_INT64, &program->seeds, "How many; 1 by default", "N"},
        {"trial", 't', 0, G_OPTION_ARG_STRING, &program->trial, "Only this one", "NAME"},
        {"break", 'b', 0, G_OPTION_ARG_STRING, &program->broken, "Break a rule on purpose", "RULE"},
        {"progress", 'p', 0, G_OPTION_ARG_FILENAME, &program->progress,
         "Note there which seeds are done, and go on behind them", "FILE"},
        {"trace", 0, 0, G_OPTION_ARG_NONE, &program->is_traced, "Print all that happens", NULL},
        {NULL}};
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GString) description = g_string_new("Trials:\n");

    for (guint i = 0; i < G_N_ELEMENTS(trials); i++) {
        g_autofree char *rules = g_strjoinv(", ", (char **)trials[i]->rules);
        g_string_append_printf(description, "  %-8s %s\n           rules to break: %s\n",
                               trials[i]->name, trials[i]->promise, rules);
    }
    g_option_context_set_summary(context, "Runs the protocols of qosfs in clusters that fail.");
    g_option_context_set_description(context, description->str);
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, argc, argv, error))
        return FALSE;
    if (*argc > 1)
        qos_set_error(error, EINVAL, "\"%s\" is no option; see --help", (*argv)[1]);
    else if (program->seeds < 1)
        qos_set_error(error, EINVAL, "--seeds: at least 1");
    return *error == NULL && is_any_chosen(program, error);
}

static gboolean run_seed(const Program *program, const QosTrial *trial, guint64 seed,
                         guint64 *steps)
{
    const QosTrialRun run = {trial, seed, program->broken, program->is_traced};
    const QosTrialResult result = qos_trial_run(&run);
    g_autofree char *failure = result.failure;

    *steps += result.steps;
    if (!failure)
        return TRUE;
    printf("%s, seed %" G_GUINT64_FORMAT ": %s\n", trial->name, seed, failure);
    printf("  to see it: qosfs-torture --trial %s --seed %" G_GUINT64_FORMAT "%s%s --trace\n",
           trial->name, seed, program->broken ? " --break " : "",
           program->broken ? program->broken : "");
    return FALSE;
}

/* How many of the seeds a former run has done: with the same arguments, as the file says. */
static gint64 read_progress(const Program *program)
{
    g_autofree char *text = NULL;
    gint64 first = 0, done = 0;

    if (program->progress == NULL || !g_file_get_contents(program->progress, &text, NULL, NULL) ||
        sscanf(text, "%" G_GINT64_FORMAT " %" G_GINT64_FORMAT, &first, &done) != 2 ||
        first != program->seed)
        return 0;
    return CLAMP(done, 0, program->seeds);
}

/* FALSE: it cannot be written, which has been said. */
static gboolean write_progress(const Program *program, gint64 done)
{
    g_autofree char *text =
        g_strdup_printf("%" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n", program->seed, done);
    g_autoptr(GError) error = NULL;

    if (program->progress == NULL || (done % PROGRESS_EVERY != 0 && done != program->seeds) ||
        g_file_set_contents(program->progress, text, -1, &error))
        return TRUE;
    fprintf(stderr, "qosfs-torture: %s\n", error->message);
    return FALSE;
}

/* Up to the first seed that fails; returns the status of the program. */
static int run_all(const Program *program)
{
    guint64 steps = 0;
    guint64 runs = 0;

    for (gint64 i = read_progress(program); i < program->seeds; i++) {
        for (guint j = 0; j < G_N_ELEMENTS(trials); j++) {
            if (!is_chosen(program, trials[j]))
                continue;
            runs++;
            if (!run_seed(program, trials[j], (guint64)program->seed + (guint64)i, &steps))
                return 1;
        }
        if (!write_progress(program, i + 1))
            return 2;
    }
    printf("%" G_GUINT64_FORMAT " runs, %" G_GUINT64_FORMAT " steps: nothing failed\n", runs,
           steps);
    return 0;
}

int main(int argc, char **argv)
{
    Program program = {.seed = 1, .seeds = 1};
    g_autoptr(GError) error = NULL;
    int status = 2;

    setlocale(LC_CTYPE, "");
    if (parse_arguments(&program, &argc, &argv, &error))
        status = run_all(&program);
    else
        fprintf(stderr, "qosfs-torture: %s\n", error->message);
    g_free(program.trial);
    g_free(program.broken);
    g_free(program.progress);
    return status;
}
