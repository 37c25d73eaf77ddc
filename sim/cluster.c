/*
 * The simulated cluster's clocks, network and events.
 *
 * Events are ordered by time, then by order of creation: arriving messages, alarms of nodes,
 * restarts, and faults. A node's clock has an offset and a drift against the cluster's. Each start
 * of a node has another offset, because a machine's monotonic clock begins anew at each boot.
 */
#include "sim/cluster.h"

#include <stdarg.h>
#include <stdio.h>

#define MILLION       1000000
#define DIGEST_FACTOR G_GUINT64_CONSTANT(0x9e3779b97f4a7c15)

typedef enum { ARRIVAL, ALARM, START, FAULT, CALM } EventKind;

typedef struct QosEvent {
    QosHeapNode heap; /* by the cluster's time */
    EventKind kind;
    QosNode *node;
    QosNode *from; /* of an arrival */
    GBytes *message;
} Event;

/* --- chance and trace --- */

gboolean qos_cluster_chance(QosCluster *cluster, guint thousandths)
{
    return thousandths > 0 && qos_cluster_random(cluster, 1000) < thousandths;
}

guint qos_cluster_random(QosCluster *cluster, guint below)
{
    return (guint)g_rand_int_range(cluster->random, 0, (gint32)below);
}

static void print_line(const QosCluster *cluster, const QosNode *node, const char *format,
                       va_list arguments)
{
    g_autofree char *line = g_strdup_vprintf(format, arguments);

    g_print("%10.6f  %-8s %s\n", (double)cluster->now / QOS_SECOND, node ? node->name : "", line);
}

void qos_cluster_trace(QosCluster *cluster, const QosNode *node, const char *format, ...)
{
    va_list arguments;

    if (!cluster->is_traced)
        return;
    va_start(arguments, format);
    print_line(cluster, node, format, arguments);
    va_end(arguments);
}

void qos_cluster_fail(QosCluster *cluster, const char *format, ...)
{
    va_list arguments;

    if (cluster->failure)
        return;
    va_start(arguments, format);
    cluster->failure = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    qos_cluster_trace(cluster, NULL, "FAILED: %s", cluster->failure);
}

/* --- clocks --- */

static QosTime local_time(const QosNode *node, QosTime at)
{
    return at + node->clock_offset + at / MILLION * node->clock_drift;
}

/* The first time of the cluster at which the node's clock shows `local`. */
static QosTime cluster_time(const QosNode *node, QosTime local)
{
    QosTime at =
        (QosTime)((__int128)(local - node->clock_offset) * MILLION / (MILLION + node->clock_drift));

    while (local_time(node, at) < local)
        at += MILLION;
    return at;
}

QosTime qos_node_now(const QosNode *node)
{
    return local_time(node, node->cluster->now);
}

static void set_clock(QosNode *node)
{
    GRand *random = node->cluster->random;
    const gint32 drift = (gint32)node->cluster->faults.drift;

    node->clock_offset = g_rand_int_range(random, 0, 1000000) * QOS_SECOND / 1000;
    node->clock_drift = g_rand_int_range(random, -drift, drift + 1);
}

/* --- events --- */

static Event *add_event(QosCluster *cluster, EventKind kind, QosNode *node, QosTime at)
{
    Event *event = g_new0(Event, 1);

    event->kind = kind;
    event->node = node;
    qos_heap_push(&cluster->events, &event->heap, MAX(at, cluster->now));
    return event;
}

static void free_event(Event *event)
{
    if (event->message)
        g_bytes_unref(event->message);
    g_free(event);
}

void qos_node_wake_at(QosNode *node, QosTime local)
{
    QosHeap *events = &node->cluster->events;

    if (node->alarm) {
        qos_heap_remove(events, &node->alarm->heap);
        g_clear_pointer(&node->alarm, free_event);
    }
    if (local != QOS_NEVER && !node->is_doomed)
        node->alarm = add_event(node->cluster, ALARM, node, cluster_time(node, local));
}

/* --- crashes --- */

/* Before each step of a node that can be seen from outside: FALSE, it has crashed. */
static gboolean survives(QosNode *node)
{
    if (node->is_doomed)
        return FALSE;
    if (node->fuse < 0)
        return TRUE;
    node->is_doomed = node->fuse-- == 0;
    return !node->is_doomed;
}

static void crash(QosNode *node)
{
    QosCluster *cluster = node->cluster;

    qos_cluster_trace(cluster, node, node->is_dead ? "dies" : "crashes");
    qos_node_wake_at(node, QOS_NEVER);
    node->class->stop(node);
    node->state = NULL;
    node->is_doomed = FALSE;
    node->fuse = -1;
    if (!node->is_dead)
        add_event(cluster, START, node,
                  cluster->now +
                      qos_cluster_random(cluster, qos_cluster_chance(cluster, 500) ? 2000 : 100) *
                          QOS_MILLISECOND);
}

static void start(QosNode *node)
{
    set_clock(node);
    node->incarnation++;
    node->paused_until = 0;
    qos_cluster_trace(node->cluster, node, "starts, incarnation %u", node->incarnation);
    node->class->start(node);
}

void qos_node_save(QosNode *node, const guint64 *values, guint count)
{
    const gboolean was_doomed = node->is_doomed;

    if (!survives(node) && (was_doomed || qos_cluster_chance(node->cluster, 500)))
        return;
    qos_cluster_trace(node->cluster, node, "saves %u values", count);
    g_array_set_size(node->saved, 0);
    g_array_append_vals(node->saved, values, count);
}

/* --- the network --- */

static gboolean is_cut(const QosNode *from, const QosNode *to, QosTime now)
{
    if (now < from->cut_out_until || now < to->cut_in_until)
        return TRUE;
    return (from->parent == to && now < from->cut_up_until) ||
           (to->parent == from && now < to->cut_down_until);
}

static QosTime arrival(QosCluster *cluster, const QosNode *from)
{
    QosTime delay = g_rand_int_range(cluster->random, 1, (gint32)(cluster->faults.delay / 1000)) *
                    G_GINT64_CONSTANT(1000);

    if (qos_cluster_chance(cluster, cluster->faults.straggle) || cluster->now < from->slow_until)
        delay += qos_cluster_random(cluster, QOS_CLUSTER_LATE / QOS_MILLISECOND) * QOS_MILLISECOND;
    return cluster->now + delay;
}

static void trace_message(const QosNode *node, const char *arrow, const QosNode *other,
                          GBytes *message)
{
    if (!node->cluster->is_traced)
        return;
    g_autofree char *text = node->class->describe(message);
    qos_cluster_trace(node->cluster, node, "%s %s: %s", arrow, other->name, text);
}

static void post(QosNode *node, QosNode *to, GBytes *message)
{
    Event *event = add_event(node->cluster, ARRIVAL, to, arrival(node->cluster, node));

    event->from = node;
    event->message = g_bytes_ref(message);
}

void qos_node_send(QosNode *node, QosNode *to, GBytes *message)
{
    QosCluster *cluster = node->cluster;
    g_autoptr(GBytes) taken = message;

    if (!survives(node))
        return;
    trace_message(node, "->", to, taken);
    if (is_cut(node, to, cluster->now) || qos_cluster_chance(cluster, cluster->faults.loss)) {
        qos_cluster_trace(cluster, node, "   lost");
        return;
    }
    post(node, to, taken);
    if (qos_cluster_chance(cluster, cluster->faults.repeat))
        post(node, to, taken);
}

/* --- faults --- */

/* Cuts off what a node sends and what it receives, or with `one_way` only one of the two. */
static void cut(QosCluster *cluster, QosTime until, gboolean one_way, QosTime *out, QosTime *in)
{
    const gboolean first = qos_cluster_chance(cluster, 500);

    if (!one_way || first)
        *out = until;
    if (!one_way || !first)
        *in = until;
}

/* One fault, of a kind and a node chosen by chance. */
static void strike(QosCluster *cluster)
{
    const QosFaultKind kind = qos_fault_choose(cluster->random);
    QosNode *any = cluster->nodes->pdata[qos_cluster_random(cluster, cluster->nodes->len)];
    QosNode *node = cluster->victim && qos_cluster_chance(cluster, 500) ? cluster->victim : any;
    const QosTime until = cluster->now + (1 + qos_cluster_random(cluster, 2000)) * QOS_MILLISECOND;

    if (!(cluster->faults.kinds & kind) || node->is_dead)
        return;
    qos_cluster_trace(cluster, node, "fault %s", qos_fault_name(kind));
    switch (kind) {
    case QOS_FAULT_DEATH: /* of few: else there would soon be nothing left to test */
        node->is_dead = qos_cluster_chance(cluster, 200);
        node->fuse = 0;
        break;
    case QOS_FAULT_CRASH:
        node->fuse = (gint)qos_cluster_random(cluster, 4);
        break;
    case QOS_FAULT_CUT:
    case QOS_FAULT_ONE_WAY:
        if (qos_cluster_chance(cluster, 500))
            cut(cluster, until, kind == QOS_FAULT_ONE_WAY, &node->cut_out_until,
                &node->cut_in_until);
        else
            cut(cluster, until, kind == QOS_FAULT_ONE_WAY, &node->cut_up_until,
                &node->cut_down_until);
        break;
    case QOS_FAULT_PAUSE:
        node->paused_until = until;
        break;
    case QOS_FAULT_SLOW:
        node->slow_until = until;
        break;
    }
}

/* --- the run --- */

QosNode *qos_cluster_add(QosCluster *cluster, const QosNodeClass *class, QosNode *parent,
                         const char *name, ...)
{
    QosNode *node = g_new0(QosNode, 1);
    va_list arguments;

    va_start(arguments, name);
    *node = (QosNode){.cluster = cluster,
                      .class = class,
                      .name = g_strdup_vprintf(name, arguments),
                      .number = cluster->nodes->len,
                      .parent = parent,
                      .saved = g_array_new(FALSE, FALSE, sizeof(guint64)),
                      .fuse = -1};
    va_end(arguments);
    g_ptr_array_add(cluster->nodes, node);
    add_event(cluster, START, node, qos_cluster_random(cluster, 1000) * QOS_MILLISECOND);
    return node;
}

static void free_node(gpointer data)
{
    QosNode *node = data;

    if (node->state)
        node->class->stop(node);
    g_array_free(node->saved, TRUE);
    g_free(node->arg);
    g_free(node->name);
    g_free(node);
}

/* From now on nothing goes wrong any more, but for the dead. */
static void calm(QosCluster *cluster)
{
    qos_cluster_trace(cluster, NULL, "the faults end");
    cluster->is_calm = TRUE;
    cluster->faults.kinds = 0;
    cluster->faults.loss = cluster->faults.repeat = cluster->faults.straggle = 0;
    for (guint i = 0; i < cluster->nodes->len; i++) {
        QosNode *node = cluster->nodes->pdata[i];
        node->paused_until = node->slow_until = 0;
        node->cut_in_until = node->cut_out_until = node->cut_up_until = node->cut_down_until = 0;
        if (!node->is_dead)
            node->fuse = -1;
    }
}

static void step(QosCluster *cluster, Event *event)
{
    QosNode *node = event->node;

    if (event->kind == START) {
        start(node);
    } else if (event->kind == ALARM) {
        node->class->wake(node);
    } else {
        trace_message(node, "<-", event->from, event->message);
        node->class->receive(node, event->from, event->message);
    }
    if (node->is_doomed || node->fuse >= 0)
        crash(node);
    cluster->steps++;
    cluster->digest = (cluster->digest ^ (guint64)cluster->now ^ node->number) * DIGEST_FACTOR;
    cluster->trial->check(cluster, node);
}

static void handle(QosCluster *cluster, Event *event)
{
    QosNode *node = event->node;

    if (event->kind == FAULT) {
        strike(cluster);
        if (!cluster->is_calm)
            add_event(cluster, FAULT, NULL,
                      cluster->now + 1 +
                          qos_cluster_random(cluster, (guint)(cluster->faults.interval / 1000)) *
                              QOS_MICROSECOND);
        free_event(event);
        return;
    }
    if (event->kind == CALM) {
        calm(cluster);
        free_event(event);
        return;
    }
    if (cluster->now < node->paused_until && event->kind != START) {
        qos_heap_push(&cluster->events, &event->heap, node->paused_until);
        return;
    }
    if (event->kind == ALARM)
        node->alarm = NULL;
    if ((node->state != NULL) != (event->kind == START))
        step(cluster, event);
    free_event(event);
}

static QosTime end_of(const QosCluster *cluster)
{
    return QOS_CLUSTER_TROUBLE + QOS_CLUSTER_LATE +
           cluster->trial->settles * MILLION / (MILLION - cluster->faults.drift);
}

static void run(QosCluster *cluster)
{
    const QosTime end = end_of(cluster);
    QosHeapNode *next;

    add_event(cluster, FAULT, NULL, 0);
    add_event(cluster, CALM, NULL, QOS_CLUSTER_TROUBLE);
    while (!cluster->failure && (next = qos_heap_peek(&cluster->events)) != NULL &&
           next->key < end) {
        cluster->now = next->key;
        qos_heap_remove(&cluster->events, next);
        handle(cluster, (Event *)next);
    }
    cluster->now = end;
    if (!cluster->failure)
        cluster->trial->settled(cluster);
}

QosTrialResult qos_trial_run(const QosTrialRun *run_of)
{
    const guint32 words[] = {(guint32)run_of->seed, (guint32)(run_of->seed >> 32)};
    QosCluster cluster = {.trial = run_of->trial,
                          .is_traced = run_of->is_traced,
                          .random = g_rand_new_with_seed_array(words, G_N_ELEMENTS(words)),
                          .nodes = g_ptr_array_new_with_free_func(free_node)};
    QosHeapNode *left;

    qos_heap_init(&cluster.events);
    qos_faults_choose(&cluster.faults, cluster.random);
    g_autofree char *faults = qos_faults_text(&cluster.faults);
    qos_cluster_trace(&cluster, NULL, "%s", faults);
    cluster.trial->build(&cluster, run_of->broken);
    run(&cluster);
    g_ptr_array_free(cluster.nodes, TRUE);
    cluster.trial->clear(&cluster);
    while ((left = qos_heap_peek(&cluster.events)) != NULL) {
        qos_heap_remove(&cluster.events, left);
        free_event((Event *)left);
    }
    qos_heap_clear(&cluster.events);
    g_rand_free(cluster.random);
    return (QosTrialResult){cluster.failure, cluster.steps, cluster.digest};
}
