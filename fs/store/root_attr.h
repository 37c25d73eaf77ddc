/*
 * The attributes of the mount's root, for when the store does not answer.
 *
 * Whoever walks to the files of `.qosfs` asks for the root's attributes first. While requests hang
 * in the store, a thread asks the store for these, too (and sleeps while there are none); if it
 * gets no answer within QOS_ROOT_TIME, others are given those that were last seen, so that an
 * administrator can read what hangs.
 *
 * Lock: `lock` of the root; not held while the store is asked.
 */
#pragma once

#include <sys/stat.h>

#include "fs/gate/gate.h"
#include "fs/store/inode.h"

#define QOS_ROOT_TIME QOS_SECOND

typedef struct QosRoot QosRoot;

/* Both are borrowed. Starts its thread (after the daemon's fork); NULL with an error where
 * there is none, or the store does not tell the attributes. */
QosRoot *qos_root_new(QosGate *gate, QosInodes *inodes, GError **error);
/* Ends the thread; the gate has stopped. NULL is allowed. */
void qos_root_free(QosRoot *root);

/* The store has told the attributes. */
void qos_root_note(QosRoot *root, const struct stat *stat);
/* TRUE where the store does not tell them: as they were last seen. */
gboolean qos_root_recall(QosRoot *root, struct stat *ret_stat);
