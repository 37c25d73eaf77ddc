/* What qosfsctl prints of the rules for all mounts together, as a mount knows them. */
#include <string.h>

#include "tools/ctl_render.h"

#define OWN                                                                                        \
    "{\"name\":\"big\",\"conditions\":\"*\",\"options\":\"rate=5\",\"rate\":5,\"per\":\"jobid\","  \
    "\"scope\":\"mount\"}"
#define SHARED                                                                                     \
    "{\"name\":\"big\",\"conditions\":\"uid={7}\",\"options\":\"rate=2000 bps=1M "                 \
    "scope=cluster\",\"rate\":2000,\"bps\":1048576,\"per\":\"jobid\",\"scope\":\"cluster\","       \
    "\"share\":\"fair\",\"floor\":10,\"away\":\"open\",\"requests\":9}"
#define CLASSES                                                                                    \
    "{\"rule\":\"big\",\"class\":\"j\",\"unit\":\"operations\",\"limit\":2000,\"demand\":300,"     \
    "\"rate\":250.5,\"floor\":25,\"is_away\":false},"                                              \
    "{\"rule\":\"big\",\"class\":\"j\",\"unit\":\"bytes\",\"limit\":1048576,\"demand\":0,"         \
    "\"rate\":524288,\"floor\":1024,\"is_away\":false}"
#define AWAY_CLASSES                                                                               \
    "{\"rule\":\"big\",\"class\":\"j\",\"unit\":\"operations\",\"limit\":2000,\"demand\":300,"     \
    "\"rate\":null,\"floor\":25,\"is_away\":true}"

/* `connection`: of the cluster; `scope`: of the rule that the job waited for. */
static JsonObject *state_of(const char *connection, const char *classes, const char *scope)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *json = g_strdup_printf(
        "{\"now\":100,\"started\":90,\"policies\":[],\"slots\":{},\"tunables\":{},"
        "\"rules\":[" OWN "],\"cluster\":{\"version\":7,\"count\":3,\"lease\":1,%s,"
        "\"aways\":{\"floor\":2,\"open\":1,\"stop\":0},\"rules\":[" SHARED "],\"classes\":[%s]},"
        "\"jobs\":[{\"id\":\"j\",\"waits\":1,\"waiting\":1,\"wait\":[{\"rule\":\"big\","
        "\"scope\":\"%s\",\"count\":1,\"waited\":1}]}]}",
        connection, classes, scope);
    JsonObject *state = qos_ctl_state_parse(json, strlen(json), &error);

    g_assert_no_error(error);
    return state;
}

#define UP   "\"connected\":true,\"since\":10,\"is_away\":false"
#define LOST "\"connected\":false,\"since\":99.5,\"is_away\":false"
#define AWAY "\"connected\":false,\"since\":88,\"is_away\":true"

static void test_status(void)
{
    static const char *const cases[][2] = {
        {UP, "\ncluster   rules for all mounts: 3, version 7\nrules "},
        {LOST, "\ncluster   rules for all mounts: 3, version 7\n"
               "          the lock server is away for 500.0 ms; rates hold for up to 1.00 s, then: "
               "2 by away=floor, 1 by away=open\nrules "},
        {AWAY, "\ncluster   rules for all mounts: 3, version 7\n"
               "          the lock server is away for 12.00 s; in force: "
               "2 by away=floor, 1 by away=open\nrules "},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(JsonObject) state = state_of(cases[i][0], "", "cluster");
        g_autofree char *text = qos_ctl_render_status(state);
        if (!strstr(text, cases[i][1]))
            g_error("not \"%s\" in:\n%s", cases[i][1], text);
    }
}

static void test_rule_list(void)
{
    g_autoptr(JsonObject) state = state_of(UP, "", "cluster");
    g_autofree char *text = qos_ctl_render_rules(state, &(QosCtlStyle){0});
    g_autoptr(JsonNode) all = qos_ctl_state_rules(state);

    g_assert_nonnull(strstr(text, "\nbig            *           rate=5 "));
    g_assert_nonnull(strstr(text, "\nbig   cluster  uid={7}     rate=2000 bps=1M scope=cluster "));
    g_assert_cmpuint(json_array_get_length(json_node_get_array(all)), ==, 2);
    g_autofree char *commands = qos_ctl_render_rule_commands(state); /* the server has the others */
    g_assert_cmpstr(commands, ==, "qosfsctl rule start big '*' rate=5\n");
}

/* The rule by which jobs divide what the store can do is told of as that. */
static void test_why_sharing(void)
{
    static const char json[] =
        "{\"now\":100,\"started\":90,\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[],"
        "\"cluster\":{\"version\":1,\"count\":1,\"lease\":1," UP ",\"aways\":{},\"rules\":["
        "{\"name\":\"adapt\",\"conditions\":\"jobid={*}\",\"rate\":5000,\"bps\":0,\"per\":"
        "\"jobid\","
        "\"scope\":\"cluster\",\"away\":\"open\"}],\"classes\":[{\"rule\":\"adapt\",\"class\":"
        "\"j\","
        "\"unit\":\"operations\",\"limit\":5000,\"demand\":900,\"rate\":250,\"floor\":0,"
        "\"is_away\":false}]},\"jobs\":[{\"id\":\"j\",\"waits\":1,\"waiting\":1,\"wait\":[{"
        "\"rule\":"
        "\"adapt\",\"scope\":\"cluster\",\"count\":1,\"waited\":1}]}]}";
    g_autoptr(GError) error = NULL;
    g_autoptr(JsonObject) state = qos_ctl_state_parse(json, strlen(json), &error);

    g_assert_no_error(error);
    g_autofree char *text = qos_ctl_render_why(state, qos_ctl_state_job(state, "j"));
    g_assert_nonnull(strstr(text, "\nSharing the store with all mounts made 1 request wait, "));
    g_assert_nonnull(
        strstr(text, "\n  The jobs of all mounts divide 5000 op/s by weight ('qosfsctl "
                     "cluster why' has each one's part).\n"
                     "  Of 5000 op/s this mount may use 250 op/s now; it asked for 900 op/s, "
                     "and has 0 op/s in any case.\n"));
}

/* The mount's rule and the cluster's may have one name: why says for which of them a job waits. */
static void test_why(void)
{
    static const struct {
        const char *connection, *classes, *scope, *text;
    } cases[] = {
        {UP, CLASSES, "mount",
         "\nRule big made 1 request wait, 1.00 s in all: 1.00 s on average, 0 s at most.\n"
         "  First 1 m 40 s ago"},
        {UP, CLASSES, "mount", "\n  It allows 5 op/s to each job.\n"},
        {UP, CLASSES, "mount", " waits for rule big"},
        {UP, CLASSES, "cluster", "\nCluster rule big made 1 request wait, "},
        {UP, CLASSES, "cluster",
         "\n  It allows 2000 op/s and 1.0 MiB/s to each job, on all mounts together; it is for "
         "uid={7}.\n"
         "  Of 2000 op/s this mount may use 250 op/s now; it asked for 300 op/s, and has 25 op/s "
         "in any case.\n"
         "  Of 1.0 MiB/s this mount may use 512.0 KiB/s now; it asked for 0 B/s, and has 1.0 KiB/s "
         "in any case.\n"},
        {UP, CLASSES, "cluster", " waits for cluster rule big"},
        {UP, "", "cluster", "\n  Nothing here has used it lately.\n"},
        {AWAY, AWAY_CLASSES, "cluster",
         "\n  Of 2000 op/s this mount may use any part now: the lock server is away, and the rule "
         "says away=open.\n"
         "  This mount has been without the lock server for 12.00 s.\n"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(JsonObject) state =
            state_of(cases[i].connection, cases[i].classes, cases[i].scope);
        g_autofree char *text = qos_ctl_render_why(state, qos_ctl_state_job(state, "j"));
        if (!strstr(text, cases[i].text))
            g_error("not \"%s\" in:\n%s", cases[i].text, text);
        g_assert_true(g_str_equal(cases[i].scope, "cluster") || !strstr(text, "mounts"));
    }
}

static void test_wrong_shape(void)
{
    static const char *const cases[] = {
        "1",
        "{}",
        "{\"rules\":[]}",
        "{\"rules\":[],\"classes\":[1]}",
        "{\"rules\":{},\"classes\":[]}",
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *json =
            g_strdup_printf("{\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[],"
                            "\"jobs\":[],\"cluster\":%s}",
                            cases[i]);
        g_assert_null(qos_ctl_state_parse(json, strlen(json), &error));
        g_assert_nonnull(error);
    }
}

/* An older mount, or a newer one, may have less. */
static void test_sparse(void)
{
    static const char json[] =
        "{\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[],\"jobs\":[{\"id\":\"j\","
        "\"wait\":[{\"rule\":\"a\",\"scope\":\"cluster\"}]}],"
        "\"cluster\":{\"rules\":[{\"name\":\"a\",\"rate\":1}],\"classes\":[{\"rule\":\"a\"}]}}";
    g_autoptr(JsonObject) state = qos_ctl_state_parse(json, strlen(json), NULL);
    g_autofree char *status = qos_ctl_render_status(state);
    g_autofree char *rules = qos_ctl_render_rules(state, &(QosCtlStyle){0});
    g_autofree char *why = qos_ctl_render_why(state, qos_ctl_state_job(state, "j"));

    g_assert_nonnull(strstr(why, "Cluster rule a"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/budget/status", test_status);
    g_test_add_func("/ctl/budget/rule-list", test_rule_list);
    g_test_add_func("/ctl/budget/why", test_why);
    g_test_add_func("/ctl/budget/why-sharing", test_why_sharing);
    g_test_add_func("/ctl/budget/wrong-shape", test_wrong_shape);
    g_test_add_func("/ctl/budget/sparse", test_sparse);
    return g_test_run();
}
