/*
 * The tables of the options that any mount may have (fs/daemon/mount_options.h): flags of mount(2),
 * options that are ignored, and options that are refused, with the reason for the user.
 */
#include "fs/daemon/mount_options.h"

#include <string.h>
#include <sys/mount.h>

/* Since Linux 5.10; older headers do not have it. */
#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

/* The options that are flags of mount(2). The first name of each group is passed to libfuse.
 * mount(8) does not pass on an option that clears a flag, so allow_... does it through mount(8)
 * too. */
static const struct {
    const char *name;
    unsigned long flag;
    gboolean on;
} flag_options[] = {
    {"ro", MS_RDONLY, TRUE},
    {"rw", MS_RDONLY, FALSE},
    {"nosuid", MS_NOSUID, TRUE},
    {"suid", MS_NOSUID, FALSE},
    {"nodev", MS_NODEV, TRUE},
    {"dev", MS_NODEV, FALSE},
    {"noexec", MS_NOEXEC, TRUE},
    {"exec", MS_NOEXEC, FALSE},
    {"noatime", MS_NOATIME, TRUE},
    {"atime", MS_NOATIME, FALSE},
    {"nodiratime", MS_NODIRATIME, TRUE},
    {"diratime", MS_NODIRATIME, FALSE},
    {"sync", MS_SYNCHRONOUS, TRUE},
    {"async", MS_SYNCHRONOUS, FALSE},
    {"dirsync", MS_DIRSYNC, TRUE},
    {"nosymfollow", MS_NOSYMFOLLOW, TRUE},
    {"symfollow", MS_NOSYMFOLLOW, FALSE},
    {"allow_suid", MS_NOSUID, FALSE},
    {"allow_dev", MS_NODEV, FALSE},
    {"allow_exec", MS_NOEXEC, FALSE},
};

/* How mount(8) writes which of its two layers is meant, and whether mounts below are; there is one
 * mount here, and none below it. */
static const char *const flag_values[] = {"=recursive", "=vfs", "=fs"};

/* The options that belong to mount(8) itself, or describe how every mount is. */
static const char *const ignored_options[] = {
    "defaults", "auto",     "noauto",     "user",          "nouser",     "users",
    "nousers",  "owner",    "noowner",    "group",         "nogroup",    "_netdev",
    "nofail",   "relatime", "norelatime", "nostrictatime", "nolazytime", "noiversion",
    "nomand",   "seclabel", "loud",       "silent"};
/* The kernel shows the last three of every mount by FUSE. */
static const char *const ignored_prefixes[] = {
    "x-",      "X-",       "user=",     "comment=",           "uhelper=",
    "helper=", "user_id=", "group_id=", "default_permissions"};

static const char *const label_prefixes[] = {
    "context=", "fscontext=", "defcontext=", "rootcontext="};

#define TIMES_ARE_OF_SRC                                                                           \
    "the times of files are written down by SRC, as that is mounted: give it to the mount that "   \
    "SRC "                                                                                         \
    "lies on"
#define MADE_BY_MOUNT                                                                              \
    "mount(8) makes such a mount by itself, of directories that are mounted already, also of DIR"
#define SET_BY_MOUNT                                                                               \
    "mount(8) sets it, when the mount is there: mount --make-private DIR, and its kin"
#define OF_DEVICES                                                                                 \
    "SRC is a directory, and neither a device nor an image: mount that first, then the directory"

/* The options that a qosfs mount cannot have, and the reasons. */
static const struct {
    const char *name;
    const char *reason;
} refused_options[] = {
    {"strictatime", TIMES_ARE_OF_SRC},
    {"lazytime", TIMES_ARE_OF_SRC},
    {"iversion", "the kernel keeps no versions of files for FUSE; SRC may"},
    {"mand", "Linux has no mandatory locks since 5.15"},
    {"bind", MADE_BY_MOUNT},
    {"rbind", MADE_BY_MOUNT},
    {"move", MADE_BY_MOUNT},
    {"private", SET_BY_MOUNT},
    {"rprivate", SET_BY_MOUNT},
    {"shared", SET_BY_MOUNT},
    {"rshared", SET_BY_MOUNT},
    {"slave", SET_BY_MOUNT},
    {"rslave", SET_BY_MOUNT},
    {"unbindable", SET_BY_MOUNT},
    {"runbindable", SET_BY_MOUNT},
    {"loop", OF_DEVICES},
    {"offset", OF_DEVICES},
    {"sizelimit", OF_DEVICES},
    {"encryption", OF_DEVICES},
    {"verity.hashdevice", OF_DEVICES},
    {"verity.roothash", OF_DEVICES},
};

static gboolean has_prefix(const char *text, const char *const *prefixes, guint count)
{
    for (guint i = 0; i < count; i++)
        if (g_str_has_prefix(text, prefixes[i]))
            return TRUE;
    return FALSE;
}

static gboolean is_ignored(const char *text)
{
    for (guint i = 0; i < G_N_ELEMENTS(ignored_options); i++)
        if (g_str_equal(text, ignored_options[i]))
            return TRUE;
    return has_prefix(text, ignored_prefixes, G_N_ELEMENTS(ignored_prefixes));
}

/* Whether it is `name`, alone or with one of the values. */
static gboolean is_flag(const char *text, const char *name)
{
    const char *value;

    if (!g_str_has_prefix(text, name))
        return FALSE;
    value = text + strlen(name);
    for (guint i = 0; i < G_N_ELEMENTS(flag_values) && *value; i++)
        if (g_str_equal(value, flag_values[i]))
            return TRUE;
    return !*value;
}

static gboolean take_flag(const char *text, QosMountFlagWords *flags)
{
    for (guint i = 0; i < G_N_ELEMENTS(flag_options); i++) {
        const unsigned long flag = flag_options[i].flag;

        if (!is_flag(text, flag_options[i].name))
            continue;
        flags->set = flag_options[i].on ? flags->set | flag : flags->set & ~flag;
        flags->said |= flag;
        return TRUE;
    }
    return FALSE;
}

/* NULL: it is not refused. */
static const char *find_reason(const char *text)
{
    const gsize length = strcspn(text, "=");

    for (guint i = 0; i < G_N_ELEMENTS(refused_options); i++)
        if (strlen(refused_options[i].name) == length &&
            strncmp(text, refused_options[i].name, length) == 0)
            return refused_options[i].reason;
    return NULL;
}

QosMountOption qos_mount_options_take(const char *text, QosMountFlagWords *flags,
                                      const char **ret_reason)
{
    if (take_flag(text, flags) || is_ignored(text))
        return QOS_MOUNT_OPTION_TAKEN;
    if (has_prefix(text, label_prefixes, G_N_ELEMENTS(label_prefixes)))
        return QOS_MOUNT_OPTION_LABEL;
    *ret_reason = find_reason(text);
    return *ret_reason ? QOS_MOUNT_OPTION_REFUSED : QOS_MOUNT_OPTION_UNKNOWN;
}

void qos_mount_options_append(GString *text, unsigned long flags)
{
    for (guint i = 0; i < G_N_ELEMENTS(flag_options); i++) {
        if (flag_options[i].on && (flags & flag_options[i].flag))
            g_string_append_printf(text, ",%s", flag_options[i].name);
    }
}

void qos_mount_options_consider(QosNear *near)
{
    for (guint i = 0; i < G_N_ELEMENTS(flag_options); i++)
        qos_near_consider(near, flag_options[i].name);
    for (guint i = 0; i < G_N_ELEMENTS(ignored_options); i++)
        qos_near_consider(near, ignored_options[i]);
}
