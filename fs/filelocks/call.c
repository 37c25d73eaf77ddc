/*
 * The way of a call from state to state (fs/filelocks/state.h).
 */
#include <errno.h>
#include <fcntl.h>

#include "fs/filelocks/state.h"
#include "sys/clock.h"

#define TRY_AGAIN QOS_SECOND

static const QosResourceType *extent_type(void)
{
    return qos_resource_type(QOS_RESOURCE_EXTENT);
}

/* --- files --- */

static void name_file(QosResource *resource, const QosFileName *file, QosFileLockKind kind)
{
    const struct {
        guint64 number, device;
        guint8 kind;
    } __attribute__((packed))
    name = {GUINT64_TO_LE(file->number), GUINT64_TO_LE(file->device), (guint8)kind};

    G_STATIC_ASSERT(sizeof(name) <= sizeof(resource->name));
    qos_resource_init(resource, QOS_RESOURCE_EXTENT, &name, sizeof(name));
}

QosLockedFile *qos_locked_file_find_locked(QosFileLocks *locks, const QosFileName *name,
                                           QosFileLockKind kind)
{
    QosResource resource;

    name_file(&resource, name, kind);
    return g_hash_table_lookup(locks->files, &resource);
}

QosLockedFile *qos_locked_file_get_locked(QosFileLocks *locks, const QosFileName *name,
                                          QosFileLockKind kind)
{
    QosLockedFile *file = qos_locked_file_find_locked(locks, name, kind);

    if (file != NULL)
        return file;
    file = g_new0(QosLockedFile, 1);
    name_file(&file->resource, name, kind);
    file->kind = kind;
    g_hash_table_add(locks->files, file);
    g_atomic_int_inc(&locks->file_count);
    return file;
}

/* A conversion fails only where all is lost already, which qos_filelocks_lost() is about to hear.
 */
void qos_locked_file_adjust_locked(QosFileLocks *locks, QosLockedFile *file)
{
    QosCredit join;

    if (file->held == NULL)
        return;
    if (qos_filelock_table_is_empty(&file->table)) {
        qos_lockclient_put(locks->client, file->held);
        g_clear_pointer(&file->held, g_free);
        return;
    }
    join = qos_filelock_table_join(&file->table);
    qos_lockclient_convert(locks->client, &join, QOS_CREDIT_LASTING, file->held);
    qos_credit_clear(extent_type(), &join);
}

/* Brings the calls on that waited for what was given up. One that goes on may give something up in
 * its turn. */
static void bring_on_locked(QosLockedFile *file)
{
    while (file->is_eased) {
        file->is_eased = FALSE;
        for (GList *link = file->calls.head, *next; link != NULL; link = next) {
            QosCall *call = link->data;

            next = link->next;
            if (call->state == QOS_CALL_BLOCKED)
                qos_call_advance_locked(call);
        }
    }
}

void qos_locked_file_tidy_locked(QosFileLocks *locks, QosLockedFile *file)
{
    bring_on_locked(file);
    if (!qos_filelock_table_is_empty(&file->table) || file->calls.length > 0)
        return;
    g_hash_table_remove(locks->files, file);
    g_atomic_int_add(&locks->file_count, -1);
    g_free(file);
}

/* --- states --- */

/* When the keeper is to look at it. */
static void set_due_locked(QosCall *call, QosTime due)
{
    QosFileLocks *locks = call->locks;

    if (call->due != QOS_NEVER)
        g_queue_unlink(&locks->due, &call->due_link);
    call->due = due;
    if (due == QOS_NEVER)
        return;
    g_queue_push_tail_link(&locks->due, &call->due_link);
    qos_service_thread_wake_locked(&locks->keeper);
}

static void enter_state_locked(QosCall *call, QosCallState state)
{
    qos_call_end_wait_locked(call);
    set_due_locked(call, QOS_NEVER);
    call->state = state;
}

/* --- places --- */

gboolean qos_call_take_place_locked(QosCall *call, const QosCaller *payer)
{
    if (!qos_quota_take(&call->locks->quota, payer->job, payer->user))
        return FALSE;
    call->payer = payer;
    return TRUE;
}

static void give_place_back_locked(QosCall *call)
{
    const QosCaller *payer = g_steal_pointer(&call->payer);

    if (payer != NULL)
        qos_quota_give_back(&call->locks->quota, payer->job, payer->user);
}

/* --- the end --- */

void qos_call_finish_locked(QosCall *call, int error)
{
    enter_state_locked(call, QOS_CALL_ANSWERED);
    give_place_back_locked(call);
    call->error = error;
    g_queue_unlink(&call->file->calls, &call->link);
    call->file = NULL;
    g_queue_push_tail_link(&call->locks->answered, &call->link);
}

void qos_call_unref(QosCall *call)
{
    if (g_atomic_int_dec_and_test(&call->references))
        g_free(call);
}

static void put_use_locked(QosCall *call)
{
    if (call->use == NULL)
        return;
    qos_lockclient_put(call->locks->client, call->use);
    g_clear_pointer(&call->use, g_free);
}

static void block_locked(QosCall *call)
{
    enter_state_locked(call, QOS_CALL_BLOCKED);
    if (qos_call_is_deadlock_locked(call))
        qos_call_finish_locked(call, EDEADLK);
    else
        qos_call_begin_wait_locked(call);
}

static void retry_locked(QosCall *call)
{
    QosTime now = qos_clock_now();

    enter_state_locked(call, QOS_CALL_RETRYING);
    if (call->give_up == 0)
        call->give_up = call->mode == QOS_FILELOCKS_WAIT ? QOS_NEVER : now + QOS_LOCKCLIENT_AWAY;
    if (now >= call->give_up)
        qos_call_finish_locked(call, ENOLCK);
    else
        set_due_locked(call, now + TRY_AGAIN);
}

/* TRUE if the owner has an exclusive lock there and now wants a shared one. No other owner has an
 * exclusive lock there, so only the owner's own can conflict. */
static gboolean eases(const QosCall *call)
{
    return !call->lock.span.writes &&
           qos_filelock_table_conflict(&call->file->table, ~call->lock.owner, &call->lock.span) !=
               NULL;
}

static void grant_locked(QosCall *call)
{
    QosLockedFile *file = call->file;

    if (call->mode != QOS_FILELOCKS_TEST) {
        const gboolean gives_up = eases(call);

        file->is_eased |= gives_up;
        qos_filelock_table_set(&file->table, &call->lock);
        qos_filelocks_note_owner_locked(call->locks, file, call->lock.owner);
        if (gives_up)
            qos_filelocks_tell_locked(call->locks);
        if (file->held == NULL)
            file->held = g_steal_pointer(&call->use);
        else
            qos_locked_file_adjust_locked(call->locks, file);
    }
    put_use_locked(call);
    qos_call_finish_locked(call, 0);
}

/* Another owner of this mount is in the way. */
static void yield_locked(QosCall *call, const QosFileLock *other)
{
    put_use_locked(call);
    if (call->is_interrupted) {
        qos_call_finish_locked(call, EINTR);
    } else if (call->mode == QOS_FILELOCKS_TEST) {
        call->has_other = TRUE;
        call->other = *other;
        qos_call_finish_locked(call, 0);
    } else if (call->mode == QOS_FILELOCKS_TRY) {
        qos_call_finish_locked(call, EAGAIN);
    } else {
        block_locked(call);
    }
}

/* Another mount is in the way. Its owner, and the part that is locked, are not known. */
static void deny_locked(QosCall *call)
{
    if (call->mode == QOS_FILELOCKS_TEST) {
        call->has_other = TRUE;
        call->other.span = call->lock.span;
        call->other.span.writes = TRUE;
        qos_call_finish_locked(call, 0);
    } else if (call->mode == QOS_FILELOCKS_TRY) {
        qos_call_finish_locked(call, EAGAIN);
    } else {
        retry_locked(call);
    }
}

/* The lock client's answer. */
static void settle_locked(QosCall *call, QosCreditVerdict verdict)
{
    if (verdict == QOS_CREDIT_GRANTED) {
        enter_state_locked(call, QOS_CALL_ALLOWED);
        qos_call_advance_locked(call);
        return;
    }
    g_clear_pointer(&call->use, g_free);
    if (call->is_interrupted)
        qos_call_finish_locked(call, EINTR);
    else if (verdict == QOS_CREDIT_DENIED)
        deny_locked(call);
    else
        retry_locked(call);
}

/* From the link, without locks. */
static void asked(QosLockUse *use, QosCreditVerdict verdict)
{
    QosCall *call = use->hold.user;
    QosFileLocks *locks = call->locks;
    QosLockedFile *file;

    qos_mutex_lock(&locks->lock);
    file = call->file;
    settle_locked(call, verdict);
    qos_locked_file_tidy_locked(locks, file);
    pthread_cond_signal(&locks->settled);
    qos_filelocks_unlock(locks);
}

static void ask_locked(QosCall *call)
{
    const QosSpan *span = &call->lock.span;
    QosCredit want = qos_credit_span(span->first, span->last, span->writes);
    guint flags = call->mode == QOS_FILELOCKS_TEST ? 0 : QOS_CREDIT_LASTING;

    if (call->mode == QOS_FILELOCKS_WAIT)
        flags |= QOS_CREDIT_WAIT;
    enter_state_locked(call, QOS_CALL_ASKING);
    call->use = g_new0(QosLockUse, 1);
    call->use->done = asked;
    call->use->hold.user = call;
    QosCreditVerdict verdict =
        qos_lockclient_get(call->locks->client, &call->file->resource, &want, flags, call->use);
    qos_credit_clear(extent_type(), &want);
    if (verdict == QOS_CREDIT_WAITING)
        qos_call_begin_wait_locked(call);
    else
        settle_locked(call, verdict);
}

void qos_call_advance_locked(QosCall *call)
{
    const QosFileLockTable *table = &call->file->table;
    const QosFileLock *other =
        qos_filelock_table_conflict(table, call->lock.owner, &call->lock.span);

    if (other != NULL) {
        yield_locked(call, other);
    } else if (call->mode != QOS_FILELOCKS_TEST && !qos_filelock_table_has_room(table)) {
        put_use_locked(call);
        qos_call_finish_locked(call, ENOLCK);
    } else if (call->state == QOS_CALL_ALLOWED) {
        grant_locked(call);
    } else {
        ask_locked(call);
    }
}

gboolean qos_call_withdraw_locked(QosCall *call)
{
    if (call->state != QOS_CALL_ASKING)
        return TRUE;
    if (!qos_lockclient_withdraw(call->locks->client, call->use))
        return FALSE;
    g_clear_pointer(&call->use, g_free);
    return TRUE;
}

/* --- answers --- */

static void reply(const QosCall *call)
{
    struct flock found = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    const QosSpan *span = &call->other.span;

    if (call->error != 0 || call->mode != QOS_FILELOCKS_TEST) {
        fuse_reply_err(call->request, call->error);
        return;
    }
    if (call->has_other) {
        found.l_type = span->writes ? F_WRLCK : F_RDLCK;
        found.l_start = (off_t)span->first;
        found.l_len = span->last >= G_MAXINT64 ? 0 : (off_t)(span->last - span->first + 1);
        found.l_pid = call->other.pid;
    }
    fuse_reply_lock(call->request, &found);
}

static void answer(QosCall *call)
{
    if (call->mode == QOS_FILELOCKS_WAIT)
        qos_interrupt_table_ignore(call->locks->interrupts, call->number);
    reply(call);
    qos_call_unref(call);
}

void qos_filelocks_unlock(QosFileLocks *locks)
{
    GList *next = locks->answered.head;

    qos_filelocks_tell_locked(locks);
    g_queue_init(&locks->answered);
    qos_mutex_unlock(&locks->lock);
    while (next != NULL) {
        QosCall *call = next->data;

        next = next->next;
        answer(call);
    }
}
