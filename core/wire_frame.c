/*
 * Frames and short texts to bytes and back, for all files of the wire.
 */
#include "core/wire_frame.h"

#include "base/bytes.h"

gsize qos_wire_begin(GByteArray *bytes, guint8 type)
{
    gsize at = bytes->len;

    qos_bytes_put_u32(bytes, 0);
    qos_bytes_put_u8(bytes, type);
    return at;
}

void qos_wire_end(GByteArray *bytes, gsize at)
{
    guint32 length = GUINT32_TO_LE((guint32)(bytes->len - at - QOS_WIRE_LENGTH_SIZE));

    memcpy(bytes->data + at, &length, sizeof(length));
}

void qos_wire_put_text(GByteArray *bytes, const char *text)
{
    gsize length = strlen(text);

    g_assert(length <= G_MAXUINT8);
    qos_bytes_put_u8(bytes, (guint8)length);
    g_byte_array_append(bytes, (const guint8 *)text, (guint)length);
}

gboolean qos_wire_take_text(const guint8 **bytes, gsize *length, char *ret_text, gsize most)
{
    guint8 size;

    if (!qos_bytes_take_u8(bytes, length, &size) || size > most ||
        !qos_bytes_take(bytes, length, ret_text, size) ||
        !g_utf8_validate_len(ret_text, size, NULL))
        return FALSE;
    ret_text[size] = '\0';
    for (const char *next = ret_text; *next != '\0'; next = g_utf8_next_char(next)) {
        if (g_unichar_iscntrl(g_utf8_get_char(next)))
            return FALSE;
    }
    return TRUE;
}
