/*
 * What the kernel may cache of a store that other mounts change too, with a lock server
 * (docs/design/coherence.md).
 *
 * A credit on an inode covers all that the kernel keeps of it: attributes, ACLs, pages, and of a
 * directory the names, also those that are not there. What an operation lets the kernel keep it
 * does under a read credit; what it changes in the store, under a write credit. The table in
 * coherence.c says which operation needs what. An operation takes its credits when the gate has let
 * it go, in the order of resources, looks at the store, replies, and puts them: what nobody else
 * wants is taken again without a message.
 *
 *     qos_coherence_begin()    it is here; in the gate it may wait for a token
 *     qos_coherence_enter()    takes what is known to be needed        may have to wait
 *     run()                    may qos_coherence_touch() further files
 *     qos_coherence_settle()   takes the write credits of these        may have to wait
 *     reply
 *     qos_coherence_leave()    puts everything; also of one that was cancelled
 *
 * To take a write credit after the change does as well as before, as long as it is before the
 * reply: who looks meanwhile may see either, and who looks later has forgotten what was. So a file
 * whose number is known only when its directory is held needs no second look-up.
 *
 * An operation that waits for long holds no thread (fs/coherence/op_credits.h), but its slot in the
 * store; a worker goes on with it. Where a credit to read is not to be had (no server, or it is
 * full) the operation goes on, and what it replies is not cached. A change waits, and asks again:
 * docs/design/coherence.md says how long, and what becomes of one whose credit was lost while it
 * was in the store. Pages that no call for a credit would reach are found on the way
 * (fs/coherence/stale_pages.h): they are gone before attributes are answered.
 *
 * Nobody waits in a circle. Whoever has a credit in use is in the store, or waits for one later in
 * the order; no credit is in use while a request waits for tokens or for pages; and what is called
 * back is forgotten without waiting, but for moments, for a lock that the kernel holds for a
 * request (fs/coherence/invalidator.h).
 *
 * Each function does nothing at once, and says TRUE, where the mount has no lock server.
 */
#pragma once

#include "fs/coherence/namecache.h"
#include "fs/coherence/recall_queue.h"
#include "fs/lockclient/client.h"
#include "fs/request/op.h"
#include "fs/store/inode.h"

typedef struct QosCoherence QosCoherence;

/* Of a mount with a lock client and a session. NULL where its threads cannot be started. */
QosCoherence *qos_coherence_new(const QosFs *fs);
/* The kernel speaks FUSE 7.`minor`; before the first request. */
void qos_coherence_meet_kernel(QosCoherence *coherence, guint minor);
/* The mount ends: no pages are dropped any more. While requests are still served, as the kernel may
 * be waiting for one. NULL is allowed. */
void qos_coherence_end_drops(QosCoherence *coherence);
/* No operation waits any more, and none will; nothing is released to the client. Before
 * qos_gate_stop(). NULL is allowed. */
void qos_coherence_stop(QosCoherence *coherence);
/* Stopped, and the client freed. NULL is allowed. */
void qos_coherence_free(QosCoherence *coherence);

/* As `drop`, `lost` and `wanted` in QosLockclientConfig, of the resources of inodes. */
void qos_coherence_forget(QosCoherence *coherence, const QosResource *resource,
                          const QosCredit *credit, QosLossKind kind);
void qos_coherence_hurry(QosCoherence *coherence, const QosResource *resource);

/* It has come: before the gate. */
void qos_coherence_begin(QosOp *op);
/* FALSE: it waits, and is not the caller's any more; the gate resumes it. */
gboolean qos_coherence_enter(QosOp *op);
gboolean qos_coherence_settle(QosOp *op);
/*
 * Instead of these two, where the change is to be made before its turn, and only its answer waits.
 * Nothing waits here: FALSE where not all of its credits are at hand, and it must not be made now.
 * They are held until the second, with which `is_made` tells that it was, so that they are not in
 * use while the answer waits. In its turn it needs none, unless they were lost meanwhile.
 */
gboolean qos_coherence_begin_early(QosOp *op);
void qos_coherence_end_early(QosOp *op, gboolean is_made);
/* 0, or the -errno with which it is to end without being run. */
int qos_coherence_error(const QosOp *op);
void qos_coherence_leave(QosOp *op);
/* Whether leave() looks at the file that the operation has open. */
gboolean qos_coherence_needs_file(const QosOp *op);

/*
 * What names are is remembered as long as the credit on their directory is here
 * (fs/coherence/namecache.h). So run() says before it looks one up in the store, or with `changes`
 * before it makes one, which `look` is, and afterwards by one of the last two what came of it; of a
 * change also where it failed. Without a name (NULL) nothing is remembered.
 */
void qos_coherence_look(QosOp *op, const QosLoan *parent, const char *name, gboolean changes,
                        QosNameLook *ret_look);
/* The same before it removes, replaces or moves what `name` is: that is to be changed too, and is
 * ret_look->number. */
void qos_coherence_touch(QosOp *op, const QosLoan *parent, const char *name, QosNameLook *ret_look);
/* The name has been looked up, or made: 0 and what it is, or -errno. */
void qos_coherence_found(QosOp *op, const QosNameLook *look, int error, const struct stat *stat);
/* It is `number` now, which may be QOS_NAME_NONE or QOS_NAME_UNKNOWN. */
void qos_coherence_name_is(QosOp *op, const QosNameLook *look, guint64 number);

/* How long the kernel may keep, in s: the attributes of `ino`, at which run() has looked; the names
 * in the operation's directory. Only with a lock server. */
double qos_coherence_attr_timeout(QosOp *op, fuse_ino_t ino);
double qos_coherence_entry_timeout(const QosOp *op);
/* Whether the operation has a credit on the file: nobody else changes it. Likewise. */
gboolean qos_coherence_covers(const QosOp *op, const QosLoan *file);
/* Whether the kernel may keep its pages of the file that is being opened. Likewise. */
gboolean qos_coherence_opens(QosOp *op, fuse_ino_t ino, const QosLoan *file);
/* A list of the names in the operation's directory is about to be made: whether the kernel may keep
 * those whose files are covered. Likewise. */
gboolean qos_coherence_lists(QosOp *op);
/* Whether the list is to tell what it says of the inode `number` of the store; with `is_new` only
 * where the kernel does not know it. Likewise. */
gboolean qos_coherence_tells(const QosOp *op, guint64 number, gboolean is_new);
/* Whether a READ that fills pages of the file must not wait: they are being dropped. */
gboolean qos_coherence_is_dropping(const QosFs *fs, fuse_ino_t ino);
