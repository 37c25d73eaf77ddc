/*
 * Which jobs have which files open.
 *
 * While a request on a file is under way the kernel holds a lock of the file or of its pages. Where
 * other jobs have the file open, it must not wait, lest they wait with it
 * (docs/design/isolation.md, "What holds a lock does not wait"); a file of one job alone is
 * nobody else's business. So each open file knows whether it is shared, and the first open of each
 * job is told of, because requests of others may be waiting: also of those who have it not open,
 * but name it.
 *
 * Lock: `lock` of the openers.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/jobs.h"

typedef struct QosOpeners QosOpeners;
typedef struct QosOpenFile QosOpenFile;

QosOpeners *qos_openers_new(void);
/* All have left. NULL is allowed. */
void qos_openers_free(QosOpeners *openers);

/* `job` opens `ino`, until qos_openers_leave(). *ret_is_new: it did not have it open. */
QosOpenFile *qos_openers_join(QosOpeners *openers, fuse_ino_t ino, QosJob *job,
                              gboolean *ret_is_new);
void qos_openers_leave(QosOpenFile *file, QosJob *job); /* NULL is allowed */

/* TRUE where several jobs have it open. Without the lock: every READ and WRITE asks. */
gboolean qos_open_file_is_shared(const QosOpenFile *file); /* NULL is allowed */
/* TRUE where another job than `job`, which is not looked into, has `ino` open. Where nobody has, it
 * takes no lock; likewise below. */
gboolean qos_openers_has_others(QosOpeners *openers, fuse_ino_t ino, const QosJob *job);
/* TRUE where one alone has it open, and that is another than `job`. */
gboolean qos_openers_is_of_another(QosOpeners *openers, fuse_ino_t ino, const QosJob *job);
