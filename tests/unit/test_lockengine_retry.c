/*
 * Changes that were refused a credit: when they ask again, and when they give up. The mounts are
 * engines (fs/lockengine/engine.h) with the server's owner at the other end, in virtual time.
 */
#include "fs/lockengine/retry.h"
#include "lockengine_fixture.h"

/* What fs/coherence/op_credits.c does: asks until it has it, or there is no hope. */
typedef struct {
    QosLockUse use;
    World *world;
    guint mount, number;
    QosTime since;
    guint asked;
    gboolean is_retrying, has_ended;
    QosCreditVerdict verdict;
} Change;

static void ask(Change *change);

static void refused(Change *change, QosCreditVerdict verdict)
{
    World *w = change->world;

    change->is_retrying = TRUE;
    verdict = qos_lockengine_retry(w->mounts[change->mount].engine, &change->use, verdict,
                                   &change->since, w->now);
    change->has_ended = verdict != QOS_CREDIT_WAITING;
    change->verdict = verdict;
}

static void told(QosLockUse *use, QosCreditVerdict verdict)
{
    Change *change = (Change *)use;
    gboolean was_retrying = change->is_retrying;

    g_assert_false(change->has_ended);
    change->is_retrying = FALSE;
    if (was_retrying) {
        g_assert_cmpint(verdict, ==, QOS_CREDIT_RETRY);
        ask(change);
    } else if (verdict == QOS_CREDIT_GRANTED) {
        change->has_ended = TRUE;
        change->verdict = verdict;
    } else {
        refused(change, verdict);
    }
}

static void ask(Change *change)
{
    World *w = change->world;
    QosResource resource = inode(change->number);

    change->use = (QosLockUse){.done = told, .delay = change->use.delay};
    change->asked++;
    QosCreditVerdict verdict =
        qos_lockengine_get(w->mounts[change->mount].engine, &resource, &writing,
                           QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, &change->use, w->now);
    if (verdict != QOS_CREDIT_WAITING)
        told(&change->use, verdict);
}

static void begin(World *w, guint mount, guint number, Change *change)
{
    *change = (Change){.world = w, .mount = mount, .number = number};
    ask(change);
    settle(w);
}

static void finish(Change *change)
{
    qos_lockengine_put(change->world->mounts[change->mount].engine, &change->use,
                       change->world->now);
}

static gboolean may_grant(QosOwnerId borrower G_GNUC_UNUSED,
                          const QosResource *resource G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED,
                          QosTime *ret_delay, gpointer arg)
{
    *ret_delay = QOS_SECOND;
    return *(const gboolean *)arg;
}

/* With a server that has room while *has_room. */
static void init_full(World *w, gboolean *has_room)
{
    QosOwnerConfig config;

    init(w);
    stop_server(w);
    g_hash_table_remove_all(w->clients);
    qos_owner_config_init(&config, SERVER, ++w->incarnation);
    config.lends = TRUE;
    config.lease = LEASE;
    config.may_grant = may_grant;
    config.arg = has_room;
    w->server = qos_owner_new(&config, NULL, 0, w->now);
    for (guint i = 0; i < MOUNTS; i++)
        g_assert_true(connect_mount(w, &w->mounts[i]));
    pass(w, QOS_MILLISECOND);
}

/* A full server: the change waits, asks again when it was told to, and goes on when it is granted:
 * then the other mount has dropped what it had cached. */
static void test_full(void)
{
    gboolean has_room = TRUE;
    Change change;
    World w;

    init_full(&w, &has_room);
    visit(&w, 0, 7);
    has_room = FALSE;
    begin(&w, 1, 7, &change);
    g_assert_cmpuint(change.asked, ==, 1);
    g_assert_cmpuint(w.mounts[0].drops, ==, 1);
    pass(&w, QOS_SECOND / 2);
    g_assert_cmpuint(change.asked, ==, 1);
    pass(&w, QOS_SECOND);
    g_assert_cmpuint(change.asked, ==, 2);
    g_assert_false(change.has_ended);
    has_room = TRUE;
    pass(&w, QOS_SECOND);
    g_assert_true(change.has_ended);
    g_assert_cmpint(change.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(change.asked, ==, 3);
    g_assert_false(has(&w, 0, 7, reading));
    finish(&change);
    clear(&w);
}

static void test_full_for_good(void)
{
    gboolean has_room = FALSE;
    Change change;
    World w;

    init_full(&w, &has_room);
    begin(&w, 0, 7, &change);
    const QosTime begun = w.now;
    pass(&w, QOS_LOCKCLIENT_FULL - QOS_SECOND);
    g_assert_false(change.has_ended);
    pass(&w, 2 * QOS_SECOND);
    g_assert_true(change.has_ended);
    g_assert_cmpint(change.verdict, ==, QOS_CREDIT_RETRY);
    g_assert_cmpuint(change.asked, >=, 30);
    g_assert_cmpuint(change.asked, <=, 32);
    g_assert_cmpint(change.since, ==, begun);
    clear(&w);
}

/* A server that denies is asked again after a pause of ours. */
static void test_denied(void)
{
    QosLockUse use = {.done = told};
    QosRetry retry;
    QosTime since = 0;
    const QosTime begun = 1000 * QOS_SECOND;
    QosTime now = begun;
    guint asked = 1;

    qos_retry_init(&retry);
    g_assert_cmpint(qos_retry_next(&retry), ==, QOS_NEVER);
    while (qos_retry_begin(&retry, &use, QOS_CREDIT_DENIED, &since, TRUE, now) ==
           QOS_CREDIT_WAITING) {
        QosTime next = qos_retry_next(&retry);
        g_assert_cmpint(next, >, now);
        g_assert_null(qos_retry_take(&retry, next - 1));
        qos_retry_wake(&retry, now); /* it waits for something else */
        g_assert_true(qos_retry_take(&retry, next) == &use);
        now = next;
        asked++;
    }
    g_assert_cmpint(now, ==, begun + QOS_LOCKCLIENT_FULL);
    g_assert_cmpuint(asked, ==, 301);
    g_assert_false(qos_retry_remove(&retry, &use));
    qos_retry_clear(&retry);
}

/* The lender came back between the refusal and the wait for it. */
static void test_there_again(void)
{
    QosLockUse use = {.done = told};
    QosRetry retry;
    QosTime since = 0;
    const QosTime now = 1000 * QOS_SECOND;

    qos_retry_init(&retry);
    g_assert_cmpint(qos_retry_begin(&retry, &use, QOS_CREDIT_ERROR, &since, TRUE, now), ==,
                    QOS_CREDIT_WAITING);
    g_assert_true(qos_retry_take(&retry, now) == &use);
    g_assert_null(qos_retry_take(&retry, now));
    qos_retry_clear(&retry);
}

/* A mount that was stopped, and has lost all to others: what it was about to change waits until the
 * server knows it again, and calls the others back. */
static void test_stopped(void)
{
    Change change;
    World w;

    init(&w);
    visit(&w, 0, 7);
    cut(&w, &w.mounts[0]);
    for (QosTime slept = 0; slept < 2 * LEASE; slept += QOS_SECOND) {
        w.now += QOS_SECOND; /* of the first nobody hears */
        qos_owner_tick(w.server, w.now);
        drain_server(&w);
        qos_lockengine_tick(w.mounts[1].engine, w.now);
        take_events(&w, &w.mounts[1]);
        while (carry(&w, &w.mounts[1]))
            drain_server(&w);
    }
    visit(&w, 1, 7);
    begin(&w, 0, 7, &change);
    g_assert_false(change.has_ended);
    g_assert_true(has(&w, 1, 7, reading));
    pass(&w, QOS_LOCKCLIENT_AWAY / 2);
    g_assert_false(change.has_ended);
    g_assert_true(connect_mount(&w, &w.mounts[0]));
    pass(&w, QOS_SECOND);
    g_assert_true(change.has_ended);
    g_assert_cmpint(change.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_false(has(&w, 1, 7, reading));
    finish(&change);
    clear(&w);
}

/* The lease ends unseen, and the connection still stands. */
static void test_lease_ended_unseen(void)
{
    Change change;
    World w;

    init(&w);
    visit(&w, 0, 7);
    w.now += 2 * LEASE;
    begin(&w, 0, 7, &change);
    pass(&w, QOS_SECOND);
    g_assert_true(change.has_ended);
    g_assert_cmpint(change.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(w.mounts[0].lost, ==, 1);
    finish(&change);
    clear(&w);
}

/* Without a server all go on, some time after the first found none; when it was there again, that
 * time begins anew. */
static void test_no_server(void)
{
    Change first, second, third;
    World w;

    init(&w);
    stop_server(&w);
    pass(&w, 2 * LEASE);
    g_assert_false(w.mounts[0].is_up);
    begin(&w, 0, 7, &first);
    pass(&w, QOS_LOCKCLIENT_AWAY / 2);
    begin(&w, 0, 8, &second);
    g_assert_false(first.has_ended || second.has_ended);
    pass(&w, QOS_LOCKCLIENT_AWAY / 2);
    g_assert_true(first.has_ended && second.has_ended);
    g_assert_cmpint(first.verdict, ==, QOS_CREDIT_ERROR);
    g_assert_cmpint(second.verdict, ==, QOS_CREDIT_ERROR);
    begin(&w, 0, 9, &third);
    g_assert_true(third.has_ended);
    g_hash_table_remove_all(w.clients);
    start_server(&w);
    g_assert_true(connect_mount(&w, &w.mounts[0]));
    pass(&w, QOS_SECOND);
    g_assert_true(w.mounts[0].is_up);
    stop_server(&w);
    pass(&w, 2 * LEASE);
    begin(&w, 0, 9, &third);
    g_assert_false(third.has_ended);
    g_assert_true(qos_lockengine_withdraw(w.mounts[0].engine, &third.use, w.now));
    g_assert_false(qos_lockengine_withdraw(w.mounts[0].engine, &third.use, w.now));
    pass(&w, 2 * QOS_LOCKCLIENT_AWAY);
    g_assert_false(third.has_ended);
    clear(&w);
}

/* Nor is it told what was withdrawn when it had come due. */
static void test_withdrawn_when_due(void)
{
    Change change;
    World w;

    init(&w);
    stop_server(&w);
    pass(&w, 2 * LEASE);
    begin(&w, 0, 7, &change);
    w.now += QOS_LOCKCLIENT_AWAY;
    qos_lockengine_tick(w.mounts[0].engine, w.now);
    g_assert_true(qos_lockengine_has_events(w.mounts[0].engine));
    g_assert_true(qos_lockengine_withdraw(w.mounts[0].engine, &change.use, w.now));
    pass(&w, QOS_SECOND);
    g_assert_true(change.is_retrying && !change.has_ended);
    clear(&w);
}

/* While the server restarts within the lease, a change waits for its grace to end. */
static void test_restart(void)
{
    Change change;
    World w;

    init(&w);
    visit(&w, 1, 7);
    stop_server(&w);
    begin(&w, 0, 7, &change);
    start_server(&w);
    g_assert_true(connect_mount(&w, &w.mounts[0]));
    pass(&w, LEASE / 2);
    g_assert_true(qos_owner_in_grace(w.server));
    g_assert_false(change.has_ended);
    g_assert_true(has(&w, 1, 7, reading));
    g_assert_true(connect_mount(&w, &w.mounts[1]));
    pass(&w, QOS_SECOND);
    g_assert_cmpint(change.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_false(has(&w, 1, 7, reading));
    finish(&change);
    clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/retry/full", test_full);
    g_test_add_func("/lockengine/retry/full-for-good", test_full_for_good);
    g_test_add_func("/lockengine/retry/denied", test_denied);
    g_test_add_func("/lockengine/retry/there-again", test_there_again);
    g_test_add_func("/lockengine/retry/stopped", test_stopped);
    g_test_add_func("/lockengine/retry/lease-ended-unseen", test_lease_ended_unseen);
    g_test_add_func("/lockengine/retry/no-server", test_no_server);
    g_test_add_func("/lockengine/retry/withdrawn-when-due", test_withdrawn_when_due);
    g_test_add_func("/lockengine/retry/restart", test_restart);
    return g_test_run();
}
