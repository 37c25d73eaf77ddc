/*
 * Programs with set-user-ID or set-group-ID bits that are run while others may write to them.
 *
 * execve(2) checks the program's attributes, opens it, keeps writers out, and then takes the bits
 * from what the kernel has of the inode; it does not ask for them again. On the store a write
 * changes just that. Here a write that takes bits away in the store, and a close, may come between
 * the check and the moment from which writers are kept out, while the OPEN is under way. The kernel
 * would then run what was written with the former bits, in any cache mode.
 *
 * So of a file of which answers have shown such bits:
 *
 *   - It is not opened for execve(2) while it is open for writing, nor by ordinary users for
 *     writing while it is open for execve(2): ETXTBSY. The kernel itself says so a moment later, or
 *     earlier. A RELEASE that is on its way is waited for, 200 ms at most.
 *   - If it has lost bits since, an OPEN for execve(2) is answered by ESTALE. The kernel then looks
 *     the name up again, checks anew, and so has the mode as it is. The same thread's next OPEN
 *     passes, unless a program has opened the file for writing meanwhile (ETXTBSY). The reason is
 *     that the answer to a WRITE makes the kernel ignore attributes that were asked for before.
 *
 * Limit: the daemon tells threads apart by their ids, and those of another pid namespace have none.
 */
#pragma once

#include "fs/request/op.h"
#include "fs/store/inode.h"

/* The kernel's flag for execve() in an OPEN. */
#define QOS_OPEN_FOR_EXEC 0x20

/* The referenced file is about to be opened with these flags, which may truncate it: 0 or -errno.
 */
int qos_execs_may_truncate(const QosOp *op, const QosInodeRef *file, int flags);
/* The file of an OPEN is open: 0, or the -errno with which its OPEN is to fail. */
int qos_execs_admit(QosOp *op, QosOpenFile *open_file);
