/*
 * What a reply tells the kernel. fs/ops/reply.h has the contract.
 */
#include "fs/ops/reply.h"

#include <sys/stat.h>

#include "fs/ops/dispatch.h"
#include "fs/ops/privileges.h"

static void tell(QosOp *op, QosTold *told)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->reply != NULL)
            qos_hooks[i]->reply(op, told);
    }
}

double qos_reply_attributes(QosOp *op, fuse_ino_t ino, const QosInodeRef *file,
                            const struct stat *stat, mode_t stored)
{
    const gboolean may_believe =
        qos_privileges_may_believe(op, ino, stored) && !qos_mode_gives_rights(stored);
    QosTold told = {.ino = ino, .file = file, .stat = stat};

    tell(op, &told);
    return may_believe ? told.attr_timeout : 0;
}

void qos_reply_entry(QosOp *op, struct fuse_entry_param *entry)
{
    const mode_t mode = entry->attr.st_mode;
    const gboolean is_to_ask = entry->attr_timeout < 0;
    const gboolean may_believe =
        qos_privileges_may_believe(op, entry->ino, mode) && !qos_mode_gives_rights(mode);
    QosTold told = {.ino = entry->ino, .stat = &entry->attr, .is_name = TRUE};

    tell(op, &told);
    entry->attr_timeout = may_believe && !is_to_ask ? told.attr_timeout : 0;
    entry->entry_timeout = qos_mode_is_device(mode) ? 0 : told.entry_timeout;
}

double qos_reply_absence(QosOp *op)
{
    QosTold told = {.is_name = TRUE};

    tell(op, &told);
    return told.entry_timeout;
}

void qos_reply_open(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->reply_open != NULL)
            qos_hooks[i]->reply_open(op, ino, open_file);
    }
}

void qos_reply_opendir(QosOp *op)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->reply_opendir != NULL)
            qos_hooks[i]->reply_opendir(op);
    }
}

gboolean qos_reply_lists(QosOp *op, guint64 number, const char *name, gboolean is_first)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->list != NULL && !qos_hooks[i]->list(op, number, name, is_first))
            return FALSE;
    }
    return TRUE;
}

void qos_reply_listed(QosOp *op, int error, const struct stat *stat)
{
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->listed != NULL)
            qos_hooks[i]->listed(op, error, stat);
    }
}
