/*
 * The options that any mount may have, whatever its file system. Some are flags of mount(2), some
 * concern only mount(8) and are ignored, and some are refused because a qosfs mount cannot have
 * them.
 */
#pragma once

#include "base/near.h"

/* What the options say about flags (MS_*, of mount(2)). */
typedef struct {
    unsigned long set;
    unsigned long said; /* the last word about it was said, whether it sets or clears it */
} QosMountFlagWords;

typedef enum {
    QOS_MOUNT_OPTION_UNKNOWN,
    QOS_MOUNT_OPTION_TAKEN, /* or ignored */
    QOS_MOUNT_OPTION_LABEL, /* of SELinux: for the kernel, where it has that */
    QOS_MOUNT_OPTION_REFUSED,
} QosMountOption;

/* Takes one word of -o. *ret_reason: why it is refused. */
QosMountOption qos_mount_options_take(const char *text, QosMountFlagWords *flags,
                                      const char **ret_reason);
/* Appends ",NAME" for each flag that is set, as libfuse is told. */
void qos_mount_options_append(GString *text, unsigned long flags);
/* Considers the names of all that are not refused. */
void qos_mount_options_consider(QosNear *near);
