/*
 * Parked read-ahead, and when it is given up.
 *
 * A thread that waits for a page sends no request until it has it. So of the READs into the page
 * cache that one thread has sent, all but the newest are read-ahead. If such a READ fails, the
 * kernel unlocks its pages and tells nobody. It asks anew when a program needs one of them.
 *
 * If another job wants the file, and the class already owes as much as it may, the gate gives up
 * the read-ahead that a thread sent before its newest two READs: it answers EAGAIN. Then the other
 * job waits for two READs of each thread, and not for all its read-ahead. Two READs stay because a
 * thread that reads a file from beginning to end waits for the last but one, and because the kernel
 * asks anew page by page.
 */
#include "fs/gate/state.h"

#define KEPT 2

/* One that has READs parked. */
typedef struct {
    guint thread; /* first: the table holds these */
    guint sent;   /* READs that came to be parked */
    guint parked;
    QosEntry *newest[KEPT]; /* the newest first; NULL: it is not parked any more */
} Thread;

GHashTable *qos_gate_threads_new(void)
{
    return g_hash_table_new_full(g_int_hash, g_int_equal, NULL, g_free);
}

static Thread *find_locked(QosGate *gate, const QosEntry *entry)
{
    return g_hash_table_lookup(gate->threads, &entry->request.thread);
}

QosEntry *qos_gate_join_thread_locked(QosGate *gate, QosEntry *entry)
{
    if (entry->request.thread == 0)
        return NULL;
    Thread *thread = find_locked(gate, entry);
    if (thread == NULL) {
        thread = g_new0(Thread, 1);
        thread->thread = entry->request.thread;
        g_hash_table_add(gate->threads, thread);
    }
    QosEntry *older = thread->newest[KEPT - 1];
    memmove(thread->newest + 1, thread->newest, (KEPT - 1) * sizeof(QosEntry *));
    thread->newest[0] = entry;
    thread->parked++;
    entry->sent = ++thread->sent;
    return older;
}

void qos_gate_leave_thread_locked(QosGate *gate, QosEntry *entry)
{
    if (entry->request.thread == 0)
        return;
    Thread *thread = find_locked(gate, entry);
    for (guint i = 0; i < KEPT; i++) {
        if (thread->newest[i] == entry)
            thread->newest[i] = NULL;
    }
    thread->parked--;
    if (thread->parked == 0)
        g_hash_table_remove(gate->threads, thread);
}

gboolean qos_gate_is_read_ahead_locked(QosGate *gate, const QosEntry *entry)
{
    return entry->request.thread != 0 && find_locked(gate, entry)->sent - entry->sent >= KEPT;
}
