/*
 * Which mutexes a thread holds (sys/mutex.h): a bit for each kind. The kinds are in order, so the
 * highest bit is the innermost mutex that the thread holds.
 *
 * A thread that waits for a condition keeps its bit: it takes no other mutex meanwhile, and if it
 * is cancelled there, its clean-up unlocks the mutex as if it had been held all the time.
 */
#include "sys/mutex.h"

#define RANK(rank, kind, name) rank,
#define NAME(rank, kind, name) name,
#define BIT(kind)              (G_GUINT64_CONSTANT(1) << QOS_MUTEX_##kind)
/* All that may be held while `kind` is taken, and itself: two of a rank cannot be held. */
#define DOWN_TO(kind) (BIT(kind) | (BIT(kind) - 1))

static const guint8 ranks[] = {QOS_MUTEXES(RANK)};
static const char *const names[] = {QOS_MUTEXES(NAME)};

G_STATIC_ASSERT(G_N_ELEMENTS(ranks) <= 64);

/* docs/design/locking.md says why. */
static const struct {
    const char *name;
    guint64 may_be_held;
} calls[] = {
    [QOS_MUTEX_CALL_STORE] = {"a call on the store", 0},
    [QOS_MUTEX_CALL_KERNEL] = {"a reply or a notification", 0},
    [QOS_MUTEX_CALL_SOCKET] = {"a write to a socket", DOWN_TO(LINK)},
    [QOS_MUTEX_CALL_SQLITE] = {"SQLite", BIT(SETTING) | BIT(DB)},
};

static _Thread_local guint64 held;

/* Of a set that is not empty. */
static QosMutexKind innermost(guint64 kinds)
{
    return (QosMutexKind)(63 - __builtin_clzll(kinds));
}

void qos_mutex_note_lock(QosMutexKind kind)
{
    if (held != 0 && ranks[innermost(held)] >= ranks[kind])
        g_error("%s (rank %d) is taken while %s (rank %d) is held: see docs/design/locking.md",
                names[kind], ranks[kind], names[innermost(held)], ranks[innermost(held)]);
    held |= G_GUINT64_CONSTANT(1) << kind;
}

void qos_mutex_note_unlock(QosMutexKind kind)
{
    const guint64 bit = G_GUINT64_CONSTANT(1) << kind;

    if ((held & bit) == 0)
        g_error("%s is let go by a thread that does not hold it", names[kind]);
    held &= ~bit;
}

void qos_mutex_note_wait(QosMutexKind kind)
{
    const guint64 others = held & ~(G_GUINT64_CONSTANT(1) << kind);

    if (others == held)
        g_error("a thread waits with %s, which it does not hold", names[kind]);
    if (others != 0)
        g_error(
            "a thread waits with %s for a condition while %s is held: see docs/design/locking.md",
            names[kind], names[innermost(others)]);
}

void qos_mutex_note_call(QosMutexCall call)
{
    const guint64 wrong = held & ~calls[call].may_be_held;

    if (wrong != 0)
        g_error("%s is held across %s: see docs/design/locking.md", names[innermost(wrong)],
                calls[call].name);
}
