/*
 * The world that sim/budget_world.h tells of.
 *
 * Who says what when. A mount that wakes reports after E / 4, then E after each answer, or again
 * after 3/2 E (5/2 E in a tree) without one. The coordinator ends an epoch after E when all that it
 * answered before have reported, and after 5/4 E at the latest (3/2 E in a tree). A combiner passes
 * up when all its mounts have reported, or 5/4 E after the answer before. So an epoch is E and the
 * way there and back.
 */
#include "sim/budget_world.h"

#include <math.h>

#define ROOT          G_MAXUINT32
#define ON            2.0 /* s, on average */
#define OFF           3.0
#define LEAST_WAITING 1e-6 /* of a second's speed: less is nothing */

typedef enum { TURNS, REPORTS, CLOSES, PASSES, UP, DOWN } EventKind;

typedef struct {
    QosHeapNode heap;
    EventKind kind;
    guint node;           /* that it is about: a mount, a combiner, ROOT */
    guint from;           /* of UP */
    gboolean is_combiner; /* of `node` with DOWN, of `from` with UP */
    QosBudgetGrant grant;
    QosBudgetReport report;
} Event;

typedef struct {
    QosBudgetMount budget;
    QosBudgetLoad load;
    Event *turn, *timer; /* NULL: none is set */
    gboolean is_on, is_dead;
    QosTime silent_until;
    double reported_served, reported_waiting; /* of the latest report */
    double epoch_served;                      /* of the latest exchange of dmClock */
    double rate;                              /* of the laws without messages */
    QosTime reported;
} Mount;

typedef struct {
    QosBudget *budget;
    Event *timer;
    QosTime down;     /* the latest answer: of its parent, or its own */
    gboolean is_open; /* its report is not answered yet */
} Server;

struct QosBudgetWorld {
    QosBudgetWorldConfig config;
    QosBudgetConfig budget;
    GRand *random;
    QosHeap events;
    QosTime now;
    Mount *mounts;
    Server root, *combiners;
    guint combiner_count;
    GArray *answers;
    QosBudgetReport report; /* scratch */
    GPtrArray *unused;      /* of Event */
    guint64 messages, active, epochs;
};

/* --- events --- */

static Event *add_event(QosBudgetWorld *world, EventKind kind, guint node, QosTime at)
{
    Event *event = world->unused->len > 0
                       ? g_ptr_array_steal_index(world->unused, world->unused->len - 1)
                       : g_new0(Event, 1);

    event->heap = (QosHeapNode){0};
    event->kind = kind;
    event->node = node;
    event->is_combiner = FALSE;
    qos_heap_push(&world->events, &event->heap, at);
    return event;
}

static void set_timer(QosBudgetWorld *world, Event **timer, EventKind kind, guint node, QosTime at)
{
    if (*timer != NULL)
        qos_heap_update(&world->events, &(*timer)->heap, at);
    else
        *timer = add_event(world, kind, node, at);
}

/* NULL: it is lost. */
static Event *post(QosBudgetWorld *world, EventKind kind, guint to)
{
    world->messages++;
    if (world->config.loss > 0 &&
        (guint)g_rand_int_range(world->random, 0, 1000) < world->config.loss)
        return NULL;
    return add_event(world, kind, to, world->now + world->config.latency);
}

/* --- mounts --- */

static double rate_of(const QosBudgetWorld *world, const Mount *mount, QosTime at)
{
    if (mount->is_dead)
        return 0;
    if (world->config.law != QOS_BUDGET_LAW_SHARED)
        return mount->rate;
    return (double)qos_budget_mount_rate(&mount->budget, at);
}

/* The rate in force changes by itself when the lease ends. */
static void advance(const QosBudgetWorld *world, Mount *mount)
{
    const QosTime end = mount->budget.until;

    if (mount->load.at < end && end < world->now)
        qos_budget_load_advance(&mount->load, rate_of(world, mount, mount->load.at), end);
    qos_budget_load_advance(&mount->load, rate_of(world, mount, mount->load.at), world->now);
}

static gboolean is_idle(const Mount *mount)
{
    return mount->load.inflow <= 0 && mount->load.waiting <= mount->load.speed * LEAST_WAITING;
}

/* What came in, by the second, and what waits, in an epoch: so much is wanted in the next one. */
static guint64 demand_of(const QosBudgetWorld *world, const Mount *mount)
{
    const double elapsed =
        (double)MAX(world->now - mount->reported, world->config.epoch / 4) / QOS_SECOND;
    const double came =
        mount->load.served - mount->reported_served + mount->load.waiting - mount->reported_waiting;

    return (guint64)(MAX(came, 0) / elapsed +
                     mount->load.waiting * QOS_SECOND / (double)world->config.epoch);
}

/* In a tree an answer may take an epoch at each level. */
static QosTime retry_after(const QosBudgetWorld *world)
{
    return world->config.epoch * (world->config.fan > 0 ? 5 : 3) / 2;
}

static void report(QosBudgetWorld *world, guint number)
{
    Mount *mount = &world->mounts[number];
    Event *event;
    guint64 demand;

    advance(world, mount);
    demand = is_idle(mount) ? 0 : MAX(demand_of(world, mount), 1);
    mount->reported_served = mount->load.served;
    mount->reported_waiting = mount->load.waiting;
    mount->reported = world->now;
    qos_budget_mount_report(&mount->budget, demand, (guint64)mount->load.served, world->now,
                            &world->report);
    world->active++; /* the last report before it idles is of an epoch with work, too */
    if (demand > 0)
        set_timer(world, &mount->timer, REPORTS, number, world->now + retry_after(world));
    if (world->now < mount->silent_until || (event = post(world, UP, number)) == NULL)
        return;
    event->from = number;
    qos_budget_report_copy(&event->report, &world->report);
}

static void wake(QosBudgetWorld *world, guint number)
{
    Mount *mount = &world->mounts[number];

    if (world->config.law != QOS_BUDGET_LAW_SHARED || mount->timer != NULL || mount->is_dead)
        return;
    mount->reported = world->now;
    mount->reported_served = mount->load.served;
    mount->reported_waiting = mount->load.waiting;
    set_timer(world, &mount->timer, REPORTS, number, world->now + world->config.epoch / 4);
}

static void hear(QosBudgetWorld *world, guint number, const QosBudgetGrant *grant)
{
    Mount *mount = &world->mounts[number];

    if (mount->is_dead || world->now < mount->silent_until)
        return;
    advance(world, mount);
    if (qos_budget_mount_grant(&mount->budget, grant, world->now))
        set_timer(world, &mount->timer, REPORTS, number, world->now + world->config.epoch);
}

/* How long one stays on, or off. */
static QosTime any_turn(QosBudgetWorld *world, gboolean is_on)
{
    return (QosTime)(-log(1 - g_rand_double(world->random)) * (is_on ? ON : OFF) * QOS_SECOND);
}

static void turn(QosBudgetWorld *world, guint number, gboolean is_on)
{
    Mount *mount = &world->mounts[number];

    if (mount->is_dead)
        return;
    advance(world, mount);
    mount->is_on = is_on;
    qos_budget_load_turn(&mount->load, is_on);
    if (is_on)
        wake(world, number);
}

/* --- servers --- */

static Server *server_above(const QosBudgetWorld *world, guint mount)
{
    return world->config.fan > 0 ? &world->combiners[mount / world->config.fan]
                                 : (Server *)&world->root;
}

static void send_answers(QosBudgetWorld *world, gboolean to_combiners)
{
    for (guint i = 0; i < world->answers->len; i++) {
        const QosBudgetAnswer *answer = &g_array_index(world->answers, QosBudgetAnswer, i);
        Event *event = post(world, DOWN, (guint)answer->to);
        if (event == NULL)
            continue;
        event->is_combiner = to_combiners;
        event->grant = answer->grant;
    }
    g_array_set_size(world->answers, 0);
}

static void close_epoch(QosBudgetWorld *world)
{
    qos_budget_close(world->root.budget, world->now, world->answers);
    world->root.down = world->now;
    world->epochs++;
    send_answers(world, world->config.fan > 0);
    set_timer(world, &world->root.timer, CLOSES, ROOT, world->now + world->config.epoch);
}

/* The way through a tree is longer. */
static QosTime longest_epoch(const QosBudgetWorld *world)
{
    return world->config.epoch * (world->config.fan > 0 ? 6 : 5) / 4;
}

/* After E: at once if all have reported, else when longest_epoch() is over. */
static void close_timer(QosBudgetWorld *world)
{
    world->root.timer = NULL;
    if (qos_budget_is_complete(world->root.budget) ||
        world->now >= world->root.down + longest_epoch(world))
        close_epoch(world);
    else
        set_timer(world, &world->root.timer, CLOSES, ROOT, world->root.down + longest_epoch(world));
}

static void pass_up(QosBudgetWorld *world, guint number)
{
    Server *combiner = &world->combiners[number];
    Event *event;

    if (!qos_budget_pass_up(combiner->budget, world->now, &world->report))
        return;
    combiner->is_open = world->report.count > 0;
    if (combiner->is_open)
        set_timer(world, &combiner->timer, PASSES, number,
                  world->now + world->config.epoch * 3 / 2);
    if ((event = post(world, UP, ROOT)) == NULL)
        return;
    event->from = number;
    event->is_combiner = TRUE;
    qos_budget_report_copy(&event->report, &world->report);
}

static void receive_up(QosBudgetWorld *world, Event *event)
{
    const gboolean is_root = event->is_combiner || world->config.fan == 0;
    const guint number = is_root ? ROOT : event->from / world->config.fan;
    Server *server = is_root ? &world->root : &world->combiners[number];

    if (!qos_budget_report(server->budget, event->from, &event->report, world->now) ||
        !qos_budget_is_complete(server->budget))
        return;
    if (is_root) {
        if (world->now >= server->down + world->config.epoch)
            close_epoch(world);
        return;
    }
    if (server->is_open)
        return;
    /* One that was idle passes up soon; another one when its mounts are to have reported. */
    const QosTime due = server->down + world->config.epoch * 9 / 10;
    if (world->now >= due)
        pass_up(world, number);
    else if (server->timer == NULL)
        set_timer(world, &server->timer, PASSES, number, due);
}

static void receive_down(QosBudgetWorld *world, const Event *event)
{
    if (!event->is_combiner) {
        hear(world, event->node, &event->grant);
        return;
    }
    Server *combiner = &world->combiners[event->node];
    if (!qos_budget_pass_down(combiner->budget, &event->grant, world->now, world->answers))
        return;
    combiner->down = world->now;
    combiner->is_open = FALSE;
    send_answers(world, FALSE);
    set_timer(world, &combiner->timer, PASSES, event->node,
              world->now + world->config.epoch * 5 / 4);
}

/* --- the laws without messages --- */

static void exchange(QosBudgetWorld *world)
{
    const double limit = (double)QOS_BUDGET_WORLD_LIMIT;
    double total = 0;

    for (guint i = 0; i < world->config.mounts; i++) {
        Mount *mount = &world->mounts[i];
        advance(world, mount);
        total += mount->load.served - mount->epoch_served;
    }
    for (guint i = 0; i < world->config.mounts; i++) {
        Mount *mount = &world->mounts[i];
        const double own = mount->load.served - mount->epoch_served;
        mount->rate = own > 0 ? limit * own / total : limit;
        mount->epoch_served = mount->load.served;
    }
    add_event(world, CLOSES, ROOT, world->now + world->config.epoch);
}

/* --- the run --- */

static void set_up_mount(QosBudgetWorld *world, guint number)
{
    Mount *mount = &world->mounts[number];
    const double part = (double)QOS_BUDGET_WORLD_LIMIT / world->config.mounts;
    const double spread = world->config.is_steady ? 1 : 0.5 + g_rand_double(world->random);

    mount->load.speed = 2 * (ON + OFF) / ON * part * spread; /* so that all want twice R */
    mount->rate = part;
    if (world->config.law == QOS_BUDGET_LAW_SHARED) {
        const guint64 floor = qos_budget_join(server_above(world, number)->budget, number, 1, 0);
        qos_budget_mount_init(&mount->budget, &world->budget, 1, floor, 1);
    }
    if (!world->config.is_steady)
        mount->is_on = g_rand_boolean(world->random); /* it turns at the first event */
    mount->turn = add_event(world, TURNS, number,
                            world->config.is_steady
                                ? g_rand_int_range(world->random, 0, 1000) * QOS_MILLISECOND
                                : any_turn(world, TRUE) / 10);
}

static void set_up_servers(QosBudgetWorld *world)
{
    const QosBudgetWorldConfig *config = &world->config;

    world->root.budget = qos_budget_new(&world->budget, TRUE, 0);
    set_timer(world, &world->root.timer, CLOSES, ROOT, config->epoch);
    if (config->fan == 0)
        return;
    world->combiner_count = (config->mounts + config->fan - 1) / config->fan;
    world->combiners = g_new0(Server, world->combiner_count);
    for (guint i = 0; i < world->combiner_count; i++) {
        QosBudgetConfig own = world->budget;
        own.registered = MIN(config->fan, config->mounts - i * config->fan);
        const guint64 floor = qos_budget_join(world->root.budget, i, own.registered, 0);
        world->combiners[i].budget = qos_budget_combiner_new(&own, floor, 1, 0);
    }
}

QosBudgetWorld *qos_budget_world_new(const QosBudgetWorldConfig *config)
{
    QosBudgetWorld *world = g_new0(QosBudgetWorld, 1);

    world->config = *config;
    world->budget = (QosBudgetConfig){.limit = QOS_BUDGET_WORLD_LIMIT,
                                      .share = config->share,
                                      .floor = config->floor,
                                      .epoch = config->epoch,
                                      .lease = qos_budget_lease_for(config->epoch),
                                      .registered = config->mounts};
    world->random = g_rand_new_with_seed(config->seed);
    world->answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));
    world->unused = g_ptr_array_new();
    qos_heap_init(&world->events);
    world->mounts = g_new0(Mount, config->mounts);
    if (config->law == QOS_BUDGET_LAW_SHARED)
        set_up_servers(world);
    else if (config->law == QOS_BUDGET_LAW_DMCLOCK)
        add_event(world, CLOSES, ROOT, config->epoch);
    for (guint i = 0; i < config->mounts; i++)
        set_up_mount(world, i);
    return world;
}

static void free_event(Event *event)
{
    qos_budget_report_clear(&event->report);
    g_free(event);
}

void qos_budget_world_free(QosBudgetWorld *world)
{
    QosHeapNode *left;

    while ((left = qos_heap_peek(&world->events)) != NULL) {
        qos_heap_remove(&world->events, left);
        free_event((Event *)left);
    }
    qos_heap_clear(&world->events);
    for (guint i = 0; i < world->unused->len; i++)
        free_event(world->unused->pdata[i]);
    g_ptr_array_unref(world->unused);
    qos_budget_free(world->root.budget);
    for (guint i = 0; i < world->combiner_count; i++)
        qos_budget_free(world->combiners[i].budget);
    qos_budget_report_clear(&world->report);
    g_array_unref(world->answers);
    g_rand_free(world->random);
    g_free(world->combiners);
    g_free(world->mounts);
    g_free(world);
}

static void turn_event(QosBudgetWorld *world, guint number)
{
    Mount *mount = &world->mounts[number];

    mount->turn = NULL;
    turn(world, number, world->config.is_steady || !mount->is_on);
    if (!world->config.is_steady)
        mount->turn = add_event(world, TURNS, number, world->now + any_turn(world, mount->is_on));
}

static void handle(QosBudgetWorld *world, Event *event)
{
    switch (event->kind) {
    case TURNS:
        turn_event(world, event->node);
        break;
    case REPORTS:
        world->mounts[event->node].timer = NULL;
        if (!world->mounts[event->node].is_dead)
            report(world, event->node);
        break;
    case CLOSES:
        if (world->config.law == QOS_BUDGET_LAW_SHARED)
            close_timer(world);
        else
            exchange(world);
        break;
    case PASSES:
        world->combiners[event->node].timer = NULL;
        pass_up(world, event->node);
        break;
    case UP:
        receive_up(world, event);
        break;
    case DOWN:
        receive_down(world, event);
        break;
    }
    g_ptr_array_add(world->unused, event);
}

void qos_budget_world_run(QosBudgetWorld *world, QosTime until)
{
    QosHeapNode *next;

    while ((next = qos_heap_peek(&world->events)) != NULL && next->key <= until) {
        world->now = next->key;
        qos_heap_remove(&world->events, next);
        handle(world, (Event *)next);
    }
    world->now = until;
}

QosBudgetWorldState qos_budget_world_state(QosBudgetWorld *world)
{
    QosBudgetWorldState state = {
        .messages = world->messages, .active = world->active, .epochs = world->epochs};

    for (guint i = 0; i < world->config.mounts; i++) {
        Mount *mount = &world->mounts[i];
        advance(world, mount);
        state.served += mount->load.served;
        state.offered += mount->load.offered;
        state.waiting += mount->load.waiting;
        state.in_force += rate_of(world, mount, world->now);
    }
    if (world->root.budget != NULL) {
        const QosBudgetState budget = qos_budget_state(world->root.budget, world->now);
        state.factor = budget.factor;
        state.debt = budget.debt;
    }
    return state;
}

double qos_budget_world_rate(const QosBudgetWorld *world, guint mount)
{
    return rate_of(world, &world->mounts[mount], world->now);
}

void qos_budget_world_turn(QosBudgetWorld *world, guint mount, gboolean is_on)
{
    Event *event = world->mounts[mount].turn;

    if (event != NULL) {
        qos_heap_remove(&world->events, &event->heap);
        g_ptr_array_add(world->unused, event);
        world->mounts[mount].turn = NULL;
    }
    turn(world, mount, is_on);
}

void qos_budget_world_kill(QosBudgetWorld *world, guint mount)
{
    advance(world, &world->mounts[mount]);
    world->mounts[mount].is_dead = TRUE;
}

void qos_budget_world_silence(QosBudgetWorld *world, guint mount, QosTime until)
{
    world->mounts[mount].silent_until = until;
}
