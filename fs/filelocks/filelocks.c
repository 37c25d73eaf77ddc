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
static void go_on_locked(QosLocks *locks, QosLockedFile *file)
{
    qos_locks_tell_locked(locks);
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
    QosLocks *locks = call->locks;

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
static void give_shared_locked(QosLocks *locks, QosLockedFile *file, const QosLock *lock)
{
    const QosSpan shared = {lock->span.first, lock->span.last, FALSE};

    if (lock->span.writes && qos_locktable_has_owner(&file->table, lock->owner) &&
        qos_locktable_conflict(&file->table, ~lock->owner, &shared) == NULL) {
        qos_locktable_unset(&file->table, lock->owner, 0, G_MAXUINT64);
        go_on_locked(locks, file);
    }
}

static void begin_locked(QosCall *call)
{
    if (call->kind == QOS_LOCKS_WHOLE && call->mode != QOS_LOCKS_TEST)
        give_shared_locked(call->locks, call->file, &call->lock);
    qos_call_advance_locked(call);
}

/* Interrupts a call that waits, and that had a signal before it came, of which nothing else tells.
 * A signal that another thread of the process may take is left to that thread. If this one were
 * told EINTR without a signal of its own, it would see an error that the kernel means for
 * itself. */
static void look_for_signals(QosCall *call, pid_t caller)
{
    QosLocks *locks = call->locks;

    qos_mutex_lock(&locks->lock);
    gboolean waits = call->state != QOS_CALL_ANSWERED;
    qos_mutex_unlock(&locks->lock);
    if (waits && qos_signals_of(caller).is_its_own)
        interrupted(call);
}

/* FALSE: it fails, because so many wait already. */
static gboolean take_place_locked(QosCall *call)
{
    const QosCaller *payer = ((const QosHandle *)call->lock.handle)->caller;

    if (call->mode != QOS_LOCKS_WAIT || qos_call_take_place_locked(call, payer))
        return TRUE;
    qos_complain(&call->locks->complaints, G_LOG_LEVEL_WARNING, qos_gate_now(),
                 "job %s: %u requests of all jobs wait for file locks, and it is refused more "
                 "(ENOLCK) until some have theirs",
                 payer->job->id, call->locks->places.taken);
    return FALSE;
}

void qos_locks_take(QosLocks *locks, fuse_req_t request, const QosFileName *name, QosLocksKind kind,
                    QosLocksMode mode, const QosLock *lock, gboolean may_miss_signals)
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
    if (mode == QOS_LOCKS_WAIT)
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
    qos_locks_unlock(locks);
    if (mode == QOS_LOCKS_WAIT && may_miss_signals)
        look_for_signals(call, caller);
    qos_call_unref(call);
}

void qos_locks_give(QosLocks *locks, const QosFileName *name, QosLocksKind kind, guint64 owner,
                    guint64 first, guint64 last)
{
    /* Each close() comes here, and few files are ever locked. An owner that gives up a lock was
     * answered before, and the file was counted before that. */
    if (g_atomic_int_get(&locks->file_count) == 0)
        return;
    qos_mutex_lock(&locks->lock);
    QosLockedFile *file = qos_locked_file_find_locked(locks, name, kind);
    if (file != NULL && qos_locktable_unset(&file->table, owner, first, last)) {
        qos_locks_note_owner_locked(locks, file, owner);
        go_on_locked(locks, file);
    }
    qos_locks_unlock(locks);
}

/* Removes the locks that were taken by the open file (NULL: by any). FALSE: there were none. */
static gboolean unset_locked(QosLocks *locks, QosLockedFile *file, const QosHandle *handle)
{
    g_autoptr(GArray) owners = qos_locktable_owners(&file->table, handle);

    if (handle != NULL)
        qos_locktable_unset_handle(&file->table, handle);
    else
        qos_locktable_clear(&file->table);
    for (guint i = 0; i < owners->len; i++)
        qos_locks_note_owner_locked(locks, file, g_array_index(owners, guint64, i));
    return owners->len > 0;
}

void qos_locks_close(QosLocks *locks, const QosHandle *handle)
{
    qos_mutex_lock(&locks->lock);
    for (guint kind = 0; kind < QOS_LOCKS_KINDS; kind++) {
        QosLockedFile *file = qos_locked_file_find_locked(locks, &handle->name, kind);
        if (file != NULL && unset_locked(locks, file, handle))
            go_on_locked(locks, file);
    }
    qos_locks_unlock(locks);
}

/* The lease is over: what is still in a table here is what qos_locks_lost() is about to hear of. */
static gboolean has_locked(QosLocks *locks, const QosHandle *handle)
{
    gboolean has = FALSE;

    qos_mutex_lock(&locks->lock);
    for (guint kind = 0; kind < QOS_LOCKS_KINDS; kind++) {
        const QosLockedFile *file = qos_locked_file_find_locked(locks, &handle->name, kind);

        has |=
            file != NULL && qos_locktable_has_taken(&file->table, handle, handle->caller->process);
    }
    qos_mutex_unlock(&locks->lock);
    return has;
}

/* A lost lock is noted at its handle before it leaves the table, so the handle is asked last. */
gboolean qos_locks_are_lost(QosLocks *locks, const QosHandle *handle)
{
    if (locks == NULL)
        return FALSE;
    if (g_atomic_int_get(&locks->file_count) > 0 && qos_lockclient_valid(locks->client) == 0 &&
        has_locked(locks, handle))
        return TRUE;
    return qos_handle_locking(handle) == QOS_LOCKING_LOST;
}

/* --- the lock client's callbacks --- */

/* Releases at once: a part that another mount may have is not in use here, and nothing is cached
 * for file locks. */
void qos_locks_drop(QosLocks *locks, const QosResource *resource, const QosCredit *credit)
{
    qos_lockclient_release(locks->client, resource, credit);
}

/* By the name that the file has in the store, which takes no call on that. */
static void tell_of_loss(QosLocks *locks, const GArray *lost)
{
    const QosHandle *handle = g_array_index(lost, QosLock, 0).handle;
    char link[QOS_PROC_PATH_MAX];

    qos_proc_path(handle->fd, link);
    g_autofree char *path = g_file_read_link(link, NULL);
    g_autofree char *text = g_strescape(path != NULL ? path : "a file", NULL);
    qos_complain(&locks->complaints, G_LOG_LEVEL_WARNING, qos_gate_now(),
                 "%s: the locks on it (%u) are lost, because the lock server did not hear of this "
                 "mount for as long as its lease: reads and writes by the files they were taken on "
                 "fail from now on",
                 text, lost->len);
}

static void lose_locked(QosLocks *locks, QosLockedFile *file)
{
    const GArray *lost = file->table.locks;
    const QosLock *before = NULL;

    for (guint i = 0; lost != NULL && i < lost->len; i++) {
        const QosLock *lock = &g_array_index(lost, QosLock, i);

        if (before == NULL || lock->handle != before->handle || lock->pid != before->pid)
            qos_handle_lose_locks((QosHandle *)lock->handle, lock->pid);
        before = lock;
    }
    if (lost != NULL)
        tell_of_loss(locks, lost);
    unset_locked(locks, file, NULL);
    go_on_locked(locks, file);
}

void qos_locks_lost(QosLocks *locks, const QosResource *resource)
{
    qos_mutex_lock(&locks->lock);
    QosLockedFile *file = g_hash_table_lookup(locks->files, resource);
    if (file != NULL)
        lose_locked(locks, file);
    qos_locks_unlock(locks);
}

void qos_locks_changed(QosLocks *locks, gboolean is_up)
{
    qos_mutex_lock(&locks->lock);
    for (GList *link = locks->due.head; is_up && link != NULL; link = link->next) {
        QosCall *call = link->data;
        if (call->state == QOS_CALL_POSTPONED)
            call->due = 0;
    }
    qos_service_thread_wake_locked(&locks->keeper);
    qos_mutex_unlock(&locks->lock);
}

void qos_locks_deadlocked(QosLocks *locks, guint64 wait)
{
    QosCall *call;

    qos_mutex_lock(&locks->lock);
    call = qos_locks_find_told_locked(locks, wait);
    if (call != NULL && qos_call_withdraw_locked(call))
        end_locked(call, EDEADLK);
    qos_locks_unlock(locks);
}

/* --- the keeper --- */

static void try_again_locked(QosLocks *locks, QosCall *call)
{
    QosLockedFile *file = call->file;

    qos_call_advance_locked(call);
    qos_locked_file_tidy_locked(locks, file);
}

/* Looks at those that are due, and says when the next one is. */
static QosTime look_at_all_locked(QosLocks *locks)
{
    QosTime next = QOS_NEVER;
    QosTime now = qos_gate_now();
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
    QosLocks *locks = data;
    const QosTime next = look_at_all_locked(locks);

    qos_locks_tell_locked(locks);
    if (locks->answered.length == 0)
        return next;
    qos_locks_unlock(locks);
    qos_mutex_lock(&locks->lock);
    return 0;
}

/* --- the whole --- */

QosLocks *qos_locks_new(QosInterruptTable *interrupts)
{
    QosLocks *locks = g_new0(QosLocks, 1);

    locks->interrupts = interrupts;
    locks->files = g_hash_table_new(qos_resource_hash, qos_resource_equal);
    qos_places_init(&locks->places, QOS_LOCKS_WAITS_MAX);
    locks->told = g_hash_table_new(g_int64_hash, g_int64_equal);
    qos_lockowners_init(&locks->owners);
    qos_mutex_init(&locks->lock, QOS_MUTEX_LOCKS);
    pthread_cond_init(&locks->settled, NULL);
    return locks;
}

int qos_locks_start(QosLocks *locks, QosLockclient *client)
{
    qos_mutex_lock(&locks->lock);
    locks->client = client;
    qos_mutex_unlock(&locks->lock);
    return qos_service_thread_start(&locks->keeper, "locks", &locks->lock, keep, locks, NULL)
               ? 0
               : -EAGAIN;
}

/* Takes back all calls, and what is held. FALSE: a call is being answered by the link. */
static gboolean clear_locked(QosLocks *locks)
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

void qos_locks_stop(QosLocks *locks)
{
    if (locks == NULL)
        return;
    qos_mutex_lock(&locks->lock);
    qos_service_thread_end_locked(&locks->keeper);
    while (!clear_locked(locks))
        qos_condition_wait(&locks->settled, &locks->lock);
    qos_locks_unlock(locks);
    qos_service_thread_stop(&locks->keeper);
}

void qos_locks_free(QosLocks *locks)
{
    if (locks == NULL)
        return;
    g_hash_table_unref(locks->files);
    qos_places_clear(&locks->places);
    g_hash_table_unref(locks->told);
    qos_lockowners_clear(&locks->owners);
    pthread_cond_destroy(&locks->settled);
    qos_mutex_destroy(&locks->lock);
    g_free(locks);
}
