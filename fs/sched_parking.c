/*
 * The room for requests that wait, and for their data (fs/sched.h).
 */
#include "fs/sched_state.h"

/* Whether the kernel may have sent the request in the background: as read-ahead, as write-back, or
 * for an asynchronous call. The kernel does not say so. */
static gboolean may_be_background(const QosRequest *request)
{
    return request->opcode == QOS_OP_READ || request->opcode == QOS_OP_WRITE;
}

/* TRUE where so many `more` of these may wait. */
static gboolean has_background(const QosSched *sched, const QosRequest *request, guint more)
{
    const guint most = sched->background_max;

    return sched->background + more <= most &&
           request->job->sched.use.background + more <= qos_slots_share_of(most) &&
           (request->user == NULL ||
            request->user->use.background + more <= qos_slots_users_share_of(most));
}

void qos_sched_count_waiting(QosSched *sched, const QosRequest *request, gint change)
{
    request->job->sched.use.waiting += (guint)change;
    if (!may_be_background(request))
        return;
    request->job->sched.use.background += (guint)change;
    if (request->user != NULL)
        request->user->use.background += (guint)change;
    sched->background += (guint)change;
}

static gboolean has_room(const QosSched *sched, const QosRequest *request, guint64 bytes,
                         guint64 bound)
{
    return sched->parked_bytes + bytes <= bound &&
           request->job->sched.use.parked_bytes + bytes <= qos_slots_share_of(bound) &&
           (request->user == NULL ||
            request->user->use.parked_bytes + bytes <= qos_slots_users_share_of(bound));
}

/* It takes so many bytes from now on. */
static void take_room(QosSched *sched, QosRequest *request, guint64 bytes)
{
    const guint64 more = bytes - request->parked_bytes;

    request->parked_bytes = bytes;
    sched->parked_bytes += more;
    request->job->sched.use.parked_bytes += more;
    if (request->user != NULL)
        request->user->use.parked_bytes += more;
}

static QosParkPlace refuse(QosSched *sched, QosJob *job, QosParkPlace reason)
{
    job->sched_rare.refused++;
    sched->refused++;
    return reason;
}

/* A waiting request is counted among the background ones already. */
QosParkPlace qos_sched_park_place(QosSched *sched, QosRequest *request, gboolean may_be_early)
{
    QosJob *job = request->job;
    guint64 bytes = sched->request_memory + request->data;
    gboolean is_early = may_be_early && request->data > 0 &&
                        !has_room(sched, request, bytes, sched->parked_max / 2) &&
                        qos_slots_may_exceed(&sched->slots, request);

    if (is_early)
        bytes -= request->data;
    if (may_be_background(request) && !has_background(sched, request, 0))
        return refuse(sched, job, QOS_PARK_TOO_MANY);
    if (!request->cannot_fail && !has_room(sched, request, bytes, sched->parked_max))
        return refuse(sched, job, QOS_PARK_NOWHERE);
    if (is_early)
        qos_slots_count_over_limit(&sched->slots, request, 1);
    take_room(sched, request, bytes);
    return is_early ? QOS_PARK_IN_STORE : QOS_PARK_IN_MEMORY;
}

gboolean qos_sched_park_paused(QosSched *sched, QosRequest *request)
{
    const guint64 bytes = MAX(sched->request_memory + request->data, request->parked_bytes);

    if ((may_be_background(request) && !has_background(sched, request, 1)) ||
        !has_room(sched, request, bytes - request->parked_bytes, sched->parked_max))
        return FALSE;
    take_room(sched, request, bytes);
    return TRUE;
}

void qos_sched_note_stored(QosSched *sched, QosRequest *request)
{
    request->is_stored = TRUE;
    qos_slots_count_over_limit(&sched->slots, request, -1);
}

void qos_sched_unpark(QosSched *sched, QosRequest *request)
{
    if (request->parked_bytes > 0)
        take_room(sched, request, 0);
}
