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
 *
 * Two threads of the daemon may read two READs, and come here the other way round. A READ that a
 * program waits for must never be given up, as the program would get the error. So what is given up
 * is older than two others by the kernel's numbers too.
 */
#include "fs/gate/state.h"

#define KEPT 2

/* One that has READs parked. */
typedef struct {
    guint thread; /* first: the table holds these */
    guint sent;   /* READs that came to be parked */
    guint parked;
    QosEntry *newest[KEPT]; /* the newest first; NULL: it is not parked any more */
    guint64 numbers[KEPT];  /* the greatest of all that came; the greatest first */
} Thread;

GHashTable *qos_gate_threads_new(void)
{
    return g_hash_table_new_full(g_int_hash, g_int_equal, NULL, g_free);
}

static Thread *find_locked(QosGate *gate, const QosEntry *entry)
{
    return g_hash_table_lookup(gate->threads, &entry->request.thread);
}

static void note_number(Thread *thread, guint64 number)
{
    for (guint i = 0; i < KEPT; i++) {
        const guint64 other = thread->numbers[i];
        if (number > other) {
            thread->numbers[i] = number;
            number = other;
        }
    }
}

static gboolean is_read_ahead(const Thread *thread, const QosEntry *entry)
{
    return thread->sent - entry->sent >= KEPT &&
           (entry->number == 0 || entry->number < thread->numbers[KEPT - 1]);
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
    note_number(thread, entry->number);
    return older != NULL && is_read_ahead(thread, older) ? older : NULL;
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
    return entry->request.thread != 0 && is_read_ahead(find_locked(gate, entry), entry);
}
