/*
 * The names of resources, their total order, and what credits of all types have in common.
 */
#include "core/resource.h"

#include "base/bytes.h"

void qos_resource_init(QosResource *resource, QosResourceTypeId type, gconstpointer name,
                       gsize length)
{
    *resource = (QosResource){.type = type, .length = MIN(length, sizeof(resource->name))};
    memcpy(resource->name, name, resource->length);
}

void qos_resource_init_kind(QosResource *resource, QosResourceTypeId type, guint8 kind,
                            gconstpointer subject, gsize length)
{
    guint8 name[sizeof(resource->name)] = {kind};

    length = MIN(length, sizeof(name) - 1);
    memcpy(name + 1, subject, length);
    qos_resource_init(resource, type, name, length + 1);
}

gint qos_resource_compare(const QosResource *one, const QosResource *other)
{
    gint order = memcmp(one->name, other->name, sizeof(one->name));

    if (one->type != other->type)
        return one->type - other->type;
    return order != 0 ? order : one->length - other->length;
}

guint qos_resource_hash(gconstpointer resource)
{
    const guint8 *bytes = resource;
    guint64 hash = 0;
    guint64 word;

    G_STATIC_ASSERT(sizeof(QosResource) % sizeof(word) == 0);
    for (gsize i = 0; i < sizeof(QosResource); i += sizeof(word)) {
        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return (guint)hash;
}

gboolean qos_resource_equal(gconstpointer one, gconstpointer other)
{
    return memcmp(one, other, sizeof(QosResource)) == 0;
}

void qos_resource_encode(const QosResource *resource, GByteArray *bytes)
{
    qos_bytes_put_u8(bytes, resource->type);
    qos_bytes_put_u8(bytes, resource->length);
    g_byte_array_append(bytes, resource->name, resource->length);
}

gboolean qos_resource_decode(QosResource *resource, const guint8 **bytes, gsize *length)
{
    QosResource decoded = {0};

    if (!qos_bytes_take_u8(bytes, length, &decoded.type) ||
        !qos_bytes_take_u8(bytes, length, &decoded.length) || !qos_resource_type(decoded.type) ||
        decoded.length > sizeof(decoded.name) ||
        !qos_bytes_take(bytes, length, decoded.name, decoded.length))
        return FALSE;
    *resource = decoded;
    return TRUE;
}

QosCredit qos_credit_span(guint64 first, guint64 last, gboolean writes)
{
    const QosSpan span = {.first = first, .last = last, .writes = writes};

    return (QosCredit){.spans = g_memdup2(&span, sizeof(span)), .count = 1};
}

QosCredit qos_credit_copy(const QosResourceType *type, const QosCredit *credit)
{
    QosCredit copy = *credit;

    if (type->shape == QOS_SHAPE_SPANS)
        copy.spans = g_memdup2(credit->spans, credit->count * sizeof(QosSpan));
    return copy;
}

void qos_credit_clear(const QosResourceType *type, QosCredit *credit)
{
    if (type->shape == QOS_SHAPE_SPANS)
        g_free(credit->spans);
    *credit = (QosCredit){0};
}

gsize qos_credit_size(const QosResourceType *type, const QosCredit *credit)
{
    if (type->shape != QOS_SHAPE_SPANS || credit->count == 0)
        return 0;
    return credit->count * sizeof(QosSpan) + sizeof(gsize);
}

guint64 qos_credit_count(const QosResourceType *type, const QosCredit *credit)
{
    guint64 count = 0;

    if (type->shape == QOS_SHAPE_AMOUNT)
        return credit->amount;
    for (guint i = 0; i < credit->count; i++) {
        guint64 less_one = credit->spans[i].last - credit->spans[i].first;
        if (less_one >= G_MAXUINT64 - count)
            return G_MAXUINT64;
        count += less_one + 1;
    }
    return count;
}

QosCredit qos_credit_of_count(const QosResourceType *type, guint64 count)
{
    if (type->shape == QOS_SHAPE_AMOUNT)
        return (QosCredit){.amount = count};
    return count > 0 ? qos_credit_span(0, count - 1, TRUE) : (QosCredit){0};
}

gboolean qos_credit_is_sendable(const QosResourceType *type, const QosCredit *credit)
{
    return type->shape != QOS_SHAPE_SPANS || credit->count <= QOS_CREDIT_SPANS_MAX;
}

gboolean qos_credit_is_empty(const QosResourceType *type, const QosCredit *credit)
{
    return type->matches(credit, &(const QosCredit){0});
}

gboolean qos_credit_equal(const QosResourceType *type, const QosCredit *one, const QosCredit *other)
{
    return type->matches(one, other) && type->matches(other, one);
}

guint64 qos_credit_offset(const QosResourceType *type, const QosCredit *credit)
{
    return type->shape == QOS_SHAPE_SPANS && credit->count > 0 ? credit->spans[0].first : 0;
}

char *qos_credit_text(const QosResourceType *type, const QosCredit *credit)
{
    if (qos_credit_is_empty(type, credit))
        return g_strdup("-");
    if (type->shape == QOS_SHAPE_MODES)
        return g_strdup_printf("r%xw%x", credit->reads, credit->writes);
    if (type->shape == QOS_SHAPE_AMOUNT)
        return g_strdup_printf("%" G_GUINT64_FORMAT, credit->amount);
    GString *text = g_string_new(NULL);
    for (const QosSpan *span = credit->spans; span < credit->spans + credit->count; span++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT "-%" G_GUINT64_FORMAT "%c",
                               text->len > 0 ? "," : "", span->first, span->last,
                               span->writes ? 'w' : 'r');
    return g_string_free(text, FALSE);
}
