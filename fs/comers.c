/*
 * Who comes by a file's name, or is told news of it; fs/comers.h tells the rules.
 */
#include "fs/comers.h"

#include <string.h>

#include "fs/places.h"
#include "fs/turns.h"

typedef struct {
    gint64 thread; /* first: the table holds these */
    QosTurn turn;
    QosTime pause; /* before it */
    guint sleeps;  /* looks on end at which it slept */
    QosUser *user;
    guint64 request; /* that which was answered with what it was told */
    QosComer comer;  /* its job is the turn's */
} Thread;

struct QosComers {
    GHashTable *threads; /* a set of Thread */
    QosPlaces places;
    QosTurns *looks;
    guint waiting;
    GHashTable *waits; /* file -> those who wait for it: Thread -> as told_size() has it */
};

/* --- threads --- */

void qos_comer_clear(QosComer *comer)
{
    qos_job_unref(comer->job);
    g_array_unref(comer->told);
}

static void free_thread(gpointer data)
{
    Thread *thread = data;

    g_array_unref(thread->comer.told);
    g_free(thread);
}

static gboolean is_waiting(const Thread *thread)
{
    return thread->sleeps >= QOS_COMER_SLEEPS;
}

static GHashTable *waiting_for(const QosComers *comers, guint64 file)
{
    return g_hash_table_lookup(comers->waits, GSIZE_TO_POINTER(file));
}

/* The size that `thread`, one of those who wait for a file, was told; -1: it came by the name. */
static gint64 told_size(GHashTable *threads, const Thread *thread)
{
    return (gint64)GPOINTER_TO_SIZE(g_hash_table_lookup(threads, thread)) - 1;
}

/* `size`: as above. */
static void add_wait(QosComers *comers, Thread *thread, guint64 file, gint64 size)
{
    GHashTable *threads = waiting_for(comers, file);

    if (threads == NULL) {
        threads = g_hash_table_new(NULL, NULL);
        g_hash_table_insert(comers->waits, GSIZE_TO_POINTER(file), threads);
    }
    size = MAX(size, told_size(threads, thread));
    g_hash_table_insert(threads, thread, GSIZE_TO_POINTER(size + 1));
}

static void remove_wait(QosComers *comers, Thread *thread, guint64 file, gint64 size G_GNUC_UNUSED)
{
    GHashTable *threads = waiting_for(comers, file);

    if (threads == NULL)
        return; /* it was there twice */
    g_hash_table_remove(threads, thread);
    if (g_hash_table_size(threads) == 0)
        g_hash_table_remove(comers->waits, GSIZE_TO_POINTER(file));
}

/* With each file that it may wait for. */
static void for_each_file(QosComers *comers, Thread *thread,
                          void (*change)(QosComers *, Thread *, guint64, gint64))
{
    const GArray *all = thread->comer.told;

    for (guint i = 0; i < QOS_COMER_FILES; i++) {
        if (thread->comer.files[i] != 0)
            change(comers, thread, thread->comer.files[i], -1);
    }
    for (guint i = 0; i < all->len; i++) {
        const QosTold *told = &g_array_index(all, QosTold, i);

        change(comers, thread, told->file, told->size);
    }
}

static void set_sleeps(QosComers *comers, Thread *thread, guint sleeps)
{
    const gboolean waited = is_waiting(thread);

    thread->sleeps = sleeps;
    if (is_waiting(thread) == waited)
        return;
    comers->waiting += waited ? -1 : 1;
    for_each_file(comers, thread, waited ? remove_wait : add_wait);
}

static void look_after(QosComers *comers, Thread *thread, QosTime pause, QosTime now)
{
    thread->pause = pause;
    qos_turns_at(comers->looks, &thread->turn, now + pause);
}

static Thread *find(const QosComers *comers, gint thread)
{
    const gint64 key = thread;

    return g_hash_table_lookup(comers->threads, &key);
}

static void drop(QosComers *comers, Thread *thread)
{
    set_sleeps(comers, thread, 0);
    qos_places_give_back(&comers->places, thread->comer.job, thread->user);
    qos_turns_remove(comers->looks, &thread->turn);
    g_hash_table_remove(comers->threads, thread);
}

static Thread *add(QosComers *comers, gint id, QosJob *job, QosUser *user)
{
    Thread *thread;

    if (!qos_places_take(&comers->places, job, user))
        return NULL;
    thread = g_new0(Thread, 1);
    thread->thread = id;
    thread->user = user;
    thread->comer.job = job;
    thread->comer.told = g_array_new(FALSE, FALSE, sizeof(QosTold));
    g_hash_table_add(comers->threads, thread);
    qos_turns_add(comers->looks, &thread->turn, job, user);
    return thread;
}

/* It is not waiting; likewise below. */
static void add_file(QosComer *comer, guint64 file)
{
    if (comer->files[0] == file)
        return;
    memmove(&comer->files[1], &comer->files[0], (QOS_COMER_FILES - 1) * sizeof(file));
    comer->files[0] = file;
}

static void add_told(Thread *thread, guint64 request, QosTold told)
{
    GArray *all = thread->comer.told;

    if (thread->request != request)
        g_array_set_size(all, 0);
    thread->request = request;
    if (all->len == QOS_COMER_TOLD)
        g_array_remove_index(all, 0);
    g_array_append_val(all, told);
}

/* It is awake. NULL: there is no room for it. */
static Thread *find_or_add(QosComers *comers, gint id, QosJob *job, QosUser *user)
{
    Thread *thread = find(comers, id);

    if (thread != NULL && (thread->comer.job != job || thread->user != user)) {
        drop(comers, thread);
        thread = NULL;
    }
    if (thread == NULL)
        return add(comers, id, job, user);
    set_sleeps(comers, thread, 0);
    return thread;
}

/* It may come to wait. Returns when it is looked at. */
static QosTime watch(QosComers *comers, Thread *thread, QosTime now)
{
    look_after(comers, thread, QOS_COMER_FIRST_LOOK, now);
    return now + QOS_COMER_FIRST_LOOK;
}

QosTime qos_comers_note(QosComers *comers, gint id, guint64 file, QosJob *job, QosUser *user,
                        QosTime now)
{
    Thread *thread = find_or_add(comers, id, job, user);

    if (thread == NULL)
        return QOS_NEVER;
    add_file(&thread->comer, file);
    return watch(comers, thread, now);
}

QosTime qos_comers_tell(QosComers *comers, gint id, guint64 request, QosTold told, QosJob *job,
                        QosUser *user, QosTime now)
{
    Thread *thread = find_or_add(comers, id, job, user);

    if (thread == NULL)
        return QOS_NEVER;
    add_told(thread, request, told);
    return watch(comers, thread, now);
}

guint qos_comers_waiting(const QosComers *comers)
{
    return comers->waiting;
}

gboolean qos_comers_wait_for(const QosComers *comers, guint64 file, const QosJob *job)
{
    GHashTable *threads = waiting_for(comers, file);
    GHashTableIter iterator;
    gpointer thread;

    if (threads == NULL)
        return FALSE;
    g_hash_table_iter_init(&iterator, threads);
    while (g_hash_table_iter_next(&iterator, &thread, NULL)) {
        if (((const Thread *)thread)->comer.job != job)
            return TRUE;
    }
    return FALSE;
}

gboolean qos_comers_wait_for_pages(const QosComers *comers, guint64 file, gint64 end, gint id)
{
    GHashTable *threads = waiting_for(comers, file);
    GHashTableIter iterator;
    gpointer thread;

    if (threads == NULL)
        return FALSE;
    g_hash_table_iter_init(&iterator, threads);
    while (g_hash_table_iter_next(&iterator, &thread, NULL)) {
        if (((const Thread *)thread)->thread != id && told_size(threads, thread) >= end)
            return TRUE;
    }
    return FALSE;
}

/* --- looks --- */

static const Thread *thread_of(const QosTurn *turn)
{
    return (const Thread *)((const char *)turn - G_STRUCT_OFFSET(Thread, turn));
}

gint qos_comers_next(QosComers *comers, QosTime now, QosTime *ret_wake)
{
    const QosTurn *turn = qos_turns_next(comers->looks, now, ret_wake);

    return turn == NULL ? 0 : (gint)thread_of(turn)->thread;
}

/* Before the next look at one that was seen, who `waited` before. */
static QosTime next_pause(const Thread *thread, gboolean waited)
{
    if (waited != is_waiting(thread))
        return QOS_COMER_FIRST_LOOK; /* he may come for another lock yet */
    return thread->sleeps > 0 ? MIN(2 * thread->pause, QOS_COMER_LOOK_ON) : 2 * thread->pause;
}

gboolean qos_comers_seen(QosComers *comers, gint id, char state, QosTime now, QosComer *ret_comer)
{
    Thread *thread = find(comers, id);

    if (thread == NULL)
        return FALSE;
    const gboolean waited = is_waiting(thread);
    set_sleeps(comers, thread, state == 'D' ? thread->sleeps + 1 : 0);
    const QosTime pause = next_pause(thread, waited);
    if (state == 0 || pause > QOS_COMER_LAST_PAUSE) {
        drop(comers, thread);
        return FALSE;
    }
    look_after(comers, thread, pause, now);
    if (!is_waiting(thread))
        return FALSE;
    *ret_comer = thread->comer;
    qos_job_ref(ret_comer->job);
    ret_comer->told = g_array_copy(thread->comer.told);
    return TRUE;
}

QosComers *qos_comers_new(void)
{
    QosComers *comers = g_new0(QosComers, 1);

    G_STATIC_ASSERT(G_STRUCT_OFFSET(Thread, thread) == 0);
    comers->threads = g_hash_table_new_full(g_int64_hash, g_int64_equal, free_thread, NULL);
    qos_places_init(&comers->places, QOS_COMERS_MAX);
    comers->looks = qos_turns_new();
    comers->waits = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_hash_table_unref);
    return comers;
}

void qos_comers_free(QosComers *comers)
{
    GHashTableIter iterator;
    gpointer thread;

    if (comers == NULL)
        return;
    g_hash_table_iter_init(&iterator, comers->threads);
    while (g_hash_table_iter_next(&iterator, &thread, NULL))
        qos_turns_remove(comers->looks, &((Thread *)thread)->turn);
    qos_turns_free(comers->looks);
    qos_places_clear(&comers->places);
    g_hash_table_unref(comers->waits);
    g_hash_table_unref(comers->threads);
    g_free(comers);
}
