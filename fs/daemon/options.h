/*
 * The command line of mount.qosfs: `mount.qosfs SRC DIR [-fnsv] [-N NAMESPACE] [-t TYPE] [-o
 * OPTION,...]`, which is how mount(8) calls its helpers (docs/mount.qosfs.8).
 *
 * Options are split by libfuse's fuse_opt, so that a comma in a value is written `\,`. Each tunable
 * (fs/control/tunable.h) is an option by its name (`policy` is short for `nrs_policies`). Its value
 * is checked when the tunable is put in force. Options that concern only mount(8) are ignored.
 */
#pragma once

#include <glib.h>

#include "fs/coherence/cluster.h"
#include "fs/daemon/mount_options.h"
#include "fs/request/fs.h"
#include "fs/transport/uring.h"

typedef struct {
    char *source; /* SRC and DIR as given */
    char *mountpoint;
    char *database;           /* db=, or NULL: qos_db_default_path() */
    QosClusterConfig cluster; /* server= and what goes with it */
    char *mount_namespace;    /* -N: a pid or the path of a namespace file, or NULL */
    QosFsConfig config;
    gboolean allow_other;
    guint threads; /* readers at most; 0 = not given */
    QosRingMode io_uring;
    guint io_uring_depth;    /* readers that wait at each CPU's queue */
    QosMountFlagWords flags; /* with what SRC's own mount forbids: qos_options_inherit() */
    GString *labels;         /* for SELinux, each with a comma ahead; NULL: none */
    GString *of_mount8;      /* for fs/daemon/mount_table.h; NULL: none */
    GHashTable *overrides;   /* tunable -> text, both owned */
    gboolean foreground;
    gboolean unconfined; /* without the limits of sys/privilege.h */
    gboolean fake;       /* -f: all but the mount */
    gboolean verbose;    /* -v */
    gboolean help;       /* -h or -V: nothing else was looked at */
    gboolean version;
} QosOptions;

/* Fills `ret_options` (on success) from a command line; `tunables` are the names of the tunables,
 * ended by NULL. Errors (QOS_ERROR): EINVAL with what is wrong; an unknown option is named, with
 * the nearest known one. */
gboolean qos_options_parse(QosOptions *ret_options, int argc, char **argv,
                           const char *const *tunables, GError **error);
void qos_options_clear(QosOptions *options);

/* This mount forbids what the mount that SRC lies on does (`forbidden`: MS_*), but for what root
 * wants by name. */
void qos_options_inherit(QosOptions *options, unsigned long forbidden);
/* The mount options for libfuse, as one argument for -o, for a store at the absolute path `source`.
 */
char *qos_options_for_libfuse(const QosOptions *options, const char *source);
