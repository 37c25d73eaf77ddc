/*
 * File handles of the store. fs/store/file_handle.h has the contract.
 */
#include "fs/store/file_handle.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fs/caller/cred.h"
#include "sys/mutex.h"

typedef struct {
    gint references; /* atomic: the table's, and the handles' */
    guint64 id;
    int fd; /* a directory on it, for open_by_handle_at(); -1: handles do not open here */
    gboolean is_nfs;
    QosCloser *closer;
} Mount;

struct QosMounts {
    QosCloser *closer;
    QosMutex lock;      /* the rest */
    GHashTable *mounts; /* id -> Mount, one reference each */
};

struct QosFileHandle {
    Mount *mount;              /* a reference */
    struct file_handle handle; /* last: of flexible size */
};

/* --- mounts --- */

static Mount *mount_ref(Mount *mount)
{
    g_atomic_int_inc(&mount->references);
    return mount;
}

static void mount_unref(gpointer data)
{
    Mount *mount = data;

    if (mount == NULL || !g_atomic_int_dec_and_test(&mount->references))
        return;
    /* If it was unmounted lazily, this is the end of it. */
    if (mount->fd >= 0)
        qos_closer_give(mount->closer, mount->id, mount->fd);
    g_free(mount);
}

QosMounts *qos_mounts_new(QosCloser *closer)
{
    QosMounts *mounts = g_new0(QosMounts, 1);

    qos_mutex_init(&mounts->lock, QOS_MUTEX_MOUNTS);
    mounts->closer = closer;
    mounts->mounts = g_hash_table_new(g_int64_hash, g_int64_equal);
    return mounts;
}

void qos_mounts_free(QosMounts *mounts)
{
    GHashTableIter iterator;
    gpointer mount;

    if (mounts == NULL)
        return;
    g_hash_table_iter_init(&iterator, mounts->mounts);
    while (g_hash_table_iter_next(&iterator, NULL, &mount))
        mount_unref(mount);
    g_hash_table_unref(mounts->mounts);
    qos_mutex_destroy(&mounts->lock);
    g_free(mounts);
}

/* A new reference, or NULL. */
static Mount *find_mount(QosMounts *mounts, guint64 id)
{
    Mount *mount;

    qos_mutex_lock(&mounts->lock);
    mount = g_hash_table_lookup(mounts->mounts, &id);
    if (mount != NULL)
        mount_ref(mount);
    qos_mutex_unlock(&mounts->lock);
    return mount;
}

/* Keeps `fd` (or -1) for mount `id`, unless another thread was first. */
static void add_mount(QosMounts *mounts, guint64 id, int fd, gboolean is_nfs)
{
    Mount *mount = g_new(Mount, 1);
    gboolean is_new;

    *mount =
        (Mount){.references = 1, .id = id, .fd = fd, .is_nfs = is_nfs, .closer = mounts->closer};
    qos_mutex_lock(&mounts->lock);
    is_new = !g_hash_table_contains(mounts->mounts, &id);
    if (is_new)
        g_hash_table_insert(mounts->mounts, &mount->id, mount);
    qos_mutex_unlock(&mounts->lock);
    if (!is_new)
        mount_unref(mount);
}

/* --- handles --- */

static int open_by_handle(int mount_fd, const struct file_handle *handle)
{
    int fd;

    qos_cred_raise();
    fd = open_by_handle_at(mount_fd, (struct file_handle *)handle, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    fd = fd >= 0 ? fd : -errno;
    qos_cred_lower();
    return fd;
}

/* A handle without its mount; NULL where the file has none. */
static QosFileHandle *name_file(int fd)
{
    union {
        QosFileHandle handle;
        char room[sizeof(QosFileHandle) + MAX_HANDLE_SZ];
    } named = {0};
    struct file_handle *handle = &named.handle.handle;
    int kernel_mount_id;

    handle->handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(fd, "", handle, &kernel_mount_id, AT_EMPTY_PATH) != 0)
        return NULL;
    return g_memdup2(&named, sizeof(QosFileHandle) + handle->handle_bytes);
}

static gboolean is_nfs(int fd)
{
    struct statfs statfs;

    return fstatfs(fd, &statfs) == 0 && statfs.f_type == NFS_SUPER_MAGIC;
}

void qos_mounts_enter(QosMounts *mounts, guint64 id, int fd)
{
    g_autofree QosFileHandle *handle = NULL;
    Mount *known = find_mount(mounts, id);
    int mount_fd, opened;

    if (known != NULL) {
        mount_unref(known);
        return;
    }
    if (!qos_cred_may_search())
        return;
    /* open_by_handle_at() takes no O_PATH descriptor. */
    qos_cred_raise();
    mount_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    qos_cred_lower();
    if (mount_fd < 0)
        return;
    handle = name_file(fd);
    opened = handle != NULL ? open_by_handle(mount_fd, &handle->handle) : -EOPNOTSUPP;
    if (opened >= 0) {
        close(opened);
    } else {
        close(mount_fd);
        mount_fd = -1;
    }
    add_mount(mounts, id, mount_fd, is_nfs(fd));
}

gboolean qos_mounts_keep_removed(QosMounts *mounts, guint64 id)
{
    Mount *mount = find_mount(mounts, id);
    const gboolean keeps = mount != NULL && mount->is_nfs;

    mount_unref(mount);
    return keeps;
}

void qos_mounts_leave(QosMounts *mounts, guint64 id)
{
    Mount *mount;

    qos_mutex_lock(&mounts->lock);
    mount = g_hash_table_lookup(mounts->mounts, &id);
    if (mount != NULL)
        g_hash_table_remove(mounts->mounts, &id);
    qos_mutex_unlock(&mounts->lock);
    mount_unref(mount);
}

QosFileHandle *qos_file_handle_new(QosMounts *mounts, guint64 mount_id, int fd)
{
    Mount *mount = find_mount(mounts, mount_id);
    QosFileHandle *handle = NULL;

    if (mount != NULL && mount->fd >= 0)
        handle = name_file(fd);
    if (handle != NULL)
        handle->mount = mount;
    else
        mount_unref(mount);
    return handle;
}

void qos_file_handle_free(QosFileHandle *handle)
{
    if (handle == NULL)
        return;
    mount_unref(handle->mount);
    g_free(handle);
}

int qos_file_handle_open(const QosFileHandle *handle)
{
    return open_by_handle(handle->mount->fd, &handle->handle);
}

gboolean qos_file_handle_equal(const QosFileHandle *a, const QosFileHandle *b)
{
    return a != NULL && b != NULL && a->mount->id == b->mount->id &&
           a->handle.handle_type == b->handle.handle_type &&
           a->handle.handle_bytes == b->handle.handle_bytes &&
           memcmp(a->handle.f_handle, b->handle.f_handle, a->handle.handle_bytes) == 0;
}
