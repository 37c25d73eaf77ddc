/*
 * Set-user-ID and set-group-ID bits that a change takes away in the store: the kernel must not
 * believe them any longer when the change is answered.
 *
 * The kernel runs a program with the bits that it was told last. A WRITE, a FALLOCATE, a copy and
 * an OPEN that truncates may take bits away in the store, and their answers carry no attributes. So
 * a user with the right to write to another user's program could write to it and run it as that
 * user, for as long as the kernel believes the attributes.
 *
 * So each inode knows which bits answers have shown (fs/store/inode.h). After such a change to such
 * a file the daemon asks the store for the mode, and if bits have gone it tells the kernel to
 * forget the attributes, before it answers. Other files cost an atomic read.
 *
 * Three kinds of answers could bring bits back that are gone, so their attributes are not believed
 * at all where they show bits:
 *
 *   - The first answer that shows a bit: a change may have looked for shown bits just before it.
 *   - An answer that the kernel takes however late it comes (SETATTR, LINK, CREATE, MKNOD): the
 *     write-back of a mapping, which holds no lock, may run beside it. The kernel drops late
 *     answers to LOOKUP and GETATTR by itself.
 *   - All answers once the kernel writes to files by itself (passthrough): the daemon hears of no
 *     such write.
 *
 * A notification about attributes alone takes no lock in the kernel and waits for no request. The
 * kernel does not evict the inode meanwhile because the request's file, or path, holds it. So a
 * handler's thread may send it.
 */
#pragma once

#include "fs/ops/operations.h"
#include "fs/request/op.h"

/* An answer is about to show that `mode` of `ino`. FALSE: the kernel is not to believe it. */
gboolean qos_privileges_may_believe(const QosOp *op, fuse_ino_t ino, mode_t mode);
/* The store was asked to change the open file, maybe without success: tells the kernel if bits
 * have gone. */
void qos_privileges_note_change(const QosOp *op, const QosOpenFile *open_file);
/* The same of the referenced file `ino`: a SETATTR that failed may have taken bits away before. */
void qos_privileges_note_failure(const QosOp *op, const QosInodeRef *file);
/* The kernel is about to write to the open file by itself. */
void qos_privileges_note_passthrough(const QosOp *op, const QosOpenFile *open_file);
/* Makes the kernel ask again for the attributes and ACLs of `ino`, which the operation has changed
 * and its answer does not tell. Answers to earlier requests are not believed any more. */
void qos_privileges_forget_attributes(const QosOp *op, fuse_ino_t ino);
