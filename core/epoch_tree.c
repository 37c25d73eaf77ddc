/*
 * A node of the tree in which epochs are closed: the handler of one participant, a combiner, or the
 * coordinator. core/epoch.h has the contract.
 *
 * All three are one barrier. A node has members: its children, and the scheduler here if it has
 * one. When all members are ready, the node reduces their data and passes the reduction to its
 * parent as a READY of its own. The coordinator has no parent, and begins the epoch instead. START
 * goes down the same way, but only to the nodes that have contributed data to the epoch:
 *
 *     participant   READY -> combiner   READY -> coordinator
 *     called back <- START   combiner <- START   coordinator
 *
 * While the parent has the reduction (PASSED), the node's members are fixed. A member that becomes
 * ready or joins in the meantime is kept for the next reduction.
 *
 * Only the child repeats messages, every `retry` until its ticket is answered. A parent that has
 * answered answers again. Tickets grow, so the greatest ticket of a child counts: an earlier one is
 * late, an equal one is a repetition. A greater one is new, and replaces what the child handed in
 * before, unless that was already passed on.
 *
 * A node evicts a child by forgetting it. The child's next READY names an epoch that is over, so it
 * is refused (-ESTALE); a READY with QOS_EPOCH_FIRST makes it a new member. The READY of a combiner
 * names the oldest epoch of its members. So no participant skips an epoch behind a combiner that
 * crashed: its members are refused together.
 *
 * A restarted coordinator begins at a number above all numbers of its former incarnations. A child
 * that is in an epoch of a former incarnation is never refused as too old.
 */
#include <errno.h>

#include "core/epoch.h"

typedef enum {
    MEMBER_RUNNING, /* in the epoch of the node */
    MEMBER_READY,   /* its `data` waits to be reduced */
    MEMBER_PASSED,  /* it is in the reduction that the parent has */
} MemberState;

typedef struct {
    guint64 id; /* QOS_EPOCH_HERE or the child */
    MemberState state;
    guint64 ticket; /* of its latest READY */
    gint64 epoch;   /* that it named */
    GBytes *data;   /* while READY */
} Member;

typedef struct {
    QosEpochHandler handler;
    QosEpochConfig config;
    GHashTable *members; /* id -> Member */
    guint ready;         /* of them, READY */
    guint64 ticket;      /* the latest sent to the parent */
    QosTime timer;       /* CLOSING: eviction; PASSED: repetition; else QOS_NEVER */
    QosTime here_timer;  /* when the scheduler here is called back at the latest */
    GBytes *passed;      /* while PASSED: the reduction */
    gint64 passed_epoch; /* that it is sent with */
    GBytes *reduced;     /* that the node's epoch began with */
} Tree;

/* --- numbers --- */

static gint64 incarnation_of(gint64 epoch)
{
    return epoch >> QOS_EPOCH_COUNT_BITS;
}

/* The epoch after the node's; 0 where there is none left. */
static gint64 epoch_after(const Tree *tree)
{
    gint64 first = ((gint64)tree->config.incarnation << QOS_EPOCH_COUNT_BITS) + 1;
    gint64 next = tree->handler.epoch + 1;

    if (next < first)
        return first;
    return incarnation_of(next) == tree->config.incarnation ? next : 0;
}

/* TRUE where a member that is in `epoch` has missed one that its peers began. */
static gboolean is_stale(const Tree *tree, gint64 epoch)
{
    return epoch != QOS_EPOCH_FIRST && epoch < tree->handler.epoch &&
           incarnation_of(epoch) == incarnation_of(tree->handler.epoch);
}

/* --- what goes out --- */

static void put(GArray *out, guint64 to, QosEpochMessageType type, guint64 ticket, gint64 epoch,
                GBytes *data)
{
    const QosEpochAction action = {
        .to = to,
        .message = {.type = type,
                    .ticket = ticket,
                    .epoch = epoch,
                    .data = data != NULL ? g_bytes_ref(data) : NULL},
    };
    g_array_append_val(out, action);
}

static void put_start(const Tree *tree, const Member *member, GArray *out)
{
    put(out, member->id, QOS_EPOCH_START, member->ticket, tree->handler.epoch, tree->reduced);
}

static void send_ready(Tree *tree, QosTime now, GArray *out)
{
    put(out, tree->config.parent, QOS_EPOCH_READY, tree->ticket, tree->passed_epoch, tree->passed);
    tree->timer = qos_time_add(now, tree->config.retry);
}

/* --- members --- */

static Member *find_member(const Tree *tree, guint64 id)
{
    return g_hash_table_lookup(tree->members, &id);
}

static Member *add_member(Tree *tree, guint64 id)
{
    Member *member = g_new0(Member, 1);

    member->id = id;
    g_hash_table_add(tree->members, member);
    return member;
}

static void remove_member(Tree *tree, Member *member)
{
    tree->ready -= member->state == MEMBER_READY;
    g_hash_table_remove(tree->members, member);
}

static void set_member_state(Tree *tree, Member *member, MemberState state)
{
    tree->ready -= member->state == MEMBER_READY;
    tree->ready += state == MEMBER_READY;
    member->state = state;
    if (state != MEMBER_READY)
        g_clear_pointer(&member->data, g_bytes_unref);
}

static void member_free(gpointer data)
{
    Member *member = data;

    g_clear_pointer(&member->data, g_bytes_unref);
    g_free(member);
}

/* Removes the members in `state`; where `answer` is given, it is passed on to them. */
static void remove_members(Tree *tree, MemberState state, const QosEpochMessage *answer,
                           GArray *out)
{
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, tree->members);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        const Member *member = key;

        if (member->state != state)
            continue;
        if (answer != NULL)
            put(out, member->id, answer->type, member->ticket, answer->epoch, NULL);
        g_hash_table_iter_remove(&iter);
    }
}

/* The data of all members, which are READY, as one. */
static GBytes *reduce(const Tree *tree)
{
    guint64 buffer[2]
                  [QOS_EPOCH_DATA_MAX / sizeof(guint64)]; /* in turns: combine() reads the other */
    gconstpointer sum = NULL;
    gsize length = 0;
    guint count = 0;
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, tree->members);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        GBytes *bytes = ((const Member *)key)->data;
        gsize size;
        gconstpointer data = g_bytes_get_data(bytes, &size);

        if (g_hash_table_size(tree->members) == 1)
            return g_bytes_ref(bytes);
        if (count++ == 0) {
            sum = data;
            length = size;
        } else {
            tree->config.reduction.combine(buffer[count % 2], sum, length, data, size);
            sum = buffer[count % 2];
            length = MIN(length, size);
        }
    }
    return g_bytes_new(sum, length);
}

/* Changes all members from READY to PASSED. Returns the oldest epoch that one of them is in. Only
 * epochs of the latest incarnation count, because a coordinator does not know what its other
 * incarnations began. */
static gint64 pass_members(Tree *tree)
{
    gint64 oldest = QOS_EPOCH_FIRST;
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, tree->members);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        Member *member = key;
        gint64 later = incarnation_of(member->epoch) - incarnation_of(oldest);

        set_member_state(tree, member, MEMBER_PASSED);
        if (later > 0 || (later == 0 && member->epoch < oldest))
            oldest = member->epoch;
    }
    return oldest;
}

/* --- states --- */

typedef enum {
    EVENT_EMPTY,      /* the members have changed: none is left */
    EVENT_NONE_READY, /*   none is ready */
    EVENT_SOME_READY,
    EVENT_ALL_READY,
    EVENT_TIMER,
    EVENT_STARTED, /* the parent's answer, or what the coordinator would have from one */
    EVENT_REFUSED,
    EVENTS,
} Event;

typedef void Action(Tree *tree, const QosEpochMessage *answer, QosTime now, GArray *out);

static gboolean feed(Tree *tree, Event event, const QosEpochMessage *answer, QosTime now,
                     GArray *out);

/* Does what follows from the members that there are now. */
static void settle(Tree *tree, QosTime now, GArray *out)
{
    guint members = g_hash_table_size(tree->members);
    Event event = members == 0             ? EVENT_EMPTY
                  : tree->ready == 0       ? EVENT_NONE_READY
                  : tree->ready == members ? EVENT_ALL_READY
                                           : EVENT_SOME_READY;

    feed(tree, event, NULL, now, out);
}

static void nothing(Tree *tree G_GNUC_UNUSED, const QosEpochMessage *answer G_GNUC_UNUSED,
                    QosTime now G_GNUC_UNUSED, GArray *out G_GNUC_UNUSED)
{
}

static void arm(Tree *tree, const QosEpochMessage *answer G_GNUC_UNUSED, QosTime now,
                GArray *out G_GNUC_UNUSED)
{
    tree->timer = qos_time_add(now, tree->config.timeout);
}

static void disarm(Tree *tree, const QosEpochMessage *answer G_GNUC_UNUSED,
                   QosTime now G_GNUC_UNUSED, GArray *out G_GNUC_UNUSED)
{
    tree->timer = QOS_NEVER;
}

static void evict(Tree *tree, const QosEpochMessage *answer G_GNUC_UNUSED, QosTime now, GArray *out)
{
    remove_members(tree, MEMBER_RUNNING, NULL, out);
    settle(tree, now, out);
}

/* The coordinator is its own parent. */
static void answer_itself(Tree *tree, QosTime now, GArray *out)
{
    gint64 epoch = epoch_after(tree);
    const QosEpochMessage start = {.type = QOS_EPOCH_START, .epoch = epoch, .data = tree->passed};
    const QosEpochMessage refuse = {.type = QOS_EPOCH_REFUSE, .epoch = -EOVERFLOW};

    if (epoch > 0)
        feed(tree, EVENT_STARTED, &start, now, out);
    else
        feed(tree, EVENT_REFUSED, &refuse, now, out);
}

static void pass(Tree *tree, const QosEpochMessage *answer G_GNUC_UNUSED, QosTime now, GArray *out)
{
    tree->passed = reduce(tree);
    tree->passed_epoch = pass_members(tree);
    tree->ticket++;
    if (tree->config.parent == QOS_EPOCH_HERE)
        answer_itself(tree, now, out);
    else
        send_ready(tree, now, out);
}

static void repeat(Tree *tree, const QosEpochMessage *answer G_GNUC_UNUSED, QosTime now,
                   GArray *out)
{
    send_ready(tree, now, out);
}

static void start(Tree *tree, const QosEpochMessage *answer, QosTime now, GArray *out)
{
    GHashTableIter iter;
    gpointer key;

    tree->handler.epoch = answer->epoch;
    g_clear_pointer(&tree->reduced, g_bytes_unref);
    tree->reduced = g_bytes_ref(answer->data);
    g_clear_pointer(&tree->passed, g_bytes_unref);
    tree->timer = QOS_NEVER;
    g_hash_table_iter_init(&iter, tree->members);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        Member *member = key;

        if (member->state == MEMBER_PASSED) {
            set_member_state(tree, member, MEMBER_RUNNING);
            put_start(tree, member, out);
        } else if (is_stale(tree, member->epoch)) {
            put(out, member->id, QOS_EPOCH_REFUSE, member->ticket, -ESTALE, NULL);
            tree->ready--;
            g_hash_table_iter_remove(&iter);
        }
    }
    settle(tree, now, out);
}

static void refuse(Tree *tree, const QosEpochMessage *answer, QosTime now, GArray *out)
{
    g_clear_pointer(&tree->passed, g_bytes_unref);
    tree->timer = QOS_NEVER;
    remove_members(tree, MEMBER_PASSED, answer, out);
    settle(tree, now, out);
}

static void leave(Tree *tree, const QosEpochMessage *answer G_GNUC_UNUSED,
                  QosTime now G_GNUC_UNUSED, GArray *out)
{
    g_clear_pointer(&tree->passed, g_bytes_unref);
    tree->timer = QOS_NEVER;
    if (tree->config.parent != QOS_EPOCH_HERE)
        put(out, tree->config.parent, QOS_EPOCH_LEAVE, ++tree->ticket, 0, NULL);
}

/* The effect of each event, and the state after it; an event that is not listed is impossible, and
 * refused. */
static const struct {
    Action *action;
    QosEpochState next;
} steps[][EVENTS] = {
    [QOS_EPOCH_IDLE] =
        {
            [EVENT_ALL_READY] = {pass, QOS_EPOCH_PASSED},
        },
    [QOS_EPOCH_WAITING] =
        {
            [EVENT_EMPTY] = {leave, QOS_EPOCH_IDLE},
            [EVENT_NONE_READY] = {nothing, QOS_EPOCH_WAITING},
            [EVENT_SOME_READY] = {arm, QOS_EPOCH_CLOSING},
            [EVENT_ALL_READY] = {pass, QOS_EPOCH_PASSED},
        },
    [QOS_EPOCH_CLOSING] =
        {
            [EVENT_EMPTY] = {leave, QOS_EPOCH_IDLE},
            [EVENT_NONE_READY] = {disarm, QOS_EPOCH_WAITING},
            [EVENT_SOME_READY] = {nothing, QOS_EPOCH_CLOSING},
            [EVENT_ALL_READY] = {pass, QOS_EPOCH_PASSED},
            [EVENT_TIMER] = {evict, QOS_EPOCH_CLOSING},
        },
    [QOS_EPOCH_PASSED] =
        {
            [EVENT_EMPTY] = {leave, QOS_EPOCH_IDLE},
            [EVENT_NONE_READY] = {nothing, QOS_EPOCH_PASSED},
            [EVENT_SOME_READY] = {nothing, QOS_EPOCH_PASSED},
            [EVENT_ALL_READY] = {nothing, QOS_EPOCH_PASSED},
            [EVENT_TIMER] = {repeat, QOS_EPOCH_PASSED},
            [EVENT_STARTED] = {start, QOS_EPOCH_WAITING},
            [EVENT_REFUSED] = {refuse, QOS_EPOCH_WAITING},
        },
};

static gboolean feed(Tree *tree, Event event, const QosEpochMessage *answer, QosTime now,
                     GArray *out)
{
    Action *action = steps[tree->handler.state][event].action;

    if (action == NULL)
        return FALSE;
    tree->handler.state = steps[tree->handler.state][event].next;
    action(tree, answer, now, out);
    return TRUE;
}

/* --- the handler --- */

/* A member, new or not, is ready, with a new ticket. */
static gboolean take_ready(Tree *tree, guint64 id, const QosEpochMessage *ready, QosTime now,
                           GArray *out)
{
    Member *member = find_member(tree, id);

    if (is_stale(tree, ready->epoch)) {
        put(out, id, QOS_EPOCH_REFUSE, ready->ticket, -ESTALE, NULL);
        if (member != NULL) {
            remove_member(tree, member);
            settle(tree, now, out);
        }
        return FALSE;
    }
    if (member == NULL)
        member = add_member(tree, id);
    set_member_state(tree, member, MEMBER_RUNNING); /* lets go of older data */
    member->ticket = ready->ticket;
    member->epoch = ready->epoch;
    member->data = g_bytes_ref(ready->data);
    set_member_state(tree, member, MEMBER_READY);
    settle(tree, now, out);
    return TRUE;
}

static int tree_next(QosEpochHandler *handler, gint64 epoch, GBytes *data, QosTime now, GArray *out)
{
    Tree *tree = (Tree *)handler;
    const Member *member = find_member(tree, QOS_EPOCH_HERE);
    const QosEpochMessage ready = {.type = QOS_EPOCH_READY, .epoch = epoch, .data = data};

    if (member != NULL && member->state != MEMBER_RUNNING)
        return -EBUSY;
    tree->here_timer = qos_time_add(now, tree->config.patience);
    take_ready(tree, QOS_EPOCH_HERE, &ready, now, out);
    return 0;
}

static int tree_last(QosEpochHandler *handler, gint64 epoch G_GNUC_UNUSED, QosTime now, GArray *out)
{
    Tree *tree = (Tree *)handler;
    Member *member = find_member(tree, QOS_EPOCH_HERE);

    if (member == NULL)
        return -EINVAL;
    remove_member(tree, member);
    settle(tree, now, out);
    return 0;
}

static gboolean receive_ready(Tree *tree, guint64 from, const QosEpochMessage *ready, QosTime now,
                              GArray *out)
{
    const Member *member = find_member(tree, from);

    if (from == tree->config.parent || ready->epoch < 0)
        return FALSE;
    if (member == NULL || ready->ticket > member->ticket)
        return take_ready(tree, from, ready, now, out);
    if (ready->ticket == member->ticket && member->state == MEMBER_RUNNING)
        put_start(tree, member, out); /* it seems to be lost */
    return FALSE;
}

static gboolean receive_leave(Tree *tree, guint64 from, const QosEpochMessage *message, QosTime now,
                              GArray *out)
{
    Member *member = find_member(tree, from);

    if (member == NULL || message->ticket <= member->ticket)
        return FALSE;
    remove_member(tree, member);
    settle(tree, now, out);
    return TRUE;
}

static gboolean is_answer(const Tree *tree, guint64 from, const QosEpochMessage *message)
{
    return from == tree->config.parent && message->ticket == tree->ticket;
}

/* The data of a message in this machine's byte order, a new reference. */
static GBytes *take_data(const Tree *tree, const QosEpochMessage *message)
{
    if (message->data == NULL)
        return g_bytes_new(NULL, 0);
    if (!message->is_swapped)
        return g_bytes_ref(message->data);

    gsize length;
    gconstpointer data = g_bytes_get_data(message->data, &length);
    gpointer copy = g_memdup2(data, length);
    tree->config.reduction.swab(copy, length);
    return g_bytes_new_take(copy, length);
}

static gboolean tree_receive(QosEpochHandler *handler, guint64 from, const QosEpochMessage *message,
                             QosTime now, GArray *out)
{
    Tree *tree = (Tree *)handler;
    g_autoptr(GBytes) data = take_data(tree, message);
    const QosEpochMessage taken = {
        .type = message->type, .ticket = message->ticket, .epoch = message->epoch, .data = data};

    switch (message->type) {
    case QOS_EPOCH_READY:
        return receive_ready(tree, from, &taken, now, out);
    case QOS_EPOCH_LEAVE:
        return receive_leave(tree, from, &taken, now, out);
    case QOS_EPOCH_START:
        return is_answer(tree, from, &taken) && taken.epoch > handler->epoch &&
               feed(tree, EVENT_STARTED, &taken, now, out);
    case QOS_EPOCH_REFUSE:
        return is_answer(tree, from, &taken) && taken.epoch < 0 &&
               feed(tree, EVENT_REFUSED, &taken, now, out);
    }
    return FALSE;
}

/* Calls the scheduler here back. This is the only place that does. */
static void give_up(Tree *tree, Member *here, QosTime now, GArray *out)
{
    put(out, QOS_EPOCH_HERE, QOS_EPOCH_REFUSE, here->ticket, -ETIMEDOUT, NULL);
    remove_member(tree, here);
    settle(tree, now, out);
}

static QosTime tree_tick(QosEpochHandler *handler, QosTime now, GArray *out)
{
    Tree *tree = (Tree *)handler;

    if (now >= tree->timer)
        feed(tree, EVENT_TIMER, NULL, now, out);

    Member *here = find_member(tree, QOS_EPOCH_HERE);
    if (here == NULL || here->state == MEMBER_RUNNING)
        return tree->timer;
    if (now < tree->here_timer)
        return MIN(tree->timer, tree->here_timer);
    give_up(tree, here, now, out);
    return tree->timer;
}

static void tree_free(QosEpochHandler *handler)
{
    Tree *tree = (Tree *)handler;

    g_hash_table_unref(tree->members);
    g_clear_pointer(&tree->passed, g_bytes_unref);
    g_clear_pointer(&tree->reduced, g_bytes_unref);
    g_free(tree);
}

QosEpochHandler *qos_epoch_tree_new(const QosEpochConfig *config)
{
    static const QosEpochClass class = {
        .next = tree_next,
        .last = tree_last,
        .receive = tree_receive,
        .tick = tree_tick,
        .free = tree_free,
    };

    if (config->incarnation < 1 || config->incarnation > QOS_EPOCH_INCARNATION_MAX ||
        config->timeout <= 0 || config->retry <= 0 || config->patience <= 0)
        return NULL;

    Tree *tree = g_new0(Tree, 1);
    tree->handler.class = &class;
    tree->config = *config;
    tree->members = g_hash_table_new_full(g_int64_hash, g_int64_equal, member_free, NULL);
    tree->ticket = (guint64)config->incarnation << QOS_EPOCH_COUNT_BITS;
    tree->timer = QOS_NEVER;
    return &tree->handler;
}
