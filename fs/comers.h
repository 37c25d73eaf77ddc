/*
 * Those who come by the name of a file with whose lock requests of others wait, and those who are
 * told news of a file and may come to wait for its pages, or for its lock: when each is looked at,
 * and whether he waits (ops/approaches.h tells what for).
 *
 * A thread that has come so is looked at soon after, then ever later, for some seconds; and all the
 * time while it sleeps as for a lock. Who slept in QOS_COMER_SLEEPS looks on end waits: a shorter
 * sleep may be for a page of memory. Of news only those count that he was told last: one answer may
 * be a list, with news of many files.
 *
 * There is room for QOS_COMERS_MAX threads, shared as fs/places.h says. Who finds none may wait for
 * the lock. Looks take time too, and who is due takes turns (fs/turns.h): who comes with many
 * threads is looked at later, and others are not.
 *
 * Pure; the caller locks.
 */
#pragma once

#include "fs/account.h"

#define QOS_COMERS_MAX       1024
#define QOS_COMER_FIRST_LOOK (2 * QOS_MILLISECOND)
/* Between two looks at one who sleeps: what waits there meanwhile goes at the next. */
#define QOS_COMER_LOOK_ON (50 * QOS_MILLISECOND)
/* Beyond such a pause he does not come for the lock. */
#define QOS_COMER_LAST_PAUSE (4 * QOS_SECOND)
#define QOS_COMER_SLEEPS     2
#define QOS_COMER_FILES      2   /* that a thread may take at once, as rename(2) does */
#define QOS_COMER_TOLD       256 /* of more files one answer hardly tells; of those the last */

typedef struct QosComers QosComers;

/* A file that a thread was told news of, and its size then. */
typedef struct {
    guint64 file;
    gint64 size;
} QosTold;

/* One that waits. */
typedef struct {
    QosJob *job;                    /* a reference */
    guint64 files[QOS_COMER_FILES]; /* for the lock of one of these; 0: none */
    GArray *told; /* of QosTold: or for that, or pages, of one of these; a reference */
} QosComer;

void qos_comer_clear(QosComer *comer);

QosComers *qos_comers_new(void);
void qos_comers_free(QosComers *comers); /* NULL is allowed */

/* `thread` (> 0) has looked `file` up for `job` and `user` (NULL: one whom nothing bounds). Returns
 * when he is to be looked at; QOS_NEVER: he found no room. */
QosTime qos_comers_note(QosComers *comers, gint thread, guint64 file, QosJob *job, QosUser *user,
                        QosTime now);
/* The answer to its request of that number is about to tell `thread` news of a file. Likewise. */
QosTime qos_comers_tell(QosComers *comers, gint thread, guint64 request, QosTold told, QosJob *job,
                        QosUser *user, QosTime now);
/* How many wait. */
guint qos_comers_waiting(const QosComers *comers);
/* Whether one waits for the lock of `file`, for another job than `job`. */
gboolean qos_comers_wait_for(const QosComers *comers, guint64 file, const QosJob *job);
/* Whether one, another than `thread`, waits for pages of `file` before `end`. */
gboolean qos_comers_wait_for_pages(const QosComers *comers, guint64 file, gint64 end, gint thread);

/* The thread that is to be looked at now, and to be told of by qos_comers_seen(); or 0, until
 * `*ret_wake` unless somebody is noted meanwhile. */
gint qos_comers_next(QosComers *comers, QosTime now, QosTime *ret_wake);
/* What it did, as /proc says: 'D' where it sleeps as for a lock, 0 where it is gone. TRUE: it
 * waits, and `*ret_comer` is the caller's. Does nothing with one that is not watched any more. */
gboolean qos_comers_seen(QosComers *comers, gint thread, char state, QosTime now,
                         QosComer *ret_comer);
