/*
 * The settings of a mount: the xattrs user.qosfs.* of its root, and what is saved of them.
 *
 * control_saver.c saves what changes by itself, control_files.c the hidden
 * directory, control_texts.c the texts of its files, control_report.c the report,
 * control_cluster.c what the lock server is asked, and control_value.c what it shares with this
 * file.
 *
 * One set runs from its first step to its last under `setting`: it is parsed, saved and put in
 * force. This lock is held while SQLite works. That makes setters wait for one another, but they
 * are administrators, and no other request takes it. What reports read is under `lock`, which is
 * held only for a copy.
 *
 * Order: setting, lock. Neither is held for a reply.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/control/state.h"

#define XATTR_MAX 65536 /* the kernel's bound on a value */

#define RULES     "nrs_tbf_rule"
#define CLUSTER   "cluster"
#define ERROR     "last_error"
#define DAEMON    "daemon"
#define JOB       "job." /* and its id */

/* --- loading --- */

/* The value that a tunable starts with, where it is not the default; `ret_source` names its origin.
 */
static const char *initial_text(GHashTable *overrides, GHashTable *saved, const char *name,
                                const char **ret_source)
{
    const char *text = overrides ? g_hash_table_lookup(overrides, name) : NULL;

    *ret_source = text ? "option" : "saved tunable";
    if (!text && saved)
        text = g_hash_table_lookup(saved, name);
    return text;
}

static gboolean load_tunables(QosControl *control, GHashTable *overrides, GError **error)
{
    g_autoptr(GHashTable) saved = NULL;

    if (control->db && !(saved = qos_db_load_tunables(control->db, error)))
        return FALSE;
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++) {
        g_autoptr(GError) reason = NULL;
        const char *name = qos_tunable_names[i];
        const char *source;
        const char *text = initial_text(overrides, saved, name, &source);
        char *checked = text ? qos_tunables_check(&control->tunables, i, text, &reason) : NULL;

        if (reason) {
            qos_set_error(error, reason->code, "%s %s", source, reason->message);
            return FALSE;
        }
        if (checked)
            qos_tunables_take(&control->tunables, i, checked);
    }
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        qos_tunables_apply(&control->tunables, i, control->fs);
    return TRUE;
}

static void set_rules(QosGate *gate, QosRules *rules)
{
    QosSched *sched = qos_gate_lock(gate);

    qos_sched_set_rules(sched, rules, qos_clock_now());
    qos_gate_unlock_and_wake(gate);
}

static void restore_totals(QosGate *gate, const QosJob *totals)
{
    QosJobs *jobs = qos_sched_jobs(qos_gate_lock(gate));
    const QosTime now = qos_clock_now();
    QosJob *job = qos_jobs_job(jobs, totals->id, now);

    qos_job_restore(job, totals, now);
    qos_job_unref(job);
    qos_gate_unlock(gate);
}

/* Saved waits know their rules by name; a rule that is gone has an id that no other has. */
static void restore_job(QosControl *control, QosJob *job, const QosRules *rules)
{
    for (guint i = 0; i < job->wait_count; i++) {
        QosWait *wait = &job->wait[i];
        const QosRule *rule = qos_rules_by_name(rules, wait->rule_name);

        if (!*wait->rule_name) /* as older versions saved it */
            g_strlcpy(wait->rule_name, QOS_WAIT_SLOTS, sizeof(wait->rule_name));
        else if (!g_str_equal(wait->rule_name, QOS_WAIT_SLOTS) &&
                 !g_str_equal(wait->rule_name, QOS_WAIT_SHARE) &&
                 !g_str_equal(wait->rule_name, QOS_WAIT_CREDIT))
            wait->rule_id = rule ? rule->id : G_MAXUINT64;
    }
    restore_totals(control->fs->gate, job);
}

static gboolean load_rules_and_jobs(QosControl *control, GError **error)
{
    g_autoptr(GPtrArray) jobs = NULL;
    QosRules *rules = qos_db_load_rules(control->db, qos_clock_now(), qos_wall_now(), error);

    if (rules)
        jobs = qos_db_load_jobs(control->db, qos_wall_now(), error);
    if (jobs) {
        set_rules(control->fs->gate, rules);
        for (guint i = 0; i < jobs->len; i++)
            restore_job(control, g_ptr_array_index(jobs, i), rules);
    }
    qos_rules_unref(rules);
    return jobs != NULL;
}

static void restore_share(QosGate *gate, const QosDbShare *share)
{
    QosSched *sched = qos_gate_lock(gate);
    const QosTime now = qos_clock_now();
    QosJob *job = qos_jobs_job(qos_sched_jobs(sched), share->job, now);

    qos_sched_restore_share(sched, job, share->record, &share->totals, now);
    qos_job_unref(job);
    qos_gate_unlock(gate);
}

static gboolean load_shares(QosControl *control, GError **error)
{
    g_autoptr(GArray) shares = qos_db_load_shares(control->db, error);

    for (guint i = 0; shares && i < shares->len; i++)
        restore_share(control->fs->gate, &g_array_index(shares, QosDbShare, i));
    return shares != NULL;
}

/* All that was saved; what the jobs do from now on goes into the history. */
static gboolean load(QosControl *control, GError **error)
{
    g_autoptr(GPtrArray) jobs = NULL;

    if (!load_rules_and_jobs(control, error) || !load_shares(control, error))
        return FALSE;
    jobs = qos_report_copy_jobs(control->fs->gate, NULL);
    qos_db_begin_history(control->db, jobs, qos_wall_now());
    return TRUE;
}

/* "PID NAMESPACE": a reader in another namespace of processes must not take it for one of its own.
 */
static char *process_name(void)
{
    struct stat status = {0};

    return stat("/proc/self/ns/pid", &status) == 0
               ? g_strdup_printf("%d %" G_GUINT64_FORMAT, (int)getpid(), (guint64)status.st_ino)
               : g_strdup_printf("%d 0", (int)getpid());
}

QosControl *qos_control_new(QosFs *fs, QosDb *db, GHashTable *overrides, GError **error)
{
    QosControl *control = g_new0(QosControl, 1);

    control->fs = fs;
    control->db = db;
    control->started = qos_wall_now();
    control->process = process_name();
    control->saved.others = QOS_NOT_SAVED;
    qos_mutex_init(&control->setting, QOS_MUTEX_SETTING);
    qos_mutex_init(&control->lock, QOS_MUTEX_CONTROL);
    control->errors = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    control->texts = qos_control_texts_new();
    qos_tunables_init(&control->tunables);
    if (!load_tunables(control, overrides, error) || (db && !load(control, error)))
        g_clear_pointer(&control, qos_control_free);
    return control;
}

void qos_control_free(QosControl *control)
{
    if (!control)
        return;
    qos_tunables_clear(&control->tunables);
    g_hash_table_unref(control->errors);
    g_hash_table_unref(control->texts);
    g_free(control->process);
    qos_mutex_destroy(&control->lock);
    qos_mutex_destroy(&control->setting);
    g_free(control);
}

QosTime qos_control_started(const QosControl *control)
{
    return control->started;
}

/* --- setting --- */

static gboolean set_rule(QosControl *control, const char *command, GError **error)
{
    QosTime now = qos_clock_now();
    QosRules *rules = qos_control_rules(control);
    QosRules *changed = qos_rules_apply(rules, command, now, error);
    gboolean good = changed && (!control->db || qos_db_save_rules(control->db, changed, now,
                                                                  qos_wall_now(), error));

    if (good)
        set_rules(control->fs->gate, changed);
    qos_rules_unref(changed);
    qos_rules_unref(rules);
    return good;
}

/* Slots that are all in use must leave a thread to read requests, if only to answer closes. */
static gboolean leaves_a_reader(const QosControl *control, QosTunable tunable, const char *text,
                                GError **error)
{
    guint threads = control->fs->threads;

    if (tunable != QOS_TUNABLE_SLOTS || g_ascii_strtoull(text, NULL, 10) < threads)
        return TRUE;
    qos_set_error(error, ERANGE,
                  "slots=%s: this mount has %u threads, and one must be left to read requests; "
                  "mount again with more threads, or with -o slots=%s",
                  text, threads, text);
    return FALSE;
}

static gboolean set_tunable(QosControl *control, QosTunable tunable, const char *text,
                            GError **error)
{
    g_autofree char *checked = qos_tunables_check(&control->tunables, tunable, text, error);

    if (!checked || !leaves_a_reader(control, tunable, checked, error))
        return FALSE;
    if (control->db &&
        !qos_db_save_tunable(control->db, qos_tunable_names[tunable], checked, error))
        return FALSE;
    qos_mutex_lock(&control->lock);
    qos_tunables_take(&control->tunables, tunable, g_steal_pointer(&checked));
    qos_mutex_unlock(&control->lock);
    qos_tunables_apply(&control->tunables, tunable, control->fs);
    return TRUE;
}

static gboolean set(QosControl *control, fuse_req_t request, const char *name, const char *value,
                    size_t size, GError **error)
{
    g_autofree char *text = NULL;
    gboolean good = FALSE;
    QosTunable tunable = 0;
    gboolean is_rule = strcmp(name, RULES) == 0;

    if (!qos_control_may_set(request)) {
        qos_set_error(error, EPERM, "only root and the owner of the mount (uid %u) may set %s",
                      control->fs->owner, name);
        return FALSE;
    }
    if (strcmp(name, ERROR) == 0 || strcmp(name, DAEMON) == 0) {
        qos_set_error(error, EPERM, "%s can only be read", name);
        return FALSE;
    }
    if (!is_rule && !qos_tunable_find(name, &tunable)) {
        g_autofree char *names = g_strjoinv(" ", (char **)qos_tunable_names);

        qos_set_error(error, EINVAL, "there is no %s%s to set; there are: " RULES " " CLUSTER " %s",
                      QOS_XATTR_PREFIX, name, names);
        return FALSE;
    }
    text = qos_control_text_of(value, size, error);
    if (text) {
        qos_mutex_lock(&control->setting);
        good =
            is_rule ? set_rule(control, text, error) : set_tunable(control, tunable, text, error);
        qos_mutex_unlock(&control->setting);
    }
    return good;
}

gboolean qos_control_setxattr(fuse_req_t request, const char *name, const char *value, size_t size)
{
    QosControl *control = qos_fs(request)->control;
    g_autoptr(GError) error = NULL;

    if (!g_str_has_prefix(name, QOS_XATTR_PREFIX))
        return FALSE;
    name += strlen(QOS_XATTR_PREFIX);
    if (strcmp(name, CLUSTER) == 0) {
        qos_control_tell_cluster(request, value, size);
        return TRUE;
    }
    set(control, request, name, value, size, &error);
    qos_control_keep_error(control, fuse_req_ctx(request)->uid, error ? error->message : NULL);
    fuse_reply_err(request, error ? error->code : 0);
    return TRUE;
}

gboolean qos_control_removexattr(fuse_req_t request, const char *name)
{
    g_autoptr(GError) error = NULL;

    if (!g_str_has_prefix(name, QOS_XATTR_PREFIX))
        return FALSE;
    qos_set_error(&error, EPERM, "%s cannot be removed, only set", name);
    qos_control_keep_error(qos_fs(request)->control, fuse_req_ctx(request)->uid, error->message);
    fuse_reply_err(request, error->code);
    return TRUE;
}

/* --- reading --- */

/* Cuts what does not fit an xattr at the end of a line, and says so. */
static void fit(GString *text)
{
    static const char note[] = "# cut short: the whole list is in .qosfs/rules\n";
    gsize length = XATTR_MAX - strlen(note);

    if (text->len <= XATTR_MAX)
        return;
    while (length > 0 && text->str[length - 1] != '\n')
        length--;
    g_string_truncate(text, length);
    g_string_append(text, note);
}

static GString *make_rules(const QosReport *report)
{
    GString *text = qos_report_nrs_tbf_rule(report);

    fit(text);
    return text;
}

/* The text of that name that is made of a report, or NULL. */
static const QosControlText *find_text(const char *name)
{
    static const QosControlText rules = {make_rules, QOS_REPORT_NO_JOBS};
    static const QosControlText policies = {qos_report_nrs_policies, QOS_REPORT_NO_JOBS};

    if (strcmp(name, RULES) == 0)
        return &rules;
    return strcmp(name, qos_tunable_names[QOS_TUNABLE_NRS_POLICIES]) == 0 ? &policies : NULL;
}

/* A copy of the value of that name that is kept, or NULL. */
static char *copy_value(QosControl *control, const char *name, uid_t uid)
{
    QosTunable tunable;
    const char *value = NULL;
    char *copy;

    qos_mutex_lock(&control->lock);
    if (strcmp(name, ERROR) == 0) {
        value = g_hash_table_lookup(control->errors, GUINT_TO_POINTER(uid));
        value = value ? value : "";
    } else if (strcmp(name, DAEMON) == 0) {
        value = control->process;
    } else if (qos_tunable_find(name, &tunable)) {
        value = control->tunables.text[tunable];
    }
    copy = g_strdup(value);
    qos_mutex_unlock(&control->lock);
    return copy;
}

gboolean qos_control_getxattr(fuse_req_t request, const char *name, size_t size)
{
    const QosControlText *text;
    g_autofree char *value = NULL;

    if (!g_str_has_prefix(name, QOS_XATTR_PREFIX))
        return FALSE;
    name += strlen(QOS_XATTR_PREFIX);
    if (g_str_has_prefix(name, JOB)) {
        qos_control_ask_job(request, size, name + strlen(JOB));
        return TRUE;
    }
    if (g_str_has_prefix(name, CLUSTER ":")) {
        qos_control_ask_cluster(request, size, name + strlen(CLUSTER ":"));
        return TRUE;
    }
    text = find_text(name);
    if (text) {
        qos_control_ask_value(request, size, text);
        return TRUE;
    }
    value = copy_value(qos_fs(request)->control, name, fuse_req_ctx(request)->uid);
    if (value)
        qos_control_answer_value(request, size, value, strlen(value));
    else
        fuse_reply_err(request, ENODATA);
    return TRUE;
}
