/*
 * The attributes of the mount's root, for when the store does not answer.
 *
 * A process that walks to the files of `.qosfs` asks for the root's attributes first. If the store
 * hangs, it must not hang with it: an administrator is to read what hangs. Nobody can know without
 * asking whether the store would answer. So while the oldest request in the store has been there
 * for QOS_ROOT_ATTR_TIME the root's attributes are those that were last seen.
 *
 * Limit: if a single file hangs, or a request takes that long, the times, size and link count of
 * the root are as old as its last GETATTR or SETATTR before, and that GETATTR waits at no pay point
 * (fs/isolate/pay_point.h).
 *
 * Lock: `lock` of QosRootAttr; not held while the store is asked.
 */
#pragma once

#include <sys/stat.h>

#include "fs/gate/gate.h"
#include "fs/store/inode.h"

#define QOS_ROOT_ATTR_TIME (2 * QOS_SECOND)

typedef struct QosRootAttr QosRootAttr;

/* `gate` is borrowed. Asks the store once; NULL with an error if it does not tell. */
QosRootAttr *qos_root_attr_new(QosGate *gate, QosInodes *inodes, GError **error);
void qos_root_attr_free(QosRootAttr *root); /* NULL is allowed */

/* The store has told the attributes. */
void qos_root_attr_note(QosRootAttr *root, const struct stat *stat);
/* TRUE where the store is not to be asked: the attributes as they were last seen. */
gboolean qos_root_attr_recall(QosRootAttr *root, struct stat *ret_stat);
