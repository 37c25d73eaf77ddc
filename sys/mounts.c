/*
 * Whether a mount is gone (sys/mounts.h), from the kernel's tables.
 *
 * A mount is known by the words of its line in mountinfo. It is still there if such a line is in
 * the table of this process or of the daemon, or if fusectl lists a connection with its device
 * number.
 */
#include "sys/mounts.h"

#include <string.h>

#define CONNECTIONS "/sys/fs/fuse/connections/"

/* The columns of mountinfo, as proc(5) counts them from 0; type and source come after "-". */
enum { DEVICE = 2, PLACE = 4, FIRST_OPTIONAL = 6 };

/* The lines of a table of mounts, each as its words; of GStrv. */
static GPtrArray *read_table(const char *path)
{
    GPtrArray *table = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return table;
    lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i]; i++) {
        GStrv words = g_strsplit(lines[i], " ", -1);

        if (g_strv_length(words) > FIRST_OPTIONAL)
            g_ptr_array_add(table, words);
        else
            g_strfreev(words);
    }
    return table;
}

static char *identity_of(char *const *words)
{
    guint dash = FIRST_OPTIONAL;

    while (words[dash] && !g_str_equal(words[dash], "-"))
        dash++;
    return words[dash] && words[dash + 1] && words[dash + 2]
               ? g_strjoin(" ", words[DEVICE], words[dash + 1], words[dash + 2], NULL)
               : NULL;
}

char *qos_mounts_identify(const char *directory)
{
    g_autoptr(GPtrArray) table = read_table("/proc/self/mountinfo");
    char *const *found = NULL;

    for (guint i = 0; i < table->len; i++) {
        char *const *words = g_ptr_array_index(table, i);
        g_autofree char *place = g_strcompress(words[PLACE]); /* \040 is a blank */

        if (g_str_equal(place, directory))
            found = words;
    }
    return found ? identity_of(found) : NULL;
}

typedef enum { NOT_THERE, IS_THERE, IS_ANOTHER } Presence;

/* Whether the device is in the table, as that file system or as another. */
static Presence look_in(const char *path, const char *identity)
{
    g_autoptr(GPtrArray) table = read_table(path);
    const gsize length = strcspn(identity, " ");
    Presence presence = NOT_THERE;

    for (guint i = 0; i < table->len; i++) {
        char *const *words = g_ptr_array_index(table, i);
        g_autofree char *other = NULL;

        if (strlen(words[DEVICE]) != length || strncmp(words[DEVICE], identity, length) != 0)
            continue;
        other = identity_of(words);
        if (g_strcmp0(other, identity) == 0)
            return IS_THERE;
        presence = IS_ANOTHER;
    }
    return presence;
}

gboolean qos_mounts_has(const char *identity, pid_t daemon)
{
    g_autofree char *of_daemon = g_strdup_printf("/proc/%d/mountinfo", (int)daemon);
    const char *minor = strchr(identity, ':');
    g_autofree char *number = minor ? g_strndup(minor + 1, strcspn(minor + 1, " ")) : NULL;
    g_autofree char *connection = g_strconcat(CONNECTIONS, number, NULL);
    Presence presence = look_in("/proc/self/mountinfo", identity);

    if (presence == NOT_THERE && daemon > 0)
        presence = look_in(of_daemon, identity);
    return presence == IS_THERE ||
           (presence == NOT_THERE && number && g_file_test(connection, G_FILE_TEST_IS_DIR));
}
