/*
 * Uses of inodes' credits that take no lock.
 *
 * A mount that has a store to itself has whole groups of inodes (core/credit_sublet.c), and uses
 * some of one with each operation. A *grip* is one hold of a whole group, under which such uses are
 * counted by atomics alone:
 *
 *     open    the engine holds the whole group, and nobody else wants any of it. A use marks its
 *             place.
 *     shut    somebody wants some of it, or it was open for a second: no more uses begin. The
 *             engine holds just the places that are marked, as if each use had a hold of its own,
 *             and fewer as they end; then the grip is free for any group.
 *
 * A use marks its place, and then looks whether the grip is open. The thread that shuts a grip says
 * so, and then looks at the marks. So either the mark is seen, and held on, or the use finds the
 * grip shut and takes the engine's way instead. A mark that is left by such a one, or from before a
 * loss, is held on if at all as long as it is there, and does no other harm.
 *
 * There are few grips, and one place for each group: what finds it taken, or a whole group not had,
 * goes the engine's way, as everything did.
 *
 * Functions above the line are any thread's, those below under the lock of the engine. Pure.
 */
#pragma once

#include <stdatomic.h>

#include "core/credit.h"

#define QOS_LOCKGRIPS      64
#define QOS_LOCKGRIP_MARKS 16

typedef struct QosLockgrip {
    _Atomic guint64 group; /* the resource's name */
    _Atomic guint allows;  /* what may begin; 0: nothing, it is shut */
    _Atomic guint64 uses;  /* so far */
    _Atomic guint64 marks[QOS_LOCKGRIP_MARKS];
    QosHold hold; /* the engine's */
} QosLockgrip;

/* Embedded, zeroed. */
typedef struct {
    QosLockgrip all[QOS_LOCKGRIPS];
} QosLockgrips;

/* Marks `want`, one inode of the group `resource`. NULL: there is no open grip for it, or no room.
 * Else it is held if qos_lockgrips_is_open() then says so; *ret_mark is for the next. */
QosLockgrip *qos_lockgrips_mark(QosLockgrips *grips, const QosResource *resource,
                                const QosCredit *want, guint *ret_mark);
/* Takes the mark back. TRUE: the grip is shut, and is to be narrowed (qos_lockengine_narrow). */
gboolean qos_lockgrip_unmark(QosLockgrip *grip, guint mark);
/* There is an open grip by which `want` is held. */
gboolean qos_lockgrips_is_open(QosLockgrips *grips, const QosResource *resource,
                               const QosCredit *want);

/* --- */

/* That for the group, which may be another's now. */
QosLockgrip *qos_lockgrips_find(QosLockgrips *grips, const QosResource *resource);
gboolean qos_lockgrip_is_shut(const QosLockgrip *grip);
/* It is open on the group, and only to read. */
gboolean qos_lockgrip_only_reads(const QosLockgrip *grip, const QosResource *resource);
/* All of the group is held: `writes`, or to read. */
void qos_lockgrip_open(QosLockgrip *grip, const QosResource *resource, gboolean writes);
/* NULL where there is none of the resource. The grip is to be narrowed. */
QosLockgrip *qos_lockgrips_shut(QosLockgrips *grips, const QosResource *resource);
/* Shuts it. FALSE: it was not open. */
gboolean qos_lockgrip_shut(QosLockgrip *grip);
/* What is held and marked; cleared by the caller. */
QosCredit qos_lockgrip_used(const QosLockgrip *grip);
/* So far, by all. */
guint64 qos_lockgrips_uses(const QosLockgrips *grips);
