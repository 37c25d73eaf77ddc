/*
 * Saves what changes by itself: the jobs' totals, what they have lent and borrowed, and the rules
 * when some have expired. While no request comes, it also has idle callers forgotten, and their
 * jobs with them. The database's thread does all of this (qos_db_serve).
 *
 * It saves rules under `setting`, as a set does (fs/control/control.c). No other lock is held while
 * SQLite works.
 */
#include "fs/control/state.h"
#include "sys/privilege.h"

#define SAVE_INTERVAL (5 * QOS_SECOND) /* of totals: what a crash may cost */

static void save_totals(QosControl *control)
{
    GPtrArray *jobs = qos_report_copy_jobs(control->fs->gate, NULL);
    guint history_days;

    qos_mutex_lock(&control->lock);
    history_days = (guint)qos_tunables_number(&control->tunables, QOS_TUNABLE_HISTORY_DAYS);
    qos_mutex_unlock(&control->lock);
    qos_db_save_jobs(control->db, jobs, qos_clock_now(), qos_wall_now(), history_days);
}

static GArray *copy_shares(QosGate *gate, const GPtrArray *jobs)
{
    GArray *shares = g_array_sized_new(FALSE, FALSE, sizeof(QosDbShare), jobs->len);
    QosSchedShare taken;

    for (guint i = 0; i < jobs->len; i++) {
        const QosJob *job = g_ptr_array_index(jobs, i);
        const gboolean has_share = qos_sched_share_state(qos_gate_lock(gate), job, &taken);

        qos_gate_unlock(gate);
        if (!has_share)
            continue;
        QosDbShare share = {.record = taken.state.record, .totals = taken.state.totals};
        g_strlcpy(share.job, job->id, sizeof(share.job));
        g_array_append_val(shares, share);
    }
    return shares;
}

/* Saves what has changed of the jobs' lent and borrowed shares. The jobs are copied one by one, so
 * that the gate's lock is never held for long. If a period ends meanwhile, some records are from
 * before it: then they are saved again at once. Should the daemon die in between, what this one
 * period moved is lost, as by any crash, and no more: records that do not add up to 0 are cut
 * (qos_adapt_restore). At the last save no period ends any more. */
static void save_shares(QosControl *control)
{
    QosGate *gate = control->fs->gate;
    g_autoptr(GError) error = NULL;
    gboolean is_all;
    g_autoptr(GPtrArray) jobs =
        qos_sched_changed_shares(qos_gate_lock(gate), &control->saved, &is_all);

    qos_gate_unlock(gate);
    if (!jobs)
        return;
    g_autoptr(GArray) shares = copy_shares(gate, jobs);
    if (!qos_db_save_shares(control->db, shares, is_all, &error) && !control->shares_fail)
        g_warning("%s; what jobs lent and borrowed will be saved when that is fixed",
                  error->message);
    control->shares_fail = error != NULL;
    if (error)
        control->saved.others = QOS_NOT_SAVED;
}

/* So that a clock that is set back does not bring back, at the next mount, what has expired. */
static void save_rules(QosControl *control)
{
    g_autoptr(GError) error = NULL;
    QosRules *rules;

    qos_mutex_lock(&control->setting);
    rules = qos_control_rules(control);
    if (!qos_db_save_rules(control->db, rules, qos_clock_now(), qos_wall_now(), &error))
        g_warning("%s; rules that have expired are still there", error->message);
    qos_mutex_unlock(&control->setting);
    qos_rules_unref(rules);
}

/* Called by one of the gate's workers, which must not wait for SQLite. */
static void gate_has_changed(QosGateChanges changes, void *data)
{
    QosControl *control = data;

    qos_mutex_lock(&control->lock);
    control->changes |= changes;
    qos_mutex_unlock(&control->lock);
    qos_db_wake(control->db);
}

/* At whole multiples on the wall's clock, so that two saves fill a slice of the history. */
static QosTime next_save(void)
{
    return qos_clock_now() + SAVE_INTERVAL - qos_wall_now() % SAVE_INTERVAL;
}

/* A step of the database's thread. It saves the totals, with all that jobs lent and borrowed, every
 * few seconds. It saves changes of shares and of rules whenever they happen. */
static QosTime save_now_and_then(gpointer data)
{
    QosControl *control = data;
    const QosTime now = qos_clock_now();

    qos_mutex_lock(&control->lock);
    QosGateChanges changes = control->changes;
    control->changes = 0;
    qos_mutex_unlock(&control->lock);
    if (changes & QOS_GATE_RULES)
        save_rules(control);
    if (now >= control->save_due) {
        qos_privilege_report();
        qos_callers_expire(control->fs->callers, now);
        save_totals(control);
        control->save_due = next_save();
        control->saved.others = QOS_NOT_SAVED; /* jobs that are forgotten go */
        changes |= QOS_GATE_SHARES;
    }
    if (changes & QOS_GATE_SHARES)
        save_shares(control);
    return control->save_due;
}

void qos_control_start(QosControl *control)
{
    if (!control->db)
        return;
    control->save_due = next_save();
    qos_gate_on_change(control->fs->gate, gate_has_changed, control);
    qos_db_serve(control->db, save_now_and_then, control);
}

void qos_control_stop(QosControl *control)
{
    if (control->save_due == 0)
        return; /* not started */
    qos_gate_on_change(control->fs->gate, NULL, NULL);
    qos_db_serve(control->db, NULL, NULL);
    if (control->changes & QOS_GATE_RULES)
        save_rules(control);
    save_totals(control);
    save_shares(control);
    qos_db_flush(control->db);
}
