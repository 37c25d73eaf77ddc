/*
 * Commands to the lock server on the rules of the cluster, from processes that use the mount
 * (`ADMIN` in core/wire_cluster.h).
 *
 * A process asks by an xattr of the mountpoint (fs/control/control_cluster.c). The server answers
 * when it has written to its database, which may take long, or never where it is away. So the
 * request is kept here, without a thread, until its result comes, and is answered in any case:
 *
 *     ask -> wait -> the result
 *                 -> ENOTCONN   the connection breaks
 *                 -> ETIMEDOUT  nothing has come for QOS_ADMIN_PATIENCE
 *                 -> EINTR      the process was killed
 *
 * FUSE waits for the answer of a killed process's request. The kernel may tell of the kill or not
 * (fs/caller/signals.h), so the processes that wait are looked at: every 50 ms, or less often
 * where they are many.
 *
 * The mount tells the server the uid of the process, and the server decides (server/admins.h).
 * Limit: a command that was answered by any of these errors may be carried out even so.
 *
 * Thread-safe. Lock: its own, the innermost; not held for a call of anything.
 */
#pragma once

#include "base/time.h"
#include "fs/lockclient/client.h"

#define QOS_ADMIN_MAX      256 /* questions that wait; one user has at most seven eighths */
#define QOS_ADMIN_PATIENCE (10 * QOS_SECOND)

typedef struct QosAdmin QosAdmin;

/* `error`: an errno, with `text` why, for people; or 0, with what was asked for. Without locks. */
typedef void (*QosAdminFunc)(int error, const char *text, gpointer arg);

QosAdmin *qos_admin_new(void);
/* Nothing waits any more: the lock client is freed, or was never made. NULL is allowed. */
void qos_admin_free(QosAdmin *admin);

/* Asks the server, in the name of the thread `pid` of the user `uid` (as in the context of a FUSE
 * request). `answer` is called once, by this thread or by another, before or after the return. */
void qos_admin_ask(QosAdmin *admin, guint32 uid, pid_t pid, const char *command,
                   QosAdminFunc answer, gpointer arg);

/* --- what the lock client tells: as the callbacks of QosLockclientConfig --- */

void qos_admin_connected(QosAdmin *admin, QosLockclient *client, gboolean is_connected);
/* The payload of ADMIN_RESULT. One that nothing waits for any more is passed over. */
gboolean qos_admin_result(QosAdmin *admin, const guint8 *payload, gsize length);
void qos_admin_due(QosAdmin *admin);
