/*
 * Which peers may change the rules of the cluster, and what the others are told.
 */
#include "server/admins.h"

#include <errno.h>
#include <unistd.h>

#include "base/error.h"

#define DENIED                                                                                     \
    "permission denied: the rules of the cluster are changed by root at the server's machine, "    \
    "and "                                                                                         \
    "by those that its settings name; "

static QosServerOptions options_of(const char *const *words)
{
    QosServerOptions options;
    g_autoptr(GError) error = NULL;

    qos_server_options_parse(&options, (int)g_strv_length((char **)words), (char **)words, &error);
    g_assert_no_error(error);
    return options;
}

static const char *const none[] = {"qosfs-server", NULL};
static const char *const some[] = {"qosfs-server",  "--admin-uid", "7",
                                   "--admin-uid=8", "--admin-cn",  "node1",
                                   "--allow-uid=9", NULL};

/* `advice`: NULL: it may. */
static void assert_permit(const char *const *words, QosAsker asker, const char *advice)
{
    QosServerOptions options = options_of(words);
    g_autoptr(GError) error = NULL;
    gboolean may = qos_admins_permit(&options, &asker, &error);

    g_assert_cmpint(may, ==, advice == NULL);
    if (advice != NULL) {
        g_autofree char *expected = g_strconcat(DENIED, advice, NULL);
        g_assert_error(error, QOS_ERROR, EPERM);
        g_assert_cmpstr(error->message, ==, expected);
    }
    qos_server_options_clear(&options);
}

static void test_local(void)
{
    const QosDoorKind door = QOS_DOOR_LOCAL;
    uid_t self = geteuid();

    assert_permit(none, (QosAsker){.door = door, .uid = 0, .caller = 0}, NULL);
    assert_permit(none, (QosAsker){.door = door, .uid = self, .caller = self}, NULL);
    assert_permit(none, (QosAsker){.door = door, .uid = 7, .caller = 7},
                  "to permit this user, set admin-uid=7 there");
    assert_permit(none, (QosAsker){.door = door, .uid = 7, .caller = 0},
                  "to permit this user, set admin-uid=7 there");
    assert_permit(some, (QosAsker){.door = door, .uid = 7, .caller = 7}, NULL);
    assert_permit(some, (QosAsker){.door = door, .uid = 9, .caller = 9},
                  "to permit this user, set admin-uid=9 there");
    /* Users of root's mount. */
    assert_permit(some, (QosAsker){.door = door, .uid = 0, .caller = 8}, NULL);
    assert_permit(some, (QosAsker){.door = door, .uid = 0, .caller = 9},
                  "to permit user 9 of this mount, set admin-uid=9 there");
}

/* Root of a machine that shares MUNGE's key is not root at the server's. */
static void test_munge(void)
{
    const QosDoorKind door = QOS_DOOR_MUNGE;

    assert_permit(some, (QosAsker){.door = door, .uid = 0, .caller = 0},
                  "to permit this user, set admin-uid=0 there");
    assert_permit(some, (QosAsker){.door = door, .uid = 100, .caller = 100},
                  "to permit this user, set admin-uid=100 there");
    assert_permit(some, (QosAsker){.door = door, .uid = 7, .caller = 7}, NULL);
    assert_permit(some, (QosAsker){.door = door, .uid = 7, .caller = 0}, NULL);
    assert_permit(some, (QosAsker){.door = door, .uid = 7, .caller = 9},
                  "to permit user 9 of this mount, set admin-uid=9 there");
}

static void test_tls(void)
{
    const QosDoorKind door = QOS_DOOR_TLS;

    assert_permit(some, (QosAsker){.door = door, .subject = "CN=node1,O=site"}, NULL);
    assert_permit(some, (QosAsker){.door = door, .subject = "CN=node1", .caller = 8}, NULL);
    assert_permit(some, (QosAsker){.door = door, .subject = "CN=node1", .caller = 9},
                  "to permit user 9 of this mount, set admin-uid=9 there");
    assert_permit(some, (QosAsker){.door = door, .subject = "O=site,CN=node2"},
                  "to permit the mounts with this certificate, set admin-cn=node2 there");
    assert_permit(some, (QosAsker){.door = door, .subject = "O=site\\,CN=node1"},
                  "the certificate of this mount (O=site\\,CN=node1) has no CN, or several, so "
                  "that it cannot be named");
    assert_permit(none, (QosAsker){.door = door, .subject = "CN=node1"},
                  "to permit the mounts with this certificate, set admin-cn=node1 there");
}

/* A name is not to be had by another field, or by what is escaped. */
static void test_cn(void)
{
    static const struct {
        const char *subject, *cn;
    } cases[] = {
        {"CN=node1", "node1"},
        {"cn=node1,O=site", "node1"},
        {"O=site, CN=node1", "node1"},
        {"O=site+CN=node1", "node1"},
        {"CN=a\\,b", "a,b"},
        {"CN=a\\+b\\\\,O=x", "a+b\\"},
        {"CN=h\\C3\\B4te", "h\xc3\xb4te"},
        {"O=site\\,CN=node1", NULL},
        {"O=\\2CCN=node1", NULL},
        {"CN=node1,CN=node2", NULL},
        {"CN=node1+CN=node1", NULL},
        {"CN=,O=x", NULL},
        {"CN=#0401", NULL},
        {"CN=node1\\00,O=x", NULL},
        {"XCN=node1", NULL},
        {"O=site", NULL},
        {"", NULL},
        {"CN=node1,O", NULL},
        {"CN=node1\\", "node1"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *cn = qos_subject_cn(cases[i].subject);
        g_assert_cmpstr(cn, ==, cases[i].cn);
    }
}

static void test_text(void)
{
    static const struct {
        QosAsker asker;
        const char *text;
    } cases[] = {
        {{.door = QOS_DOOR_LOCAL, .uid = 7, .caller = 7}, "uid 7"},
        {{.door = QOS_DOOR_LOCAL, .uid = 0, .caller = 7}, "uid 0, caller 7"},
        {{.door = QOS_DOOR_MUNGE, .uid = 7, .caller = 0}, "munge uid 7, caller 0"},
        {{.door = QOS_DOOR_TLS, .subject = "CN=a\n", .caller = 7}, "CN=a\\n, caller 7"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text = qos_asker_text(&cases[i].asker);
        g_assert_cmpstr(text, ==, cases[i].text);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/admins/local", test_local);
    g_test_add_func("/admins/munge", test_munge);
    g_test_add_func("/admins/tls", test_tls);
    g_test_add_func("/admins/cn", test_cn);
    g_test_add_func("/admins/text", test_text);
    return g_test_run();
}
