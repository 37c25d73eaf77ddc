/*
 * What the files of fs/coherence/ share: its state, and the functions of names.c and reply.c that
 * coherence.c calls. No other folder includes it.
 */
#pragma once

#include "fs/coherence/invalidator.h"
#include "fs/coherence/namecache.h"
#include "fs/coherence/op_credits.h"
#include "fs/coherence/page_drops.h"
#include "fs/coherence/readdirplus.h"
#include "fs/request/hooks.h"
#include "sys/mutex.h"

struct QosCoherence {
    const QosFs *fs;
    QosPages *pages;
    QosReaddirplus *readdirplus;
    QosInvalidator *invalidator;
    QosCreditWaiters *credit_waiters;
    QosNamecache *names;
    QosMutex names_lock; /* of `names` */
};

/* --- names.c; with credits --- */

/* The operation is about to look up, make or take its names: 0 or -errno. */
int qos_coherence_begin_names(QosOp *op);
/* It has, or has not been called. Does nothing where they were not begun. */
void qos_coherence_end_names(QosOp *op);
/* They were begun, maybe, and the store has refused: nothing is known of them. */
void qos_coherence_drop_names(QosOp *op);
/* The same for a name in a list. */
void qos_coherence_begin_listed(QosOp *op, const char *name);
void qos_coherence_end_listed(QosOp *op, int error, const struct stat *stat);

/* --- reply.c; as the hooks, also without a lock server --- */

void qos_coherence_reply(QosOp *op, QosTold *told);
void qos_coherence_reply_open(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file);
void qos_coherence_reply_opendir(QosOp *op);
/* The operation's inode, if it has a reference on that by an open file; else NULL. */
const QosInodeRef *qos_coherence_ref(const QosOp *op, fuse_ino_t ino);
/* A list of the names in the operation's directory is about to be made: whether the kernel may keep
 * the names of files that are covered. Only with a lock server. */
gboolean qos_coherence_begin_list(QosOp *op);
gboolean qos_coherence_lists(const QosOp *op, guint64 number, gboolean is_first);
