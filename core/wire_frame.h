/*
 * What the files of the wire share: frames and short texts as bytes. core/wire.h has their format.
 */
#pragma once

#include <glib.h>

#define QOS_WIRE_LENGTH_SIZE sizeof(guint32)

/* Appends the head of a frame of that type; returns where it begins. */
gsize qos_wire_begin(GByteArray *bytes, guint8 type);
/* Sets the length of the frame, or message, that begins at `at` and ends with `bytes`. */
void qos_wire_end(GByteArray *bytes, gsize at);
/* Appends a text of up to 255 bytes, which is valid. */
void qos_wire_put_text(GByteArray *bytes, const char *text);
/* FALSE where there is none, or it has control characters. `ret_text` has room for `most` bytes and
 * the NUL. */
gboolean qos_wire_take_text(const guint8 **bytes, gsize *length, char *ret_text, gsize most);
