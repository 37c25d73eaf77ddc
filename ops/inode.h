/*
 * The files that the kernel knows, and the file descriptors that keep them.
 *
 * A QosInode stands for one file of the store, keyed by (device, inode number, and the kernel's
 * birth of it: see inode.c), and named to the kernel by a node id: a 64-bit number that only grows,
 * so that none is ever used for two files. The root is 1; ids below QOS_CONTROL_INO_END belong to
 * control.
 *
 * Life: a look-up that is answered counts one in `lookups`; FORGET gives them back; with none left
 * the inode goes. A running operation holds a reference besides, taken by id. Both counts change
 * under the table's lock alone; no system call is made under it. Files are reached by an O_PATH
 * descriptor that qos_inode_fd() lends and qos_inode_put_fd() gives back, so that the number of
 * open ones can be bounded.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>
#include <sys/stat.h>

typedef struct QosInodes QosInodes;
typedef struct QosInode QosInode;

/* The table over the directory `source` (absolute). Errors: QOS_ERROR with the errno of opening it.
 */
QosInodes *qos_inodes_new(const char *source, GError **error);
void qos_inodes_free(QosInodes *inodes); /* NULL is allowed */

/* The inode of a node id, a new reference; NULL where the kernel does not know it (ESTALE). */
QosInode *qos_inodes_get(QosInodes *inodes, fuse_ino_t id);
void qos_inode_unref(QosInode *inode); /* NULL is allowed */
fuse_ino_t qos_inode_id(const QosInode *inode);

/* Lends the O_PATH descriptor: >= 0, or -errno. Give it back with qos_inode_put_fd() soon. */
int qos_inode_fd(QosInode *inode);
void qos_inode_put_fd(QosInode *inode, int fd);
/* "/proc/self/fd/N" of a lent descriptor, for calls that take a path. */
#define QOS_PROC_PATH_MAX 32
void qos_inode_proc_path(int fd, char path[QOS_PROC_PATH_MAX]);

/* Looks `name` up in `parent` under this thread's identity, and counts one look-up: fills
 * entry->ino, attr and the generation, not the time-outs. 0 or -errno. */
int qos_inodes_lookup(QosInodes *inodes, QosInode *parent, const char *name,
                      struct fuse_entry_param *ret_entry);
/* Counts one look-up of the file that `fd` (O_PATH or open; not taken over) is, e.g. after create
 * or tmpfile. 0 or -errno. */
int qos_inodes_adopt(QosInodes *inodes, int fd, struct fuse_entry_param *ret_entry);
/* Gives back `count` look-ups. */
void qos_inodes_forget(QosInodes *inodes, fuse_ino_t id, guint64 count);

/* The inode number to show for a stat of the store: unique over all devices below SRC. Edits
 * st_ino. */
void qos_inodes_show(QosInodes *inodes, struct stat *stat);
guint qos_inodes_count(QosInodes *inodes);
