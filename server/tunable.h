/*
 * The settings of a running server that an administrator may change by `qosfsctl server set`.
 * Settings of the pool and of the sharing take effect at once; the lease and the size of groups
 * take effect at the next start. A setting is kept in the database, and overrides the option of the
 * same name until it is set to "default".
 */
#pragma once

#include "core/pool.h"

typedef struct {
    QosPoolConfig pool;
    QosTime lease;   /* a second to an hour */
    guint group;     /* inodes in a resource: a power of two, at most QOS_WIRE_GROUP_MAX */
    gboolean shares; /* adapt=fair: jobs divide what the store can do, over all mounts; */
    guint capacity;  /* that, in op/s: 1 to QOS_RATE_MAX; 0: it was not told */
} QosServerSettings;

/* The names of all, from 0 on; NULL: there is no further one. */
const char *qos_server_tunable_name(guint index);
/* What the tunable is for, in one line; NULL: there is no such tunable. */
const char *qos_server_tunable_help(const char *name);
/* Its value; free with g_free. */
char *qos_server_tunable_text(const QosServerSettings *settings, const char *name);
/* Sets one, in `settings` alone. FALSE with *error (QOS_ERROR) that names it: EINVAL or ERANGE, the
 * text will not do; ENOENT, there is none of that name. */
gboolean qos_server_tunable_set(QosServerSettings *settings, const char *name, const char *text,
                                GError **error);
/* A doubt about settings that are allowed but will not work well together; NULL: none. */
const char *qos_server_settings_doubt(const QosServerSettings *settings);
/* Whether the settings of the sharing go together. FALSE: *error (QOS_ERROR, EINVAL) says what to
 * do. */
gboolean qos_server_settings_check_sharing(const QosServerSettings *settings, GError **error);
/* HL where only L is given. */
gint64 qos_server_hard_limit(gint64 limit);
/* `settings` with what was set (name -> text), all or nothing; errors as of one, and ERANGE where
 * they do not go together. */
gboolean qos_server_settings_apply(QosServerSettings *settings, GHashTable *set, GError **error);
