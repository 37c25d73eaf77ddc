/*
 * The workers of the gate; fs/gate/gate.h says how they take turns.
 *
 * The leader sleeps until something is due, names the next leader, and runs what is due. A thread
 * that takes the lock may learn from the scheduler that something is due earlier than the leader
 * means to wake (`leader_wake`). Then it signals the leader. So the leader misses no deadline, and
 * other threads need no signal.
 */
#include "fs/gate/state.h"

static void *work(void *arg);

/* 0 or -errno. Without a further worker, those that are there serve what is due, one after the
 * other. */
static int start_worker_locked(QosGate *gate)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, work, gate);
    if (error == 0)
        g_array_append_val(gate->workers, thread);
    return -error;
}

/* The caller has a request to run, so another worker must watch the deadlines meanwhile. If there
 * are as many workers as requests may be in the store, no request can go, and the first worker that
 * is done leads. */
static void name_leader_locked(QosGate *gate)
{
    QosSchedState state;

    if (gate->has_leader || gate->named || gate->is_stopping)
        return;
    if (gate->followers > 0) {
        gate->named = TRUE;
        pthread_cond_signal(&gate->follow);
        return;
    }
    qos_sched_state(gate->sched, &state);
    if (gate->workers->len < state.slots + QOS_THREADS_BESIDE)
        start_worker_locked(gate);
}

static void book_waiting_locked(QosGate *gate, const QosRequest *request)
{
    QosTime waited = request->start - request->arrival;
    qos_histogram_add(&gate->histograms.waiting, (guint64)waited);
    gate->histograms.waiting_sum += waited;
}

QosEntry *qos_gate_take_locked(QosGate *gate, QosTime now, QosTime *wake)
{
    GList *resumed = g_queue_pop_head_link(&gate->resumed);
    QosRequest *request;

    *wake = now;
    if (resumed != NULL)
        return resumed->data;
    while ((request = qos_sched_next(gate->sched, now, wake)) != NULL) {
        QosEntry *entry = (QosEntry *)request; /* its first member */
        book_waiting_locked(gate, request);
        if (entry->parking == QOS_ENTRY_PARKED) {
            entry->parking = QOS_ENTRY_RUNNING;
            qos_gate_leave_parked_locked(gate, entry);
            return entry;
        }
        entry->parking = QOS_ENTRY_DUE; /* its reader is moving the data, and will run it */
    }
    return NULL;
}

/* Drops the rules that have expired: TRUE where there were some. */
static gboolean expire_rules_locked(QosGate *gate, QosTime now)
{
    if (now < qos_rules_next_expiry(qos_sched_rules(gate->sched)))
        return FALSE;
    QosRules *rules = qos_rules_expire(qos_sched_rules(gate->sched), now);
    if (rules == NULL)
        return FALSE;
    qos_sched_set_rules(gate->sched, rules, now);
    qos_rules_unref(rules);
    return TRUE;
}

/* TRUE if shares have changed, and there is a function to tell. */
static gboolean have_shares_changed_locked(const QosGate *gate)
{
    const QosShareChanges changes = qos_adapt_changes(qos_sched_adapt(gate->sched));

    return gate->changed != NULL &&
           (changes.members != gate->told.members || changes.others != gate->told.others);
}

/* The lock is released meanwhile. */
static void tell_locked(QosGate *gate, QosGateChanges changes)
{
    void (*changed)(QosGateChanges changes, void *arg) = gate->changed;
    void *arg = gate->changed_arg;

    gate->told = qos_adapt_changes(qos_sched_adapt(gate->sched));
    qos_mutex_unlock(&gate->lock);
    changed(changes, arg);
    qos_mutex_lock(&gate->lock);
}

void qos_gate_on_change(QosGate *gate, void (*changed)(QosGateChanges changes, void *arg),
                        void *arg)
{
    qos_mutex_lock(&gate->lock);
    gate->changed = changed;
    gate->changed_arg = arg;
    qos_gate_wake_leader_locked(gate, qos_clock_now()); /* to tell of what has changed before */
    qos_mutex_unlock(&gate->lock);
}

/* Does what is due by the clock; the lock is released to tell of it. */
static void keep_house_locked(QosGate *gate, QosTime now)
{
    QosGateChanges changes = 0;

    if (now >= gate->housekeeping) {
        qos_sched_expire(gate->sched, now);
        gate->housekeeping = now + QOS_GATE_HOUSEKEEPING;
    }
    if (expire_rules_locked(gate, now))
        changes |= QOS_GATE_RULES;
    if (have_shares_changed_locked(gate))
        changes |= QOS_GATE_SHARES;
    if (changes != 0 && gate->changed != NULL)
        tell_locked(gate, changes);
}

static void lead_locked(QosGate *gate, QosTime wake)
{
    wake = MIN(wake, gate->housekeeping);
    wake = MIN(wake, qos_rules_next_expiry(qos_sched_rules(gate->sched)));
    gate->has_leader = TRUE;
    gate->leader_wake = wake;
    while (!gate->is_stopping && gate->leader_wake == wake &&
           qos_condition_wait_until(&gate->lead, &gate->lock, wake)) {
        /* woken for nothing: leader_wake did not change */
    }
    gate->has_leader = FALSE;
    gate->leader_wake = QOS_NEVER;
}

static void follow_locked(QosGate *gate)
{
    gate->followers++;
    while (!gate->is_stopping && !gate->named)
        qos_condition_wait(&gate->follow, &gate->lock);
    gate->named = FALSE;
    gate->followers--;
}

static void *work(void *arg)
{
    QosGate *gate = arg;

    pthread_setname_np(pthread_self(), "worker"); /* not that of the thread that started it */
    qos_mutex_lock(&gate->lock);
    while (!gate->is_stopping) {
        QosTime wake;
        QosTime now = qos_clock_now();

        if (gate->has_leader) {
            follow_locked(gate);
            continue;
        }
        keep_house_locked(gate, now);
        QosEntry *entry = qos_gate_take_locked(gate, now, &wake);
        if (entry == NULL) {
            /* keep_house has released the lock, so another worker may lead by now. If a period
             * ended just now, what it changed is told first. */
            if (!gate->has_leader && !have_shares_changed_locked(gate))
                lead_locked(gate, wake);
            continue;
        }
        name_leader_locked(gate);
        qos_mutex_unlock(&gate->lock);
        entry->run(entry);
        qos_mutex_lock(&gate->lock);
    }
    qos_mutex_unlock(&gate->lock);
    return NULL;
}

int qos_gate_start(QosGate *gate)
{
    qos_mutex_lock(&gate->lock);
    int error = start_worker_locked(gate);
    qos_mutex_unlock(&gate->lock);
    return error;
}

/* Takes back a parked entry, or returns NULL. */
static QosEntry *take_back_locked(QosGate *gate)
{
    QosEntry *entry = qos_gate_any_parked_locked(gate);

    if (entry != NULL)
        qos_gate_take_back_locked(gate, entry);
    return entry;
}

/* Takes a resumed entry, which has a slot, when no worker will run it any more. */
static QosEntry *take_resumed_locked(QosGate *gate)
{
    GList *link = g_queue_pop_head_link(&gate->resumed);
    if (link == NULL)
        return NULL;
    QosEntry *entry = link->data;
    qos_sched_leave(gate->sched, &entry->request, 0, ENOTCONN, qos_clock_now());
    return entry;
}

/* Answers all that it takes. */
static void answer_all(QosGate *gate, QosEntry *(*take_next_locked)(QosGate *gate))
{
    QosEntry *entry;

    qos_mutex_lock(&gate->lock);
    while ((entry = take_next_locked(gate)) != NULL) {
        qos_mutex_unlock(&gate->lock);
        entry->cancelled(entry, ENOTCONN);
        qos_mutex_lock(&gate->lock);
    }
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_stop(QosGate *gate)
{
    qos_mutex_lock(&gate->lock);
    gate->is_stopping = TRUE;
    pthread_cond_broadcast(&gate->lead);
    pthread_cond_broadcast(&gate->follow);
    qos_mutex_unlock(&gate->lock);
    answer_all(gate, take_back_locked);
    for (guint i = 0; i < gate->workers->len; i++)
        pthread_join(g_array_index(gate->workers, pthread_t, i), NULL);
    g_array_set_size(gate->workers, 0);
    answer_all(gate, take_resumed_locked);
}
