/* What qosfsctl prints of a lock server's answers about its cluster. */
#include "tools/ctl_cluster_render.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

static const QosCtlStyle plain;

static JsonObject *parse(const char *text, const char *list)
{
    GError *error = NULL;
    JsonObject *answer = qos_ctl_answer_parse(text, list, &error);

    g_assert_no_error(error);
    return answer;
}

static void test_shapes(void)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "null",
        "{\"classes\":{}}",
        "{\"classes\":[1]}",
        "{\"classes\":[{\"members\":null}]}",
        "{\"classes\":[{\"members\":[\"x\"]}]}",
        "{\"classes\":[]",
    };

    for (guint i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(qos_ctl_answer_parse(wrong[i], "classes", &error));
        g_assert_error(error, QOS_ERROR, EPROTO);
        g_assert_nonnull(strstr(error->message, "(\"classes\")"));
    }
}

/* --- status --- */

#define MOUNT(name, connected, version, silent)                                                    \
    "{\"name\":\"" name "\",\"id\":\"1f\",\"is_connected\":" connected ",\"version\":" version     \
    ",\"floor_parts\":8,\"silent_s\":" silent "}"
#define STATUS(mounts, more)                                                                       \
    "{\"version\":7,\"rules\":2,\"epoch_ms\":100,\"lease_ms\":1000,\"floor_parts\":8,"             \
    "\"mounts_known\":4,\"mounts_connected\":3,\"mounts_behind\":1,\"mounts\":[" mounts            \
    "],\"more\":" more "}"

#define FOUR_MOUNTS                                                                                \
    MOUNT("node1:/qos", "true", "7", "99")                                                         \
    "," MOUNT("node2:/qos", "true", "6", "0.5") "," MOUNT(                                         \
        "node3:/qos", "true", "null", "2.5") "," MOUNT("evil\\u001b[31m\\n", "false", "6", "null")

/* Mounts in good order are not named. */
static void test_status(void)
{
    g_autoptr(JsonObject) status = parse(STATUS(FOUR_MOUNTS, "3"), "mounts");
    g_autoptr(JsonObject) jobs =
        parse("{\"classes\":[{\"rule\":\"big\",\"class\":\"4711\",\"silent\":1},"
              "{\"rule\":\"all\",\"class\":\"\",\"silent\":2},{\"class\":\"7\",\"silent\":0}]}",
              "classes");
    g_autofree char *text = qos_ctl_render_cluster_status(status, jobs, &plain);

    g_assert_cmpstr(text, ==,
                    "rules     2, version 7 ('qosfsctl cluster rule list')\n"
                    "epoch     100.0 ms; a mount's rate holds for 1.00 s without an answer\n"
                    "floor     each mount has 1/8 of a rule's floor\n"
                    "mounts    4 known, 3 connected, 1 without these rules\n"
                    "silent    2 mounts of job (all), rule all ('qosfsctl cluster why')\n"
                    "silent    1 mount of job 4711, rule big ('qosfsctl cluster why')\n"
                    "\n"
                    "MOUNT             STATE   VERSION  NOT HEARD FOR  ID\n"
                    "node2:/qos        behind        6       500.0 ms  1f\n"
                    "node3:/qos        behind        -         2.50 s  1f\n"
                    "evil\\x1b[31m\\x0a  away          6              -  1f\n"
                    "3 more do not fit; ask at the server's machine, which shows all\n");
}

static void test_status_in_order(void)
{
    g_autoptr(JsonObject) status = parse("{\"mounts\":[]}", "mounts");
    g_autofree char *text = qos_ctl_render_cluster_status(status, NULL, &plain);

    g_assert_cmpstr(text, ==,
                    "rules     0, version 0 ('qosfsctl cluster rule list')\n"
                    "epoch     0 s; a mount's rate holds for 0 s without an answer\n"
                    "mounts    0 known, 0 connected\n");
}

/* As many as a screen holds. */
static void test_status_names_twenty(void)
{
    GString *mounts = g_string_new(NULL);

    for (guint i = 0; i < 25; i++)
        g_string_append(mounts,
                        i ? "," MOUNT("m", "false", "7", "9") : MOUNT("m", "false", "7", "9"));
    g_autofree char *json = g_strdup_printf("{\"version\":7,\"mounts\":[%s]}", mounts->str);
    g_autoptr(JsonObject) status = parse(json, "mounts");
    g_autofree char *text = qos_ctl_render_cluster_status(status, NULL, &plain);
    g_assert_true(g_str_has_suffix(text, "1f\n5 more; --json has all\n"));
    g_string_free(mounts, TRUE);
}

/* --- rules --- */

static const char rules[] =
    "{\"version\":9,\"rules\":["
    "{\"id\":9,\"name\":\"big\",\"command\":\"start big jobid={a* b*}&uid={7} bps=20G "
    "scope=cluster share=hard\",\"expires_s\":90.5},"
    "{\"id\":5,\"name\":\"meta\",\"command\":\"start meta opcode={meta} rate=2000 per=uid\","
    "\"expires_s\":null}]}";

static void test_rules(void)
{
    g_autoptr(JsonObject) answer = parse(rules, "rules");
    g_autofree char *text = qos_ctl_render_cluster_rules(answer, &plain);

    g_assert_cmpstr(text, ==,
                    "RULE  CONDITIONS             OPTIONS                           EXPIRES IN"
                    "  VERSION\n"
                    "big   jobid={a* b*}&uid={7}  bps=20G scope=cluster share=hard    1 m 31 s"
                    "        9\n"
                    "meta  opcode={meta}          rate=2000 per=uid scope=cluster             "
                    "        5\n");
}

/* Nothing of a command is lost on a narrow terminal. */
static void test_rules_on_a_terminal(void)
{
    g_autoptr(JsonObject) answer = parse(rules, "rules");
    g_autofree char *text = qos_ctl_render_cluster_rules(answer, &(QosCtlStyle){.width = 80});

    g_assert_cmpstr(text, ==,
                    "big, since version 9, expires in 1 m 31 s\n"
                    "  jobid={a* b*}&uid={7}\n"
                    "  bps=20G scope=cluster share=hard\n"
                    "\n"
                    "meta, since version 5\n"
                    "  opcode={meta}\n"
                    "  rate=2000 per=uid scope=cluster\n");
}

static void test_rule_commands(void)
{
    g_autoptr(JsonObject) answer = parse(rules, "rules");
    g_autofree char *text = qos_ctl_render_cluster_rule_commands(answer);

    g_assert_cmpstr(
        text, ==,
        "qosfsctl cluster rule start meta 'opcode={meta}' rate=2000 per=uid scope=cluster\n"
        "qosfsctl cluster rule start big 'jobid={a* b*}&uid={7}' bps=20G scope=cluster share=hard "
        "expire=90\n");
}

/* A server of a later version may have rules that are not understood here. Neither these nor
 * hostile ones become a command of a shell. */
static void test_rules_that_are_not_understood(void)
{
    g_autoptr(JsonObject) answer =
        parse("{\"rules\":[{\"id\":1,\"name\":\"a\\u001b\",\"command\":\"start a\\u001b\\nrm -rf / "
              "later={x}\",\"expires_s\":5}]}",
              "rules");
    g_autofree char *text = qos_ctl_render_cluster_rules(answer, &plain);
    g_autofree char *commands = qos_ctl_render_cluster_rule_commands(answer);

    g_assert_cmpstr(
        text, ==,
        "RULE   CONDITIONS  OPTIONS                            EXPIRES IN  VERSION\n"
        "a\\x1b  ?           start a\\x1b\\x0arm -rf / later={x}      5.00 s        1\n");
    g_assert_cmpstr(commands, ==, "# not understood: start a\\x1b\\x0arm -rf / later={x}\n");
}

static void test_log(void)
{
    g_autoptr(JsonObject) answer =
        parse("{\"log\":[{\"time\":\"2026-11-28T13:00:00Z\",\"who\":\"CN=n\\u001b\",\"command\":"
              "\"stop big\\n\",\"version\":8},{\"time\":\"2026-11-28T12:30:00Z\",\"who\":\"uid "
              "0\",\"command\":\"stop bug\",\"version\":null,\"error\":2,\"result\":\"there is "
              "no rule \\u0007bug\"}]}",
              "log");
    g_autofree char *text = qos_ctl_render_cluster_log(answer);

    g_assert_cmpstr(text, ==,
                    "TIME                  VERSION  BY        COMMAND\n"
                    "2026-11-28T13:00:00Z        8  CN=n\\x1b  stop big\\x0a\n"
                    "2026-11-28T12:30:00Z        -  uid 0     stop bug (refused: there is no rule "
                    "\\x07bug)\n");
}

/* --- jobs and why --- */

#define BYTES_CLASS                                                                                \
    "{\"rule\":\"big\",\"class\":\"4711\",\"unit\":\"bytes\",\"limit\":209715200,"                 \
    "\"demand\":429916160,\"served\":209715200,\"in_force\":220200960,\"level\":52428800,"         \
    "\"share\":\"fair\",\"mounts\":4,\"silent\":0"
#define OPERATIONS_CLASS                                                                           \
    "{\"rule\":\"meta\",\"class\":\"\",\"unit\":\"operations\",\"limit\":2000,\"demand\":150.4,"   \
    "\"served\":150.4,\"in_force\":2000,\"level\":null,\"share\":\"hard\",\"mounts\":1,"           \
    "\"silent\":1"
#define MEMBERS                                                                                    \
    ",\"members\":[{\"mount\":\"node1:/qos\",\"demand\":314572800,\"held\":104857600,"             \
    "\"bound\":157286400,\"is_silent\":false},{\"mount\":\"\\u001b[2J\",\"demand\":0,\"held\":0,"  \
    "\"bound\":5242880,\"is_silent\":true}]"

static void test_jobs(void)
{
    g_autoptr(JsonObject) jobs =
        parse("{\"classes\":[" OPERATIONS_CLASS "}," BYTES_CLASS "},"
              "{\"rule\":\"big\",\"class\":\"\\u001b[31m\",\"unit\":\"bytes\",\"limit\":1e300,"
              "\"demand\":-1,\"served\":1e12,\"in_force\":0,\"mounts\":0}],\"more\":2}",
              "classes");
    g_autofree char *text = qos_ctl_render_cluster_jobs(jobs, 0, &plain);

    g_assert_cmpstr(
        text, ==,
        "JOB       RULE       SERVED       WANTED        LIMIT       LEVEL  MOUNTS  SILENT     "
        "IN FORCE  SHARE\n"
        "\\x1b[31m  big   931.3 GiB/s        0 B/s  888.2 PiB/s           -       0                "
        "0 B/s\n"
        "4711      big   200.0 MiB/s  410.0 MiB/s  200.0 MiB/s  50.0 MiB/s       4          "
        "210.0 MiB/s  fair\n"
        "(all)     meta     150 op/s     150 op/s    2000 op/s           -       1       1    2000 "
        "op/s  hard\n"
        "2 more do not fit; ask at the server's machine, which shows all\n");
}

/* On 80 columns what is left out matters least; and a limit takes the first. */
static void test_jobs_on_a_terminal(void)
{
    g_autoptr(JsonObject) jobs =
        parse("{\"classes\":[" OPERATIONS_CLASS "}," BYTES_CLASS MEMBERS "}]}", "classes");
    g_autofree char *text = qos_ctl_render_cluster_jobs(jobs, 1, &(QosCtlStyle){.width = 80});

    g_assert_cmpstr(
        text, ==,
        "JOB           RULE       SERVED       WANTED        LIMIT        LEVEL  MOUNTS\n"
        "4711          big   200.0 MiB/s  410.0 MiB/s  200.0 MiB/s   50.0 MiB/s       4\n"
        "  node1:/qos                     300.0 MiB/s               150.0 MiB/s\n"
        "  \\x1b[2J                              0 B/s                 5.0 MiB/s\n");
}

static void test_why(void)
{
    g_autoptr(JsonObject) why =
        parse("{\"job\":\"4711\",\"nodes\":4,\"weight\":1,\"classes\":[" OPERATIONS_CLASS
              "}," BYTES_CLASS MEMBERS "}]}",
              "classes");
    g_autofree char *text = qos_ctl_render_cluster_why(why, &(QosCtlStyle){.width = 80});

    g_assert_cmpstr(
        text, ==,
        "Held to 200.0 MiB/s by rule big over 4 mounts: this job wants 410.0 MiB/s and is served "
        "200.0 MiB/s.\n"
        "Within the 2000 op/s of rule meta over 1 mount: this job wants 150 op/s and is served 150 "
        "op/s.\n"
        "  1 of these mounts is silent: what it may use is not lent to the others before its lease "
        "ends.\n"
        "It counts as 4 nodes of weight 1 ('qosfsctl cluster job set' changes that).\n"
        "\n"
        "Rule big, bytes:\n"
        "MOUNT             WANTS      MAY USE        HOLDS\n"
        "node1:/qos  300.0 MiB/s  150.0 MiB/s  100.0 MiB/s\n"
        "\\x1b[2J           0 B/s    5.0 MiB/s        0 B/s  silent\n");
}

/* Of a job that waits for each answer, what it wants is what it gets. */
static void test_why_close(void)
{
    g_autoptr(JsonObject) why =
        parse("{\"job\":\"7\",\"classes\":[{\"rule\":\"meta\",\"class\":\"7\",\"unit\":"
              "\"operations\",\"limit\":1000,\"demand\":900,\"served\":850,\"level\":null,"
              "\"mounts\":2}]}",
              "classes");
    g_autofree char *text = qos_ctl_render_cluster_why(why, &plain);

    g_assert_cmpstr(
        text, ==,
        "Close to the 1000 op/s of rule meta over 2 mounts: this job wants 900 op/s and "
        "is served 850 op/s.\n");
}

/* Of a job that divides what the store can do. */
static void test_why_sharing(void)
{
    g_autoptr(JsonObject) why =
        parse("{\"job\":\"7\",\"nodes\":3,\"weight\":1,\"classes\":[{\"rule\":\"adapt\",\"class\":"
              "\"7\",\"unit\":\"operations\",\"limit\":400,\"demand\":900,\"served\":400,"
              "\"level\":200,\"mounts\":2,\"entitlement\":300,\"weight\":3}]}",
              "classes");
    g_autofree char *text = qos_ctl_render_cluster_why(why, &plain);

    g_assert_cmpstr(
        text, ==,
        "Held to 400 op/s by its share of the store (adapt=fair: weight 3, entitled to "
        "300 op/s) over 2 mounts: this job wants 900 op/s and is served 400 op/s.\n"
        "It counts as 3 nodes of weight 1 ('qosfsctl cluster job set' changes that).\n");
}

static void test_status_sharing(void)
{
    g_autoptr(JsonObject) status =
        parse("{\"version\":1,\"rules\":0,\"epoch_ms\":100,\"lease_ms\":1000,"
              "\"sharing\":{\"capacity\":5000},\"mounts\":[]}",
              "mounts");
    g_autofree char *text = qos_ctl_render_cluster_status(status, NULL, &plain);

    g_assert_nonnull(strstr(text, "\nsharing   jobs divide 5000 op/s by weight (adapt=fair)\n"));
}

static void test_why_nothing(void)
{
    g_autoptr(JsonObject) why = parse("{\"job\":\"x\\n\",\"classes\":[]}", "classes");
    g_autofree char *text = qos_ctl_render_cluster_why(why, &plain);

    g_assert_cmpstr(
        text, ==,
        "No rule of the cluster has a class for job x\\x0a now: it is idle, no rule is for it "
        "('qosfsctl cluster rule list'), or its rule is for users, groups or all jobs together "
        "('qosfsctl why JOB' on a mount says which holds it).\n");
}

static void test_job_list(void)
{
    g_autoptr(JsonObject) jobs =
        parse("{\"jobs\":[{\"id\":\"4711\",\"nodes\":100,\"weight\":0,\"expires_s\":3600},"
              "{\"id\":\"a\\u009b\",\"nodes\":1,\"weight\":5,\"expires_s\":null}]}",
              "jobs");
    g_autofree char *text = qos_ctl_render_cluster_job_list(jobs, &plain);

    g_assert_cmpstr(text, ==,
                    "JOB        NODES  WEIGHT  EXPIRES IN\n"
                    "4711         100       0     1 h 0 m\n"
                    "a\\xc2\\x9b      1       5\n");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl-cluster/shapes", test_shapes);
    g_test_add_func("/ctl-cluster/status", test_status);
    g_test_add_func("/ctl-cluster/status-in-order", test_status_in_order);
    g_test_add_func("/ctl-cluster/status-names-twenty", test_status_names_twenty);
    g_test_add_func("/ctl-cluster/rules", test_rules);
    g_test_add_func("/ctl-cluster/rules-on-a-terminal", test_rules_on_a_terminal);
    g_test_add_func("/ctl-cluster/rule-commands", test_rule_commands);
    g_test_add_func("/ctl-cluster/rules-not-understood", test_rules_that_are_not_understood);
    g_test_add_func("/ctl-cluster/log", test_log);
    g_test_add_func("/ctl-cluster/jobs", test_jobs);
    g_test_add_func("/ctl-cluster/jobs-on-a-terminal", test_jobs_on_a_terminal);
    g_test_add_func("/ctl-cluster/why", test_why);
    g_test_add_func("/ctl-cluster/why-close", test_why_close);
    g_test_add_func("/ctl-cluster/why-sharing", test_why_sharing);
    g_test_add_func("/ctl-cluster/status-sharing", test_status_sharing);
    g_test_add_func("/ctl-cluster/why-nothing", test_why_nothing);
    g_test_add_func("/ctl-cluster/job-list", test_job_list);
    return g_test_run();
}
