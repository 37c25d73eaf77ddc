/*
 * The daemon as a process: its log, its place in the background, its limits.
 */
#pragma once

#include "base/time.h"

typedef struct {
    gint is_up;          /* atomic; in the background, stderr is the starter's until then */
    gboolean background; /* the log goes to syslog */
    gboolean verbose;
    int verdict;                  /* a pipe to the waiting starter, or -1 */
    void (*at_mount)(void *data); /* run beside the daemon when the mount is there; or NULL */
    void *data;
} QosDaemon;

/* Takes over g_log() and libfuse's log: they go to stderr, one line each; and standard streams that
 * are closed, as /dev/null. It also has old TLS versions refused (net/tls.h). First of all.
 * `daemon` must stay. */
void qos_daemon_init(QosDaemon *daemon, gboolean verbose);

/*
 * Goes on in a child of its own session. Returns there, or -1 with errno set; the starter waits for
 * qos_daemon_is_up() and then ends with 0, or with the child's exit status. Until then the child's
 * stderr is the starter's, so that errors reach the mounting user. Call it before any thread or
 * descriptor is made: inherited descriptors are closed, lest they be held for as long as the mount.
 */
int qos_daemon_background(QosDaemon *daemon);
/* Stays in the foreground: where there is something to run when the mount is there, another process
 * waits for that. Also before any thread is made. */
void qos_daemon_foreground(QosDaemon *daemon);
/* The mount is there: lets the starter and any other waiting process go on. Any thread. */
void qos_daemon_is_up(QosDaemon *daemon);

/* As many descriptors as may be had, no memory reclaim through the own mount, and what makes each
 * request cheaper. Before threads are made. */
void qos_daemon_prepare(void);
/* How many requests the kernel lets be under way in the background where `asked` are asked for. */
guint qos_daemon_background_room(guint asked);
/* After how long the kernel takes a request's absence as the daemon's death; QOS_NEVER = never. */
QosTime qos_daemon_request_timeout(void);
