/*
 * Groups of parked background requests, by process. fs/request/background.h has the contract.
 *
 * A request brings a thread id, and its process is found later. So it begins in a group of its
 * thread, and moves to that of its process as soon as the process is known. A process that already
 * has a group is recognised by its pidfd, or by another request of the same thread.
 */
#include "fs/request/background.h"

#include <sys/resource.h>
#include <unistd.h>

/* Descriptors of processes, of all. */
#define DESCRIPTORS_MAX  1024
#define DESCRIPTORS_PART 64

/* A thread that has requests in the group of its process. */
typedef struct {
    QosBackgroundGroup *group;
    guint requests;
} Sender;

struct QosBackground {
    QosPollTurns *turns;
    guint kind;
    GHashTable *groups;    /* a set of QosBackgroundGroup, by `id`; owned */
    GHashTable *processes; /* PID -> the last of these that was made for a process of that number */
    GHashTable *senders;   /* TID -> Sender, owned */
    QosQuota quota;        /* for descriptors */
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

static guint descriptors_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return DESCRIPTORS_MAX;
    return (guint)MIN(limit.rlim_cur / DESCRIPTORS_PART, DESCRIPTORS_MAX);
}

QosBackground *qos_background_new(QosPollTurns *turns, guint kind)
{
    QosBackground *background = g_new0(QosBackground, 1);

    background->turns = turns;
    background->kind = kind;
    background->groups = g_hash_table_new(hash_id, equal_ids);
    background->processes = g_hash_table_new(NULL, NULL);
    background->senders = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    qos_quota_init(&background->quota, descriptors_max());
    return background;
}

void qos_background_free(QosBackground *background)
{
    if (background == NULL)
        return;
    g_assert(g_hash_table_size(background->groups) == 0);
    g_hash_table_unref(background->groups);
    g_hash_table_unref(background->processes);
    g_hash_table_unref(background->senders);
    qos_quota_clear(&background->quota);
    g_free(background);
}

static gpointer number_of(const QosBackgroundGroup *group)
{
    return GINT_TO_POINTER(group->id.pid);
}

static void free_if_empty(QosBackground *background, QosBackgroundGroup *group)
{
    if (group->ops.length > 0)
        return;
    if (group->descriptor >= 0) {
        close(group->descriptor);
        qos_quota_give_back(&background->quota, group->job, group->user);
    }
    qos_poll_turns_remove(background->turns, &group->turn);
    g_hash_table_remove(background->groups, &group->id);
    if (g_hash_table_lookup(background->processes, number_of(group)) == group)
        g_hash_table_remove(background->processes, number_of(group));
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
    group->descriptor = -1;
    group->job = request->job;
    group->user = request->user;
    group->turn.kind = background->kind;
    g_hash_table_insert(background->groups, &group->id, group);
    if (id->start != 0)
        g_hash_table_insert(background->processes, number_of(group), group);
    qos_poll_turns_add(background->turns, &group->turn, request->job, request->user);
    return group;
}

static gpointer thread_of(const QosOp *op)
{
    return GINT_TO_POINTER(fuse_req_ctx(op->fuse)->pid);
}

/* Those of a process have a start. */
static void add_sender(QosBackground *background, const QosOp *op, QosBackgroundGroup *group)
{
    Sender *sender = g_hash_table_lookup(background->senders, thread_of(op));

    if (sender == NULL) {
        sender = g_new0(Sender, 1);
        g_hash_table_insert(background->senders, thread_of(op), sender);
    }
    if (sender->group != group)
        *sender = (Sender){.group = group};
    sender->requests++;
}

static void remove_sender(QosBackground *background, const QosOp *op)
{
    Sender *sender = g_hash_table_lookup(background->senders, thread_of(op));

    if (sender != NULL && sender->group == op->wait.background_group && --sender->requests == 0)
        g_hash_table_remove(background->senders, thread_of(op));
}

static void put(QosBackground *background, QosOp *op, QosBackgroundGroup *group)
{
    op->wait.background_group = group;
    op->wait.background = (GList){.data = op};
    g_queue_push_tail_link(&group->ops, &op->wait.background);
    if (group->id.start != 0)
        add_sender(background, op, group);
}

static QosProcessId thread_id(const QosOp *op)
{
    return (QosProcessId){.pid = fuse_req_ctx(op->fuse)->pid};
}

QosBackgroundGroup *qos_background_find(QosBackground *background, const QosOp *op)
{
    const QosProcessId thread = thread_id(op);

    return g_hash_table_lookup(background->groups, &thread);
}

/* A number is one process's for as long as its descriptor names it. */
QosBackgroundGroup *qos_background_find_process(QosBackground *background, int descriptor)
{
    const pid_t process = qos_signals_number_of(descriptor);
    QosBackgroundGroup *group =
        g_hash_table_lookup(background->processes, GINT_TO_POINTER(process));

    if (process == 0 || group == NULL || qos_signals_number_of(group->descriptor) != process)
        return NULL;
    return group;
}

QosBackgroundGroup *qos_background_add(QosBackground *background, QosOp *op,
                                       QosBackgroundGroup *group)
{
    const QosProcessId thread = thread_id(op);

    if (group == NULL)
        group = find_group(background, &thread, op);
    put(background, op, group);
    return group;
}

void qos_background_remove(QosBackground *background, QosOp *op)
{
    QosBackgroundGroup *group = op->wait.background_group;

    if (group == NULL)
        return;
    remove_sender(background, op);
    op->wait.background_group = NULL;
    g_queue_unlink(&group->ops, &op->wait.background);
    free_if_empty(background, group);
}

gboolean qos_background_knows(QosBackground *background, const QosBackgroundGroup *thread)
{
    return g_hash_table_contains(background->senders, GINT_TO_POINTER(thread->id.pid));
}

gboolean qos_background_is_new(QosBackground *background, const QosProcessId *process)
{
    return g_hash_table_lookup(background->groups, process) == NULL;
}

/* The group of a thread's process; NULL: that is not known. */
static QosBackgroundGroup *group_of(QosBackground *background, const QosBackgroundGroup *thread,
                                    const QosProcessId *process)
{
    const Sender *sender;

    if (process->start != 0)
        return find_group(background, process, thread->ops.head->data);
    sender = g_hash_table_lookup(background->senders, GINT_TO_POINTER(thread->id.pid));
    return sender != NULL ? sender->group : NULL;
}

QosBackgroundGroup *qos_background_found(QosBackground *background, QosBackgroundGroup *thread,
                                         const QosProcessId *process)
{
    QosBackgroundGroup *group = group_of(background, thread, process);

    if (group == NULL) {
        thread->end = qos_signals_end_of_gone(thread->descriptor);
        if (thread->end == QOS_END_KILLED)
            return thread;
    }
    while (thread->ops.length > 0) {
        QosOp *op = g_queue_pop_head_link(&thread->ops)->data;

        op->wait.background_group = NULL;
        if (group != NULL)
            put(background, op, group);
    }
    free_if_empty(background, thread);
    return group;
}

gboolean qos_background_keep(QosBackground *background, QosBackgroundGroup *group, int descriptor)
{
    if (group->descriptor >= 0 || !qos_quota_take(&background->quota, group->job, group->user))
        return FALSE;
    group->descriptor = descriptor;
    return TRUE;
}
