/*
 * Hooks on the way of an operation: what isolation and coherence do there.
 *
 * Both have to act at the same moments of each operation (fs/ops/dispatch.h), and neither may know
 * of the other, nor the handlers of either. So each is a table of functions, and dispatch calls
 * them at these moments: all of the first table's, then the second's, in an order that is constant
 * (fs/ops/dispatch.c). Each function may be NULL. What a handler has to say it has put into the
 * operation's arguments before it submitted it; what a reply tells is said by `reply`.
 *
 *     enter              it has come, its caller is known, and it is about to ask the gate
 *     begin_early ...    it is to wait, and memory is short for what it brought
 *     park               the gate has it
 *     serve              the gate lets it go                          may have to wait
 *     call               the store is about to be called
 *     reply ...          while the reply is made
 *     called             the store was called
 *     settle             it is about to be answered                   may have to wait
 *     leave              it was answered; also of one that was cancelled
 *
 * Unless it is said otherwise, the thread that has the operation calls, holds no lock, and a
 * function waits for nothing. What each has to remember of an operation is a part of QosOp that its
 * folder alone writes.
 *
 * A function that may have to wait returns FALSE where it does, after qos_op_pause()
 * (fs/request/wait.h). The operation is not its thread's any more then; what it waits for has the
 * gate resume it, and all the functions of that moment are called once more.
 */
#pragma once

#include "fs/request/fs.h"
#include "fs/request/op.h"
#include "fs/store/inode.h"

/* What a reply tells the kernel of one inode, and for how long the kernel may believe it. */
typedef struct {
    fuse_ino_t ino;          /* 0: that there is no such name */
    const QosLoan *file;     /* NULL: not on loan */
    const struct stat *stat; /* NULL without `ino` */
    gboolean is_name;        /* it tells a name in the operation's directory, too */
    gboolean is_withheld;    /* the kernel must not remember the attributes: coherence's */
    double attr_timeout;     /* s */
    double entry_timeout;    /* s, of the name */
} QosTold;

typedef struct QosHooks {
    /* Before the first request: what the kernel offers. */
    void (*connect)(QosFs *fs, const struct fuse_conn_info *connection);

    /* May set what decides on its wait in the gate: `holds_lock`, `is_free` and the like. */
    void (*enter)(QosOp *op);
    /*
     * Instead of serve and settle, where the store is to be called before the operation's turn, and
     * its answer alone waits. FALSE: it must not be called now. Behind TRUE the second follows,
     * with which `is_made` tells that it was called; in its turn all the others are called.
     */
    gboolean (*begin_early)(QosOp *op);
    void (*end_early)(QosOp *op, gboolean is_made);
    /* One of `job`, which is not looked into, has been parked, or has run since. The kernel holds
     * the lock of the file `lock` for it, which no other job wanted when it came. */
    void (*park)(QosFs *fs, fuse_ino_t lock, const QosJob *job);
    /* FALSE: it waits. */
    gboolean (*serve)(QosOp *op);
    /* The thread has the caller's identity. 0, or the -errno with which it is to end without the
     * call. Once more where the store has refused, and is called again. */
    int (*call)(QosOp *op);
    /* op->result has come of it, also without a call. Once; it may wait for moments. */
    void (*called)(QosOp *op);
    /* FALSE: it waits. What was to be replied is still. */
    gboolean (*settle)(QosOp *op);
    /* It may not have come to `enter`. What it worked on is there only with `answers_first`. */
    void (*leave)(QosOp *op);

    /* Between call and called, for each inode of which the reply tells: may lower both times; the
     * first table says what they are at most. */
    void (*reply)(QosOp *op, QosTold *told);
    /* Likewise, for the file `ino` that an OPEN or CREATE has opened as `handle`. The first table
     * says whether the kernel keeps its pages: op->reply.info.keep_cache. */
    void (*reply_open)(QosOp *op, fuse_ino_t ino, QosHandle *handle);
    /* Likewise, for each name of a list with attributes, of the inode `number` of the store. FALSE:
     * the list is to tell the name alone. `is_first`: the list is of the directory's first names.
     * Behind TRUE the name is looked up, and the second says what came of it: 0 and what it is, or
     * -errno. `name` is lent until then. */
    gboolean (*list)(QosOp *op, guint64 number, const char *name, gboolean is_first);
    void (*listed)(QosOp *op, int error, const struct stat *stat);
} QosHooks;
