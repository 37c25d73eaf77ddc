/*
 * What the server is told of the waiters for file locks: as it is when the link sends, and all of
 * it on another connection.
 */
#include "fs/lockengine/wait_reports.h"

static void set(QosWaitReports *waits, guint64 id, guint64 owner)
{
    QosWireWait wait = {
        .id = id, .owner = owner, .items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem))};

    for (guint number = 0; number < 2; number++) {
        QosCreditItem item = {.credit = qos_credit_span(0, number, TRUE)};
        qos_resource_init(&item.resource, QOS_RESOURCE_EXTENT, &number, sizeof(number));
        g_array_append_val(wait.items, item);
    }
    qos_wait_reports_set(waits, &wait);
    qos_wire_wait_clear(&wait);
}

/* What is told now: "ID OWNER" of each wait, "ID over"; free with g_free(). */
static char *told(QosWaitReports *waits)
{
    GByteArray *frames = g_byte_array_new();
    GString *text = g_string_new(NULL);
    QosWireReader reader;
    QosWireType type;
    const guint8 *payload;
    gsize length;

    qos_wait_reports_take(waits, frames);
    g_assert_false(qos_wait_reports_has_frames(waits));
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, frames->data, frames->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        QosWireWait wait;
        g_assert_cmpint(type, ==, QOS_WIRE_WAIT);
        g_assert_true(qos_wire_get_wait(payload, length, &wait));
        if (wait.items != NULL)
            g_string_append_printf(text, "%d %d,", (int)wait.id, (int)wait.owner);
        else
            g_string_append_printf(text, "%d over,", (int)wait.id);
        qos_wire_wait_clear(&wait);
    }
    qos_wire_reader_clear(&reader);
    g_byte_array_unref(frames);
    return g_string_free(text, FALSE);
}

static void assert_told(QosWaitReports *waits, const char *expected)
{
    g_autofree char *text = told(waits);

    g_assert_cmpstr(text, ==, expected);
}

static void test_told_as_it_is(void)
{
    QosWaitReports waits;

    qos_wait_reports_init(&waits);
    g_assert_false(qos_wait_reports_has_frames(&waits));
    set(&waits, 1, 7);
    set(&waits, 2, 8);
    set(&waits, 1, 9);
    g_assert_true(qos_wait_reports_has_frames(&waits));
    assert_told(&waits, "1 9,2 8,");
    set(&waits, 3, 7);
    qos_wait_reports_end(&waits, 3); /* nobody has heard of it */
    qos_wait_reports_end(&waits, 4);
    assert_told(&waits, "");
    qos_wait_reports_end(&waits, 1);
    assert_told(&waits, "1 over,");
    qos_wait_reports_end(&waits, 2);
    set(&waits, 2, 5);
    assert_told(&waits, "2 5,");
    qos_wait_reports_clear(&waits);
}

static void test_another_connection(void)
{
    QosWaitReports waits;

    qos_wait_reports_init(&waits);
    set(&waits, 1, 7);
    set(&waits, 2, 8);
    assert_told(&waits, "1 7,2 8,");
    qos_wait_reports_end(&waits, 2);
    qos_wait_reports_renew(&waits); /* which knows of none */
    assert_told(&waits, "1 7,");
    set(&waits, 1, 9);
    qos_wait_reports_renew(&waits);
    qos_wait_reports_end(&waits, 1);
    assert_told(&waits, "");
    qos_wait_reports_clear(&waits);
}

/* What no frame holds is taken back. */
static void test_too_much(void)
{
    QosWireWait wait = {.id = 1, .items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem))};
    QosWaitReports waits;

    qos_wait_reports_init(&waits);
    set(&waits, 1, 7);
    assert_told(&waits, "1 7,");
    for (guint i = 0; i <= QOS_WIRE_WAIT_MAX; i++) {
        QosCreditItem item = {.credit = qos_credit_span(0, i, TRUE)};
        qos_resource_init(&item.resource, QOS_RESOURCE_EXTENT, &i, sizeof(i));
        g_array_append_val(wait.items, item);
    }
    qos_wait_reports_set(&waits, &wait);
    assert_told(&waits, "1 over,");
    qos_wire_wait_clear(&wait);
    qos_wait_reports_clear(&waits);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/wait-reports/told-as-it-is", test_told_as_it_is);
    g_test_add_func("/lockengine/wait-reports/another-connection", test_another_connection);
    g_test_add_func("/lockengine/wait-reports/too-much", test_too_much);
    return g_test_run();
}
