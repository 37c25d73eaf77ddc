/*
 * The recalls under way: what the mount was told to forget and has not released yet, before it goes
 * back to the server. fs/lockengine/engine.h says when a recall is void.
 *
 * There is one recall of a resource at a time. What other mounts want of the resource meanwhile
 * comes after it. Pure; the caller locks.
 */
#pragma once

#include "core/credit.h"

/* Embedded. */
typedef struct {
    GHashTable *by_resource; /* of Recall */
} QosRecalls;

void qos_recalls_init(QosRecalls *recalls);
void qos_recalls_clear(QosRecalls *recalls);

/*
 * Begins a recall: `credit`, of what the owner has of the resource, is in the way of another mount;
 * or with `is_shrink` it is to be given back. TRUE: *ret_told is to be forgotten, and is cleared by
 * the caller. It is `credit`; of a group, the part of it that the mount has, and what goes beside
 * it (qos_recalls_beside()). FALSE: a recall is under way, and what is wanted besides comes after
 * it.
 */
gboolean qos_recalls_begin(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                           const QosCredit *credit, gboolean is_shrink, QosCredit *ret_told);
/* Whether a recall of the resource is under way that only shrinks the cache. */
gboolean qos_recalls_is_shrink(const QosRecalls *recalls, const QosResource *resource);
/* The mount asks for some of the resource itself: a group's next recall is of just what is wanted.
 */
void qos_recalls_note_miss(QosOwner *owner, const QosResource *resource);
/* `credit` of the resource is used: what is to go of it stays. */
void qos_recalls_note_use(QosRecalls *recalls, const QosResource *resource,
                          const QosCredit *credit);
/* Keeps `credit`, which was told beside what another mount wants, and which no other mount wants:
 * it need not be forgotten. FALSE: it goes, or nothing was told. */
gboolean qos_recalls_keep(QosRecalls *recalls, const QosResource *resource,
                          const QosCredit *credit);
/* Ends a recall that only shrinks the cache, and nothing goes; unless another mount wants some of
 * it by now, or it was spared `times` times since its last use. TRUE: it was spared, and the mount
 * has something of it. */
gboolean qos_recalls_spare(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                           guint times);
/* All of the resource is lost. */
void qos_recalls_note_loss(QosRecalls *recalls, const QosResource *resource);
/* What was told to be forgotten is forgotten, and goes back to the server. FALSE: nothing was told.
 * *ret_again is what was wanted meanwhile: empty, or to be recalled next; cleared by the caller. */
gboolean qos_recalls_release(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                             const QosCredit *credit, QosTime now, QosCredit *ret_again);

/* --- how much goes ---
 *
 * How much of a group of inodes a mount gives up when another wants one of them. The first call
 * gets what it wants, each further one twice as much around it, in aligned blocks: a mount that
 * looks at a thousand inodes of which this one uses none has them after ten calls. When this mount
 * asks for one of the group itself, the next call gets just what it wants again: two that work on
 * the same group part it down to single inodes. */

/*
 * What goes beside `wanted`, of what is `owned`, when it is called back for the `calls`th time
 * since the mount asked for something of the group (0: the first); of the same kind as `wanted`.
 * Both are spans; cleared by the caller.
 */
QosCredit qos_recalls_beside(const QosCredit *owned, const QosCredit *wanted, guint calls);

/*
 * All that is `owned`, in whichever way, as another mount would want it to change it. Cleared by
 * the caller.
 */
QosCredit qos_recalls_all(const QosResourceType *type, const QosCredit *owned);
