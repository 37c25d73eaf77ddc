/*
 * Rules of any form: what is printed reads back as the same rule, and commands that nobody would
 * write are refused or understood, and soon.
 */
#include "fs/rule.h"

#include <errno.h>

#include "tests/unit/rules.h"

/* --- there and back --- */

static void expect_round_trip(const char *command)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    g_autoptr(QosRules) again = qos_rules_new();
    const QosRule *rule = NULL, *twin = NULL;
    g_autofree char *printed = NULL;

    apply(&rules, command);
    for (guint i = 0; rule == NULL; i++)
        rule = strstr(command, qos_rules_get(rules, i)->name) ? qos_rules_get(rules, i) : NULL;
    printed = qos_rule_command(rule);
    apply(&again, printed);
    twin = qos_rules_by_name(again, rule->name);
    {
        g_autofree char *conditions = qos_rule_conditions(rule);
        g_autofree char *twin_conditions = qos_rule_conditions(twin);

        g_assert_cmpstr(conditions, ==, twin_conditions);
    }
    g_assert_cmpint(rule->rate, ==, twin->rate);
    g_assert_cmpint(rule->bps, ==, twin->bps);
    g_assert_cmpint(rule->depth_ops, ==, twin->depth_ops);
    g_assert_cmpint(rule->depth_bytes, ==, twin->depth_bytes);
    g_assert_cmpint(rule->per, ==, twin->per);
    g_assert_cmpint(rule->weight, ==, twin->weight);
    g_assert_cmpint(rule->minimum, ==, twin->minimum);
    g_assert_cmpint(rule->dryrun, ==, twin->dryrun);
    g_assert_cmpint(rule->passthrough, ==, twin->passthrough);
}

static void test_round_trip(void)
{
    static const char *const rates[] = {"", " rate=5", " bps=1234567", " rate=none",
                                        " rate=5 bps=2.5G"};
    static const char *const depths[] = {"", " depth=9", " depth=9:1M", " depth=auto:3K"};
    static const char *const others[] = {
        "", " per=uid", " per=gid weight=5", " per=rule min=3", " per=jobid+opcode dryrun=1",
    };

    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        for (guint k = 0; k < G_N_ELEMENTS(depths); k++) {
            for (guint m = 0; m < G_N_ELEMENTS(others); m++) {
                g_autofree char *command = g_strconcat(
                    "start r1 jobid={a  1\\[2] \xc3\xa4*}&uid={[5-9] 3-4 *} , opcode={data open}",
                    rates[i], depths[k], others[m], NULL);

                expect_round_trip(command);
            }
        }
    }
    expect_round_trip("change default rate=5 bps=1M depth=4 per=rule");
    expect_round_trip("change default weight=5 min=3");
    expect_round_trip("start r1 jobid={x} passthrough per=uid");
    expect_round_trip("change default passthrough");
}

/* --- hostile input --- */

static void test_long_input(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    g_autofree char *word = g_strnfill(1 << 20, 'x');
    g_autofree char *stars = g_strnfill(1 << 20, '*');
    g_autofree char *opened = g_strnfill(1 << 20, '{');
    static const char *const forms[] = {
        "%s",
        "start %s jobid={x}",
        "start a %s",
        "start a jobid={%s",
        "start a jobid={%s}",
        "start a uid={%s}",
        "start a opcode={%s}",
        "start a jobid={x}%s",
        "start a jobid={x} %s",
        "start a jobid={x} rate=%s",
        "start a jobid={x} rank=%s",
        "start a jobid={x} depth=%s",
        "change default %s=1",
        "stop %s",
    };

    for (guint i = 0; i < G_N_ELEMENTS(forms); i++) {
        const char *const texts[] = {word, stars, opened};

        for (guint k = 0; k < G_N_ELEMENTS(texts); k++) {
            g_auto(GStrv) parts = g_strsplit(forms[i], "%s", 2);
            g_autofree char *command = g_strjoinv(texts[k], parts);
            g_autoptr(GError) error = NULL;

            g_assert_null(qos_rules_apply(rules, command, NOW, &error));
            g_assert_cmpuint(strlen(error->message), <, 1000);
        }
    }
}

static void test_many_values_in_linear_time(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();
    g_autoptr(GString) command = g_string_new("start a ");

    for (guint i = 0; i < 50000; i++)
        g_string_append_printf(command, "%sjobid={j%u}", i == 0 ? "" : i % 2 ? "&" : ",", i);
    g_string_append(command, ",jobid={");
    for (guint i = 0; i < 50000; i++)
        g_string_append_printf(command, "k%u ", i);
    g_string_append_c(command, '}');
    apply(&rules, command->str);
    g_assert_cmpstr(match(rules, "k49999")->name, ==, "a");
    g_assert_cmpstr(match(rules, "j1")->name, ==, "default");
}

static void test_embedded_nul_ends_the_command(void)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    apply(&rules, "start a jobid={x} rate=5\0 bps=1M");
    expect_list(rules, "a jobid={x} rate=5\ndefault * rate=none\n");
    refuse(rules, "start b jobid={x\0}", EINVAL, "without");
}

/* Mutates valid commands: whatever comes out, either a list that prints and reads back, or an
 * error. */
static void test_mutations(void)
{
    static const char *const seeds[] = {
        "start a jobid={dd.* x[1-3,7]}&uid={[5-9] *},opcode={data open}&host={n1} rate=100 "
        "bps=1.5M",
        "start b gid={0-99} depth=auto:4M per=jobid+opcode rank=default weight=3 min=2 expire=1.5h",
        "change a rate=none bps=2M dryrun=1 rank=a",
        "start p jobid={x} passthrough",
        "reg change default rate=5",
        "stop a",
    };
    static const char letters[] = " \t{}[]=,&*-\\0129axj\x01\x7f\xc3\n:.+_";
    g_autoptr(QosRules) rules = qos_rules_new();
    guint accepted = 0, refused = 0;

    apply(&rules, "start a jobid={x}");
    for (int i = 0; i < 100000; i++) {
        g_autofree char *command = g_strdup(seeds[g_test_rand_int_range(0, G_N_ELEMENTS(seeds))]);
        g_autoptr(GError) error = NULL;
        g_autoptr(QosRules) changed = NULL;

        gint length = (gint)strlen(command);

        for (int changes = g_test_rand_int_range(0, 4); changes > 0; changes--)
            command[g_test_rand_int_range(0, length)] =
                letters[g_test_rand_int_range(0, sizeof letters)]; /* its NUL too */
        changed = qos_rules_apply(rules, command, NOW, &error);
        g_assert_true((changed == NULL) == (error != NULL));
        refused += changed == NULL;
        accepted += changed != NULL;
        for (guint k = 0; changed != NULL && k < qos_rules_count(changed); k++) {
            g_autofree char *printed = qos_rule_command(qos_rules_get(changed, k));

            if (printed != NULL && g_str_has_prefix(printed, "start"))
                expect_round_trip(printed);
        }
    }
    g_assert_cmpuint(accepted, >, 10000); /* both were tried */
    g_assert_cmpuint(refused, >, 10000);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rule-hostile/round-trip", test_round_trip);
    g_test_add_func("/rule-hostile/long", test_long_input);
    g_test_add_func("/rule-hostile/many-values", test_many_values_in_linear_time);
    g_test_add_func("/rule-hostile/nul", test_embedded_nul_ends_the_command);
    g_test_add_func("/rule-hostile/mutations", test_mutations);
    return g_test_run();
}
