#include "ops/background.h"

struct QosBackground {
    QosTurns *turns;
    guint kind;
    GHashTable *groups; /* a set of QosBackgroundGroup, by `id`; owned */
};

static guint hash_id(gconstpointer key)
{
    const QosProcessId *id = key;

    return (guint)id->pid ^ (guint)id->start;
}

static gboolean equal_ids(gconstpointer a, gconstpointer b)
{
    const QosProcessId *one = a, *other = b;

    return one->pid == other->pid && one->start == other->start;
}

QosBackground *qos_background_new(QosTurns *turns, guint kind)
{
    QosBackground *background = g_new0(QosBackground, 1);

    background->turns = turns;
    background->kind = kind;
    background->groups = g_hash_table_new(hash_id, equal_ids);
    return background;
}

void qos_background_free(QosBackground *background)
{
    if (background == NULL)
        return;
    g_assert(g_hash_table_size(background->groups) == 0);
    g_hash_table_unref(background->groups);
    g_free(background);
}

static void free_if_empty(QosBackground *background, QosBackgroundGroup *group)
{
    if (group->ops.length > 0)
        return;
    qos_turns_remove(background->turns, &group->turn);
    g_hash_table_remove(background->groups, &group->id);
    g_free(group);
}

/* Made for `op` if need be. */
static QosBackgroundGroup *find_group(QosBackground *background, const QosProcessId *id,
                                      const QosOp *op)
{
    const QosRequest *request = &op->entry.request;
    QosBackgroundGroup *group = g_hash_table_lookup(background->groups, id);

    if (group != NULL)
        return group;
    group = g_new0(QosBackgroundGroup, 1);
    group->id = *id;
    group->turn.kind = background->kind;
    g_hash_table_insert(background->groups, &group->id, group);
    qos_turns_add(background->turns, &group->turn, request->job, request->user);
    return group;
}

static void put(QosOp *op, QosBackgroundGroup *group)
{
    op->background_group = group;
    op->background = (GList){.data = op};
    g_queue_push_tail_link(&group->ops, &op->background);
}

QosBackgroundGroup *qos_background_add(QosBackground *background, QosOp *op)
{
    const QosProcessId thread = {.pid = fuse_req_ctx(op->fuse)->pid};

    qos_background_remove(background, op);
    put(op, find_group(background, &thread, op));
    return op->background_group;
}

void qos_background_remove(QosBackground *background, QosOp *op)
{
    QosBackgroundGroup *group = op->background_group;

    if (group == NULL)
        return;
    op->background_group = NULL;
    g_queue_unlink(&group->ops, &op->background);
    free_if_empty(background, group);
}

QosBackgroundGroup *qos_background_found(QosBackground *background, QosBackgroundGroup *thread,
                                         const QosProcessId *process)
{
    const gboolean has_gone = process->start == 0;
    QosBackgroundGroup *group = NULL;

    if (!has_gone)
        group = find_group(background, process, thread->ops.head->data);
    while (thread->ops.length > 0) {
        QosOp *op = g_queue_pop_head_link(&thread->ops)->data;

        op->background_group = NULL;
        if (!has_gone)
            put(op, group);
    }
    free_if_empty(background, thread);
    return group;
}
