/*
 * What the files inode*.c share: the table, and an inode of it.
 */
#pragma once

#include <stddef.h>

#include "fs/changes.h"
#include "fs/store/file_handle.h"
#include "fs/store/inode.h"
#include "fs/store/mount_flags.h"
#include "sys/mutex.h"

typedef struct {
    guint64 mount;
    guint64 device;
    guint64 volume; /* of btrfs, which gives the device number of a subvolume that is deleted to the
                       next one while files of the former are open; else 0 */
    guint64 number;
} QosInodeKey;

/* What qos_inodes_examine() finds out of a file. */
typedef struct {
    QosInodeKey key;
    struct stat stat;       /* as it may be shown: see qos_inodes_disarm() */
    gboolean has_mount_id;  /* `key.mount` is one */
    gboolean gives_rights;  /* the file in the store: see qos_mode_gives_rights() */
    gboolean hides_device;  /* what opens it is forbidden where it lies */
    gboolean is_mount_root; /* a directory by which a mount is entered */
} QosFacts;

/* The kernel's pages of a file since its last WRITE. */
typedef enum {
    QOS_PAGES_DROPPED, /* some may have been dropped */
    QOS_PAGES_FILLED,  /* and filled since */
    QOS_PAGES_STAY,
} QosRefill;

/* A thread for which the kernel looks a program up again: inode_privileges.c. */
typedef struct {
    fuse_ino_t id; /* 0: none */
    pid_t tid;
    guint known;
} QosRefresh;

#define QOS_REFRESHES 256 /* of two in one place, the later */

/* inode_changes.c: which changes of a file are this mount's own. */
struct QosFileChanges {
    QosMutex lock;
    QosTime rights_until;           /* they are new until then */
    guint setting;                  /* SETATTRs that are under way */
    QosTime rights_at;              /* when one was last answered */
    guint reads_begun, reads_ended; /* that fill pages */
    QosChanges changes;
};

/* What QosInode.use is made of. */
enum {
    QOS_USE_RECENT = 1, /* it was referenced since the hand of the clock came by */
    QOS_USE_UPDATE = 2, /* the return of the last reference settles it: the kernel does not know it,
                           or it has a descriptor and is not on the clock */
    QOS_USE_REF = 4,    /* each reference */
};

/* There may be millions: the order leaves no gaps. */
struct QosInode {
    guint64 id; /* first: the index by id holds these */
    QosInodeKey key;
    guint use;    /* atomic; all but the put of a reference changes it under the table's lock, and
                     all but a reference on the root */
    gint filling; /* atomic: see qos_inode_ref_fill() */
    gint filled_generation; /* atomic: of the oldest pages that the kernel may have; 0: it has none
                             */
    gint refill;            /* atomic: QosRefill */
    guint told_rights; /* atomic: a digest of mode and owners, as the kernel was told them last */
    gint finds_known;  /* atomic; a directory: the last look-up in it was of an open file */
    guint privileges;  /* atomic; inode_privileges.c: bits that answers have shown */
    /* --- never changes, and so is read without a lock: bits in a word of their own, because a bit
     * that changes would share its word with these --- */
    guint is_mount_root : 1;
    guint is_directory : 1;
    guint hides_device : 1; /* the kernel was told another number than the store has */
    /* --- under the table's lock --- */
    guint64 lookups;
    int fd;             /* O_PATH, or -1: closed */
    guint keeps_fd : 1; /* it has no handle */
    guint is_on_clock : 1;
    guint is_removed : 1; /* in the queue of these, and not on the clock */
    guint has_pages : 1;
    guint is_on_its_way : 1; /* see qos_inode_ref_note_sent() */
    QosFileHandle *handle;   /* NULL until it is first needed; stays then */
    QosUser *user;           /* that found it; NULL: nothing bounds that user */
    GList clock;             /* in the table's, or in `removed`, while it is on either */
    /* --- atomic --- */
    QosFileChanges *changes; /* NULL until the file is first opened; stays then */
};

struct QosInodes {
    QosMutex lock;
    GHashTable *by_id;  /* a set of QosInode.id */
    GHashTable *by_key; /* a set of QosInode.key */
    fuse_ino_t next_id;
    guint forgotten; /* since memory was given back */
    GQueue clock;    /* of QosInode; its hand is at the tail */
    GQueue removed;  /* of QosInode: inode_removed.c; the oldest is at the tail */
    guint open_count;
    guint directories; /* of those known */
    gint64 explained;  /* monotonic us: when the log last told of a shortage */
    QosRefresh refreshes[QOS_REFRESHES];
    GArray *devices; /* of dev_t: those other than the root's, in the order they were seen */
    /* --- read-only --- */
    guint open_max; /* beyond it inodes are closed */
    guint removed_max;
    guint bound; /* at it, no more files become known while none can be closed */
    QosInode *root;
    dev_t root_device;
    int source;                /* SRC as it is mounted, where the root is a copy of that; else -1 */
    gboolean has_mount_ids;    /* the kernel tells them */
    guint64 source_mount;      /* its flags hold for the root's mount */
    dev_t own_device;          /* of this mount; 0: not known */
    guint64 root_mount;        /* as in keys */
    gboolean root_wants_flush; /* see qos_inode_ref_wants_flush() */
    gulong root_allows;        /* set before the first request: see qos_inodes_allow() */
    QosMountFlags *mount_flags;
    gboolean has_credits; /* see qos_inodes_trust_credits() */
    QosMounts *mounts;
    QosCloser *closer;
};

/* If an eighth of all descriptors wait to be closed, a thread that is to open one waits. FALSE
 * where these hang: then no more files become known. */
static inline gboolean qos_inodes_await_closes(const QosInodes *inodes)
{
    return qos_closer_wait(inodes->closer, (inodes->bound - inodes->open_max) / 2);
}

/* --- `_locked`: under the table's lock --- */

/* The inode that has it, or NULL. */
static inline QosInode *qos_inode_by_id_locked(QosInodes *inodes, fuse_ino_t id)
{
    guint64 key = id;

    return g_hash_table_lookup(inodes->by_id, &key);
}

static inline QosInode *qos_inode_by_key_locked(QosInodes *inodes, const QosInodeKey *key)
{
    char *found = g_hash_table_lookup(inodes->by_key, key);

    return found == NULL ? NULL : (QosInode *)(found - offsetof(QosInode, key));
}

/* Takes it off the clock, wherever it is there. The return of its last reference, or a look-up,
 * adds it again. */
static inline void qos_inode_take_off_clock_locked(QosInodes *inodes, QosInode *inode)
{
    if (inode->is_on_clock)
        g_queue_unlink(&inodes->clock, &inode->clock);
    inode->is_on_clock = FALSE;
}

/* One reference more. */
static inline void qos_inode_get_locked(QosInode *inode)
{
    g_atomic_int_add(&inode->use, QOS_USE_REF);
    if ((g_atomic_int_get(&inode->use) & QOS_USE_RECENT) == 0)
        g_atomic_int_or(&inode->use, QOS_USE_RECENT);
}

/* --- inode.c --- */

/* The table over the directory `fd`: SRC, and `original` is -1, or a copy of that. Takes both. */
QosInodes *qos_inodes_new_over(const char *source, int original, int fd, GError **error);
/* Takes `fd`. Counts no look-up yet. */
QosInode *qos_inode_add_locked(QosInodes *inodes, fuse_ino_t id, const QosFacts *facts, int fd,
                               QosUser *user);
/* Its key has become another file's. */
void qos_inode_detach_key_locked(QosInodes *inodes, QosInode *inode);
/* Puts an inode, after its counts have changed, onto the clock or out of the table. Returns it in
 * the latter case, to be freed. */
QosInode *qos_inode_update_locked(QosInodes *inodes, QosInode *inode);
/* Puts one reference. */
void qos_inode_put(QosInodes *inodes, QosInode *inode);
/* Closes an inode that has no reference but the caller's: its descriptor, to be closed; or -1 where
 * it stays as it is. */
int qos_inode_close(QosInodes *inodes, QosInode *inode);
/* Closes descriptors until they are no more than they may be, as far as there are any to close. */
void qos_inodes_close_surplus(QosInodes *inodes);
/* 0, or why the user finds no more files: -ENFILE or -EMFILE. */
int qos_inodes_find_room_locked(QosInodes *inodes, const QosUser *user);
void qos_file_changes_free(QosFileChanges *changes); /* NULL is allowed */

/* --- inode_rights.c --- */

/* Takes from what is told of a file what its mount forbids. `fd` lies on that mount, or is -1. */
void qos_inodes_disarm(QosInodes *inodes, int fd, QosFacts *facts);

/* --- inode_removed.c --- */

/* `inode`, referenced by the caller, is to be closed. Returns the one that is to be closed
 * instead, referenced too: `inode` itself; or, if that has lost its last name, one that lost it
 * earlier, or none (NULL). */
QosInode *qos_inode_keep_removed(QosInodes *inodes, QosInode *inode);
/* It may be closed again, or is forgotten. */
void qos_inode_leave_removed_locked(QosInodes *inodes, QosInode *inode);

/* --- inode_cluster.c --- */

/* As qos_inodes_number(); takes no lock, for what of an inode never changes. */
gboolean qos_inode_number(const QosInodes *inodes, const QosInode *inode, guint64 *ret_number,
                          gboolean *ret_may_cache);

/* --- inode_key.c --- */

/* Examines the file `name` in the directory `fd`, or `fd` itself if it is "". 0, or -errno. */
int qos_inodes_examine(QosInodes *inodes, int fd, const char *name, QosFacts *ret_facts);
