/*
 * Keeps the name cache true on the way of an operation (fs/coherence/namecache.h).
 *
 * Before the store is called, the names that the operation looks up, makes or takes are noted.
 * After the call, what they are then goes into the cache, for a change also if it failed. An
 * operation that removes, replaces or moves a file changes that file too. So the file is found
 * first, and its credit is taken before the reply (qos_op_credits_will_change).
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fs/coherence/state.h"

/* How an operation uses its names. */
typedef enum {
    NO_NAMES,
    LOOKS_UP, /* op->target.name */
    MAKES,    /* op->target.name */
    REMOVES,  /* op->target.name */
    MOVES,    /* op->target.name, to op->target.other_name */
} Use;

static Use use_of(const QosOp *op)
{
    switch (op->entry.request.opcode) {
    case QOS_OP_LOOKUP:
        return LOOKS_UP;
    case QOS_OP_MKNOD:
    case QOS_OP_MKDIR:
    case QOS_OP_SYMLINK:
    case QOS_OP_LINK:
    case QOS_OP_CREATE:
        return MAKES;
    case QOS_OP_UNLINK:
    case QOS_OP_RMDIR:
        return REMOVES;
    case QOS_OP_RENAME:
        return MOVES;
    default:
        return NO_NAMES;
    }
}

/* `folder`: its number in the store; 0 of one that has none. */
static void begin_look(QosOp *op, guint64 folder, const char *name, gboolean changes,
                       QosNameLook *look)
{
    QosCoherence *coherence = op->fs->coherence;

    *look = (QosNameLook){.number = QOS_NAME_UNKNOWN};
    if (folder == 0 || name == NULL)
        return;
    qos_namecache_begin(coherence->names, folder, name, op->coherence.names_epoch,
                        qos_op_credits_losses(op->coherence.credits), look);
    if (!changes)
        return;
    qos_mutex_lock(&coherence->names_lock);
    qos_namecache_take(coherence->names, look);
    qos_mutex_unlock(&coherence->names_lock);
}

/* It is `number` now, which may be QOS_NAME_NONE or QOS_NAME_UNKNOWN. */
static void end_look(QosOp *op, QosNameLook *look, guint64 number)
{
    QosCoherence *coherence = op->fs->coherence;

    if (look->length == 0)
        return;
    if (!qos_op_credits_holds(op->coherence.credits, look->folder))
        number = QOS_NAME_UNKNOWN;
    qos_mutex_lock(&coherence->names_lock);
    qos_namecache_found(coherence->names, look, number);
    qos_mutex_unlock(&coherence->names_lock);
    look->length = 0;
}

static guint64 number_of(const QosOp *op, const struct stat *stat)
{
    return qos_inodes_is_shared(op->fs->inodes, stat->st_dev) ? stat->st_ino : QOS_NAME_UNKNOWN;
}

/* The name has been looked up, or made: 0 and what it is, or -errno. */
static void end_found(QosOp *op, QosNameLook *look, int error, const struct stat *stat)
{
    guint64 number = QOS_NAME_UNKNOWN;

    if (error == 0)
        number = number_of(op, stat);
    else if (error == -ENOENT && !look->changes)
        number = QOS_NAME_NONE;
    end_look(op, look, number);
}

static int ask_store(QosOp *op, fuse_ino_t node, const char *name, guint64 *ret_number)
{
    g_auto(QosInodeRef) parent = {0};
    const int error = qos_inodes_get(op->fs->inodes, node, &parent);
    struct stat stat;

    if (error != 0)
        return error;
    *ret_number = fstatat(parent.fd, name, &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0
                      ? number_of(op, &stat)
                      : QOS_NAME_UNKNOWN;
    return 0;
}

/* To be called before the operation removes, replaces or moves the file behind the name. By our
 * clock the credits are still held, so what was known is true, and the store need not be asked. */
static int begin_taking(QosOp *op, fuse_ino_t node, guint64 folder, const char *name,
                        QosNameLook *look)
{
    int error = 0;

    begin_look(op, folder, name, TRUE, look);
    if (look->number == QOS_NAME_UNKNOWN || !qos_op_credits_stayed_whole(op->coherence.credits))
        error = ask_store(op, node, name, &look->number);
    if (error == 0 && look->number != QOS_NAME_UNKNOWN && look->number != QOS_NAME_NONE)
        qos_op_credits_will_change(op->coherence.credits, look->number);
    return error;
}

static int begin_moving(QosOp *op, QosNameLook *looks)
{
    guint64 folder = 0;
    gboolean may_cache;
    const int error =
        begin_taking(op, op->target.node, op->coherence.node_number, op->target.name, &looks[0]);

    if (error != 0)
        return error;
    qos_inodes_number(op->fs->inodes, op->target.other_node, &folder, &may_cache);
    return begin_taking(op, op->target.other_node, folder, op->target.other_name, &looks[1]);
}

void qos_coherence_drop_names(QosOp *op)
{
    QosNameLook *looks = qos_op_credits_looks(op->coherence.credits);

    end_look(op, &looks[0], QOS_NAME_UNKNOWN);
    end_look(op, &looks[1], QOS_NAME_UNKNOWN);
}

int qos_coherence_begin_names(QosOp *op)
{
    QosNameLook *looks = qos_op_credits_looks(op->coherence.credits);
    const guint64 folder = op->coherence.node_number;

    switch (use_of(op)) {
    case LOOKS_UP:
        begin_look(op, folder, op->target.name, FALSE, &looks[0]);
        break;
    case MAKES:
        begin_look(op, folder, op->target.name, TRUE, &looks[0]);
        break;
    case REMOVES:
        return begin_taking(op, op->target.node, folder, op->target.name, &looks[0]);
    case MOVES:
        return begin_moving(op, looks);
    case NO_NAMES:
        break;
    }
    return 0;
}

/* That there is none may be the reply. */
static int error_of_look(const QosOp *op)
{
    return op->progress.result == 0 && op->reply.entry.ino == 0 ? -ENOENT : op->progress.result;
}

void qos_coherence_end_names(QosOp *op)
{
    QosNameLook *looks = qos_op_credits_looks(op->coherence.credits);
    const gboolean has_moved = op->progress.result == 0 && op->target.moves_name;

    switch (use_of(op)) {
    case LOOKS_UP:
        end_found(op, &looks[0], error_of_look(op), &op->reply.entry.attr);
        break;
    case MAKES:
        end_found(op, &looks[0], op->progress.result, &op->reply.entry.attr);
        break;
    case REMOVES:
        end_look(op, &looks[0], op->progress.result == 0 ? QOS_NAME_NONE : QOS_NAME_UNKNOWN);
        break;
    case MOVES: /* where both are the same file, the old name stays */
        end_look(op, &looks[0], QOS_NAME_UNKNOWN);
        end_look(op, &looks[1], has_moved ? looks[0].number : QOS_NAME_UNKNOWN);
        break;
    case NO_NAMES:
        break;
    }
}

void qos_coherence_begin_listed(QosOp *op, const char *name)
{
    begin_look(op, op->coherence.node_number, name, FALSE,
               qos_op_credits_looks(op->coherence.credits));
}

void qos_coherence_end_listed(QosOp *op, int error, const struct stat *stat)
{
    end_found(op, qos_op_credits_looks(op->coherence.credits), error, stat);
}
