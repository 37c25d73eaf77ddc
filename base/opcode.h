/*
 * The operations that a request can ask of the store, and the names that rules, reports and
 * statistics give them.
 */
#pragma once

#include <glib.h>

typedef enum {
    QOS_OP_LOOKUP,
    QOS_OP_GETATTR,
    QOS_OP_SETATTR,
    QOS_OP_ACCESS,
    QOS_OP_READLINK,
    QOS_OP_MKNOD,
    QOS_OP_MKDIR,
    QOS_OP_SYMLINK,
    QOS_OP_LINK,
    QOS_OP_UNLINK,
    QOS_OP_RMDIR,
    QOS_OP_RENAME,
    QOS_OP_CREATE, /* create and tmpfile */
    QOS_OP_OPEN,
    QOS_OP_CLOSE, /* release */
    QOS_OP_READ,
    QOS_OP_WRITE,
    QOS_OP_FLUSH,
    QOS_OP_SYNC, /* fsync, fsyncdir */
    QOS_OP_OPENDIR,
    QOS_OP_CLOSEDIR,
    QOS_OP_READDIR, /* readdir, readdirplus */
    QOS_OP_STATFS,
    QOS_OP_GETXATTR,
    QOS_OP_SETXATTR,
    QOS_OP_LISTXATTR,
    QOS_OP_REMOVEXATTR,
    QOS_OP_FALLOCATE,
    QOS_OP_SEEK,
    QOS_OP_COPY, /* copy_file_range */
    QOS_OP_IOCTL,
    QOS_OP_COUNT,
} QosOpcode;

/* A set of opcodes: bit n stands for opcode n. */
typedef guint64 QosOpcodeSet;

/* "lookup", "getattr", ...; a static string. */
const char *qos_opcode_name(QosOpcode opcode);

/* TRUE for the operations that move a file's bytes: read, write, copy. */
gboolean qos_opcode_is_data(QosOpcode opcode);

/*
 * The opcodes that `name` (not necessarily terminated at `length`) stands for: one opcode, the
 * group `data`, the group `meta` (all that is not data), or `*`, all. 0 where there is no such
 * name.
 */
QosOpcodeSet qos_opcode_set_from_name(const char *name, gsize length);
