/*
 * Reads and writes the numbers in messages and files: little-endian, of fixed size, one after
 * another. Reading never goes past the end of the buffer.
 */
#pragma once

#include <glib.h>
#include <string.h>

/* Takes `size` bytes from the front of `bytes`; FALSE, with nothing taken, where there are fewer.
 */
static inline gboolean qos_bytes_take(const guint8 **bytes, gsize *length, gpointer to, gsize size)
{
    if (*length < size)
        return FALSE;
    memcpy(to, *bytes, size);
    *bytes += size;
    *length -= size;
    return TRUE;
}

static inline void qos_bytes_put_u8(GByteArray *bytes, guint8 value)
{
    g_byte_array_append(bytes, &value, sizeof(value));
}

static inline void qos_bytes_put_u32(GByteArray *bytes, guint32 value)
{
    value = GUINT32_TO_LE(value);
    g_byte_array_append(bytes, (const guint8 *)&value, sizeof(value));
}

static inline void qos_bytes_put_u64(GByteArray *bytes, guint64 value)
{
    value = GUINT64_TO_LE(value);
    g_byte_array_append(bytes, (const guint8 *)&value, sizeof(value));
}

static inline gboolean qos_bytes_take_u8(const guint8 **bytes, gsize *length, guint8 *ret_value)
{
    return qos_bytes_take(bytes, length, ret_value, sizeof(*ret_value));
}

static inline gboolean qos_bytes_take_u32(const guint8 **bytes, gsize *length, guint32 *ret_value)
{
    if (!qos_bytes_take(bytes, length, ret_value, sizeof(*ret_value)))
        return FALSE;
    *ret_value = GUINT32_FROM_LE(*ret_value);
    return TRUE;
}

static inline gboolean qos_bytes_take_u64(const guint8 **bytes, gsize *length, guint64 *ret_value)
{
    if (!qos_bytes_take(bytes, length, ret_value, sizeof(*ret_value)))
        return FALSE;
    *ret_value = GUINT64_FROM_LE(*ret_value);
    return TRUE;
}
