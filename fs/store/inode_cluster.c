/*
 * What a mount with a lock server asks of its inodes (fs/store/inode.h): the numbers by which all
 * mounts know them, and whether the kernel knows them yet.
 */

#include "fs/store/inode_state.h"

void qos_inode_ref_name(const QosInodeRef *ref, QosFileName *ret_name)
{
    const QosInodeKey *key = &ref->inode->key;

    ret_name->number = key->number;
    ret_name->device = key->device != ref->inodes->root_device ? key->device : 0;
}

gboolean qos_inodes_is_shared(const QosInodes *inodes, dev_t device)
{
    return device == inodes->root_device;
}

gboolean qos_inode_number(const QosInodes *inodes, const QosInode *inode, guint64 *ret_number,
                          gboolean *ret_may_cache)
{
    if (inode->key.device != inodes->root_device)
        return FALSE;
    *ret_number = inode->key.number;
    *ret_may_cache = inode->key.mount == inodes->root_mount;
    return TRUE;
}

gboolean qos_inodes_number(QosInodes *inodes, fuse_ino_t id, guint64 *ret_number,
                           gboolean *ret_may_cache)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    const gboolean is_shared =
        inode != NULL && qos_inode_number(inodes, inode, ret_number, ret_may_cache);
    qos_mutex_unlock(&inodes->lock);
    return is_shared;
}

gboolean qos_inode_ref_number(const QosInodeRef *ref, guint64 *ret_number, gboolean *ret_may_cache)
{
    return qos_inode_number(ref->inodes, ref->inode, ret_number, ret_may_cache);
}

/* The key of the file that all mounts know by `number`. */
static QosInodeKey key_of(const QosInodes *inodes, guint64 number)
{
    QosInodeKey key = inodes->root->key;

    key.number = number;
    return key;
}

void qos_inodes_list(QosInodes *inodes, guint64 first, guint64 last, GArray *known)
{
    QosInodeKey key = key_of(inodes, first);

    qos_mutex_lock(&inodes->lock);
    for (;; key.number++) {
        const QosInode *inode = qos_inode_by_key_locked(inodes, &key);

        if (inode != NULL) {
            QosKnownInode one = {.id = inode->id,
                                 .number = key.number,
                                 .is_referenced = g_atomic_int_get(&inode->use) >= QOS_USE_REF,
                                 .is_directory = inode->is_directory,
                                 .has_pages = inode->has_pages ||
                                              g_atomic_int_get(&inode->filled_generation) != 0};
            g_array_append_val(known, one);
        }
        if (key.number == last)
            break;
    }
    qos_mutex_unlock(&inodes->lock);
}

gboolean qos_inodes_is_known(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    gboolean is_known = inode != NULL && inode->lookups > 0;
    qos_mutex_unlock(&inodes->lock);
    return is_known;
}

gboolean qos_inodes_knows(QosInodes *inodes, guint64 number)
{
    const QosInodeKey key = key_of(inodes, number);

    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_key_locked(inodes, &key);
    gboolean is_known = inode != NULL && inode->lookups > 0;
    qos_mutex_unlock(&inodes->lock);
    return is_known;
}

gboolean qos_inode_ref_note_sent(const QosInodeRef *ref)
{
    qos_mutex_lock(&ref->inodes->lock);
    gboolean is_new = ref->inode->lookups == 1;
    ref->inode->is_on_its_way = is_new ? 1 : 0;
    qos_mutex_unlock(&ref->inodes->lock);
    return is_new;
}

void qos_inode_ref_note_arrived(const QosInodeRef *ref)
{
    qos_mutex_lock(&ref->inodes->lock);
    ref->inode->is_on_its_way = 0;
    qos_mutex_unlock(&ref->inodes->lock);
}

gboolean qos_inodes_is_on_its_way(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_id_locked(inodes, id);
    gboolean is_on_its_way = inode != NULL && inode->is_on_its_way;
    qos_mutex_unlock(&inodes->lock);
    return is_on_its_way;
}

gboolean qos_inodes_end_way(QosInodes *inodes, fuse_ino_t id)
{
    qos_mutex_lock(&inodes->lock);
    QosInode *inode = qos_inode_by_id_locked(inodes, id);
    gboolean was_on_its_way = inode != NULL && inode->is_on_its_way;
    if (was_on_its_way)
        inode->is_on_its_way = 0;
    qos_mutex_unlock(&inodes->lock);
    return was_on_its_way;
}
