/*
 * JobIDs out of what a process may put into its environment, its name and its cgroup. The input: a
 * line with jobid_var, one with jobid_name, one with the name of the process, one with its cgroup,
 * and the environment. Whatever comes, the JobID fits and is UTF-8.
 */
#include <glib.h>
#include <string.h>

#include "fs/caller/job_name.h"
#include "fs/jobs.h"

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

/* Cuts the next line off, as a string of its own. */
static char *take_line(const char **data, gsize *size)
{
    const char *end = *size ? memchr(*data, '\n', *size) : NULL;
    gsize length = end ? (gsize)(end - *data) : *size;
    char *line = g_strndup(*data, length);

    length += end != NULL;
    *data += length;
    *size -= length;
    return line;
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    const char *rest = (const char *)data;
    g_autofree char *var = take_line(&rest, &size);
    g_autofree char *name = take_line(&rest, &size);
    g_autofree char *comm = take_line(&rest, &size);
    g_autofree char *cgroup = take_line(&rest, &size);
    g_autofree char *environment = g_memdup2(rest, size); /* so that reading past its end shows */
    g_autoptr(GError) error = NULL;
    QosJobNaming *naming = qos_job_naming_new(var, name, "node7.cluster", &error);

    g_assert_true((naming == NULL) == (error != NULL));
    if (naming) {
        const QosProcess process = {.comm = comm,
                                    .cgroup = cgroup,
                                    .environment = environment,
                                    .environment_length = size,
                                    .pid = 4711,
                                    .uid = 1000,
                                    .gid = 100};
        char id[QOS_JOB_ID_MAX + 1];
        guint nodes;

        memset(id, 'x', sizeof(id));
        qos_job_name_process(naming, &process, id, &nodes);
        g_assert_nonnull(memchr(id, '\0', sizeof(id)));
        g_assert_true(g_utf8_validate(id, -1, NULL));
        qos_job_naming_unref(naming);
    }
    return 0;
}
