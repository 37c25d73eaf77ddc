/*
 * Tells a mount's own changes of a file from others'; fs/changes.h says what for.
 */
#include "fs/changes.h"

/* The coarsest clock that stamps files. */
#define STAMP_TICK (20 * QOS_MILLISECOND)
/* The kernel is told of an own change only after this time. If the file is not open for writing
 * through the page cache, the kernel may just be taking an answer. If it is open so, a write may
 * just be putting its data into a page. */
#define QUIET_CLOSED (100 * QOS_MILLISECOND)
#define QUIET_OPEN   (2 * QOS_SECOND)

static void close_window(QosChanges *changes)
{
    changes->from = G_MAXINT64;
    changes->to = G_MININT64;
}

void qos_changes_init(QosChanges *changes, gboolean is_local, QosTime patience)
{
    *changes = (QosChanges){.seen.size = -1, .is_local = is_local, .patience = patience};
    close_window(changes);
}

void qos_changes_note_foreign(QosChanges *changes, QosTime now)
{
    if (!changes->is_foreign)
        changes->foreign_at = now;
    changes->is_foreign = TRUE;
}

void qos_changes_append(QosChanges *changes, gint64 offset, gint64 size, QosTime now)
{
    if (size == offset)
        return;
    qos_changes_note_foreign(changes, now);
    changes->is_astray = TRUE;
}

void qos_changes_begin(QosChanges *changes, QosMoment moment)
{
    changes->running++;
    changes->changed_at = moment.now;
    changes->from = MIN(changes->from, moment.wall);
    changes->to = MAX(changes->to, moment.wall);
    changes->is_untold = TRUE;
}

void qos_changes_end(QosChanges *changes, QosMoment moment)
{
    changes->running--;
    changes->changed_at = moment.now;
    changes->to = MAX(changes->to, moment.wall);
}

static gboolean is_same(const QosChanges *changes, const QosStamp *stamp)
{
    return changes->seen.modified == stamp->modified && changes->seen.size == stamp->size;
}

/* Whether the new mtime or size may come from an own change. */
static gboolean may_be_own(const QosChanges *changes, const QosStamp *stamp)
{
    if (changes->from > changes->to)
        return FALSE;
    return !changes->is_local || (stamp->modified >= changes->from - STAMP_TICK &&
                                  (changes->running > 0 || stamp->modified <= changes->to));
}

/* All own changes had ended when the look began. */
static gboolean is_settled(const QosChanges *changes, QosTime asked)
{
    return changes->running == 0 && changes->changed_at < asked;
}

/* FALSE: something else has been seen since the look began, and this may be older. */
static gboolean is_in_order(const QosChanges *changes, const QosStamp *stamp, QosTime asked)
{
    return changes->seen_at < asked || is_same(changes, stamp);
}

void qos_changes_look(QosChanges *changes, const QosStamp *stamp, QosTime asked, QosMoment moment)
{
    const gboolean is_new = !is_same(changes, stamp);
    const gboolean is_own = may_be_own(changes, stamp);

    if (!is_in_order(changes, stamp, asked))
        return;
    if (is_new && !is_own && changes->seen.size >= 0)
        qos_changes_note_foreign(changes, moment.now);
    if (is_new)
        changes->may_repeat = !is_own && moment.wall - stamp->modified < STAMP_TICK;
    changes->seen = *stamp;
    changes->seen_at = moment.now;
    if (is_settled(changes, asked))
        close_window(changes);
}

/* Whether pages may be dropped now: at once, unless a WRITE is under way. Then they wait for it,
 * but no longer than `patience`. */
static gboolean may_drop(const QosChanges *changes, QosTime now)
{
    return changes->under_way == 0 || now - changes->foreign_at >= changes->patience;
}

static gboolean is_quiet(const QosChanges *changes, QosTime now)
{
    if (changes->running > 0 || changes->under_way > 0)
        return FALSE;
    if (changes->writers == 0)
        return now - changes->changed_at >= QUIET_CLOSED;
    return changes->kept == 0 && now - MAX(changes->changed_at, changes->kept_at) >= QUIET_OPEN;
}

gboolean qos_changes_may_tell(QosChanges *changes, const QosStamp *stamp, QosTime asked,
                              QosMoment moment)
{
    const gboolean is_late = !is_in_order(changes, stamp, asked);

    qos_changes_look(changes, stamp, asked, moment);
    if (is_late)
        return FALSE;
    if (changes->is_foreign && !may_drop(changes, moment.now))
        return FALSE;
    if (changes->is_astray && !may_drop(changes, moment.now))
        return FALSE;
    if (!changes->is_foreign && !changes->is_astray &&
        (changes->is_untold || changes->under_way > 0) && !is_quiet(changes, moment.now))
        return FALSE;
    /* The kernel does not take an answer where the file changed since it asked. */
    if (is_settled(changes, asked) && changes->under_way == 0)
        changes->is_foreign = changes->is_untold = changes->is_astray = FALSE;
    return TRUE;
}

void qos_changes_told(QosChanges *changes, const QosStamp *stamp, QosTime asked, QosMoment moment)
{
    changes->seen = *stamp;
    changes->seen_at = moment.now;
    changes->may_repeat = FALSE;
    if (is_settled(changes, asked))
        close_window(changes);
}

gboolean qos_changes_keep(QosChanges *changes, const QosStamp *stamp, QosTime asked,
                          QosMoment moment)
{
    const gboolean may_repeat = changes->may_repeat && is_same(changes, stamp);

    qos_changes_look(changes, stamp, asked, moment);
    if (may_repeat && changes->writers == 0) {
        qos_changes_note_foreign(changes, moment.now);
        changes->may_repeat = moment.wall - stamp->modified < STAMP_TICK;
    }
    if (!changes->is_foreign || !may_drop(changes, moment.now))
        return TRUE;
    changes->is_foreign = FALSE;
    return FALSE;
}
