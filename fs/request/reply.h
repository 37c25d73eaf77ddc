/*
 * The answer to an operation. This is the only place where one is sent, whatever became of the
 * operation.
 */
#pragma once

#include "fs/request/op.h"

/* Replies with what the operation has brought, or with `error` (0 or -errno). Does nothing where it
 * was answered before. With no lock held: the reply may bring the next request before it returns.
 */
void qos_op_reply(QosOp *op, int error);
