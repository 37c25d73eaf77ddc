/*
 * The wire between mounts and server: round trips, known bytes, texts at their limits, and streams
 * cut anywhere.
 */
#include <string.h>

#include "base/bytes.h"
#include "core/wire.h"

static const QosWireHello hello_template = {.version = QOS_WIRE_VERSION,
                                            .id = 0x1122334455667788,
                                            .incarnation = 7,
                                            .store = "lustre:1",
                                            .name = "node1:/qos"};

static const QosWireWelcome welcome_template = {.version = QOS_WIRE_VERSION,
                                                .id = 1,
                                                .incarnation = 3,
                                                .lease = 30 * QOS_SECOND,
                                                .resend = 200 * QOS_MILLISECOND,
                                                .group = 1024};

/* The payload of the one frame in `bytes`. */
static const guint8 *payload_of(const GByteArray *bytes, QosWireType type, gsize *ret_length)
{
    const guint8 *next = bytes->data;
    gsize left = bytes->len;
    guint32 length = 0;
    guint8 found = 0;

    g_assert_true(qos_bytes_take_u32(&next, &left, &length));
    g_assert_cmpuint(length, ==, left);
    g_assert_true(qos_bytes_take_u8(&next, &left, &found));
    g_assert_cmpuint(found, ==, type);
    *ret_length = left;
    return next;
}

/* Of every part of a payload, and of it with one byte more, `get` makes nothing. */
static void assert_exact(const guint8 *payload, gsize length,
                         gboolean (*get)(const guint8 *, gsize, gpointer))
{
    guint8 longer[1024] = {0}, result[1024];

    for (gsize cut = 0; cut < length; cut++) {
        g_autofree guint8 *exact = g_memdup2(payload, cut);
        g_assert_false(get(exact, cut, result));
    }
    memcpy(longer, payload, length);
    g_assert_false(get(longer, length + 1, result));
    g_assert_true(get(longer, length, result));
}

static gboolean get_hello(const guint8 *payload, gsize length, gpointer result)
{
    return qos_wire_get_hello(payload, length, result);
}

static gboolean get_welcome(const guint8 *payload, gsize length, gpointer result)
{
    return qos_wire_get_welcome(payload, length, result);
}

static gboolean get_refused(const guint8 *payload, gsize length, gpointer result)
{
    return qos_wire_get_refused(payload, length, result);
}

static void test_bytes(void)
{
    static const guint8 expected[] = {
        41,   0,    0,    0,    1,                           /* length, HELLO */
        'Q',  'O',  'F',  'S',  3,    0,    0,    0,         /* magic, version */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,      /* id */
        7,    0,    0,    0,                                 /* incarnation */
        8,    'l',  'u',  's',  't',  'r',  'e',  ':',  '1', /* store */
        10,   'n',  'o',  'd',  'e',  '1',  ':',  '/',  'q', 'o', 's',
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    qos_wire_put_hello(bytes, &hello_template);
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));
}

static void test_hello(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireHello hello;
    gsize length;

    qos_wire_put_hello(bytes, &hello_template);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_HELLO, &length);
    g_assert_true(qos_wire_get_hello(payload, length, &hello));
    g_assert_cmpuint(hello.id, ==, hello_template.id);
    g_assert_cmpuint(hello.incarnation, ==, 7);
    g_assert_cmpstr(hello.store, ==, "lustre:1");
    g_assert_cmpstr(hello.name, ==, "node1:/qos");
    assert_exact(payload, length, get_hello);
}

static gboolean accepts(const QosWireHello *hello)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireHello result;
    gsize length;

    qos_wire_put_hello(bytes, hello);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_HELLO, &length);
    return qos_wire_get_hello(payload, length, &result);
}

static void test_hello_limits(void)
{
    QosWireHello hello = hello_template;

    memset(hello.store, 's', QOS_WIRE_STORE_MAX);
    memset(hello.name, 'n', QOS_WIRE_NAME_MAX);
    g_assert_true(accepts(&hello));
    hello.name[0] = '\0';
    g_assert_true(accepts(&hello));
    hello.store[0] = '\0';
    g_assert_false(accepts(&hello));
    hello = hello_template;
    hello.id = 0;
    g_assert_false(accepts(&hello));
    hello = hello_template;
    hello.incarnation = 0;
    g_assert_false(accepts(&hello));
    hello = hello_template;
    hello.name[3] = '\n';
    g_assert_false(accepts(&hello));
    hello.name[3] = '\xff';
    g_assert_false(accepts(&hello));
    hello = hello_template;
    g_strlcpy(hello.name, "h\xc3\xb4te", sizeof(hello.name));
    g_assert_true(accepts(&hello));
    g_strlcpy(hello.name, "h\xc2\x9bte", sizeof(hello.name)); /* a control character of 8 bits */
    g_assert_false(accepts(&hello));
}

/* The version of another program is told, whatever follows. */
static void test_other_version(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireHello hello = hello_template;
    QosWireWelcome welcome;
    gsize length;

    hello.version = QOS_WIRE_VERSION + 1;
    qos_wire_put_hello(bytes, &hello);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_HELLO, &length);
    g_assert_true(qos_wire_get_hello(payload, 8, &hello));
    g_assert_cmpuint(hello.version, ==, QOS_WIRE_VERSION + 1);
    g_assert_cmpuint(hello.id, ==, 0);
    g_assert_false(qos_wire_get_hello(payload + 1, 8, &hello)); /* the magic */
    g_assert_true(qos_wire_get_welcome((const guint8 *)"\2\0\0\0more", 8, &welcome));
    g_assert_cmpuint(welcome.version, ==, 2);
}

/* The reason names both versions, and says what to do; and it fits into REFUSED. */
static void test_version_fault(void)
{
    g_autofree char *old_mount = qos_wire_version_fault(2, 3);
    g_autofree char *old_server = qos_wire_version_fault(3, 2);
    g_autofree char *longest = qos_wire_version_fault(G_MAXUINT32, G_MAXUINT32 - 1);

    g_assert_cmpstr(old_mount, ==,
                    "the mount speaks version 2 of the protocol, and the server version 3: update "
                    "qosfs on the mount's machine, and mount again");
    g_assert_cmpstr(old_server, ==,
                    "the mount speaks version 3 of the protocol, and the server version 2: update "
                    "qosfs on the server's machine, and start the server again");
    g_assert_cmpuint(strlen(longest), <, QOS_WIRE_REASON_MAX);
}

static void test_welcome(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireWelcome welcome;
    gsize length;

    qos_wire_put_welcome(bytes, &welcome_template);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_WELCOME, &length);
    g_assert_true(qos_wire_get_welcome(payload, length, &welcome));
    g_assert_cmpuint(welcome.id, ==, 1);
    g_assert_cmpuint(welcome.incarnation, ==, 3);
    g_assert_cmpint(welcome.lease, ==, 30 * QOS_SECOND);
    g_assert_cmpint(welcome.resend, ==, 200 * QOS_MILLISECOND);
    g_assert_cmpuint(welcome.group, ==, 1024);
    assert_exact(payload, length, get_welcome);
}

static void test_welcome_limits(void)
{
    static const guint32 groups[] = {0, 3, 1000, 2048};

    for (guint i = 0; i < G_N_ELEMENTS(groups); i++) {
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        QosWireWelcome welcome = welcome_template;
        gsize length;

        welcome.group = groups[i];
        qos_wire_put_welcome(bytes, &welcome);
        const guint8 *payload = payload_of(bytes, QOS_WIRE_WELCOME, &length);
        g_assert_false(qos_wire_get_welcome(payload, length, &welcome));
    }
}

static gboolean get_wait(const guint8 *payload, gsize length, gpointer result)
{
    QosWireWait wait = {0};
    gboolean is_one = qos_wire_get_wait(payload, length, &wait);

    *(guint64 *)result = wait.id;
    qos_wire_wait_clear(&wait);
    return is_one;
}

static gboolean get_deadlock(const guint8 *payload, gsize length, gpointer result)
{
    return qos_wire_get_deadlock(payload, length, result);
}

static void add_lock(GArray *items, QosResourceTypeId type, guint8 file, QosCredit credit)
{
    QosCreditItem item = {.credit = credit};

    qos_resource_init(&item.resource, type, &file, sizeof(file));
    g_array_append_val(items, item);
}

static void test_wait(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireWait wait = {5, 6, g_array_new(FALSE, FALSE, sizeof(QosCreditItem))}, found;
    gsize length;

    add_lock(wait.items, QOS_RESOURCE_EXTENT, 1, qos_credit_span(10, 19, TRUE));
    add_lock(wait.items, QOS_RESOURCE_EXTENT, 2, qos_credit_span(0, 9, FALSE));
    g_assert_true(qos_wire_put_wait(bytes, &wait));
    qos_wire_wait_clear(&wait);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_WAIT, &length);
    assert_exact(payload, length, get_wait);
    g_assert_true(qos_wire_get_wait(payload, length, &found));
    g_assert_cmpuint(found.id, ==, 5);
    g_assert_cmpuint(found.owner, ==, 6);
    g_assert_cmpuint(found.items->len, ==, 2);
    const QosCreditItem *item = &g_array_index(found.items, QosCreditItem, 1);
    g_assert_cmpuint(item->resource.name[0], ==, 2);
    g_assert_cmpuint(item->credit.spans[0].last, ==, 9);
    g_assert_false(item->credit.spans[0].writes);
    qos_wire_wait_clear(&found);
    g_byte_array_set_size(bytes, 0);
    g_assert_true(qos_wire_put_wait(bytes, &(QosWireWait){.id = 5}));
    payload = payload_of(bytes, QOS_WIRE_WAIT, &length);
    g_assert_true(qos_wire_get_wait(payload, length, &found));
    g_assert_null(found.items);
    g_byte_array_set_size(bytes, 0);
    qos_wire_put_deadlock(bytes, 5);
    payload = payload_of(bytes, QOS_WIRE_DEADLOCK, &length);
    assert_exact(payload, length, get_deadlock);
}

/* It waits for something, and has something, and both are locks of files. */
static void test_wait_limits(void)
{
    for (guint i = 0; i < 3; i++) {
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        QosWireWait wait = {5, 6, g_array_new(FALSE, FALSE, sizeof(QosCreditItem))};
        guint64 id;
        gsize length;

        add_lock(wait.items, QOS_RESOURCE_EXTENT, 1, qos_credit_span(0, 9, TRUE));
        if (i == 1)
            add_lock(wait.items, QOS_RESOURCE_INODES, 1, qos_credit_span(0, 9, TRUE));
        if (i == 2)
            add_lock(wait.items, QOS_RESOURCE_EXTENT, 1, (QosCredit){0});
        g_assert_true(qos_wire_put_wait(bytes, &wait));
        qos_wire_wait_clear(&wait);
        const guint8 *payload = payload_of(bytes, QOS_WIRE_WAIT, &length);
        g_assert_false(get_wait(payload, length, &id));
    }
}

static void test_refused(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireRefused refused;
    gsize length;

    qos_wire_put_refused(bytes, QOS_WIRE_OTHER_STORE, "it serves a, this is b");
    const guint8 *payload = payload_of(bytes, QOS_WIRE_REFUSED, &length);
    g_assert_true(qos_wire_get_refused(payload, length, &refused));
    g_assert_cmpuint(refused.code, ==, QOS_WIRE_OTHER_STORE);
    g_assert_cmpstr(refused.reason, ==, "it serves a, this is b");
    g_assert_cmpstr(qos_wire_refusal_text(refused.code), ==, "store differs");
    g_assert_cmpstr(qos_wire_refusal_text(QOS_WIRE_REFUSALS), ==, "unknown");
    assert_exact(payload, length, get_refused);
}

/* Whatever the reason is, what goes out can be read: cut between two characters. */
static void test_reason_is_cut(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GString) reason = g_string_new("\n\xff");
    QosWireRefused refused;
    gsize length;

    while (reason->len < 400)
        g_string_append(reason, "\xc3\xb4");
    qos_wire_put_refused(bytes, QOS_WIRE_FULL, reason->str);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_REFUSED, &length);
    g_assert_true(qos_wire_get_refused(payload, length, &refused));
    g_assert_cmpuint(strlen(refused.reason), >=, QOS_WIRE_REASON_MAX - 2);
    g_assert_true(g_str_has_prefix(refused.reason, " \xef\xbf\xbd\xc3\xb4"));
}

/* --- credits --- */

/* An ENQUEUE of `spans` spans of an extent. */
static QosCreditMessage message_new(guint64 sequence, guint spans)
{
    QosCreditMessage message = {.type = QOS_MESSAGE_ENQUEUE, .session = 1, .sequence = sequence};

    qos_resource_init(&message.resource, QOS_RESOURCE_EXTENT, &sequence, sizeof(sequence));
    message.credit.spans = g_new0(QosSpan, spans);
    message.credit.count = spans;
    for (guint i = 0; i < spans; i++)
        message.credit.spans[i] = (QosSpan){.first = 4 * i, .last = 4 * i + 1, .writes = TRUE};
    return message;
}

static gboolean put(GByteArray *bytes, gsize *batch, guint64 sequence, guint spans)
{
    QosCreditMessage message = message_new(sequence, spans);
    gboolean is_put = qos_wire_put_credits(bytes, batch, &message);

    qos_credit_message_clear(&message);
    return is_put;
}

/* All frames of the stream are CREDITS; returns how many messages they have, which are numbered. */
static guint count_messages(QosWireReader *reader, guint *ret_frames)
{
    const guint8 *payload;
    guint count = 0;
    gsize length;
    QosWireType type;

    *ret_frames = 0;
    while (qos_wire_reader_next(reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        g_assert_cmpuint(type, ==, QOS_WIRE_CREDITS);
        g_assert_cmpuint(length, <, QOS_WIRE_FRAME_MAX);
        for (++*ret_frames; length > 0; count++) {
            QosCreditMessage message;
            g_assert_true(qos_wire_get_credits(&payload, &length, &message));
            g_assert_cmpuint(message.sequence, ==, count);
            qos_credit_message_clear(&message);
        }
    }
    return count;
}

static void test_credits(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;
    QosWireReader reader;
    guint frames;

    qos_wire_reader_init(&reader);
    for (guint i = 0; i < 100; i++)
        g_assert_true(put(bytes, &batch, i, 1));
    qos_wire_reader_feed(&reader, bytes->data, bytes->len);
    g_assert_cmpuint(count_messages(&reader, &frames), ==, 100);
    g_assert_cmpuint(frames, ==, 1);
    qos_wire_reader_clear(&reader);
}

/* A batch that would be too long is two. */
static void test_credits_are_split(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;
    QosWireReader reader;
    guint frames;

    qos_wire_reader_init(&reader);
    for (guint i = 0; i < 40; i++)
        g_assert_true(put(bytes, &batch, i, QOS_CREDIT_SPANS_MAX));
    qos_wire_reader_feed(&reader, bytes->data, bytes->len);
    g_assert_cmpuint(count_messages(&reader, &frames), ==, 40);
    g_assert_cmpuint(frames, ==, 3); /* 15 messages of 69,7xx bytes in each */
    qos_wire_reader_clear(&reader);
}

static void test_credits_too_long(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;

    g_assert_true(put(bytes, &batch, 0, 1));
    guint length = bytes->len;
    g_assert_false(put(bytes, &batch, 1, QOS_WIRE_FRAME_MAX / 17)); /* bytes of a span */
    g_assert_cmpuint(bytes->len, ==, length);
    g_assert_true(put(bytes, &batch, 1, 1));
    payload_of(bytes, QOS_WIRE_CREDITS, &(gsize){0});
}

static void test_credits_broken(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH, length;
    QosCreditMessage message;

    g_assert_true(put(bytes, &batch, 0, 1));
    const guint8 *payload = payload_of(bytes, QOS_WIRE_CREDITS, &length);
    for (gsize cut = 0; cut < length; cut++) {
        g_autofree guint8 *exact = g_memdup2(payload, cut);
        const guint8 *next = exact;
        gsize left = cut;
        g_assert_false(qos_wire_get_credits(&next, &left, &message));
    }
}

/* --- the reader --- */

/* However the stream is cut, the same frames come out; and what is taken does not stay. */
static void test_reader_cut(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;

    for (guint i = 0; i < 5; i++) {
        batch = i % 2 ? batch : QOS_WIRE_NO_BATCH;
        g_assert_true(put(bytes, &batch, i, 1 + i));
    }
    for (guint step = 1; step < bytes->len; step++) {
        QosWireReader reader;
        guint count = 0;

        qos_wire_reader_init(&reader);
        for (guint at = 0; at < bytes->len; at += step) {
            QosWireType type;
            const guint8 *payload;
            gsize length;

            qos_wire_reader_feed(&reader, bytes->data + at, MIN(step, bytes->len - at));
            while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME)
                count++;
        }
        g_assert_cmpuint(count, ==, 3);
        g_assert_cmpuint(qos_wire_reader_waiting(&reader), ==, 0);
        qos_wire_reader_clear(&reader);
    }
}

static void test_reader_long(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH, fed = 0;
    QosWireReader reader;

    g_assert_true(put(bytes, &batch, 0, 1000));
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, bytes->data, bytes->len - 1);
    for (guint i = 0; i < 200; i++) {
        QosWireType type;
        const guint8 *payload;
        gsize length;

        fed += bytes->len;
        qos_wire_reader_feed(&reader, bytes->data + bytes->len - 1, 1);
        qos_wire_reader_feed(&reader, bytes->data, bytes->len - 1);
        g_assert_cmpint(qos_wire_reader_next(&reader, &type, &payload, &length), ==,
                        QOS_WIRE_FRAME);
        g_assert_cmpint(qos_wire_reader_next(&reader, &type, &payload, &length), ==, QOS_WIRE_MORE);
    }
    g_assert_cmpuint(fed, >, 3000000);
    g_assert_cmpuint(reader.bytes->len, <, 150000);
    qos_wire_reader_clear(&reader);
}

static QosWireVerdict verdict_of(const char *bytes, gsize size, guint32 limit)
{
    g_autofree guint8 *exact = g_memdup2(bytes, size);
    QosWireReader reader;
    QosWireVerdict verdict;
    QosWireType type;
    const guint8 *payload;
    gsize length;

    qos_wire_reader_init(&reader);
    reader.limit = limit;
    qos_wire_reader_feed(&reader, exact, size);
    verdict = qos_wire_reader_next(&reader, &type, &payload, &length);
    g_assert_cmpint(qos_wire_reader_next(&reader, &type, &payload, &length), !=, QOS_WIRE_FRAME);
    qos_wire_reader_clear(&reader);
    return verdict;
}

/* What no frame can begin with is known by its first bytes. */
static void test_reader_broken(void)
{
    g_assert_cmpint(verdict_of("\1\0\0", 3, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_MORE);
    g_assert_cmpint(verdict_of("\1\0\0\0", 4, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_MORE);
    g_assert_cmpint(verdict_of("\1\0\0\0\4", 5, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_FRAME);
    g_assert_cmpint(verdict_of("\1\0\0\0\13", 5, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_FRAME);
    g_assert_cmpint(verdict_of("\1\0\0\0\16", 5, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_BROKEN);
    g_assert_cmpint(verdict_of("\0\0\0\0", 4, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_BROKEN);
    g_assert_cmpint(verdict_of("\0\0\20\0", 4, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_MORE);
    g_assert_cmpint(verdict_of("\1\0\20\0", 4, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_BROKEN);
    g_assert_cmpint(verdict_of("\0\2\0\0", 4, QOS_WIRE_HELLO_MAX), ==, QOS_WIRE_MORE);
    g_assert_cmpint(verdict_of("\1\2\0\0", 4, QOS_WIRE_HELLO_MAX), ==, QOS_WIRE_BROKEN);
    g_assert_cmpint(verdict_of("\14\0\0\0\0", 5, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_BROKEN);
    g_assert_cmpint(verdict_of("\14\0\0\0\377", 5, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_BROKEN);
    g_assert_cmpint(verdict_of("GET / HTTP", 10, QOS_WIRE_FRAME_MAX), ==, QOS_WIRE_BROKEN);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/wire/bytes", test_bytes);
    g_test_add_func("/wire/hello", test_hello);
    g_test_add_func("/wire/hello/limits", test_hello_limits);
    g_test_add_func("/wire/other-version", test_other_version);
    g_test_add_func("/wire/version-fault", test_version_fault);
    g_test_add_func("/wire/welcome", test_welcome);
    g_test_add_func("/wire/welcome/limits", test_welcome_limits);
    g_test_add_func("/wire/wait", test_wait);
    g_test_add_func("/wire/wait-limits", test_wait_limits);
    g_test_add_func("/wire/refused", test_refused);
    g_test_add_func("/wire/refused/is-cut", test_reason_is_cut);
    g_test_add_func("/wire/credits", test_credits);
    g_test_add_func("/wire/credits/are-split", test_credits_are_split);
    g_test_add_func("/wire/credits/too-long", test_credits_too_long);
    g_test_add_func("/wire/credits/broken", test_credits_broken);
    g_test_add_func("/wire/reader/cut", test_reader_cut);
    g_test_add_func("/wire/reader/long", test_reader_long);
    g_test_add_func("/wire/reader/broken", test_reader_broken);
    return g_test_run();
}
