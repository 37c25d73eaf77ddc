/*
 * What an administrator may change of a running server, by `qosfsctl server set`: the settings of
 * the pool at once, the lease and the size of groups with the next start. What is set is kept in
 * the database, and prevails over the option of the same name until it is set to "default".
 */
#pragma once

#include "core/pool.h"

typedef struct {
    QosPoolConfig pool;
    QosTime lease;
    guint group;
} QosServerSettings;

/* Their names, ended by NULL. */
extern const char *const qos_server_tunables[];

/* What it is for, in one line; NULL: there is no such tunable. */
const char *qos_server_tunable_help(const char *name);
/* Its value; free with g_free. */
char *qos_server_tunable_text(const QosServerSettings *settings, const char *name);
/* TRUE: it takes effect with the next start. */
gboolean qos_server_tunable_waits(const char *name);
/* HL where only L is given. */
gint64 qos_server_hard_limit(gint64 limit);
/* `settings` with what was set (name -> text), all or nothing. FALSE with *error (QOS_ERROR) that
 * names the tunable; ENOENT: there is none of a name. */
gboolean qos_server_settings_apply(QosServerSettings *settings, GHashTable *set, GError **error);
