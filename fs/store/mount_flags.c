/*
 * What the mounts of the store forbid. fs/store/mount_flags.h has the contract.
 */
#include "fs/store/mount_flags.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "sys/mutex.h"

#define TABLE   "/proc/self/mountinfo"
#define PORTION 65536 /* bytes that are read at once */
/* As <linux/statfs.h> has it; the C library does not tell. */
#define NOSYMFOLLOW_IN_STATVFS 0x2000

/* The columns, as proc(5) counts them from 0. */
enum { ID = 0, OPTIONS = 5 };

struct QosMountFlags {
    int table; /* TABLE, or -1 */
    QosMutex lock;
    GHashTable *known; /* id -> what it forbids; NULL: not read yet */
};

static const struct {
    const char *name;
    gulong flag;
} names[] = {{"nosuid", MS_NOSUID},
             {"nodev", MS_NODEV},
             {"noexec", MS_NOEXEC},
             {"nosymfollow", MS_NOSYMFOLLOW}};

/* One line of TABLE: FALSE where it is none. */
static gboolean parse(const char *line, guint64 *ret_id, gulong *ret_flags)
{
    g_auto(GStrv) words = g_strsplit(line, " ", OPTIONS + 2);
    g_auto(GStrv) options = NULL;

    if (g_strv_length(words) <= OPTIONS ||
        !g_ascii_string_to_unsigned(words[ID], 10, 0, G_MAXINT64, ret_id, NULL))
        return FALSE;
    options = g_strsplit(words[OPTIONS], ",", -1);
    *ret_flags = 0;
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (g_strv_contains((const char *const *)options, names[i].name))
            *ret_flags |= names[i].flag;
    }
    return TRUE;
}

QosMountFlags *qos_mount_flags_new(void)
{
    QosMountFlags *flags = g_new0(QosMountFlags, 1);

    qos_mutex_init(&flags->lock, QOS_MUTEX_MOUNT_FLAGS);
    flags->table = open(TABLE, O_RDONLY | O_CLOEXEC);
    return flags;
}

void qos_mount_flags_free(QosMountFlags *flags)
{
    if (flags == NULL)
        return;
    if (flags->table >= 0)
        close(flags->table);
    g_clear_pointer(&flags->known, g_hash_table_unref);
    qos_mutex_destroy(&flags->lock);
    g_free(flags);
}

static gboolean has_changed(int table)
{
    struct pollfd pollfd = {.fd = table, .events = POLLPRI};

    return poll(&pollfd, 1, 0) != 0;
}

/* The whole table; NULL where it cannot be read. */
static char *read_table(int table)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_autofree char *portion = g_malloc(PORTION);
    ssize_t length;

    if (lseek(table, 0, SEEK_SET) != 0)
        return NULL;
    while ((length = read(table, portion, PORTION)) != 0) {
        if (length > 0)
            g_string_append_len(text, portion, length);
        else if (errno != EINTR)
            return NULL;
    }
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static void learn_locked(QosMountFlags *flags)
{
    g_autofree char *text = read_table(flags->table);
    g_auto(GStrv) lines = text != NULL ? g_strsplit(text, "\n", -1) : NULL;

    g_clear_pointer(&flags->known, g_hash_table_unref);
    if (lines == NULL)
        return;
    flags->known = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    for (guint i = 0; lines[i] != NULL; i++) {
        guint64 id;
        gulong forbidden;

        if (parse(lines[i], &id, &forbidden))
            g_hash_table_insert(flags->known, g_memdup2(&id, sizeof(id)),
                                GSIZE_TO_POINTER(forbidden));
    }
}

/* FALSE: it is not in the table. */
static gboolean find(QosMountFlags *flags, guint64 id, gulong *ret_forbidden)
{
    gpointer forbidden = NULL;
    gboolean is_known;

    if (flags->table < 0)
        return FALSE;
    qos_mutex_lock(&flags->lock);
    if (has_changed(flags->table) || flags->known == NULL)
        learn_locked(flags);
    is_known =
        flags->known != NULL && g_hash_table_lookup_extended(flags->known, &id, NULL, &forbidden);
    qos_mutex_unlock(&flags->lock);
    *ret_forbidden = GPOINTER_TO_SIZE(forbidden);
    return is_known;
}

gulong qos_mount_flags_of(QosMountFlags *flags, guint64 id, int fd)
{
    gulong forbidden;
    struct statvfs statvfs;

    if (id != 0 && find(flags, id, &forbidden))
        return forbidden;
    if (fd < 0 || fstatvfs(fd, &statvfs) != 0)
        return QOS_MOUNT_FORBIDS;
    return (id != 0 || (statvfs.f_flag & ST_NOSUID) != 0 ? MS_NOSUID : 0) |
           ((statvfs.f_flag & ST_NODEV) != 0 ? MS_NODEV : 0) |
           ((statvfs.f_flag & ST_NOEXEC) != 0 ? MS_NOEXEC : 0) |
           ((statvfs.f_flag & NOSYMFOLLOW_IN_STATVFS) != 0 ? MS_NOSYMFOLLOW : 0);
}
