/*
 * What isolation does on the way of an operation (fs/request/hooks.h).
 *
 *     enter         what the program did not ask for is free; at a pay point its job waits;
 *                   what holds a lock that other jobs may want does not wait
 *     park          a job that wanted its lock meanwhile has it boosted
 *     call, called  who has waited at a pay point has paid; what went into debt makes one
 *     reply         the kernel believes nothing that it must ask for again, and what it may come to
 *                   wait for is boosted
 */
#pragma once

#include "fs/request/hooks.h"

extern const QosHooks qos_isolation_hooks;
