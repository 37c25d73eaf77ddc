/*
 * Who comes by a file's name; fs/comers.h tells the rules.
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
    QosComer comer; /* its job is the turn's */
} Thread;

struct QosComers {
    GHashTable *threads; /* a set of Thread */
    QosPlaces places;
    QosTurns *looks;
    guint waiting;
};

/* --- threads --- */

static gboolean is_waiting(const Thread *thread)
{
    return thread->sleeps >= QOS_COMER_SLEEPS;
}

static void set_sleeps(QosComers *comers, Thread *thread, guint sleeps)
{
    comers->waiting -= is_waiting(thread);
    thread->sleeps = sleeps;
    comers->waiting += is_waiting(thread);
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
    g_hash_table_add(comers->threads, thread);
    qos_turns_add(comers->looks, &thread->turn, job, user);
    return thread;
}

static void add_file(QosComer *comer, guint64 file)
{
    if (comer->files[0] == file)
        return;
    memmove(&comer->files[1], &comer->files[0], (QOS_COMER_FILES - 1) * sizeof(file));
    comer->files[0] = file;
}

QosTime qos_comers_note(QosComers *comers, gint id, guint64 file, QosJob *job, QosUser *user,
                        QosTime now)
{
    Thread *thread = find(comers, id);

    if (thread != NULL && (thread->comer.job != job || thread->user != user)) {
        drop(comers, thread);
        thread = NULL;
    }
    if (thread == NULL)
        thread = add(comers, id, job, user);
    if (thread == NULL)
        return QOS_NEVER;
    add_file(&thread->comer, file);
    set_sleeps(comers, thread, 0);
    look_after(comers, thread, QOS_COMER_FIRST_LOOK, now);
    return now + QOS_COMER_FIRST_LOOK;
}

guint qos_comers_waiting(const QosComers *comers)
{
    return comers->waiting;
}

static gboolean waits_for(const Thread *thread, guint64 file, const QosJob *job)
{
    gboolean is_of_his = FALSE;

    for (guint i = 0; i < QOS_COMER_FILES; i++)
        is_of_his |= thread->comer.files[i] == file;
    return is_of_his && is_waiting(thread) && thread->comer.job != job;
}

gboolean qos_comers_wait_for(const QosComers *comers, guint64 file, const QosJob *job)
{
    gboolean found = FALSE;
    GHashTableIter iterator;
    gpointer thread;

    g_hash_table_iter_init(&iterator, comers->threads);
    while (!found && g_hash_table_iter_next(&iterator, &thread, NULL))
        found = waits_for(thread, file, job);
    return found;
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
    return TRUE;
}

QosComers *qos_comers_new(void)
{
    QosComers *comers = g_new0(QosComers, 1);

    G_STATIC_ASSERT(G_STRUCT_OFFSET(Thread, thread) == 0);
    comers->threads = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    qos_places_init(&comers->places, QOS_COMERS_MAX);
    comers->looks = qos_turns_new();
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
    g_hash_table_unref(comers->threads);
    g_free(comers);
}
