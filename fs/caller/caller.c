/*
 * The cache of callers. fs/caller/caller.h has the contract.
 */
#include "fs/caller/caller.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "fs/caller/origins.h"
#include "fs/quota.h"
#include "sys/mutex.h"

#define CUT_LOG_MAX 256 /* long ids that are logged */
#define FRONT       64  /* places */
/* Programs that are kept open, of all descriptors. */
#define PROGRAMS_MAX  4096
#define PROGRAMS_PART 64

typedef struct {
    GList link;        /* in `recent` */
    QosCaller *caller; /* a reference; its tid is the key */
} Entry;

struct QosCallers {
    QosGate *gate;
    uid_t own;               /* the daemon's */
    gboolean has_proc;       /* /proc shows the processes by the pids that requests have */
    QosCaller *front[FRONT]; /* atomic; references; NULL: none, or being looked at */
    guint naming_number;     /* atomic; of `naming`, changes with it */
    QosMutex lock;           /* of all below */
    GHashTable *entries;     /* TID -> Entry, owned */
    GQueue recent;           /* of Entry, the one that was read last first */
    QosQuota programs;       /* of entries, that are open */
    QosOrigins *origins;     /* by the naming in force */
    QosTime swept;           /* when what stands in front was last looked through */
    QosJobNaming *naming;    /* a reference */
    GHashTable *cut_ids;     /* that were logged */
};

/* For what need not be told closer than by a tick: half the price of qos_clock_now(). */
static QosTime rough_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * QOS_SECOND + now.tv_nsec;
}

/* --- naming the job --- */

static void log_cut_id(QosCallers *callers, const char *id)
{
    gboolean is_new = FALSE;
    guint logged;

    qos_mutex_lock(&callers->lock);
    logged = g_hash_table_size(callers->cut_ids);
    if (logged < CUT_LOG_MAX)
        is_new = g_hash_table_add(callers->cut_ids, g_strdup(id));
    qos_mutex_unlock(&callers->lock);
    if (is_new)
        g_warning("a JobID longer than %d bytes was cut to \"%s\"%s", QOS_JOB_ID_MAX, id,
                  logged + 1 == CUT_LOG_MAX ? "; further ones are not logged" : "");
}

static char *recall(QosCallers *callers, const QosProcFacts *facts, guint *ret_nodes)
{
    char *job;

    qos_mutex_lock(&callers->lock);
    job = qos_origins_find(callers->origins, &facts->stat.image, ret_nodes);
    qos_mutex_unlock(&callers->lock);
    return job;
}

static void remember(QosCallers *callers, const QosJobNaming *naming, const QosProcFacts *facts,
                     uid_t uid, const char *job, guint nodes)
{
    qos_mutex_lock(&callers->lock);
    if (naming == callers->naming)
        qos_origins_remember(callers->origins, &facts->stat.image, uid, job, nodes);
    qos_mutex_unlock(&callers->lock);
}

/* The job with which the program of `facts` was started. If the program has written over its
 * environment, this is what was found before for it or for a copy of it; else the job in what is
 * left of its environment; else its ancestors' job. */
static char *find_origin(QosCallers *callers, const QosJobNaming *naming, const QosProcFacts *facts,
                         QosProcess *process, guint *ret_nodes)
{
    char *job = facts->is_overwritten ? recall(callers, facts, ret_nodes) : NULL;

    if (job != NULL)
        return job;
    job = qos_job_find(naming, process, ret_nodes);
    if (job == NULL && facts->is_overwritten) {
        process->environment = facts->ancestors;
        process->environment_length = facts->ancestors_length;
        job = qos_job_find(naming, process, ret_nodes);
    }
    if (job == NULL)
        return recall(callers, facts, ret_nodes);
    remember(callers, naming, facts, process->uid, job, *ret_nodes);
    return job;
}

static QosJob *name_job(QosCallers *callers, const QosJobNaming *naming,
                        const struct fuse_ctx *context, const QosProcFacts *facts, QosUser *user)
{
    QosProcess process = {
        .comm = facts->stat.comm,
        .environment = facts->environment,
        .environment_length = facts->environment_length,
        .cgroup = facts->cgroup,
        .pid = context->pid,
        .uid = context->uid,
        .gid = context->gid,
    };
    const gboolean is_by_image = (qos_job_naming_wants(naming) & QOS_PROC_IMAGE) != 0;
    g_autofree char *job = NULL;
    char id[QOS_JOB_ID_MAX + 1];
    guint nodes = 0;

    job = is_by_image ? find_origin(callers, naming, facts, &process, &nodes)
                      : qos_job_find(naming, &process, &nodes);
    if (qos_job_name(naming, &process, job, id))
        log_cut_id(callers, id);
    return qos_gate_job(callers->gate, user, id, nodes);
}

/* Root and the daemon's own user take what they want anyway. */
static QosUser *find_user(const QosCallers *callers, uid_t uid)
{
    return uid == 0 || uid == callers->own ? NULL : qos_gate_user(callers->gate, uid);
}

/* Takes over `job`, and the groups and the program of `facts`. */
static QosCaller *make_caller(const struct fuse_ctx *context, QosProcFacts *facts, QosUser *user,
                              QosJob *job)
{
    QosCaller *caller = g_new0(QosCaller, 1);

    caller->user = user;
    caller->references = 1;
    caller->tid = context->pid;
    caller->process = facts->process;
    caller->start = facts->stat.start;
    caller->uid = context->uid;
    caller->gid = context->gid;
    caller->group_count = facts->group_count;
    caller->groups = g_steal_pointer(&facts->groups);
    caller->capabilities = facts->capabilities;
    caller->namespace = facts->namespace;
    caller->is_proxy = facts->process != 0 && facts->uid != context->uid;
    caller->job = job;
    caller->program = facts->program;
    facts->program = (QosProgram){0};
    return caller;
}

/* --- the cache --- */

static void free_entry(gpointer data)
{
    Entry *entry = data;

    qos_program_close(&entry->caller->program);
    qos_caller_unref(entry->caller);
    g_free(entry);
}

static guint programs_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return PROGRAMS_MAX;
    return (guint)MIN(limit.rlim_cur / PROGRAMS_PART, PROGRAMS_MAX);
}

QosCallers *qos_callers_new(QosGate *gate)
{
    QosCallers *callers = g_new0(QosCallers, 1);

    callers->gate = gate;
    callers->own = getuid();
    callers->has_proc = qos_proc_is_visible();
    if (!callers->has_proc)
        g_warning(
            "/proc is not that of this pid namespace: jobs are named by uid alone. Mount one there "
            "(mount -t proc proc /proc), then mount qosfs anew");
    qos_mutex_init(&callers->lock, QOS_MUTEX_CALLERS);
    callers->entries = g_hash_table_new_full(NULL, NULL, NULL, free_entry);
    g_queue_init(&callers->recent);
    qos_quota_init(&callers->programs, programs_max());
    callers->origins = qos_origins_new();
    callers->naming =
        qos_job_naming_new(QOS_JOBID_VAR_DEFAULT, QOS_JOBID_NAME_DEFAULT, g_get_host_name(), NULL);
    callers->cut_ids = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    return callers;
}

void qos_callers_free(QosCallers *callers)
{
    if (!callers)
        return;
    for (guint i = 0; i < FRONT; i++)
        qos_caller_unref(callers->front[i]);
    g_hash_table_unref(callers->entries);
    qos_quota_clear(&callers->programs);
    qos_origins_free(callers->origins);
    g_hash_table_unref(callers->cut_ids);
    qos_job_naming_unref(callers->naming);
    qos_mutex_destroy(&callers->lock);
    g_free(callers);
}

static gboolean is_fresh(QosCallers *callers, QosCaller *caller, const struct fuse_ctx *context,
                         QosCallerNeed need, QosTime now)
{
    if (now - caller->read >= QOS_CALLER_FRESH || caller->uid != context->uid ||
        caller->gid != context->gid ||
        caller->naming != (guint)g_atomic_int_get(&callers->naming_number))
        return FALSE;
    return need == QOS_CALLER_IDENTITY ||
           (caller->is_named && qos_program_runs(&caller->program, need == QOS_CALLER_LASTING_JOB));
}

/* --- the front --- */

static QosCaller **place_of(QosCallers *callers, pid_t tid)
{
    return &callers->front[(guint)tid % FRONT];
}

/* Puts `caller` (NULL: none) there, taking the reference, and releases the caller that was
 * there. */
static void put_in_front(QosCaller **place, QosCaller *caller)
{
    qos_caller_unref(__atomic_exchange_n(place, caller, __ATOMIC_ACQ_REL));
}

/* The caller in that place if it may answer, a new reference; else NULL. */
static QosCaller *look_in_front(QosCallers *callers, const struct fuse_ctx *context,
                                QosCallerNeed need, QosTime now)
{
    QosCaller **place = place_of(callers, context->pid);
    QosCaller *caller = __atomic_exchange_n(place, NULL, __ATOMIC_ACQ_REL), *nobody = NULL;

    if (caller == NULL)
        return NULL;
    if (caller->tid != context->pid || !is_fresh(callers, caller, context, need, now)) {
        qos_caller_unref(caller); /* the table knows better */
        return NULL;
    }
    qos_caller_ref(caller);
    if (!__atomic_compare_exchange_n(place, &nobody, caller, FALSE, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        qos_caller_unref(caller);
    return caller;
}

/* --- the table --- */

static void drop_locked(QosCallers *callers, Entry *entry)
{
    QosCaller *caller = entry->caller;

    if (caller->program.state == QOS_PROGRAM_SURE)
        qos_quota_give_back(&callers->programs, caller->job, caller->user);
    g_queue_unlink(&callers->recent, &entry->link);
    g_hash_table_remove(callers->entries, GINT_TO_POINTER(caller->tid));
}

/* Drops the entries that were not read again for QOS_CALLER_IDLE, and the oldest of too many. */
static void drop_old_locked(QosCallers *callers, QosTime now)
{
    Entry *oldest;

    while (oldest = g_queue_peek_tail(&callers->recent),
           oldest != NULL && (callers->recent.length > QOS_CALLER_CACHE_MAX ||
                              now - oldest->caller->read > QOS_CALLER_IDLE))
        drop_locked(callers, oldest);
    if (now - callers->swept < QOS_CALLER_IDLE)
        return;
    callers->swept = now;
    for (guint i = 0; i < FRONT; i++)
        put_in_front(&callers->front[i], NULL);
}

void qos_callers_expire(QosCallers *callers, QosTime now)
{
    qos_mutex_lock(&callers->lock);
    drop_old_locked(callers, now);
    qos_mutex_unlock(&callers->lock);
}

/* Where there is no descriptor for a program it is not sure. */
static void keep_program_locked(QosCallers *callers, QosCaller *caller)
{
    if (caller->program.state != QOS_PROGRAM_SURE ||
        qos_quota_take(&callers->programs, caller->job, caller->user))
        return;
    qos_program_close(&caller->program);
    caller->program.state = QOS_PROGRAM_UNSURE;
}

/* Puts a caller that was read just now into the cache, unless jobs are named in another way
 * meanwhile. */
static void store(QosCallers *callers, const QosJobNaming *naming, QosCaller *caller)
{
    gboolean is_current;
    Entry *entry;

    qos_mutex_lock(&callers->lock);
    caller->naming = callers->naming_number;
    is_current = naming == callers->naming;
    if (is_current) {
        entry = g_hash_table_lookup(callers->entries, GINT_TO_POINTER(caller->tid));
        if (entry)
            drop_locked(callers, entry);
        keep_program_locked(callers, caller);
        entry = g_new0(Entry, 1);
        *entry = (Entry){.caller = qos_caller_ref(caller), .link.data = entry};
        g_hash_table_insert(callers->entries, GINT_TO_POINTER(caller->tid), entry);
        g_queue_push_head_link(&callers->recent, &entry->link);
        drop_old_locked(callers, caller->read);
    }
    qos_mutex_unlock(&callers->lock);
    if (!is_current)
        qos_program_close(&caller->program);
}

/* The caller from the table, a new reference, or NULL. *ret_fresh: it may answer. */
static QosCaller *look_up(QosCallers *callers, const struct fuse_ctx *context, QosCallerNeed need,
                          gboolean *ret_fresh)
{
    QosTime now = rough_now();
    QosCaller *caller = look_in_front(callers, context, need, now);
    const Entry *entry;

    *ret_fresh = caller != NULL;
    if (caller != NULL)
        return caller;
    qos_mutex_lock(&callers->lock);
    entry = g_hash_table_lookup(callers->entries, GINT_TO_POINTER(context->pid));
    if (entry)
        caller = qos_caller_ref(entry->caller);
    qos_mutex_unlock(&callers->lock);
    *ret_fresh = caller && is_fresh(callers, caller, context, need, now);
    if (*ret_fresh)
        put_in_front(place_of(callers, context->pid), qos_caller_ref(caller));
    return caller;
}

/* How the job of a caller is found. */
typedef enum {
    BY_FACTS,
    AS_BEFORE, /* its environment is not to be had: if it is new, by the rest */
    NOT_NOW,   /* it is not needed */
} How;

/* The job of the caller that `facts` describe, and that was `known` before (or NULL): a reference,
 * or NULL if none is needed. */
static QosJob *find_job(QosCallers *callers, const QosJobNaming *naming,
                        const struct fuse_ctx *context, const QosProcFacts *facts, QosUser *user,
                        const QosCaller *known, How how)
{
    gboolean is_same = known && facts->stat.start != 0 && facts->stat.start == known->start;

    if (is_same && known->job && (facts->stat.is_exiting || how != BY_FACTS))
        return qos_job_ref(known->job);
    return how == NOT_NOW ? NULL : name_job(callers, naming, context, facts, user);
}

static QosCaller *name_caller(QosCallers *callers, QosJobNaming *naming,
                              const struct fuse_ctx *context, QosProcFacts *facts,
                              const QosCaller *known, How how)
{
    QosUser *user = find_user(callers, context->uid);
    QosJob *job = find_job(callers, naming, context, facts, user, known, how);
    QosCaller *caller = make_caller(context, facts, user, job);

    caller->read = rough_now();
    caller->is_named = how != NOT_NOW;
    if (context->pid != 0)
        store(callers, naming, caller);
    else
        qos_program_close(&caller->program);
    return caller;
}

QosCaller *qos_callers_find(QosCallers *callers, const struct fuse_ctx *context, QosCallerNeed need)
{
    gboolean fresh, is_visible = context->pid != 0 && callers->has_proc;
    QosCaller *known = look_up(callers, context, need, &fresh);
    QosCaller *caller = NULL;

    if (fresh)
        return known;
    g_autoptr(QosJobNaming) naming = qos_callers_naming(callers);
    g_auto(QosProcFacts) facts = {0};
    const gboolean needs_job = need != QOS_CALLER_IDENTITY;

    if (!is_visible || !needs_job || qos_job_naming_wants(naming) == 0) {
        if (is_visible)
            qos_proc_read(context->pid, 0, &facts);
        caller =
            name_caller(callers, naming, context, &facts, known, needs_job ? BY_FACTS : NOT_NOW);
    }
    qos_caller_unref(known);
    return caller;
}

QosCaller *qos_callers_name(QosCallers *callers, const struct fuse_ctx *context,
                            QosJobNaming *naming, QosProcFacts *facts)
{
    gboolean fresh;
    QosCaller *known = look_up(callers, context, QOS_CALLER_JOB, &fresh);
    QosCaller *caller = name_caller(callers, naming, context, facts, known, BY_FACTS);

    qos_caller_unref(known);
    return caller;
}

QosCaller *qos_callers_guess(QosCallers *callers, const struct fuse_ctx *context)
{
    gboolean fresh;
    QosCaller *known = look_up(callers, context, QOS_CALLER_JOB, &fresh);

    if (fresh)
        return known;
    g_autoptr(QosJobNaming) naming = qos_callers_naming(callers);
    g_auto(QosProcFacts) facts = {0};
    qos_proc_read(context->pid, qos_job_naming_wants(naming) & (QOS_PROC_CGROUP | QOS_PROC_IMAGE),
                  &facts);
    facts.program.state = QOS_PROGRAM_UNSURE;
    QosCaller *caller = name_caller(callers, naming, context, &facts, known, AS_BEFORE);

    qos_caller_unref(known);
    return caller;
}

void qos_callers_set_naming(QosCallers *callers, QosJobNaming *naming)
{
    qos_mutex_lock(&callers->lock);
    if (!qos_job_naming_finds_the_same(naming, callers->naming))
        qos_origins_clear(callers->origins);
    qos_job_naming_unref(callers->naming);
    callers->naming = qos_job_naming_ref(naming);
    g_atomic_int_inc(&callers->naming_number);
    g_hash_table_remove_all(callers->entries);
    g_queue_init(&callers->recent);
    qos_quota_clear(&callers->programs);
    qos_quota_init(&callers->programs, callers->programs.most);
    qos_mutex_unlock(&callers->lock);
}

QosJobNaming *qos_callers_naming(QosCallers *callers)
{
    QosJobNaming *naming;

    qos_mutex_lock(&callers->lock);
    naming = qos_job_naming_ref(callers->naming);
    qos_mutex_unlock(&callers->lock);
    return naming;
}

guint qos_callers_count(QosCallers *callers)
{
    guint count;

    qos_mutex_lock(&callers->lock);
    count = callers->recent.length;
    qos_mutex_unlock(&callers->lock);
    return count;
}
