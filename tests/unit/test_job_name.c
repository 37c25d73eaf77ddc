/*
 * JobIDs from what /proc says: every jobid_var, every code of jobid_name, and hostile environments.
 */
#include "fs/caller/job_name.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

#include "base/error.h"
#include "fs/jobs.h"

#define HOST "node7.cluster.example"
/* An environment as a literal: its strings, each with its NUL (the last one is the literal's own).
 */
#define ENVIRONMENT(text) .environment = (text), .environment_length = sizeof(text)

static const QosProcess plain = {.comm = "dd", .pid = 4711, .uid = 1000, .gid = 100};

static QosJobNaming *naming_of(const char *var, const char *name)
{
    GError *error = NULL;
    QosJobNaming *naming = qos_job_naming_new(var, name, HOST, &error);

    g_assert_no_error(error);
    return naming;
}

static void check_named(const char *var, const char *name, const QosProcess *process,
                        const char *id, guint nodes)
{
    g_autoptr(QosJobNaming) naming = naming_of(var, name ? name : QOS_JOBID_NAME_DEFAULT);
    char got[QOS_JOB_ID_MAX + 1];
    guint got_nodes = 12345;

    g_assert_false(qos_job_name_process(naming, process, got, &got_nodes));
    g_assert_cmpstr(got, ==, id);
    g_assert_cmpuint(got_nodes, ==, nodes);
}

static void test_variable(void)
{
    QosProcess process = {.comm = "dd", .uid = 1000, ENVIRONMENT("A=1\0JOB=render.7\0B=2")};

    check_named("JOB", NULL, &process, "render.7", 0);
    check_named("B", NULL, &process, "2", 0);
    check_named("OTHER", NULL, &process, "dd.1000", 0);
    check_named("JOB", NULL, &plain, "dd.1000", 0);
}

static void test_variable_is_matched_whole(void)
{
    QosProcess process = {
        .comm = "dd", .uid = 1, ENVIRONMENT("JOB_IDX=a\0XJOB_ID=b\0JOB_ID\0=c\0JOB=d")};
    QosProcess twice = {.comm = "dd", .uid = 1, ENVIRONMENT("JOB_ID=first\0JOB_ID=second")};
    QosProcess inside = {.comm = "dd", .uid = 1, ENVIRONMENT("X=JOB_ID=no\0Y=\nJOB_ID=no\0")};
    QosProcess empty = {.comm = "dd", .uid = 1, ENVIRONMENT("JOB_ID=\0Z=1")};

    check_named("JOB_ID", NULL, &process, "dd.1", 0);
    check_named("JOB", NULL, &process, "d", 0);
    check_named("JOB_ID", NULL, &twice, "first", 0);
    check_named("JOB_ID", NULL, &inside, "dd.1", 0);
    check_named("JOB_ID", NULL, &empty, "dd.1", 0);
}

static void test_auto_order(void)
{
    const QosProcess process[] = {
        {.comm = "x",
         ENVIRONMENT("JOB_ID=5\0FLUX_JOB_ID=4\0LSB_JOBID=3\0PBS_JOBID=2\0SLURM_JOB_ID=1")},
        {.comm = "x",
         ENVIRONMENT("JOB_ID=5\0FLUX_JOB_ID=4\0LSB_JOBID=3\0PBS_JOBID=2\0SLURM_JOB_ID=")},
        {.comm = "x", ENVIRONMENT("JOB_ID=5\0FLUX_JOB_ID=4\0LSB_JOBID=3\0SLURM_JOBID=1")},
        {.comm = "x", ENVIRONMENT("JOB_ID=5\0FLUX_JOB_ID=4")},
        {.comm = "x", ENVIRONMENT("JOB_ID=5")},
        {.comm = "x", ENVIRONMENT("HOME=/")},
    };
    const char *const id[] = {"1", "2", "3", "4", "5", "x.0"};

    for (gsize i = 0; i < G_N_ELEMENTS(process); i++)
        check_named("auto", NULL, &process[i], id[i], 0);
}

static void test_fixed_sources(void)
{
    QosProcess process = {
        .comm = "dd", .uid = 1000, .gid = 7, ENVIRONMENT("JOB_ID=9\0SLURM_NNODES=4")};

    check_named("procname_uid", "%g", &process, "dd.1000", 0);
    check_named("nodelocal", "%H.%g", &process, "node7.7", 0);
    check_named("nodelocal", NULL, &process, "dd.1000", 0);
    check_named("disable", NULL, &process, "-", 0);
    check_named("disable", NULL, &(QosProcess){0}, "-", 0);
}

static void test_cgroup(void)
{
    QosProcess process = {
        .comm = "dd",
        .uid = 1000,
        ENVIRONMENT("JOB_ID=forged\0SLURM_NNODES=99"),
        .cgroup =
            "3:cpuset:/slurm/uid_1000/job_77/step_0\n0::/system.slice/slurmstepd.scope/job_78\n",
    };

    check_named("cgroup:job_([0-9]+)", NULL, &process, "77", 0);
    check_named("cgroup:^0::.*/job_([0-9]+)$", NULL, &process, "78", 0);
    check_named("cgroup:job_[0-9]+", NULL, &process, "job_77", 0);
    check_named("cgroup:pod([0-9]+)|job_([0-9]+)", NULL, &process, "77", 0);
    check_named("cgroup:nothing", NULL, &process, "dd.1000", 0);
    check_named("cgroup:x*", NULL, &process, "dd.1000", 0); /* matches nothing at all */
    check_named("cgroup:job_([0-9]+)", "slurm.%j", &process, "slurm.77", 0);
    process.cgroup = NULL;
    check_named("cgroup:job_([0-9]+)", NULL, &process, "dd.1000", 0);
}

static void test_codes(void)
{
    QosProcess process = {
        .comm = "dd", .pid = 4711, .uid = 1000, .gid = 100, ENVIRONMENT("JOB=render")};
    const char *const expected[][2] = {
        {"%e", "dd"},
        {"%g", "100"},
        {"%h", HOST},
        {"%H", "node7"},
        {"%j", "render"},
        {"%p", "4711"},
        {"%u", "1000"},
        {"%%", "%"},
        {"%j@%H", "render@node7"},
        {"%.3j", "ren"},
        {"%.3j.%.2u", "ren.10"},
        {"%.99j", "render"},
        {"%.99999999999999999999j", "render"},
        {"a%.0jb", "ab"},
        {"%.2j?%e", "re"},
        {"x.%j?%e.%u", "x.render"},
        {"100%%", "100%"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(expected); i++)
        check_named("JOB", expected[i][0], &process, expected[i][1], 0);
    check_named("OTHER", "x.%j?%e.%u", &process, "x.dd.1000", 0);
    check_named("OTHER", "x.%j.%u", &process, "x..1000", 0);
}

static void test_empty_and_unknown(void)
{
    QosProcess unknown = {.uid = 1000, .gid = 100};

    check_named("JOB", "%j", &plain, "dd.1000", 0);
    check_named("auto", NULL, &unknown, "1000", 0);
    check_named("nodelocal", "%p.%u", &unknown, "1000", 0);
    check_named("nodelocal", "%h.%g", &unknown, HOST ".100", 0);
    check_named("procname_uid", NULL, &unknown, "1000", 0);
}

static void test_nodes(void)
{
    const QosProcess process[] = {
        {ENVIRONMENT("JOB_ID=1\0SLURM_NNODES=3\0SLURM_JOB_NUM_NODES=2")},
        {ENVIRONMENT("JOB_ID=1\0SLURM_NNODES=3\0SLURM_JOB_NUM_NODES=-2")},
        {ENVIRONMENT("JOB_ID=1\0PBS_NUM_NODES=16")},
        {ENVIRONMENT("JOB_ID=1\0FLUX_JOB_NNODES=5")},
        {ENVIRONMENT("JOB_ID=1\0LSB_HOSTS= a\ta b  a c ")},
        {ENVIRONMENT(
            "JOB_ID=1\0SLURM_NNODES=0\0PBS_NUM_NODES=3x\0FLUX_JOB_NNODES=99999999999999999999")},
        {ENVIRONMENT("JOB_ID=1\0LSB_HOSTS=")},
    };
    const guint nodes[] = {2, 3, 16, 5, 3, 0, 0};
    QosProcess without_job = {.comm = "dd", ENVIRONMENT("SLURM_NNODES=3")};

    for (gsize i = 0; i < G_N_ELEMENTS(process); i++)
        check_named("auto", NULL, &process[i], "1", nodes[i]);
    check_named("auto", NULL, &without_job, "dd.0", 0);
}

/* Names `job` by its variable; returns whether the id was cut. */
static gboolean name_value(const char *job, char id[QOS_JOB_ID_MAX + 1])
{
    g_autoptr(QosJobNaming) naming = naming_of("J", "%j");
    g_autofree char *environment = g_strconcat("J=", job, NULL);
    QosProcess process = {.environment = environment,
                          .environment_length = strlen(environment) + 1};
    guint nodes;

    return qos_job_name_process(naming, &process, id, &nodes);
}

static void test_cut(void)
{
    g_autofree char *x63 = g_strnfill(63, 'x');
    g_autofree char *x64 = g_strnfill(64, 'x');
    g_autofree char *whole = g_strdup_printf("%.61s\xc3\xa4", x63); /* 61 + 2 bytes */
    g_autofree char *split2 = g_strdup_printf("%.62s\xc3\xa4", x63);
    g_autofree char *split4 = g_strdup_printf("%.60s\xf0\x9f\x98\x80", x63);
    g_autofree char *million = g_strnfill(1 << 20, 'y');
    char id[QOS_JOB_ID_MAX + 1];

    g_assert_false(name_value(x63, id));
    g_assert_cmpstr(id, ==, x63);
    g_assert_true(name_value(x64, id));
    g_assert_cmpstr(id, ==, x63);
    g_assert_false(name_value(whole, id));
    g_assert_cmpstr(id, ==, whole);
    g_assert_true(name_value(split2, id));
    g_assert_cmpuint(strlen(id), ==, 62);
    g_assert_true(name_value(split4, id));
    g_assert_cmpuint(strlen(id), ==, 60);
    g_assert_true(name_value(million, id));
    g_assert_cmpuint(strlen(id), ==, 63);
}

static void test_unprintable(void)
{
    char id[QOS_JOB_ID_MAX + 1];

    g_assert_false(name_value("a\nb\tc\x1b[31m\x7f", id));
    g_assert_cmpstr(id, ==, "a?b?c?[31m?");
    g_assert_false(name_value("\xff\xc3", id)); /* no UTF-8; a sequence that stops */
    g_assert_cmpstr(id, ==, "??");
    g_assert_false(name_value("\xe2\x80\xae"
                              "evil",
                              id)); /* right-to-left override */
    g_assert_cmpstr(id, ==, "?evil");
    g_assert_false(name_value("gr\xc3\xb6\xc3\x9f"
                              "e",
                              id));
    g_assert_cmpstr(id, ==,
                    "gr\xc3\xb6\xc3\x9f"
                    "e");
}

static void test_comm_is_made_printable(void)
{
    check_named("procname_uid", NULL, &(QosProcess){.comm = "a\nb", .uid = 3}, "a?b.3", 0);
}

/* No NUL at the end, nothing in it, one that is all NULs. The buffers are exact, for the sanitizer.
 */
static void test_environment_ends(void)
{
    g_autofree char *unended = g_memdup2("A=1\0JOB=last", 12);
    g_autofree char *name_only = g_memdup2("JOB=", 4);
    g_autofree char *shorter = g_memdup2("JO", 2);
    g_autofree char *zeros = g_malloc0(4096);

    check_named("JOB", NULL, &(QosProcess){.environment = unended, .environment_length = 12},
                "last", 0);
    check_named("JOB", NULL,
                &(QosProcess){.comm = "c", .environment = name_only, .environment_length = 4},
                "c.0", 0);
    check_named("JOB", NULL,
                &(QosProcess){.comm = "c", .environment = shorter, .environment_length = 2}, "c.0",
                0);
    check_named("JOB", NULL,
                &(QosProcess){.comm = "c", .environment = zeros, .environment_length = 4096}, "c.0",
                0);
    check_named("JOB", NULL,
                &(QosProcess){.comm = "c", .environment = zeros, .environment_length = 0}, "c.0",
                0);
}

static void test_large_environment(void)
{
    g_autoptr(GString) environment = g_string_new(NULL);

    for (guint i = 0; environment->len < 1 << 20; i++)
        g_string_append_printf(environment, "JOB_ID%u=wrong%c", i, 0);
    g_string_append_len(environment, "JOB_ID=right", sizeof("JOB_ID=right"));
    check_named(
        "auto", NULL,
        &(QosProcess){.environment = environment->str, .environment_length = environment->len},
        "right", 0);
}

/* Whatever the bytes, an id is printable UTF-8 of at most QOS_JOB_ID_MAX bytes, and never empty. */
static void test_random_environments(void)
{
    guint32 seed = g_test_rand_int();
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    const char *const parts[] = {"JOB_ID=", "SLURM_JOB_ID", "=", "LSB_HOSTS=a b",
                                 "%j",      "\xf0\x9f",     ""};
    g_autoptr(QosJobNaming) naming = naming_of("auto", "%.9e-%j?%e.%u");

    g_test_message("seed %u", seed);
    for (guint round = 0; round < 20000; round++) {
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        g_autofree char *exact = NULL;
        char id[QOS_JOB_ID_MAX + 1];
        guint nodes;

        for (gint length = g_rand_int_range(random, 0, 40); length > 0; length--) {
            const char *part = parts[g_rand_int_range(random, 0, G_N_ELEMENTS(parts))];
            guint8 byte = (guint8)g_rand_int(random);

            g_byte_array_append(bytes, (const guint8 *)part, (guint)strlen(part));
            g_byte_array_append(bytes, &byte, 1);
            if (byte < 32)
                g_byte_array_append(bytes, (const guint8 *)"", 1);
        }
        exact = g_memdup2(bytes->data, bytes->len);
        qos_job_name_process(
            naming,
            &(QosProcess){.comm = "c", .environment = exact, .environment_length = bytes->len}, id,
            &nodes);
        g_assert_cmpuint(strlen(id), >, 0);
        g_assert_true(g_utf8_validate(id, -1, NULL));
        for (const char *at = id; *at; at = g_utf8_next_char(at))
            g_assert_true(g_unichar_isprint(g_utf8_get_char(at)));
    }
}

static void test_bad_namings(void)
{
    const char *const bad[][3] = {
        {"", "%j", "jobid_var \"\""},
        {"1JOB", "%j", "jobid_var \"1JOB\""},
        {"JOB-ID", "%j", "jobid_var \"JOB-ID\""},
        {"JOB=ID", "%j", "jobid_var \"JOB=ID\""},
        {"session", "%j", "jobid_var \"session\""},
        {"cgroup", "%q", "unknown code"},
        {"cgroup:", "%j", "empty"},
        {"cgroup:job_([0-9]+", "%j", "jobid_var \"cgroup:job_([0-9]+\""},
        {"auto", "", "jobid_name is empty"},
        {"auto", "%", "unknown code"},
        {"auto", "%j%", "unknown code"},
        {"auto", "%x", "unknown code"},
        {"auto", "%.j", "unknown code"},
        {"auto", "%.3", "unknown code"},
        {"auto", "%3j", "unknown code"},
        {"auto", "a\nb", "control character"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;

        g_assert_null(qos_job_naming_new(bad[i][0], bad[i][1], HOST, &error));
        g_assert_error(error, QOS_ERROR, EINVAL);
        g_assert_nonnull(strstr(error->message, bad[i][2]));
    }
}

static void test_naming_tells(void)
{
    const QosProcWants by_variable = QOS_PROC_PROGRAM | QOS_PROC_IMAGE | QOS_PROC_ENVIRONMENT;
    const struct {
        const char *var;
        QosProcWants wants;
    } wants[] = {
        {"auto", by_variable},
        {"JOB", by_variable},
        {"cgroup:x", QOS_PROC_PROGRAM | QOS_PROC_CGROUP},
        {"nodelocal", QOS_PROC_PROGRAM},
        {"procname_uid", QOS_PROC_PROGRAM},
        {"disable", 0},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(wants); i++) {
        g_autoptr(QosJobNaming) naming = naming_of(wants[i].var, "%j.%h");
        g_autoptr(QosJobNaming) same = qos_job_naming_ref(naming);

        g_assert_cmpuint(qos_job_naming_wants(same), ==, wants[i].wants);
    }
    qos_job_naming_unref(NULL);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/job-name/variable", test_variable);
    g_test_add_func("/job-name/variable-is-matched-whole", test_variable_is_matched_whole);
    g_test_add_func("/job-name/auto-order", test_auto_order);
    g_test_add_func("/job-name/fixed-sources", test_fixed_sources);
    g_test_add_func("/job-name/cgroup", test_cgroup);
    g_test_add_func("/job-name/codes", test_codes);
    g_test_add_func("/job-name/empty-and-unknown", test_empty_and_unknown);
    g_test_add_func("/job-name/nodes", test_nodes);
    g_test_add_func("/job-name/cut", test_cut);
    g_test_add_func("/job-name/unprintable", test_unprintable);
    g_test_add_func("/job-name/comm-is-made-printable", test_comm_is_made_printable);
    g_test_add_func("/job-name/environment-ends", test_environment_ends);
    g_test_add_func("/job-name/large-environment", test_large_environment);
    g_test_add_func("/job-name/random-environments", test_random_environments);
    g_test_add_func("/job-name/bad-namings", test_bad_namings);
    g_test_add_func("/job-name/naming-tells", test_naming_tells);
    return g_test_run();
}
