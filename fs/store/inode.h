/*
 * The files that the kernel knows, and the file descriptors that keep them.
 *
 * An inode of the table stands for one file of the store, by its key (mount, device, inode number).
 * The kernel knows it by a node id, a 64-bit number that only grows, so that no id is ever used for
 * two files. Ids begin elsewhere at each mount. Kernels before 6.9 let NFS export any FUSE mount,
 * and the id is part of the client's handle, so an old handle must not become another file. The
 * root is 1; other ids below QOS_INODE_FIRST belong to control.
 *
 * An answered look-up counts one, and FORGET gives counts back. An operation that works on a file
 * holds a reference on the inode: the inode stays, with its O_PATH descriptor open, until the
 * reference is put.
 * The inode goes when it has no look-up and no reference.
 *
 * The open descriptors are bounded. So of the inodes that are not referenced, some that were not
 * used for long are *closed*: their descriptor is, and the file is found again by the store's
 * file handle (fs/store/file_handle.h). An open descriptor pins the file, so no other file can get
 * its key. For a closed inode, the handle tells whether a file with its key is still the same. A
 * file without a name has no handle that opens, so its inode stays open (fs/store/inode_removed.c).
 *
 * Inodes are closed once they hold half of the descriptors that the process may open
 * (RLIMIT_NOFILE). If the store has no handles, or the daemon may not open them, all stay open, up
 * to three quarters. Then no more files become known (ENFILE) until the kernel forgets some. No
 * user may take more than a share of them (fs/quota.h; EMFILE), because the kernel keeps all that a
 * user walks through. An eighth is for what the daemon opens for itself, and the rest for open
 * files (fs/store/open_file.h). Threads of their own close the descriptors of forgotten and
 * closed inodes (fs/store/closer.h).
 *
 * Look-ups are counted, and references but the root's are taken, under the table's lock. References
 * are put without it, except perhaps the last (docs/design/locking.md). No system call is made
 * under it.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>
#include <sys/stat.h>

#include "base/time.h"
#include "fs/jobs.h"

#define QOS_INODE_FIRST 64

typedef struct QosInodes QosInodes;
typedef struct QosInode QosInode;
typedef struct QosFileChanges QosFileChanges; /* inode_changes.c */

/* The table over the directory `source` (absolute). Errors: QOS_ERROR with the errno of opening it.
 */
QosInodes *qos_inodes_new(const char *source, GError **error);
/* The same without what is mounted below it, now or later. EPERM: not by an ordinary user. */
QosInodes *qos_inodes_new_alone(const char *source, GError **error);
void qos_inodes_free(QosInodes *inodes); /* NULL is allowed */

/* A reference on an inode: the file is valid until qos_inode_ref_put(). */
typedef struct {
    QosInodes *inodes; /* NULL: it refers to nothing */
    QosInode *inode;
    int fd; /* O_PATH; not the caller's to close */
} QosInodeRef;

/* 0, or -ESTALE where the kernel was never told of `id`, or the file is gone; or another -errno. */
int qos_inodes_get(QosInodes *inodes, fuse_ino_t id, QosInodeRef *ret_ref);
void qos_inode_ref_put(QosInodeRef *ref);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QosInodeRef, qos_inode_ref_put)

/* Makes /proc/self/fd the daemon's working directory, from which paths of the next function take
 * the kernel a third less time. To be called once, when the process is the one that will serve. */
void qos_proc_enter(void);
/* "/proc/self/fd/N", for calls that take a path. */
#define QOS_PROC_PATH_MAX 32
void qos_proc_path(int fd, char path[QOS_PROC_PATH_MAX]);

/* Looks `name` up in `parent` under this thread's identity, and counts one look-up: fills
 * entry->ino, attr and the generation, not the time-outs; but attr_timeout is negative where the
 * attributes are not to be believed (qos_mode_gives_rights). 0 or -errno. `user`: counts as the
 * user that found it, if none has before; NULL: a user that nothing bounds. */
int qos_inodes_lookup(QosInodes *inodes, const QosInodeRef *parent, const char *name, QosUser *user,
                      struct fuse_entry_param *ret_entry);
/* Counts one look-up of the file that `fd` (O_PATH or open; not taken over) is, e.g. after create,
 * link or tmpfile. 0 or -errno. *ret_ref, where that is not NULL: the file. */
int qos_inodes_adopt(QosInodes *inodes, int fd, QosUser *user, struct fuse_entry_param *ret_entry,
                     QosInodeRef *ret_ref);
/* 0, or -ENFILE where no more files can become known, -EMFILE where none of the user's finding: to
 * be asked before one is made. */
int qos_inodes_find_room(QosInodes *inodes, const QosUser *user);
/* Gives back `count` look-ups. */
void qos_inodes_forget(QosInodes *inodes, fuse_ino_t id, guint64 count);

/* FALSE where the store has nothing to do, and nothing to tell, when a descriptor of the file is
 * closed and others are left. */
gboolean qos_inode_ref_wants_flush(const QosInodeRef *ref);

/* FALSE also where `id` is not known. */
gboolean qos_inodes_is_directory(QosInodes *inodes, fuse_ino_t id);
/* Whether `id` is known, and no directory. */
gboolean qos_inodes_is_file(QosInodes *inodes, fuse_ino_t id);
/* The store has said ESTALE of `id`: from now on it is looked up as another file. Stores that know
 * files by their paths (FUSE) have one file for each name, and forget it when its name goes.
 * Directories have one name. */
void qos_inodes_note_stale(QosInodes *inodes, fuse_ino_t id);
/* `name` in `parent` is about to be removed, or to become another file's; while there is the
 * reference, the inode is not closed. On NFS it is closed, unless it is in use, because
 * NFS would give it another name (.nfs...) while the daemon has a descriptor of it. */
void qos_inodes_begin_removal(QosInodes *inodes, const QosInodeRef *parent, const char *name,
                              QosInodeRef *ret_ref);
/* The reference is on the inode `id`. */
gboolean qos_inode_ref_is_of(const QosInodeRef *ref, fuse_ino_t id);
fuse_ino_t qos_inode_ref_id(const QosInodeRef *ref);
/* The store's device where the file is: SRC's own, or that of what is mounted below it. */
dev_t qos_inode_ref_device(const QosInodeRef *ref);
/* The device of this mount itself: what is mounted of it below SRC is not entered (ELOOP). Before
 * the first request. */
void qos_inodes_set_own_device(QosInodes *inodes, dev_t device);
/* The inode number to show for file `number` of `device`: unique over all devices below SRC. */
guint64 qos_inodes_shown(QosInodes *inodes, dev_t device, guint64 number);

/* --- inode_privileges.c: set-user-ID and set-group-ID bits that the kernel may believe --- */

/* An answer shows that `mode` of the file. FALSE: it has a bit that no answer showed before, or
 * that a change has taken away since. */
gboolean qos_inodes_show_privileges(QosInodes *inodes, fuse_ino_t id, mode_t mode);
/* Which bits answers have shown and no change has taken away; 0: none. */
guint qos_inode_ref_privileges(const QosInodeRef *ref);
/* Whether a file of that mode lacks any of the bits that were `known`. */
gboolean qos_privileges_are_lost(guint known, mode_t mode);
/* The kernel has forgotten the bits that were `known`; of these the file has those of `mode`. */
void qos_inode_ref_lose_privileges(const QosInodeRef *ref, guint known, mode_t mode);
/* Which bits the kernel may have, also such as it does not believe; 0: none. */
guint qos_inode_ref_held_privileges(const QosInodeRef *ref);
/* Whether a file of that mode lacks any of these. */
gboolean qos_privileges_are_held(guint known, mode_t mode);
/* The file was opened for writing. From now on qos_inode_ref_held_privileges() returns another
 * number, if it is not 0. */
void qos_inode_ref_note_writer(const QosInodeRef *ref);

typedef enum {
    QOS_REFRESH_BEGUN, /* the kernel is to look the file up again in this thread */
    QOS_REFRESH_DONE,  /* it has done so, and `known` is as it was: it has no bit too many */
    QOS_REFRESH_VAIN,  /* it has, but `known` is another */
} QosRefreshed;
QosRefreshed qos_inode_ref_refresh(const QosInodeRef *ref, pid_t tid, guint known);

/* --- inode_rights.c: what the store's mounts forbid --- */

static inline gboolean qos_mode_is_device(mode_t mode)
{
    return S_ISCHR(mode) || S_ISBLK(mode);
}
/* TRUE if what the kernel is told of such a file gives rights. Then it must ask each time, because
 * the mount may forbid them by then. */
static inline gboolean qos_mode_gives_rights(mode_t mode)
{
    return qos_mode_is_device(mode) || (S_ISREG(mode) && (mode & (S_ISUID | S_ISGID)) != 0);
}

/* What the mount of SRC forbids now, of QOS_MOUNT_FORBIDS (fs/store/mount_flags.h). */
gulong qos_inodes_source_forbids(QosInodes *inodes);
/* What SRC's own mount forbids and the daemon need not: because this mount forbids it itself, or
 * because the administrator allows it. Before the first request. */
void qos_inodes_allow(QosInodes *inodes, gulong allowed);
/* What the file's mount forbids now, and the daemon must forbid. */
gulong qos_inode_ref_forbids(const QosInodeRef *ref);
/* Takes from what the store says of the file what its mount forbids. 0, or -ESTALE where the kernel
 * has to look it up again. */
int qos_inode_ref_disarm(const QosInodeRef *ref, mode_t *mode, dev_t *device);
/* The kernel was told of a device node, and not which device it is. */
gboolean qos_inode_ref_hides_device(const QosInodeRef *ref);

/* --- how many there are --- */

/* How many inodes the kernel knows, the root included. */
guint qos_inodes_count(QosInodes *inodes);
/* Of these, how many for each directory. */
guint qos_inodes_by_directory(QosInodes *inodes);
/* How many files of SRC can be known at a time, where they have no handles that open; else 0. */
guint qos_inodes_bound(QosInodes *inodes);
/* How many descriptors are left for open files, beside those of files that are known and an eighth
 * that the daemon needs itself. */
guint qos_inodes_left_to_open(QosInodes *inodes);
/* TRUE where no more files may become known of the user's finding, or no descriptor is left. */
gboolean qos_inodes_are_short(QosInodes *inodes, const QosUser *user);
/* Says in the log why no more files become known or open; once a minute at most. */
void qos_inodes_explain_shortage(QosInodes *inodes);

/* --- inode_cluster.c: with a lock server, how other mounts know a file --- */

/* A file as every mount of the store names it to the lock server. */
typedef struct {
    guint64 number; /* the store's inode number */
    guint64 device; /* 0: that of SRC; else st_dev of what is mounted below */
} QosFileName;

static inline gboolean qos_file_name_equal(const QosFileName *one, const QosFileName *other)
{
    return one->number == other->number && one->device == other->device;
}
void qos_inode_ref_name(const QosInodeRef *ref, QosFileName *ret_name);

/* The number by which credits on the file go: its inode number in the store. FALSE if it has none
 * that all mounts know: it is unknown here, or on another device than the root. *ret_may_cache:
 * whether this mount reaches the file as other mounts do, and not through another mount below SRC.
 * Only then is it found by its number. */
gboolean qos_inodes_number(QosInodes *inodes, fuse_ino_t id, guint64 *ret_number,
                           gboolean *ret_may_cache);
gboolean qos_inode_ref_number(const QosInodeRef *ref, guint64 *ret_number, gboolean *ret_may_cache);
/* TRUE where files on `device` have such numbers. */
gboolean qos_inodes_is_shared(const QosInodes *inodes, dev_t device);

/* A file that the kernel knows, or is being told of. */
typedef struct {
    fuse_ino_t id;
    guint64 number; /* as qos_inodes_number() */
    gboolean is_directory;
    gboolean has_pages;     /* the kernel may have some of the file */
    gboolean is_referenced; /* it is open, for one */
} QosKnownInode;
/* Appends those (QosKnownInode) with the numbers `first` to `last`. */
void qos_inodes_list(QosInodes *inodes, guint64 first, guint64 last, GArray *known);
/* TRUE while the kernel has, or is being told of, look-ups of the inode: by its node id, or by its
 * number in the store (qos_inodes_number). */
gboolean qos_inodes_is_known(QosInodes *inodes, fuse_ino_t id);
gboolean qos_inodes_knows(QosInodes *inodes, guint64 number);

/* A CREATE is about to tell the kernel of the file, with attributes to keep. TRUE where the kernel
 * does not know it yet: then the file is on its way to it until something shows that it arrived. */
gboolean qos_inode_ref_note_sent(const QosInodeRef *ref);
/* It has arrived. */
void qos_inode_ref_note_arrived(const QosInodeRef *ref);
gboolean qos_inodes_is_on_its_way(QosInodes *inodes, fuse_ino_t id);
/* It is taken to have arrived. FALSE where it was not on its way any more. */
gboolean qos_inodes_end_way(QosInodes *inodes, fuse_ino_t id);

/* --- inode_changes.c: which changes of a file's data are this mount's own (fs/changes.h) ---
 *
 * `asked`: qos_clock_now() before the look at the store that gave the attributes. For directories,
 * and files that were never opened, nothing is remembered, and attributes may be told. */

/* Other mounts' changes show by the credits that are lost; before the first file is opened. */
void qos_inodes_trust_credits(QosInodes *inodes);

/* It is about to be opened: remembers its changes from now on. */
void qos_inode_ref_watch(const QosInodeRef *ref);
/* The mount is about to change the file's data, mtime or size. `fd`: the file, open, to look at it
 * before; -1: no look. Returns what is to be given to qos_file_changes_end() when the change is
 * made; NULL is allowed there. */
QosFileChanges *qos_inode_ref_begin_change(const QosInodeRef *ref, int fd);
/* The change is a write that appends to the file `fd`, and the kernel takes it for one at `offset`.
 * If the data lands elsewhere, the kernel does not know it, as if another mount had written it. */
void qos_file_changes_note_append(QosFileChanges *changes, int fd, off_t offset);
void qos_file_changes_end(QosFileChanges *changes);
/* Counts the SETATTRs under way that may set mode or owners: one more (1), or one less (-1).
 * `changes` is what qos_inode_ref_begin_change() returned. */
void qos_file_changes_set_rights(QosFileChanges *changes, gint change);
/* These count, one more (1) or one less (-1), the opens by which data is written into the kernel's
 * pages, and the READs and WRITEs under way for which the kernel keeps pages. */
void qos_inode_ref_count_writer(const QosInodeRef *ref, gint change);
void qos_inode_ref_count_kept(const QosInodeRef *ref, gboolean writes, gint change);
/* How many READs of pages have ended; whether one was under way then, or has begun since. */
guint qos_inode_ref_reads(const QosInodeRef *ref);
gboolean qos_inode_ref_has_read_since(const QosInodeRef *ref, guint reads);
gboolean qos_inode_ref_has_writers(const QosInodeRef *ref);
/* It is being opened. FALSE: the kernel must drop its pages. */
gboolean qos_inode_ref_keeps_pages(const QosInodeRef *ref, const struct stat *stat, QosTime asked);
/* The same of a file that CREATE has made, or with an answer to SETATTR: the kernel drops nothing.
 */
void qos_inode_ref_note_told(const QosInodeRef *ref, struct timespec modified, off_t size,
                             QosTime asked);
/* An answer is about to tell of it. FALSE: the kernel must not remember what that says. */
gboolean qos_inode_ref_may_tell(const QosInodeRef *ref, struct timespec modified, off_t size,
                                QosTime asked);
/* Another mount, or a program behind the mount, has changed the file, or may have. */
void qos_inode_ref_note_foreign(const QosInodeRef *ref);
void qos_inodes_note_foreign(QosInodes *inodes, fuse_ino_t id);
/* A reference on the file `id`, which may be closed: without a descriptor. FALSE: it is not known.
 */
gboolean qos_inodes_get_known(QosInodes *inodes, fuse_ino_t id, QosInodeRef *ret_ref);
/* An answer tells of mode and owners; with `is_taken` the kernel takes them whatever happens
 * meanwhile. FALSE: they are new to it, or may be, and must be told. */
gboolean qos_inode_ref_note_rights(const QosInodeRef *ref, const struct stat *stat,
                                   gboolean is_taken, QosTime asked);

/* --- inode_pages.c: with a lock server, what the kernel has of the file's pages ---
 *
 * Pages are of a generation, > 0 (fs/coherence/stale_pages.h): that in which the first of them was
 * filled since all were dropped. A generation ends when credits are lost: pages of an earlier one
 * may be too old. */

/* The kernel may have pages of the file from now on. */
void qos_inode_ref_note_pages(const QosInodeRef *ref);
/* Counts the requests for which the kernel keeps pages of the file locked: one more (1), or one
 * less (-1). Returns how many they are then. */
gint qos_inode_ref_fill(const QosInodeRef *ref, gint change);
/* That count; 0 where the file is not known. */
gint qos_inodes_filling(QosInodes *inodes, fuse_ino_t id);
/* A READ, or with `reads` FALSE a WRITE, is about to fill pages; it is counted already. */
void qos_inode_ref_note_fill(const QosInodeRef *ref, gint generation, gboolean reads);
/* Whether the kernel may have any pages of the file, but for those that no request told of yet. */
gboolean qos_inode_ref_has_pages(const QosInodeRef *ref);
/* The generation of the oldest of them; 0 where there are none, or the file is not known. */
gint qos_inodes_filled_generation(QosInodes *inodes, fuse_ino_t id);

/* The kernel may drop pages of the file when it takes the answer that is being made. */
void qos_inode_ref_note_drop(const QosInodeRef *ref);
/* The kernel is about to be told to drop pages of the file, with `all` each of them. */
void qos_inodes_begin_drop(QosInodes *inodes, fuse_ino_t id, gboolean all);
/* A WRITE was made of data that the kernel had put into pages before. Returns whether some pages
 * may have been dropped, and filled by a READ, since the WRITE before it. */
gboolean qos_inode_ref_end_write(const QosInodeRef *ref);

/* What decides how long the kernel may believe an answer about a file. */
typedef struct {
    guint64 number;         /* as qos_inodes_number() */
    gboolean may_cache;     /* FALSE also where it has none */
    gint filled_generation; /* as qos_inodes_filled_generation() */
} QosInodeLook;

void qos_inode_ref_look(const QosInodeRef *ref, QosInodeLook *ret_look);
/* The same, if `drops` with qos_inode_ref_note_drop(), at one look. FALSE: it is not known. */
gboolean qos_inodes_look(QosInodes *inodes, fuse_ino_t id, gboolean drops, QosInodeLook *ret_look);
