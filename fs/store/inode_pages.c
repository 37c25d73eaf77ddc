/*
 * The pages that the kernel has of a file (fs/store/inode.h): which requests fill them, and what
 * was dropped.
 */
#include "fs/store/inode_state.h"

gint qos_loan_fill(const QosLoan *loan, gint change)
{
    return g_atomic_int_add(&loan->inode->filling, change) + change;
}

void qos_loan_note_fill(const QosLoan *loan, gint era, gboolean reads)
{
    QosInode *inode = loan->inode;

    if (g_atomic_int_get(&inode->filled_era) == 0)
        g_atomic_int_compare_and_exchange(&inode->filled_era, 0, era);
    if (reads)
        g_atomic_int_compare_and_exchange(&inode->refill, QOS_PAGES_DROPPED, QOS_PAGES_FILLED);
}

gboolean qos_loan_has_pages(const QosLoan *loan)
{
    return g_atomic_int_get(&loan->inode->filled_era) != 0;
}

gint qos_inodes_filled_era(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    const gint filled = inode != NULL ? g_atomic_int_get(&inode->filled_era) : 0;
    qos_mutex_unlock(&inodes->lock);
    return filled;
}

/* What was filled already stays so. */
static void note_drop(QosInode *inode)
{
    g_atomic_int_compare_and_exchange(&inode->refill, QOS_PAGES_STAY, QOS_PAGES_DROPPED);
}

void qos_loan_note_drop(const QosLoan *loan)
{
    note_drop(loan->inode);
}

static void look(const QosInodes *inodes, const QosInode *inode, QosInodeLook *ret_look)
{
    *ret_look = (QosInodeLook){.filled_era = g_atomic_int_get(&inode->filled_era)};
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

void qos_loan_look(const QosLoan *loan, QosInodeLook *ret_look)
{
    look(loan->inodes, loan->inode, ret_look);
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
 * looks at the era. So either the count shows here, or the request sees that there is none, and
 * sets its own. */
static gboolean end_era(QosInode *inode)
{
    const gint era = g_atomic_int_get(&inode->filled_era);

    g_atomic_int_set(&inode->filled_era, 0);
    if (g_atomic_int_get(&inode->filling) == 0)
        return TRUE;
    if (era != 0)
        g_atomic_int_set(&inode->filled_era, era);
    return FALSE;
}

void qos_inodes_begin_drop(QosInodes *inodes, fuse_ino_t id, gboolean all)
{
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL && all && end_era(inode))
        g_atomic_int_set(&inode->refill, QOS_PAGES_DROPPED);
    else if (inode != NULL)
        note_drop(inode);
    qos_mutex_unlock(&inodes->lock);
}

/* The kernel makes one buffered write of a file at a time: what is dropped from now on is so for
 * the next WRITE. */
gboolean qos_loan_end_write(const QosLoan *loan)
{
    gint *refill = &loan->inode->refill;

    if (g_atomic_int_compare_and_exchange(refill, QOS_PAGES_FILLED, QOS_PAGES_STAY))
        return TRUE;
    g_atomic_int_compare_and_exchange(refill, QOS_PAGES_DROPPED, QOS_PAGES_STAY);
    return FALSE;
}

void qos_loan_note_pages(const QosLoan *loan)
{
    qos_mutex_lock(&loan->inodes->lock);
    loan->inode->has_pages = 1;
    qos_mutex_unlock(&loan->inodes->lock);
}
