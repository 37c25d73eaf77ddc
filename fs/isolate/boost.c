/*
 * Boost on look-up. fs/isolate/boost.h has the contract.
 */
#include "fs/isolate/boost.h"

#include "fs/request/fs.h"
#include "fs/store/open_jobs.h"

#define FILES      1024 /* of two in one place the later is remembered */
#define BOOST_TIME QOS_SECOND

/* Each atomic, by itself: one that is read half is a boost too many or too few. */
typedef struct {
    fuse_ino_t ino;
    const QosJob *job; /* compared alone */
    QosTime until;
} File;

struct QosBoosts {
    File files[FILES];
};

QosBoosts *qos_boosts_new(void)
{
    return g_new0(QosBoosts, 1);
}

void qos_boosts_free(QosBoosts *boosts)
{
    g_free(boosts);
}

static void note(QosBoosts *boosts, fuse_ino_t ino, const QosJob *job)
{
    File *file = &boosts->files[ino % FILES];

    __atomic_store_n(&file->ino, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&file->job, job, __ATOMIC_RELAXED);
    __atomic_store_n(&file->until, qos_clock_now() + BOOST_TIME, __ATOMIC_RELAXED);
    __atomic_store_n(&file->ino, ino, __ATOMIC_RELEASE);
}

QosGateHolder qos_boost_file(const QosOp *op, fuse_ino_t ino)
{
    const QosFs *fs = op->fs;
    const QosJob *job = op->entry.request.job;
    const QosGateHolder holder = qos_gate_holder(fs->gate, ino, job);

    /* Noted first: a request looks for the note when it is parked. */
    if (holder == QOS_GATE_ANOTHER || qos_open_jobs_is_of_another(fs->open_jobs, ino, job))
        note(fs->boosts, ino, job);
    if (holder == QOS_GATE_ANOTHER)
        qos_gate_boost(fs->gate, ino, job);
    return holder;
}

void qos_boost_opened(QosFs *fs, fuse_ino_t ino, const QosJob *job)
{
    qos_gate_boost(fs->gate, ino, job);
}

static gboolean has_come(const QosBoosts *boosts, fuse_ino_t ino, const QosJob *job)
{
    const File *file = &boosts->files[ino % FILES];

    return __atomic_load_n(&file->ino, __ATOMIC_ACQUIRE) == ino &&
           __atomic_load_n(&file->job, __ATOMIC_RELAXED) != job &&
           __atomic_load_n(&file->until, __ATOMIC_RELAXED) > qos_clock_now();
}

gboolean qos_boost_is_contended(const QosOp *op)
{
    const QosFs *fs = op->fs;
    const QosJob *job = op->entry.request.job;

    if (has_come(fs->boosts, op->target.locks, job))
        return TRUE;
    if (op->target.locked_file != NULL)
        return qos_file_jobs_are_several(op->target.locked_file);
    return qos_open_jobs_has_others(fs->open_jobs, op->target.locks, job);
}

void qos_boost_parked(QosFs *fs, fuse_ino_t ino, const QosJob *job)
{
    if (has_come(fs->boosts, ino, job) || qos_open_jobs_has_others(fs->open_jobs, ino, job))
        qos_gate_boost(fs->gate, ino, NULL);
}
