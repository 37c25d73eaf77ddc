/*
 * Frames to bytes and back. core/wire.h has the format, and what hostile bytes cannot do.
 */
#include "core/wire.h"

#include "base/bytes.h"
#include "core/wire_frame.h"

#define MAGIC       0x53464f51u /* "QOFS" */
#define LENGTH_SIZE QOS_WIRE_LENGTH_SIZE
#define COMPACT     65536 /* bytes taken from a reader before what is left is moved to its front */

/* --- writing --- */

void qos_wire_put_hello(GByteArray *bytes, const QosWireHello *hello)
{
    gsize at = qos_wire_begin(bytes, QOS_WIRE_HELLO);

    qos_bytes_put_u32(bytes, MAGIC);
    qos_bytes_put_u32(bytes, hello->version);
    qos_bytes_put_u64(bytes, hello->id);
    qos_bytes_put_u32(bytes, hello->incarnation);
    qos_wire_put_text(bytes, hello->store);
    qos_wire_put_text(bytes, hello->name);
    qos_wire_end(bytes, at);
}

void qos_wire_put_welcome(GByteArray *bytes, const QosWireWelcome *welcome)
{
    gsize at = qos_wire_begin(bytes, QOS_WIRE_WELCOME);

    qos_bytes_put_u32(bytes, welcome->version);
    qos_bytes_put_u64(bytes, welcome->id);
    qos_bytes_put_u32(bytes, welcome->incarnation);
    qos_bytes_put_u32(bytes, (guint32)(welcome->lease / QOS_MILLISECOND));
    qos_bytes_put_u32(bytes, (guint32)(welcome->resend / QOS_MILLISECOND));
    qos_bytes_put_u32(bytes, welcome->group);
    qos_wire_end(bytes, at);
}

void qos_wire_put_refused(GByteArray *bytes, QosWireRefusal code, const char *reason)
{
    g_autofree char *valid = g_utf8_make_valid(reason, -1);
    g_autoptr(GString) text = g_string_new(NULL);
    gsize at = qos_wire_begin(bytes, QOS_WIRE_REFUSED);

    for (const char *next = valid; *next != '\0'; next = g_utf8_next_char(next)) {
        gunichar letter = g_utf8_get_char(next);
        gsize size = text->len;

        g_string_append_unichar(text, g_unichar_iscntrl(letter) ? ' ' : letter);
        if (text->len > QOS_WIRE_REASON_MAX) {
            g_string_truncate(text, size);
            break;
        }
    }
    qos_bytes_put_u8(bytes, (guint8)code);
    qos_wire_put_text(bytes, text->str);
    qos_wire_end(bytes, at);
}

/* Appends its length, and the message. */
static void put_message(GByteArray *bytes, const QosCreditMessage *message)
{
    gsize at = bytes->len;

    qos_bytes_put_u32(bytes, 0);
    qos_credit_message_encode(message, bytes);
    qos_wire_end(bytes, at);
}

gboolean qos_wire_put_credits(GByteArray *bytes, gsize *batch, const QosCreditMessage *message)
{
    gsize old_length = bytes->len, at = *batch;

    if (at == QOS_WIRE_NO_BATCH)
        at = qos_wire_begin(bytes, QOS_WIRE_CREDITS);
    put_message(bytes, message);
    if (*batch != QOS_WIRE_NO_BATCH && bytes->len - at - LENGTH_SIZE > QOS_WIRE_FRAME_MAX) {
        g_byte_array_set_size(bytes, (guint)old_length);
        at = qos_wire_begin(bytes, QOS_WIRE_CREDITS);
        put_message(bytes, message);
    }
    if (bytes->len - at - LENGTH_SIZE > QOS_WIRE_FRAME_MAX) {
        g_byte_array_set_size(bytes, (guint)old_length);
        return FALSE;
    }
    qos_wire_end(bytes, at);
    *batch = at;
    return TRUE;
}

/* --- reading --- */

gboolean qos_wire_get_hello(const guint8 *payload, gsize length, QosWireHello *ret_hello)
{
    QosWireHello hello = {0};
    guint32 magic;

    if (!qos_bytes_take_u32(&payload, &length, &magic) || magic != MAGIC ||
        !qos_bytes_take_u32(&payload, &length, &hello.version))
        return FALSE;
    if (hello.version == QOS_WIRE_VERSION &&
        (!qos_bytes_take_u64(&payload, &length, &hello.id) || hello.id == 0 ||
         !qos_bytes_take_u32(&payload, &length, &hello.incarnation) || hello.incarnation == 0 ||
         !qos_wire_take_text(&payload, &length, hello.store, QOS_WIRE_STORE_MAX) ||
         hello.store[0] == '\0' ||
         !qos_wire_take_text(&payload, &length, hello.name, QOS_WIRE_NAME_MAX) || length > 0))
        return FALSE;
    *ret_hello = hello;
    return TRUE;
}

static gboolean take_milliseconds(const guint8 **bytes, gsize *length, QosTime *ret_duration)
{
    guint32 milliseconds;

    if (!qos_bytes_take_u32(bytes, length, &milliseconds) || milliseconds == 0)
        return FALSE;
    *ret_duration = milliseconds * QOS_MILLISECOND;
    return TRUE;
}

gboolean qos_wire_get_welcome(const guint8 *payload, gsize length, QosWireWelcome *ret_welcome)
{
    QosWireWelcome welcome = {0};

    if (!qos_bytes_take_u32(&payload, &length, &welcome.version))
        return FALSE;
    if (welcome.version == QOS_WIRE_VERSION &&
        (!qos_bytes_take_u64(&payload, &length, &welcome.id) || welcome.id == 0 ||
         !qos_bytes_take_u32(&payload, &length, &welcome.incarnation) || welcome.incarnation == 0 ||
         !take_milliseconds(&payload, &length, &welcome.lease) ||
         !take_milliseconds(&payload, &length, &welcome.resend) ||
         !qos_bytes_take_u32(&payload, &length, &welcome.group) || welcome.group == 0 ||
         welcome.group > QOS_WIRE_GROUP_MAX || (welcome.group & (welcome.group - 1)) != 0 ||
         length > 0))
        return FALSE;
    *ret_welcome = welcome;
    return TRUE;
}

gboolean qos_wire_get_refused(const guint8 *payload, gsize length, QosWireRefused *ret_refused)
{
    QosWireRefused refused;
    guint8 code;

    if (!qos_bytes_take_u8(&payload, &length, &code) || code == 0 || code >= QOS_WIRE_REFUSALS ||
        !qos_wire_take_text(&payload, &length, refused.reason, QOS_WIRE_REASON_MAX) || length > 0)
        return FALSE;
    refused.code = code;
    *ret_refused = refused;
    return TRUE;
}

gboolean qos_wire_get_credits(const guint8 **payload, gsize *length, QosCreditMessage *ret_message)
{
    guint32 size;

    if (!qos_bytes_take_u32(payload, length, &size) || size > *length ||
        !qos_credit_message_decode(ret_message, *payload, size))
        return FALSE;
    *payload += size;
    *length -= size;
    return TRUE;
}

/* --- waits --- */

void qos_wire_wait_clear(QosWireWait *wait)
{
    for (guint i = 0; wait->items != NULL && i < wait->items->len; i++)
        qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT),
                         &g_array_index(wait->items, QosCreditItem, i).credit);
    g_clear_pointer(&wait->items, g_array_unref);
}

gboolean qos_wire_put_wait(GByteArray *bytes, const QosWireWait *wait)
{
    gsize at = qos_wire_begin(bytes, QOS_WIRE_WAIT);
    guint count = wait->items != NULL ? wait->items->len : 0;

    qos_bytes_put_u64(bytes, wait->id);
    qos_bytes_put_u64(bytes, wait->owner);
    qos_bytes_put_u32(bytes, count);
    for (guint i = 0; i < count; i++) {
        const QosCreditItem *item = &g_array_index(wait->items, QosCreditItem, i);
        qos_resource_encode(&item->resource, bytes);
        qos_resource_type(QOS_RESOURCE_EXTENT)->encode(&item->credit, bytes);
    }
    qos_wire_end(bytes, at);
    if (count <= QOS_WIRE_WAIT_MAX && bytes->len - at - LENGTH_SIZE <= QOS_WIRE_FRAME_MAX)
        return TRUE;
    g_byte_array_set_size(bytes, (guint)at);
    return FALSE;
}

/* Appends it to `items`. */
static gboolean take_lock(const guint8 **bytes, gsize *length, GArray *items)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    QosCreditItem item = {0};

    if (!qos_resource_decode(&item.resource, bytes, length) ||
        item.resource.type != QOS_RESOURCE_EXTENT || !type->decode(&item.credit, bytes, length))
        return FALSE;
    g_array_append_val(items, item);
    return !qos_credit_is_empty(type, &item.credit);
}

gboolean qos_wire_get_wait(const guint8 *payload, gsize length, QosWireWait *ret_wait)
{
    QosWireWait wait = {0};
    guint32 count;

    if (!qos_bytes_take_u64(&payload, &length, &wait.id) ||
        !qos_bytes_take_u64(&payload, &length, &wait.owner) ||
        !qos_bytes_take_u32(&payload, &length, &count) || count == 1 || count > QOS_WIRE_WAIT_MAX)
        return FALSE;
    if (count > 0)
        wait.items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
    gboolean is_whole = TRUE;
    for (guint i = 0; is_whole && i < count; i++)
        is_whole = take_lock(&payload, &length, wait.items);
    if (!is_whole || length > 0) {
        qos_wire_wait_clear(&wait);
        return FALSE;
    }
    *ret_wait = wait;
    return TRUE;
}

void qos_wire_put_deadlock(GByteArray *bytes, guint64 wait)
{
    gsize at = qos_wire_begin(bytes, QOS_WIRE_DEADLOCK);

    qos_bytes_put_u64(bytes, wait);
    qos_wire_end(bytes, at);
}

gboolean qos_wire_get_deadlock(const guint8 *payload, gsize length, guint64 *ret_wait)
{
    guint64 wait;

    if (!qos_bytes_take_u64(&payload, &length, &wait) || length > 0)
        return FALSE;
    *ret_wait = wait;
    return TRUE;
}

/* --- words --- */

const char *qos_wire_refusal_text(QosWireRefusal code)
{
    static const char *const texts[QOS_WIRE_REFUSALS] = {
        [QOS_WIRE_BAD_VERSION] = "wrong version",
        [QOS_WIRE_OTHER_STORE] = "store differs",
        [QOS_WIRE_IDENTITY_TAKEN] = "identity taken",
        [QOS_WIRE_NOT_PERMITTED] = "not permitted",
        [QOS_WIRE_FULL] = "full",
        [QOS_WIRE_BROKEN_PROTOCOL] = "protocol error",
    };

    return code > 0 && code < QOS_WIRE_REFUSALS ? texts[code] : "unknown";
}

char *qos_wire_version_fault(guint32 mount, guint32 server)
{
    return g_strdup_printf("the mount speaks version %u of the protocol, and the server version "
                           "%u: update qosfs %s",
                           mount, server,
                           mount < server ? "on the mount's machine, and mount again"
                                          : "on the server's machine, and start the server again");
}

/* --- frames --- */

void qos_wire_reader_init(QosWireReader *reader)
{
    *reader = (QosWireReader){.bytes = g_byte_array_new(), .limit = QOS_WIRE_FRAME_MAX};
}

void qos_wire_reader_clear(QosWireReader *reader)
{
    g_clear_pointer(&reader->bytes, g_byte_array_unref);
}

void qos_wire_reader_feed(QosWireReader *reader, const guint8 *bytes, gsize length)
{
    if (reader->taken == reader->bytes->len || reader->taken >= COMPACT) {
        g_byte_array_remove_range(reader->bytes, 0, (guint)reader->taken);
        reader->taken = 0;
    }
    g_byte_array_append(reader->bytes, bytes, (guint)length);
}

gsize qos_wire_reader_waiting(const QosWireReader *reader)
{
    return reader->bytes->len - reader->taken;
}

QosWireVerdict qos_wire_reader_next(QosWireReader *reader, QosWireType *ret_type,
                                    const guint8 **ret_payload, gsize *ret_length)
{
    const guint8 *bytes = reader->bytes->data + reader->taken;
    gsize left = qos_wire_reader_waiting(reader);
    guint32 length;
    guint8 type;

    if (!qos_bytes_take_u32(&bytes, &left, &length))
        return QOS_WIRE_MORE;
    if (length == 0 || length > reader->limit)
        return QOS_WIRE_BROKEN;
    if (!qos_bytes_take_u8(&bytes, &left, &type))
        return QOS_WIRE_MORE;
    if (type < QOS_WIRE_HELLO || type >= QOS_WIRE_TYPES)
        return QOS_WIRE_BROKEN;
    if (left < length - 1)
        return QOS_WIRE_MORE;
    reader->taken += LENGTH_SIZE + length;
    *ret_type = type;
    *ret_payload = bytes;
    *ret_length = length - 1;
    return QOS_WIRE_FRAME;
}
