/*
 * What the kernel may keep of a reply, and for how long.
 *
 * With a lock server the kernel may keep what the operation has a credit on, as long as the mount's
 * lease is sure to last. Without one the options say for how long. In addition, if others change a
 * file behind the mount, the kernel is told nothing that would make it drop pages that it has still
 * to write (fs/changes.h).
 */
#include <errno.h>
#include <sys/stat.h>

#include "fs/coherence/stale_pages.h"
#include "fs/coherence/state.h"
#include "fs/lockclient/client.h"
#include "fs/store/open_file.h"
#include "fs/store/passthrough.h"

/* An answer may be late: this part of what is left of the lease may pass before the kernel starts
 * to count the time for which it may believe the answer. */
#define LATE_PART 2

static double valid_seconds(const QosFs *fs)
{
    if (fs->config.cache == QOS_CACHE_NONE)
        return 0;
    return (double)qos_lockclient_valid(fs->lockclient) / (double)(LATE_PART * QOS_SECOND);
}

/* --- attributes --- */

const QosInodeRef *qos_coherence_ref(const QosOp *op, fuse_ino_t ino)
{
    const QosOpenFile *open_file = op->open_file != NULL ? op->open_file : op->reply.open_file;

    return open_file != NULL && qos_inode_ref_is_of(&open_file->file, ino) ? &open_file->file
                                                                           : NULL;
}

/* By a time of change that is new to it the kernel finds by itself that pages are old; but not by
 * that which comes with SETATTR. */
static gboolean look(QosOp *op, fuse_ino_t ino, QosInodeLook *ret_look)
{
    const QosInodeRef *ref = qos_coherence_ref(op, ino);
    const gboolean drops = op->entry.request.opcode != QOS_OP_SETATTR;

    if (ref == NULL)
        return qos_inodes_look(op->fs->inodes, ino, drops, ret_look);
    if (drops)
        qos_inode_ref_note_drop(ref);
    qos_inode_ref_look(ref, ret_look);
    return TRUE;
}

static gboolean keeps(QosOp *op, fuse_ino_t ino, const QosInodeLook *seen)
{
    return seen->may_cache && qos_op_credits_covers(op->coherence.credits, seen->number) &&
           !qos_stale_pages_are_there(op->fs, op->fs->coherence->pages, ino,
                                      seen->filled_generation);
}

/* Whether the reply to CREATE gives the kernel the attributes to keep. It would ask for them at
 * once, because it opens the file. The thread that tells it to forget them waits until they have
 * arrived (fs/coherence/invalidator.h). */
static gboolean sends_attributes(QosOp *op, fuse_ino_t ino, const QosInodeLook *seen)
{
    QosOpenFile *open_file = op->reply.open_file;

    if (open_file == NULL || !qos_inode_ref_note_sent(&open_file->file))
        return FALSE;
    if (keeps(op, ino, seen)) {
        g_atomic_int_set(&open_file->is_sent, TRUE);
        return TRUE;
    }
    qos_inode_ref_note_arrived(&open_file->file);
    return FALSE;
}

/* With a lock server. */
static double covered_attr_timeout(QosOp *op, fuse_ino_t ino)
{
    const double seconds = valid_seconds(op->fs);
    QosInodeLook seen;

    if (!look(op, ino, &seen) || seconds == 0)
        return 0;
    if (op->coherence.is_change) /* the kernel believes it also after it was told to forget */
        return sends_attributes(op, ino, &seen) ? seconds : 0;
    return keeps(op, ino, &seen) ? seconds : 0;
}

/* Whether the operation has a credit on the file: nobody else changes it. */
static gboolean covers(const QosOp *op, const QosInodeRef *file)
{
    guint64 number;
    gboolean may_cache;

    return qos_inode_ref_number(file, &number, &may_cache) && may_cache &&
           op->coherence.credits != NULL && qos_op_credits_covers(op->coherence.credits, number);
}

/* Makes the kernel not remember these attributes: it takes none from an answer to a request that it
 * sent before it was told that they are invalid. It is told of attributes alone, so it waits for
 * nothing. */
static void withhold(const QosOp *op, QosTold *told)
{
    told->is_withheld = TRUE;
    fuse_lowlevel_notify_inval_inode(op->fs->session, told->ino, -1, 0);
}

/* By mtime and size alone. */
static gboolean may_tell(const QosOp *op, const QosInodeRef *file, const struct stat *stat)
{
    const QosOpcode opcode = op->entry.request.opcode;

    if (opcode == QOS_OP_SETATTR) { /* the kernel takes these without a drop */
        qos_inode_ref_note_told(file, stat->st_mtim, stat->st_size, op->progress.asked);
        return TRUE;
    }
    if (op->fs->coherence != NULL && !covers(op, file)) {
        if (opcode != QOS_OP_GETATTR) /* by which the kernel asks for what it needs */
            return FALSE;
        qos_inode_ref_note_foreign(file);
    }
    return qos_inode_ref_may_tell(file, stat->st_mtim, stat->st_size, op->progress.asked);
}

/* Whether the kernel may remember these attributes, at which run() has looked: it drops the file's
 * pages where they bring another mtime or size (fs/changes.h). Attributes with a new mode or owner
 * are not withheld, because the kernel would go on by the old ones. */
static void judge(const QosOp *op, QosTold *told)
{
    const struct stat *stat = told->stat;
    const QosInodeRef *file = told->file;
    g_auto(QosInodeRef) found = {0};

    if (!S_ISREG(stat->st_mode) || op->fs->config.cache == QOS_CACHE_NONE)
        return;
    if (file == NULL && qos_inodes_get_known(op->fs->inodes, told->ino, &found))
        file = &found;
    if (file == NULL)
        return;
    const gboolean is_taken = op->entry.request.opcode == QOS_OP_SETATTR;
    if (qos_inode_ref_note_rights(file, stat, is_taken, op->progress.asked) &
        !may_tell(op, file, stat)) /* both */
        withhold(op, told);
}

/* --- names --- */

/* With a lock server. */
static double covered_entry_timeout(const QosOp *op)
{
    const double seconds = valid_seconds(op->fs);

    if (!qos_invalidator_forgets_names(op->fs->coherence->invalidator) ||
        !op->coherence.caches_node)
        return 0;
    return qos_op_credits_holds(op->coherence.credits, op->coherence.node_number) ? seconds : 0;
}

/* The kernel may remember that a name does not exist only if nobody else can make it unseen. */
static double entry_timeout(const QosOp *op, const QosTold *told)
{
    const QosFs *fs = op->fs;

    if (fs->coherence != NULL)
        return covered_entry_timeout(op);
    return told->ino != 0 || fs->config.cache == QOS_CACHE_ALWAYS ? fs->config.entry_timeout : 0;
}

void qos_coherence_reply(QosOp *op, QosTold *told)
{
    const QosFs *fs = op->fs;

    if (told->ino != 0)
        judge(op, told);
    if (told->ino != 0 && !told->is_withheld) /* else of a file that it has just forgotten */
        told->attr_timeout =
            fs->coherence != NULL ? covered_attr_timeout(op, told->ino) : fs->config.attr_timeout;
    if (told->is_name)
        told->entry_timeout = entry_timeout(op, told);
}

gboolean qos_coherence_begin_list(QosOp *op)
{
    const pid_t reader = fuse_req_ctx(op->fuse)->pid;

    /* A thread in another pid namespace cannot be told from others. */
    if (reader == 0 || covered_entry_timeout(op) == 0)
        return FALSE;
    qos_readdirplus_note_sent(op->fs->coherence->readdirplus, reader, op->open_file,
                              op->target.node);
    g_atomic_int_set(&op->open_file->reader, reader);
    return TRUE;
}

gboolean qos_coherence_lists(const QosOp *op, guint64 number, gboolean is_first)
{
    return op->coherence.keeps_list && !(is_first && qos_inodes_knows(op->fs->inodes, number)) &&
           qos_op_credits_covers(op->coherence.credits, number);
}

/* --- opens --- */

/* If the credit is not here, the pages that it covered were dropped when it was lost, or are queued
 * for that. So while a program may be writing into the pages, they stay. */
static gboolean keeps_covered(QosOp *op, fuse_ino_t ino, const QosInodeRef *file)
{
    const struct fuse_file_info *info = &op->reply.info;
    gboolean keeps_pages = FALSE;

    if (valid_seconds(op->fs) > 0) {
        QosInodeLook seen;

        qos_inode_ref_look(file, &seen);
        keeps_pages = keeps(op, ino, &seen) || qos_inode_ref_has_writers(file);
    }
    if (!info->direct_io || valid_seconds(op->fs) > 0) /* what is open past them can be mapped */
        qos_inode_ref_note_pages(file);
    if (!keeps_pages || (info->flags & O_TRUNC) != 0)
        qos_inode_ref_note_drop(file);
    return keeps_pages;
}

/* Whether the kernel keeps its pages of the file. This matters for an open past the pages too,
 * because other opens use them. They go only for a change from elsewhere. */
static gboolean keeps_pages(QosOp *op, fuse_ino_t ino, const QosOpenFile *open_file)
{
    const QosFs *fs = op->fs;
    const QosTime asked = qos_clock_now();
    struct stat stat;

    if (fs->coherence != NULL)
        return keeps_covered(op, ino, &open_file->file);
    if (fs->config.cache == QOS_CACHE_NONE)
        return FALSE;
    if (fs->config.cache == QOS_CACHE_ALWAYS && !qos_passthroughs_were_used(fs->passthroughs))
        return TRUE;
    return fstat(open_file->fd, &stat) == 0 &&
           qos_inode_ref_keeps_pages(&open_file->file, &stat, asked);
}

void qos_coherence_reply_open(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file)
{
    op->reply.info.keep_cache = keeps_pages(op, ino, open_file);
}

/* With a lock server a change of another mount would not reach a list that the kernel keeps. */
void qos_coherence_reply_opendir(QosOp *op)
{
    struct fuse_file_info *info = &op->reply.info;

    info->keep_cache = op->fs->config.cache == QOS_CACHE_ALWAYS && !qos_fs_is_shared(op->fs);
    info->cache_readdir = info->keep_cache;
}
