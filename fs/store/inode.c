/*
 * The table of inodes. fs/store/inode.h has the contract.
 *
 * There are two indexes: by node id, and by key. An inode is in the first as long as it lives. It
 * leaves the second early if it is closed and its key is found to be a new file's.
 *
 * A clock (second chance) tells which inode is closed next, so that a reference changes no list and
 * is returned without the lock. On the clock are the inodes that may be closed. Those referenced
 * are there too until the hand meets them; then they leave it until their last reference is put. An
 * inode that was referenced since the hand came by is spared once.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/quota.h"
#include "fs/store/inode_state.h"
#include "fs/store/local_fs.h"

/* When this many inodes are forgotten, and more than are left, their memory goes back to the
 * system. */
#define FORGOTTEN_MANY 10000
#define EXPLAIN_AGAIN  (60 * G_USEC_PER_SEC)
/* How many inodes the hand of the clock spares at a time, so that it does not turn for long with
 * the lock held. */
#define SPARED_MAX 64

static guint key_hash(gconstpointer data)
{
    const QosInodeKey *key = data;
    guint64 hash = (key->number ^ (key->device << 40) ^ (key->mount << 52)) * 0x9e3779b97f4a7c15u;

    return (guint)(hash >> 32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(QosInodeKey)) == 0;
}

#define PROC_DIRECTORY "/proc/self/fd/"

/* The way there from the working directory. */
static const char *proc_directory = PROC_DIRECTORY;

void qos_proc_enter(void)
{
    if (chdir(PROC_DIRECTORY) == 0)
        proc_directory = "";
}

/* By hand: with snprintf() it was a tenth of all that is done for an OPEN. */
void qos_proc_path(int fd, char path[QOS_PROC_PATH_MAX])
{
    char *place = g_stpcpy(path, proc_directory);
    int scale = 1;

    while (fd / scale >= 10)
        scale *= 10;
    for (; scale > 0; scale /= 10)
        *place++ = (char)('0' + fd / scale % 10);
    *place = '\0';
}

gboolean qos_inode_ref_wants_flush(const QosInodeRef *ref)
{
    const QosInodes *inodes = ref->inodes;

    return inodes->root_wants_flush || ref->inode->key.device != inodes->root_device;
}

/* --- life of an inode --- */

static guint references_of(guint use)
{
    return use / QOS_USE_REF;
}

static void add_to_clock_locked(QosInodes *inodes, QosInode *inode)
{
    if (!inode->is_on_clock && !inode->is_removed && inode->fd >= 0 && !inode->keeps_fd) {
        inode->is_on_clock = TRUE;
        g_queue_push_head_link(&inodes->clock, &inode->clock);
    }
    g_atomic_int_and(&inode->use, ~(guint)QOS_USE_UPDATE);
}

QosInode *qos_inode_add_locked(QosInodes *inodes, fuse_ino_t id, const QosFacts *facts, int fd,
                               QosUser *user)
{
    QosInode *inode = g_new(QosInode, 1);

    *inode = (QosInode){
        .id = id,
        .key = facts->key,
        .is_mount_root = facts->is_mount_root ? 1 : 0,
        .is_directory = S_ISDIR(facts->stat.st_mode) ? 1 : 0,
        .hides_device = facts->hides_device ? 1 : 0,
        .fd = fd,
        .user = user,
        .use = QOS_USE_UPDATE,
        .clock.data = inode,
    };
    inodes->open_count++;
    inodes->directories += inode->is_directory;
    g_hash_table_add(inodes->by_id, inode);
    g_hash_table_add(inodes->by_key, &inode->key);
    return inode;
}

void qos_inode_detach_key_locked(QosInodes *inodes, QosInode *inode)
{
    if (qos_inode_by_key_locked(inodes, &inode->key) == inode)
        g_hash_table_remove(inodes->by_key, &inode->key);
}

static void set_keeps_fd_locked(QosInode *inode, gboolean keeps_fd)
{
    if (inode->user != NULL)
        inode->user->known_files += (guint)keeps_fd - inode->keeps_fd;
    inode->keeps_fd = keeps_fd ? 1 : 0;
}

QosInode *qos_inode_update_locked(QosInodes *inodes, QosInode *inode)
{
    if (inode->lookups > 0) {
        add_to_clock_locked(inodes, inode);
        return NULL;
    }
    if (references_of(g_atomic_int_or(&inode->use, QOS_USE_UPDATE)) > 0)
        return NULL;
    qos_inode_take_off_clock_locked(inodes, inode);
    qos_inode_leave_removed_locked(inodes, inode);
    qos_inode_detach_key_locked(inodes, inode);
    g_hash_table_remove(inodes->by_id, inode);
    inodes->directories -= inode->is_directory;
    set_keeps_fd_locked(inode, FALSE);
    if (inode->fd >= 0)
        inodes->open_count--;
    return inode;
}

void qos_file_changes_free(QosFileChanges *changes)
{
    if (changes == NULL)
        return;
    qos_mutex_destroy(&changes->lock);
    g_free(changes);
}

static void free_inode(QosInodes *inodes, QosInode *inode)
{
    if (inode == NULL)
        return;
    /* The kernel forgets a folder after what is in it. */
    if (inode->is_mount_root)
        qos_mounts_leave(inodes->mounts, inode->key.mount);
    if (inode->fd >= 0)
        qos_closer_give(inodes->closer, inode->key.device, inode->fd);
    qos_file_handle_free(inode->handle);
    qos_file_changes_free(inode->changes);
    g_free(inode);
}

static void update(QosInodes *inodes, QosInode *inode)
{
    QosInode *gone;

    qos_mutex_lock(&inodes->lock);
    g_atomic_int_add(&inode->use, -QOS_USE_REF);
    gone = qos_inode_update_locked(inodes, inode);
    qos_mutex_unlock(&inodes->lock);
    free_inode(inodes, gone);
}

/* Puts one reference. Only if it is the last one and QOS_USE_UPDATE is set, the inode is
 * settled. */
void qos_inode_put(QosInodes *inodes, QosInode *inode)
{
    guint use = g_atomic_int_get(&inode->use);

    do {
        if (references_of(use) == 1 && (use & QOS_USE_UPDATE) != 0) {
            update(inodes, inode);
            return;
        }
    } while (!g_atomic_int_compare_and_exchange_full(&inode->use, use, use - QOS_USE_REF, &use));
}

/* Moves the hand of the clock to an inode without references, and spares some: that one, or NULL.
 */
static QosInode *turn_clock_locked(QosInodes *inodes)
{
    guint spared = 0;
    QosInode *inode;

    while ((inode = g_queue_peek_tail(&inodes->clock)) != NULL) {
        guint use = g_atomic_int_or(&inode->use, QOS_USE_UPDATE);

        qos_inode_take_off_clock_locked(inodes, inode);
        if (references_of(use) > 0)
            continue;
        if ((use & QOS_USE_RECENT) == 0 || spared++ >= SPARED_MAX)
            break;
        g_atomic_int_and(&inode->use, ~(guint)QOS_USE_RECENT);
        add_to_clock_locked(inodes, inode);
    }
    return inode;
}

/* An inode that has not been used for long, referenced, or NULL where no descriptor need be closed.
 */
static QosInode *take_surplus(QosInodes *inodes)
{
    QosInode *inode = NULL;

    qos_mutex_lock(&inodes->lock);
    if (inodes->open_count > inodes->open_max)
        inode = turn_clock_locked(inodes);
    if (inode != NULL)
        qos_inode_get_locked(inode);
    qos_mutex_unlock(&inodes->lock);
    return inode;
}

int qos_inode_close(QosInodes *inodes, QosInode *inode)
{
    QosFileHandle *handle = NULL;
    int fd = -1, nameless;

    qos_mutex_lock(&inodes->lock);
    nameless = inode->handle == NULL ? inode->fd : -1;
    qos_mutex_unlock(&inodes->lock);
    if (nameless >= 0)
        handle = qos_file_handle_new(inodes->mounts, inode->key.mount, nameless);
    qos_mutex_lock(&inodes->lock);
    if (inode->handle == NULL)
        inode->handle = g_steal_pointer(&handle);
    set_keeps_fd_locked(inode, inode->handle == NULL);
    if (references_of(g_atomic_int_get(&inode->use)) == 1 && !inode->keeps_fd && inode->fd >= 0) {
        fd = inode->fd;
        inode->fd = -1;
        inodes->open_count--;
    }
    if (inode->fd < 0 || inode->keeps_fd) /* a look-up may have added it again */
        qos_inode_take_off_clock_locked(inodes, inode);
    qos_mutex_unlock(&inodes->lock);
    qos_file_handle_free(handle); /* somebody else was first */
    return fd;
}

/* Takes the inode, which is referenced. */
static void close_descriptor(QosInodes *inodes, QosInode *inode)
{
    const int fd = qos_inode_close(inodes, inode);

    if (fd >= 0)
        qos_closer_give(inodes->closer, inode->key.device, fd);
    qos_inode_put(inodes, inode);
}

void qos_inodes_close_surplus(QosInodes *inodes)
{
    QosInode *inode;

    while ((inode = take_surplus(inodes)) != NULL) {
        QosInode *closed = qos_inode_keep_removed(inodes, inode);

        if (closed != inode)
            qos_inode_put(inodes, inode);
        if (closed != NULL)
            close_descriptor(inodes, closed);
    }
}

/* --- references --- */

/* Opens the descriptor of a closed inode that is referenced: >= 0, or -errno. */
static int open_inode(QosInodes *inodes, QosInode *inode)
{
    int fd, known;

    (void)qos_inodes_await_closes(inodes);
    fd = qos_file_handle_open(inode->handle);
    if (fd < 0)
        return fd;
    qos_mutex_lock(&inodes->lock);
    known = inode->fd;
    if (known < 0) {
        inode->fd = fd;
        inodes->open_count++;
        qos_inode_update_locked(inodes, inode); /* it is referenced, and stays */
    }
    qos_mutex_unlock(&inodes->lock);
    if (known < 0) {
        qos_inodes_close_surplus(inodes);
        return fd;
    }
    close(fd);
    return known;
}

/* All paths lead through the root. It is referenced for ever, and stays as it is. */
static void get_root(QosInodes *inodes, QosInodeRef *ret_ref)
{
    g_atomic_int_add(&inodes->root->use, QOS_USE_REF);
    *ret_ref = (QosInodeRef){.inodes = inodes, .inode = inodes->root, .fd = inodes->root->fd};
}

int qos_inodes_get(QosInodes *inodes, fuse_ino_t id, QosInodeRef *ret_ref)
{
    QosInode *inode;
    int fd = -1;

    if (id == FUSE_ROOT_ID) {
        get_root(inodes, ret_ref);
        return 0;
    }
    qos_mutex_lock(&inodes->lock);
    inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL) {
        qos_inode_get_locked(inode);
        fd = inode->fd;
    }
    qos_mutex_unlock(&inodes->lock);
    if (inode == NULL)
        return -ESTALE;
    if (fd < 0)
        fd = open_inode(inodes, inode);
    if (fd < 0) {
        qos_inode_put(inodes, inode);
        return fd;
    }
    *ret_ref = (QosInodeRef){.inodes = inodes, .inode = inode, .fd = fd};
    return 0;
}

void qos_inode_ref_put(QosInodeRef *ref)
{
    if (ref->inodes != NULL)
        qos_inode_put(ref->inodes, ref->inode);
    *ref = (QosInodeRef){.fd = -1};
}

gboolean qos_inode_ref_is_of(const QosInodeRef *ref, fuse_ino_t id)
{
    return ref->inode != NULL && ref->inode->id == id;
}

fuse_ino_t qos_inode_ref_id(const QosInodeRef *ref)
{
    return ref->inode->id;
}

dev_t qos_inode_ref_device(const QosInodeRef *ref)
{
    return ref->inode->key.device;
}

/* Whether it is known, and a directory, or none. */
static gboolean is_known_as(QosInodes *inodes, fuse_ino_t id, gboolean is_directory)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    gboolean is_such = inode != NULL && inode->is_directory == is_directory;
    qos_mutex_unlock(&inodes->lock);
    return is_such;
}

gboolean qos_inodes_is_directory(QosInodes *inodes, fuse_ino_t id)
{
    return is_known_as(inodes, id, TRUE);
}

gboolean qos_inodes_is_file(QosInodes *inodes, fuse_ino_t id)
{
    return is_known_as(inodes, id, FALSE);
}

void qos_inodes_note_stale(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL && !inode->is_directory)
        qos_inode_detach_key_locked(inodes, inode);
    qos_mutex_unlock(&inodes->lock);
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

    qos_mutex_lock(&inodes->lock);
    inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL) {
        inode->lookups -= MIN(count, inode->lookups);
        if (inode->lookups == 0)
            gone = qos_inode_update_locked(inodes, inode);
        is_much = gone != NULL && is_much_forgotten_locked(inodes);
    }
    qos_mutex_unlock(&inodes->lock);
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

/* A network's file system sends at close() what was written, and says how that went. */
static gboolean wants_flush(int fd)
{
    struct statfs statfs;

    return fstatfs(fd, &statfs) != 0 || !qos_local_store(&statfs);
}

/* An empty table. */
static QosInodes *new_table(void)
{
    QosInodes *inodes = g_new0(QosInodes, 1);

    qos_mutex_init(&inodes->lock, QOS_MUTEX_INODES);
    inodes->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    inodes->by_key = g_hash_table_new(key_hash, key_equal);
    inodes->next_id = QOS_INODE_FIRST + ((guint64)g_random_int() << 30);
    g_queue_init(&inodes->clock);
    g_queue_init(&inodes->removed);
    inodes->devices = g_array_new(FALSE, FALSE, sizeof(dev_t));
    inodes->open_max = descriptor_limit() / 2;
    inodes->removed_max = descriptor_limit() / 4;
    inodes->bound = descriptor_limit() / 4 * 3;
    inodes->closer = qos_closer_new();
    inodes->mounts = qos_mounts_new(inodes->closer);
    inodes->mount_flags = qos_mount_flags_new();
    inodes->source = -1;
    return inodes;
}

QosInodes *qos_inodes_new_over(const char *source, int original, int fd, GError **error)
{
    QosInodes *inodes = new_table();
    QosFacts facts = {0}, originals;
    struct stat stat;
    int result = fstat(fd, &stat) == 0 ? 0 : -errno;

    inodes->source = original;
    inodes->root_device = result == 0 ? stat.st_dev : 0;
    if (result == 0)
        result = qos_inodes_examine(inodes, fd, "", &facts);
    originals = facts;
    if (result == 0 && original >= 0)
        result = qos_inodes_examine(inodes, original, "", &originals);
    if (result != 0) {
        qos_set_error(error, -result, "cannot ask what %s is: %s", source, g_strerror(-result));
        close(fd);
        qos_inodes_free(inodes);
        return NULL;
    }
    inodes->root_wants_flush = wants_flush(fd);
    inodes->source_mount = originals.key.mount;
    inodes->has_mount_ids = facts.has_mount_id;
    qos_mounts_enter(inodes->mounts, facts.key.mount, fd);
    inodes->root_mount = facts.key.mount;
    inodes->root = qos_inode_add_locked(inodes, FUSE_ROOT_ID, &facts, fd, NULL);
    inodes->root->lookups = 1;
    qos_inode_get_locked(inodes->root); /* never given back: it stays open */
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
    if (inodes->source >= 0)
        close(inodes->source);
    qos_mounts_free(inodes->mounts);
    qos_mount_flags_free(inodes->mount_flags);
    qos_closer_free(inodes->closer);
    qos_mutex_destroy(&inodes->lock);
    g_free(inodes);
}

guint qos_inodes_bound(QosInodes *inodes)
{
    g_auto(QosInodeRef) root = {0};
    QosFileHandle *handle = NULL;

    if (qos_inodes_get(inodes, FUSE_ROOT_ID, &root) == 0)
        handle = qos_file_handle_new(inodes->mounts, root.inode->key.mount, root.fd);
    if (handle == NULL)
        return inodes->bound;
    qos_file_handle_free(handle);
    return 0;
}

guint qos_inodes_left_to_open(QosInodes *inodes)
{
    const guint known = qos_inodes_bound(inodes) == 0 ? inodes->open_max : inodes->bound;

    return descriptor_limit() - descriptor_limit() / 8 - known;
}

static gboolean is_full_locked(QosInodes *inodes)
{
    return inodes->open_count >= inodes->bound && g_queue_is_empty(&inodes->clock);
}

int qos_inodes_find_room_locked(QosInodes *inodes, const QosUser *user)
{
    if (is_full_locked(inodes))
        return -ENFILE;
    if (user != NULL && inodes->open_count < inodes->bound &&
        qos_quota_check(inodes->bound - inodes->open_count, 0, user->known_files) ==
            QOS_QUOTA_OF_USER)
        return -EMFILE;
    return 0;
}

int qos_inodes_find_room(QosInodes *inodes, const QosUser *user)
{
    gboolean has_room = qos_inodes_await_closes(inodes);

    qos_mutex_lock(&inodes->lock);
    int error = qos_inodes_find_room_locked(inodes, user);
    qos_mutex_unlock(&inodes->lock);
    return has_room ? error : -ENFILE;
}

gboolean qos_inodes_are_short(QosInodes *inodes, const QosUser *user)
{
    int copy;

    if (qos_inodes_find_room(inodes, user) != 0)
        return TRUE;
    copy = dup(inodes->root->fd);
    if (copy < 0)
        return TRUE;
    close(copy);
    return FALSE;
}

void qos_inodes_explain_shortage(QosInodes *inodes)
{
    gint64 now = g_get_monotonic_time();
    guint known, open_count;
    gboolean is_due;

    qos_mutex_lock(&inodes->lock);
    is_due = inodes->explained == 0 || now - inodes->explained >= EXPLAIN_AGAIN;
    if (is_due)
        inodes->explained = now;
    known = g_hash_table_size(inodes->by_id);
    open_count = inodes->open_count;
    qos_mutex_unlock(&inodes->lock);
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

    qos_mutex_lock(&inodes->lock);
    count = g_hash_table_size(inodes->by_id);
    qos_mutex_unlock(&inodes->lock);
    return count;
}

guint qos_inodes_by_directory(QosInodes *inodes)
{
    qos_mutex_lock(&inodes->lock);
    guint count = g_hash_table_size(inodes->by_id) / inodes->directories; /* one is the root */
    qos_mutex_unlock(&inodes->lock);
    return count;
}
