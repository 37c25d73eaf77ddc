/*
 * How much of a group of inodes a mount gives up when another wants one of them. The first call
 * gets what it wants, each further one twice as much around it, in aligned blocks: who looks at a
 * thousand inodes of which the mount uses none has them after ten calls. When the mount asks for
 * one of the group itself, the next call gets just what it wants again: two that work on the same
 * group part it down to single inodes.
 *
 * Pure.
 */
#pragma once

#include "core/resource.h"

/*
 * What goes beside `wanted`, of what is `owned`, when it is called back for the `calls`th time
 * since the mount asked for something of the group (0: the first); of the same kind as `wanted`.
 * Both are spans; cleared by the caller.
 */
QosCredit qos_lockyield_beside(const QosCredit *owned, const QosCredit *wanted, guint calls);

/*
 * All that is `owned`, in whichever way, as one would want it who is to change it: what another's
 * wish for it conflicts with. Cleared by the caller.
 */
QosCredit qos_lockyield_all(const QosResourceType *type, const QosCredit *owned);
