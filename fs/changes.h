/*
 * Tells whether a change that a file shows is the mount's own, or came from elsewhere.
 *
 * The problem: the kernel drops its pages of a file when an answer brings another mtime or size,
 * and at an OPEN that does not keep them. If the mount itself made the change, the pages already
 * have it. They may even be newer than the store, because a write puts its data into a page and
 * lets the page go before its WRITE is answered. A page that is dropped in between is read again
 * from the store, and shows what was there before the write (docs/design/coherence.md). So pages
 * must be dropped only for a change from elsewhere.
 *
 * A file's mtime and size are compared with what was last seen of them. If one of them differs and
 * the mount has changed nothing since, the change came from elsewhere. If the mount has changed the
 * file since, it depends on the store:
 *
 *   - On a local store the clock that stamps files is this machine's. The mtime of an own change
 *     lies between the change's beginning, less a tick of that clock, and its end; any other mtime
 *     came from elsewhere. The mount looks before each change of its own. So a change from
 *     elsewhere hides behind an own one only if both fall into one tick or one system call.
 *   - On other stores every new mtime or size counts as the mount's own.
 *
 * After an own change the kernel is "untold" until an answer brings the new mtime. Such an answer
 * makes the kernel drop its pages. So the answer is withheld from the kernel's memory, although the
 * caller of stat(2) gets it. It is withheld until the file has been quiet for a while, and no READ
 * or WRITE of its pages is under way.
 *
 * Mode and owners do not matter here: changes of them are told in any case.
 *
 * Pure: no lock, no clock, no I/O.
 */
#pragma once

#include <glib.h>

#include "base/time.h"

/* By what a file is seen to have changed. */
typedef struct {
    gint64 modified; /* ns since 1970 */
    gint64 size;
} QosStamp;

/* One moment by two clocks. */
typedef struct {
    QosTime now; /* monotonic */
    gint64 wall; /* ns since 1970 */
} QosMoment;

typedef struct {
    QosStamp seen;       /* `size` < 0: nothing yet */
    QosTime seen_at;     /* `now` */
    gint64 from, to;     /* `wall`: own changes since then began and ended; from > to: none did */
    QosTime changed_at;  /* `now`: when an own change last began or ended */
    guint running;       /* own changes that are in the store */
    guint under_way;     /* WRITEs of pages, from the request to its answer */
    guint kept;          /* the same and READs: a write that has put its data into other pages may
                            wait for these */
    QosTime kept_at;     /* `now`: when one of them last ended */
    guint writers;       /* opens by which such may come */
    gboolean is_untold;  /* the kernel does not know the mtime of an own change */
    gboolean is_foreign; /* pages are older than a change from elsewhere */
    gboolean is_astray;  /* so is the size that the kernel knows, also after an OPEN */
    QosTime foreign_at;  /* since when that is known */
    gboolean may_repeat; /* what was seen may be followed by a change that looks the same */
    gboolean is_local;   /* the store */
    QosTime patience;    /* so long a change from elsewhere waits for a WRITE that is under way */
} QosChanges;

void qos_changes_init(QosChanges *changes, gboolean is_local, QosTime patience);

/* The pages are older than a change from elsewhere, or may be. */
void qos_changes_note_foreign(QosChanges *changes, QosTime now);

/* An own write appends at the end, `size`, and the kernel takes it for one at `offset`: if these
 * differ, the kernel does not know what comes to lie at the end, as if it came from elsewhere. */
void qos_changes_append(QosChanges *changes, gint64 offset, gint64 size, QosTime now);

/* An own change begins; ends. */
void qos_changes_begin(QosChanges *changes, QosMoment moment);
void qos_changes_end(QosChanges *changes, QosMoment moment);

/* The file is `stamp`, by a look that began at `asked`. */
void qos_changes_look(QosChanges *changes, const QosStamp *stamp, QosTime asked, QosMoment moment);
/* The same for an answer with attributes. FALSE: the kernel must not remember it. */
gboolean qos_changes_may_tell(QosChanges *changes, const QosStamp *stamp, QosTime asked,
                              QosMoment moment);
/* The same for the answer to a SETATTR: the kernel takes the mtime from it, and drops nothing. The
 * program that asked may be slow to come to it, so that other answers are withheld as before. */
void qos_changes_told(QosChanges *changes, const QosStamp *stamp, QosTime asked, QosMoment moment);
/* The same for an OPEN. FALSE: it must drop the kernel's pages. */
gboolean qos_changes_keep(QosChanges *changes, const QosStamp *stamp, QosTime asked,
                          QosMoment moment);
