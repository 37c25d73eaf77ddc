/*
 * What the files of fs/filelocks/ share. filelocks.c has the requests, the lock client's callbacks
 * and the keeper. call.c takes a call from state to state. wait.c knows the waits for record locks.
 *
 * A call is a request that is not answered yet. Its states, under the lock:
 *
 *     ASKING     the server was asked; its answer comes by the use's done()
 *     ALLOWED    it said yes, for a moment: `use` is held
 *     BLOCKED    another owner of this mount is in the way; what it gives up brings it on
 *     RETRYING   there is no server, or it is full: tried again after a while
 *     ANSWERED   in a list, to be answered without the lock
 *
 * A use that was granted for a call becomes the file's own, or joins the one that the file has. The
 * file holds just what its table comes to, so that what is unlocked may go to other mounts at once.
 */
#pragma once

#include "fs/filelocks/owners.h"
#include "fs/lockclient/client.h"
#include "fs/quota.h"
#include "fs/store/open_file.h"
#include "fs/transport/interrupt_table.h"
#include "net/complaint.h"
#include "sys/service_thread.h"

typedef struct QosFileLocks QosFileLocks; /* as in filelocks.h, which this does not need */

typedef enum {
    QOS_CALL_NEW,
    QOS_CALL_ASKING,
    QOS_CALL_ALLOWED,
    QOS_CALL_BLOCKED,
    QOS_CALL_RETRYING,
    QOS_CALL_ANSWERED,
} QosCallState;

/* One kind of locks on one file; there while it has locks or calls. */
typedef struct {
    QosResource resource; /* first: the key */
    QosFileLockKind kind;
    QosFileLockTable table;
    QosLockUse *held;  /* what the table comes to; NULL: nothing */
    GQueue calls;      /* of QosCall, by age */
    gboolean is_eased; /* an owner here gave something up: calls that waited for it may go on */
} QosLockedFile;

typedef struct {
    gint references; /* atomic: its own, until it is answered, and those of threads that look at
                      * it */
    QosFileLocks *locks;
    fuse_req_t request;
    guint64 number;      /* the kernel's, of the request */
    QosLockedFile *file; /* NULL once it is answered */
    QosFileLockKind kind;
    QosFileLockMode mode;
    QosFileLock lock;
    QosCallState state;
    gboolean is_interrupted;
    QosLockUse *use;  /* of the server; NULL: none */
    QosLockWait wait; /* for a record lock, while BLOCKED, or ASKING for as long as it takes */
    gboolean waits;   /* it is among those of its owner */
    guint64 told;     /* by which number the server was told of the wait; 0: it was not */
    guint told_ranges;
    const QosCaller *payer; /* the caller that its place belongs to (QOS_FILELOCKS_WAITS_MAX); NULL:
                             * none */
    QosTime give_up;        /* while RETRYING; 0: was not yet */
    QosTime due;            /* when the keeper is to look; QOS_NEVER: not at all */
    GList link;             /* of the file's calls, then of those to be answered */
    GList due_link;         /* of QosFileLocks.due, unless `due` is QOS_NEVER */
    int error;              /* the answer */
    gboolean has_other;
    QosFileLock other; /* TEST: the lock that is in the way, if any */
} QosCall;

struct QosFileLocks {
    gint file_count;               /* atomic: in `files` */
    QosMutex lock;                 /* everything below */
    pthread_cond_t settled;        /* while they stop: a call that the server was asked for */
    QosInterruptTable *interrupts; /* has a lock of its own */
    QosLockclient *client;         /* NULL: before the start */
    QosComplaints complaints;      /* of locks that are lost, and of crowds */
    GHashTable *files;             /* a set of QosLockedFile.resource */
    QosQuota quota;                /* of those that may wait */
    QosLockOwners owners;          /* of record locks, and of QosCall.wait */
    GHashTable *told;              /* QosCall.told -> QosCall */
    guint64 last_told;
    guint told_ranges; /* of all that are told */
    GQueue due;        /* of QosCall */
    GQueue answered;   /* of QosCall */
    QosServiceThread keeper;
};

/* The call may wait, in a place of the payer, which must live until the end of the call. FALSE: the
 * payer has too many. */
gboolean qos_call_take_place_locked(QosCall *call, const QosCaller *payer);
/* Takes the call as far as it comes now. The caller tidies the file after this function, and after
 * the next. */
void qos_call_advance_locked(QosCall *call);
void qos_call_finish_locked(QosCall *call, int error);
void qos_call_unref(QosCall *call);
/* Takes back what was asked, if anything. FALSE: the server's answer is on its way. */
gboolean qos_call_withdraw_locked(QosCall *call);

/* A call for a record lock that is BLOCKED now would be so for ever. */
gboolean qos_call_is_deadlock_locked(QosCall *call);
/* It waits, which is to be told to the server if it is one for a record lock; and no more, which is
 * told. */
void qos_call_begin_wait_locked(QosCall *call);
void qos_call_end_wait_locked(QosCall *call);
/* The owner has other locks of the file than before, which is to be told if it waits. */
void qos_filelocks_note_owner_locked(QosFileLocks *locks, const QosLockedFile *file, guint64 owner);
/* Tells the server the waits that have changed; of many changes of one wait, only the last. This is
 * done before locks that were given up go to other mounts, and at the end. */
void qos_filelocks_tell_locked(QosFileLocks *locks);
/* NULL: it waits no more. */
QosCall *qos_filelocks_find_told_locked(const QosFileLocks *locks, guint64 wait);

/* NULL: nobody has locked anything of it, or wants to. */
QosLockedFile *qos_locked_file_find_locked(QosFileLocks *locks, const QosFileName *name,
                                           QosFileLockKind kind);
/* Made if need be; the caller tidies it. */
QosLockedFile *qos_locked_file_get_locked(QosFileLocks *locks, const QosFileName *name,
                                          QosFileLockKind kind);
/* Makes what the file holds equal to the join of its table. */
void qos_locked_file_adjust_locked(QosFileLocks *locks, QosLockedFile *file);
/* Brings on the calls that waited for what was given up; frees the file if nothing is in it. */
void qos_locked_file_tidy_locked(QosFileLocks *locks, QosLockedFile *file);

/* Tells the server, unlocks, and answers what is to be answered. */
void qos_filelocks_unlock(QosFileLocks *locks);
