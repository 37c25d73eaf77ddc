/*
 * Which set-user-ID and set-group-ID bits of a file the kernel may believe, or still has
 * (fs/ops/privileges.h, fs/ops/execs.h).
 *
 * One number of each inode has three parts. The lowest are the bits that answers have shown. Above
 * them are those of the shown bits that a change has taken away since (`stale`). The highest is a
 * count of the answers that showed any, and of the opens for writing.
 *
 * A change that takes bits away reads the number, tells the kernel, and then moves the bits to the
 * stale ones. If the count has changed meanwhile, another answer may have shown the bits again, and
 * they stay.
 */
#include "fs/store/inode_state.h"

#define BITS        3u
#define STALE_SHIFT 2
#define COUNT       (1u << 4)

static guint bits_of(mode_t mode)
{
    if (!S_ISREG(mode))
        return 0;
    return ((mode & S_ISUID) != 0 ? 2u : 0) | ((mode & S_ISGID) != 0 ? 1u : 0);
}

/* --- what the kernel believes --- */

gboolean qos_inodes_show_privileges(QosInodes *inodes, fuse_ino_t id, mode_t mode)
{
    const guint bits = bits_of(mode);
    guint known = BITS;

    if (bits == 0)
        return TRUE;
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL) {
        known = g_atomic_int_get(&inode->privileges);
        while (!g_atomic_int_compare_and_exchange_full(&inode->privileges, known,
                                                       (known + COUNT) | bits, &known)) {
            /* a change has removed some, or an open for writing was counted */
        }
    }
    qos_mutex_unlock(&inodes->lock);
    return (known & bits) == bits;
}

guint qos_inode_ref_privileges(const QosInodeRef *ref)
{
    const guint known = g_atomic_int_get(&ref->inode->privileges);

    return (known & BITS) != 0 ? known : 0;
}

gboolean qos_privileges_are_lost(guint known, mode_t mode)
{
    return (known & BITS & ~bits_of(mode)) != 0;
}

void qos_inode_ref_lose_privileges(const QosInodeRef *ref, guint known, mode_t mode)
{
    const guint lost = known & BITS & ~bits_of(mode);

    g_atomic_int_compare_and_exchange(&ref->inode->privileges, known,
                                      (known & ~lost) | lost << STALE_SHIFT);
}

/* --- what it has --- */

guint qos_inode_ref_held_privileges(const QosInodeRef *ref)
{
    const guint known = g_atomic_int_get(&ref->inode->privileges);

    return (known & (BITS | BITS << STALE_SHIFT)) != 0 ? known : 0;
}

gboolean qos_privileges_are_held(guint known, mode_t mode)
{
    return ((known | known >> STALE_SHIFT) & BITS & ~bits_of(mode)) != 0;
}

void qos_inode_ref_note_writer(const QosInodeRef *ref)
{
    g_atomic_int_add(&ref->inode->privileges, COUNT);
}

static QosRefresh *refresh_of(const QosInodeRef *ref, pid_t tid)
{
    return &ref->inodes->refreshes[(ref->inode->id + (guint64)tid) % QOS_REFRESHES];
}

QosRefreshed qos_inode_ref_refresh(const QosInodeRef *ref, pid_t tid, guint known)
{
    const fuse_ino_t id = ref->inode->id;
    QosRefresh *refresh = refresh_of(ref, tid);
    QosRefreshed done = QOS_REFRESH_BEGUN;

    qos_mutex_lock(&ref->inodes->lock);
    if (refresh->id == id && refresh->tid == tid)
        done = refresh->known == known ? QOS_REFRESH_DONE : QOS_REFRESH_VAIN;
    *refresh = (QosRefresh){.id = done == QOS_REFRESH_BEGUN ? id : 0, .tid = tid, .known = known};
    qos_mutex_unlock(&ref->inodes->lock);
    if (done == QOS_REFRESH_DONE)
        g_atomic_int_compare_and_exchange(&ref->inode->privileges, known,
                                          known & ~(BITS << STALE_SHIFT));
    return done;
}
