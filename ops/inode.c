/*
 * The table of inodes (ops/inode.h).
 *
 * Two indexes: by node id, and by key. An inode is in the first as long as it lives; it leaves the
 * second early when it is cold and its key is found to be a new file's. `idle` holds the inodes
 * that have a descriptor and no loan, the longest idle last: the candidates for becoming cold.
 */
#include "ops/inode.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/time.h"
#include "ops/cred.h"
#include "ops/fhandle.h"

/* The coarsest clock that stamps files: a change this close to now may be followed by one that
 * looks the same. */
#define STAMP_TICK (20 * QOS_MILLISECOND)
/* Bits of an inode number on other devices than the root's; the device's place is above them. */
#define NUMBER_BITS 48
/* So many inodes forgotten, and more than are left: their memory goes back to the system. */
#define FORGOTTEN_MANY 10000
#define EXPLAIN_AGAIN  (60 * G_USEC_PER_SEC)

typedef struct {
    guint64 mount;
    guint64 device;
    guint64 number;
} Key;

/* What examine() finds out of a file. */
typedef struct {
    Key key;
    struct stat stat;
    gboolean is_mount_root; /* a directory by which a mount is entered */
} Facts;

/* By what a file is seen to have changed. */
typedef struct {
    guint64 modified; /* ns since 1970 */
    guint64 changed;
    off_t size;
} Stamp;

/* There may be millions: the order leaves no gaps. */
struct QosInode {
    guint64 id; /* first: the index by id holds these */
    Key key;
    gint finds_known; /* atomic; a directory: the last look-up in it was of a warm file */
    /* --- under the table's lock --- */
    guint is_mount_root : 1; /* never changes, like the next */
    guint is_directory : 1;
    guint keeps_fd : 1; /* it has no handle */
    guint is_idle : 1;
    guint64 lookups;
    guint loans;
    int fd;                /* O_PATH, or -1: cold */
    QosFileHandle *handle; /* NULL until it is first needed; stays then */
    GList idle;            /* in the table's list while `is_idle` */
    Stamp stamp;
};

struct QosInodes {
    pthread_mutex_t lock;
    GHashTable *by_id;  /* a set of QosInode.id */
    GHashTable *by_key; /* a set of QosInode.key */
    fuse_ino_t next_id;
    guint forgotten; /* since memory was given back */
    GQueue idle;
    guint open_count;
    gint64 explained; /* monotonic us: when the log last told of a shortage */
    GArray *devices;  /* of dev_t: those other than the root's, in the order they were seen */
    /* --- read-only --- */
    guint open_max; /* beyond it inodes become cold */
    guint bound;    /* at it, no more files become known while none can become cold */
    dev_t root_device;
    QosMounts *mounts;
};

static guint key_hash(gconstpointer data)
{
    const Key *key = data;
    guint64 hash = (key->number ^ (key->device << 40) ^ (key->mount << 52)) * 0x9e3779b97f4a7c15u;

    return (guint)(hash >> 32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(Key)) == 0;
}

void qos_proc_path(int fd, char path[QOS_PROC_PATH_MAX])
{
    snprintf(path, QOS_PROC_PATH_MAX, "/proc/self/fd/%d", fd);
}

/* --- attributes --- */

static struct timespec timespec_from_statx(const struct statx_timestamp *stamp)
{
    return (struct timespec){.tv_sec = stamp->tv_sec, .tv_nsec = stamp->tv_nsec};
}

/* `name` in the directory `fd`, or `fd` itself where it is "". One call tells the attributes and
 * the mount, which stat() does not know. */
static int examine(QosInodes *inodes, int fd, const char *name, Facts *ret_facts)
{
    int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    struct statx statx_buffer = {0}, *x = &statx_buffer;
    struct stat *stat = &ret_facts->stat;

    if (statx(fd, name, flags, STATX_BASIC_STATS | STATX_MNT_ID, x) != 0)
        return -errno;
    *stat = (struct stat){
        .st_dev = makedev(x->stx_dev_major, x->stx_dev_minor),
        .st_ino = x->stx_ino,
        .st_mode = x->stx_mode,
        .st_nlink = x->stx_nlink,
        .st_uid = x->stx_uid,
        .st_gid = x->stx_gid,
        .st_rdev = makedev(x->stx_rdev_major, x->stx_rdev_minor),
        .st_size = (off_t)x->stx_size,
        .st_blksize = x->stx_blksize,
        .st_blocks = (blkcnt_t)x->stx_blocks,
        .st_atim = timespec_from_statx(&x->stx_atime),
        .st_mtim = timespec_from_statx(&x->stx_mtime),
        .st_ctim = timespec_from_statx(&x->stx_ctime),
    };
    ret_facts->key = (Key){.device = stat->st_dev, .number = x->stx_ino};
    /* Kernels before 5.8 do not tell. */
    ret_facts->key.mount = (x->stx_mask & STATX_MNT_ID) != 0 ? x->stx_mnt_id : stat->st_dev;
    ret_facts->is_mount_root =
        (x->stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0 && S_ISDIR(x->stx_mode);
    stat->st_ino = qos_inodes_shown(inodes, stat->st_dev, stat->st_ino);
    return 0;
}

guint64 qos_inodes_shown(QosInodes *inodes, dev_t device, guint64 number)
{
    guint place;

    if (device == inodes->root_device)
        return number;
    pthread_mutex_lock(&inodes->lock);
    for (place = 0; place < inodes->devices->len; place++) {
        if (g_array_index(inodes->devices, dev_t, place) == device)
            break;
    }
    if (place == inodes->devices->len)
        g_array_append_val(inodes->devices, device);
    pthread_mutex_unlock(&inodes->lock);
    /* A number that is too large for its place is spread over all 64 bits: as good as unique. */
    if (number >> NUMBER_BITS != 0)
        number *= 0x9e3779b97f4a7c15u;
    return number ^ ((guint64)(place + 1) << NUMBER_BITS);
}

/* Modulo 2^64, so that no time is out of range. */
static guint64 nanoseconds(struct timespec time)
{
    return (guint64)time.tv_sec * QOS_SECOND + (guint64)time.tv_nsec;
}

gboolean qos_loan_is_unchanged(const QosLoan *loan, const struct stat *stat)
{
    Stamp now = {nanoseconds(stat->st_mtim), nanoseconds(stat->st_ctim), stat->st_size};
    Stamp *last = &loan->inode->stamp;
    struct timespec clock;
    gboolean unchanged;

    clock_gettime(CLOCK_REALTIME, &clock);
    if ((gint64)(nanoseconds(clock) - now.changed) < STAMP_TICK)
        now.size = -1; /* equals nothing */

    pthread_mutex_lock(&loan->inodes->lock);
    unchanged = now.size >= 0 && memcmp(&now, last, sizeof(now)) == 0;
    *last = now;
    pthread_mutex_unlock(&loan->inodes->lock);
    return unchanged;
}

/* --- life of an inode; `_locked`: under the table's lock --- */

static QosInode *find_by_id_locked(QosInodes *inodes, guint64 id)
{
    return g_hash_table_lookup(inodes->by_id, &id);
}

static QosInode *find_by_key_locked(QosInodes *inodes, const Key *key)
{
    char *found = g_hash_table_lookup(inodes->by_key, key);

    return found == NULL ? NULL : (QosInode *)(found - offsetof(QosInode, key));
}

static void stop_idling_locked(QosInodes *inodes, QosInode *inode)
{
    if (inode->is_idle)
        g_queue_unlink(&inodes->idle, &inode->idle);
    inode->is_idle = FALSE;
}

static QosInode *add_inode_locked(QosInodes *inodes, fuse_ino_t id, const Facts *facts, int fd)
{
    QosInode *inode = g_new0(QosInode, 1);

    inode->id = id;
    inode->key = facts->key;
    inode->is_mount_root = facts->is_mount_root;
    inode->is_directory = S_ISDIR(facts->stat.st_mode);
    inode->fd = fd;
    inode->idle.data = inode;
    inode->stamp.size = -1;
    inodes->open_count++;
    g_hash_table_add(inodes->by_id, inode);
    g_hash_table_add(inodes->by_key, &inode->key);
    return inode;
}

static void detach_key_locked(QosInodes *inodes, QosInode *inode)
{
    if (find_by_key_locked(inodes, &inode->key) == inode)
        g_hash_table_remove(inodes->by_key, &inode->key);
}

/* Files an inode whose counts have changed: into the list of the idle, or out of the table. Returns
 * it in the latter case, for free_inode(). */
static QosInode *settle_locked(QosInodes *inodes, QosInode *inode)
{
    stop_idling_locked(inodes, inode);
    if (inode->loans > 0)
        return NULL;
    if (inode->lookups > 0) {
        if (inode->fd >= 0 && !inode->keeps_fd) {
            inode->is_idle = TRUE;
            g_queue_push_head_link(&inodes->idle, &inode->idle);
        }
        return NULL;
    }
    detach_key_locked(inodes, inode);
    g_hash_table_remove(inodes->by_id, inode);
    if (inode->fd >= 0)
        inodes->open_count--;
    return inode;
}

static void free_inode(QosInodes *inodes, QosInode *inode)
{
    if (inode == NULL)
        return;
    /* The kernel forgets a folder after what is in it. */
    if (inode->is_mount_root)
        qos_mounts_leave(inodes->mounts, inode->key.mount);
    if (inode->fd >= 0)
        close(inode->fd);
    qos_file_handle_free(inode->handle);
    g_free(inode);
}

/* Gives back one loan. */
static void put_inode(QosInodes *inodes, QosInode *inode)
{
    QosInode *gone;

    pthread_mutex_lock(&inodes->lock);
    inode->loans--;
    gone = settle_locked(inodes, inode);
    pthread_mutex_unlock(&inodes->lock);
    free_inode(inodes, gone);
}

/* The inode that was idle longest, on loan, or NULL where no descriptor need be closed. */
static QosInode *take_surplus(QosInodes *inodes)
{
    QosInode *inode = NULL;

    pthread_mutex_lock(&inodes->lock);
    if (inodes->open_count > inodes->open_max)
        inode = g_queue_peek_tail(&inodes->idle);
    if (inode != NULL) {
        inode->loans++;
        stop_idling_locked(inodes, inode);
    }
    pthread_mutex_unlock(&inodes->lock);
    return inode;
}

/* Closes descriptors until they are no more than they may be, as far as there are any to close. */
static void close_surplus(QosInodes *inodes)
{
    QosInode *inode;

    while ((inode = take_surplus(inodes)) != NULL) {
        QosFileHandle *handle = NULL;
        int fd = -1;

        /* Only this list leads here, and the inode is not on it: nobody else sets the handle. */
        if (inode->handle == NULL)
            handle = qos_file_handle_new(inodes->mounts, inode->key.mount, inode->fd);
        pthread_mutex_lock(&inodes->lock);
        if (inode->handle == NULL)
            inode->handle = handle;
        inode->keeps_fd = inode->handle == NULL;
        if (inode->loans == 1 && !inode->keeps_fd) {
            fd = inode->fd;
            inode->fd = -1;
            inodes->open_count--;
        }
        pthread_mutex_unlock(&inodes->lock);
        put_inode(inodes, inode);
        if (fd >= 0)
            close(fd);
    }
}

/* --- loans --- */

/* Opens the descriptor of a cold inode on loan: >= 0, or -errno. */
static int warm(QosInodes *inodes, QosInode *inode)
{
    int fd = qos_file_handle_open(inode->handle), known;

    if (fd < 0)
        return fd;
    pthread_mutex_lock(&inodes->lock);
    known = inode->fd;
    if (known < 0) {
        inode->fd = fd;
        inodes->open_count++;
    }
    pthread_mutex_unlock(&inodes->lock);
    if (known < 0) {
        close_surplus(inodes);
        return fd;
    }
    close(fd);
    return known;
}

int qos_inodes_borrow(QosInodes *inodes, fuse_ino_t id, QosLoan *ret_loan)
{
    QosInode *inode;
    int fd = -1;

    pthread_mutex_lock(&inodes->lock);
    inode = find_by_id_locked(inodes, id);
    if (inode != NULL) {
        inode->loans++;
        stop_idling_locked(inodes, inode);
        fd = inode->fd;
    }
    pthread_mutex_unlock(&inodes->lock);
    if (inode == NULL)
        return -ESTALE;
    if (fd < 0)
        fd = warm(inodes, inode);
    if (fd < 0) {
        put_inode(inodes, inode);
        return fd;
    }
    *ret_loan = (QosLoan){.inodes = inodes, .inode = inode, .fd = fd};
    return 0;
}

void qos_loan_return(QosLoan *loan)
{
    if (loan->inodes != NULL)
        put_inode(loan->inodes, loan->inode);
    *loan = (QosLoan){.fd = -1};
}

gboolean qos_inodes_is_directory(QosInodes *inodes, fuse_ino_t id)
{
    guint64 key = id;

    pthread_mutex_lock(&inodes->lock);
    const QosInode *inode = g_hash_table_lookup(inodes->by_id, &key);
    gboolean is_directory = inode != NULL && inode->is_directory;
    pthread_mutex_unlock(&inodes->lock);
    return is_directory;
}

/* --- look-ups --- */

/* The inode that has `key`, if it is the file whose handle is `handle`. A warm one is for certain;
 * a cold one whose key has become another file's loses it. */
static QosInode *find_locked(QosInodes *inodes, const Key *key, const QosFileHandle *handle)
{
    QosInode *inode = find_by_key_locked(inodes, key);

    if (inode == NULL || inode->fd >= 0 || qos_file_handle_equal(inode->handle, handle))
        return inode;
    detach_key_locked(inodes, inode);
    return NULL;
}

/* The same, with the handle made that takes: the lock is given up meanwhile. */
static QosInode *identify_locked(QosInodes *inodes, const Key *key, int fd)
{
    QosInode *inode = find_by_key_locked(inodes, key);
    QosFileHandle *handle;

    if (inode == NULL || inode->fd >= 0)
        return inode;
    pthread_mutex_unlock(&inodes->lock);
    handle = qos_file_handle_new(inodes->mounts, key->mount, fd);
    pthread_mutex_lock(&inodes->lock);
    inode = find_locked(inodes, key, handle);
    qos_file_handle_free(handle);
    return inode;
}

static gboolean is_full_locked(QosInodes *inodes)
{
    return inodes->open_count >= inodes->bound && g_queue_is_empty(&inodes->idle);
}

int qos_inodes_find_room(QosInodes *inodes)
{
    gboolean is_full;

    pthread_mutex_lock(&inodes->lock);
    is_full = is_full_locked(inodes);
    pthread_mutex_unlock(&inodes->lock);
    return is_full ? -ENFILE : 0;
}

/* Counts a look-up of the file that is `fd` (O_PATH, taken over). *ret_known: it was warm. */
static int count_lookup(QosInodes *inodes, int fd, struct fuse_entry_param *ret_entry,
                        gboolean *ret_known)
{
    QosInode *inode;
    Facts facts = {0};
    int error = examine(inodes, fd, "", &facts);

    if (error != 0) {
        close(fd);
        return error;
    }
    if (facts.is_mount_root)
        qos_mounts_enter(inodes->mounts, facts.key.mount, fd);
    pthread_mutex_lock(&inodes->lock);
    inode = identify_locked(inodes, &facts.key, fd);
    if (inode == NULL && is_full_locked(inodes)) {
        pthread_mutex_unlock(&inodes->lock);
        if (facts.is_mount_root)
            qos_mounts_leave(inodes->mounts, facts.key.mount);
        close(fd);
        return -ENFILE;
    }
    if (inode == NULL) {
        inode = add_inode_locked(inodes, inodes->next_id++, &facts, fd);
        fd = -1;
    } else if (inode->fd < 0) {
        inode->fd = fd;
        inodes->open_count++;
        fd = -1;
    }
    inode->lookups++;
    settle_locked(inodes, inode);
    *ret_entry = (struct fuse_entry_param){.ino = inode->id, .attr = facts.stat};
    pthread_mutex_unlock(&inodes->lock);

    *ret_known = fd >= 0;
    if (fd >= 0)
        close(fd);
    else
        close_surplus(inodes);
    return 0;
}

/* Counts a look-up of a warm file by its key alone: its descriptor pins it, so that the key can be
 * no other's. For any other file, ret_entry->ino is 0. */
static int count_warm_lookup(QosInodes *inodes, const QosLoan *parent, const char *name,
                             struct fuse_entry_param *ret_entry)
{
    QosInode *inode;
    Facts facts = {0};
    int error = examine(inodes, parent->fd, name, &facts);

    if (error != 0)
        return error;
    *ret_entry = (struct fuse_entry_param){.attr = facts.stat};
    pthread_mutex_lock(&inodes->lock);
    inode = find_by_key_locked(inodes, &facts.key);
    if (inode != NULL && inode->fd >= 0) {
        inode->lookups++;
        settle_locked(inodes, inode);
        ret_entry->ino = inode->id;
    }
    pthread_mutex_unlock(&inodes->lock);
    return 0;
}

/* A new file costs openat() and statx(), a warm one only the latter: what the last look-up in the
 * directory found is what this one expects, as programs walk a directory. */
int qos_inodes_lookup(QosInodes *inodes, const QosLoan *parent, const char *name,
                      struct fuse_entry_param *ret_entry)
{
    gboolean expected = g_atomic_int_get(&parent->inode->finds_known), known;
    int error, fd;

    if (expected) {
        error = count_warm_lookup(inodes, parent, name, ret_entry);
        if (error != 0 || ret_entry->ino != 0)
            return error;
    }
    fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    error = count_lookup(inodes, fd, ret_entry, &known);
    if (error == 0 && known != expected)
        g_atomic_int_set(&parent->inode->finds_known, known);
    return error;
}

/* An O_PATH descriptor of the open file `fd`: by its name, where that still is this file's, as the
 * way through /proc costs several times as much. */
static int open_path(int parent, const char *name, int fd)
{
    char path[QOS_PROC_PATH_MAX];
    struct stat opened, named;
    int path_fd = name != NULL ? openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;

    if (path_fd >= 0) {
        if (fstat(fd, &opened) == 0 && fstat(path_fd, &named) == 0 &&
            opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
            return path_fd;
        close(path_fd);
    }
    qos_proc_path(fd, path);
    return open(path, O_PATH | O_CLOEXEC);
}

int qos_inodes_adopt(QosInodes *inodes, int parent, const char *name, int fd,
                     struct fuse_entry_param *ret_entry)
{
    int path_fd = open_path(parent, name, fd);
    gboolean known;

    return path_fd < 0 ? -errno : count_lookup(inodes, path_fd, ret_entry, &known);
}

static gboolean is_much_forgotten_locked(QosInodes *inodes)
{
    inodes->forgotten++;
    if (inodes->forgotten < MAX(FORGOTTEN_MANY, g_hash_table_size(inodes->by_id)))
        return FALSE;
    inodes->forgotten = 0;
    return TRUE;
}

void qos_inodes_forget(QosInodes *inodes, fuse_ino_t id, guint64 count)
{
    QosInode *inode, *gone = NULL;
    gboolean is_much = FALSE;

    pthread_mutex_lock(&inodes->lock);
    inode = find_by_id_locked(inodes, id);
    if (inode != NULL) {
        inode->lookups -= MIN(count, inode->lookups);
        if (inode->lookups == 0)
            gone = settle_locked(inodes, inode);
        is_much = gone != NULL && is_much_forgotten_locked(inodes);
    }
    pthread_mutex_unlock(&inodes->lock);
    free_inode(inodes, gone);
    if (is_much)
        malloc_trim(0);
}

/* --- the table --- */

static guint descriptor_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (guint)CLAMP(limit.rlim_cur, 32, G_MAXINT)
                                                 : G_MAXINT;
}

QosInodes *qos_inodes_new(const char *source, GError **error)
{
    QosInodes *inodes;
    QosInode *root;
    struct stat stat;
    Facts facts = {0};
    int fd = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &stat) != 0) {
        qos_set_error(error, errno, "cannot open the directory %s: %s", source, g_strerror(errno));
        return NULL;
    }
    inodes = g_new0(QosInodes, 1);
    pthread_mutex_init(&inodes->lock, NULL);
    inodes->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    inodes->by_key = g_hash_table_new(key_hash, key_equal);
    inodes->next_id = QOS_INODE_FIRST;
    g_queue_init(&inodes->idle);
    inodes->devices = g_array_new(FALSE, FALSE, sizeof(dev_t));
    inodes->open_max = descriptor_limit() / 2;
    inodes->bound = descriptor_limit() / 4 * 3;
    inodes->mounts = qos_mounts_new();
    inodes->root_device = stat.st_dev;
    if (examine(inodes, fd, "", &facts) != 0) {
        qos_set_error(error, errno, "cannot examine %s: %s", source, g_strerror(errno));
        close(fd);
        qos_inodes_free(inodes);
        return NULL;
    }
    qos_mounts_enter(inodes->mounts, facts.key.mount, fd);
    root = add_inode_locked(inodes, FUSE_ROOT_ID, &facts, fd);
    root->lookups = 1;
    root->loans = 1; /* never given back: it stays warm */
    return inodes;
}

void qos_inodes_free(QosInodes *inodes)
{
    GHashTableIter iterator;
    gpointer inode;

    if (inodes == NULL)
        return;
    g_hash_table_iter_init(&iterator, inodes->by_id);
    while (g_hash_table_iter_next(&iterator, NULL, &inode))
        free_inode(inodes, inode);
    g_hash_table_unref(inodes->by_id);
    g_hash_table_unref(inodes->by_key);
    g_array_unref(inodes->devices);
    qos_mounts_free(inodes->mounts);
    pthread_mutex_destroy(&inodes->lock);
    g_free(inodes);
}

guint qos_inodes_bound(QosInodes *inodes)
{
    g_auto(QosLoan) root = {0};
    QosFileHandle *handle = NULL;

    if (qos_inodes_borrow(inodes, FUSE_ROOT_ID, &root) == 0)
        handle = qos_file_handle_new(inodes->mounts, root.inode->key.mount, root.fd);
    qos_file_handle_free(handle);
    return handle != NULL ? 0 : inodes->bound;
}

void qos_inodes_explain_shortage(QosInodes *inodes)
{
    gint64 now = g_get_monotonic_time();
    guint known, open_count;
    gboolean is_due;

    pthread_mutex_lock(&inodes->lock);
    is_due = inodes->explained == 0 || now - inodes->explained >= EXPLAIN_AGAIN;
    if (is_due)
        inodes->explained = now;
    known = g_hash_table_size(inodes->by_id);
    open_count = inodes->open_count;
    pthread_mutex_unlock(&inodes->lock);
    if (is_due)
        g_warning("too many files at once: of %u known files, %u take a descriptor, beside those "
                  "that programs have open; %u are all that the daemon may have. What is known "
                  "goes on; others are refused until files are closed or forgotten. Raise the "
                  "limit of open files (RLIMIT_NOFILE)",
                  known, open_count, descriptor_limit());
}

guint qos_inodes_count(QosInodes *inodes)
{
    guint count;

    pthread_mutex_lock(&inodes->lock);
    count = g_hash_table_size(inodes->by_id);
    pthread_mutex_unlock(&inodes->lock);
    return count;
}

guint qos_inodes_open_count(QosInodes *inodes)
{
    guint count;

    pthread_mutex_lock(&inodes->lock);
    count = inodes->open_count;
    pthread_mutex_unlock(&inodes->lock);
    return count;
}
