/*
 * The standard streams of a program that runs on, as its starter may have left them.
 */
#pragma once

/* Opens /dev/null as each standard stream that is closed: else a socket, or somebody's file, would
 * take its place, and what the program logs would go there. To be called before anything else is
 * opened. */
void qos_standard_streams_open(void);
