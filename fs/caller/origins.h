/*
 * What job programs were started with: remembered for those that write over their environment to
 * show a title (setproctitle, Perl's $0), and for the processes that they fork.
 *
 * A program is known by where it lies in memory, which the kernel chooses at random when it starts
 * (exec). A copy (fork) lies in the same place, and was started with the same environment. Where
 * the kernel does not choose at random, `process` and `start` tell one process from the others.
 *
 * Bounded: QOS_ORIGINS_MAX in all, and QOS_ORIGINS_USER of one user but root; what was not asked
 * for for longest goes first. Pure; the caller locks.
 */
#pragma once

#include <glib.h>

#define QOS_ORIGINS_MAX  16384
#define QOS_ORIGINS_USER 2048

/* The addresses of its code, its stack and its environment; no `environment`: unknown. */
typedef struct {
    guint64 code, stack, environment, environment_end;
    guint64 process, start; /* 0: the addresses are random */
} QosImage;

typedef struct QosOrigins QosOrigins;

QosOrigins *qos_origins_new(void);
void qos_origins_free(QosOrigins *origins);
void qos_origins_clear(QosOrigins *origins);
guint qos_origins_count(const QosOrigins *origins);

/* Does nothing for an unknown image. */
void qos_origins_remember(QosOrigins *origins, const QosImage *image, guint32 uid, const char *job,
                          guint nodes);
/* The job, to be freed, or NULL. */
char *qos_origins_find(QosOrigins *origins, const QosImage *image, guint *ret_nodes);
