/*
 * Waiting for what a peer says, without what GLib does around it. The source that GIO makes for a
 * stream is a source within a source: each time that it is dispatched, GLib takes both out of the
 * loop and puts them back, tells the loop of it four times, and the loop turns once more for that:
 * six system calls beside the one that reads.
 */
#pragma once

#include <gio/gio.h>

/* As g_pollable_input_stream_create_source() makes one: of the stream's input, which is a socket's
 * own or TLS upon it. `fd`: the socket, or what can be read while that can. Its callback runs no
 * main loop. The caller's to attach and to unref. */
GSource *qos_input_source_new(GIOStream *stream, int fd);
