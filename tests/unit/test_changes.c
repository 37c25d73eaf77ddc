/*
 * Which open file a change belongs to, and when the kernel is told of it.
 */
#include "fs/changes.h"

#define PATIENCE QOS_SECOND
#define LATER    (2 * QOS_SECOND)

static QosTime now;

/* Both clocks go together; each look and change takes a millisecond. */
static QosMoment tick(void)
{
    now += QOS_MILLISECOND;
    return (QosMoment){now, now};
}

static QosChanges file(gboolean is_local)
{
    QosChanges changes;

    now = 10 * QOS_SECOND;
    qos_changes_init(&changes, is_local, PATIENCE);
    changes.writers = 1;
    qos_changes_look(&changes, &(QosStamp){QOS_SECOND, 4096}, tick().now, tick());
    return changes;
}

/* Makes a change: the file's mtime after it. */
static gint64 change(QosChanges *changes)
{
    qos_changes_begin(changes, tick());
    const gint64 modified = tick().wall;
    qos_changes_end(changes, tick());
    return modified;
}

static gboolean tell(QosChanges *changes, gint64 modified, gint64 size)
{
    const QosTime asked = tick().now;

    return qos_changes_may_tell(changes, &(QosStamp){modified, size}, asked, tick());
}

static gboolean keep(QosChanges *changes, gint64 modified, gint64 size)
{
    const QosTime asked = tick().now;

    return qos_changes_keep(changes, &(QosStamp){modified, size}, asked, tick());
}

/* Withheld, and pages stay, until the file has been quiet; then the kernel knows. */
static void test_own(void)
{
    for (gboolean is_local = FALSE; is_local <= TRUE; is_local++) {
        QosChanges changes = file(is_local);
        gint64 modified = change(&changes);

        g_assert_false(tell(&changes, modified, 8192));
        g_assert_true(keep(&changes, modified, 8192));
        g_assert_false(tell(&changes, modified, 8192));
        now += LATER;
        g_assert_true(tell(&changes, modified, 8192));
        g_assert_true(tell(&changes, modified, 8192));
        g_assert_true(keep(&changes, modified, 8192));
        modified = change(&changes);
        g_assert_false(tell(&changes, modified, 8192));
    }
}

/* It may have put its data into a page, however long ago. */
static void test_own_under_way(void)
{
    QosChanges changes = file(TRUE);
    const gint64 modified = change(&changes);

    changes.under_way = 1;
    now += LATER;
    g_assert_false(tell(&changes, modified, 4096));
    g_assert_true(keep(&changes, modified, 4096));
    changes.under_way = 0;
    changes.kept = 1; /* a write waits for the page of a READ, with its data in another */
    g_assert_false(tell(&changes, modified, 4096));
    changes.kept = 0;
    changes.kept_at = now;
    g_assert_false(tell(&changes, modified, 4096));
    now += LATER;
    g_assert_true(tell(&changes, modified, 4096));
}

static void test_foreign(void)
{
    for (gboolean is_local = FALSE; is_local <= TRUE; is_local++) {
        QosChanges changes = file(is_local);

        g_assert_true(tell(&changes, 2 * QOS_SECOND, 4096));
        g_assert_false(keep(&changes, 3 * QOS_SECOND, 4096));
        g_assert_true(keep(&changes, 3 * QOS_SECOND, 4096));
        g_assert_false(keep(&changes, 3 * QOS_SECOND, 4097));
    }
}

/* On a local store the clock tells; also what was set to a time long ago. */
static void test_foreign_beside_own(void)
{
    QosChanges changes = file(TRUE);

    change(&changes);
    now += 100 * QOS_MILLISECOND;
    g_assert_true(tell(&changes, tick().wall, 4096)); /* after it */

    change(&changes);
    g_assert_true(tell(&changes, 5 * QOS_SECOND, 4096)); /* another time */

    const gint64 elsewhere = tick().wall; /* between two, with a look before the second */
    now += 100 * QOS_MILLISECOND;
    qos_changes_look(&changes, &(QosStamp){elsewhere, 4096}, tick().now, tick());
    const gint64 own = change(&changes);
    g_assert_false(keep(&changes, own, 4096));
    g_assert_false(tell(&changes, own, 4096));
}

/* It waits for a WRITE that is under way, but not for long. */
static void test_foreign_under_way(void)
{
    QosChanges changes = file(TRUE);

    changes.under_way = 1;
    g_assert_false(tell(&changes, 2 * QOS_SECOND, 4096));
    g_assert_true(keep(&changes, 2 * QOS_SECOND, 4096));
    now += PATIENCE;
    g_assert_true(tell(&changes, 2 * QOS_SECOND, 4096));
    changes.under_way = 0;
    g_assert_true(tell(&changes, 2 * QOS_SECOND, 4096)); /* that before may not have been taken */
    g_assert_true(keep(&changes, 2 * QOS_SECOND, 4096));
}

/* An answer that looked before a change, or before another look, brings an older mtime. */
static void test_late(void)
{
    QosChanges changes = file(TRUE);
    const QosTime asked = tick().now;
    const gint64 modified = change(&changes);

    g_assert_false(tell(&changes, modified, 4096));
    g_assert_false(qos_changes_may_tell(&changes, &(QosStamp){QOS_SECOND, 4096}, asked, tick()));
    g_assert_false(changes.is_foreign);
}

/* The answer to SETATTR brings the mtime without a drop, but the kernel may come to that of a
 * GETATTR before. */
static void test_told(void)
{
    QosChanges changes = file(TRUE);
    const gint64 modified = change(&changes);

    qos_changes_told(&changes, &(QosStamp){modified, 4096}, tick().now, tick());
    g_assert_false(tell(&changes, modified, 4096));
    now += LATER;
    g_assert_true(tell(&changes, modified, 4096));
}

/* What the kernel was told it may not have taken; a WRITE that waits must not lose its pages. */
static void test_told_before_a_write(void)
{
    QosChanges changes = file(TRUE);
    const gint64 modified = change(&changes);

    now += LATER;
    g_assert_true(tell(&changes, modified, 4096));
    changes.under_way++;
    g_assert_false(tell(&changes, modified, 4096));
}

/* A file that changed within a tick may have changed once more since it was seen. */
static void test_same_tick(void)
{
    QosChanges changes = file(TRUE);
    const gint64 modified = tick().wall;

    changes.writers = 0;
    g_assert_false(keep(&changes, modified, 4096));
    g_assert_false(keep(&changes, modified, 4096));
    now += LATER;
    g_assert_false(keep(&changes, modified, 4096));
    g_assert_true(keep(&changes, modified, 4096));
}

/* The kernel does not know where an append came to lie that it took for a write elsewhere: the next
 * answer tells, also after an OPEN that dropped the pages. */
static void test_an_append_elsewhere(void)
{
    for (guint opens = 0; opens < 2; opens++) {
        QosChanges changes = file(TRUE);

        qos_changes_append(&changes, 4097, 4097, now); /* whatever was seen before */
        g_assert_false(changes.is_astray);
        qos_changes_append(&changes, 3, 4096, now);
        const gint64 modified = change(&changes);
        if (opens)
            g_assert_false(keep(&changes, modified, 4098));
        g_assert_true(tell(&changes, modified, 4098));
        g_assert_false(changes.is_astray);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/changes/own", test_own);
    g_test_add_func("/changes/own-under-way", test_own_under_way);
    g_test_add_func("/changes/foreign", test_foreign);
    g_test_add_func("/changes/foreign-beside-own", test_foreign_beside_own);
    g_test_add_func("/changes/foreign-under-way", test_foreign_under_way);
    g_test_add_func("/changes/late", test_late);
    g_test_add_func("/changes/told", test_told);
    g_test_add_func("/changes/told-before-a-write", test_told_before_a_write);
    g_test_add_func("/changes/same-tick", test_same_tick);
    g_test_add_func("/changes/an-append-elsewhere", test_an_append_elsewhere);
    return g_test_run();
}
