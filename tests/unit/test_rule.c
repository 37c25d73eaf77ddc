/*
 * The rule language: what each command makes of a list, and that a refused one makes nothing of it.
 */
#include "fs/rule.h"

#include <errno.h>

#include "tests/unit/rules.h"

/* --- commands --- */

static void test_a_new_list_has_default_alone(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    expect_list(rules, "default * rate=none\n");
    g_assert_null(qos_rule_command(qos_rules_get(rules, 0)));
    g_assert_cmpstr(match(rules, "any")->name, ==, "default");
    g_assert_cmpint(match(rules, "any")->rate, ==, 0);
    g_assert_cmpuint(qos_rules_fields(rules), ==, QOS_FIELD_JOBID);
    g_assert_cmpint(qos_rules_next_expiry(rules), ==, QOS_NEVER);
    qos_rules_unref(NULL);
}

static void test_start_change_stop(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a jobid={dd.*}");
    apply(&rules, "reg start b uid={500} rate=100");
    expect_list(rules, "b uid={500} rate=100\na jobid={dd.*} rate=10000\ndefault * rate=none\n");
    apply(&rules, " \tchange b  rate=200\tbps=1.5M \n");
    expect_list(rules,
                "b uid={500} rate=200 bps=1536K\na jobid={dd.*} rate=10000\ndefault * rate=none\n");
    apply(&rules, "stop a");
    apply(&rules, "change default rate=50");
    expect_list(rules, "b uid={500} rate=200 bps=1536K\ndefault * rate=50\n");
    apply(&rules, "reg stop b");
    apply(&rules, "change default rate=none");
    expect_list(rules, "default * rate=none\n");
}

static void test_change_sets_each_option_alone(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    const QosRule *rule;

    apply(&rules, "start a jobid={x} rate=10 bps=1M depth=5:2M per=uid weight=3 min=2 expire=60");
    apply(&rules, "change a rate=20");
    apply(&rules, "change a bps=2M");
    apply(&rules, "change a depth=6");
    expect_list(rules, "a jobid={x} rate=20 bps=2M depth=6:2M per=uid weight=3 min=2\n"
                       "default * rate=none\n");
    apply(&rules, "change a depth=auto");
    apply(&rules, "change a per=jobid+opcode");
    apply(&rules, "change a weight=none");
    apply(&rules, "change a min=none");
    apply(&rules, "change a dryrun=1");
    expect_list(rules, "a jobid={x} rate=20 bps=2M depth=auto:2M per=jobid+opcode dryrun=1\n"
                       "default * rate=none\n");
    rule = qos_rules_by_name(rules, "a");
    g_assert_cmpint(rule->expires, ==, NOW + 60 * QOS_SECOND);
    apply(&rules, "change a rate=none bps=none depth=auto:auto per=jobid dryrun=0 expire=none");
    expect_list(rules, "a jobid={x} rate=none\ndefault * rate=none\n");
    rule = qos_rules_by_name(rules, "a");
    g_assert_cmpint(rule->expires, ==, QOS_NEVER);
}

static void test_the_default_rate(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a jobid={x} dryrun=1");
    apply(&rules, "start b jobid={x} bps=1M");
    apply(&rules, "start c jobid={x} weight=5");
    apply(&rules, "start d jobid={x} min=5");
    apply(&rules, "start e jobid={x} rate=none");
    expect_list(rules, "e jobid={x} rate=none\n"
                       "d jobid={x} rate=none min=5\n"
                       "c jobid={x} rate=none weight=5\n"
                       "b jobid={x} bps=1M\n"
                       "a jobid={x} rate=10000 dryrun=1\n"
                       "default * rate=none\n");
}

static void test_passthrough(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a jobid={x} passthrough");
    apply(&rules, "start b jobid={x} passthrough=1 per=rule");
    expect_list(rules, "b jobid={x} rate=none per=rule passthrough=1\n"
                       "a jobid={x} rate=none passthrough=1\n"
                       "default * rate=none\n");
    apply(&rules, "change a passthrough=0");
    apply(&rules, "change b passthrough=0 rate=5");
    apply(&rules, "change default passthrough=1");
    expect_list(rules, "b jobid={x} rate=5 per=rule\n"
                       "a jobid={x} rate=none\n"
                       "default * rate=none passthrough=1\n");
    apply(&rules, "change b rate=none passthrough");
    apply(&rules, "change default passthrough=0");
    apply(&rules, "start c jobid={x} passthrough=0");
    expect_list(rules, "c jobid={x} rate=10000\n"
                       "b jobid={x} rate=none per=rule passthrough=1\n"
                       "a jobid={x} rate=none\n"
                       "default * rate=none\n");
}

static void test_bounds_of_values(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a uid={0 4294967295} rate=999999 bps=1P depth=1000000:1P "
                  "weight=10000 min=999999 expire=250ms");
    apply(&rules, "start b gid={*} rate=1 bps=1 depth=1:1 weight=1 min=1 expire=0.000000001");
    expect_list(rules, "b gid={*} rate=1 bps=1 depth=1:1 weight=1 min=1\n"
                       "a uid={0 4294967295} rate=999999 bps=1P depth=1000000:1P "
                       "weight=10000 min=999999\n"
                       "default * rate=none\n");
}

static void test_ids(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    g_autoptr(QosRules) restarted = NULL;
    guint64 first, second;

    apply(&rules, "start a jobid={x}");
    first = qos_rules_by_name(rules, "a")->id;
    apply(&rules, "change a rate=5");
    g_assert_cmpuint(qos_rules_by_name(rules, "a")->id, ==, first);
    g_assert_true(qos_rules_by_id(rules, first) == qos_rules_by_name(rules, "a"));
    apply(&rules, "stop a");
    g_assert_null(qos_rules_by_id(rules, first));
    g_assert_null(qos_rules_by_name(rules, "a"));
    apply(&rules, "start a jobid={x}");
    second = qos_rules_by_name(rules, "a")->id;
    g_assert_cmpuint(second, !=, first);
    g_assert_cmpuint(second, !=, qos_rules_by_name(rules, "default")->id);
    g_assert_cmpuint(qos_rules_by_name(rules, "default")->id, !=, 0);
}

/* --- refusals: each line of the table of errors --- */

static const struct {
    const char *command;
    int code;
    const char *words; /* in the message */
} refusals[] = {
    /* verbs */
    {"", EINVAL, "start, change or stop"},
    {"   ", EINVAL, "start, change or stop"},
    {"reg", EINVAL, "start, change or stop"},
    {"reg reg stop a", EINVAL, "\"reg\""},
    {"hp start b jobid={x} rate=5", EINVAL, "\"hp\""},
    {"Start b jobid={x}", EINVAL, "\"Start\""},
    {"delete a", EINVAL, "\"delete\""},
    /* names */
    {"start", EINVAL, "name"},
    {"stop", EINVAL, "name"},
    {"start abcdefghijklmnop jobid={x}", ENAMETOOLONG, "abcdefghijklmnop"},
    {"change abcdefghijklmnop rate=5", ENAMETOOLONG, "abcdefghijklmnop"},
    {"stop abcdefghijklmnop", ENAMETOOLONG, "abcdefghijklmnop"},
    {"start jobid={x} rate=5", EINVAL, "jobid={x}"},
    {"start b\xc3\xa4 jobid={x}", EINVAL, "b\xc3\xa4"},
    /* conditions */
    {"start b", EINVAL, "conditions"},
    {"start b rate=5", EINVAL, "rate=5"},
    {"start b {x} 100", EINVAL, "{x} 100"},
    {"start b nid={x}", EINVAL, "nid={x}"},
    {"start b jobid=x", EINVAL, "jobid=x"},
    {"start b jobid ={x}", EINVAL, "jobid ={x}"},
    {"start b jobid={", EINVAL, "without"},
    {"start b jobid={x", EINVAL, "jobid={x"},
    {"start b jobid={x rate=5", EINVAL, "without"},
    {"start b jobid=x}", EINVAL, "jobid=x}"},
    {"start b jobid={{x}}", EINVAL, "without"},
    {"start b jobid={x}}", EINVAL, "}"},
    {"start b jobid={}", EINVAL, "no value"},
    {"start b jobid={ }", EINVAL, "no value"},
    {"start b jobid={x}&", EINVAL, "expected conditions"},
    {"start b jobid={x},", EINVAL, "expected conditions"},
    {"start b &jobid={x}", EINVAL, "&jobid={x}"},
    {"start b jobid={x}&&uid={5}", EINVAL, "&uid={5}"},
    {"start b jobid={x}uid={5}", EINVAL, "uid={5}"},
    {"start b jobid={x}rate=5", EINVAL, "rate=5"},
    {"start b jobid={x} uid={5}", EINVAL, "uid={5}"},
    {"start b jobid={x[} rate=5", EINVAL, "x["},
    {"start b host={n[3-1]}", EINVAL, "reversed"},
    {"start b uid={bob}", EINVAL, "bob"},
    {"start b uid={-1}", EINVAL, "-1"},
    {"start b uid={4294967296}", EINVAL, "4294967296"},
    {"start b uid={18446744073709551617}", EINVAL, "18446744073709551617"},
    {"start b uid={5-}", EINVAL, "5-"},
    {"start b uid={9-5}", EINVAL, "9-5"},
    {"start b gid={[5-9}", EINVAL, "[5-9"},
    {"start b gid={5-9]}", EINVAL, "5-9]"},
    {"start b gid={5*}", EINVAL, "5*"},
    {"start b gid={500,501}", EINVAL, "500,501"},
    {"start b opcode={reed}", EINVAL, "readdir"},
    {"start b opcode={read,write}", EINVAL, "read,write"},
    /* options */
    {"start b jobid={x} rate", EINVAL, "\"rate\""},
    {"start b jobid={x} =5", EINVAL, "\"=5\""},
    {"start b jobid={x} rat=5", EINVAL, "rat=5"},
    {"start b jobid={x} rates=5", EINVAL, "rates=5"},
    {"start b jobid={x} realtime=1", EINVAL, "realtime=1"},
    {"start b jobid={x} 100", EINVAL, "100"},
    {"start b jobid={x} rate=", EINVAL, "rate="},
    {"start b jobid={x} rate = 5", EINVAL, "\"rate\""},
    {"start b jobid={x} rate=0", EINVAL, "none"},
    {"start b jobid={x} rate=-1", EINVAL, "rate=-1"},
    {"start b jobid={x} rate=1000000", EINVAL, "999999"},
    {"start b jobid={x} rate=1.5", EINVAL, "rate=1.5"},
    {"start b jobid={x} rate=5K", EINVAL, "rate=5K"},
    {"start b jobid={x} rate=99999999999999999999", EINVAL, "rate=99999999999999999999"},
    {"start b jobid={x} rate=5 rate=5", EINVAL, "twice"},
    {"start b jobid={x} bps=0", EINVAL, "none"},
    {"start b jobid={x} bps=0.5", EINVAL, "bps=0.5"},
    {"start b jobid={x} bps=2P", EINVAL, "1P"},
    {"start b jobid={x} bps=fast", EINVAL, "bps=fast"},
    {"start b jobid={x} depth=0", EINVAL, "depth=0"},
    {"start b jobid={x} depth=", EINVAL, "depth="},
    {"start b jobid={x} depth=5:", EINVAL, "depth=5:"},
    {"start b jobid={x} depth=:5M", EINVAL, "depth=:5M"},
    {"start b jobid={x} depth=5:5:5", EINVAL, "depth=5:5:5"},
    {"start b jobid={x} depth=1000001", EINVAL, "depth=1000001"},
    {"start b jobid={x} depth=1:2P", EINVAL, "1P"},
    {"start b jobid={x} per=host", EINVAL, "jobid+opcode"},
    {"start b jobid={x} per=", EINVAL, "per="},
    {"start b jobid={x} weight=0", EINVAL, "weight=0"},
    {"start b jobid={x} weight=10001", EINVAL, "10000"},
    {"start b jobid={x} min=1000000", EINVAL, "999999"},
    {"start b jobid={x} rate=5 min=6", EINVAL, "min=6"},
    {"start b jobid={x} expire=0", EINVAL, "expire=0"},
    {"start b jobid={x} expire=soon", EINVAL, "expire=soon"},
    {"start b jobid={x} dryrun=2", EINVAL, "0 or 1"},
    {"start b jobid={x} dryrun=01", EINVAL, "0 or 1"},
    {"start b jobid={x} rate", EINVAL, "rate= takes operations a second"},
    {"start b jobid={x} uid={5}", EINVAL, "joined by \"&\""},
    {"stop", EINVAL, "the name of a rule is missing"},
    {"start b nid={1@tcp}", EINVAL, "a mount serves one node"},
    {"start b jobid={x} passthrough=2", EINVAL, "0 or 1"},
    {"start b jobid={x} passthrough passthrough=1", EINVAL, "twice"},
    {"start b jobid={x} passthrough rate=5", EINVAL, "rate=none"},
    {"start b jobid={x} passthrough bps=5M", EINVAL, "bps=none"},
    {"start b jobid={x} passthrough dryrun", EINVAL, "dryrun=0"},
    {"start b jobid={x} scope=cluster", EINVAL, "qosfsctl cluster rule start"},
    {"start b jobid={x} share=hard", EINVAL, "qosfsctl cluster rule start"},
    {"start b jobid={x} floor=5%", EINVAL, "qosfsctl cluster rule start"},
    {"start b jobid={x} scope=mount away=open", EINVAL, "without share=, floor= and away="},
    {"start b jobid={x} scope=rack", EINVAL, "scope= takes mount or cluster"},
    {"start b jobid={x} rank=", EINVAL, "name"},
    {"start b jobid={x} rank=abcdefghijklmnop", ENAMETOOLONG, "abcdefghijklmnop"},
    /* change and stop */
    {"change a", EINVAL, "change a"},
    {"change a jobid={y}", EINVAL, "conditions of a rule stay"},
    {"change a rate=5 jobid={y}", EINVAL, "conditions"},
    {"change a rate=0", EINVAL, "none"},
    {"change a min=11", EINVAL, "rate=10"},
    {"change a passthrough", EINVAL, "rate=none"},
    {"change a scope=cluster", EINVAL, "qosfsctl cluster rule start"},
    {"change default dryrun=1", EINVAL, "dryrun"},
    {"change default expire=5", EINVAL, "expire"},
    {"stop a rate=5", EINVAL, "rate=5"},
    {"stop a b", EINVAL, "\"b\""},
    /* against the list */
    {"start a jobid={y}", EEXIST, "\"a\""},
    {"start default jobid={y}", EEXIST, "\"default\""},
    {"change nobody rate=5", ENOENT, "\"nobody\""},
    {"stop nobody", ENOENT, "\"nobody\""},
    {"stop defualt", ENOENT, "did you mean \"default\"?"},
    {"start b jobid={x} rank=nobody", ENOENT, "\"nobody\""},
    {"start b jobid={x} rank=b", ENOENT, "\"b\""},
    {"change a rank=nobody", ENOENT, "\"nobody\""},
    {"change a rate=5 rank=nobody", ENOENT, "\"nobody\""}, /* Lustre applies the rate */
    {"change a rank=nobody bps=1M", ENOENT, "\"nobody\""},
    {"stop default", EPERM, "default"},
    /* characters */
    {"start b jobid={x}\nstop a", EINVAL, "0x0a"},
    {"start b jobid={x\x01} rate=5", EINVAL, "0x01"},
    {"start b jobid={x\x7f}", EINVAL, "0x7f"},
    {"start b jobid={x\x1b[2J}", EINVAL, "0x1b"},
    {"start b jobid={\xff}", EINVAL, "UTF-8"},
};

static void test_refusals(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a jobid={x} rate=10");
    for (guint i = 0; i < G_N_ELEMENTS(refusals); i++)
        refuse(rules, refusals[i].command, refusals[i].code, refusals[i].words);
}

static void test_special_characters_in_names(void)
{
    static const char specials[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~";
    g_autoptr(QosRules) rules = qos_rules_new();

    g_assert_cmpuint(strlen(specials), >=, 28);
    for (const char *special = specials; *special != '\0'; special++) {
        g_autofree char *alone = g_strdup_printf("start %c jobid={x}", *special);
        g_autofree char *inside = g_strdup_printf("start a%cb jobid={x}", *special);

        refuse(rules, alone, EINVAL, "name");
        refuse(rules, inside, EINVAL, "name");
    }
    apply(&rules, "start _Az09_________9 jobid={x}"); /* 15 of those that are allowed */
    apply(&rules, "start start jobid={x}");
    apply(&rules, "stop start");
}

static void test_too_many_rules(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    for (guint i = 1; i < QOS_RULES_MAX; i++) {
        g_autofree char *command = g_strdup_printf("start r%u jobid={j%u}", i, i);
        QosRules *more = qos_rules_apply(rules, command, NOW, NULL);

        g_assert_nonnull(more);
        qos_rules_unref(rules);
        rules = more;
    }
    g_assert_cmpuint(qos_rules_count(rules), ==, QOS_RULES_MAX);
    g_assert_cmpstr(match(rules, "j5000")->name, ==, "r5000");
    {
        g_autoptr(GError) error = NULL;

        g_assert_null(qos_rules_apply(rules, "start more jobid={x}", NOW, &error));
        g_assert_error(error, QOS_ERROR, ENOSPC);
    }
    apply(&rules, "stop r1");
    apply(&rules, "start more jobid={x}");
}

/* --- rank --- */

static void expect_order(const QosRules *rules, const char *expected)
{
    g_autoptr(GString) names = g_string_new(NULL);

    for (guint i = 0; i < qos_rules_count(rules); i++)
        g_string_append_printf(names, "%s ", qos_rules_get(rules, i)->name);
    g_assert_cmpstr(names->str, ==, expected);
}

static void test_rank(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start c jobid={*} rate=3");
    apply(&rules, "start b jobid={*} rate=2");
    apply(&rules, "start a jobid={*} rate=1");
    expect_order(rules, "a b c default ");
    apply(&rules, "change c rank=a"); /* up */
    expect_order(rules, "c a b default ");
    g_assert_cmpstr(match(rules, "x")->name, ==, "c");
    apply(&rules, "change c rank=b"); /* down */
    expect_order(rules, "a c b default ");
    apply(&rules, "change a rank=c"); /* to where it is */
    expect_order(rules, "a c b default ");
    apply(&rules, "change b rank=b rate=20"); /* itself */
    expect_order(rules, "a c b default ");
    g_assert_cmpint(qos_rules_by_name(rules, "b")->rate, ==, 20);
    apply(&rules, "change a rank=default");
    expect_order(rules, "c b a default ");
    apply(&rules, "start d jobid={*} rank=b");
    expect_order(rules, "c d b a default ");
    apply(&rules, "start e jobid={*} rank=default");
    expect_order(rules, "c d b a e default ");
}

static void test_default_is_the_fallback_wherever_it_stands(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a jobid={x} rate=1");
    apply(&rules, "change default rank=a rate=7");
    expect_order(rules, "default a ");
    g_assert_cmpstr(match(rules, "x")->name, ==, "a");
    g_assert_cmpint(match(rules, "y")->rate, ==, 7);
}

static void test_cluster_list(void)
{
    static const struct {
        const char *command;
        int code;
        const char *mention;
    } wrong[] = {
        {"start b jobid={x} scope=mount", EINVAL, "\"qosfsctl rule start"},
        {"start b jobid={x} passthrough", EINVAL, "without passthrough"},
        {"start b jobid={x} share=even", EINVAL, "share= takes fair or hard"},
        {"start b jobid={x} away=closed", EINVAL, "away= takes floor, open or stop"},
        {"start b jobid={x} floor=51%", EINVAL, "from 0% to 50%"},
        {"start b jobid={x} floor=5", EINVAL, "such as 10%"},
        {"start b jobid={x} floor=-1%", EINVAL, "from 0%"},
        {"start b jobid={x} floor=%", EINVAL, "from 0%"},
        {"start b jobid={x} floor=", EINVAL, "from 0%"},
        {"start b jobid={x} share=hard away=open", EINVAL, "give share=fair"},
        {"change a away=open", EINVAL, "share=hard keeps all mounts together"},
        {"change default rate=5", EPERM, "jobid={*}"},
        {"stop default", EPERM, "default"},
    };
    static const char list[] = "c jobid={x} rate=7 per=rule scope=cluster\n"
                               "a jobid={x} bps=20M scope=cluster share=hard floor=0% away=stop\n"
                               "default * rate=none\n";
    g_autoptr(QosRules) rules = qos_rules_new_cluster();
    g_autoptr(QosRules) again = qos_rules_new_cluster();
    g_autoptr(QosRules) left = NULL;

    g_assert_cmpint(qos_rules_scope(rules), ==, QOS_SCOPE_CLUSTER);
    expect_list(rules, "default * rate=none\n");
    apply(&rules, "start a jobid={x} bps=20M share=hard floor=0% away=stop scope=cluster");
    apply(&rules, "start c jobid={x} rate=7 per=rule");
    g_assert_cmpuint(qos_rules_by_name(rules, "c")->id, >, QOS_RULE_CLUSTER_ID);
    g_assert_cmpuint(qos_rules_by_name(rules, "c")->floor, ==, QOS_FLOOR_DEFAULT);
    expect_list(rules, list);
    for (gint i = 1; i >= 0; i--) { /* a rule's command makes it again */
        g_autofree char *command = qos_rule_command(qos_rules_get(rules, (guint)i));

        apply(&again, command);
    }
    expect_list(again, list);
    for (guint i = 0; i < G_N_ELEMENTS(wrong); i++)
        refuse(rules, wrong[i].command, wrong[i].code, wrong[i].mention);
    apply(&rules, "change a share=fair away=open floor=10% dryrun=1 expire=5");
    apply(&rules, "change c scope=cluster rate=8");
    expect_list(rules, "c jobid={x} rate=8 per=rule scope=cluster\n"
                       "a jobid={x} bps=20M dryrun=1 scope=cluster away=open\n"
                       "default * rate=none\n");
    left = qos_rules_expire(rules, NOW + 5 * QOS_SECOND);
    g_assert_cmpint(qos_rules_scope(left), ==, QOS_SCOPE_CLUSTER);
    g_assert_cmpuint(qos_rules_count(left), ==, 2);
}

static void test_expiry(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    QosRules *left;

    apply(&rules, "start a jobid={x} expire=10");
    apply(&rules, "start b jobid={x} expire=1m");
    apply(&rules, "start c jobid={x}");
    g_assert_cmpint(qos_rules_next_expiry(rules), ==, NOW + 10 * QOS_SECOND);
    g_assert_null(qos_rules_expire(rules, NOW + 10 * QOS_SECOND - 1));
    left = qos_rules_expire(rules, NOW + 10 * QOS_SECOND);
    expect_order(left, "c b default ");
    expect_order(rules, "c b a default ");
    g_assert_cmpint(qos_rules_next_expiry(left), ==, NOW + 60 * QOS_SECOND);
    qos_rules_unref(left);
    left = qos_rules_expire(rules, QOS_NEVER - 1);
    expect_order(left, "c default ");
    g_assert_null(qos_rules_expire(left, QOS_NEVER));
    apply(&left, "start d jobid={x}"); /* ids go on */
    g_assert_cmpuint(qos_rules_by_name(left, "d")->id, >, qos_rules_by_name(rules, "c")->id);
    qos_rules_unref(left);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rule/new", test_a_new_list_has_default_alone);
    g_test_add_func("/rule/start-change-stop", test_start_change_stop);
    g_test_add_func("/rule/change-each-option", test_change_sets_each_option_alone);
    g_test_add_func("/rule/default-rate", test_the_default_rate);
    g_test_add_func("/rule/passthrough", test_passthrough);
    g_test_add_func("/rule/bounds", test_bounds_of_values);
    g_test_add_func("/rule/ids", test_ids);
    g_test_add_func("/rule/refusals", test_refusals);
    g_test_add_func("/rule/special-characters", test_special_characters_in_names);
    g_test_add_func("/rule/too-many", test_too_many_rules);
    g_test_add_func("/rule/rank", test_rank);
    g_test_add_func("/rule/default-is-fallback", test_default_is_the_fallback_wherever_it_stands);
    g_test_add_func("/rule/expiry", test_expiry);
    g_test_add_func("/rule/cluster", test_cluster_list);
    return g_test_run();
}
