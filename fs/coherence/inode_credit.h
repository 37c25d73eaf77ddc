/*
 * The resource by which the cluster knows an inode of the store: its place in a group of neighbours
 * (core/resource.h, QOS_RESOURCE_INODES). Inodes are grouped because one answer of the lock server
 * can then serve all of a group.
 */
#pragma once

#include "core/resource.h"

/* `group`: inodes a group (fs/lockclient/client.h). The credit is `ret_span`, and needs no
 * clearing. */
static inline QosCredit qos_inode_credit(guint64 number, guint group, gboolean writes,
                                         QosResource *ret_resource, QosSpan *ret_span)
{
    const guint64 name = GUINT64_TO_BE(number / group);

    qos_resource_init(ret_resource, QOS_RESOURCE_INODES, &name, sizeof(name));
    *ret_span = (QosSpan){number % group, number % group, writes};
    return (QosCredit){.spans = ret_span, .count = 1};
}

/* The number of a group's first inode. */
static inline guint64 qos_inode_group_start(const QosResource *resource, guint group)
{
    guint64 name = 0;

    memcpy(&name, resource->name, sizeof(name));
    return GUINT64_FROM_BE(name) * group;
}
