/*
 * Messages as bytes: the fields in the order of the struct, then the number of items in `more` and
 * the items. Messages of all types have all fields, so there is only one format to get right.
 */
#include "base/bytes.h"
#include "core/credit_private.h"

gboolean qos_batch_has_room(const GArray *items, const QosResource *resource,
                            const QosCredit *credit)
{
    guint spans;

    if (items->len == QOS_CREDIT_BATCH)
        return FALSE;
    if (qos_resource_type(resource->type)->shape != QOS_SHAPE_SPANS)
        return TRUE;
    spans = credit->count;
    for (guint i = 0; i < items->len; i++) {
        const QosCreditItem *item = &g_array_index(items, QosCreditItem, i);
        if (qos_resource_type(item->resource.type)->shape == QOS_SHAPE_SPANS)
            spans += item->credit.count;
    }
    return spans <= QOS_CREDIT_BATCH_SPANS;
}

static void item_clear(QosCreditItem *item)
{
    qos_credit_clear(qos_resource_type(item->resource.type), &item->credit);
}

void qos_credit_message_clear(QosCreditMessage *message)
{
    qos_credit_clear(qos_resource_type(message->resource.type), &message->credit);
    if (message->more == NULL)
        return;
    for (guint i = 0; i < message->more->len; i++)
        item_clear(&g_array_index(message->more, QosCreditItem, i));
    g_clear_pointer(&message->more, g_array_unref);
}

static void item_encode(const QosCreditItem *item, GByteArray *bytes)
{
    qos_resource_encode(&item->resource, bytes);
    qos_resource_type(item->resource.type)->encode(&item->credit, bytes);
    qos_bytes_put_u64(bytes, item->token);
    qos_bytes_put_u32(bytes, item->proof);
}

static gboolean item_decode(QosCreditItem *item, const guint8 **bytes, gsize *length)
{
    *item = (QosCreditItem){0};
    if (!qos_resource_decode(&item->resource, bytes, length) ||
        !qos_resource_type(item->resource.type)->decode(&item->credit, bytes, length))
        return FALSE;
    if (qos_bytes_take_u64(bytes, length, &item->token) &&
        qos_bytes_take_u32(bytes, length, &item->proof))
        return TRUE;
    item_clear(item);
    return FALSE;
}

void qos_credit_message_encode(const QosCreditMessage *message, GByteArray *bytes)
{
    const QosCreditItem own = {message->resource, message->credit, message->granted,
                               message->proof};

    qos_bytes_put_u8(bytes, message->type);
    qos_bytes_put_u32(bytes, message->flags);
    qos_bytes_put_u64(bytes, message->session);
    qos_bytes_put_u32(bytes, message->lender);
    qos_bytes_put_u64(bytes, message->sequence);
    qos_bytes_put_u64(bytes, message->acknowledged);
    qos_bytes_put_u64(bytes, message->renewed);
    qos_bytes_put_u64(bytes, (guint64)message->lease);
    qos_bytes_put_u64(bytes, message->token);
    qos_bytes_put_u64(bytes, message->stamp.sequence);
    qos_bytes_put_u64(bytes, (guint64)message->stamp.rate);
    qos_bytes_put_u64(bytes, (guint64)message->stamp.floor);
    qos_bytes_put_u64(bytes, message->request);
    qos_bytes_put_u64(bytes, (guint64)message->delay);
    item_encode(&own, bytes);
    qos_bytes_put_u32(bytes, message->more != NULL ? message->more->len : 0);
    for (guint i = 0; message->more != NULL && i < message->more->len; i++)
        item_encode(&g_array_index(message->more, QosCreditItem, i), bytes);
}

static gboolean take_duration(const guint8 **bytes, gsize *length, gint64 *ret_value)
{
    guint64 value;

    if (!qos_bytes_take_u64(bytes, length, &value) || value > G_MAXINT64)
        return FALSE;
    *ret_value = (gint64)value;
    return TRUE;
}

static gboolean header_decode(QosCreditMessage *message, const guint8 **bytes, gsize *length)
{
    return qos_bytes_take_u8(bytes, length, &message->type) && message->type < QOS_MESSAGE_TYPES &&
           qos_bytes_take_u32(bytes, length, &message->flags) &&
           qos_bytes_take_u64(bytes, length, &message->session) &&
           qos_bytes_take_u32(bytes, length, &message->lender) &&
           qos_bytes_take_u64(bytes, length, &message->sequence) &&
           qos_bytes_take_u64(bytes, length, &message->acknowledged) &&
           qos_bytes_take_u64(bytes, length, &message->renewed) &&
           take_duration(bytes, length, &message->lease) &&
           qos_bytes_take_u64(bytes, length, &message->token) &&
           qos_bytes_take_u64(bytes, length, &message->stamp.sequence) &&
           take_duration(bytes, length, &message->stamp.rate) &&
           take_duration(bytes, length, &message->stamp.floor) &&
           qos_bytes_take_u64(bytes, length, &message->request) &&
           take_duration(bytes, length, &message->delay);
}

gboolean qos_credit_message_decode(QosCreditMessage *message, const guint8 *bytes, gsize length)
{
    QosCreditMessage decoded = {0};
    QosCreditItem item;
    guint32 count;

    if (!header_decode(&decoded, &bytes, &length) || !item_decode(&item, &bytes, &length))
        return FALSE;
    decoded.resource = item.resource;
    decoded.credit = item.credit;
    decoded.granted = item.token;
    decoded.proof = item.proof;
    gboolean is_whole = qos_bytes_take_u32(&bytes, &length, &count) && count <= QOS_CREDIT_BATCH;
    if (is_whole && count > 0)
        decoded.more = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
    for (guint i = 0; is_whole && i < count; i++) {
        is_whole = item_decode(&item, &bytes, &length);
        if (is_whole)
            g_array_append_val(decoded.more, item);
    }
    if (!is_whole || length > 0) {
        qos_credit_message_clear(&decoded);
        return FALSE;
    }
    *message = decoded;
    return TRUE;
}
