/*
 * The rules of the cluster at this mount: takes the lock server's list, puts it in force, and keeps
 * the mount's budgets (fs/budgets.h) and its part in common epochs going.
 *
 *     server -- RULES, in pages --> read --> in force --> RULES_SEEN, reports
 *     server -- BUDGET_GRANT -----> in force --> wake what waits at the gate
 *     a time has come, a class wakes --> step --> reports
 *     policy grr -- EPOCH --> server -- EPOCH --> the next epoch (fs/epochs.h)
 *
 * A list of thousands of rules takes long to read. So the lock client's thread reads it before it
 * takes the gate's lock. Nothing is sent with that lock held.
 *
 * The list of the newest connection counts, whatever its version: a server may have been restored
 * from a backup, or be another one. A list that this version of qosfs cannot read is logged, and
 * the one before stays in force; the mount does not acknowledge it, so the server knows. A mount
 * that was never welcomed has its own rules alone, and one that lost its server keeps the list.
 *
 * Times are the gate's, CLOCK_MONOTONIC, which stands still while the machine sleeps. The server's
 * clock goes on, and it lends a rate on when the lease has ended. So where CLOCK_BOOTTIME has gone
 * on without the other, all leases end, and answers to reports from before are void. The alarm is
 * of CLOCK_BOOTTIME, so this is seen as the machine wakes. Limit: what goes in the moment before
 * that goes at the old rate. A rule that expires does so later by the time of the sleep.
 */
#pragma once

#include "fs/gate/gate.h"
#include "fs/lockclient/client.h"

typedef struct QosSharedRules QosSharedRules;

/* `gate` is borrowed, and gets its budgets. `incarnation` as for qos_budgets_new(). */
QosSharedRules *qos_shared_rules_new(QosGate *gate, guint32 incarnation);
/* No class wakes the lock client from now on, and the server is told that the mount needs no floor
 * any more. When no request is left, before the lock client is freed. NULL is allowed. */
void qos_shared_rules_stop(QosSharedRules *shared);
/* After the lock client, before the gate. NULL is allowed. */
void qos_shared_rules_free(QosSharedRules *shared);

#define QOS_SHARED_RULES_FAULT_MAX 255 /* bytes of text */
/* Why the server's latest list is not in force: "" where it is, or none has come. Copied to
 * `ret_fault`, of the size above and a NUL. Any thread. */
void qos_shared_rules_fault(QosSharedRules *shared, char *ret_fault);

/* --- what the lock client tells: as the callbacks of QosLockclientConfig --- */

void qos_shared_rules_connected(QosSharedRules *shared, QosLockclient *client,
                                gboolean is_connected);
/* The payload of RULES; by the link. */
gboolean qos_shared_rules_page(QosSharedRules *shared, const guint8 *payload, gsize length);
/* The payload of BUDGET_GRANT. */
gboolean qos_shared_rules_grant(QosSharedRules *shared, const guint8 *payload, gsize length);
/* The payload of an EPOCH. */
gboolean qos_shared_rules_epoch(QosSharedRules *shared, const guint8 *payload, gsize length);
void qos_shared_rules_due(QosSharedRules *shared);
