/*
 * The gate; fs/gate/gate.h tells what it is for, the states of a parked request, and the turns of
 * the workers.
 *
 * The leader's wake-up: whoever takes the lock and learns from the scheduler that something is due
 * earlier than the leader means to wake (`leader_wake`) signals it. So a deadline is never slept
 * through, and a thread that only passes signals nobody.
 */
#include <unistd.h>

#include "fs/gate/state.h"
#include "sys/mutex.h"

/* Idle classes and jobs live on for 10 s and more. */
#define HOUSEKEEPING_INTERVAL (5 * QOS_SECOND)

enum { ARRIVING, DUE, PARKED, RUNNING, CANCELLED };

QosGate *qos_gate_new(const QosPolicyClass *policy, guint slots, QosTime job_cleanup_interval)
{
    QosGate *gate = g_new0(QosGate, 1);
    QosTime now = qos_gate_now();
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    qos_mutex_init_adaptive(&gate->lock, QOS_MUTEX_GATE);
    pthread_cond_init(&gate->lead, NULL);
    pthread_cond_init(&gate->follow, NULL);
    pthread_cond_init(&gate->entered, NULL);
    gate->sched = qos_sched_new(policy, slots, host, job_cleanup_interval, now);
    gate->parked = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    gate->threads = qos_gate_threads_new();
    gate->workers = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    gate->housekeeping = now + HOUSEKEEPING_INTERVAL;
    gate->leader_wake = QOS_NEVER;
    return gate;
}

void qos_gate_free(QosGate *gate)
{
    if (gate == NULL)
        return;
    g_assert(gate->workers->len == 0);
    qos_sched_free(gate->sched);
    g_hash_table_unref(gate->parked);
    g_hash_table_unref(gate->threads);
    g_array_unref(gate->workers);
    pthread_cond_destroy(&gate->entered);
    pthread_cond_destroy(&gate->follow);
    pthread_cond_destroy(&gate->lead);
    qos_mutex_destroy(&gate->lock);
    g_free(gate);
}

/* --- workers --- */

void qos_gate_wake_leader_locked(QosGate *gate, QosTime wake)
{
    if (wake < gate->leader_wake) {
        gate->leader_wake = wake;
        pthread_cond_signal(&gate->lead);
    }
}

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

/* The caller has a request to run: somebody else is to watch the deadlines meanwhile. With as many
 * workers as requests may be in the store, nothing can go, and the first that is done leads. */
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

/* A request has gone to the store. */
static void tell_entered_locked(QosGate *gate)
{
    if (!gate->is_awaited)
        return;
    gate->is_awaited = FALSE;
    pthread_cond_signal(&gate->entered);
}

static void book_waiting_locked(QosGate *gate, const QosRequest *request)
{
    QosTime waited = request->start - request->arrival;
    qos_histogram_add(&gate->histograms.waiting, (guint64)waited);
    gate->histograms.waiting_sum += waited;
}

/* The next entry that this thread is to run, or NULL with when to look again. What has a slot
 * already comes first. */
static QosEntry *take_locked(QosGate *gate, QosTime now, QosTime *wake)
{
    GList *resumed = g_queue_pop_head_link(&gate->resumed);
    QosRequest *request;

    *wake = now;
    if (resumed != NULL)
        return resumed->data;
    while ((request = qos_sched_next(gate->sched, now, wake)) != NULL) {
        QosEntry *entry = (QosEntry *)request; /* its first member */
        book_waiting_locked(gate, request);
        tell_entered_locked(gate);
        if (entry->parking == PARKED) {
            entry->parking = RUNNING;
            qos_gate_leave_line_locked(gate, entry);
            qos_gate_leave_thread_locked(gate, entry);
            return entry;
        }
        entry->parking = DUE; /* its reader is moving the data, and will run it */
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

/* TRUE where shares have changed, and somebody is to be told. */
static gboolean have_shares_changed_locked(const QosGate *gate)
{
    const QosShareChanges changes = qos_adapt_changes(qos_sched_adapt(gate->sched));

    return gate->changed != NULL &&
           (changes.members != gate->told.members || changes.others != gate->told.others);
}

/* The lock is let go meanwhile. */
static void tell_locked(QosGate *gate, QosGateChanges changes)
{
    void (*changed)(QosGateChanges changes, void *arg) = gate->changed;
    void *arg = gate->changed_arg;

    gate->told = qos_adapt_changes(qos_sched_adapt(gate->sched));
    qos_mutex_unlock(&gate->lock);
    changed(changes, arg);
    qos_mutex_lock(&gate->lock);
}

/* Does what the clock asks for; the lock is let go to tell of it. */
static void keep_house_locked(QosGate *gate, QosTime now)
{
    QosGateChanges changes = 0;

    if (now >= gate->housekeeping) {
        qos_sched_expire(gate->sched, now);
        gate->housekeeping = now + HOUSEKEEPING_INTERVAL;
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

    pthread_setname_np(pthread_self(), "worker"); /* not that of who started it */
    qos_mutex_lock(&gate->lock);
    while (!gate->is_stopping) {
        QosTime wake;
        QosTime now = qos_gate_now();

        if (gate->has_leader) {
            follow_locked(gate);
            continue;
        }
        keep_house_locked(gate, now);
        QosEntry *entry = take_locked(gate, now, &wake);
        if (entry == NULL) {
            /* keep_house let go of the lock: another may lead by now. It tells first what a period
             * that ended just now has changed. */
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

void qos_gate_take_back_locked(QosGate *gate, QosEntry *entry)
{
    const QosTime now = qos_gate_now();

    entry->parking = CANCELLED;
    qos_gate_leave_line_locked(gate, entry);
    qos_gate_leave_thread_locked(gate, entry);
    qos_sched_cancel(gate->sched, &entry->request, now);
    qos_gate_wake_leader_locked(gate, now); /* it may have had a slot */
}

/* Takes back a parked entry, or returns NULL. */
static QosEntry *take_back_locked(QosGate *gate)
{
    QosEntry *entry = qos_gate_any_parked_locked(gate);

    if (entry != NULL)
        qos_gate_take_back_locked(gate, entry);
    return entry;
}

/* What has a slot, and nobody to run it any more. */
static QosEntry *take_resumed_locked(QosGate *gate)
{
    GList *link = g_queue_pop_head_link(&gate->resumed);
    if (link == NULL)
        return NULL;
    QosEntry *entry = link->data;
    qos_sched_leave(gate->sched, &entry->request, 0, ENOTCONN, qos_gate_now());
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
    pthread_cond_signal(&gate->entered);
    qos_mutex_unlock(&gate->lock);
    answer_all(gate, take_back_locked);
    for (guint i = 0; i < gate->workers->len; i++)
        pthread_join(g_array_index(gate->workers, pthread_t, i), NULL);
    g_array_set_size(gate->workers, 0);
    answer_all(gate, take_resumed_locked);
}

/* --- a request's way --- */

gboolean qos_gate_enter(QosGate *gate, QosEntry *entry)
{
    QosTime wake;

    entry->parking = ARRIVING;
    qos_mutex_lock(&gate->lock);
    QosVerdict verdict = qos_sched_enter(gate->sched, &entry->request, qos_gate_now(), &wake);
    if (verdict == QOS_GO) {
        entry->parking = RUNNING;
        tell_entered_locked(gate);
    } else {
        qos_gate_wake_leader_locked(gate, wake);
    }
    qos_mutex_unlock(&gate->lock);
    return verdict == QOS_GO;
}

gboolean qos_gate_park(QosGate *gate, QosEntry *entry)
{
    GQueue given_up = G_QUEUE_INIT;

    qos_mutex_lock(&gate->lock);
    gboolean is_due = entry->parking == DUE;
    entry->parking = is_due ? RUNNING : PARKED;
    if (!is_due) {
        qos_gate_join_line_locked(gate, entry);
        qos_gate_join_thread_locked(gate, entry, &given_up);
    }
    qos_mutex_unlock(&gate->lock);
    qos_gate_answer_given_up(&given_up);
    return is_due;
}

QosKeep qos_gate_keep(QosGate *gate, QosEntry *entry, gboolean may_be_early)
{
    qos_mutex_lock(&gate->lock);
    /* What is due already is about to run: memory will do for it, and is not counted. */
    QosKeep keep = entry->parking == DUE
                       ? QOS_KEEP_IN_MEMORY
                       : qos_sched_keep(gate->sched, &entry->request, may_be_early);
    if (keep == QOS_KEEP_NOWHERE || keep == QOS_KEEP_TOO_MANY) {
        QosTime now = qos_gate_now();
        entry->parking = CANCELLED;
        qos_sched_cancel(gate->sched, &entry->request, now);
        qos_gate_wake_leader_locked(gate, now);
    }
    qos_mutex_unlock(&gate->lock);
    return keep;
}

void qos_gate_kept(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_kept(gate->sched, &entry->request);
    qos_mutex_unlock(&gate->lock);
}

gboolean qos_gate_is_limited(QosGate *gate, const QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    gboolean is_limited = qos_sched_is_limited(gate->sched, &entry->request, qos_gate_now());
    qos_mutex_unlock(&gate->lock);
    return is_limited;
}

void qos_gate_pause(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    qos_sched_pause(gate->sched, &entry->request, now);
    if (qos_sched_has_waiting(gate->sched))
        qos_gate_wake_leader_locked(gate, now);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_go_on(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_go_on(gate->sched, &entry->request, qos_gate_now());
    tell_entered_locked(gate);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_resume(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    entry->parked = (GList){.data = entry};
    g_queue_push_tail_link(&gate->resumed, &entry->parked);
    qos_gate_wake_leader_locked(gate, 0);
    qos_mutex_unlock(&gate->lock);
}

static gboolean is_store_idle_locked(const QosGate *gate)
{
    QosSchedState state;

    qos_sched_state(gate->sched, &state);
    return state.oldest == QOS_NEVER;
}

gboolean qos_gate_await_request(QosGate *gate)
{
    qos_mutex_lock(&gate->lock);
    while (!gate->is_stopping && is_store_idle_locked(gate)) {
        gate->is_awaited = TRUE;
        qos_condition_wait(&gate->entered, &gate->lock);
    }
    gboolean has_request = !gate->is_stopping;
    qos_mutex_unlock(&gate->lock);
    return has_request;
}

gboolean qos_gate_leave(QosGate *gate, QosEntry *entry, guint64 bytes, int error)
{
    const QosRequest *request = &entry->request;
    QosTime now = qos_gate_now();

    qos_mutex_lock(&gate->lock);
    qos_sched_leave(gate->sched, &entry->request, bytes, error, now);
    const QosTime latency = now - request->start;
    qos_histogram_add(&gate->histograms.latency[request->opcode], (guint64)MAX(latency, 0));
    gate->histograms.latency_sum[request->opcode] += latency;
    gboolean do_others_wait = gate->resumed.length > 0 || qos_sched_has_waiting(gate->sched);
    if (!do_others_wait)
        qos_gate_wake_leader_locked(gate, qos_sched_next_period(gate->sched));
    qos_mutex_unlock(&gate->lock);
    return do_others_wait;
}

QosEntry *qos_gate_next(QosGate *gate)
{
    QosTime wake;
    QosEntry *next = NULL;

    qos_mutex_lock(&gate->lock);
    if (!gate->is_stopping) {
        next = take_locked(gate, qos_gate_now(), &wake);
        if (next == NULL)
            qos_gate_wake_leader_locked(gate, wake);
    }
    qos_mutex_unlock(&gate->lock);
    return next;
}

gboolean qos_gate_cancel(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    gboolean is_parked = entry->parking == PARKED;
    if (is_parked)
        qos_gate_take_back_locked(gate, entry);
    qos_mutex_unlock(&gate->lock);
    return is_parked;
}

QosUser *qos_gate_user(QosGate *gate, guint32 uid)
{
    qos_mutex_lock(&gate->lock);
    QosUser *user = qos_account_user(qos_sched_account(gate->sched), uid);
    qos_mutex_unlock(&gate->lock);
    return user;
}

QosJob *qos_gate_job(QosGate *gate, QosUser *user, const char *id, guint nodes)
{
    QosAccount *account = qos_sched_account(gate->sched);

    qos_mutex_lock(&gate->lock);
    QosJob *job = qos_account_job_for(account, user, id, qos_gate_now());
    if (nodes > 0)
        job->nodes = nodes;
    qos_mutex_unlock(&gate->lock);
    return job;
}

gboolean qos_gate_passes_through(QosGate *gate, const QosRequest *request, QosOpcodeSet opcodes)
{
    qos_mutex_lock(&gate->lock);
    gboolean passes = qos_sched_passes_through(gate->sched, request, opcodes);
    qos_mutex_unlock(&gate->lock);
    return passes;
}

void qos_gate_count_passthrough(QosGate *gate, QosJob *job, gint change)
{
    qos_mutex_lock(&gate->lock);
    job->passthrough += (guint)change;
    qos_mutex_unlock(&gate->lock);
}
