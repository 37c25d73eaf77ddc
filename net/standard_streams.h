/*
 * The standard streams of a daemon. The program that started the daemon may have closed them, so
 * they must be opened before another file gets their descriptors.
 */
#pragma once

/* Opens /dev/null as each standard stream that is closed. Otherwise a socket or file would get its
 * descriptor, and the program's log would go there. To be called before anything else is opened. */
void qos_standard_streams_open(void);
