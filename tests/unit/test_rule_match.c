/*
 * Which rule governs a request, alone and among thousands.
 */
#include "fs/rule.h"

#include <string.h>

#include "tests/unit/rules.h"

static const char *governs(const QosRules *rules, const QosRuleSubject *subject)
{
    const QosRule *dryrun;

    return qos_rules_match(rules, subject, &dryrun)->name;
}

static void test_each_field(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    QosRuleSubject subject = {"job", "node7", 1000, 100, QOS_OP_MKDIR};

    apply(&rules, "start host host={node[5-9] other}");
    apply(&rules, "start opcode opcode={write unlink}");
    apply(&rules, "start gid gid={[200-299]}");
    apply(&rules, "start uid uid={5 100-199}");
    apply(&rules, "start job jobid={dd.* cp}");
    g_assert_cmpstr(governs(rules, &subject), ==, "host");
    subject.opcode = QOS_OP_UNLINK;
    g_assert_cmpstr(governs(rules, &subject), ==, "opcode");
    subject.gid = 299;
    g_assert_cmpstr(governs(rules, &subject), ==, "gid");
    subject.gid = 300;
    g_assert_cmpstr(governs(rules, &subject), ==, "opcode");
    subject.uid = 100;
    g_assert_cmpstr(governs(rules, &subject), ==, "uid");
    subject.uid = 200;
    g_assert_cmpstr(governs(rules, &subject), ==, "opcode");
    subject.uid = 5;
    g_assert_cmpstr(governs(rules, &subject), ==, "uid");
    subject.job = "cp";
    g_assert_cmpstr(governs(rules, &subject), ==, "job");
    subject.job = "dd.0";
    g_assert_cmpstr(governs(rules, &subject), ==, "job");
    subject = (QosRuleSubject){"", "node4", 0, 0, QOS_OP_READ};
    g_assert_cmpstr(governs(rules, &subject), ==, "default");
}

static void test_and_binds_closer_than_or(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    QosRuleSubject subject = {.job = "a", .host = "n", .uid = 1};

    apply(&rules, "start r jobid={a}&uid={1},jobid={b}&uid={2}");
    g_assert_cmpstr(governs(rules, &subject), ==, "r");
    subject.uid = 2;
    g_assert_cmpstr(governs(rules, &subject), ==, "default");
    subject.job = "b";
    g_assert_cmpstr(governs(rules, &subject), ==, "r");
    subject.uid = 1;
    g_assert_cmpstr(governs(rules, &subject), ==, "default");
    apply(&rules, "start s uid={1} , jobid={c} & uid={3}"); /* with blanks */
    g_assert_cmpstr(governs(rules, &subject), ==, "s");
    subject = (QosRuleSubject){.job = "c", .host = "n", .uid = 3};
    g_assert_cmpstr(governs(rules, &subject), ==, "s");
    apply(&rules, "start t jobid={c}&jobid={d*}"); /* both, which nothing is */
    g_assert_cmpstr(governs(rules, &subject), ==, "s");
}

static void test_opcode_groups(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    QosRuleSubject subject = {.job = "a", .host = "n"};

    apply(&rules, "start all opcode={*}");
    apply(&rules, "start meta opcode={meta}");
    apply(&rules, "start data opcode={data}");
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        subject.opcode = i;
        g_assert_cmpstr(governs(rules, &subject), ==, qos_opcode_is_data(i) ? "data" : "meta");
    }
}

static void test_the_newest_matches_first(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    /* Indexed and not, in turn. */
    apply(&rules, "start a jobid={*}");
    g_assert_cmpstr(match(rules, "x")->name, ==, "a");
    apply(&rules, "start b jobid={x}");
    g_assert_cmpstr(match(rules, "x")->name, ==, "b");
    apply(&rules, "start c jobid={x*}");
    g_assert_cmpstr(match(rules, "x")->name, ==, "c");
    apply(&rules, "start d jobid={w x x}&uid={0}");
    g_assert_cmpstr(match(rules, "x")->name, ==, "d");
    g_assert_cmpstr(match(rules, "y")->name, ==, "a");
    apply(&rules, "stop d");
    g_assert_cmpstr(match(rules, "x")->name, ==, "c");
}

static void test_escaped_job_ids_are_found(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start array jobid={123\\[4].host}");
    g_assert_cmpstr(match(rules, "123[4].host")->name, ==, "array");
    g_assert_cmpstr(match(rules, "1234.host")->name, ==, "default");
}

static void test_dry_runs_govern_nothing(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    QosRuleSubject subject = {.job = "x", .host = "n"};
    const QosRule *dryrun;

    apply(&rules, "start below jobid={x} dryrun=1");
    apply(&rules, "start real jobid={x y} rate=5");
    g_assert_cmpstr(qos_rules_match(rules, &subject, &dryrun)->name, ==, "real");
    g_assert_null(dryrun); /* the one below is never reached */
    apply(&rules, "start second jobid={x} dryrun=1");
    apply(&rules, "start first jobid={*} dryrun=1");
    g_assert_cmpstr(qos_rules_match(rules, &subject, &dryrun)->name, ==, "real");
    g_assert_cmpstr(dryrun->name, ==, "first");
    subject.job = "z";
    g_assert_cmpstr(qos_rules_match(rules, &subject, &dryrun)->name, ==, "default");
    g_assert_cmpstr(dryrun->name, ==, "first");
}

static void test_passthrough_needs_each_operation(void)
{
    const QosOpcodeSet reads = 1 << QOS_OP_READ, writes = 1 << QOS_OP_WRITE;
    QosRuleSubject subject = {.job = "x", .host = "n"};
    g_autoptr(QosRules) rules = qos_rules_new();

    g_assert_false(qos_rules_pass_through(rules, &subject, reads));
    apply(&rules, "start free jobid={x}&opcode={read} passthrough");
    g_assert_true(qos_rules_pass_through(rules, &subject, reads));
    g_assert_false(qos_rules_pass_through(rules, &subject, writes));
    g_assert_false(qos_rules_pass_through(rules, &subject, reads | writes));
    apply(&rules, "start also uid={0}&opcode={write} passthrough");
    g_assert_true(qos_rules_pass_through(rules, &subject, reads | writes));
    subject.uid = 1;
    g_assert_false(qos_rules_pass_through(rules, &subject, reads | writes));
    apply(&rules, "start bound jobid={x} rate=5"); /* above both */
    g_assert_false(qos_rules_pass_through(rules, &subject, reads));
    apply(&rules, "change bound dryrun=1"); /* governs nothing */
    g_assert_true(qos_rules_pass_through(rules, &subject, reads));
    apply(&rules, "change free passthrough=0");
    g_assert_false(qos_rules_pass_through(rules, &subject, reads));
    apply(&rules, "change default passthrough");
    g_assert_false(qos_rules_pass_through(rules, &subject, reads));
    g_assert_true(qos_rules_pass_through(rules, &subject, writes));
}

static void test_fields(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a uid={5}&host={n}");
    g_assert_cmpuint(qos_rules_fields(rules), ==, QOS_FIELD_JOBID | QOS_FIELD_UID | QOS_FIELD_HOST);
    apply(&rules, "change a per=jobid+opcode");
    g_assert_cmpuint(qos_rules_fields(rules), ==,
                     QOS_FIELD_JOBID | QOS_FIELD_UID | QOS_FIELD_HOST | QOS_FIELD_OPCODE);
    apply(&rules, "stop a");
    apply(&rules, "change default per=rule");
    g_assert_cmpuint(qos_rules_fields(rules), ==, 0);
    apply(&rules, "change default per=gid");
    g_assert_cmpuint(qos_rules_fields(rules), ==, QOS_FIELD_GID);
}

/* --- many rules --- */

/* The definition, without the index: the first of the list that matches by itself. */
static void test_the_index_changes_nothing(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    g_autoptr(GPtrArray) singles = g_ptr_array_new_with_free_func((GDestroyNotify)qos_rules_unref);
    static const char *const conditions[] = {
        "jobid={j%d}",         "jobid={j%d j3}&uid={0}",     "jobid={j%d*}",
        "jobid={j%d},uid={7}", "uid={0}&jobid={j%d}",        "jobid={j%d},jobid={j5}",
        "jobid={*%d}",         "jobid={j%d}&opcode={write}",
    };

    for (int i = 0; i < 1000; i++) {
        const char *form = conditions[g_test_rand_int_range(0, G_N_ELEMENTS(conditions))];
        g_auto(GStrv) parts = g_strsplit(form, "%d", 2);
        g_autofree char *number = g_strdup_printf("%d", g_test_rand_int_range(0, 2000));
        g_autofree char *condition = g_strjoinv(number, parts);
        g_autofree char *command = g_strdup_printf("start r%d %s", i, condition);
        QosRules *single = qos_rules_new();
        QosRules *more = qos_rules_apply(rules, command, NOW, NULL);

        apply(&single, command);
        g_ptr_array_insert(singles, 0, single);
        g_assert_nonnull(more);
        qos_rules_unref(rules);
        rules = more;
    }
    for (int i = 0; i < 500; i++) {
        g_autofree char *job = g_strdup_printf("j%d", g_test_rand_int_range(0, 2000));
        const char *expected = "default";

        for (guint k = 0; k < singles->len; k++) {
            const QosRule *rule = match(singles->pdata[k], job);

            if (strcmp(rule->name, "default") != 0) {
                expected = qos_rules_by_name(rules, rule->name)->name;
                break;
            }
        }
        g_assert_cmpstr(match(rules, job)->name, ==, expected);
    }
}

/* A thousand rules for one job each: a million matches are a second or less where only the job's
 * own is looked at, and minutes where all are. */
static void test_exact_jobs_are_found_at_once(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    for (int i = 0; i < 1000; i++) {
        g_autofree char *command = g_strdup_printf("start r%d jobid={job.%d}", i, i);
        QosRules *more = qos_rules_apply(rules, command, NOW, NULL);

        qos_rules_unref(rules);
        rules = more;
    }
    for (int i = 0; i < 1000000; i++)
        g_assert_true(match(rules, i % 2 ? "job.7" : "nobody")->rate == (i % 2 ? 10000 : 0));
}

/* --- sharing --- */

static gpointer match_often(gpointer rules)
{
    for (int i = 0; i < 1000; i++)
        g_assert_cmpstr(match(rules, "j1")->name, ==, "a");
    qos_rules_unref(rules);
    return NULL;
}

static void test_a_list_is_shared_without_a_lock(void)
{
    for (int round = 0; round < 50; round++) {
        g_autoptr(QosRules) rules = qos_rules_new();
        GThread *threads[4];

        apply(&rules, "start a jobid={j1}");
        for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
            threads[i] = g_thread_new("match", match_often, qos_rules_ref(rules));
        for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
            g_thread_join(threads[i]);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rule-match/each-field", test_each_field);
    g_test_add_func("/rule-match/and-or", test_and_binds_closer_than_or);
    g_test_add_func("/rule-match/opcode-groups", test_opcode_groups);
    g_test_add_func("/rule-match/newest-first", test_the_newest_matches_first);
    g_test_add_func("/rule-match/escaped-jobs", test_escaped_job_ids_are_found);
    g_test_add_func("/rule-match/dry-run", test_dry_runs_govern_nothing);
    g_test_add_func("/rule-match/passthrough", test_passthrough_needs_each_operation);
    g_test_add_func("/rule-match/fields", test_fields);
    g_test_add_func("/rule-match/index", test_the_index_changes_nothing);
    g_test_add_func("/rule-match/thousand", test_exact_jobs_are_found_at_once);
    g_test_add_func("/rule-match/shared", test_a_list_is_shared_without_a_lock);
    return g_test_run();
}
