/*
 * Sharing the store with other mounts (server=): makes the mount's lock client
 * (fs/lockclient/client.h), and passes each of its callbacks on to the parts of the mount that need
 * it.
 */
#pragma once

#include "db/db.h"
#include "fs/lockclient/client.h"
#include "fs/request/fs.h"

/* How far fcntl and flock locks reach (docs/design/filelocks.md). */
typedef enum {
    QOS_CLUSTER_LOCKS_CLUSTER, /* all mounts of the store */
    QOS_CLUSTER_LOCKS_LOCAL,   /* the processes of this mount: the kernel keeps them by itself */
} QosClusterLocks;

/* As the options have them; `server` NULL: the mount is alone. */
typedef struct {
    char *server;
    QosClusterLocks locks;
    gboolean has_locks; /* it was given */
    char *ca, *certificate, *key;
    char *munged;
    char *store; /* NULL: named by its type and its file system's id */
} QosClusterConfig;

void qos_cluster_config_clear(QosClusterConfig *config);

/* FALSE with an error (QOS_ERROR) where it can never work: before there is a database. */
gboolean qos_cluster_check(const char *source, const QosClusterConfig *config, GError **error);
/* Begins, after the daemon's fork, and before requests come; `fs->source` and `fs->mountpoint` are
 * known. NULL with an error (QOS_ERROR) where that can never work; a server that is away is not
 * one. The end is qos_lockclient_free(), when no request is left; what hears of it
 * (fs->admin, fs->shared_rules) is the caller's to free afterwards. */
QosLockclient *qos_cluster_start(QosFs *fs, QosDb *db, const QosClusterConfig *config,
                                 GError **error);
