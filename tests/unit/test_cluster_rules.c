/*
 * The server's list of cluster rules: what is in force when, whatever becomes of a save. The store
 * is a mock: it keeps what was saved last, and answers when the test says so.
 */
#include "server/cluster_rules.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define NOW (1000 * QOS_SECOND)

typedef struct {
    QosClusterRules *rules;
    QosServerOptions options;
    /* The store. */
    QosServerDbRules saved;
    GPtrArray *log; /* of QosServerDbLogEntry */
    /* The save that is under way. */
    QosServerDbRulesSaved done;
    gpointer done_arg;
    QosServerDbRules next;
    gboolean has_next;
    QosServerDbLogEntry *entry;

    guint changes;
    guint64 version; /* of the last change */
    guint sharing;   /* likewise */
    GString *results;
} Fixture;

static const QosAsker root = {.door = QOS_DOOR_LOCAL};

static void save(QosServerDbRules *rules, const QosServerDbLogEntry *entry,
                 QosServerDbRulesSaved done, gpointer done_arg, gpointer arg)
{
    Fixture *fixture = arg;

    g_assert_null(fixture->done);
    fixture->done = done;
    fixture->done_arg = done_arg;
    fixture->has_next = rules != NULL;
    if (rules != NULL) {
        fixture->next = *rules;
        *rules = (QosServerDbRules){0};
    }
    fixture->entry = qos_server_db_log_entry_new(entry);
}

static void changed(gpointer arg)
{
    Fixture *fixture = arg;

    fixture->changes++;
    g_assert_true(qos_cluster_rules_version(fixture->rules) > fixture->version ||
                  qos_cluster_rules_sharing(fixture->rules) != fixture->sharing);
    fixture->sharing = qos_cluster_rules_sharing(fixture->rules);
    fixture->version = qos_cluster_rules_version(fixture->rules);
}

/* The save ends: with 0 it is durable. */
static void answer(Fixture *fixture, int error)
{
    QosServerDbRulesSaved done = g_steal_pointer(&fixture->done);
    g_autoptr(GError) reason = NULL;

    g_assert_nonnull(done);
    if (error != 0)
        qos_set_error(&reason, error, "database: cannot write to it: it is full");
    if (error == 0 && fixture->has_next) {
        qos_server_db_rules_clear(&fixture->saved);
        fixture->saved = fixture->next;
        fixture->next = (QosServerDbRules){0};
    }
    qos_server_db_rules_clear(&fixture->next);
    if (error == 0)
        g_ptr_array_add(fixture->log, g_steal_pointer(&fixture->entry));
    g_clear_pointer(&fixture->entry, qos_server_db_log_entry_free);
    done(reason, fixture->done_arg);
}

/* A start of the server over what the store has. */
static void start(Fixture *fixture)
{
    const QosClusterRulesCalls calls = {.arg = fixture, .save = save, .changed = changed};
    g_autoptr(GError) error = NULL;

    g_clear_pointer(&fixture->rules, qos_cluster_rules_free);
    g_clear_pointer(&fixture->entry, qos_server_db_log_entry_free);
    qos_server_db_rules_clear(&fixture->next);
    fixture->done = NULL;
    fixture->sharing = 0;
    fixture->rules = qos_cluster_rules_new(&fixture->saved, fixture->log, &calls, &error);
    g_assert_no_error(error);
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const char *words[] = {"qosfs-server", NULL};

    g_assert_true(qos_server_options_parse(&fixture->options, 1, (char **)words, NULL));
    fixture->saved = qos_server_db_rules_new();
    fixture->log = g_ptr_array_new_with_free_func((GDestroyNotify)qos_server_db_log_entry_free);
    fixture->results = g_string_new(NULL);
    start(fixture);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_cluster_rules_free(fixture->rules);
    qos_server_options_clear(&fixture->options);
    qos_server_db_rules_clear(&fixture->saved);
    qos_server_db_rules_clear(&fixture->next);
    qos_server_db_log_entry_free(fixture->entry);
    g_ptr_array_unref(fixture->log);
    g_string_free(fixture->results, TRUE);
}

static void done(const GError *error, gpointer arg)
{
    Fixture *fixture = arg;

    if (fixture->results->len > 0)
        g_string_append(fixture->results, "; ");
    if (error == NULL)
        g_string_append(fixture->results, "ok");
    else
        g_string_append_printf(fixture->results, "%d %s", error->code, error->message);
}

static void command(Fixture *fixture, const char *text)
{
    qos_cluster_rules_command(fixture->rules, &fixture->options, &root, text, NOW, done, fixture);
}

/* What the askers were told since the last time. */
static void assert_results(Fixture *fixture, const char *expected)
{
    g_assert_cmpstr(fixture->results->str, ==, expected);
    g_string_truncate(fixture->results, 0);
}

#define SCOPE " scope=cluster"

/* "VERSION: ID COMMAND; ..." of what mounts are told; each command ends with its scope, which is
 * left out. */
static void assert_list(const Fixture *fixture, const char *expected)
{
    QosWireRules list = qos_cluster_rules_describe(fixture->rules, NOW);
    g_autoptr(GString) text = g_string_new(NULL);

    g_string_append_printf(text, "%" G_GUINT64_FORMAT ":", list.version);
    for (guint i = 0; i < list.total; i++) {
        const QosWireRule *rule = &g_array_index(list.rules, QosWireRule, i);
        g_assert_true(g_str_has_suffix(rule->command, SCOPE));
        g_string_append_printf(text, "%s %" G_GUINT64_FORMAT " %.*s", i > 0 ? ";" : "", rule->id,
                               (int)(strlen(rule->command) - strlen(SCOPE)), rule->command);
        if (rule->left != QOS_NEVER)
            g_string_append_printf(text, " (%" G_GINT64_FORMAT " ms)",
                                   rule->left / QOS_MILLISECOND);
    }
    qos_wire_rules_clear(&list);
    g_assert_cmpstr(text->str, ==, expected);
}

static void assert_last_entry(const Fixture *fixture, const char *principal, const char *text,
                              guint error, const char *result)
{
    const GPtrArray *log = qos_cluster_rules_log(fixture->rules);
    const QosServerDbLogEntry *entry = log->pdata[log->len - 1];

    g_assert_cmpuint(log->len, ==, fixture->log->len);
    g_assert_cmpint(entry->time, ==, NOW);
    g_assert_cmpstr(entry->principal, ==, principal);
    g_assert_cmpstr(entry->command, ==, text);
    g_assert_cmpuint(entry->error, ==, error);
    g_assert_cmpstr(entry->result, ==, result);
}

/* --- */

static void test_save_comes_first(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    assert_list(fixture, "0:");
    command(fixture, "start a jobid={x} rate=10");
    assert_list(fixture, "0:");
    assert_results(fixture, "");
    g_assert_cmpuint(fixture->changes, ==, 0);
    answer(fixture, 0);
    assert_list(fixture, "1: 1 start a jobid={x} rate=10");
    assert_results(fixture, "ok");
    g_assert_cmpuint(fixture->changes, ==, 1);
    assert_last_entry(fixture, "uid 0", "start a jobid={x} rate=10", 0, "version 1");
    g_assert_cmpuint(fixture->saved.version, ==, 1);
}

/* A rule keeps its id for as long as it is there; the id of a rule that is gone is not used again.
 */
static void test_ids(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    static const char *const commands[] = {"start a jobid={x} rate=10", "start b jobid={y} rate=1",
                                           "change a rate=20 rank=b", "stop b",
                                           "start b jobid={y} rate=2 rank=default"};

    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        command(fixture, commands[i]);
        answer(fixture, 0);
    }
    assert_list(fixture, "5: 1 start a jobid={x} rate=20; 5 start b jobid={y} rate=2");
    g_assert_cmpuint(qos_cluster_rules_id(fixture->rules, "b"), ==, 5);
    g_assert_cmpuint(qos_cluster_rules_id(fixture->rules, "c"), ==, 0);
    g_assert_cmpuint(qos_cluster_rules_id(fixture->rules, "default"), ==, 0);
    start(fixture);
    assert_list(fixture, "5: 1 start a jobid={x} rate=20; 5 start b jobid={y} rate=2");
    command(fixture, "start c jobid={z} rate=3");
    answer(fixture, 0);
    assert_list(fixture, "6: 6 start c jobid={z} rate=3; 1 start a jobid={x} rate=20; "
                         "5 start b jobid={y} rate=2");
}

/* What cannot be saved is not in force, and the next command finds the old list. */
static void test_full_disk(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    command(fixture, "start a jobid={x} rate=10");
    answer(fixture, ENOSPC);
    assert_results(fixture, "28 the rules of the cluster stay as they are: database: cannot write "
                            "to it: it is full");
    assert_list(fixture, "0:");
    g_assert_cmpuint(fixture->changes, ==, 0);
    g_assert_cmpuint(qos_cluster_rules_log(fixture->rules)->len, ==, 0);
    command(fixture, "start a jobid={x} rate=11");
    answer(fixture, 0);
    assert_results(fixture, "ok");
    assert_list(fixture, "1: 1 start a jobid={x} rate=11");
}

/* A command that is wrong is in the log, and its asker is told why, even if the log fails. */
static void test_refused(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const char *expected = "2 there is no rule \"a\"";

    command(fixture, "stop a");
    g_assert_false(fixture->has_next);
    answer(fixture, 0);
    assert_results(fixture, expected);
    assert_last_entry(fixture, "uid 0", "stop a", ENOENT, "there is no rule \"a\"");
    command(fixture, "stop a");
    answer(fixture, EIO);
    assert_results(fixture, expected);
    g_assert_cmpuint(qos_cluster_rules_log(fixture->rules)->len, ==, 1);
    g_assert_cmpuint(qos_cluster_rules_version(fixture->rules), ==, 0);
}

static void test_default(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    static const char *const commands[] = {"change default rate=10", "change default rank=a"};

    command(fixture, "start a jobid={x} rate=10");
    answer(fixture, 0);
    assert_results(fixture, "ok");
    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        command(fixture, commands[i]);
        answer(fixture, 0);
        assert_results(fixture,
                       "1 the cluster's default bounds nothing: it leaves to the mounts' own rules "
                       "what no cluster rule matches; start a rule with jobid={*} instead");
    }
    assert_list(fixture, "1: 1 start a jobid={x} rate=10");
}

/* Commands wait for one another, see what was done before, and are bounded. */
static void test_waiting(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    command(fixture, "start a jobid={x} rate=10");
    command(fixture, "start a jobid={x} rate=10");
    command(fixture, "change a rate=20");
    command(fixture, "stop a");
    answer(fixture, 0);
    answer(fixture, 0);
    answer(fixture, ENOSPC);
    assert_results(fixture, "ok; 17 there is a rule \"a\" already; change or stop it; 28 the rules "
                            "of the cluster stay as they are: database: cannot write to it: it is "
                            "full");
    answer(fixture, 0);
    assert_results(fixture, "ok");
    assert_list(fixture, "2:");
    command(fixture, "start a jobid={x} rate=10");
    for (guint i = 0; i < QOS_CLUSTER_RULES_WAITING_MAX; i++)
        command(fixture, "change a rate=20");
    assert_results(fixture, "");
    command(fixture, "stop a");
    g_assert_true(g_str_has_prefix(fixture->results->str, "16 64 commands"));
}

/* Nobody is told any more, and the command is done all the same. */
static void test_forget(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    command(fixture, "start a jobid={x} rate=10");
    command(fixture, "change a rate=20");
    qos_cluster_rules_forget(fixture->rules, fixture);
    answer(fixture, 0);
    answer(fixture, 0);
    assert_results(fixture, "");
    assert_list(fixture, "2: 1 start a jobid={x} rate=20");
}

static void test_not_permitted(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosAsker mount = {.door = QOS_DOOR_TLS, .subject = "CN=node1"};

    qos_cluster_rules_command(fixture->rules, &fixture->options, &mount,
                              "start a jobid={x} rate=10", NOW, done, fixture);
    g_assert_null(fixture->done);
    g_assert_true(g_str_has_prefix(fixture->results->str, "1 permission denied: "));
    g_assert_nonnull(strstr(fixture->results->str, "set admin-cn=node1 there"));
    g_string_truncate(fixture->results, 0);
    command(fixture, "start a jobid={\xff} rate=10");
    g_assert_null(fixture->done);
    assert_results(fixture, "22 the command is not UTF-8");
}

/* A list that mounts cannot be told is refused, and the log has the beginning of such a command. */
static void test_too_long(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autoptr(GString) text = g_string_new("start a jobid={");

    while (text->len < QOS_WIRE_COMMAND_MAX)
        g_string_append_printf(text, "job%" G_GSIZE_FORMAT " ", text->len);
    g_string_append(text, "} rate=1");
    command(fixture, text->str);
    g_assert_false(fixture->has_next);
    answer(fixture, 0);
    g_assert_true(g_str_has_prefix(fixture->results->str, "7 a: a rule of the cluster has at most "
                                                          "65535 bytes"));
    const QosServerDbLogEntry *entry = fixture->log->pdata[0];
    g_assert_cmpuint(strlen(entry->command), <=, QOS_CLUSTER_RULES_LOGGED_MAX + 3);
    g_assert_true(g_str_has_prefix(entry->command, "start a jobid={job15 "));
    g_assert_true(g_str_has_suffix(entry->command, "..."));
}

/* --- expiry --- */

static void test_expiry(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, NOW), ==, QOS_NEVER);
    command(fixture, "start a jobid={x} rate=10 expire=2s");
    answer(fixture, 0);
    command(fixture, "start b jobid={y} rate=10");
    answer(fixture, 0);
    assert_list(fixture, "2: 2 start b jobid={y} rate=10; 1 start a jobid={x} rate=10 (2000 ms)");
    start(fixture); /* as long as before */
    assert_list(fixture, "2: 2 start b jobid={y} rate=10; 1 start a jobid={x} rate=10 (2000 ms)");
    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, NOW), ==, NOW + 2 * QOS_SECOND);
    g_assert_null(fixture->done);

    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, NOW + 2 * QOS_SECOND), <=,
                    NOW + 3 * QOS_SECOND);
    g_assert_cmpuint(qos_cluster_rules_version(fixture->rules), ==, 2);
    answer(fixture, 0);
    assert_list(fixture, "3: 2 start b jobid={y} rate=10");
    g_assert_cmpuint(fixture->changes, ==, 3);
    const QosServerDbLogEntry *entry = fixture->log->pdata[2];
    g_assert_cmpstr(entry->principal, ==, "qosfs-server");
    g_assert_cmpstr(entry->command, ==, "expire a");
    g_assert_cmpstr(entry->result, ==, "version 3");
    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, NOW), ==, QOS_NEVER);
}

/* A rule that expired while no server ran has a version of its own when it goes: mounts have seen
 * the old one with it. While the disk is full, it stays. */
static void test_expired_meanwhile(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosTime later = NOW + QOS_SECOND;

    command(fixture, "start a jobid={x} rate=10 expire=1s");
    answer(fixture, 0);
    start(fixture);
    g_assert_cmpuint(qos_cluster_rules_version(fixture->rules), ==, 1);
    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, later), >, later);
    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, later), >, later); /* it is at that */
    answer(fixture, ENOSPC);
    g_assert_cmpuint(qos_rules_count(qos_cluster_rules_list(fixture->rules)), ==, 2);
    g_assert_cmpint(qos_cluster_rules_tick(fixture->rules, later), ==, later + QOS_SECOND);
    answer(fixture, 0);
    assert_list(fixture, "2:");
    start(fixture);
    assert_list(fixture, "2:");
}

/* --- starts --- */

/* A kill during a save, before and after it was durable. */
static void test_killed(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    command(fixture, "start a jobid={x} rate=10");
    start(fixture);
    assert_list(fixture, "0:");
    command(fixture, "start b jobid={x} rate=10");
    qos_server_db_rules_clear(&fixture->saved);
    fixture->saved = fixture->next;
    fixture->next = (QosServerDbRules){0};
    start(fixture);
    assert_list(fixture, "1: 1 start b jobid={x} rate=10");
}

static void assert_damaged(Fixture *fixture, const char *text, const char *part)
{
    const QosClusterRulesCalls calls = {.arg = fixture, .save = save, .changed = changed};
    QosServerDbRules saved = qos_server_db_rules_new();
    g_autoptr(GError) error = NULL;

    saved.version = 3;
    qos_server_db_rules_add(&saved, 2, text, QOS_NEVER);
    qos_server_db_rules_add(&saved, 3, "start z jobid={z} rate=1", QOS_NEVER);
    g_assert_null(qos_cluster_rules_new(&saved, fixture->log, &calls, &error));
    g_assert_nonnull(error);
    g_assert_nonnull(strstr(error->message, part));
    qos_server_db_rules_clear(&saved);
}

static void test_damaged(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    assert_damaged(fixture, "start a jobid={x} speed=9",
                   "the saved rule of the cluster \"start a jobid={x} speed=9\" is refused: ");
    assert_damaged(fixture, "start z jobid={x} rate=1", "there is a rule \"z\" already");
    assert_damaged(fixture, "change default rate=1", "the cluster's default bounds nothing");
    assert_damaged(fixture, "stop z", "it starts no rule");
}

#define SHARING " 4503599627370496 start adapt jobid={*} per=jobid rate=5000 floor=0% away=open"

/* The setting adapt=fair is the last rule that mounts are told of, at once; the log hears of it. */
static void test_sharing(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_cluster_rules_set_sharing(fixture->rules, 0, NOW); /* as it was */
    g_assert_cmpuint(fixture->changes, ==, 0);
    qos_cluster_rules_set_sharing(fixture->rules, 5000, NOW);
    g_assert_cmpuint(fixture->changes, ==, 1);
    assert_list(fixture, "0:" SHARING);
    answer(fixture, 0);
    g_assert_cmpuint(fixture->changes, ==, 2);
    assert_list(fixture, "1:" SHARING);
    assert_last_entry(fixture, "qosfs-server", "adapt=fair adapt-capacity=5000", 0, "version 1");
    command(fixture, "start a jobid={x} rate=10");
    answer(fixture, 0);
    assert_list(fixture, "2: 2 start a jobid={x} rate=10;" SHARING);
    g_assert_cmpuint(qos_cluster_rules_id(fixture->rules, "adapt"), ==, 0);
    start(fixture); /* it is a setting's, and not saved */
    assert_list(fixture, "2: 2 start a jobid={x} rate=10");
    qos_cluster_rules_set_sharing(fixture->rules, 5000, NOW);
    g_assert_null(fixture->done); /* the log has it */
    assert_list(fixture, "2: 2 start a jobid={x} rate=10;" SHARING);
    qos_cluster_rules_set_sharing(fixture->rules, 6000, NOW);
    answer(fixture, EIO); /* the log goes without it */
    g_assert_cmpuint(qos_cluster_rules_sharing(fixture->rules), ==, 6000);
    qos_cluster_rules_set_sharing(fixture->rules, 0, NOW);
    answer(fixture, 0);
    assert_list(fixture, "3: 2 start a jobid={x} rate=10");
    assert_last_entry(fixture, "qosfs-server", "adapt=off", 0, "version 3");
}

/* Its name is no other rule's. */
/* A rule that bounds nothing and has a weight is of the sharing, as long as there is one. */
static void test_weight_in_sharing(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosWireRules list;

    command(fixture, "start a jobid={x} weight=3");
    answer(fixture, 0);
    command(fixture, "start b jobid={y} rate=none"); /* leaves y alone */
    answer(fixture, 0);
    assert_list(fixture,
                "2: 2 start b jobid={y} rate=none; 1 start a jobid={x} rate=none weight=3");
    qos_cluster_rules_set_sharing(fixture->rules, 5000, NOW);
    answer(fixture, 0);
    list = qos_cluster_rules_describe(fixture->rules, NOW);
    g_assert_cmpuint(list.total, ==, 3);
    g_assert_cmpstr(g_array_index(list.rules, QosWireRule, 0).command, ==,
                    "start b jobid={y} rate=none scope=cluster");
    g_assert_cmpstr(g_array_index(list.rules, QosWireRule, 1).command, ==,
                    "start a jobid={x} rate=5000 weight=3 scope=cluster floor=0% away=open");
    qos_wire_rules_clear(&list);
}

static void test_name_of_sharing(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    command(fixture, "start adapt jobid={x} rate=10");
    answer(fixture, 0);
    assert_results(fixture, "17 \"adapt\" is the rule of the setting adapt=fair ('qosfsctl server "
                            "set adapt'): choose another name");
    assert_list(fixture, "0:");
}

int main(int argc, char **argv)
{
#define ADD(name, test) g_test_add("/cluster-rules/" name, Fixture, NULL, set_up, test, tear_down)
    g_test_init(&argc, &argv, NULL);
    ADD("sharing", test_sharing);
    ADD("weight-in-sharing", test_weight_in_sharing);
    ADD("name-of-sharing", test_name_of_sharing);
    ADD("save-comes-first", test_save_comes_first);
    ADD("ids", test_ids);
    ADD("full-disk", test_full_disk);
    ADD("refused", test_refused);
    ADD("default", test_default);
    ADD("waiting", test_waiting);
    ADD("forget", test_forget);
    ADD("not-permitted", test_not_permitted);
    ADD("too-long", test_too_long);
    ADD("expiry", test_expiry);
    ADD("expired-meanwhile", test_expired_meanwhile);
    ADD("killed", test_killed);
    ADD("damaged", test_damaged);
    return g_test_run();
}
