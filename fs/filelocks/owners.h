/*
 * The owners of record locks of this mount that have locks or wait for some. For each owner
 * (fs/filelocks/table.h) it knows the tables in which the owner has something, and its waits. So
 * what concerns one owner costs as much as that owner has, and not as much as all have.
 *
 * A wait is a deadlock if the owner that it waits for waits, directly or through others, for the
 * owner of the wait. Only the waits and locks of this mount are known here; the server finds
 * circles over several mounts (server/deadlocks.h).
 *
 * Pure; the caller locks.
 */
#pragma once

#include "fs/filelocks/table.h"

/* Locks that are looked at for one wait: a circle behind more of them is not found here. */
#define QOS_LOCKOWNERS_LOOKS_MAX 65536

/* One wait for a lock; embedded in its request. */
typedef struct {
    const QosFileLockTable *table;
    guint64 owner;
    QosSpan span;
    gboolean is_new; /* it has begun since its owner was last taken as changed */
    GList link;      /* among the waits of its owner, by age */
} QosLockWait;

/* An owner; it is there while it has something, or waits. */
typedef struct {
    guint64 number;     /* first: the key */
    GHashTable *tables; /* a set of QosFileLockTable: those in which it has something */
    GQueue waits;       /* of QosLockWait */
    guint new_waits;    /* the last of them */
    gboolean has_other; /* locks than when it was last taken as changed */
    GList link;         /* of QosLockOwners.changed; data: NULL while it is not in it */
} QosLockOwner;

/* Embedded. */
typedef struct {
    GHashTable *owners; /* a set of QosLockOwner, owned */
    GQueue changed;     /* of QosLockOwner: those with a new wait, or that wait and have other locks
                         * now */
} QosLockOwners;

void qos_lockowners_init(QosLockOwners *owners);
/* Tables and waits are left alone. */
void qos_lockowners_clear(QosLockOwners *owners);

/* Borrowed until a change; NULL: the owner has nothing and waits for nothing. */
const QosLockOwner *qos_lockowners_find(const QosLockOwners *owners, guint64 owner);
/* The owner's locks in the table have changed. To be told before the table goes. */
void qos_lockowners_note(QosLockOwners *owners, const QosFileLockTable *table, guint64 owner);

void qos_lock_wait_init(QosLockWait *wait, const QosFileLockTable *table, guint64 owner,
                        const QosSpan *span);
/* It stays where it is until its end. */
void qos_lockowners_begin_wait(QosLockOwners *owners, QosLockWait *wait);
void qos_lockowners_end_wait(QosLockOwners *owners, QosLockWait *wait);
/* Takes an owner that waits and has changed since it was last taken; many changes are one.
 * *ret_count: how many of its waits, the last ones, are new; all of them where its locks have
 * changed. Borrowed until a change; NULL: nobody is left. */
const QosLockOwner *qos_lockowners_take_changed(QosLockOwners *owners, guint *ret_count);
/* Whether `wait`, which has not begun, would never end. */
gboolean qos_lockowners_is_deadlock(const QosLockOwners *owners, const QosLockWait *wait);
