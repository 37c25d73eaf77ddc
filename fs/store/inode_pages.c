/*
 * The pages that the kernel has of a file (fs/store/inode.h): which requests fill them, and what
 * was dropped.
 */
#include "fs/store/inode_state.h"

gint qos_inode_ref_fill(const QosInodeRef *ref, gint change)
{
    return g_atomic_int_add(&ref->inode->filling, change) + change;
}

void qos_inode_ref_note_fill(const QosInodeRef *ref, gint generation, gboolean reads)
{
    QosInode *inode = ref->inode;

    if (g_atomic_int_get(&inode->filled_generation) == 0)
        g_atomic_int_compare_and_exchange(&inode->filled_generation, 0, generation);
    if (reads)
        g_atomic_int_compare_and_exchange(&inode->refill, QOS_PAGES_DROPPED, QOS_PAGES_FILLED);
}

gboolean qos_inode_ref_has_pages(const QosInodeRef *ref)
{
    return g_atomic_int_get(&ref->inode->filled_generation) != 0;
}

gint qos_inodes_filled_generation(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    const gint filled = inode != NULL ? g_atomic_int_get(&inode->filled_generation) : 0;
    qos_mutex_unlock(&inodes->lock);
    return filled;
}

/* What was filled already stays so. */
static void note_drop(QosInode *inode)
{
    g_atomic_int_compare_and_exchange(&inode->refill, QOS_PAGES_STAY, QOS_PAGES_DROPPED);
}

void qos_inode_ref_note_drop(const QosInodeRef *ref)
{
    note_drop(ref->inode);
}

static void look(const QosInodes *inodes, const QosInode *inode, QosInodeLook *ret_look)
{
    *ret_look = (QosInodeLook){.filled_generation = g_atomic_int_get(&inode->filled_generation)};
    qos_inode_number(inodes, inode, &ret_look->number, &ret_look->may_cache);
}

gboolean qos_inodes_look(QosInodes *inodes, fuse_ino_t id, gboolean drops, QosInodeLook *ret_look)
{
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL) {
        if (drops)
            note_drop(inode);
        look(inodes, inode, ret_look);
    }
    qos_mutex_unlock(&inodes->lock);
    return inode != NULL;
}

void qos_inode_ref_look(const QosInodeRef *ref, QosInodeLook *ret_look)
{
    look(ref->inodes, ref->inode, ret_look);
}

gint qos_inodes_filling(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    const gint filling = inode != NULL ? g_atomic_int_get(&inode->filling) : 0;
    qos_mutex_unlock(&inodes->lock);
    return filling;
}

/* FALSE: some are being filled, and stay. A request that begins meanwhile is counted before it
 * looks at the generation. So either the count shows here, or the request sees that there is none,
 * and sets its own. */
static gboolean end_generation(QosInode *inode)
{
    const gint generation = g_atomic_int_get(&inode->filled_generation);

    g_atomic_int_set(&inode->filled_generation, 0);
    if (g_atomic_int_get(&inode->filling) == 0)
        return TRUE;
    if (generation != 0)
        g_atomic_int_set(&inode->filled_generation, generation);
    return FALSE;
}

void qos_inodes_begin_drop(QosInodes *inodes, fuse_ino_t id, gboolean all)
{
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL && all && end_generation(inode))
        g_atomic_int_set(&inode->refill, QOS_PAGES_DROPPED);
    else if (inode != NULL)
        note_drop(inode);
    qos_mutex_unlock(&inodes->lock);
}

/* The kernel makes one buffered write of a file at a time: what is dropped from now on is so for
 * the next WRITE. */
gboolean qos_inode_ref_end_write(const QosInodeRef *ref)
{
    gint *refill = &ref->inode->refill;

    if (g_atomic_int_compare_and_exchange(refill, QOS_PAGES_FILLED, QOS_PAGES_STAY))
        return TRUE;
    g_atomic_int_compare_and_exchange(refill, QOS_PAGES_DROPPED, QOS_PAGES_STAY);
    return FALSE;
}

void qos_inode_ref_note_pages(const QosInodeRef *ref)
{
    qos_mutex_lock(&ref->inodes->lock);
    ref->inode->has_pages = 1;
    qos_mutex_unlock(&ref->inodes->lock);
}
