/* The tables of operations, as core/resource_types.c lists them. */
#pragma once

#include "core/resource.h"

extern const QosResourceType qos_resource_inode, qos_resource_open, qos_resource_config;
extern const QosResourceType qos_resource_extent, qos_resource_inodes;
extern const QosResourceType qos_resource_identifier;
extern const QosResourceType qos_resource_quantity;
