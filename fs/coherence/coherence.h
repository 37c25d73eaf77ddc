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
 * By the hooks of an operation's way (fs/request/hooks.h):
 *
 *     enter     it is here; in the gate it may wait for a token
 *     serve     takes what is known to be needed                            may have to wait
 *     call      finds what else its names have it change (fs/coherence/names.c)
 *     reply     what the kernel may keep (fs/coherence/reply.c)
 *     settle    takes the write credits of what else was changed            may have to wait
 *     leave     puts everything; also of one that was cancelled
 *
 * Where the change is made before its turn, and only its answer waits, its credits are taken if all
 * are at hand, and held until it is made, so that they are not in use while the answer waits. In
 * its turn it needs none, unless they were lost meanwhile.
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
 * Without a lock server there is no QosCoherence, and of the hooks only those of replies do
 * anything: the kernel may keep what the mount's options say.
 */
#pragma once

#include "fs/coherence/recall_queue.h"
#include "fs/lockclient/client.h"
#include "fs/request/hooks.h"

typedef struct QosCoherence QosCoherence;

/* Of a mount with a lock client and a session. NULL where its threads cannot be started. */
QosCoherence *qos_coherence_new(const QosFs *fs);
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

/* Also without a lock server. */
extern const QosHooks qos_coherence_hooks;
