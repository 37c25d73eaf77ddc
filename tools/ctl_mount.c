/*
 * Finds a qosfs mount and exchanges text with it.
 *
 * Mounts are found by name in /proc/self/mountinfo, without touching them. So a mount with a dead
 * daemon does no harm unless it is the one asked for.
 *
 * If the mount refuses a setting, it explains why in the xattr last_error, of which each user has
 * one. If the kernel refuses the setting by itself (EACCES, EROFS: it checks before it asks the
 * mount), last_error is that of an earlier command. So these errors have messages of their own.
 */
#include "tools/ctl_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/error.h"
#include "tools/ctl_text.h"

#define XATTR_PREFIX "user.qosfs."
#define READ_SIZE    65536
#define PATIENCE     10 /* s that a mount may take to answer before the user is told */

/* A line of mountinfo: "36 35 98:0 /root /mountpoint options [optional...] - type source
 * superoptions". */
typedef struct {
    char *device;
    char *root;
    char *mountpoint;
    gboolean qosfs;
} Mount;

static void clear_mount(gpointer data)
{
    Mount *mount = data;
    g_free(mount->device);
    g_free(mount->root);
    g_free(mount->mountpoint);
}

static GArray *parse_mountinfo(const char *text)
{
    GArray *mounts = g_array_new(FALSE, FALSE, sizeof(Mount));
    g_array_set_clear_func(mounts, clear_mount);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        const char *tail = strstr(*line, " - ");
        g_auto(GStrv) fields = g_strsplit(*line, " ", 6);
        if (!tail || g_strv_length(fields) < 6)
            continue;
        /* Space, tab, newline and backslash stand as \040 and so on. */
        Mount mount = {g_strdup(fields[2]), g_strcompress(fields[3]), g_strcompress(fields[4]),
                       g_str_has_prefix(tail, " - fuse.qosfs ")};
        g_array_append_val(mounts, mount);
    }
    return mounts;
}

static gboolean contains(const char *directory, const char *path)
{
    gsize length = strlen(directory);
    if (g_str_equal(directory, "/"))
        return TRUE;
    return g_str_has_prefix(path, directory) && (path[length] == '/' || !path[length]);
}

char *qos_ctl_mount_containing(const char *mountinfo, const char *directory)
{
    g_autoptr(GArray) mounts = parse_mountinfo(mountinfo);
    const Mount *found = NULL;
    /* If two mounts are at one place, the later one covers the other. */
    for (guint i = 0; i < mounts->len; i++) {
        const Mount *mount = &g_array_index(mounts, Mount, i);
        if (contains(mount->mountpoint, directory) &&
            (!found || strlen(mount->mountpoint) >= strlen(found->mountpoint)))
            found = mount;
    }
    if (!found || !found->qosfs)
        return NULL;
    const Mount *whole = found;
    for (guint i = 0; i < mounts->len && !g_str_equal(whole->root, "/"); i++) {
        const Mount *mount = &g_array_index(mounts, Mount, i);
        if (g_str_equal(mount->device, found->device) && g_str_equal(mount->root, "/"))
            whole = mount;
    }
    return g_strdup(whole->mountpoint);
}

GPtrArray *qos_ctl_mount_all(const char *mountinfo)
{
    g_autoptr(GArray) mounts = parse_mountinfo(mountinfo);
    g_autoptr(GHashTable) devices = g_hash_table_new(g_str_hash, g_str_equal);
    GPtrArray *mountpoints = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < mounts->len; i++) {
        const Mount *mount = &g_array_index(mounts, Mount, i);
        if (mount->qosfs && g_str_equal(mount->root, "/") &&
            g_hash_table_add(devices, mount->device))
            g_ptr_array_add(mountpoints, g_strdup(mount->mountpoint));
    }
    return mountpoints;
}

/* First by name alone, because a path on a mount with a dead daemon cannot be resolved. */
static char *find_by_directory(const char *mountinfo, const char *directory, GError **error)
{
    if (!*directory) {
        qos_set_error(error, ENOENT, "--mount: the name of the directory is empty");
        return NULL;
    }
    g_autofree char *lexical = g_canonicalize_filename(directory, NULL);
    char *mountpoint = qos_ctl_mount_containing(mountinfo, lexical);
    if (mountpoint)
        return mountpoint;
    g_autofree char *shown = qos_ctl_escape(directory);
    char *resolved = realpath(directory, NULL);
    if (!resolved) {
        qos_set_error(error, errno, "%s: %s", shown, g_strerror(errno));
        return NULL;
    }
    mountpoint = qos_ctl_mount_containing(mountinfo, resolved);
    free(resolved);
    if (!mountpoint)
        qos_set_error(error, ENOENT,
                      "%s is not on a qosfs mount; 'findmnt -t fuse.qosfs' lists those there are",
                      shown);
    return mountpoint;
}

static char *find_only_one(const char *mountinfo, GError **error)
{
    g_autoptr(GPtrArray) all = qos_ctl_mount_all(mountinfo);
    if (all->len == 1)
        return g_strdup(all->pdata[0]);
    if (!all->len) {
        qos_set_error(error, ENOENT,
                      "nothing is mounted with qosfs here; mount with 'mount.qosfs SRC DIR'");
        return NULL;
    }
    GString *list = g_string_new(NULL);
    for (guint i = 0; i < all->len; i++) {
        g_autofree char *escaped = qos_ctl_escape(all->pdata[i]);
        g_string_append_printf(list, "\n  %s", escaped);
    }
    qos_set_error(error, ENOENT, "there are %u qosfs mounts: choose one with '-m DIR'%s", all->len,
                  list->str);
    g_string_free(list, TRUE);
    return NULL;
}

char *qos_ctl_mount_find(const char *option, GError **error)
{
    g_autofree char *mountinfo = NULL;
    g_autoptr(GError) reason = NULL;
    if (!g_file_get_contents("/proc/self/mountinfo", &mountinfo, NULL, &reason)) {
        qos_set_error(error, EIO, "cannot list the mounts: %s", reason->message);
        return NULL;
    }
    if (option)
        return find_by_directory(mountinfo, option, error);
    char directory[PATH_MAX];
    if (getcwd(directory, sizeof(directory))) {
        char *mountpoint = qos_ctl_mount_containing(mountinfo, directory);
        if (mountpoint)
            return mountpoint;
    }
    return find_only_one(mountinfo, error);
}

static const char who_may_read[] =
    "without the option allow_other only the user that mounted it may "
    "use it, not even root";
static const char who_may_change[] = "only root, or the user that mounted it, may change it";
/* Before it asks the mount, the kernel asks whether the caller may write to its root. */
static const char who_may_set[] =
    "only root, or the user that mounted it and may write to that directory, may "
    "change it";

/* Says why the mount could not be asked; `doing` is what was tried, `who` may do it. Always FALSE.
 */
static gboolean fail(GError **error, int code, const char *mountpoint, const char *doing,
                     const char *who)
{
    switch (code) {
    case ENOTCONN:
    case ECONNABORTED:
        qos_set_error(error, ENOTCONN,
                      "the daemon behind %s is gone; unmount it with 'umount %s' (as root; "
                      "'fusermount3 -u %s' "
                      "as its owner), then mount it again",
                      mountpoint, mountpoint, mountpoint);
        break;
    case EPERM:
    case EACCES:
        qos_set_error(error, code, "%s: cannot %s: %s; %s", mountpoint, doing, g_strerror(code),
                      who);
        break;
    case EROFS:
        qos_set_error(error, code,
                      "%s: cannot %s: it is mounted read-only, and the kernel lets no settings "
                      "through; mount it "
                      "without 'ro'",
                      mountpoint, doing);
        break;
    default:
        qos_set_error(error, code, "%s: cannot %s: %s", mountpoint, doing, g_strerror(code));
    }
    return FALSE;
}

/* --- a mount that does not answer --- */

/* Between watch_begin() and watch_end() the mount is asked. Such a call has no time limit, so a
 * thread watches the time, and tells the user once what the wait is for. */
typedef struct {
    const char *mountpoint;
    GThread *thread;
    GMutex lock;
    GCond ended;
    gboolean is_over;
} Watch;

static gpointer watch(gpointer data)
{
    Watch *watch = data;
    gint64 end = g_get_monotonic_time() + PATIENCE * G_USEC_PER_SEC;
    gboolean in_time = TRUE;

    g_mutex_lock(&watch->lock);
    while (!watch->is_over && in_time)
        in_time = g_cond_wait_until(&watch->ended, &watch->lock, end);
    g_mutex_unlock(&watch->lock);
    if (!in_time)
        fprintf(stderr,
                "%s: %s has not answered for %d s: its daemon is stopped, or hangs "
                "('pgrep -a mount.qosfs' shows it); still waiting\n",
                g_get_prgname(), watch->mountpoint, PATIENCE);
    return NULL;
}

static void watch_begin(Watch *self, const char *mountpoint)
{
    *self = (Watch){.mountpoint = mountpoint};
    g_mutex_init(&self->lock);
    g_cond_init(&self->ended);
    self->thread = g_thread_new("watch", watch, self);
}

static void watch_end(Watch *self)
{
    g_mutex_lock(&self->lock);
    self->is_over = TRUE;
    g_cond_signal(&self->ended);
    g_mutex_unlock(&self->lock);
    g_thread_join(self->thread);
    g_mutex_clear(&self->lock);
    g_cond_clear(&self->ended);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Watch, watch_end)

/* --- asking --- */

static int open_file(const char *mountpoint, const char *name, int flags, const char *doing,
                     const char *who, GError **error)
{
    g_autofree char *path = g_build_filename(mountpoint, ".qosfs", name, NULL);
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        qos_set_error(error, EPROTO, "%s: there is no .qosfs/%s; is it a mount of another version?",
                      mountpoint, name);
    else if (fd < 0)
        fail(error, errno, mountpoint, doing, who);
    return fd;
}

char *qos_ctl_mount_read(const char *mountpoint, const char *name, gsize *ret_length,
                         GError **error)
{
    g_autofree char *doing = g_strdup_printf("read .qosfs/%s", name);
    g_auto(Watch) watch;
    watch_begin(&watch, mountpoint);
    int fd = open_file(mountpoint, name, O_RDONLY, doing, who_may_read, error);
    if (fd < 0)
        return NULL;
    GString *text = g_string_new(NULL);
    g_autofree char *buffer = g_malloc(READ_SIZE);
    ssize_t length;
    while ((length = read(fd, buffer, READ_SIZE)) > 0 || (length < 0 && errno == EINTR))
        g_string_append_len(text, buffer, MAX(length, 0));
    if (length < 0)
        fail(error, errno, mountpoint, doing, who_may_read);
    close(fd);
    if (ret_length)
        *ret_length = text->len;
    return g_string_free(text, length < 0);
}

char *qos_ctl_mount_read_job(const char *mountpoint, const char *id, gsize *ret_length,
                             GError **error)
{
    g_autofree char *name = g_strconcat(XATTR_PREFIX "job.", id, NULL);
    g_autofree char *value = g_malloc(READ_SIZE);
    g_auto(Watch) watch;
    watch_begin(&watch, mountpoint);
    ssize_t length = getxattr(mountpoint, name, value, READ_SIZE);
    if (length >= 0) {
        *ret_length = (gsize)length;
        return g_steal_pointer(&value);
    }
    /* ERANGE: the name is too long for an xattr, or the value is */
    if (errno != ENODATA && errno != ERANGE)
        fail(error, errno, mountpoint, "ask for the job", who_may_read);
    return NULL;
}

gboolean qos_ctl_mount_write(const char *mountpoint, const char *name, const char *text,
                             GError **error)
{
    g_autofree char *doing = g_strdup_printf("write .qosfs/%s", name);
    g_auto(Watch) watch;
    watch_begin(&watch, mountpoint);
    int fd = open_file(mountpoint, name, O_WRONLY, doing, who_may_change, error);
    if (fd < 0)
        return FALSE;
    ssize_t length = write(fd, text, strlen(text));
    int code = length < 0 ? errno : 0;
    if (close(fd) < 0 && !code)
        code = errno;
    return code ? fail(error, code, mountpoint, doing, who_may_change) : TRUE;
}

/* The mount's own words for its last refusal, one line; NULL where it has none. */
static char *last_error(const char *mountpoint)
{
    g_autofree char *value = g_malloc0(READ_SIZE + 1);
    ssize_t length = getxattr(mountpoint, XATTR_PREFIX "last_error", value, READ_SIZE);
    if (length <= 0)
        return NULL;
    g_strchomp(value);
    return *value ? qos_ctl_escape(value) : NULL;
}

char *qos_ctl_mount_get(const char *mountpoint, const char *name, GError **error)
{
    g_autofree char *xattr = g_strconcat(XATTR_PREFIX, name, NULL);
    g_autofree char *value = g_malloc0(READ_SIZE + 1);
    g_auto(Watch) watch;
    watch_begin(&watch, mountpoint);
    if (getxattr(mountpoint, xattr, value, READ_SIZE) >= 0)
        return g_steal_pointer(&value);
    int code = errno;
    g_autofree char *doing = g_strdup_printf("read %.40s", name);
    /* Of these the kernel has decided, and asked nobody. */
    g_autofree char *reason = code != EACCES && code != ERANGE ? last_error(mountpoint) : NULL;
    if (code == ENODATA)
        qos_set_error(error, EPROTO, "%s: cannot %s: is it a mount of another version?", mountpoint,
                      doing);
    else if (reason)
        qos_set_error(error, code, "%s", reason);
    else
        fail(error, code, mountpoint, doing, who_may_read);
    return NULL;
}

gboolean qos_ctl_mount_set(const char *mountpoint, const char *name, const char *value,
                           GError **error)
{
    g_autofree char *xattr = g_strconcat(XATTR_PREFIX, name, NULL);
    g_auto(Watch) watch;
    watch_begin(&watch, mountpoint);
    if (!setxattr(mountpoint, xattr, value, strlen(value), 0))
        return TRUE;
    int code = errno;
    g_autofree char *doing = g_strdup_printf("set %s", name);
    g_autofree char *reason = NULL;
    /* With ENOTCONN the lock server may be away; the mount has no words where it is away itself. */
    if (code != EACCES && code != EROFS)
        reason = last_error(mountpoint);
    if (!reason)
        return fail(error, code, mountpoint, doing, who_may_set);
    qos_set_error(error, code, "%s", reason);
    return FALSE;
}
