/*
 * The rules of the cluster at this mount (fs/cluster/shared_rules.h).
 *
 * Each thing that happens takes the gate's lock once: it changes the budgets, lets them make what
 * is due by then, and unlocks. Then it sends, and says when to be called again. Grants may come by
 * another thread than the link's, so reports of two threads may be sent the wrong way round. Then
 * the server passes over the older one of a class, as over one that was lost.
 */
#include "fs/cluster/shared_rules.h"

#include <string.h>

#include "fs/budgets.h"
#include "fs/epochs.h"
#include "sys/clock.h"

#define SLEPT       (10 * QOS_MILLISECOND) /* of the clocks' offset: more is no inaccuracy */
#define CLOCK_APART (QOS_MILLISECOND)      /* between readings that belong together */
#define CLOCK_TRIES 10

struct QosSharedRules {
    QosGate *gate;
    guint32 incarnation;

    /* The link's: */
    QosWireRules arriving;
    QosOwnerId server;      /* of the latest connection; 0: there was none */
    QosOwnerId list_server; /* that sent the list in force; 0: none is */

    /* By the gate's lock: */
    QosEpochs *epochs;
    QosLockclient *client; /* NULL: there was no connection yet, or it ends */
    QosTime asleep;        /* how much CLOCK_BOOTTIME was ahead of the gate's clock */
    char fault[QOS_SHARED_RULES_FAULT_MAX + 1];
};

/* A moment: under the gate's lock, and what is left to do behind it. */
typedef struct {
    QosSharedRules *shared;
    QosSched *sched;
    QosBudgets *budgets;
    QosTime now;
    GByteArray *frames;
} Turn;

/* --- turns --- */

/* How long the machine has slept since it was started. */
static QosTime time_asleep(void)
{
    QosTime before, after, boot;
    guint tries = 0;

    do {
        before = qos_clock_now();
        boot = qos_lockclient_clock();
        after = qos_clock_now();
    } while (after - before > CLOCK_APART && ++tries < CLOCK_TRIES);
    return boot - after;
}

/* Takes the gate's lock. */
static Turn begin_turn(QosSharedRules *shared)
{
    const QosTime asleep = time_asleep();
    Turn turn = {.shared = shared, .frames = g_byte_array_new()};

    turn.sched = qos_gate_lock(shared->gate);
    turn.budgets = qos_gate_budgets(shared->gate);
    turn.now = qos_clock_now();
    if (asleep - shared->asleep > SLEPT)
        qos_budgets_slept(turn.budgets, turn.sched, turn.now);
    shared->asleep = MAX(asleep, shared->asleep);
    return turn;
}

/* Releases the lock; what waits may go at other rates now. */
static void end_turn(Turn *turn)
{
    const QosTime budgets = qos_budgets_step(turn->budgets, turn->sched, turn->now, turn->frames);
    const QosTime epochs =
        qos_epochs_step(turn->shared->epochs, turn->sched, turn->now, turn->frames);
    const QosTime next = MIN(budgets, epochs);
    QosLockclient *client = turn->shared->client;

    if (qos_sched_has_waiting(turn->sched))
        qos_gate_unlock_and_wake(turn->shared->gate);
    else
        qos_gate_unlock(turn->shared->gate);
    if (client != NULL && turn->frames->len > 0)
        qos_lockclient_send(client, g_steal_pointer(&turn->frames));
    if (client != NULL && next != QOS_NEVER)
        qos_lockclient_call_at(client, qos_time_add(qos_lockclient_clock(), next - turn->now));
    g_clear_pointer(&turn->frames, g_byte_array_unref);
}

/* --- what the lock client tells --- */

/* A class of the gate's wakes, or its policy has something for the peers: its lock is held. */
static void wake(void *arg)
{
    const QosSharedRules *shared = arg;

    if (shared->client != NULL)
        qos_lockclient_poke(shared->client);
}

void qos_shared_rules_connected(QosSharedRules *shared, QosLockclient *client,
                                gboolean is_connected)
{
    QosLockclientStatus status;
    Turn turn;

    qos_wire_rules_clear(&shared->arriving);
    if (is_connected) {
        qos_lockclient_status(client, &status);
        shared->server = status.server_id;
    }
    turn = begin_turn(shared);
    shared->client = client;
    /* Another server knows nothing of the rules that are in force: nothing is reported to it before
     * its own list has come. */
    if (!is_connected || shared->server == shared->list_server)
        qos_budgets_set_connected(turn.budgets, is_connected, turn.now);
    if (is_connected)
        qos_epochs_join(shared->epochs, turn.sched, shared->server, shared->incarnation, turn.now);
    else
        qos_epochs_leave(shared->epochs, turn.sched, turn.now);
    end_turn(&turn);
}

static void refuse_list(QosSharedRules *shared, const GError *error)
{
    gboolean is_news;

    qos_gate_lock(shared->gate);
    is_news = strncmp(shared->fault, error->message, sizeof(shared->fault) - 1) != 0;
    g_strlcpy(shared->fault, error->message, sizeof(shared->fault));
    qos_gate_unlock(shared->gate);
    if (is_news)
        g_warning("%s; the mount keeps the rules of the cluster that it had. Is its version of "
                  "qosfs older than the lock server's?",
                  error->message);
}

static void adopt_list(QosSharedRules *shared, const QosWireRules *list)
{
    const QosWireSeen seen = {.version = list->version, .parts = list->parts};
    g_autoptr(GError) error = NULL;
    g_autoptr(QosRules) rules = qos_budgets_read_rules(list, qos_clock_now(), &error);
    Turn turn;

    if (rules == NULL) {
        refuse_list(shared, error);
        return;
    }
    turn = begin_turn(shared);
    if (shared->list_server != 0 && shared->list_server != shared->server)
        qos_budgets_set_rules(turn.budgets, turn.sched, NULL, NULL, turn.now);
    qos_budgets_set_rules(turn.budgets, turn.sched, rules, list, turn.now);
    qos_budgets_set_connected(turn.budgets, TRUE, turn.now);
    qos_wire_put_seen(turn.frames, &seen);
    shared->fault[0] = '\0';
    shared->list_server = shared->server;
    end_turn(&turn);
    g_info("rules of the cluster: version %" G_GUINT64_FORMAT ", %u in force", list->version,
           list->total);
}

gboolean qos_shared_rules_page(QosSharedRules *shared, const guint8 *payload, gsize length)
{
    QosWireRules page;

    if (!qos_wire_get_rules(payload, length, &page) ||
        !qos_wire_rules_join(&shared->arriving, &page))
        return FALSE;
    if (!qos_wire_rules_are_whole(&shared->arriving))
        return TRUE;
    adopt_list(shared, &shared->arriving);
    qos_wire_rules_clear(&shared->arriving);
    return TRUE;
}

gboolean qos_shared_rules_grant(QosSharedRules *shared, const guint8 *payload, gsize length)
{
    Turn turn = begin_turn(shared);
    const gboolean is_good = qos_budgets_grant(turn.budgets, turn.sched, payload, length, turn.now);

    end_turn(&turn);
    return is_good;
}

gboolean qos_shared_rules_epoch(QosSharedRules *shared, const guint8 *payload, gsize length)
{
    Turn turn = begin_turn(shared);
    const gboolean is_good =
        qos_epochs_receive(shared->epochs, turn.sched, payload, length, turn.now);

    end_turn(&turn);
    return is_good;
}

void qos_shared_rules_due(QosSharedRules *shared)
{
    Turn turn = begin_turn(shared);

    end_turn(&turn);
}

void qos_shared_rules_fault(QosSharedRules *shared, char *ret_fault)
{
    qos_gate_lock(shared->gate);
    g_strlcpy(ret_fault, shared->fault, sizeof(shared->fault));
    qos_gate_unlock(shared->gate);
}

/* --- beginning and end --- */

QosSharedRules *qos_shared_rules_new(QosGate *gate, guint32 incarnation)
{
    QosSharedRules *shared = g_new0(QosSharedRules, 1);
    QosBudgets *budgets = qos_budgets_new(incarnation);

    shared->gate = gate;
    shared->incarnation = incarnation;
    shared->epochs = qos_epochs_new();
    qos_epochs_set_waker(shared->epochs, wake, shared);
    shared->asleep = time_asleep();
    qos_budgets_set_waker(budgets, wake, shared);
    qos_gate_lock(gate);
    qos_gate_set_budgets(gate, budgets);
    qos_gate_unlock(gate);
    return shared;
}

void qos_shared_rules_stop(QosSharedRules *shared)
{
    const QosWireSeen goodbye = {.version = QOS_WIRE_SEEN_GOODBYE};
    QosLockclient *client;

    if (shared == NULL)
        return;
    QosSched *sched = qos_gate_lock(shared->gate);
    qos_budgets_set_waker(qos_gate_budgets(shared->gate), NULL, NULL);
    qos_epochs_leave(shared->epochs, sched, qos_clock_now());
    client = g_steal_pointer(&shared->client);
    qos_gate_unlock(shared->gate);
    if (client != NULL) {
        GByteArray *frame = g_byte_array_new();
        qos_wire_put_seen(frame, &goodbye);
        qos_lockclient_send(client, frame);
    }
}

void qos_shared_rules_free(QosSharedRules *shared)
{
    if (shared == NULL)
        return;
    qos_wire_rules_clear(&shared->arriving);
    qos_epochs_free(shared->epochs);
    g_free(shared);
}
