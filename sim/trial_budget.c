/*
 * One budget over mounts that fail (core/budget.h): a coordinator, a combiner with three mounts,
 * and two mounts beside it. Demands change by chance. In half of the seeds every second fault is
 * the combiner's.
 *
 * Each has a floor from its start on, and some have nothing to do for as long as there are faults.
 * A member joins with its first report. What the coordinator saves is that it has been there
 * before. An observer that sees all mounts at once adds up the rates in force, and what they serve.
 *
 * HARD: the rates in force are at most R after each step. FAIR: the debt is bounded, and when all
 * has settled, R is served in a window of 2 s.
 */
#include "core/budget.h"
#include "sim/trial.h"

#define R             (G_GUINT64_CONSTANT(1000000) * QOS_BUDGET_UNIT)
#define E             QOS_BUDGET_EPOCH
#define LEASE         QOS_SECOND
#define FLOOR         10 /* percent */
#define BEHIND        3  /* mounts of the combiner */
#define BESIDE        2  /* of the coordinator */
#define MOUNTS        (BEHIND + BESIDE)
#define FLOOR_EACH    (R / 100 * FLOOR / MOUNTS)
#define LEAST_USED    (R / 2) /* when all has settled, and somebody lives */
#define SETTLES       (6 * QOS_SECOND)
#define WINDOW        (2 * QOS_SECOND) /* at the end: what is served in it */
#define WINDOW_BEGINS (QOS_CLUSTER_TROUBLE + QOS_CLUSTER_LATE + SETTLES - WINDOW)
#define LEAST_SERVED  0.75 /* of R, in the window: where messages take half of E, shares swing */
#define MOST_SERVED   1.15
#define DEBT_MOST     1.0     /* s of R, as core/budget.c has it */
#define CREDIT_MOST   0.1     /* likewise */
#define RETRY         (3 * E) /* of a message to the coordinator; by a combiner it takes longer */

typedef struct {
    QosBudgetShare share;
    QosBudgetAway away;
    gboolean lease, missing, ack, served; /* what is broken */
    guint quiet;                /* mounts that want nothing before all is calm; bits by node */
    QosTime shared[2 + MOUNTS]; /* when a mount had more than its floor; by node */
    QosTime used;               /* when half of R was in force */
    double sum[2 + MOUNTS];     /* amounts that were served; by node */
    double before_window;       /* the sum of these at its begin; < 0: it has not begun */
    QosTime window;             /* its begin */
} World;

typedef struct {
    QosBudget *budget; /* of a server */
    GArray *answers;
    GHashTable *heard; /* of the coordinator, with `missing`: who has reported in this epoch */
    QosBudgetMount mount;
    gboolean is_open; /* a report is not answered yet */
    gboolean is_used; /* the mount has had something to do */
    QosTime retry;    /* then it is sent again */
    QosTime change;   /* of the demand */
    guint64 demand;
    double served; /* an amount, in this incarnation, */
    QosTime at;    /* until then */
} State;

typedef enum { REPORT, GRANT } MessageType;

static gboolean is_root(const QosNode *node)
{
    return node->parent == NULL;
}

static QosNode *node_at(const QosNode *node, guint64 number)
{
    return node->cluster->nodes->pdata[number];
}

static gboolean is_combiner(const QosNode *node)
{
    return node->number == 1;
}

static gboolean is_mount(const QosNode *node)
{
    return node->number > 1;
}

static QosBudgetConfig config_of(const World *world, guint registered)
{
    return (QosBudgetConfig){.limit = R,
                             .share = world->share,
                             .away = world->away,
                             .floor = FLOOR,
                             .epoch = E,
                             .lease = LEASE,
                             .registered = registered};
}

/* --- messages --- */

static void send_report(QosNode *node, QosBudgetReport *report)
{
    GByteArray *bytes = g_byte_array_new();
    const guint8 type = REPORT;

    g_byte_array_append(bytes, &type, 1);
    qos_budget_report_encode(report, bytes);
    qos_budget_report_clear(report);
    qos_node_send(node, node->parent, g_byte_array_free_to_bytes(bytes));
}

static void send_answers(QosNode *node)
{
    State *state = node->state;
    const World *world = node->cluster->arg;

    for (guint i = 0; i < state->answers->len; i++) {
        QosBudgetAnswer *answer = &g_array_index(state->answers, QosBudgetAnswer, i);
        GByteArray *bytes = g_byte_array_new();
        const guint8 type = GRANT;
        if (world->ack) { /* all take at once what they shall have in the end */
            answer->grant.raise = answer->grant.level;
            answer->grant.raise_rest = answer->grant.rest;
        }
        g_byte_array_append(bytes, &type, 1);
        qos_budget_grant_encode(&answer->grant, bytes);
        qos_node_send(node, node_at(node, answer->to), g_byte_array_free_to_bytes(bytes));
    }
    g_array_set_size(state->answers, 0);
}

static char *describe(GBytes *bytes)
{
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);
    QosBudgetReport report = {0};
    QosBudgetGrant grant = {0};
    char *text;

    if (data[0] == REPORT) {
        qos_budget_report_decode(data + 1, length - 1, &report);
        text = g_strdup_printf("REPORT %" G_GINT64_MODIFIER "x holds %.3f of R, %u steps",
                               report.ticket, (double)report.held / R, report.count);
        qos_budget_report_clear(&report);
        return text;
    }
    qos_budget_grant_decode(data + 1, length - 1, &grant);
    return g_strdup_printf("GRANT %" G_GINT64_MODIFIER "x level %.3f raise %.3f of R, %d ms",
                           grant.ticket, MIN(grant.level / R, 9), MIN(grant.raise / R, 9),
                           (int)(grant.lease / QOS_MILLISECOND));
}

/* --- servers --- */

static guint weight_of(const QosNode *node)
{
    return is_combiner(node) ? BEHIND : 1;
}

static void start_server(QosNode *node)
{
    State *state = node->state;
    const World *world = node->cluster->arg;
    const QosBudgetConfig config = config_of(world, is_root(node) ? MOUNTS : BEHIND);
    const gboolean is_first = node->saved->len == 0;
    const guint64 been_here = 1;

    state->answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));
    state->heard = g_hash_table_new(g_direct_hash, g_direct_equal);
    if (is_root(node)) {
        qos_node_save(node, &been_here, 1);
        state->budget = qos_budget_new(&config, is_first, qos_node_now(node));
    } else {
        state->budget = qos_budget_combiner_new(&config, BEHIND * FLOOR_EACH, node->incarnation,
                                                qos_node_now(node));
    }
}

/* Broken: who does not report counts for nothing. */
static void forget_silent(QosNode *node)
{
    State *state = node->state;
    const QosTime now = qos_node_now(node);

    for (guint i = 1; i < node->cluster->nodes->len; i++) {
        if (node_at(node, i)->parent == node &&
            !g_hash_table_contains(state->heard, GUINT_TO_POINTER(i)))
            qos_budget_leave(state->budget, i, now);
    }
    g_hash_table_remove_all(state->heard);
}

static void wake_root(QosNode *node)
{
    State *state = node->state;
    const World *world = node->cluster->arg;

    if (world->missing)
        forget_silent(node);
    qos_budget_close(state->budget, qos_node_now(node), state->answers);
    send_answers(node);
}

static void wake_combiner(QosNode *node)
{
    State *state = node->state;
    const QosTime now = qos_node_now(node);
    QosBudgetReport report = {0};

    if ((state->is_open && now < state->retry) || !qos_budget_pass_up(state->budget, now, &report))
        return;
    state->is_open = report.count > 0;
    state->retry = now + RETRY;
    send_report(node, &report);
}

/* --- mounts --- */

/* What waits is served at the rate in force, which changes by itself when the lease ends. */
static void serve(QosNode *node)
{
    State *state = node->state;
    World *world = node->cluster->arg;
    const QosTime now = qos_node_now(node), end = state->mount.until;

    while (state->at < now) {
        const QosTime to = state->at < end && end < now ? end : now;
        const guint64 rate = MIN(qos_budget_mount_rate(&state->mount, state->at), state->demand);
        const double amount = (double)rate * (double)(to - state->at) / QOS_SECOND;
        state->served += amount;
        world->sum[node->number] += amount;
        state->at = to;
    }
}

static void wake_mount(QosNode *node)
{
    State *state = node->state;
    const World *world = node->cluster->arg;
    QosCluster *cluster = node->cluster;
    const QosTime now = qos_node_now(node);
    QosBudgetReport report = {0};

    serve(node);
    if (now >= state->change) {
        state->demand =
            qos_cluster_chance(cluster, 250) ? 0 : qos_cluster_random(cluster, 1000) * (R / 1000);
        state->change = now + qos_cluster_random(cluster, 1000) * QOS_MILLISECOND;
    }
    if (world->quiet & (1u << node->number))
        state->demand = 0;
    if (cluster->is_calm)
        state->demand = R;
    if (state->demand == 0 && !state->is_used)
        return;
    state->is_used = TRUE;
    if (state->is_open && state->demand > 0 && now < state->retry)
        return;
    qos_budget_mount_report(&state->mount, state->demand,
                            (guint64)(state->served / (world->served ? 2 : 1)), now, &report);
    state->is_open = state->demand > 0;
    state->retry = now + (is_root(node->parent) ? RETRY : 2 * RETRY);
    send_report(node, &report);
}

static void hear_grant(QosNode *node, QosBudgetGrant *grant)
{
    State *state = node->state;
    const World *world = node->cluster->arg;

    serve(node);
    if (world->lease)
        grant->lease *= 2;
    if (!qos_budget_mount_grant(&state->mount, grant, qos_node_now(node)))
        return;
    state->is_open = FALSE;
    qos_cluster_trace(node->cluster, node, "has %.3f of R",
                      (double)qos_budget_mount_rate(&state->mount, qos_node_now(node)) / R);
}

/* --- nodes --- */

static void wake(QosNode *node)
{
    if (is_root(node))
        wake_root(node);
    else if (is_combiner(node))
        wake_combiner(node);
    else
        wake_mount(node);
    qos_node_wake_at(node, qos_node_now(node) + E);
}

static void start(QosNode *node)
{
    const World *world = node->cluster->arg;
    const QosBudgetConfig config = config_of(world, MOUNTS);
    State *state = g_new0(State, 1);

    node->state = state;
    state->at = qos_node_now(node);
    if (is_mount(node))
        qos_budget_mount_init(&state->mount, &config, 1, FLOOR_EACH, node->incarnation);
    else
        start_server(node);
    qos_node_wake_at(node, qos_node_now(node) + E);
}

static void stop(QosNode *node)
{
    State *state = node->state;

    qos_budget_free(state->budget);
    if (state->answers != NULL)
        g_array_unref(state->answers);
    if (state->heard != NULL)
        g_hash_table_unref(state->heard);
    g_free(state);
}

static void receive_report(QosNode *node, QosNode *from, const guint8 *data, gsize length)
{
    State *state = node->state;
    QosBudgetReport report = {0};

    if (!qos_budget_report_decode(data, length, &report)) {
        qos_cluster_fail(node->cluster, "%s cannot decode a report of %s", node->name, from->name);
        return;
    }
    qos_budget_join(state->budget, from->number, weight_of(from), qos_node_now(node));
    if (qos_budget_report(state->budget, from->number, &report, qos_node_now(node)))
        g_hash_table_add(state->heard, GUINT_TO_POINTER(from->number));
    qos_budget_report_clear(&report);
}

static void receive(QosNode *node, QosNode *from, GBytes *bytes)
{
    State *state = node->state;
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);
    QosBudgetGrant grant;

    if (data[0] == REPORT) {
        receive_report(node, from, data + 1, length - 1);
        return;
    }
    if (!qos_budget_grant_decode(data + 1, length - 1, &grant)) {
        qos_cluster_fail(node->cluster, "%s cannot decode a grant", node->name);
    } else if (is_mount(node)) {
        hear_grant(node, &grant);
    } else if (qos_budget_pass_down(state->budget, &grant, qos_node_now(node), state->answers)) {
        state->is_open = FALSE;
        send_answers(node);
    }
}

static const QosNodeClass node_class = {start, stop, receive, wake, describe};

/* --- what must hold --- */

static guint64 in_force(const QosNode *node)
{
    const State *state = node->state;

    return state != NULL ? qos_budget_mount_rate(&state->mount, qos_node_now(node)) : 0;
}

/* FAIR: of a coordinator. */
static void check_debt(QosNode *node)
{
    const State *state = node->state;
    double debt;

    if (state == NULL)
        return;
    debt = qos_budget_state(state->budget, qos_node_now(node)).debt / (double)R;
    if (debt > DEBT_MOST || debt < -CREDIT_MOST)
        qos_cluster_fail(node->cluster, "the debt is %.3f s of R", debt);
}

static double served_by_all(QosCluster *cluster)
{
    const World *world = cluster->arg;
    double sum = 0;

    for (guint i = 2; i < cluster->nodes->len; i++) {
        QosNode *node = cluster->nodes->pdata[i];
        if (node->state != NULL)
            serve(node);
        sum += world->sum[i];
    }
    return sum;
}

static void check(QosCluster *cluster, QosNode *node)
{
    World *world = cluster->arg;
    guint64 sum = 0;

    if (world->share == QOS_BUDGET_FAIR && is_root(node))
        check_debt(node);
    if (world->before_window < 0 && cluster->now >= WINDOW_BEGINS) {
        world->before_window = served_by_all(cluster);
        world->window = cluster->now;
    }
    for (guint i = 2; i < cluster->nodes->len; i++) {
        const guint64 rate = in_force(cluster->nodes->pdata[i]);
        sum += MIN(rate, 2 * R);
        if (rate > FLOOR_EACH)
            world->shared[i] = cluster->now;
    }
    if (sum >= LEAST_USED)
        world->used = cluster->now;
    if (world->share == QOS_BUDGET_HARD && sum > R && qos_faults_keep_time(&cluster->faults))
        qos_cluster_fail(cluster, "the rates in force are %.6f of R", (double)sum / R);
}

/* FAIR: R is served; mounts whose server is dead have their floors beside it. */
static void check_window(QosCluster *cluster, guint living)
{
    const World *world = cluster->arg;
    const double seconds = (double)(cluster->now - world->window) / QOS_SECOND;
    const double served = (served_by_all(cluster) - world->before_window) / seconds / (double)R;
    const gboolean is_server_dead = node_at(cluster->nodes->pdata[0], 1)->is_dead;
    const guint64 lent = BEHIND * FLOOR_EACH;
    const double floors = is_server_dead ? (double)lent / (double)R : 0;

    if (world->share != QOS_BUDGET_FAIR || living == 0 || !qos_faults_keep_time(&cluster->faults))
        return;
    qos_cluster_trace(cluster, NULL, "%.3f of R was served in the last %.1f s", served, seconds);
    if (served < LEAST_SERVED)
        qos_cluster_fail(cluster, "%.3f of R is served when all has settled", served);
    if (served > MOST_SERVED + floors && !(is_server_dead && world->away == QOS_BUDGET_AWAY_OPEN))
        qos_cluster_fail(cluster, "%.3f of R is served when all has settled", served);
}

/* All that live, and whose servers do, have their shares again: of what they all want. Where
 * answers take long in the tree, a mount may be at its floor for a moment. */
static void settled(QosCluster *cluster)
{
    const World *world = cluster->arg;
    guint living = 0;

    for (guint i = 2; i < cluster->nodes->len; i++) {
        const QosNode *node = cluster->nodes->pdata[i];
        if (node->is_dead || node->parent->is_dead || node_at(node, 0)->is_dead)
            continue;
        living++;
        if (world->shared[i] < cluster->now - LEASE)
            qos_cluster_fail(cluster, "%s has no more than its floor", node->name);
    }
    if (living > 0 && world->used < cluster->now - LEASE)
        qos_cluster_fail(cluster, "%u mounts have less than half of R", living);
    check_window(cluster, living);
}

/* --- the trial --- */

static void build(QosCluster *cluster, const char *broken)
{
    World *world = g_new0(World, 1);
    QosNode *root = qos_cluster_add(cluster, &node_class, NULL, "root");
    QosNode *combiner = qos_cluster_add(cluster, &node_class, root, "server");

    cluster->arg = world;
    *world = (World){
        .share = qos_cluster_chance(cluster, 400) ? QOS_BUDGET_FAIR : QOS_BUDGET_HARD,
        .away = qos_cluster_chance(cluster, 500) ? QOS_BUDGET_AWAY_FLOOR : QOS_BUDGET_AWAY_STOP,
        .before_window = -1,
        .lease = g_strcmp0(broken, "lease") == 0,
        .missing = g_strcmp0(broken, "missing") == 0,
        .ack = g_strcmp0(broken, "ack") == 0,
        .served = g_strcmp0(broken, "served") == 0,
    };
    if (world->share == QOS_BUDGET_FAIR && qos_cluster_chance(cluster, 300))
        world->away = QOS_BUDGET_AWAY_OPEN;
    if (qos_cluster_chance(cluster, 500))
        cluster->victim = combiner;
    for (guint i = 2; i < 2 + MOUNTS; i++)
        world->quiet |= (guint)qos_cluster_chance(cluster, 300) << i;
    for (guint i = 0; i < MOUNTS; i++)
        qos_cluster_add(cluster, &node_class, i < BEHIND ? combiner : root, "mount%u", i);
}

static void clear(QosCluster *cluster)
{
    g_free(cluster->arg);
}

static const char *const rules[] = {"lease", "missing", "ack", "served", NULL};

const QosTrial qos_trial_budget = {
    .name = "budget",
    .promise = "with share=hard the rates in force are at most R, at every instant; with "
               "share=fair R is served again when the faults have ended",
    .rules = rules,
    .settles = SETTLES,
    .build = build,
    .clear = clear,
    .check = check,
    .settled = settled,
};
