/*
 * The policy `grr`: groups of jobs take turns, and all mounts serve the same group at a time (seed
 * 003, 4.3).
 *
 * A job belongs to one of GROUPS groups, by the hash of its JobID. In each epoch one group is
 * preferred: its jobs go round robin, one request a turn. If the preferred group has nothing that
 * waits here, jobs of other groups go, so that no slot is idle.
 *
 * An epoch is over when it has lasted EPOCH_LENGTH, or nothing of its group waits here. Then the
 * scheduler asks the epoch handler for the next one, and hands in a Wish. Each mount is called back
 * with the reduction of all wishes, which decides: of the groups with waiting requests, the one
 * with the oldest last turn is next; of several such, the one with the most waiting bytes. The last
 * turns are part of the wish, so that a mount that joins knows them. So a group gets its turn after
 * at most GROUPS - 1 others, whatever these ask for. Without peers this is a round robin over
 * groups.
 *
 * Until it is called back, a scheduler goes on with its group. It takes part in epochs only while
 * requests wait in it, so that peers never wait for a mount without requests. If it is cut off from
 * its peers, it decides by its own wish.
 */
#include <string.h>

#include "fs/policy.h"

#define GROUPS       64
#define EPOCH_LENGTH (20 * QOS_MILLISECOND)
#define REQUEST_COST 4096 /* bytes that a request counts for besides those that it moves */

/* Policy data: 64-bit numbers alone, so that combine and swab see an array of them. */
typedef struct {
    guint64 length;          /* of the epoch, ns; the shortest counts */
    guint64 waiting[GROUPS]; /* bytes; summed up */
    guint64 turn[GROUPS];    /* the group's last turn, counted over all groups; the latest counts */
} Wish;

G_STATIC_ASSERT(sizeof(Wish) <= QOS_EPOCH_DATA_MAX);

typedef struct {
    void *jobs; /* of the policy jrr */
    guint queued;
} Group;

typedef struct {
    Group groups[GROUPS];
    guint queued;
    guint preferred;
    guint spare; /* the group that was served last because the preferred one had nothing */
    Wish wish;
    QosTime epoch_end;
    gint64 epoch;       /* QOS_EPOCH_FIRST: in none */
    gboolean is_asking; /* a call-back is to come */
    gboolean is_stopping;
    const QosPolicyContext *context;
    QosEpochHandler *own_epochs;
    GArray *own_actions;
    QosEpochHandler *epochs; /* of these, or the context's */
    GArray *actions;
} Grr;

/* --- wishes --- */

static void combine(void *combined, const void *a, gsize a_length, const void *b, gsize b_length)
{
    guint64 *sum = combined;
    const guint64 *one = a, *other = b;
    gsize numbers = MIN(MIN(a_length, b_length), sizeof(Wish)) / sizeof(guint64);

    for (gsize i = 0; i < numbers; i++) {
        if (i == 0)
            sum[i] = MIN(one[i], other[i]);
        else if (i <= GROUPS)
            sum[i] = one[i] + MIN(other[i], G_MAXUINT64 - one[i]);
        else
            sum[i] = MAX(one[i], other[i]);
    }
}

static void swab_numbers(void *data, gsize length)
{
    guint64 *number = data;

    for (gsize i = 0; i < length / sizeof(guint64); i++)
        number[i] = GUINT64_SWAP_LE_BE(number[i]);
}

static gboolean goes_before(const Wish *wish, guint one, guint other)
{
    if (wish->turn[one] != wish->turn[other])
        return wish->turn[one] < wish->turn[other];
    return wish->waiting[one] > wish->waiting[other];
}

/* Gives the turn to the group that is next by `sum`. */
static void begin(Grr *grr, const Wish *sum, QosTime now)
{
    guint chosen = GROUPS;
    guint64 last = 0;

    for (guint i = 0; i < GROUPS; i++) {
        last = MAX(last, sum->turn[i]);
        if (sum->waiting[i] > 0 && (chosen == GROUPS || goes_before(sum, i, chosen)))
            chosen = i;
    }
    memcpy(grr->wish.turn, sum->turn, sizeof(grr->wish.turn));
    if (chosen < GROUPS) {
        grr->preferred = chosen;
        grr->wish.turn[chosen] = last + 1;
    }
    grr->epoch_end = qos_time_add(now, (QosTime)CLAMP(sum->length, 1, EPOCH_LENGTH));
}

/* --- epochs --- */

static void grr_start_epoch(void *self, gint64 epoch, const void *data, gsize length, QosTime now)
{
    Grr *grr = self;
    gboolean is_reduced = epoch > 0 && length == sizeof(Wish);

    grr->is_asking = FALSE;
    grr->epoch = MAX(epoch, QOS_EPOCH_FIRST);
    begin(grr, is_reduced ? data : &grr->wish, now);
}

/* What is left of the actions is for the peers. */
static void wake_sender(const Grr *grr)
{
    if (grr->actions->len > 0 && grr->context->epoch_waker != NULL)
        grr->context->epoch_waker(grr->context->epoch_waker_arg);
}

static void ask(Grr *grr, QosTime now)
{
    g_autoptr(GBytes) data = g_bytes_new(&grr->wish, sizeof(grr->wish));
    QosEpochMessage answer;

    grr->is_asking = TRUE;
    if (qos_epoch_next(grr->epochs, grr->epoch, data, now, grr->actions) < 0)
        grr_start_epoch(grr, QOS_EPOCH_FIRST, NULL, 0, now);
    while (qos_epoch_take_call_back(grr->actions, &answer)) {
        gsize length = 0;
        gconstpointer sum = answer.data != NULL ? g_bytes_get_data(answer.data, &length) : NULL;

        grr_start_epoch(grr, answer.epoch, sum, length, now);
        qos_epoch_message_clear(&answer);
    }
    wake_sender(grr);
}

static gboolean is_over(const Grr *grr, QosTime now)
{
    return now >= grr->epoch_end || grr->groups[grr->preferred].queued == 0;
}

/* Takes part in epochs no more until the next request waits. */
static void leave(Grr *grr, QosTime now)
{
    qos_epoch_last(grr->epochs, grr->epoch, now, grr->actions);
    wake_sender(grr);
    grr->is_asking = FALSE;
    grr->epoch = QOS_EPOCH_FIRST;
    grr->epoch_end = now;
}

/* --- requests --- */

/* FNV-1a, as all mounts have to agree. */
static Group *group_of(Grr *grr, const QosJob *job)
{
    guint32 hash = 2166136261;

    for (const char *at = job->id; *at != '\0'; at++)
        hash = (hash ^ (guint8)*at) * 16777619;
    return &grr->groups[hash % GROUPS];
}

/* Counts a request that begins to wait (`change` is 1) or does no more (-1). */
static void count(Grr *grr, Group *group, const QosRequest *request, int change)
{
    guint64 cost = REQUEST_COST + request->bytes;

    group->queued += change;
    grr->queued += change;
    grr->wish.waiting[group - grr->groups] += change > 0 ? cost : -cost;
}

/* The peers' epochs, or where there are none its own. */
static void choose_epochs(Grr *grr)
{
    const gboolean has_peers = grr->context->epochs != NULL;

    grr->epochs = has_peers ? grr->context->epochs : grr->own_epochs;
    grr->actions = has_peers ? grr->context->epoch_actions : grr->own_actions;
}

static void *grr_init(const QosPolicyContext *context, QosTime now)
{
    Grr *grr = g_new0(Grr, 1);

    for (guint i = 0; i < GROUPS; i++)
        grr->groups[i].jobs = qos_policy_jrr.init(context, now);
    grr->wish.length = EPOCH_LENGTH;
    grr->context = context;
    grr->own_epochs = qos_epoch_local_new();
    grr->own_actions = qos_epoch_actions_new();
    choose_epochs(grr);
    return grr;
}

static void grr_epochs_changed(void *self, QosTime now)
{
    Grr *grr = self;

    leave(grr, now);
    choose_epochs(grr);
}

/* Asks for no more epochs; another policy may, of the same handler. */
static void grr_shutdown(void *self, QosTime now)
{
    Grr *grr = self;

    leave(grr, now);
    grr->is_stopping = TRUE;
}

static void grr_fini(void *self)
{
    Grr *grr = self;

    for (guint i = 0; i < GROUPS; i++)
        qos_policy_jrr.fini(grr->groups[i].jobs);
    qos_epoch_free(grr->own_epochs);
    g_clear_pointer(&grr->own_actions, g_array_unref);
    g_free(grr);
}

static gboolean grr_try_now(void *self, QosRequest *request G_GNUC_UNUSED,
                            QosTime now G_GNUC_UNUSED)
{
    const Grr *grr = self;

    return grr->queued == 0;
}

static void grr_incoming(void *self, QosRequest *request, QosTime now)
{
    Grr *grr = self;
    Group *group = group_of(grr, request->job);

    grr->is_stopping = FALSE;
    qos_policy_jrr.incoming(group->jobs, request, now);
    count(grr, group, request, 1);
}

/* The group that is served next; some request waits. */
static Group *next_group(Grr *grr)
{
    if (grr->groups[grr->preferred].queued > 0)
        return &grr->groups[grr->preferred];
    do
        grr->spare = (grr->spare + 1) % GROUPS;
    while (grr->groups[grr->spare].queued == 0);
    return &grr->groups[grr->spare];
}

static void keep_request(QosRequest *request, void *arg)
{
    *(QosRequest **)arg = request;
}

static void stop_waiting(Grr *grr, Group *group, const QosRequest *request, QosTime now)
{
    count(grr, group, request, -1);
    if (grr->queued == 0 && !grr->is_stopping)
        leave(grr, now);
}

static QosTime grr_get_next(void *self, QosTime now, QosReadyFunc ready, void *arg)
{
    Grr *grr = self;
    QosRequest *request = NULL;

    if (grr->queued == 0)
        return QOS_NEVER;
    if (!grr->is_asking && !grr->is_stopping && is_over(grr, now))
        ask(grr, now);

    Group *group = next_group(grr);
    qos_policy_jrr.get_next(group->jobs, now, keep_request, &request);
    stop_waiting(grr, group, request, now);
    ready(request, arg);
    return now;
}

static void grr_cancel(void *self, QosRequest *request, QosTime now)
{
    Grr *grr = self;
    Group *group = group_of(grr, request->job);

    qos_policy_jrr.cancel(group->jobs, request, now);
    stop_waiting(grr, group, request, now);
}

const gsize qos_grr_data_length = sizeof(Wish);

const QosPolicyClass qos_policy_grr = {
    .name = "grr",
    .init = grr_init,
    .shutdown = grr_shutdown,
    .fini = grr_fini,
    .try_now = grr_try_now,
    .incoming = grr_incoming,
    .get_next = grr_get_next,
    .start_epoch = grr_start_epoch,
    .reduction = {combine, swab_numbers},
    .epochs_changed = grr_epochs_changed,
    .cancel = grr_cancel,
};
