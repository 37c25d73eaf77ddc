/*
 * Which jobs have which files open.
 *
 * While a request on a file is under way, the kernel holds a lock of the file or of its pages. If
 * other jobs have the file open, the request must not wait, because they would wait with it
 * (docs/design/isolation.md, "What holds a lock does not wait"). A file that one job alone has open
 * concerns no other job. So each open file knows whether it is shared. The first open of each job
 * is told, because requests of others may be waiting then. Jobs that have the file not open, but
 * name it, may want its lock too.
 *
 * Lock: `lock` of QosOpenJobs.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/jobs.h"

typedef struct QosOpenJobs QosOpenJobs;
typedef struct QosFileJobs QosFileJobs;

QosOpenJobs *qos_open_jobs_new(void);
/* All have left. NULL is allowed. */
void qos_open_jobs_free(QosOpenJobs *open_jobs);

/* `job` opens `ino`, until qos_open_jobs_leave(). *ret_is_new: it did not have it open. */
QosFileJobs *qos_open_jobs_join(QosOpenJobs *open_jobs, fuse_ino_t ino, QosJob *job,
                                gboolean *ret_is_new);
void qos_open_jobs_leave(QosFileJobs *file, QosJob *job); /* NULL is allowed */

/* TRUE where several jobs have it open. Without the lock: every READ and WRITE asks. */
gboolean qos_file_jobs_are_several(const QosFileJobs *file); /* NULL is allowed */
/* TRUE where another job than `job`, which is not looked into, has `ino` open. Where nobody has, it
 * takes no lock; likewise below. */
gboolean qos_open_jobs_has_others(QosOpenJobs *open_jobs, fuse_ino_t ino, const QosJob *job);
/* TRUE where one alone has it open, and that is another than `job`. */
gboolean qos_open_jobs_is_of_another(QosOpenJobs *open_jobs, fuse_ino_t ino, const QosJob *job);
