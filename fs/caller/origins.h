/*
 * Remembers the job with which each program was started.
 *
 * Some programs write over their environment to show a title (setproctitle, Perl's $0). Their job
 * can not be read there any more, nor in the processes that they fork.
 *
 * A program is recognised by its place in memory, which the kernel chooses at random at exec(2). A
 * forked copy has the same place, and was started with the same environment. Where the kernel does
 * not choose at random, `process` and `start` tell one process from the others.
 *
 * At most QOS_ORIGINS_MAX are remembered, and QOS_ORIGINS_USER for each user but root. Those that
 * were asked for longest ago are forgotten first. Pure; the caller locks.
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
