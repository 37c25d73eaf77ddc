/* What qosfsctl prints of a mount's state. */
#include "tools/ctl_render.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

static const char sample[] =
    "{\"version\":\"0.1.0\",\"source\":\"/lustre\",\"mountpoint\":\"/qos\",\"pid\":4711,"
    " \"started\":1785578400.5,\"now\":1785582000.5,"
    " \"policies\":[{\"name\":\"fifo\",\"state\":\"stopping\",\"queued\":3},"
    "  {\"name\":\"tbf\",\"state\":\"started\",\"queued\":16},"
    "  {\"name\":\"jrr\",\"state\":\"stopped\",\"queued\":0}],"
    " \"slots\":{\"total\":64,\"running\":5,\"held\":2,\"draining\":3},\"parked_max\":67108864,"
    " \"parked_bytes\":3145728,\"refused\":7,\"inodes\":1234,\"callers\":"
    "12,"
    " \"tunables\":{\"slots\":\"64\",\"jobid_var\":\"auto\"},"
    " \"rules\":[{\"name\":\"hog\",\"conditions\":\"jobid={dd.*}\",\"options\":\"rate=100 "
    "bps=10M\","
    "   \"rate\":100,\"bps\":10485760,\"per\":\"jobid\",\"expires_in\":90.5,\"dryrun\":false,"
    "   "
    "\"buckets\":2,\"waiting\":16,\"requests\":12345,\"bytes\":50003,\"waits\":9000,\"waited\":250."
    "25,"
    "   \"dryrun_waits\":0,\"dryrun_bytes\":0},"
    "  {\"name\":\"trial\",\"conditions\":\"uid={7}\",\"options\":\"rate=5 "
    "dryrun=1\",\"rate\":5,\"bps\":0,"
    "   "
    "\"per\":\"uid\",\"expires_in\":null,\"dryrun\":true,\"buckets\":0,\"waiting\":0,\"requests\":"
    "9,"
    "   \"bytes\":0,\"waits\":0,\"waited\":0,\"dryrun_waits\":4,\"dryrun_bytes\":0},"
    "  "
    "{\"name\":\"default\",\"conditions\":\"*\",\"options\":\"\",\"rate\":0,\"bps\":0,\"per\":"
    "\"jobid\","
    "   "
    "\"expires_in\":null,\"dryrun\":false,\"buckets\":1,\"waiting\":0,\"requests\":99,\"bytes\":0,"
    "   \"waits\":0,\"waited\":0,\"dryrun_waits\":0,\"dryrun_bytes\":0}],"
    " \"jobs\":[{\"id\":\"tar.0\",\"nodes\":0,\"started\":1785581999,\"seen\":1785581990,"
    "\"requests\":99,"
    "   \"errors\":1,\"waits\":0,\"wait_time\":0,\"store_time\":0.5,\"waiting\":0,\"running\":0,"
    "   \"operation_rate\":0.0,\"byte_rate\":0,\"read_bytes\":0,\"write_bytes\":4096,"
    "   \"operations\":{},\"wait\":[]},"
    "  "
    "{\"id\":\"dd.1000\",\"nodes\":4,\"started\":1785581970,\"seen\":1785582000,\"requests\":12345,"
    "   "
    "\"errors\":0,\"waits\":9000,\"wait_time\":251.25,\"store_time\":22.5,\"waiting\":16,"
    "\"running\":1,"
    "   "
    "\"operation_rate\":100.2,\"byte_rate\":410419.2,\"read_bytes\":1048576,\"write_bytes\":"
    "40960000,"
    "   \"operations\":{\"read\":{\"samples\":3,\"seconds\":0.1}},"
    "   \"wait\":[{\"rule\":\"(slots)\",\"count\":10,\"waited\":1,\"longest\":0.5,"
    "     \"first\":1785581971.5,\"last\":1785581980},"
    "    {\"rule\":\"hog\",\"count\":8990,\"waited\":250.25,\"longest\":1.2,"
    "     \"first\":1785578398.5,\"last\":1785581998}]},"
    "  {\"id\":\"evil\\u001b[31m\\n\",\"nodes\":0,\"started\":1785581999,\"seen\":1785582000,"
    "   \"requests\":1,\"errors\":0,\"waits\":1,\"wait_time\":0.25,\"store_time\":0,\"waiting\":1,"
    "   \"running\":0,\"operation_rate\":0.2,\"byte_rate\":0,\"read_bytes\":0,\"write_bytes\":0,"
    "   "
    "\"operations\":{},\"wait\":[{\"rule\":\"gone\",\"count\":1,\"waited\":0.25,\"longest\":0.25,"
    "     \"first\":1785581998,\"last\":1785581998}]}]}";

static JsonObject *parse(const char *text)
{
    GError *error = NULL;
    JsonObject *state = qos_ctl_state_parse(text, strlen(text), &error);
    g_assert_no_error(error);
    return state;
}

static void test_status(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = qos_ctl_render_status(state);
    g_assert_cmpstr(
        text, ==,
        "mount     /lustre on /qos, up 1 h 0 m\n"
        "daemon    qosfs 0.1.0, pid 4711\n"
        "policy    tbf, waiting requests: 16\n"
        "          fifo, waiting requests: 3; it takes no more\n"
        "slots     5 of 64 in use, requests held for their job's share of them: 2\n"
        "parked    3.0 of 64.0 MiB hold requests that wait, with their data; 7 failed for "
        "want of room\n"
        "rules     3 ('qosfsctl rule list')\n"
        "jobs      3 known, 2 active, 2 waiting ('qosfsctl jobs')\n"
        "known     files: 1234, callers: 12\n");
}

static void test_policies(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = qos_ctl_render_policies(state);
    g_assert_cmpstr(text, ==,
                    "POLICY  STATE     WAITING\n"
                    "fifo    stopping        3\n"
                    "tbf     started        16\n"
                    "jrr     stopped         0\n");
}

static void test_tunables(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *all = qos_ctl_render_tunables(state);
    g_assert_cmpstr(all, ==, "jobid_var=auto\nslots=64\n");
    g_autofree char *one = qos_ctl_render_tunable(state, "slots");
    g_assert_cmpstr(one, ==, "64\n");
}

static void test_rules(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = qos_ctl_render_rules(state, &(QosCtlStyle){0});
    g_assert_cmpstr(
        text, ==,
        "RULE     CONDITIONS    OPTIONS           EXPIRES IN  REQUESTS     BYTES  WAITS    WAITED  "
        "WAITING  BUCKETS  WOULD WAIT\n"
        "hog      jobid={dd.*}  rate=100 bps=10M    1 m 31 s     12345  48.8 KiB   9000  4 m 10 s  "
        "     16        2\n"
        "trial    uid={7}       rate=5 dryrun=1                      9       0 B      0       0 s  "
        "      0        0           4\n"
        "default  *             no limit                            99       0 B      0       0 s  "
        "      0        1\n");
}

static void test_jobs(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = qos_ctl_render_jobs(state, 0, &(QosCtlStyle){0});
    g_assert_cmpstr(text, ==,
                    "JOB               OP/S      BYTES/S  WAITING    WAITED  FOR      STORE  "
                    "REQUESTS     READ   WRITTEN  ERRORS  IDLE\n"
                    "dd.1000            100  400.8 KiB/s       16  4 m 11 s  hog    22.50 s  "
                    "   12345  1.0 MiB  39.1 MiB       0   0 s\n"
                    "evil\\x1b[31m\\x0a   0.2        0 B/s        1  250.0 ms  gone       0 s  "
                    "       1      0 B       0 B       0   0 s\n"
                    "tar.0                0        0 B/s        0       0 s        500.0 ms  "
                    "      99      0 B   4.0 KiB       1  10 s\n");
    g_autofree char *busiest =
        qos_ctl_render_jobs(state, 1, &(QosCtlStyle){.width = 30, .bold = TRUE});
    g_assert_cmpstr(busiest, ==,
                    "\033[1mJOB      OP/S      BYTES/S\033[0m\n"
                    "dd.1000   100  400.8 KiB/s\n");
}

static char *why(JsonObject *state, const char *id)
{
    JsonObject *job = qos_ctl_state_job(state, id);
    g_assert_nonnull(job);
    return qos_ctl_render_why(state, job);
}

static void test_why(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = why(state, "dd.1000");
    g_assert_cmpstr(
        text, ==,
        "Job dd.1000 (4 nodes) waited 4 m 11 s: 9000 of its 12345 requests had to (72.9 %). First "
        "seen 30 s ago.\n"
        "\n"
        "Rule hog made 8990 requests wait, 4 m 10 s in all: 27.8 ms on average, 1.20 s at most.\n"
        "  First 1 h 0 m ago (2026-08-01 09:59:58), last 2 s ago.\n"
        "  It allows 100 op/s and 10.0 MiB/s to each job; it is for jobid={dd.*}.\n"
        "\n"
        "The mount's slots made 10 requests wait, 1.00 s in all: 100.0 ms on average, 500.0 ms at "
        "most.\n"
        "  First 29 s ago, last 20 s ago.\n"
        "  64 requests may be in the store at once, and one job has no more than its share.\n"
        "\n"
        "The store took 22.50 s to do its work, 1.8 ms a request: 8.22 % of the time that its "
        "requests took; waiting was the other 91.8 %.\n"
        "Now it gets 100 op/s and 400.8 KiB/s; 1 of its requests is in the store and 16 wait for "
        "rule hog, the last of them for 2.50 s so far.\n");
}

static void test_why_never(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = why(state, "tar.0");
    g_assert_cmpstr(text, ==,
                    "Job tar.0 never waited: all its 99 requests went to the store at once. First "
                    "seen 2 s ago.\n"
                    "\n"
                    "The store took 500.0 ms to do its work, 5.1 ms a request: 100 % of the time "
                    "that its requests took.\n"
                    "Now it asks for nothing.\n");
}

static void test_why_one(void)
{
    g_auto(GStrv) parts = g_strsplit(sample, "\"requests\":99", -1);
    g_autofree char *one = g_strjoinv("\"requests\":1", parts);
    g_autoptr(JsonObject) state = parse(one);
    g_autofree char *text = why(state, "tar.0");

    g_assert_true(g_str_has_prefix(
        text, "Job tar.0 never waited: its one request went to the store at once. First"));
}

/* By its id as it is printed, and for a rule that was stopped meanwhile. */
static void test_why_escaped(void)
{
    g_autoptr(JsonObject) state = parse(sample);
    g_autofree char *text = why(state, "evil\\x1b[31m\\x0a");
    g_assert_nonnull(strstr(text, "Job evil\\x1b[31m\\x0a waited 250.0 ms: 1 of its 1 request"));
    g_assert_nonnull(strstr(text, "\nRule gone made 1 request wait, "));
    g_assert_nonnull(strstr(text, "  There is no such rule any more.\n"));
    g_assert_nonnull(strstr(text, "and 1 waits for rule gone: at this rate that takes 5.00 s.\n"));
    for (const char *at = text; *at; at++)
        g_assert_true(g_ascii_isprint(*at) || *at == '\n');
    static const char *const alike[] = {"evil\033[31m\n", "\\x65vil\\x1B\\x5B31m\\x0A"};
    for (guint i = 0; i < G_N_ELEMENTS(alike); i++) {
        g_autofree char *same = why(state, alike[i]);
        g_assert_cmpstr(same, ==, text);
    }
    g_assert_null(qos_ctl_state_job(state, "evil"));
}

/* Of a state, at 10 s, with these rules and a job "j" of which that is told. */
static char *why_of(const char *rules, const char *job)
{
    g_autofree char *json =
        g_strdup_printf("{\"now\":10,\"policies\":[],\"slots\":{},\"tunables\":{},"
                        "\"rules\":[%s],\"jobs\":[{\"id\":\"j\",%s}]}",
                        rules, job);
    g_autoptr(JsonObject) state = parse(json);

    return why(state, "j");
}

/* What each `per` says of the sharers of a rule. */
static void test_why_sharer(void)
{
    static const char *const cases[][2] = {
        {"jobid", "  It allows 100 op/s to each job; it is for uid={1}.\n"},
        {"uid", "  It allows 100 op/s to each user, whatever the number of jobs; it is for "
                "uid={1}.\n"},
        {"gid", "  It allows 100 op/s to each group, whatever the number of its jobs; it is for "
                "uid={1}.\n"},
        {"rule", "  It allows 100 op/s to all that it matches together; it is for uid={1}.\n"},
        {"jobid+opcode",
         "  It allows 100 op/s to each job for each kind of operation; it is for uid={1}.\n"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *rule = g_strdup_printf(
            "{\"name\":\"r\",\"conditions\":\"uid={1}\",\"rate\":100,\"per\":\"%s\"}", cases[i][0]);
        g_autofree char *text = why_of(rule, "\"waits\":1,\"wait\":[{\"rule\":\"r\"}]");
        g_assert_nonnull(strstr(text, cases[i][1]));
    }
}

/* What a job waited for beyond the rules that are told apart. */
static void test_why_others(void)
{
    g_autofree char *text =
        why_of("", "\"waits\":1,\"waiting\":1,\"wait\":[{\"rule\":\"(others)\",\"count\":2}]");
    g_assert_nonnull(strstr(text, "\nOther rules made 2 requests wait, "));
    g_assert_nonnull(strstr(text, "1 waits for one of many rules.\n"));
    g_assert_null(strstr(text, "any more"));
}

/* A user that waits for the lock server learns that it is away. */
static void test_why_credit(void)
{
    static const char *const cases[][2] = {
        {"\"state\":\"up\",\"reason\":\"\"", NULL},
        {"\"state\":\"connecting\",\"reason\":\"refused\"", "connecting (refused).\n"},
        {"\"state\":\"recovering\"", "recovering.\n"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *json = g_strdup_printf(
            "{\"now\":10,\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[],\"server\":{%s},"
            "\"jobs\":[{\"id\":\"j\",\"waits\":1,\"wait\":[{\"rule\":\"(credit)\",\"count\":1}]}]}",
            cases[i][0]);
        g_autoptr(JsonObject) state = parse(json);
        g_autofree char *text = why(state, "j");
        const char *away = strstr(text, "  Now the mount is without it: ");
        g_assert_nonnull(strstr(text, "  The lock server was asked for a credit first"));
        g_assert_true(cases[i][1] ? away && strstr(away, cases[i][1]) : !away);
    }
}

static void test_why_passthrough(void)
{
    g_autofree char *text = why_of("", "\"passthrough\":3,\"wait\":[]");
    g_assert_nonnull(strstr(text, "the kernel itself reads and writes 3 of its open files"));
}

static void test_why_refused_opens(void)
{
    g_autofree char *text = why_of("", "\"open_files\":98,\"opens_refused\":1,\"wait\":[]");
    g_assert_nonnull(strstr(text, "\n1 open failed (EMFILE)"));
    g_assert_nonnull(strstr(text, "; it has 98 files open.\n"));
}

/* All that ever waited still waits: there is no time to tell yet. */
static void test_why_first_wait(void)
{
    g_autofree char *text =
        why_of("{\"name\":\"r\",\"conditions\":\"*\",\"rate\":1,\"per\":\"rule\"}",
               "\"started\":4,\"waiting\":3,"
               "\"wait\":[{\"rule\":\"r\",\"count\":0,\"first\":4,\"last\":8}]");
    g_assert_cmpstr(text, ==,
                    "Job j waits for the first time, and still does. First seen 6 s ago.\n"
                    "\n"
                    "Rule r made requests wait that have not gone yet.\n"
                    "  First 6 s ago, last 2 s ago.\n"
                    "  It allows 1 op/s to all that it matches together.\n"
                    "\n"
                    "Now it gets 0 op/s and 0 B/s; 0 of its requests are in the store and 3 wait "
                    "for rule r, the last of them for 2.00 s so far.\n");
}

/* A state without what an older daemon may lack, and with numbers no daemon gives. */
static void test_sparse(void)
{
    g_autoptr(JsonObject) state =
        parse("{\"policies\":[{}],\"slots\":{},\"tunables\":{\"x\":null},\"rules\":[{}],"
              "\"jobs\":[{\"wait\":[{}],\"store_time\":1e300,\"byte_rate\":-5,\"read_bytes\":-1,"
              "\"requests\":\"many\",\"waits\":9223372036854775807,\"operation_rate\":1e300}]}");
    QosCtlStyle style = {0};
    g_autofree char *status = qos_ctl_render_status(state);
    g_autofree char *rules = qos_ctl_render_rules(state, &style);
    g_autofree char *jobs = qos_ctl_render_jobs(state, 0, &style);
    g_autofree char *tunables = qos_ctl_render_tunables(state);
    g_autofree char *text = why(state, "");
    g_autofree char *headline = qos_ctl_render_headline(state, "/qos");
    g_assert_nonnull(strstr(rules, "no limit"));
    g_assert_cmpstr(tunables, ==, "x=\n");
}

static void test_wrong_shape(void)
{
    static const char *const cases[] = {
        "",
        "{",
        "[]",
        "1",
        "null",
        "{}",
        "{\"policies\":1,\"slots\":{},\"tunables\":{},\"rules\":[],\"jobs\":[]}",
        "{\"policies\":[],\"slots\":[],\"tunables\":{},\"rules\":[],\"jobs\":[]}",
        "{\"policies\":[],\"slots\":{},\"tunables\":null,\"rules\":[],\"jobs\":[]}",
        "{\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[1],\"jobs\":[]}",
        "{\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[],\"jobs\":[{}]}",
        "{\"policies\":[],\"slots\":{},\"tunables\":{},\"rules\":[],\"jobs\":[{\"wait\":[[]]}]}",
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(qos_ctl_state_parse(cases[i], strlen(cases[i]), &error));
        g_assert_error(error, QOS_ERROR, EPROTO);
    }
}

static const char shared[] =
    "{\"now\":10,\"policies\":[],\"slots\":{\"total\":64},\"tunables\":{},\"rules\":[],"
    " \"adapt\":{\"mode\":\"fair\",\"capacity\":500,\"told\":true,\"depth\":16,\"period\":0.1,"
    "  \"members\":2},"
    " \"jobs\":[{\"id\":\"lender\",\"wait\":[],\"seen\":10,\"share\":{\"takes_part\":true,"
    "\"weight\":3,"
    "   \"entitlement\":375,\"demand\":63,\"allocation\":70,\"flow\":312,\"partner\":\"41\","
    "   \"record\":3200,\"lent\":31200,\"returned\":28000,\"borrowed\":0,\"repaid\":0}},"
    "  {\"id\":\"41\",\"waiting\":9,\"seen\":10,\"wait\":[{\"rule\":\"(share)\",\"count\":1}],"
    "   \"share\":{\"takes_part\":true,\"weight\":1,\"entitlement\":125,\"demand\":900,"
    "   \"allocation\":430,\"flow\":-312,\"partner\":\"lender\",\"record\":-3200,\"lent\":0,"
    "   \"returned\":0,\"borrowed\":31200,\"repaid\":28000}},"
    "  {\"id\":\"rival\",\"waiting\":1,\"seen\":10,\"wait\":[],\"share\":{\"takes_part\":true}},"
    "  {\"id\":\"idle\",\"seen\":9,\"wait\":[],\"share\":null}]}";

static void test_sharing(void)
{
    g_autoptr(JsonObject) state = parse(shared);
    g_autofree char *status = qos_ctl_render_status(state);
    g_assert_nonnull(strstr(status,
                            "\nsharing   fair, 500 op/s (told), 2 jobs, anew every 100.0 ms, "
                            "at most 16 in the store\n"));
    g_autofree char *jobs = qos_ctl_render_jobs(state, 2, &(QosCtlStyle){0});
    g_assert_cmpstr(
        jobs, ==,
        "JOB     OP/S  BYTES/S  WAITING  WAITED  FOR      WEIGHT  SHARE  DEMAND  ALLOCATED  "
        "LENDS  RECORD  STORE  REQUESTS  READ  WRITTEN  ERRORS  IDLE\n"
        "lender     0    0 B/s        0     0 s                3    375      63         70  "
        " +312   +3200    0 s         0   0 B      0 B       0   0 s\n"
        "41         0    0 B/s        9     0 s  (share)       1    125     900        430  "
        " -312   -3200    0 s         0   0 B      0 B       0   0 s\n");
    g_autofree char *lender = why(state, "lender");
    g_assert_nonnull(strstr(lender,
                            "\nThe store is shared: its weight is 3 of 4, which is 375 op/s "
                            "of 500 op/s.\n"
                            "  Now it lends 312 op/s, most of that to job 41.\n"
                            "  It lent 31200 operations in all, and was paid back 28000.\n"
                            "  The others still owe it 3200 operations.\n"));
    g_autofree char *borrower = why(state, "41");
    g_assert_nonnull(strstr(borrower, "\nSharing the store made 1 request wait, "));
    g_assert_nonnull(strstr(
        borrower, "  The store is shared and had enough to do: it was not the job's turn.\n"));
    g_assert_nonnull(strstr(borrower, "and 9 wait for their turn.\n"));
    g_assert_nonnull(strstr(
        borrower, "\nThe store is shared: its weight is 1 of 4, which is 125 op/s of 500 op/s.\n"
                  "  It asks for 900 op/s and is to have 430 op/s: its share is used up; 1 "
                  "other job wants more, too: rival.\n"
                  "  Now it borrows 312 op/s, most of that from job lender.\n"
                  "  It borrowed 31200 operations in all, and paid back 28000.\n"
                  "  It still owes the others 3200 operations.\n"));
    g_autofree char *idle = why(state, "idle");
    g_assert_nonnull(strstr(idle, "\nThe store is shared; it takes no part, as it asked for "
                                  "nothing lately.\n"));
}

int main(int argc, char **argv)
{
    g_setenv("TZ", "UTC", TRUE);
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/render/status", test_status);
    g_test_add_func("/ctl/render/policies", test_policies);
    g_test_add_func("/ctl/render/tunables", test_tunables);
    g_test_add_func("/ctl/render/rules", test_rules);
    g_test_add_func("/ctl/render/jobs", test_jobs);
    g_test_add_func("/ctl/render/why", test_why);
    g_test_add_func("/ctl/render/why/never-waited", test_why_never);
    g_test_add_func("/ctl/render/why/one-request", test_why_one);
    g_test_add_func("/ctl/render/why/escaped", test_why_escaped);
    g_test_add_func("/ctl/render/why/sharer", test_why_sharer);
    g_test_add_func("/ctl/render/why/others", test_why_others);
    g_test_add_func("/ctl/render/why/credit", test_why_credit);
    g_test_add_func("/ctl/render/why/passthrough", test_why_passthrough);
    g_test_add_func("/ctl/render/why/refused_opens", test_why_refused_opens);
    g_test_add_func("/ctl/render/why/first-wait", test_why_first_wait);
    g_test_add_func("/ctl/render/sparse", test_sparse);
    g_test_add_func("/ctl/render/wrong-shape", test_wrong_shape);
    g_test_add_func("/ctl/render/sharing", test_sharing);
    return g_test_run();
}
