#include "ops/background.h"

struct QosBackground {
    GQueue fresh;          /* of QosOp, whose process was not looked for yet */
    GHashTable *processes; /* a set of QosBackgroundProcess, by pid and start */
    guint count;           /* of requests, in all */
};

static guint hash_process(gconstpointer key)
{
    const QosProcessId *process = key;

    return (guint)process->pid ^ (guint)process->start;
}

static gboolean equal_processes(gconstpointer a, gconstpointer b)
{
    const QosProcessId *one = a, *other = b;

    return one->pid == other->pid && one->start == other->start;
}

QosBackground *qos_background_new(void)
{
    QosBackground *background = g_new0(QosBackground, 1);

    background->processes = g_hash_table_new_full(hash_process, equal_processes, g_free, NULL);
    return background;
}

void qos_background_free(QosBackground *background)
{
    if (background == NULL)
        return;
    g_assert(background->count == 0);
    g_hash_table_unref(background->processes);
    g_free(background);
}

gboolean qos_background_is_empty(const QosBackground *background)
{
    return background->count == 0;
}

static void move(QosOp *op, GQueue *queue)
{
    if (op->background_queue != NULL)
        g_queue_unlink(op->background_queue, &op->background);
    op->background_queue = queue;
    op->background = (GList){.data = op};
    if (queue != NULL)
        g_queue_push_tail_link(queue, &op->background);
}

void qos_background_add(QosBackground *background, QosOp *op)
{
    qos_background_remove(background, op);
    move(op, &background->fresh);
    background->count++;
}

void qos_background_remove(QosBackground *background, QosOp *op)
{
    if (op->background_queue == NULL)
        return;
    move(op, NULL);
    background->count--;
}

/* --- a look --- */

void qos_background_begin(QosBackground *background, QosBackgroundLook *ret_look)
{
    GHashTableIter iter;
    gpointer process;

    ret_look->threads = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    for (GList *link = background->fresh.head; link != NULL; link = link->next) {
        const QosOp *op = link->data;
        gpointer thread = GINT_TO_POINTER(fuse_req_ctx(op->fuse)->pid);

        if (!g_hash_table_contains(ret_look->threads, thread))
            g_hash_table_insert(ret_look->threads, thread, g_new0(QosProcessId, 1));
    }
    ret_look->processes = g_ptr_array_new();
    g_hash_table_iter_init(&iter, background->processes);
    while (g_hash_table_iter_next(&iter, &process, NULL))
        g_ptr_array_add(ret_look->processes, process);
}

void qos_background_look(QosBackgroundLook *look)
{
    GHashTableIter iter;
    gpointer thread, process;

    g_hash_table_iter_init(&iter, look->threads);
    while (g_hash_table_iter_next(&iter, &thread, &process))
        qos_signals_process(GPOINTER_TO_INT(thread), process);
    for (guint i = 0; i < look->processes->len; i++) {
        QosBackgroundProcess *known = look->processes->pdata[i];
        known->is_killed = qos_signals_have_killed(&known->process);
    }
}

void qos_background_sort(QosBackground *background, const QosBackgroundLook *look)
{
    GList *next;

    for (GList *link = background->fresh.head; link != NULL; link = next) {
        QosOp *op = link->data;
        const QosProcessId *process =
            g_hash_table_lookup(look->threads, GINT_TO_POINTER(fuse_req_ctx(op->fuse)->pid));
        QosBackgroundProcess *known;

        next = link->next;
        if (process == NULL)
            continue; /* it came after the look began */
        if (process->start == 0) {
            qos_background_remove(background, op);
            continue;
        }
        known = g_hash_table_lookup(background->processes, process);
        if (known == NULL) {
            known = g_new0(QosBackgroundProcess, 1);
            known->process = *process;
            g_hash_table_add(background->processes, known);
        }
        move(op, &known->ops);
    }
}

static gboolean is_idle(gpointer key, gpointer value G_GNUC_UNUSED, gpointer data G_GNUC_UNUSED)
{
    return ((QosBackgroundProcess *)key)->ops.length == 0;
}

void qos_background_end(QosBackground *background, QosBackgroundLook *look)
{
    g_hash_table_foreach_remove(background->processes, is_idle, NULL);
    g_hash_table_unref(look->threads);
    g_ptr_array_unref(look->processes);
}
