/*
 * Who of this mount has record locks, or waits for some: of each owner (fs/filelocks/table.h) the
 * tables in which he has something, and his waits. So what concerns one owner costs as much as he
 * has, whatever all others have.
 *
 * A wait is a deadlock if whom it waits for waits, directly or by others, for its owner. Only what
 * waits and is held here is known; of circles over several mounts the server knows
 * (server/deadlocks.h).
 *
 * Pure; the caller locks.
 */
#pragma once

#include "fs/filelocks/table.h"

/* Locks that are looked at for one wait: a circle behind more of them is not found here. */
#define QOS_LOCKOWNERS_LOOKS_MAX 65536

/* Somebody who waits; embedded in his request. */
typedef struct {
    const QosLocktable *table;
    guint64 owner;
    QosSpan span;
    gboolean is_new; /* it has begun since its owner was last taken as changed */
    GList link;      /* among the waits of its owner, by age */
} QosLockWait;

/* There while he has something, or waits. */
typedef struct {
    guint64 number;     /* first: the key */
    GHashTable *tables; /* a set of QosLocktable: those in which he has something */
    GQueue waits;       /* of QosLockWait */
    guint new_waits;    /* the last of them */
    gboolean has_other; /* locks than when he was last taken as changed */
    GList link;         /* of QosLockOwners.changed; data: NULL while he is not in it */
} QosLockOwner;

/* Embedded. */
typedef struct {
    GHashTable *owners; /* a set of QosLockOwner, owned */
    GQueue changed;     /* of QosLockOwner: who waits, and since shortly or with other locks */
} QosLockOwners;

void qos_lockowners_init(QosLockOwners *owners);
/* Tables and waits are let alone. */
void qos_lockowners_clear(QosLockOwners *owners);

/* Borrowed until a change; NULL: he has nothing and waits for nothing. */
const QosLockOwner *qos_lockowners_find(const QosLockOwners *owners, guint64 owner);
/* What he has in the table has changed. To be told before the table goes. */
void qos_lockowners_note(QosLockOwners *owners, const QosLocktable *table, guint64 owner);

void qos_lock_wait_init(QosLockWait *wait, const QosLocktable *table, guint64 owner,
                        const QosSpan *span);
/* It stays where it is until its end. */
void qos_lockowners_begin_wait(QosLockOwners *owners, QosLockWait *wait);
void qos_lockowners_end_wait(QosLockOwners *owners, QosLockWait *wait);
/* One who waits, and of whose waits the last `*ret_count` have begun, or all are with other locks,
 * since he was last taken: many changes are one. Borrowed until a change; NULL: nobody is left. */
const QosLockOwner *qos_lockowners_take_changed(QosLockOwners *owners, guint *ret_count);
/* Whether `wait`, which has not begun, would never end. */
gboolean qos_lockowners_is_deadlock(const QosLockOwners *owners, const QosLockWait *wait);
