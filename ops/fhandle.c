/*
 * File handles of the store (ops/fhandle.h).
 */
#include "ops/fhandle.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/cred.h"
#include "ops/inode.h"

typedef struct {
    guint64 id;
    int fd; /* a file or directory on it, for open_by_handle_at(); -1: handles do not open here */
} Mount;

struct QosMounts {
    GMutex lock;
    GHashTable *mounts; /* id -> Mount; they stay until the end */
};

struct QosFileHandle {
    const Mount *mount;
    struct file_handle handle; /* last: of flexible size */
};

static void mount_free(gpointer data)
{
    Mount *mount = data;

    if (mount->fd >= 0)
        close(mount->fd);
    g_free(mount);
}

QosMounts *qos_mounts_new(void)
{
    QosMounts *mounts = g_new0(QosMounts, 1);

    g_mutex_init(&mounts->lock);
    mounts->mounts = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, mount_free);
    return mounts;
}

void qos_mounts_free(QosMounts *mounts)
{
    if (mounts == NULL)
        return;
    g_hash_table_unref(mounts->mounts);
    g_mutex_clear(&mounts->lock);
    g_free(mounts);
}

static const Mount *find_mount(QosMounts *mounts, guint64 id)
{
    const Mount *mount;

    g_mutex_lock(&mounts->lock);
    mount = g_hash_table_lookup(mounts->mounts, &id);
    g_mutex_unlock(&mounts->lock);
    return mount;
}

/* Keeps `fd` (or -1) for mount `id`, unless another thread was first. */
static const Mount *add_mount(QosMounts *mounts, guint64 id, int fd)
{
    Mount *mount = g_new(Mount, 1);
    Mount *known;

    *mount = (Mount){.id = id, .fd = fd};
    g_mutex_lock(&mounts->lock);
    known = g_hash_table_lookup(mounts->mounts, &id);
    if (known == NULL)
        g_hash_table_insert(mounts->mounts, &mount->id, mount);
    g_mutex_unlock(&mounts->lock);
    if (known == NULL)
        return mount;
    mount_free(mount);
    return known;
}

/* open_by_handle_at() takes no O_PATH descriptor, and opening a special file might wait. */
static int open_for_mount(int fd)
{
    char path[QOS_PROC_PATH_MAX];
    struct stat stat;

    if (fstat(fd, &stat) != 0 || !(S_ISDIR(stat.st_mode) || S_ISREG(stat.st_mode)))
        return -1;
    qos_proc_path(fd, path);
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

static int open_by_handle(int mount_fd, const struct file_handle *handle)
{
    int fd;

    qos_cred_raise();
    fd = open_by_handle_at(mount_fd, (struct file_handle *)handle, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    fd = fd >= 0 ? fd : -errno;
    qos_cred_lower();
    return fd;
}

/* The mount of `fd`, tried out with its handle; NULL where this file cannot tell. */
static const Mount *learn_mount(QosMounts *mounts, guint64 id, int fd,
                                const struct file_handle *handle)
{
    int mount_fd, opened;

    qos_cred_raise();
    mount_fd = open_for_mount(fd);
    qos_cred_lower();
    if (mount_fd < 0)
        return NULL;
    opened = open_by_handle(mount_fd, handle);
    if (opened >= 0) {
        close(opened);
        return add_mount(mounts, id, mount_fd);
    }
    close(mount_fd);
    if (opened == -EPERM || opened == -EOPNOTSUPP)
        return add_mount(mounts, id, -1);
    return NULL;
}

QosFileHandle *qos_file_handle_new(QosMounts *mounts, guint64 mount_id, int fd)
{
    g_autofree QosFileHandle *handle = g_malloc0(sizeof(*handle) + MAX_HANDLE_SZ);
    int kernel_mount_id;

    handle->handle.handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(fd, "", &handle->handle, &kernel_mount_id, AT_EMPTY_PATH) != 0)
        return NULL;
    handle->mount = find_mount(mounts, mount_id);
    if (handle->mount == NULL)
        handle->mount = learn_mount(mounts, mount_id, fd, &handle->handle);
    if (handle->mount == NULL || handle->mount->fd < 0)
        return NULL;
    gsize size = sizeof(*handle) + handle->handle.handle_bytes;
    return g_realloc(g_steal_pointer(&handle), size);
}

void qos_file_handle_free(QosFileHandle *handle)
{
    g_free(handle);
}

int qos_file_handle_open(const QosFileHandle *handle)
{
    return open_by_handle(handle->mount->fd, &handle->handle);
}

gboolean qos_file_handle_equal(const QosFileHandle *a, const QosFileHandle *b)
{
    return a != NULL && b != NULL && a->mount == b->mount &&
           a->handle.handle_type == b->handle.handle_type &&
           a->handle.handle_bytes == b->handle.handle_bytes &&
           memcmp(a->handle.f_handle, b->handle.f_handle, a->handle.handle_bytes) == 0;
}
