/*
 * The options that any mount may have, whatever its file system: those that mount(2) knows as
 * flags, and those that concern mount(8) alone and are ignored.
 */
#pragma once

#include "base/near.h"

/* Takes one word of -o: sets or clears a flag (MS_*, of mount(2)) in *flags, or ignores it. FALSE:
 * it is none of these. */
gboolean qos_mount_options_take(const char *text, unsigned long *flags);
/* Appends ",NAME" for each flag that is set, as libfuse is told. */
void qos_mount_options_append(GString *text, unsigned long flags);
/* Considers the names of all. */
void qos_mount_options_consider(QosNear *near);
