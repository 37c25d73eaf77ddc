/*
 * The names of the operations, and the sets of operations that a name stands for (base/opcode.h).
 */
#include "base/opcode.h"

#include <string.h>

static const char *const opcode_names[QOS_OP_COUNT] = {
    [QOS_OP_LOOKUP] = "lookup",
    [QOS_OP_GETATTR] = "getattr",
    [QOS_OP_SETATTR] = "setattr",
    [QOS_OP_ACCESS] = "access",
    [QOS_OP_READLINK] = "readlink",
    [QOS_OP_MKNOD] = "mknod",
    [QOS_OP_MKDIR] = "mkdir",
    [QOS_OP_SYMLINK] = "symlink",
    [QOS_OP_LINK] = "link",
    [QOS_OP_UNLINK] = "unlink",
    [QOS_OP_RMDIR] = "rmdir",
    [QOS_OP_RENAME] = "rename",
    [QOS_OP_CREATE] = "create",
    [QOS_OP_OPEN] = "open",
    [QOS_OP_CLOSE] = "close",
    [QOS_OP_READ] = "read",
    [QOS_OP_WRITE] = "write",
    [QOS_OP_FLUSH] = "flush",
    [QOS_OP_SYNC] = "sync",
    [QOS_OP_OPENDIR] = "opendir",
    [QOS_OP_CLOSEDIR] = "closedir",
    [QOS_OP_READDIR] = "readdir",
    [QOS_OP_STATFS] = "statfs",
    [QOS_OP_GETXATTR] = "getxattr",
    [QOS_OP_SETXATTR] = "setxattr",
    [QOS_OP_LISTXATTR] = "listxattr",
    [QOS_OP_REMOVEXATTR] = "removexattr",
    [QOS_OP_FALLOCATE] = "fallocate",
    [QOS_OP_SEEK] = "seek",
    [QOS_OP_COPY] = "copy",
    [QOS_OP_IOCTL] = "ioctl",
};

#define BIT(opcode) (G_GUINT64_CONSTANT(1) << (opcode))
#define ALL         (BIT(QOS_OP_COUNT) - 1)
#define DATA        (BIT(QOS_OP_READ) | BIT(QOS_OP_WRITE) | BIT(QOS_OP_COPY))

G_STATIC_ASSERT(QOS_OP_COUNT < 64);

const char *qos_opcode_name(QosOpcode opcode)
{
    g_return_val_if_fail((guint)opcode < QOS_OP_COUNT, "unknown");
    return opcode_names[opcode];
}

gboolean qos_opcode_is_data(QosOpcode opcode)
{
    return (DATA & BIT(opcode)) != 0;
}

static gboolean equal(const char *name, gsize length, const char *known)
{
    return strlen(known) == length && memcmp(name, known, length) == 0;
}

QosOpcodeSet qos_opcode_set_from_name(const char *name, gsize length)
{
    if (equal(name, length, "*"))
        return ALL;
    if (equal(name, length, "data"))
        return DATA;
    if (equal(name, length, "meta"))
        return ALL & ~DATA;
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (equal(name, length, opcode_names[i]))
            return BIT(i);
    }
    return 0;
}
