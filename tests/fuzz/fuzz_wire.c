/*
 * The stream between mounts and server, hostile ones too. The input is the stream behind one byte,
 * which says in what pieces it comes and whether frames of a HELLO's length alone are let in. What
 * is read is written again to the same bytes, and however the stream is cut, the same comes out.
 */
#include <glib.h>
#include <string.h>

#include "core/wire_cluster.h"

#define SHORT_FRAMES 0x80

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static gboolean write_hello(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireHello hello;

    if (!qos_wire_get_hello(payload, length, &hello) || hello.version != QOS_WIRE_VERSION)
        return FALSE;
    qos_wire_put_hello(bytes, &hello);
    return TRUE;
}

static gboolean write_welcome(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireWelcome welcome;

    if (!qos_wire_get_welcome(payload, length, &welcome) || welcome.version != QOS_WIRE_VERSION)
        return FALSE;
    qos_wire_put_welcome(bytes, &welcome);
    return TRUE;
}

static gboolean write_refused(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireRefused refused;

    if (!qos_wire_get_refused(payload, length, &refused))
        return FALSE;
    g_assert_cmpstr(qos_wire_refusal_text(refused.code), !=, "unknown");
    qos_wire_put_refused(bytes, refused.code, refused.reason);
    return TRUE;
}

static gboolean write_credits(const guint8 *payload, gsize length, GByteArray *bytes)
{
    gsize batch = QOS_WIRE_NO_BATCH;
    QosCreditMessage message;

    while (length > 0) {
        if (!qos_wire_get_credits(&payload, &length, &message))
            return FALSE;
        g_assert_true(qos_wire_put_credits(bytes, &batch, &message));
        qos_credit_message_clear(&message);
    }
    return bytes->len > 0;
}

static gboolean write_wait(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireWait wait;

    if (!qos_wire_get_wait(payload, length, &wait))
        return FALSE;
    g_assert_true(qos_wire_put_wait(bytes, &wait));
    qos_wire_wait_clear(&wait);
    return TRUE;
}

static gboolean write_deadlock(const guint8 *payload, gsize length, GByteArray *bytes)
{
    guint64 wait;

    if (!qos_wire_get_deadlock(payload, length, &wait))
        return FALSE;
    qos_wire_put_deadlock(bytes, wait);
    return TRUE;
}

/* A page that is longer than any that is written becomes several. */
static gboolean write_rules(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireRules page, list = {0};

    if (!qos_wire_get_rules(payload, length, &page))
        return FALSE;
    guint end = page.first + (page.rules != NULL ? page.rules->len : 0);
    gboolean is_one = qos_wire_put_rules(bytes, &page, page.first) == end;
    gboolean is_first = page.first == 0;
    g_assert_cmpint(qos_wire_rules_join(&list, &page), ==, is_first);
    qos_wire_rules_clear(&list);
    return is_one;
}

static gboolean write_budget(QosWireType type, const guint8 *payload, gsize length,
                             GByteArray *bytes)
{
    gboolean is_one = length > 0 && length < QOS_WIRE_PAGE_MAX;
    gsize batch = QOS_WIRE_NO_BATCH;
    QosWireBudget item;

    while (length > 0) {
        if (!qos_wire_get_budget(&payload, &length, &item))
            return FALSE;
        qos_wire_put_budget(bytes, &batch, type, &item);
    }
    return is_one;
}

static gboolean write_seen(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireSeen seen;

    if (!qos_wire_get_seen(payload, length, &seen))
        return FALSE;
    qos_wire_put_seen(bytes, &seen);
    return TRUE;
}

/* What comes in the other byte order is not written the same. */
static gboolean write_epoch(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosEpochMessage message;

    if (!qos_wire_get_epoch(payload, length, &message))
        return FALSE;
    gboolean is_written = qos_wire_put_epoch(bytes, &message) && !message.is_swapped;
    qos_epoch_message_clear(&message);
    return is_written;
}

static gboolean write_admin(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireAdmin admin;

    if (!qos_wire_get_admin(payload, length, &admin))
        return FALSE;
    g_assert_true(qos_wire_put_admin(bytes, &admin));
    qos_wire_admin_clear(&admin);
    return TRUE;
}

static gboolean write_admin_result(const guint8 *payload, gsize length, GByteArray *bytes)
{
    QosWireAdminResult result;

    if (!qos_wire_get_admin_result(payload, length, &result))
        return FALSE;
    qos_wire_put_admin_result(bytes, &result);
    qos_wire_admin_result_clear(&result);
    return TRUE;
}

static void check_frame(QosWireType type, const guint8 *payload, gsize length)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gboolean is_written = FALSE;

    switch (type) {
    case QOS_WIRE_HELLO:
        is_written = write_hello(payload, length, bytes);
        break;
    case QOS_WIRE_WELCOME:
        is_written = write_welcome(payload, length, bytes);
        break;
    case QOS_WIRE_REFUSED:
        is_written = write_refused(payload, length, bytes);
        break;
    case QOS_WIRE_CREDITS:
        is_written = write_credits(payload, length, bytes);
        break;
    case QOS_WIRE_WAIT:
        is_written = write_wait(payload, length, bytes);
        break;
    case QOS_WIRE_DEADLOCK:
        is_written = write_deadlock(payload, length, bytes);
        break;
    case QOS_WIRE_RULES:
        is_written = write_rules(payload, length, bytes);
        break;
    case QOS_WIRE_BUDGET_REPORT:
    case QOS_WIRE_BUDGET_GRANT:
        is_written = write_budget(type, payload, length, bytes);
        break;
    case QOS_WIRE_ADMIN:
        is_written = write_admin(payload, length, bytes);
        break;
    case QOS_WIRE_ADMIN_RESULT:
        is_written = write_admin_result(payload, length, bytes);
        break;
    case QOS_WIRE_RULES_SEEN:
        is_written = write_seen(payload, length, bytes);
        break;
    case QOS_WIRE_EPOCH:
        is_written = write_epoch(payload, length, bytes);
        break;
    case QOS_WIRE_TYPES:
        g_assert_not_reached();
    }
    if (is_written) {
        g_assert_cmpuint(bytes->data[4], ==, type);
        g_assert_cmpmem(bytes->data + 5, bytes->len - 5, payload, length);
    }
}

/* Returns how many frames there are, and what comes behind them. */
static guint read_stream(const guint8 *data, gsize size, gsize step, guint32 limit,
                         QosWireVerdict *ret_verdict)
{
    QosWireVerdict verdict = QOS_WIRE_MORE;
    QosWireReader reader;
    guint count = 0;

    qos_wire_reader_init(&reader);
    reader.limit = limit;
    for (gsize at = 0; at < size && verdict == QOS_WIRE_MORE; at += step) {
        QosWireType type;
        const guint8 *payload;
        gsize length;

        qos_wire_reader_feed(&reader, data + at, MIN(step, size - at));
        while ((verdict = qos_wire_reader_next(&reader, &type, &payload, &length)) ==
               QOS_WIRE_FRAME) {
            check_frame(type, payload, length);
            count++;
        }
    }
    g_assert_true(verdict == QOS_WIRE_BROKEN ||
                  qos_wire_reader_waiting(&reader) <= (gsize)limit + sizeof(guint32) + step);
    qos_wire_reader_clear(&reader);
    *ret_verdict = verdict;
    return count;
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    QosWireVerdict whole, cut;

    if (size < 2)
        return 0;
    guint32 limit = data[0] & SHORT_FRAMES ? QOS_WIRE_HELLO_MAX : QOS_WIRE_FRAME_MAX;
    gsize step = (data[0] & ~SHORT_FRAMES) + 1;
    guint count = read_stream(data + 1, size - 1, size, limit, &whole);
    g_assert_cmpuint(read_stream(data + 1, size - 1, step, limit, &cut), ==, count);
    g_assert_cmpint(whole, ==, cut);
    return 0;
}
