/*
 * Resources and credits as bytes of a message: the first byte says what the rest is to be. Whatever
 * comes is refused, or is in normal form: it gives the same bytes again, and the operations on it
 * keep their laws.
 */
#include <glib.h>
#include <string.h>

#include "core/resource.h"

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static void check_resource(const guint8 *data, gsize size)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    const guint8 *at = data;
    gsize length = size;
    QosResource resource;

    if (!qos_resource_decode(&resource, &at, &length))
        return;
    qos_resource_encode(&resource, bytes);
    g_assert_cmpmem(bytes->data, bytes->len, data, size - length);
}

static void check_same_bytes(const QosResourceType *type, const QosCredit *credit,
                             const guint8 *data, gsize size)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    type->encode(credit, bytes);
    g_assert_cmpmem(bytes->data, bytes->len, data, size);
}

static void check_pair(const QosResourceType *type, const QosCredit *one, const QosCredit *other)
{
    QosCredit left = qos_credit_copy(type, one), enough = qos_credit_copy(type, one);
    QosCredit chosen = {0};

    type->yield(&left, other);
    g_assert_false(type->conflicts(&left, other));
    g_assert_true(type->matches(&left, one));
    type->diff(&enough, other);
    type->join(&enough, other);
    g_assert_true(type->matches(one, &enough));
    if (type->choose(one, other, &chosen))
        g_assert_true(type->matches(&chosen, other));
    qos_credit_clear(type, &left);
    qos_credit_clear(type, &enough);
    qos_credit_clear(type, &chosen);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    QosCredit one, other;

    if (size == 0)
        return 0;
    const QosResourceType *type = qos_resource_type(data[0]);
    const guint8 *at = data + 1;
    gsize length = size - 1;

    if (!type) {
        check_resource(at, length);
        return 0;
    }
    if (!type->decode(&one, &at, &length))
        return 0;
    check_same_bytes(type, &one, data + 1, size - 1 - length);
    g_free(qos_credit_text(type, &one));
    if (type->decode(&other, &at, &length)) {
        check_pair(type, &one, &other);
        qos_credit_clear(type, &other);
    }
    qos_credit_clear(type, &one);
    return 0;
}
