/*
 * Uses of inodes' credits that take no lock.
 *
 * A mount that has a store to itself has whole groups of inodes (core/credit_sublet.c), and uses
 * some of one with each operation. A *fast path* is one hold of a whole group, under which such
 * uses are counted by atomics alone:
 *
 *     open    the engine holds the whole group, and nobody else wants any of it. A use pins its
 *             place.
 *     closed  somebody wants some of it, or it was open for a second: no more uses begin. The
 *             engine holds just the places that are pinned, as if each use had a hold of its own,
 *             and fewer as they are unpinned; then the fast path is free for any group.
 *
 * A use pins its place, and then looks whether the fast path is open. The thread that closes it
 * says so, and then looks at the pins. So either the pin is seen, and held on, or the use finds the
 * fast path closed and takes the engine's way instead. A pin that is left by such a use, or from
 * before a loss, is held on if at all as long as it is there, and does no other harm.
 *
 * There are few fast paths, and one place for each group: what finds it taken, or a whole group not
 * had, goes the engine's way, as everything did.
 *
 * What this gains: a get and a put take 67 ns of CPU time instead of 280, and to ask whether
 * something is here 46 instead of 225. An operation does one (a write) to twelve (a file of untar).
 * By that, rows of `bench/cluster lone` should lose 2 to 4 % without fast paths. They were measured
 * by CPU time on one CPU, by turns, on a busy machine: median ratios of a run of 10 rounds and of
 * one of 4. Unlink by 4 clients came to 0.94 and 0.94, ls -l to 0.95 and 0.94, create by 4 clients
 * to 0.92 and 0.97, untar to 0.96 and 0.81, a direct 4K write to 0.93 and 1.20. So noise hides
 * whether it is more than 5 %. The wall clock was not measured.
 *
 * Functions above the line are any thread's, those below under the lock of the engine. Pure.
 */
#pragma once

#include <stdatomic.h>

#include "core/credit.h"

#define QOS_FASTPATHS     64
#define QOS_FASTPATH_PINS 16

typedef struct QosFastpath {
    _Atomic guint64 group; /* the resource's name */
    _Atomic guint allows;  /* what may begin; 0: nothing, it is closed */
    _Atomic guint64 uses;  /* so far */
    _Atomic guint64 pins[QOS_FASTPATH_PINS];
    QosHold hold; /* the engine's */
} QosFastpath;

/* Embedded, zeroed. */
typedef struct {
    QosFastpath all[QOS_FASTPATHS];
} QosFastpaths;

/* Pins `want`, one inode of the group `resource`. NULL: no fast path is open for it, or no room.
 * Else it is held if qos_fastpaths_is_open() then says so; *ret_pin is for the next. */
QosFastpath *qos_fastpaths_pin(QosFastpaths *fastpaths, const QosResource *resource,
                               const QosCredit *want, guint *ret_pin);
/* Takes the pin back. TRUE: the fast path is closed, and qos_lockengine_unpin() is to follow. */
gboolean qos_fastpath_unpin(QosFastpath *path, guint pin);
/* A fast path is open by which `want` is held. */
gboolean qos_fastpaths_is_open(QosFastpaths *fastpaths, const QosResource *resource,
                               const QosCredit *want);

/* --- */

/* That for the group, which may be another's now. */
QosFastpath *qos_fastpaths_find(QosFastpaths *fastpaths, const QosResource *resource);
gboolean qos_fastpath_is_closed(const QosFastpath *path);
/* It is open on the group, and only to read. */
gboolean qos_fastpath_only_reads(const QosFastpath *path, const QosResource *resource);
/* All of the group is held: `writes`, or to read. */
void qos_fastpath_open(QosFastpath *path, const QosResource *resource, gboolean writes);
/* NULL where there is none of the resource. Else qos_lockengine_unpin() is to follow. */
QosFastpath *qos_fastpaths_close(QosFastpaths *fastpaths, const QosResource *resource);
/* Closes it. FALSE: it was not open. */
gboolean qos_fastpath_close(QosFastpath *path);
/* What is held and pinned; cleared by the caller. */
QosCredit qos_fastpath_pinned(const QosFastpath *path);
/* So far, by all. */
guint64 qos_fastpaths_uses(const QosFastpaths *fastpaths);
