/*
 * Coherence: what the kernel may cache of a store that other mounts change too, with a lock server
 * (docs/design/coherence.md).
 *
 * A credit on an inode covers all that the kernel keeps of it: attributes, ACLs, pages, and for a
 * directory its names, including those that do not exist. To let the kernel keep something, an
 * operation needs a read credit; to change something in the store, it needs a write credit. The
 * table in coherence.c says which operation needs what.
 *
 * When the gate has let it go, an operation takes its credits in the order of resources, looks at
 * the store, replies, and puts them. A credit that no other mount wants is taken again without a
 * message.
 *
 * The hooks on the way of an operation (fs/request/hooks.h):
 *
 *     enter     it is here; in the gate it may wait for a token
 *     serve     takes what is known to be needed                            may have to wait
 *     call      finds what else its names have it change (fs/coherence/names.c)
 *     reply     what the kernel may keep (fs/coherence/reply.c)
 *     settle    takes the write credits of what else was changed            may have to wait
 *     leave     puts everything; also of one that was cancelled
 *
 * A change that is made before its turn, while only its answer waits, takes its credits only if all
 * are at hand, and puts them after the change, so that they are not in use while the answer waits.
 * In its turn it needs no credits, unless they were lost meanwhile.
 *
 * A write credit may be taken after the change too, as long as it is taken before the reply.
 * Another mount that looks before that may see the old or the new state; one that looks later has
 * forgotten the old one. So if the number of a file is known only when its directory is held, no
 * second look-up is needed.
 *
 * An operation that waits for long holds no thread (fs/coherence/op_credits.h) and no slot. A
 * worker goes on with it, whether a slot is free or not. If a credit to read is not to be had,
 * because there is no server or it is full, the operation goes on, and its reply is not cached. A
 * change waits, and asks again. docs/design/coherence.md says how long, and what happens if its
 * credit is lost while it is in the store. Pages that no call for a credit would reach are found on
 * the way (fs/coherence/stale_pages.h). They are dropped before attributes are answered.
 *
 * Operations never wait in a circle, for three reasons. An operation that has a credit in use is in
 * the store, or waits for a credit later in the order. No credit is in use while a request waits
 * for tokens or for pages. And when a credit is called back, the mount forgets without waiting, but
 * for moments, for a lock that the kernel holds for a request (fs/coherence/invalidator.h).
 *
 * Without a lock server there is no QosCoherence, and only the hooks of replies do anything: the
 * kernel may keep what the mount's options say.
 */
#pragma once

#include "fs/coherence/recall_queue.h"
#include "fs/lockclient/client.h"
#include "fs/request/hooks.h"

typedef struct QosCoherence QosCoherence;

/* The mount must have a lock client and a session. NULL if a thread cannot be started. */
QosCoherence *qos_coherence_new(const QosFs *fs);
/* The mount ends: no pages are dropped any more. To be called while requests are still served,
 * because the kernel may be waiting for one. NULL is allowed. */
void qos_coherence_end_drops(QosCoherence *coherence);
/* No operation waits any more, and none will; nothing is released to the client. Before
 * qos_gate_stop(). NULL is allowed. */
void qos_coherence_stop(QosCoherence *coherence);
/* Stopped, and the client freed. NULL is allowed. */
void qos_coherence_free(QosCoherence *coherence);

/* As `drop`, `lost` and `wanted` in QosLockclientConfig, of the resources of inodes. */
void qos_coherence_forget(QosCoherence *coherence, const QosResource *resource,
                          const QosCredit *credit, QosRecallKind kind);
void qos_coherence_make_urgent(QosCoherence *coherence, const QosResource *resource);

/* Also without a lock server. */
extern const QosHooks qos_coherence_hooks;
