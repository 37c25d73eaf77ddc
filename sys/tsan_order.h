/*
 * What a thread did before it replied comes before what another does for a later request: the
 * kernel, and the client between them, see to it. ThreadSanitizer, which sees locks and memory
 * alone, has to be told.
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
