/*
 * Adds the mount to the table of mount(8) (fs/daemon/mount_table.h). The table's format is private
 * to libmount, so this only runs mount(8), which writes the entry.
 */
#include "fs/daemon/mount_table.h"

#include <string.h>
#include <unistd.h>

#define HELPER "fuse.qosfs"

/* mount(8) itself adds what it was told, unless it finds an entry. */
void qos_mount_table_collect(GString **options, const char *word)
{
    static const char *const names[] = {"_netdev", "user", "users", "owner", "group"};
    static const char *const prefixes[] = {"x-", "X-", "user=", "comment="};
    gboolean is_taken = FALSE;

    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        is_taken = is_taken || g_str_equal(word, names[i]);
    for (guint i = 0; i < G_N_ELEMENTS(prefixes); i++)
        is_taken = is_taken || g_str_has_prefix(word, prefixes[i]);
    if (!is_taken || strpbrk(word, ",\\\""))
        return;
    if (!*options)
        *options = g_string_new(NULL);
    g_string_append_printf(*options, ",%s", word);
}

gboolean qos_mount_table_is_wanted(void)
{
    /* Where umount(8) looks for helpers. */
    static const char *const places[] = {"/sbin/umount." HELPER, "/sbin/fs.d/umount." HELPER,
                                         "/sbin/fs/umount." HELPER};

    for (guint i = 0; i < G_N_ELEMENTS(places) && geteuid() == 0; i++) {
        if (access(places[i], X_OK) == 0)
            return TRUE;
    }
    return FALSE;
}

void qos_mount_table_add(const char *source, const char *directory, const GString *options)
{
    g_autofree char *words = g_strconcat("uhelper=" HELPER, options ? options->str : NULL, NULL);
    /* -f: all but the mount; -i: without mount.qosfs */
    const char *const command[] = {
        "mount", "--no-canonicalize", "-i", "-f", "-t", HELPER, "-o", words,
        source,  directory,           NULL};

    g_spawn_sync(NULL, (char **)command, NULL,
                 G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL,
                 NULL, NULL, NULL, NULL, NULL, NULL);
}
