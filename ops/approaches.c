/*
 * Who comes by a file's name; ops/approaches.h tells what for.
 *
 * Each thread is looked at ever later after its last look-up, and all the time while it sleeps. So
 * what slips in meanwhile, and waits, goes at the next look.
 */
#include "ops/approaches.h"

#include <pthread.h>

#include "fs/condition.h"
#include "ops/process.h"

#define LOOK_FIRST (2 * QOS_MILLISECOND)
#define LOOK_LAST  (4 * QOS_SECOND) /* beyond it he does not come for the lock */
/* Between two looks at one who sleeps. */
#define LOOK_ON_MAX (50 * QOS_MILLISECOND)
/* In so many looks on end he slept: not for a page of memory, say. */
#define SLEEPS 2
/* Threads at most: each is there, and has looked up a file within seconds. */
#define COMERS_MAX 1024
#define FILES      2 /* that a thread may take at once, as rename(2) does */

typedef struct {
    gint64 thread; /* first: the table holds these */
    QosJob *job;   /* a reference */
    fuse_ino_t files[FILES];
    QosTime next;
    QosTime pause;
    guint sleeps; /* looks on end at which it slept */
} Comer;

struct QosApproaches {
    QosGate *gate;
    pthread_t thread;
    gint waiting;         /* atomic: comers that seem to wait for a lock */
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t changed;
    GHashTable *comers; /* a set of Comer */
    QosTime wake;       /* when the thread means to look next */
    gboolean is_stopping;
};

static gboolean is_waiting(const Comer *comer)
{
    return comer->sleeps >= SLEEPS;
}

static void set_sleeps(QosApproaches *approaches, Comer *comer, guint sleeps)
{
    const gboolean was_waiting = is_waiting(comer);

    comer->sleeps = sleeps;
    g_atomic_int_add(&approaches->waiting, is_waiting(comer) - was_waiting);
}

static void free_comer(gpointer data)
{
    Comer *comer = data;

    qos_job_unref(comer->job);
    g_free(comer);
}

static Comer *find_locked(QosApproaches *approaches, pid_t thread)
{
    const gint64 key = thread;

    return g_hash_table_lookup(approaches->comers, &key);
}

static Comer *add_locked(QosApproaches *approaches, pid_t thread)
{
    Comer *comer;

    if (g_hash_table_size(approaches->comers) >= COMERS_MAX)
        return NULL;
    comer = g_new0(Comer, 1);
    comer->thread = thread;
    g_hash_table_add(approaches->comers, comer);
    return comer;
}

void qos_approaches_note(QosApproaches *approaches, fuse_ino_t ino, QosJob *job, pid_t thread)
{
    if (thread == 0)
        return;
    pthread_mutex_lock(&approaches->lock);
    Comer *comer = find_locked(approaches, thread) ?: add_locked(approaches, thread);
    if (comer != NULL) {
        qos_job_ref(job);
        qos_job_unref(comer->job);
        comer->job = job;
        if (comer->files[0] != ino) {
            comer->files[1] = comer->files[0];
            comer->files[0] = ino;
        }
        comer->pause = LOOK_FIRST;
        comer->next = qos_gate_now() + LOOK_FIRST;
        set_sleeps(approaches, comer, 0);
        if (comer->next < approaches->wake)
            pthread_cond_signal(&approaches->changed);
    }
    pthread_mutex_unlock(&approaches->lock);
}

static gboolean waits_for(const Comer *comer, fuse_ino_t ino, const QosJob *job)
{
    return is_waiting(comer) && comer->job != job &&
           (comer->files[0] == ino || comer->files[1] == ino);
}

gboolean qos_approaches_are_waiting(QosApproaches *approaches, fuse_ino_t ino, const QosJob *job)
{
    gboolean are_waiting = FALSE;
    GHashTableIter iterator;
    gpointer comer;

    if (g_atomic_int_get(&approaches->waiting) == 0)
        return FALSE;
    pthread_mutex_lock(&approaches->lock);
    g_hash_table_iter_init(&iterator, approaches->comers);
    while (!are_waiting && g_hash_table_iter_next(&iterator, &comer, NULL))
        are_waiting = waits_for(comer, ino, job);
    pthread_mutex_unlock(&approaches->lock);
    return are_waiting;
}

/* --- the thread --- */

static void let_go_locked(QosApproaches *approaches, const Comer *comer)
{
    for (guint i = 0; i < FILES; i++) {
        if (comer->files[i] != 0)
            qos_gate_release(approaches->gate, comer->files[i], comer->job);
    }
}

/* What was seen of a thread. FALSE: it is not looked at any more. */
static gboolean judge_locked(QosApproaches *approaches, Comer *comer, char state)
{
    const gboolean was_waiting = is_waiting(comer);

    set_sleeps(approaches, comer, state == 'D' ? comer->sleeps + 1 : 0);
    if (is_waiting(comer))
        let_go_locked(approaches, comer);
    if (was_waiting != is_waiting(comer))
        comer->pause = LOOK_FIRST; /* he may come for another lock yet */
    else if (comer->sleeps != 0)
        comer->pause = MIN(2 * comer->pause, LOOK_ON_MAX);
    else
        comer->pause *= 2;
    comer->next = qos_gate_now() + comer->pause;
    return state != 0 && comer->pause <= LOOK_LAST;
}

/* The threads that are due; the earliest time at which one is due later. */
static GArray *list_due_locked(QosApproaches *approaches, QosTime *ret_next)
{
    GArray *due = g_array_new(FALSE, FALSE, sizeof(pid_t));
    const QosTime now = qos_gate_now();
    GHashTableIter iterator;
    gpointer key;

    *ret_next = QOS_NEVER;
    g_hash_table_iter_init(&iterator, approaches->comers);
    while (g_hash_table_iter_next(&iterator, &key, NULL)) {
        const Comer *comer = key;
        const pid_t thread = (pid_t)comer->thread;

        if (comer->next <= now)
            g_array_append_val(due, thread);
        else
            *ret_next = MIN(*ret_next, comer->next);
    }
    return due;
}

/* The lock is let go meanwhile. */
static void look_at_locked(QosApproaches *approaches, pid_t thread)
{
    pthread_mutex_unlock(&approaches->lock);
    const char state = qos_process_state(thread);
    pthread_mutex_lock(&approaches->lock);

    Comer *comer = find_locked(approaches, thread); /* nobody else removes it */
    if (judge_locked(approaches, comer, state))
        return;
    set_sleeps(approaches, comer, 0);
    g_hash_table_remove(approaches->comers, comer);
}

/* FALSE where nobody was due, with when somebody will be. */
static gboolean look_locked(QosApproaches *approaches, QosTime *ret_next)
{
    g_autoptr(GArray) due = list_due_locked(approaches, ret_next);

    for (guint i = 0; i < due->len; i++)
        look_at_locked(approaches, g_array_index(due, pid_t, i));
    return due->len > 0;
}

static void *watch(void *arg)
{
    QosApproaches *approaches = arg;

    pthread_setname_np(pthread_self(), "approaches");
    pthread_mutex_lock(&approaches->lock);
    while (!approaches->is_stopping) {
        if (!look_locked(approaches, &approaches->wake))
            qos_condition_wait_until(&approaches->changed, &approaches->lock, approaches->wake);
    }
    pthread_mutex_unlock(&approaches->lock);
    return NULL;
}

static void clear(QosApproaches *approaches)
{
    g_hash_table_unref(approaches->comers);
    pthread_cond_destroy(&approaches->changed);
    pthread_mutex_destroy(&approaches->lock);
    g_free(approaches);
}

QosApproaches *qos_approaches_new(QosGate *gate)
{
    QosApproaches *approaches = g_new0(QosApproaches, 1);

    approaches->gate = gate;
    approaches->comers = g_hash_table_new_full(g_int64_hash, g_int64_equal, free_comer, NULL);
    pthread_mutex_init(&approaches->lock, NULL);
    pthread_cond_init(&approaches->changed, NULL);
    if (pthread_create(&approaches->thread, NULL, watch, approaches) == 0)
        return approaches;
    clear(approaches);
    return NULL;
}

void qos_approaches_free(QosApproaches *approaches)
{
    if (approaches == NULL)
        return;
    pthread_mutex_lock(&approaches->lock);
    approaches->is_stopping = TRUE;
    pthread_cond_signal(&approaches->changed);
    pthread_mutex_unlock(&approaches->lock);
    pthread_join(approaches->thread, NULL);
    clear(approaches);
}
