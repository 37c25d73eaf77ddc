/*
 * Event sources for input. net/input.h has the contract.
 */
#include "net/input.h"

GSource *qos_input_source_new(GIOStream *stream, int fd)
{
    GInputStream *input = g_io_stream_get_input_stream(stream);
    GSource *source;

    if (G_IS_TLS_CONNECTION(stream)) /* which may have read more than it has handed out */
        return g_pollable_input_stream_create_source(G_POLLABLE_INPUT_STREAM(input), NULL);
    source = g_pollable_source_new(G_OBJECT(input));
    g_source_add_unix_fd(source, fd, G_IO_IN | G_IO_HUP | G_IO_ERR);
    g_source_set_can_recurse(source, TRUE); /* else it is taken out of the loop meanwhile */
    return source;
}
