/*
 * A proof that a lender granted a token: so that what a borrower claims after the lender's restart,
 * when the lender remembers nothing, is of a resource that this borrower was granted.
 *
 * It is half of a SipHash-2-4 over borrower, token and resource, with a key that outlives the
 * lender and that nobody else knows. 32 bits do: each wrong guess costs a session, and there is a
 * grace for it only after a restart. It does not say how much of the resource was granted, nor that
 * it was not given back: what claims conflict with, and their sum, is bounded besides
 * (core/credit_receive.c).
 */
#pragma once

#include "core/credit.h"

guint32 qos_proof(const guint64 key[2], QosOwnerId borrower, QosToken token,
                  const QosResource *resource);
/* SipHash-2-4 of `length` bytes. */
guint64 qos_siphash(const guint64 key[2], const guint8 *bytes, gsize length);
