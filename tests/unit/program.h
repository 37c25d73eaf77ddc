/*
 * A program of ours, run to its end: what it printed, and its status.
 */
#pragma once

#include <glib.h>

typedef struct {
    char *out;
    char *err;
    int status; /* exit code */
} Result;

static inline void result_clear(Result *result)
{
    g_free(result->out);
    g_free(result->err);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Result, result_clear)

/* The program that the environment's `variable` names, which the build sets. `line` is what a shell
 * would be given after its name. */
static inline Result run_program(const char *variable, const char *line)
{
    g_autofree char *command = g_strdup_printf("%s %s", g_getenv(variable), line);
    g_autoptr(GError) error = NULL;
    Result result = {0};
    int status;

    g_spawn_command_line_sync(command, &result.out, &result.err, &status, &error);
    g_assert_no_error(error);
    if (!g_spawn_check_wait_status(status, &error)) {
        g_assert_true(error->domain == G_SPAWN_EXIT_ERROR);
        result.status = error->code;
    }
    return result;
}
