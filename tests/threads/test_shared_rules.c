/*
 * The cluster's rules at a mount (fs/cluster/shared_rules.h): lists that come in pages, that cannot
 * be read, and of another server; what is acknowledged, and what is in force. The server is that of
 * lockclient_fixture.h, which answers each RULES_SEEN; the pages are handed in by the test.
 */
#include "core/wire_frame.h"
#include "fs/cluster/shared_rules.h"
#include "fs/lockclient/state.h"
#include "lockclient_fixture.h"

typedef struct {
    World world;
    User *user;
    QosGate *gate;
} Mount;

static void start_with(Mount *mount, QosTime lease)
{
    init(&mount->world, lease, GOOD);
    mount->user = &mount->world.users[0];
    mount->gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND);
    mount->user->shared = qos_shared_rules_new(mount->gate, 1);
    start_server(&mount->world.server);
    wait_for(mount->user, &mount->user->welcomes, 1);
}

static void start(Mount *mount)
{
    start_with(mount, 3600 * QOS_SECOND);
}

static void end(Mount *mount)
{
    QosSharedRules *shared = mount->user->shared;

    qos_shared_rules_stop(shared);
    clear(&mount->world);
    qos_shared_rules_free(shared);
    qos_gate_free(mount->gate);
}

/* A list of rules that have those commands; ids from 1 on. */
static QosWireRules make_list(guint64 version, const char *const *commands)
{
    QosWireRules list = {.version = version,
                         .epoch = 100 * QOS_MILLISECOND,
                         .lease = QOS_SECOND,
                         .parts = 8,
                         .rules = g_array_new(FALSE, FALSE, sizeof(QosWireRule))};

    for (; *commands != NULL; commands++) {
        const QosWireRule rule = {
            .id = ++list.total, .left = QOS_NEVER, .command = g_strdup(*commands)};
        g_array_append_val(list.rules, rule);
    }
    return list;
}

typedef struct {
    Mount *mount;
    const GByteArray *frame;
    gboolean is_good;
    gboolean is_done; /* atomic */
} Page;

static gboolean hand_in_by_link(gpointer data)
{
    Page *page = data;

    page->is_good = qos_shared_rules_page(page->mount->user->shared,
                                          page->frame->data + QOS_WIRE_LENGTH_SIZE + 1,
                                          page->frame->len - QOS_WIRE_LENGTH_SIZE - 1);
    g_atomic_int_set(&page->is_done, TRUE);
    return G_SOURCE_REMOVE;
}

/* Hands in the page from the place `first` on, by the link's thread, as the link does; TRUE as the
 * function. *ret_next: of the next one. */
static gboolean hand_in(Mount *mount, const QosWireRules *list, guint first, guint *ret_next)
{
    g_autoptr(GByteArray) frame = g_byte_array_new();
    Page page = {.mount = mount, .frame = frame};

    *ret_next = qos_wire_put_rules(frame, list, first);
    g_main_context_invoke(mount->user->client->context, hand_in_by_link, &page);
    while (!g_atomic_int_get(&page.is_done))
        g_usleep(1000);
    return page.is_good;
}

static void tell(Mount *mount, guint64 version, const char *const *commands)
{
    QosWireRules list = make_list(version, commands);
    guint next = 0;

    do
        g_assert_true(hand_in(mount, &list, next, &next));
    while (next < list.total);
    qos_wire_rules_clear(&list);
}

/* Rules that are in force, but for `default`. */
static guint count_of(Mount *mount)
{
    const QosRules *rules = qos_sched_cluster_rules(qos_gate_lock(mount->gate));
    const guint count = rules != NULL ? qos_rules_count(rules) - 1 : 0;

    qos_gate_unlock(mount->gate);
    return count;
}

static QosBudgetsTerms terms_of(Mount *mount)
{
    qos_gate_lock(mount->gate);
    const QosBudgetsTerms terms = qos_budgets_terms(qos_gate_budgets(mount->gate));
    qos_gate_unlock(mount->gate);
    return terms;
}

static void check_seen(Mount *mount, guint64 version, gint answers)
{
    wait_for(mount->user, &mount->user->answers, answers);
    g_assert_cmpint(mount->user->answers, ==, answers);
    g_assert_cmpuint(mount->user->answer, ==, version);
}

static const char *const none[] = {NULL};
static const char *const one[] = {"start a jobid={*} rate=10", NULL};
static const char *const two[] = {"start a jobid={*} rate=10", "start b uid={7} bps=1M share=hard",
                                  NULL};
static const char *const unknown[] = {"start a jobid={*} rate=10", "start b jobid={*} speed=1",
                                      NULL};

/* What came last is in force and acknowledged, also where its version is smaller. */
static void test_lists(void)
{
    Mount mount;

    start(&mount);
    g_assert_false(terms_of(&mount).is_connected);
    tell(&mount, 5, two);
    check_seen(&mount, 5, 1);
    g_assert_cmpuint(count_of(&mount), ==, 2);
    g_assert_true(terms_of(&mount).is_connected);
    g_assert_cmpuint(terms_of(&mount).parts, ==, 8);
    tell(&mount, 3, one);
    check_seen(&mount, 3, 2);
    g_assert_cmpuint(count_of(&mount), ==, 1);
    tell(&mount, 6, none);
    check_seen(&mount, 6, 3);
    g_assert_cmpuint(count_of(&mount), ==, 0);
    end(&mount);
}

/* A list that cannot be read is said, and not acknowledged; the old one stays. */
static void test_unknown_rule(void)
{
    char fault[QOS_SHARED_RULES_FAULT_MAX + 1];
    Mount mount;

    start(&mount);
    tell(&mount, 1, one);
    tell(&mount, 2, unknown);
    qos_shared_rules_fault(mount.user->shared, fault);
    g_assert_nonnull(strstr(fault, "version 2"));
    g_assert_nonnull(strstr(fault, "speed"));
    g_assert_cmpuint(count_of(&mount), ==, 1);
    g_assert_cmpuint(terms_of(&mount).version, ==, 1);
    tell(&mount, 3, two);
    check_seen(&mount, 3, 2);
    qos_shared_rules_fault(mount.user->shared, fault);
    g_assert_cmpstr(fault, ==, "");
    end(&mount);
}

/* A list is in force when all of it has come, and a connection that breaks leaves none half. */
static void test_pages(void)
{
    const guint count = 3000;
    g_autofree char **commands = g_new0(char *, count + 1);
    g_autofree char *ids = g_strnfill(100, 'j');
    guint next, pages = 0;
    Mount mount;

    for (guint i = 0; i < count; i++)
        commands[i] = g_strdup_printf("start r%u jobid={%s} rate=%u", i, ids, i + 1);
    QosWireRules list = make_list(1, (const char *const *)commands);
    start(&mount);
    g_assert_true(hand_in(&mount, &list, 0, &next));
    stop_server(&mount.world.server);
    wait_for(mount.user, &mount.user->partings, 1);
    start_server(&mount.world.server);
    wait_for(mount.user, &mount.user->welcomes, 2);
    g_assert_false(hand_in(&mount, &list, next, &next)); /* without its beginning */
    next = 0;
    do {
        g_assert_cmpuint(count_of(&mount), ==, 0);
        g_assert_true(hand_in(&mount, &list, next, &next));
        pages++;
    } while (next < count);
    g_assert_cmpuint(pages, >, 2);
    g_assert_cmpuint(count_of(&mount), ==, count);
    check_seen(&mount, 1, 1);
    g_assert_false(qos_shared_rules_page(mount.user->shared, (const guint8 *)"?", 1));
    qos_wire_rules_clear(&list);
    g_strfreev(g_steal_pointer(&commands));
    end(&mount);
}

/* The list stays while the server is away, and is not reported to another one before that has told
 * its own. */
static void test_servers(void)
{
    Mount mount;

    start_with(&mount, 2 * QOS_SECOND);
    tell(&mount, 5, two);
    check_seen(&mount, 5, 1);
    stop_server(&mount.world.server);
    wait_for(mount.user, &mount.user->partings, 1);
    g_assert_cmpuint(count_of(&mount), ==, 2);
    g_assert_false(terms_of(&mount).is_connected);
    start_server(&mount.world.server);
    wait_for(mount.user, &mount.user->welcomes, 2);
    g_assert_true(terms_of(&mount).is_connected);
    stop_server(&mount.world.server);
    wait_for(mount.user, &mount.user->partings, 2);
    mount.world.server.id++;
    start_server(&mount.world.server);
    wait_for(mount.user, &mount.user->welcomes, 3);
    g_assert_false(terms_of(&mount).is_connected);
    g_assert_cmpuint(count_of(&mount), ==, 2);
    tell(&mount, 1, one);
    g_assert_true(terms_of(&mount).is_connected);
    g_assert_cmpuint(count_of(&mount), ==, 1);
    check_seen(&mount, 1, 2);
    end(&mount);
}

static void test_grants(void)
{
    Mount mount;

    start(&mount);
    tell(&mount, 1, one);
    g_assert_true(qos_shared_rules_grant(mount.user->shared, (const guint8 *)"", 0));
    g_assert_false(qos_shared_rules_grant(mount.user->shared, (const guint8 *)"???", 3));
    end(&mount);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    expect_warnings();
    g_test_add_func("/shared-rules/lists", test_lists);
    g_test_add_func("/shared-rules/unknown-rule", test_unknown_rule);
    g_test_add_func("/shared-rules/pages", test_pages);
    g_test_add_func("/shared-rules/servers", test_servers);
    g_test_add_func("/shared-rules/grants", test_grants);
    return g_test_run();
}
