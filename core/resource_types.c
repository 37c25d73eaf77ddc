/*
 * The types of resources, by their numbers in messages. The list is apart from what all types have
 * in common (core/resource.c), because it knows each of them.
 */
#include "core/resource_private.h"

static const QosResourceType *const types[QOS_RESOURCE_TYPES] = {
    [QOS_RESOURCE_INODE] = &qos_resource_inode,
    [QOS_RESOURCE_OPEN] = &qos_resource_open,
    [QOS_RESOURCE_EXTENT] = &qos_resource_extent,
    [QOS_RESOURCE_IDENTIFIER] = &qos_resource_identifier,
    [QOS_RESOURCE_QUANTITY] = &qos_resource_quantity,
    [QOS_RESOURCE_CONFIG] = &qos_resource_config,
    [QOS_RESOURCE_INODES] = &qos_resource_inodes,
};

const QosResourceType *qos_resource_type(guint id)
{
    return id < G_N_ELEMENTS(types) ? types[id] : NULL;
}
