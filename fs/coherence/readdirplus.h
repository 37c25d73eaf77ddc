/*
 * Lists of names with attributes (READDIRPLUS) that the kernel may not have come to yet, with a
 * lock server.
 *
 * The kernel dates a name that it looks up from when it asked, but one of a list from when it comes
 * to it: a list that was sent before the credit of its directory was called back, and is come to
 * after the epoch was raised (fs/coherence/invalidator.h), would be believed. So who gives that
 * credit back waits until lists of the directory have arrived.
 *
 * A thread takes a list before its call returns. So the list has arrived when the thread asks for
 * anything else, and when somebody reads on in the open directory, or closes it. READ and WRITE
 * tell nothing: the kernel sends them meanwhile too, for a page fault or in the background. Where
 * nothing shows for long the list is late: nobody waits for it any more, and the epoch is to be
 * raised once more when it shows.
 *
 * Lock: `lock`; nothing is called under it.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>

typedef struct QosLists QosLists;

QosLists *qos_lists_new(void);
void qos_lists_free(QosLists *lists); /* NULL is allowed */

/* One of `directory`, open as `handle`, is about to be sent to the thread `reader`, > 0, all of
 * whose lists have arrived. */
void qos_lists_note_sent(QosLists *lists, pid_t reader, gconstpointer handle, fuse_ino_t directory);
/* The one that was sent to the thread, and if `handle` is not NULL by that, has arrived. TRUE where
 * it was late. Cheap where none is on its way. */
gboolean qos_lists_note_arrived(QosLists *lists, pid_t reader, gconstpointer handle);
/* Whether some of the directory are on their way, and not late. */
gboolean qos_lists_are_on_their_way(QosLists *lists, fuse_ino_t directory);
/* Those are late from now on. */
void qos_lists_note_late(QosLists *lists, fuse_ino_t directory);
