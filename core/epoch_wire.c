/*
 * The messages of epoch handlers as bytes, little-endian:
 *
 *     u8 version   u8 type   u8 order of the data (0: little-endian)   u8 0
 *     u32 length of the data   u64 ticket   i64 epoch   data
 *
 * Policy data is the scheduler's own, in its machine's byte order; the receiver swabs it (seed 003,
 * 5.1).
 */
#include "base/bytes.h"
#include "core/epoch.h"

#define VERSION   1
#define ERRNO_MAX 4095

static gboolean is_valid(const QosEpochMessage *message, gsize length)
{
    switch (message->type) {
    case QOS_EPOCH_READY:
        return message->epoch >= 0 && length <= QOS_EPOCH_DATA_MAX;
    case QOS_EPOCH_LEAVE:
        return message->epoch == 0 && length == 0;
    case QOS_EPOCH_START:
        return message->epoch > 0 && length <= QOS_EPOCH_DATA_MAX;
    case QOS_EPOCH_REFUSE:
        return message->epoch < 0 && message->epoch >= -ERRNO_MAX && length == 0;
    }
    return FALSE;
}

void qos_epoch_encode(const QosEpochMessage *message, GByteArray *bytes)
{
    gsize length = 0;
    const guint8 *data = message->data != NULL ? g_bytes_get_data(message->data, &length) : NULL;

    qos_bytes_put_u8(bytes, VERSION);
    qos_bytes_put_u8(bytes, message->type);
    qos_bytes_put_u8(bytes, (G_BYTE_ORDER == G_BIG_ENDIAN) != message->is_swapped);
    qos_bytes_put_u8(bytes, 0);
    qos_bytes_put_u32(bytes, (guint32)length);
    qos_bytes_put_u64(bytes, message->ticket);
    qos_bytes_put_u64(bytes, (guint64)message->epoch);
    if (length > 0)
        g_byte_array_append(bytes, data, (guint)length);
}

gboolean qos_epoch_decode(const guint8 *bytes, gsize length, QosEpochMessage *ret_message)
{
    guint8 version, type, order, zero;
    guint32 data_length;
    guint64 ticket, epoch;

    if (!qos_bytes_take_u8(&bytes, &length, &version) ||
        !qos_bytes_take_u8(&bytes, &length, &type) || !qos_bytes_take_u8(&bytes, &length, &order) ||
        !qos_bytes_take_u8(&bytes, &length, &zero) ||
        !qos_bytes_take_u32(&bytes, &length, &data_length) ||
        !qos_bytes_take_u64(&bytes, &length, &ticket) ||
        !qos_bytes_take_u64(&bytes, &length, &epoch))
        return FALSE;
    QosEpochMessage message = {.type = type,
                               .ticket = ticket,
                               .epoch = (gint64)epoch,
                               .is_swapped = order != (G_BYTE_ORDER == G_BIG_ENDIAN)};
    if (version != VERSION || order > 1 || zero != 0 || data_length != length ||
        !is_valid(&message, length))
        return FALSE;
    message.data = g_bytes_new(bytes, length);
    *ret_message = message;
    return TRUE;
}
