/*
 * Which set-user-ID and set-group-ID bits the kernel may believe of a file (ops/privileges.h).
 *
 * One number of an inode has the bits, and above them a count of the answers that showed any. A
 * change that takes bits away reads the number, tells the kernel, and then removes them from the
 * number. The count keeps bits that another answer has shown meanwhile.
 */
#include "ops/inode_private.h"

#define BITS   3u
#define ANSWER (BITS + 1)

static guint bits_of(mode_t mode)
{
    if (!S_ISREG(mode))
        return 0;
    return ((mode & S_ISUID) != 0 ? 2u : 0) | ((mode & S_ISGID) != 0 ? 1u : 0);
}

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
                                                       (known + ANSWER) | bits, &known)) {
            /* a change has removed some */
        }
    }
    qos_mutex_unlock(&inodes->lock);
    return (known & bits) == bits;
}

guint qos_loan_privileges(const QosLoan *loan)
{
    const guint known = g_atomic_int_get(&loan->inode->privileges);

    return (known & BITS) != 0 ? known : 0;
}

gboolean qos_privileges_are_lost(guint known, mode_t mode)
{
    return (known & BITS & ~bits_of(mode)) != 0;
}

void qos_loan_lose_privileges(const QosLoan *loan, guint known, mode_t mode)
{
    g_atomic_int_compare_and_exchange(&loan->inode->privileges, known,
                                      (known & ~BITS) | (known & bits_of(mode)));
}
