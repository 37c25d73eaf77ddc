/*
 * A mount's budgets with a scheduler, time stepped by hand, and the server's answers made by hand.
 */
#pragma once

#include "fs/budgets.h"

#include "sched_fixture.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "core/wire_frame.h"

#define E         QOS_BUDGET_EPOCH
#define LEASE     QOS_SECOND
#define KILO      1000
#define ITEMS_MAX 64
#define MANY      3000

typedef struct {
    Fixture f;
    QosBudgets *budgets;
    QosWireRules list;
    QosTime next; /* as step said */
    guint wakes;
    GByteArray *frames;
} World;

/* What was reported of one class. */
typedef struct {
    guint64 rule, ticket, held, served, demand;
    guint unit, count;
    char class[QOS_WIRE_CLASS_MAX + 1];
} Item;

static inline void note_wake(void *arg)
{
    World *world = arg;

    world->wakes++;
}

static inline void world_init(World *world)
{
    *world = (World){.list = {.version = 1, .epoch = E, .lease = LEASE, .parts = 8},
                     .frames = g_byte_array_new()};
    fixture_init(&world->f, &qos_policy_tbf, 64);
    world->budgets = qos_budgets_new(3);
    world->list.rules = g_array_new(FALSE, TRUE, sizeof(QosWireRule));
    qos_budgets_set_waker(world->budgets, note_wake, world);
    qos_budgets_set_connected(world->budgets, TRUE, world->f.now);
}

static inline void world_clear(World *world)
{
    fixture_clear(&world->f);
    qos_budgets_free(world->budgets);
    qos_wire_rules_clear(&world->list);
    g_byte_array_unref(world->frames);
}

/* Adds a rule to the list, or gives the rule of that id another command. */
static inline void rule(World *world, guint64 id, const char *command)
{
    QosWireRule item = {.id = id, .left = QOS_NEVER, .command = g_strdup(command)};

    for (guint i = 0; i < world->list.rules->len; i++) {
        QosWireRule *old = &g_array_index(world->list.rules, QosWireRule, i);
        if (old->id != id)
            continue;
        g_free(old->command);
        old->command = item.command;
        return;
    }
    g_array_append_val(world->list.rules, item);
    world->list.total = world->list.rules->len;
}

static inline void enforce(World *world)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(QosRules) rules = qos_budgets_read_rules(&world->list, world->f.now, &error);

    g_assert_no_error(error);
    qos_budgets_set_rules(world->budgets, world->f.sched, rules, &world->list, world->f.now);
}

/* Reads the items of all frames; each frame is a page. */
static inline guint read_frames(const GByteArray *frames, Item *items, guint most)
{
    guint count = 0;

    for (guint at = 0; at < frames->len;) {
        QosBudgetReport report = {0};
        QosWireBudget item;
        guint32 size;

        memcpy(&size, frames->data + at, sizeof(size));
        gsize length = GUINT32_FROM_LE(size);
        const guint8 *payload = frames->data + at + QOS_WIRE_LENGTH_SIZE;
        g_assert_cmpuint(length, <=, QOS_WIRE_PAGE_MAX);
        g_assert_cmpuint(*payload, ==, QOS_WIRE_BUDGET_REPORT);
        at += QOS_WIRE_LENGTH_SIZE + (guint)length;
        payload++;
        length--;
        while (length > 0) {
            g_assert_cmpuint(count, <, most);
            g_assert_true(qos_wire_get_budget(&payload, &length, &item));
            g_assert_true(qos_budget_report_decode(item.bytes, item.length, &report));
            items[count] = (Item){.rule = item.rule,
                                  .unit = item.unit,
                                  .ticket = report.ticket,
                                  .held = report.held,
                                  .served = report.served,
                                  .count = report.count};
            for (guint i = 0; i < report.count; i++)
                items[count].demand += report.steps[i].demand;
            g_strlcpy(items[count++].class, item.class, sizeof(items[0].class));
        }
        qos_budget_report_clear(&report);
    }
    return count;
}

/* Steps now, and reads what is sent. */
static inline guint step(World *world, Item *items)
{
    g_byte_array_set_size(world->frames, 0);
    world->next = qos_budgets_step(world->budgets, world->f.sched, world->f.now, world->frames);
    g_assert_cmpint(world->next, >, world->f.now);
    return read_frames(world->frames, items, ITEMS_MAX);
}

/* The same at another time, where one report at most is sent: is there one? */
static inline gboolean step_at(World *world, QosTime at, Item *item)
{
    Item items[ITEMS_MAX] = {0};

    world->f.now = at;
    const guint count = step(world, items);
    g_assert_cmpuint(count, <=, 1);
    *item = items[0];
    return count == 1;
}

/* The server answers the class of `item`. */
static inline void grant_terms(World *world, const Item *item, const QosBudgetGrant *terms)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new(), frames = g_byte_array_new();
    QosWireBudget answer = {.rule = item->rule, .unit = item->unit};
    gsize batch = QOS_WIRE_NO_BATCH;

    qos_budget_grant_encode(terms, bytes);
    g_strlcpy(answer.class, item->class, sizeof(answer.class));
    answer.bytes = bytes->data;
    answer.length = bytes->len;
    qos_wire_put_budget(frames, &batch, QOS_WIRE_BUDGET_GRANT, &answer);
    g_assert_true(qos_budgets_grant(world->budgets, world->f.sched,
                                    frames->data + QOS_WIRE_LENGTH_SIZE + 1,
                                    frames->len - QOS_WIRE_LENGTH_SIZE - 1, world->f.now));
}

static inline void grant(World *world, const Item *item, double rate)
{
    const QosBudgetGrant terms = {
        .ticket = item->ticket, .level = rate, .raise = rate, .lease = LEASE};

    grant_terms(world, item, &terms);
}

/* --- what is in force --- */

typedef struct {
    const char *name;
    QosUnit unit;
    guint64 rate, id;
    gboolean is_there;
} Wanted;

static inline void find_rate(const QosClassBudget *budget, void *arg)
{
    Wanted *wanted = arg;

    if (strcmp(budget->name, wanted->name) != 0 || budget->units[wanted->unit].limit == 0)
        return;
    wanted->is_there = TRUE;
    wanted->rate = budget->units[wanted->unit].rate;
    wanted->id = budget->id;
}

static inline guint64 unit_rate(World *world, const char *name, QosUnit unit)
{
    Wanted wanted = {.name = name, .unit = unit};

    qos_sched_each_budget(world->f.sched, find_rate, &wanted);
    g_assert_true(wanted.is_there);
    return wanted.rate;
}

static inline guint64 rate(World *world, const char *name)
{
    return unit_rate(world, name, QOS_UNIT_OPERATIONS);
}

static inline guint64 class_id(World *world, const char *name)
{
    Wanted wanted = {.name = name, .unit = QOS_UNIT_OPERATIONS};

    qos_sched_each_budget(world->f.sched, find_rate, &wanted);
    return wanted.id;
}

static inline QosRequest *use(World *world, const char *job, guint64 bytes)
{
    QosRequest *request = request_new(&world->f, job, QOS_OP_READ, bytes);

    if (enter(&world->f, request) == QOS_WAIT)
        return request;
    leave(&world->f, request);
    return NULL;
}

static inline void use_many(World *world, const char *job, guint count)
{
    for (guint i = 0; i < count; i++)
        g_assert_null(use(world, job, 0));
}

/* Lets what waits go. */
static inline void drain(World *world, QosRequest **requests, guint count)
{
    for (guint i = 0; i < count; i++) {
        if (requests[i] != NULL)
            drop(&world->f, requests[i]);
    }
}
