/*
 * The cache of callers, and the reading of /proc behind it.
 *
 * All files of one process are opened through its directory in /proc, which stands for that process
 * alone: when its pid is reused, they fail with ESRCH, so that what is read never mixes two
 * processes. The environment comes from anonymous memory only (the kernel sees to that), so that a
 * caller cannot make the daemon wait for a page of a file system of his.
 */
#include "ops/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROC_FILE_MAX   (1 << 20) /* read no more of a file; an environment may be larger */
#define CUT_LOG_MAX     256       /* long ids that are logged */
#define TASK_IS_EXITING 0x4       /* PF_EXITING, in the flags of /proc/TID/stat */

typedef struct {
    GList link;        /* in `recent` */
    QosCaller *caller; /* a reference; its tid is the key */
    QosTime read;      /* when /proc was read */
} Entry;

struct QosCallers {
    QosGate *gate;
    gboolean has_proc;    /* /proc shows the processes by the pids that requests have */
    pthread_mutex_t lock; /* of all below */
    GHashTable *entries;  /* TID -> Entry, owned */
    GQueue recent;        /* of Entry, the most recently used first */
    QosJobNaming *naming; /* a reference */
    GHashTable *cut_ids;  /* that were logged */
};

/* What was read of a process. */
typedef struct {
    char *stat; /* `comm` points into it */
    const char *comm;
    guint64 start;
    gboolean exiting;
    char *environment;
    gsize environment_length;
    char *cgroup;
    gid_t *groups;
    gint group_count;
} Facts;

/* --- reading /proc --- */

static void clear_facts(Facts *facts)
{
    g_free(facts->stat);
    g_free(facts->environment);
    g_free(facts->cgroup);
    g_free(facts->groups);
}

/* The text of a file in `directory`, ended by NUL, or NULL. */
static char *read_file(int directory, const char *name, gsize *ret_length)
{
    g_autoptr(GByteArray) text = g_byte_array_sized_new(4096);
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    gssize got;

    if (fd < 0)
        return NULL;
    do {
        char part[4096];

        got = TEMP_FAILURE_RETRY(read(fd, part, sizeof(part)));
        if (got > 0)
            g_byte_array_append(text, (const guint8 *)part, (guint)got);
    } while (got > 0 && text->len < PROC_FILE_MAX);
    close(fd);
    if (got < 0)
        return NULL;
    *ret_length = text->len;
    g_byte_array_append(text, (const guint8 *)"", 1);
    return (char *)g_byte_array_free(g_steal_pointer(&text), FALSE);
}

/* "TID (comm) state ...": comm may itself hold parentheses and blanks, but nothing after it does.
 */
static void read_stat(int directory, Facts *facts)
{
    gsize length;
    char *begin, *end;
    guint flags;
    unsigned long long start;

    facts->stat = read_file(directory, "stat", &length);
    begin = facts->stat ? strchr(facts->stat, '(') : NULL;
    end = facts->stat ? strrchr(facts->stat, ')') : NULL;
    if (!begin || !end)
        return;
    *end = '\0';
    facts->comm = begin + 1;
    /* Fields 3 to 22 of proc(5): of these, flags (9) and starttime (22). */
    if (sscanf(end + 1,
               " %*c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &flags, &start) == 2) {
        facts->exiting = (flags & TASK_IS_EXITING) != 0;
        facts->start = start;
    }
}

static void read_groups(int directory, Facts *facts)
{
    g_autoptr(GArray) groups = g_array_new(FALSE, FALSE, sizeof(gid_t));
    gsize length;
    g_autofree char *status = read_file(directory, "status", &length);
    char *at = status ? strstr(status, "\nGroups:") : NULL;

    if (!at)
        return;
    at += strlen("\nGroups:");
    for (;;) {
        char *end;
        gid_t group;

        at += strspn(at, " \t");
        if (!g_ascii_isdigit(*at))
            break;
        group = (gid_t)g_ascii_strtoull(at, &end, 10);
        g_array_append_val(groups, group);
        at = end;
    }
    facts->group_count = (gint)groups->len;
    facts->groups = (gid_t *)g_array_free(g_steal_pointer(&groups), FALSE);
}

/* /proc may be that of another pid namespace, where our pids are other processes. */
static gboolean proc_is_ours(void)
{
    g_autofree char *self = g_file_read_link("/proc/self", NULL);

    return self && g_ascii_strtoll(self, NULL, 10) == getpid();
}

/* All that is known of a TID; nothing of one that is gone or may not be seen. */
static void read_facts(pid_t tid, const QosJobNaming *naming, Facts *facts)
{
    g_autofree char *path = g_strdup_printf("/proc/%d", tid);
    gsize length;
    int directory;

    qos_cred_restore();
    directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    read_stat(directory, facts);
    read_groups(directory, facts);
    if (qos_job_naming_wants_environment(naming))
        facts->environment = read_file(directory, "environ", &facts->environment_length);
    if (qos_job_naming_wants_cgroup(naming))
        facts->cgroup = read_file(directory, "cgroup", &length);
    close(directory);
}

/* --- naming the job --- */

static void log_cut_id(QosCallers *callers, const char *id)
{
    gboolean is_new = FALSE;
    guint logged;

    pthread_mutex_lock(&callers->lock);
    logged = g_hash_table_size(callers->cut_ids);
    if (logged < CUT_LOG_MAX)
        is_new = g_hash_table_add(callers->cut_ids, g_strdup(id));
    pthread_mutex_unlock(&callers->lock);
    if (is_new)
        g_warning("a JobID longer than %d bytes was cut to \"%s\"%s", QOS_JOB_ID_MAX, id,
                  logged + 1 == CUT_LOG_MAX ? "; further ones are not logged" : "");
}

static QosJob *name_job(QosCallers *callers, const QosJobNaming *naming,
                        const struct fuse_ctx *context, const Facts *facts)
{
    QosProcess process = {
        .comm = facts->comm,
        .environment = facts->environment,
        .environment_length = facts->environment_length,
        .cgroup = facts->cgroup,
        .pid = context->pid,
        .uid = context->uid,
        .gid = context->gid,
    };
    char id[QOS_JOB_ID_MAX + 1];
    guint nodes;

    if (qos_job_name_process(naming, &process, id, &nodes))
        log_cut_id(callers, id);
    return qos_gate_job(callers->gate, id, nodes);
}

/* Takes over `job` and the groups of `facts`. */
static QosCaller *make_caller(const struct fuse_ctx *context, Facts *facts, QosJob *job)
{
    QosCaller *caller = g_new0(QosCaller, 1);

    caller->references = 1;
    caller->tid = context->pid;
    caller->start = facts->start;
    caller->uid = context->uid;
    caller->gid = context->gid;
    caller->group_count = facts->group_count;
    caller->groups = g_steal_pointer(&facts->groups);
    caller->job = job;
    return caller;
}

/* --- the cache --- */

static void free_entry(gpointer data)
{
    Entry *entry = data;

    qos_caller_unref(entry->caller);
    g_free(entry);
}

QosCallers *qos_callers_new(QosGate *gate)
{
    QosCallers *callers = g_new0(QosCallers, 1);

    callers->gate = gate;
    callers->has_proc = proc_is_ours();
    if (!callers->has_proc)
        g_warning("/proc is not that of this pid namespace: jobs are named by uid alone");
    pthread_mutex_init(&callers->lock, NULL);
    callers->entries = g_hash_table_new_full(NULL, NULL, NULL, free_entry);
    g_queue_init(&callers->recent);
    callers->naming =
        qos_job_naming_new(QOS_JOBID_VAR_DEFAULT, QOS_JOBID_NAME_DEFAULT, g_get_host_name(), NULL);
    callers->cut_ids = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    return callers;
}

void qos_callers_free(QosCallers *callers)
{
    if (!callers)
        return;
    g_hash_table_unref(callers->entries);
    g_hash_table_unref(callers->cut_ids);
    qos_job_naming_unref(callers->naming);
    pthread_mutex_destroy(&callers->lock);
    g_free(callers);
}

static void drop_locked(QosCallers *callers, Entry *entry)
{
    g_queue_unlink(&callers->recent, &entry->link);
    g_hash_table_remove(callers->entries, GINT_TO_POINTER(entry->caller->tid));
}

/* Puts in what was read at `now`, unless jobs are named in another way meanwhile. */
static void store(QosCallers *callers, const QosJobNaming *naming, QosCaller *caller, QosTime now)
{
    Entry *entry, *oldest;

    pthread_mutex_lock(&callers->lock);
    if (naming == callers->naming) {
        entry = g_hash_table_lookup(callers->entries, GINT_TO_POINTER(caller->tid));
        if (entry)
            drop_locked(callers, entry);
        entry = g_new0(Entry, 1);
        *entry = (Entry){.caller = qos_caller_ref(caller), .read = now};
        entry->link.data = entry;
        g_hash_table_insert(callers->entries, GINT_TO_POINTER(caller->tid), entry);
        g_queue_push_head_link(&callers->recent, &entry->link);
        while (oldest = g_queue_peek_tail(&callers->recent),
               callers->recent.length > QOS_CALLER_CACHE_MAX ||
                   now - oldest->read > QOS_CALLER_IDLE)
            drop_locked(callers, oldest);
    }
    pthread_mutex_unlock(&callers->lock);
}

/* The cached caller, a new reference, or NULL where there is none. *ret_fresh: it may answer; else
 * the naming to make a new one with, a reference. */
static QosCaller *find(QosCallers *callers, const struct fuse_ctx *context, QosTime now,
                       gboolean *ret_fresh, QosJobNaming **ret_naming)
{
    QosCaller *caller = NULL;
    Entry *entry;

    pthread_mutex_lock(&callers->lock);
    entry = g_hash_table_lookup(callers->entries, GINT_TO_POINTER(context->pid));
    if (entry) {
        caller = qos_caller_ref(entry->caller);
        *ret_fresh = now - entry->read < QOS_CALLER_FRESH && caller->uid == context->uid &&
                     caller->gid == context->gid;
        g_queue_unlink(&callers->recent, &entry->link);
        g_queue_push_head_link(&callers->recent, &entry->link);
    }
    if (!*ret_fresh)
        *ret_naming = qos_job_naming_ref(callers->naming);
    pthread_mutex_unlock(&callers->lock);
    return caller;
}

QosCaller *qos_callers_get(QosCallers *callers, const struct fuse_ctx *context)
{
    QosTime now = qos_gate_now();
    g_autoptr(QosJobNaming) naming = NULL;
    gboolean fresh = FALSE;
    QosCaller *known = find(callers, context, now, &fresh, &naming);
    QosCaller *caller;
    Facts facts = {0};
    QosJob *job;

    if (fresh)
        return known;
    if (context->pid != 0 && callers->has_proc)
        read_facts(context->pid, naming, &facts);
    if (facts.exiting && known && facts.start == known->start)
        job = qos_job_ref(known->job);
    else
        job = name_job(callers, naming, context, &facts);
    caller = make_caller(context, &facts, job);
    if (context->pid != 0)
        store(callers, naming, caller, now);
    clear_facts(&facts);
    qos_caller_unref(known);
    return caller;
}

void qos_callers_set_naming(QosCallers *callers, QosJobNaming *naming)
{
    pthread_mutex_lock(&callers->lock);
    qos_job_naming_unref(callers->naming);
    callers->naming = qos_job_naming_ref(naming);
    g_hash_table_remove_all(callers->entries);
    g_queue_init(&callers->recent);
    pthread_mutex_unlock(&callers->lock);
}

QosJobNaming *qos_callers_naming(QosCallers *callers)
{
    QosJobNaming *naming;

    pthread_mutex_lock(&callers->lock);
    naming = qos_job_naming_ref(callers->naming);
    pthread_mutex_unlock(&callers->lock);
    return naming;
}

guint qos_callers_count(QosCallers *callers)
{
    guint count;

    pthread_mutex_lock(&callers->lock);
    count = callers->recent.length;
    pthread_mutex_unlock(&callers->lock);
    return count;
}
