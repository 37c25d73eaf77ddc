/*
 * Lists of names with attributes (READDIRPLUS) that may still be on their way to the kernel, with a
 * lock server.
 *
 * The kernel dates a name that it looks up from when it asked, but a name in a list from when it
 * comes to it. A list may be sent before the credit of its directory is called back, and be read
 * after the epoch was raised (fs/coherence/invalidator.h). The kernel would believe its names,
 * although they are old. So the directory's credit is given back only when lists of it have
 * arrived.
 *
 * A thread takes a list before its call returns. So the list has arrived when the thread asks for
 * anything else, or when any thread reads on in the open directory or closes it. READ and WRITE
 * show nothing, because the kernel also sends them meanwhile, for a page fault or in the
 * background. A list that has not shown for long is late: nobody waits for it any more, and the
 * epoch is raised once more when it shows.
 *
 * Lock: `lock`; nothing is called under it.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>

typedef struct QosLists QosLists;

QosLists *qos_lists_new(void);
void qos_lists_free(QosLists *lists); /* NULL is allowed */

/* A list of `directory`, open as `handle`, is about to be sent to the thread `reader`, > 0. All
 * lists that were sent to that thread before have arrived. */
void qos_lists_note_sent(QosLists *lists, pid_t reader, gconstpointer handle, fuse_ino_t directory);
/* The list that was sent to the thread has arrived; with `handle`, only if it was sent by that.
 * TRUE if it was late. Cheap while no list is on its way. */
gboolean qos_lists_note_arrived(QosLists *lists, pid_t reader, gconstpointer handle);
/* Whether some of the directory are on their way, and not late. */
gboolean qos_lists_are_on_their_way(QosLists *lists, fuse_ino_t directory);
/* The directory's lists are late from now on. */
void qos_lists_note_late(QosLists *lists, fuse_ino_t directory);
