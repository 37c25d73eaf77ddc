#include "fs/mount_options.h"

#include <sys/mount.h>

/* Those that mount(2) knows as flags. The first of each pair is how libfuse is told. */
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
};

/* Those that are mount(8)'s own, or how every mount is. */
static const char *const ignored_options[] = {
    "defaults", "auto",  "noauto",  "user",    "nouser", "users",    "nousers", "owner",
    "noowner",  "group", "nogroup", "_netdev", "nofail", "relatime", "loud",    "silent"};
/* The kernel shows the last three of every mount by FUSE. */
static const char *const ignored_prefixes[] = {
    "x-",      "X-",       "user=",     "comment=",           "uhelper=",
    "helper=", "user_id=", "group_id=", "default_permissions"};

static gboolean is_ignored(const char *text)
{
    for (guint i = 0; i < G_N_ELEMENTS(ignored_options); i++)
        if (g_str_equal(text, ignored_options[i]))
            return TRUE;
    for (guint i = 0; i < G_N_ELEMENTS(ignored_prefixes); i++)
        if (g_str_has_prefix(text, ignored_prefixes[i]))
            return TRUE;
    return FALSE;
}

gboolean qos_mount_options_take(const char *text, unsigned long *flags)
{
    for (guint i = 0; i < G_N_ELEMENTS(flag_options); i++) {
        if (g_str_equal(text, flag_options[i].name)) {
            *flags =
                flag_options[i].on ? *flags | flag_options[i].flag : *flags & ~flag_options[i].flag;
            return TRUE;
        }
    }
    return is_ignored(text);
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
