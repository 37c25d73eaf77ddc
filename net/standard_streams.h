/*
 * The standard streams of a daemon. The program that started the daemon may have closed them, so
 * they must be opened before another file gets their descriptors.
 */
#pragma once

/* Opens /dev/null as each standard stream that is closed: else a socket, or somebody's file, would
 * take its place, and what the program logs would go there. To be called before anything else is
 * opened. */
void qos_standard_streams_open(void);
