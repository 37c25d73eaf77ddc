/*
 * A cheaper event source for a peer's input than GIO's.
 *
 * GIO's source for a stream is a source within a source. Each time it is dispatched, GLib takes
 * both out of the loop and puts them back, which changes the loop's set of descriptors four times.
 * Then the loop turns once more because of these changes. That is six system calls beside the one
 * that reads.
 */
#pragma once

#include <gio/gio.h>

/* As g_pollable_input_stream_create_source() makes one: of the stream's input, which is a socket's
 * own or TLS upon it. `fd`: the socket, or what can be read while that can. Its callback runs no
 * main loop. The caller's to attach and to unref. */
GSource *qos_input_source_new(GIOStream *stream, int fd);
