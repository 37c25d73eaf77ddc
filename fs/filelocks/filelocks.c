/*
 * File locks across mounts: the requests, the lock client's callbacks, and the keeper
 * (fs/filelocks/state.h).
 *
 * The keeper is a thread. It answers the calls that were interrupted, because an interrupt is heard
 * with the lock of the table of interrupts held, and no answer may be sent there. It also tries
 * again the calls that wait for nothing but the time.
 */
#include "fs/filelocks/filelocks.h"

#include <errno.h>

#include "fs/caller/signals.h"
#include "fs/filelocks/state.h"
#include "sys/clock.h"

/* An owner of this mount gave something up. */
static void go_on_locked(QosFileLocks *locks, QosLockedFile *file)
{
    qos_filelocks_tell_locked(locks);
    qos_locked_file_adjust_locked(locks, file);
    file->is_eased = TRUE;
    qos_locked_file_tidy_locked(locks, file);
}

/* --- requests --- */

static void end_locked(QosCall *call, int error)
{
    QosLockedFile *file = call->file;

    qos_call_finish_locked(call, error);
    qos_locked_file_tidy_locked(call->locks, file);
}

/* Any signal ends a wait, as on other file systems: the kernel starts it anew where the signal's
 * handler wants that. */
static void interrupted(gpointer data)
{
    QosCall *call = data;
    QosFileLocks *locks = call->locks;

    qos_mutex_lock(&locks->lock);
    call->is_interrupted = TRUE;
    if (call->state != QOS_CALL_NEW && call->state != QOS_CALL_ANSWERED &&
        qos_call_withdraw_locked(call)) {
        end_locked(call, EINTR);
        qos_service_thread_wake_locked(&locks->keeper);
    }
    qos_mutex_unlock(&locks->lock);
}

/* flock(2): a shared lock is given up before an exclusive one is asked for, so that two owners that
 * want that do not wait for each other. If the owner has an exclusive lock, nothing changes. */
static void give_shared_locked(QosFileLocks *locks, QosLockedFile *file, const QosFileLock *lock)
{
    const QosSpan shared = {lock->span.first, lock->span.last, FALSE};

    if (lock->span.writes && qos_filelock_table_has_owner(&file->table, lock->owner) &&
        qos_filelock_table_conflict(&file->table, ~lock->owner, &shared) == NULL) {
        qos_filelock_table_unset(&file->table, lock->owner, 0, G_MAXUINT64);
        go_on_locked(locks, file);
    }
}

static void begin_locked(QosCall *call)
{
    if (call->kind == QOS_FILELOCKS_WHOLE && call->mode != QOS_FILELOCKS_TEST)
        give_shared_locked(call->locks, call->file, &call->lock);
    qos_call_advance_locked(call);
}

/* Interrupts a call that waits, and that had a signal before it came, of which nothing else tells.
 * A signal that another thread of the process may take is left to that thread. If this one were
 * told EINTR without a signal of its own, it would see an error that the kernel means for
 * itself. */
static void look_for_signals(QosCall *call, pid_t caller)
{
    QosFileLocks *locks = call->locks;

    qos_mutex_lock(&locks->lock);
    gboolean waits = call->state != QOS_CALL_ANSWERED;
    qos_mutex_unlock(&locks->lock);
    if (waits && qos_signals_of(caller).is_its_own)
        interrupted(call);
}

/* FALSE: it fails, because so many wait already. */
static gboolean take_place_locked(QosCall *call)
{
    const QosCaller *payer = ((const QosOpenFile *)call->lock.open_file)->caller;

    if (call->mode != QOS_FILELOCKS_WAIT || qos_call_take_place_locked(call, payer))
        return TRUE;
    qos_complain(&call->locks->complaints, G_LOG_LEVEL_WARNING, qos_clock_now(),
                 "job %s: %u requests of all jobs wait for file locks, and it is refused more "
                 "(ENOLCK) until some have theirs",
                 payer->job->id, call->locks->quota.taken);
    return FALSE;
}

void qos_filelocks_take(QosFileLocks *locks, fuse_req_t request, const QosFileName *name,
                        QosFileLockKind kind, QosFileLockMode mode, const QosFileLock *lock,
                        gboolean may_miss_signals)
{
    QosCall *call = g_new0(QosCall, 1);
    pid_t caller = fuse_req_ctx(request)->pid;
    QosLockedFile *file;

    call->references = 2;
    call->locks = locks;
    call->request = request;
    call->number = qos_interrupt_table_number();
    call->kind = kind;
    call->mode = mode;
    call->lock = *lock;
    call->due = QOS_NEVER;
    call->link.data = call->due_link.data = call;
    if (mode == QOS_FILELOCKS_WAIT)
        qos_interrupt_table_listen(locks->interrupts, call->number, interrupted, call);
    qos_mutex_lock(&locks->lock);
    call->file = file = qos_locked_file_get_locked(locks, name, kind);
    g_queue_push_tail_link(&file->calls, &call->link);
    if (call->is_interrupted)
        qos_call_finish_locked(call, EINTR);
    else if (!take_place_locked(call))
        qos_call_finish_locked(call, ENOLCK);
    else
        begin_locked(call);
    qos_locked_file_tidy_locked(locks, file);
    qos_filelocks_unlock(locks);
    if (mode == QOS_FILELOCKS_WAIT && may_miss_signals)
        look_for_signals(call, caller);
    qos_call_unref(call);
}

void qos_filelocks_give(QosFileLocks *locks, const QosFileName *name, QosFileLockKind kind,
                        guint64 owner, guint64 first, guint64 last)
{
    /* Each close() comes here, and few files are ever locked. An owner that gives up a lock was
     * answered before, and the file was counted before that. */
    if (g_atomic_int_get(&locks->file_count) == 0)
        return;
    qos_mutex_lock(&locks->lock);
    QosLockedFile *file = qos_locked_file_find_locked(locks, name, kind);
    if (file != NULL && qos_filelock_table_unset(&file->table, owner, first, last)) {
        qos_filelocks_note_owner_locked(locks, file, owner);
        go_on_locked(locks, file);
    }
    qos_filelocks_unlock(locks);
}

/* Removes the locks that were taken by the open file (NULL: by any). FALSE: there were none. */
static gboolean unset_locked(QosFileLocks *locks, QosLockedFile *file, const QosOpenFile *open_file)
{
    g_autoptr(GArray) owners = qos_filelock_table_owners(&file->table, open_file);

    if (open_file != NULL)
        qos_filelock_table_unset_open_file(&file->table, open_file);
    else
        qos_filelock_table_clear(&file->table);
    for (guint i = 0; i < owners->len; i++)
        qos_filelocks_note_owner_locked(locks, file, g_array_index(owners, guint64, i));
    return owners->len > 0;
}

void qos_filelocks_close(QosFileLocks *locks, const QosOpenFile *open_file)
{
    qos_mutex_lock(&locks->lock);
    for (guint kind = 0; kind < QOS_FILELOCKS_KINDS; kind++) {
        QosLockedFile *file = qos_locked_file_find_locked(locks, &open_file->name, kind);
        if (file != NULL && unset_locked(locks, file, open_file))
            go_on_locked(locks, file);
    }
    qos_filelocks_unlock(locks);
}

/* The lease is over: what is still in a table here is what qos_filelocks_lost() is about to hear
 * of. */
static gboolean has_locked(QosFileLocks *locks, const QosOpenFile *open_file)
{
    gboolean has = FALSE;

    qos_mutex_lock(&locks->lock);
    for (guint kind = 0; kind < QOS_FILELOCKS_KINDS; kind++) {
        const QosLockedFile *file = qos_locked_file_find_locked(locks, &open_file->name, kind);

        has |= file != NULL &&
               qos_filelock_table_has_taken(&file->table, open_file, open_file->caller->process);
    }
    qos_mutex_unlock(&locks->lock);
    return has;
}

/* A lost lock is noted at its open file before it leaves the table, so the open file is asked last.
 */
gboolean qos_filelocks_are_lost(QosFileLocks *locks, const QosOpenFile *open_file)
{
    if (locks == NULL)
        return FALSE;
    if (g_atomic_int_get(&locks->file_count) > 0 && qos_lockclient_valid(locks->client) == 0 &&
        has_locked(locks, open_file))
        return TRUE;
    return qos_open_file_locking(open_file) == QOS_LOCKING_LOST;
}

/* --- the lock client's callbacks --- */

/* Releases at once: a part that another mount may have is not in use here, and nothing is cached
 * for file locks. */
void qos_filelocks_drop(QosFileLocks *locks, const QosResource *resource, const QosCredit *credit)
{
    qos_lockclient_release(locks->client, resource, credit);
}

/* By the name that the file has in the store, which takes no call on that. */
static void tell_of_loss(QosFileLocks *locks, const GArray *lost)
{
    const QosOpenFile *open_file = g_array_index(lost, QosFileLock, 0).open_file;
    char link[QOS_PROC_PATH_MAX];

    qos_proc_path(open_file->fd, link);
    g_autofree char *path = g_file_read_link(link, NULL);
    g_autofree char *text = g_strescape(path != NULL ? path : "a file", NULL);
    qos_complain(&locks->complaints, G_LOG_LEVEL_WARNING, qos_clock_now(),
                 "%s: the locks on it (%u) are lost, because the lock server did not hear of this "
                 "mount for as long as its lease: reads and writes by the files they were taken on "
                 "fail from now on",
                 text, lost->len);
}

static void lose_locked(QosFileLocks *locks, QosLockedFile *file)
{
    const GArray *lost = file->table.locks;
    const QosFileLock *before = NULL;

    for (guint i = 0; lost != NULL && i < lost->len; i++) {
        const QosFileLock *lock = &g_array_index(lost, QosFileLock, i);

        if (before == NULL || lock->open_file != before->open_file || lock->pid != before->pid)
            qos_open_file_lose_locks((QosOpenFile *)lock->open_file, lock->pid);
        before = lock;
    }
    if (lost != NULL)
        tell_of_loss(locks, lost);
    unset_locked(locks, file, NULL);
    go_on_locked(locks, file);
}

void qos_filelocks_lost(QosFileLocks *locks, const QosResource *resource)
{
    qos_mutex_lock(&locks->lock);
    QosLockedFile *file = g_hash_table_lookup(locks->files, resource);
    if (file != NULL)
        lose_locked(locks, file);
    qos_filelocks_unlock(locks);
}

void qos_filelocks_changed(QosFileLocks *locks, gboolean is_up)
{
    qos_mutex_lock(&locks->lock);
    for (GList *link = locks->due.head; is_up && link != NULL; link = link->next) {
        QosCall *call = link->data;
        if (call->state == QOS_CALL_RETRYING)
            call->due = 0;
    }
    qos_service_thread_wake_locked(&locks->keeper);
    qos_mutex_unlock(&locks->lock);
}

void qos_filelocks_deadlocked(QosFileLocks *locks, guint64 wait)
{
    QosCall *call;

    qos_mutex_lock(&locks->lock);
    call = qos_filelocks_find_told_locked(locks, wait);
    if (call != NULL && qos_call_withdraw_locked(call))
        end_locked(call, EDEADLK);
    qos_filelocks_unlock(locks);
}

/* --- the keeper --- */

static void try_again_locked(QosFileLocks *locks, QosCall *call)
{
    QosLockedFile *file = call->file;

    qos_call_advance_locked(call);
    qos_locked_file_tidy_locked(locks, file);
}

/* Looks at those that are due, and says when the next one is. */
static QosTime look_at_all_locked(QosFileLocks *locks)
{
    QosTime next = QOS_NEVER;
    QosTime now = qos_clock_now();
    GList *link = locks->due.head;

    for (guint i = locks->due.length; i > 0; i--) { /* what is set anew goes to the tail */
        QosCall *call = link->data;

        link = link->next;
        if (call->due <= now)
            try_again_locked(locks, call);
    }
    for (link = locks->due.head; link != NULL; link = link->next)
        next = MIN(next, ((const QosCall *)link->data)->due);
    return next;
}

static QosTime keep(gpointer data)
{
    QosFileLocks *locks = data;
    const QosTime next = look_at_all_locked(locks);

    qos_filelocks_tell_locked(locks);
    if (locks->answered.length == 0)
        return next;
    qos_filelocks_unlock(locks);
    qos_mutex_lock(&locks->lock);
    return 0;
}

/* --- the whole --- */

QosFileLocks *qos_filelocks_new(QosInterruptTable *interrupts)
{
    QosFileLocks *locks = g_new0(QosFileLocks, 1);

    locks->interrupts = interrupts;
    locks->files = g_hash_table_new(qos_resource_hash, qos_resource_equal);
    qos_quota_init(&locks->quota, QOS_FILELOCKS_WAITS_MAX);
    locks->told = g_hash_table_new(g_int64_hash, g_int64_equal);
    qos_lockowners_init(&locks->owners);
    qos_mutex_init(&locks->lock, QOS_MUTEX_FILELOCKS);
    pthread_cond_init(&locks->settled, NULL);
    return locks;
}

int qos_filelocks_start(QosFileLocks *locks, QosLockclient *client)
{
    qos_mutex_lock(&locks->lock);
    locks->client = client;
    qos_mutex_unlock(&locks->lock);
    return qos_service_thread_start(&locks->keeper, "locks", &locks->lock, keep, locks, NULL)
               ? 0
               : -EAGAIN;
}

/* Takes back all calls, and what is held. FALSE: a call is being answered by the link. */
static gboolean clear_locked(QosFileLocks *locks)
{
    gboolean is_clear = TRUE;
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, locks->files);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        QosLockedFile *file = key;

        for (GList *link = file->calls.head, *next; link != NULL; link = next) {
            QosCall *call = link->data;
            next = link->next;
            if (qos_call_withdraw_locked(call))
                qos_call_finish_locked(call, ENOTCONN);
        }
        unset_locked(locks, file, NULL);
        qos_locked_file_adjust_locked(locks, file);
        is_clear = is_clear && file->calls.length == 0;
        if (file->calls.length > 0)
            continue;
        g_hash_table_iter_remove(&iter);
        g_free(file);
    }
    return is_clear;
}

void qos_filelocks_stop(QosFileLocks *locks)
{
    if (locks == NULL)
        return;
    qos_mutex_lock(&locks->lock);
    qos_service_thread_end_locked(&locks->keeper);
    while (!clear_locked(locks))
        qos_condition_wait(&locks->settled, &locks->lock);
    qos_filelocks_unlock(locks);
    qos_service_thread_stop(&locks->keeper);
}

void qos_filelocks_free(QosFileLocks *locks)
{
    if (locks == NULL)
        return;
    g_hash_table_unref(locks->files);
    qos_quota_clear(&locks->quota);
    g_hash_table_unref(locks->told);
    qos_lockowners_clear(&locks->owners);
    pthread_cond_destroy(&locks->settled);
    qos_mutex_destroy(&locks->lock);
    g_free(locks);
}
