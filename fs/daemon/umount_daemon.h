/*
 * The daemon of a mount, as the helper of umount(8) sees it. The helper asks the mount for its
 * daemon while the mount is there, and waits for the daemon's end when the mount is gone.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

typedef struct {
    pid_t pid;
    int handle;  /* a pidfd; -1: the daemon is not known, and there is nothing to wait for */
    char *mount; /* its identity (sys/mounts.h), owned */
} QosUmountDaemon;

/* Asks the mount on `directory` for its daemon. In vain, after a short while, where that hangs or
 * is gone, or is in another namespace of processes. */
QosUmountDaemon qos_umount_daemon_find(const char *directory);
/* Waits until it has ended, for so many seconds, and says so on stderr unless it is `quiet`. Not at
 * all where the file system is mounted elsewhere, too. */
void qos_umount_daemon_await(const QosUmountDaemon *daemon, const char *directory, int seconds,
                             gboolean quiet);
void qos_umount_daemon_clear(QosUmountDaemon *daemon);
