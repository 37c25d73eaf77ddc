/*
 * Hooks on the way of an operation, by which isolation and coherence act on it.
 *
 * Both act at the same moments of each operation (fs/ops/dispatch.h). Neither may know of the
 * other, and the handlers may know of neither. So each is a table of functions, and dispatch calls
 * both tables at these moments, always in the same order (fs/ops/dispatch.c). Each function may be
 * NULL. The functions find what the handler knows in `target` of the operation, and what a reply
 * tells in the arguments of `reply`.
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
 * Unless it is said otherwise, the thread that has the operation makes the call and holds no lock,
 * and the function waits for nothing. What isolation and coherence each remember of an operation is
 * a part of QosOp that only their folder writes.
 *
 * A function that has to wait calls qos_op_pause() (fs/request/wait.h) and returns FALSE. The
 * operation then belongs to that thread no longer. When the wait is over, the object that it waited
 * for has the gate resume it, and all functions of that moment are called once more.
 */
#pragma once

#include "fs/request/fs.h"
#include "fs/request/op.h"
#include "fs/store/inode.h"

/* What a reply tells the kernel of one inode, and for how long the kernel may believe it. */
typedef struct {
    fuse_ino_t ino;          /* 0: that there is no such name */
    const QosInodeRef *file; /* NULL: no reference is at hand */
    const struct stat *stat; /* NULL without `ino` */
    gboolean is_name;        /* it tells a name in the operation's directory, too */
    gboolean is_withheld;    /* the kernel must not remember the attributes: coherence's */
    double attr_timeout;     /* s */
    double entry_timeout;    /* s, of the name */
} QosTold;

typedef struct QosHooks {
    /* Before the first request: what the kernel offers. */
    void (*connect)(QosFs *fs, const struct fuse_conn_info *connection);

    /* May set the fields that decide on its wait in the gate: `holds_lock`, `is_free` and the
     * like. */
    void (*enter)(QosOp *op);
    /*
     * Around a call of the store before the operation's turn, if only its answer is to wait. FALSE:
     * the store must not be called now. After TRUE the second function follows, and `is_made` tells
     * that the store was called. In the operation's turn all functions from `serve` on are called
     * as for any other; entry.request.is_stored tells them that the store was called already.
     */
    gboolean (*begin_early)(QosOp *op);
    void (*end_early)(QosOp *op, gboolean is_made);
    /* An operation of `job`, which is not looked into, has been parked, or has run since. For it
     * the kernel holds the lock of the file `lock`, which no other job wanted when it came. */
    void (*park)(QosFs *fs, fuse_ino_t lock, const QosJob *job);
    /* FALSE: it waits. */
    gboolean (*serve)(QosOp *op);
    /* The thread has the caller's identity. Returns 0, or the -errno with which the operation is to
     * end without the call. Called once more if the store has refused and is called again, and in
     * the turn of an operation that the store was called for early. */
    int (*call)(QosOp *op);
    /* op->progress.result has come of it, also without a call. Once; it may wait for moments. */
    void (*called)(QosOp *op);
    /* FALSE: it waits, and its reply stays as it is. */
    gboolean (*settle)(QosOp *op);
    /* The operation may not have come to `enter`. Its open file is still there only with
     * `replies_first`. */
    void (*leave)(QosOp *op);

    /* Between call and called, for each inode that the reply tells of. May lower both times; the
     * first table sets what they are at most. */
    void (*reply)(QosOp *op, QosTold *told);
    /* Likewise, for the file `ino` that an OPEN or CREATE has opened as `open_file`. The first
     * table says whether the kernel keeps its pages: op->reply.info.keep_cache. */
    void (*reply_open)(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file);
    /* Likewise, for the directory that an OPENDIR has opened: whether the kernel keeps its list
     * (op->reply.info.keep_cache and cache_readdir). */
    void (*reply_opendir)(QosOp *op);
    /* Likewise, for each name of a list with attributes, of the inode `number` of the store. FALSE:
     * the list is to tell the name alone. `is_first`: the list is of the directory's first names.
     * Behind TRUE the name is looked up, and the second says what came of it: 0 and what it is, or
     * -errno. `name` is lent until then. */
    gboolean (*list)(QosOp *op, guint64 number, const char *name, gboolean is_first);
    void (*listed)(QosOp *op, int error, const struct stat *stat);
} QosHooks;
