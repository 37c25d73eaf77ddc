/*
 * A mount from its command line to its end: the command that mount(8) starts, and the daemon that
 * the command becomes.
 */
#pragma once

/* Does what the command line of mount.qosfs says. The starter returns as soon as the mount is there
 * or has failed, the daemon when the mount has ended; each says on stderr or in the log what went
 * wrong. Returns the exit status, as mount(8) has them: 0, 1 (usage) or 32 (failed). */
int qos_mount_run(int argc, char **argv);
