/*
 * Isolation: no job waits for the locks that the kernel holds for another job's throttled requests
 * (docs/design/isolation.md).
 *
 * What it does on the way of an operation (fs/request/hooks.h):
 *
 *     enter         what the program did not ask for is free; at a pay point its job waits;
 *                   what holds a lock that other jobs may want does not wait
 *     park          a job that wanted its lock meanwhile has it boosted
 *     call, called  a thread that has waited at a pay point has paid; a request that went into debt
 *                   makes a pay point
 *     reply         the kernel believes nothing that it must ask for again, and the parked requests
 *                   that it may come to wait for are boosted
 *     reply_open    the job joins those that have the file open; if it is new there, the parked
 *                   requests of others are boosted
 */
#pragma once

#include "fs/request/hooks.h"

extern const QosHooks qos_isolation_hooks;
