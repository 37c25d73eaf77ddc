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

static const QosTrial *const trials[] = {&qos_trial_credit, &qos_trial_epoch, &qos_trial_pool};

typedef struct {
    char *trial; /* NULL: all */
    char *broken;
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

/* Up to the first seed that fails; returns the status of the program. */
static int run_all(const Program *program)
{
    guint64 steps = 0;
    guint64 runs = 0;

    for (gint64 i = 0; i < program->seeds; i++)
        for (guint j = 0; j < G_N_ELEMENTS(trials); j++) {
            if (!is_chosen(program, trials[j]))
                continue;
            runs++;
            if (!run_seed(program, trials[j], (guint64)program->seed + (guint64)i, &steps))
                return 1;
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
    return status;
}
