/*
 * Which changes of a file are this mount's own (fs/store/inode.h). fs/changes.h decides; this file
 * has its lock and its clocks.
 */
#include <sys/stat.h>
#include <time.h>

#include "fs/store/inode_state.h"
#include "sys/clock.h"

/* A change from elsewhere waits no longer than this for a WRITE that is under way. */
#define FOREIGN_PATIENCE QOS_SECOND

/* How long new rights are told in each answer, because the kernel takes none from an answer that it
 * gets while a write ends. */
#define RIGHTS_TOLD QOS_SECOND
/* No digest: rights that the kernel is told in each answer. */
#define RIGHTS_ALWAYS 2

static gint64 nanoseconds(struct timespec time)
{
    return (gint64)((guint64)time.tv_sec * QOS_SECOND + (guint64)time.tv_nsec);
}

static QosMoment moment(void)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return (QosMoment){qos_clock_now(), nanoseconds(wall)};
}

static QosStamp stamp_of(struct timespec modified, off_t size)
{
    return (QosStamp){nanoseconds(modified), size};
}

void qos_inodes_trust_credits(QosInodes *inodes)
{
    inodes->has_credits = TRUE;
}

/* With credits no look is needed: what is new is the mount's own unless they say otherwise. */
static gboolean looks(const QosInodeRef *ref)
{
    return !ref->inodes->has_credits && !qos_inode_ref_wants_flush(ref);
}

static QosFileChanges *changes_of(const QosInodeRef *ref)
{
    return g_atomic_pointer_get(&ref->inode->changes);
}

static QosFileChanges *changes_for(const QosInodeRef *ref)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes != NULL)
        return changes;
    changes = g_new0(QosFileChanges, 1);
    qos_mutex_init(&changes->lock, QOS_MUTEX_CHANGES);
    qos_changes_init(&changes->changes, looks(ref),
                     ref->inodes->has_credits ? 0 : FOREIGN_PATIENCE);
    if (g_atomic_pointer_compare_and_exchange(&ref->inode->changes, NULL, changes))
        return changes;
    qos_file_changes_free(changes);
    return changes_of(ref);
}

void qos_inode_ref_watch(const QosInodeRef *ref)
{
    changes_for(ref);
}

QosFileChanges *qos_inode_ref_begin_change(const QosInodeRef *ref, int fd)
{
    QosFileChanges *changes = changes_of(ref);
    const QosTime asked = qos_clock_now();
    struct stat stat;
    gboolean has_looked;

    if (changes == NULL)
        return NULL;
    has_looked = fd >= 0 && looks(ref) && fstat(fd, &stat) == 0;
    const QosMoment now = moment();
    qos_mutex_lock(&changes->lock);
    if (has_looked) {
        const QosStamp stamp = stamp_of(stat.st_mtim, stat.st_size);
        qos_changes_look(&changes->changes, &stamp, asked, now);
    }
    qos_changes_begin(&changes->changes, now);
    qos_mutex_unlock(&changes->lock);
    return changes;
}

void qos_file_changes_note_append(QosFileChanges *changes, int fd, off_t offset)
{
    struct stat stat;

    /* The size is read anew, because with credits not every change is preceded by a look. */
    if (changes == NULL || fstat(fd, &stat) != 0)
        return;
    qos_mutex_lock(&changes->lock);
    qos_changes_append(&changes->changes, offset, stat.st_size, qos_clock_now());
    qos_mutex_unlock(&changes->lock);
}

void qos_file_changes_end(QosFileChanges *changes)
{
    if (changes == NULL)
        return;
    const QosMoment now = moment();
    qos_mutex_lock(&changes->lock);
    qos_changes_end(&changes->changes, now);
    qos_mutex_unlock(&changes->lock);
}

void qos_file_changes_set_rights(QosFileChanges *changes, gint change)
{
    if (changes == NULL)
        return;
    const QosTime now = qos_clock_now();
    qos_mutex_lock(&changes->lock);
    changes->setting += (guint)change;
    changes->rights_at = now;
    qos_mutex_unlock(&changes->lock);
}

void qos_inode_ref_count_writer(const QosInodeRef *ref, gint change)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes == NULL)
        return;
    qos_mutex_lock(&changes->lock);
    changes->changes.writers += (guint)change;
    qos_mutex_unlock(&changes->lock);
}

void qos_inode_ref_count_kept(const QosInodeRef *ref, gboolean writes, gint change)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes == NULL)
        return;
    const QosTime now = change < 0 ? qos_clock_now() : 0;
    qos_mutex_lock(&changes->lock);
    changes->changes.kept += (guint)change;
    if (writes)
        changes->changes.under_way += (guint)change;
    else if (change > 0)
        changes->reads_begun++;
    else
        changes->reads_ended++;
    changes->changes.kept_at = MAX(changes->changes.kept_at, now);
    qos_mutex_unlock(&changes->lock);
}

guint qos_inode_ref_reads(const QosInodeRef *ref)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes == NULL)
        return 0;
    qos_mutex_lock(&changes->lock);
    const guint ended = changes->reads_ended;
    qos_mutex_unlock(&changes->lock);
    return ended;
}

gboolean qos_inode_ref_has_read_since(const QosInodeRef *ref, guint reads)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes == NULL)
        return TRUE;
    qos_mutex_lock(&changes->lock);
    const gboolean has_read = changes->reads_begun != reads;
    qos_mutex_unlock(&changes->lock);
    return has_read;
}

gboolean qos_inode_ref_has_writers(const QosInodeRef *ref)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes == NULL)
        return FALSE;
    qos_mutex_lock(&changes->lock);
    const gboolean has_writers = changes->changes.writers > 0;
    qos_mutex_unlock(&changes->lock);
    return has_writers;
}

gboolean qos_inode_ref_keeps_pages(const QosInodeRef *ref, const struct stat *stat, QosTime asked)
{
    QosFileChanges *changes = changes_for(ref);
    const QosStamp stamp = stamp_of(stat->st_mtim, stat->st_size);
    const QosMoment now = moment();

    qos_mutex_lock(&changes->lock);
    const gboolean keeps = qos_changes_keep(&changes->changes, &stamp, asked, now);
    qos_mutex_unlock(&changes->lock);
    return keeps;
}

void qos_inode_ref_note_told(const QosInodeRef *ref, struct timespec modified, off_t size,
                             QosTime asked)
{
    QosFileChanges *changes = changes_of(ref);
    const QosStamp stamp = stamp_of(modified, size);

    if (changes == NULL)
        return;
    const QosMoment now = moment();
    qos_mutex_lock(&changes->lock);
    qos_changes_told(&changes->changes, &stamp, asked, now);
    qos_mutex_unlock(&changes->lock);
}

gboolean qos_inode_ref_may_tell(const QosInodeRef *ref, struct timespec modified, off_t size,
                                QosTime asked)
{
    QosFileChanges *changes = changes_of(ref);
    const QosStamp stamp = stamp_of(modified, size);

    if (changes == NULL)
        return TRUE;
    const QosMoment now = moment();
    qos_mutex_lock(&changes->lock);
    const gboolean may_tell = qos_changes_may_tell(&changes->changes, &stamp, asked, now);
    qos_mutex_unlock(&changes->lock);
    return may_tell;
}

void qos_inode_ref_note_foreign(const QosInodeRef *ref)
{
    QosFileChanges *changes = changes_of(ref);

    if (changes == NULL)
        return;
    const QosTime now = qos_clock_now();
    qos_mutex_lock(&changes->lock);
    qos_changes_note_foreign(&changes->changes, now);
    qos_mutex_unlock(&changes->lock);
}

void qos_inodes_note_foreign(QosInodes *inodes, fuse_ino_t id)
{
    g_auto(QosInodeRef) ref = {0};

    if (qos_inodes_get_known(inodes, id, &ref))
        qos_inode_ref_note_foreign(&ref);
}

gboolean qos_inodes_get_known(QosInodes *inodes, fuse_ino_t id, QosInodeRef *ret_ref)
{
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL) {
        qos_inode_get_locked(inode);
        *ret_ref = (QosInodeRef){.inodes = inodes, .inode = inode, .fd = inode->fd};
    }
    qos_mutex_unlock(&inodes->lock);
    return inode != NULL;
}

static guint digest_rights(mode_t mode, uid_t uid, gid_t gid)
{
    const guint64 factor = G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
    const guint64 hash = (((guint64)uid * factor + gid) * factor + mode) * factor;

    return (guint)(hash >> 32) | 1;
}

/* For good, where there were set-user-ID or set-group-ID bits: their loss must not be missed. */
static guint rights_of(guint before, const struct stat *stat)
{
    if (before == RIGHTS_ALWAYS || (stat->st_mode & (S_ISUID | S_ISGID)) != 0)
        return RIGHTS_ALWAYS;
    return digest_rights(stat->st_mode, stat->st_uid, stat->st_gid);
}

/* Looks that began before a SETATTR was answered show what was before it, or what it brings:
 * neither is news. */
static gboolean may_be_set_locked(const QosFileChanges *changes, QosTime asked)
{
    return changes->setting > 0 || asked <= changes->rights_at;
}

static gboolean are_old_locked(QosFileChanges *changes, gboolean are_known, gboolean is_taken,
                               QosTime asked, QosTime now)
{
    if (is_taken)
        changes->rights_at = now;
    else if (!are_known && !may_be_set_locked(changes, asked))
        changes->rights_until = now + RIGHTS_TOLD;
    return now >= changes->rights_until;
}

gboolean qos_inode_ref_note_rights(const QosInodeRef *ref, const struct stat *stat,
                                   gboolean is_taken, QosTime asked)
{
    QosFileChanges *changes = changes_of(ref);
    const guint before = (guint)g_atomic_int_get(&ref->inode->told_rights);
    const guint rights = rights_of(before, stat);
    const gboolean are_known = before == rights || before == 0; /* the first makes it known */

    if (changes == NULL) {
        g_atomic_int_set(&ref->inode->told_rights, rights);
        return rights != RIGHTS_ALWAYS;
    }
    const QosTime now = qos_clock_now();
    qos_mutex_lock(&changes->lock);
    if (is_taken || rights == RIGHTS_ALWAYS || !may_be_set_locked(changes, asked))
        g_atomic_int_set(&ref->inode->told_rights, rights);
    const gboolean are_old = are_old_locked(changes, are_known, is_taken, asked, now);
    qos_mutex_unlock(&changes->lock);
    return are_old && rights != RIGHTS_ALWAYS;
}
