/*
 * The default place of a mount's database, if the option db= does not give one.
 */
#include <string.h>
#include <unistd.h>

#include "db/db.h"

#define NAME_LENGTH_MAX 200 /* leaves room for ".db-wal" and the like below NAME_MAX */

/* A path as systemd-escape(1) -p writes it, so that the database is named as the unit is. */
static char *escape_path(const char *path)
{
    g_autoptr(GString) name = g_string_new(NULL);

    for (path += strspn(path, "/"); *path; path++) {
        if (*path == '/')
            g_string_append_c(name, '-');
        else if (g_ascii_isalnum(*path) || strchr(":_", *path) || (*path == '.' && name->len > 0))
            g_string_append_c(name, *path);
        else
            g_string_append_printf(name, "\\x%02x", (guchar)*path);
    }
    if (name->len == 0)
        g_string_append_c(name, '-');
    return g_string_free(g_steal_pointer(&name), FALSE);
}

char *qos_db_default_path(const char *mountpoint)
{
    g_autofree char *escaped = escape_path(mountpoint);
    g_autofree char *name = NULL;

    if (strlen(escaped) > NAME_LENGTH_MAX) {
        g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, escaped, -1);

        name = g_strconcat(sum, ".db", NULL);
    } else {
        name = g_strconcat(escaped, ".db", NULL);
    }
    if (geteuid() == 0)
        return g_build_filename("/var/lib/qosfs", name, NULL);
    return g_build_filename(g_get_user_state_dir(), "qosfs", name, NULL);
}
