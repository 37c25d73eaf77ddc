/*
 * Scenarios for the tests of the simulator: from a text, or the shipped ones, which the build names
 * the folder of (QOSFS_SCENARIOS).
 */
#pragma once

#include <glib/gstdio.h>

#include "sim/scenario.h"

/* What the file was called is "X.ini" in the message of *error. */
static inline QosScenario *scenario_of_text(const char *text, gssize length, GError **error)
{
    g_autofree char *folder = g_dir_make_tmp("qosfs-scenario-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "X.ini", NULL);

    g_assert_true(g_file_set_contents(path, text, length, NULL));
    QosScenario *scenario = qos_scenario_load(path, error);
    g_unlink(path);
    g_rmdir(folder);
    return scenario;
}

/* It must be right. */
static inline QosScenario *scenario_of(const char *text)
{
    GError *error = NULL;
    QosScenario *scenario = scenario_of_text(text, -1, &error);

    g_assert_no_error(error);
    return scenario;
}

static inline QosScenario *shipped_scenario(const char *name)
{
    const char *folder = g_getenv("QOSFS_SCENARIOS");
    g_autofree char *file = g_strconcat(name, ".ini", NULL);
    g_autofree char *path = g_build_filename(folder != NULL ? folder : "sim/scenarios", file, NULL);
    GError *error = NULL;
    QosScenario *scenario = qos_scenario_load(path, &error);

    g_assert_no_error(error);
    return scenario;
}
