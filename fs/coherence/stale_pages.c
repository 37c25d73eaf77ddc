/*
 * Finds pages that no call for a credit would reach. fs/coherence/stale_pages.h has the contract.
 */
#include "fs/coherence/stale_pages.h"

#include "fs/lockclient/client.h"
#include "fs/store/inode.h"
#include "fs/store/open_file.h"

/* The generation in which pages are filled now (fs/store/inode.h): it ends with each loss, because
 * others may have changed since then what was cached before. */
static gint generation(const QosFs *fs)
{
    return (gint)qos_lockclient_losses(fs->lockclient) + 1;
}

/* For a WRITE past the page cache none is. */
static gboolean has_locked(const QosOp *op)
{
    return op->target.writes != QOS_WRITE_DIRECT;
}

/* A WRITE through the page cache may have locked a page that it does not cover whole, and the rest
 * of that page is old. So those that wait for the pages wait for it too. There is one at a time of
 * a file. */
void qos_stale_pages_begin(const QosOp *op, QosPages *pages)
{
    if (!has_locked(op))
        return;
    qos_inode_ref_fill(&op->open_file->file, 1);
    qos_inode_ref_note_fill(&op->open_file->file, generation(op->fs),
                            op->entry.request.fills_cache);
    if (op->target.writes != QOS_WRITE_THROUGH)
        qos_pages_note_locked(pages, op->target.node, op, op->target.start, op->target.end);
}

gboolean qos_stale_pages_may_follow(const QosOp *op)
{
    return op->target.writes == QOS_WRITE_DIRECT && qos_inode_ref_has_pages(&op->open_file->file);
}

static void drop_all(const QosOp *op, QosPages *pages)
{
    if (op->entry.request.opcode == QOS_OP_READ)
        qos_pages_drop_read(pages, op->target.node, fuse_req_ctx(op->fuse)->pid);
    else
        qos_pages_drop(pages, op->target.node);
}

/* From now on a request for the attributes waits until this request is answered. */
void qos_stale_pages_enter(const QosOp *op, QosPages *pages, gboolean is_covered)
{
    if (!is_covered)
        drop_all(op, pages);
}

/* TRUE if pages may show the data from before a WRITE. Before it sends the WRITE, the kernel puts
 * the new data into the pages, or drops them. But they may have been dropped since, and read again
 * before the WRITE was made. */
static gboolean are_left_by_write(const QosOp *op)
{
    switch (op->target.writes) {
    case QOS_WRITE_THROUGH:
        return qos_inode_ref_end_write(&op->open_file->file);
    case QOS_WRITE_DIRECT:
        return qos_stale_pages_may_follow(op) &&
               qos_inode_ref_has_read_since(&op->open_file->file, op->target.reads_before);
    case QOS_WRITE_BACK:
    case QOS_WRITE_NONE:
        break;
    }
    return FALSE;
}

/* The program's next write may be in these pages before its WRITE comes, so they must go before the
 * answer, if no other request has some locked. The WRITE itself has but one locked that it does not
 * cover whole. */
static void drop_written(const QosOp *op, QosPages *pages)
{
    const QosInodeRef *file = &op->open_file->file;

    if (has_locked(op))
        qos_inode_ref_fill(file, -1);
    qos_pages_drop_range(pages, op->target.node, op->target.start, op->target.end);
    qos_pages_await_told(pages);
    if (has_locked(op))
        qos_inode_ref_fill(file, 1);
}

void qos_stale_pages_settle(const QosOp *op, QosPages *pages, gboolean is_covered)
{
    if (!is_covered)
        drop_all(op, pages);
    else if (are_left_by_write(op))
        drop_written(op, pages);
}

void qos_stale_pages_leave(const QosOp *op, QosPages *pages)
{
    if (has_locked(op))
        qos_pages_end_locked(pages, op->target.node, &op->open_file->file, op);
}

gboolean qos_stale_pages_are_there(const QosFs *fs, QosPages *pages, fuse_ino_t ino,
                                   gint filled_generation)
{
    if (filled_generation != 0 && filled_generation != generation(fs))
        qos_pages_drop(pages, ino);
    return qos_pages_are_stale(pages, ino);
}

gboolean qos_stale_pages_hold(QosOp *op, QosPages *pages)
{
    const gint now = generation(op->fs);

    if (op->coherence.awaited_generation == now ||
        !qos_stale_pages_are_there(op->fs, pages, op->target.node,
                                   qos_inodes_filled_generation(op->fs->inodes, op->target.node)))
        return FALSE;
    op->coherence.awaited_generation = now;
    return TRUE;
}
