/*
 * A proof that a lender granted a token. After a restart the lender remembers nothing, so it needs
 * the proof to know that a resource which a borrower claims was granted to this borrower.
 *
 * The proof is half of a SipHash-2-4 over borrower, token and resource. Its key outlives the
 * lender, and is known to nobody else. 32 bits are enough, because each wrong guess costs the
 * borrower a session, and guesses are possible only in the grace after a restart.
 *
 * Limit: the proof does not say how much of the resource was granted, nor that it was not given
 * back. core/credit_receive.c therefore bounds what claims conflict with, and their sum.
 */
#pragma once

#include "core/credit.h"

guint32 qos_proof(const guint64 key[2], QosOwnerId borrower, QosToken token,
                  const QosResource *resource);
/* SipHash-2-4 of `length` bytes. */
guint64 qos_siphash(const guint64 key[2], const guint8 *bytes, gsize length);
