/*
 * Tells ThreadSanitizer an order that it cannot see: what a thread did before it replied comes
 * before what another thread does for a later request. The kernel and the client between them
 * guarantee this order, but ThreadSanitizer sees only locks and memory.
 */
#pragma once

#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address); /* NOLINT(bugprone-reserved-identifier) */
void __tsan_release(void *address); /* NOLINT(bugprone-reserved-identifier) */
__attribute__((weak)) char qos_kernel_order_mark;
#endif

/* A request has come. */
static inline void qos_kernel_order_request(void)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(&qos_kernel_order_mark);
#endif
}

/* A reply is about to go. */
static inline void qos_kernel_order_reply(void)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_release(&qos_kernel_order_mark);
#endif
}
