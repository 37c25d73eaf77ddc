/*
 * Lists of names with attributes (READDIRPLUS) that may still be on their way to the kernel, with a
 * lock server.
 *
 * The kernel dates a name that it looks up from when it asked, but a name in a reply from when it
 * comes to it. A reply may be sent before the credit of its directory is called back, and be read
 * after the epoch was raised (fs/coherence/invalidator.h). The kernel would believe its names,
 * although they are old. So the directory's credit is given back only when replies of it have
 * arrived.
 *
 * A thread takes a reply before its call returns. So the reply has arrived when the thread asks for
 * anything else, or when any thread reads on in the open directory or closes it. READ and WRITE
 * show nothing, because the kernel also sends them meanwhile, for a page fault or in the
 * background. A reply that has not shown for long is overdue: nobody waits for it any more, and the
 * epoch is raised once more when it shows.
 *
 * Lock: `lock`; nothing is called under it.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>

typedef struct QosReaddirplus QosReaddirplus;

QosReaddirplus *qos_readdirplus_new(void);
void qos_readdirplus_free(QosReaddirplus *readdirplus); /* NULL is allowed */

/* A reply of `directory`, open as `open_file`, is about to be sent to the thread `reader`, > 0. All
 * replies that were sent to that thread before have arrived. */
void qos_readdirplus_note_sent(QosReaddirplus *readdirplus, pid_t reader, gconstpointer open_file,
                               fuse_ino_t directory);
/* The reply that was sent to the thread has arrived; with `open_file`, only if it was sent by that.
 * TRUE if it was overdue. Cheap while no reply is on its way. */
gboolean qos_readdirplus_note_arrived(QosReaddirplus *readdirplus, pid_t reader,
                                      gconstpointer open_file);
/* Whether some of the directory are on their way, and not overdue. */
gboolean qos_readdirplus_is_in_flight(QosReaddirplus *readdirplus, fuse_ino_t directory);
/* The directory's replies are overdue from now on. */
void qos_readdirplus_note_overdue(QosReaddirplus *readdirplus, fuse_ino_t directory);
