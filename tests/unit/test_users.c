/*
 * One user with many jobs: what each job may take, its user may not take many times over.
 */
#include "sched_fixture.h"

#include "fs/slots.h"

static QosUser *user_of(Fixture *f, guint32 uid)
{
    return qos_jobs_user(qos_sched_jobs(f->sched), uid);
}

static QosRequest *request_of(Fixture *f, QosUser *user, guint job, QosOpcode opcode)
{
    g_autofree char *id = g_strdup_printf("job%u", job);
    QosRequest *request = request_new(f, id, opcode, 1);

    request->user = user;
    return request;
}

static void set_fair(Fixture *f)
{
    const QosAdaptConfig config = {
        .mode = QOS_ADAPT_FAIR, .period = QOS_ADAPT_PERIOD, .capacity = 100000};

    qos_sched_set_adapt(f->sched, &config, f->now);
}

/* Takes out what goes, and leaves it in the store. */
static void let_go(Fixture *f, GQueue *inside)
{
    for (QosRequest *due; (due = next(f)) != NULL;)
        g_queue_push_tail(inside, due);
}

static void offer(Fixture *f, QosRequest *request, GQueue *inside)
{
    if (enter(f, request) == QOS_GO)
        g_queue_push_tail(inside, request);
}

/* All that the user does in 100 jobs hangs. Others go on once it has as much inside as two jobs. */
static void check_hanging(const QosPolicyClass *policy, gboolean is_fair)
{
    enum { SLOTS = 16, JOBS = 100, MOST = 28 };
    Fixture f;
    GQueue inside = G_QUEUE_INIT;
    QosSchedState state;
    fixture_init(&f, policy, SLOTS);
    if (is_fair)
        set_fair(&f);
    QosUser *hog = user_of(&f, 1001);
    for (guint i = 0; i < JOBS; i++)
        offer(&f, request_of(&f, hog, i, QOS_OP_READ), &inside);
    for (guint i = 0; i < MOST; i++) { /* adaptive sharing may let in one at a time */
        f.now += QOS_STALL_TIME;
        let_go(&f, &inside);
    }
    g_assert_cmpuint(inside.length, ==, MOST);
    g_assert_cmpuint(hog->use.running, ==, MOST);
    g_assert_cmpuint(hog->user_queue.length, ==, JOBS - MOST);

    for (guint i = 0; i < JOBS; i++) {
        QosUser *guest = i % 2 == 0 ? NULL : user_of(&f, 1002);
        QosRequest *request = request_of(&f, guest, i, QOS_OP_READ); /* a job of the hog, too */
        offer(&f, request, &inside);
        let_go(&f, &inside);
        g_assert_true(g_queue_remove(&inside, request));
        leave(&f, request);
    }

    /* As the hog's requests end, its further ones go; some it gives up. */
    for (guint i = 0; i < 10; i++) {
        QosRequest *held = hog->user_queue.tail->data;
        qos_sched_cancel(f.sched, held, f.now);
        request_free(held);
    }
    guint left = 0;
    for (QosRequest *done; (done = g_queue_pop_head(&inside)) != NULL; left++) {
        leave(&f, done);
        f.now += QOS_MILLISECOND;
        let_go(&f, &inside);
        g_assert_cmpuint(hog->use.running, <=, MOST);
    }
    g_assert_cmpuint(left, ==, JOBS - 10);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running + state.at_limit + hog->use.running, ==, 0);
    fixture_clear(&f);
}

static void test_what_hangs_leaves_slots(void)
{
    for (guint i = 0; qos_policies[i] != NULL; i++) {
        check_hanging(qos_policies[i], FALSE);
        check_hanging(qos_policies[i], TRUE);
    }
}

/* What is held with the user goes as soon as there are more slots. */
static void test_more_slots(void)
{
    enum { JOBS = 20 };
    Fixture f;
    GQueue inside = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, 4);
    QosUser *user = user_of(&f, 1001);
    for (guint i = 0; i < JOBS; i++)
        offer(&f, request_of(&f, user, i, QOS_OP_READ), &inside);
    for (guint i = 0; i < 3; i++) {
        f.now += QOS_STALL_TIME;
        let_go(&f, &inside);
    }
    g_assert_cmpuint(inside.length, ==, 6);
    qos_sched_set_slots(f.sched, 64, f.now);
    let_go(&f, &inside);
    g_assert_cmpuint(inside.length, ==, JOBS);
    for (QosRequest *done; (done = g_queue_pop_head(&inside)) != NULL;)
        leave(&f, done);
    fixture_clear(&f);
}

/* A user may use any number of slots as long as nothing hangs, unless they are so many that what
 * may stall leaves none. */
static void test_shares(void)
{
    for (guint count = 1; count < 3000; count++) {
        QosSlots slots = {.count = count};
        QosUser user = {.use.running = count - 1};
        guint most = count + QOS_STALLED_MAX;

        g_assert_true(qos_slots_user_may(&slots, &user) || count > 7 * most / 8);
        user.use.running = most - most / 8;
        g_assert_false(qos_slots_user_may(&slots, &user));
    }
}

/* What must not wait, and what ends something. */
static void test_passing_is_bounded(void)
{
    enum { JOBS = 20 };
    Fixture f;
    GQueue inside = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, 1);
    QosUser *hog = user_of(&f, 1001), *guest = user_of(&f, 1002);
    for (guint i = 0; i < JOBS; i++) {
        for (guint k = 0; k < QOS_OVER_LIMIT_MAX; k++) {
            QosRequest *close = request_of(&f, hog, i, QOS_OP_CLOSE);
            if (enter_close(&f, close) == QOS_GO)
                g_queue_push_tail(&inside, close);
        }
    }
    g_assert_cmpuint(hog->use.over_limit, ==, QOS_OVER_LIMIT_USER);
    QosRequest *other = request_of(&f, guest, JOBS, QOS_OP_CLOSE);
    g_assert_cmpint(enter_close(&f, other), ==, QOS_GO);
    leave(&f, other);
    guint left = 0;
    for (QosRequest *done; (done = g_queue_pop_head(&inside)) != NULL; left++) {
        leave(&f, done);
        let_go(&f, &inside);
    }
    g_assert_cmpuint(left, ==, JOBS * QOS_OVER_LIMIT_MAX);
    g_assert_cmpuint(hog->use.over_limit + hog->use.running + hog->user_queue.length, ==, 0);
    fixture_clear(&f);
}

/* Keeps a request of `user` that has to wait, or takes it back: FALSE. */
static gboolean keeps(Fixture *f, GQueue *waiting, QosUser *user, guint job, QosParkPlace refusal)
{
    QosRequest *request = request_of(f, user, job, QOS_OP_READ);

    g_assert_cmpint(enter(f, request), ==, QOS_WAIT);
    QosParkPlace place = qos_sched_park_place(f->sched, request, TRUE);
    if (place == QOS_PARK_IN_MEMORY) {
        g_queue_push_tail(waiting, request);
        return TRUE;
    }
    g_assert_cmpint(place, ==, refusal);
    qos_sched_cancel(f->sched, request, f->now);
    request_free(request);
    return FALSE;
}

/* The hog's jobs wait, as many as there is room for. Another user's wait too, and are not refused.
 */
static void check_room(Fixture *f, guint most, guint all, QosParkPlace refusal)
{
    GQueue waiting = G_QUEUE_INIT;
    QosUser *hog = user_of(f, 1001), *guest = user_of(f, 1002);
    guint job = 0;

    fixture_rule(f, "start r jobid={*} rate=1 depth=1:1");
    QosRequest *running[] = {request_of(f, NULL, 0, QOS_OP_READ)};
    g_assert_cmpint(enter(f, running[0]), ==, QOS_GO);
    while (keeps(f, &waiting, hog, job++ % 8, refusal))
        ;
    g_assert_cmpuint(waiting.length, ==, most);
    while (keeps(f, &waiting, guest, 8, refusal))
        ;
    g_assert_cmpuint(waiting.length, ==, all);
    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;) {
        qos_sched_cancel(f->sched, request, f->now);
        request_free(request);
    }
    leave(f, running[0]);
    g_assert_cmpuint(hog->use.parked_bytes + hog->use.background, ==, 0);
    g_assert_cmpuint(guest->use.parked_bytes + guest->use.background, ==, 0);
    fixture_clear(f);
}

static void test_memory_is_bounded(void)
{
    Fixture f;

    fixture_init(&f, &qos_policy_tbf, 1);
    qos_sched_set_parked_max(f.sched, 64 << 10);
    qos_sched_set_request_memory(f.sched, 1 << 10);
    check_room(&f, 60, 64, QOS_PARK_NOWHERE);
}

static void test_the_background_is_bounded(void)
{
    Fixture f;

    fixture_init(&f, &qos_policy_tbf, 1);
    qos_sched_set_background_room(f.sched, 74); /* of which 65 may wait */
    check_room(&f, 61, 65, QOS_PARK_TOO_MANY);
}

/* JobIDs cost nothing: beyond so many all further ones are one job. */
static void test_jobs_are_bounded(void)
{
    QosJobs registry;
    qos_jobs_init(&registry, QOS_SECOND);
    QosUser *user = qos_jobs_user(&registry, 1001);
    g_assert_true(user == qos_jobs_user(&registry, 1001));
    QosJob *first = qos_jobs_job_for(&registry, user, "0", 0);
    for (guint i = 1; i < QOS_USER_JOBS_MAX + 100; i++) {
        g_autofree char *id = g_strdup_printf("%u", i + 1000000);
        QosJob *job = qos_jobs_job_for(&registry, user, id, 0);
        g_assert_cmpstr(job->id, ==, i < QOS_USER_JOBS_MAX ? id : "1001");
        qos_job_unref(job);
    }
    g_assert_cmpuint(g_hash_table_size(registry.by_id), ==, QOS_USER_JOBS_MAX + 1);

    /* What is there is found, and others' jobs are made. */
    QosJob *found = qos_jobs_job_for(&registry, user, "0", 0);
    g_assert_true(found == first);
    qos_job_unref(found);
    QosJob *other = qos_jobs_job_for(&registry, qos_jobs_user(&registry, 1002), "other", 0);
    g_assert_cmpstr(other->id, ==, "other");
    qos_job_unref(other);
    qos_job_unref(qos_jobs_job_for(&registry, NULL, "root's", 0));

    /* Those that end make room. */
    qos_jobs_expire(&registry, 2 * QOS_SECOND);
    g_assert_cmpuint(user->jobs, ==, 1);
    QosJob *later = qos_jobs_job_for(&registry, user, "later", 0);
    g_assert_cmpstr(later->id, ==, "later");
    qos_job_unref(later);
    qos_job_unref(first);
    qos_jobs_clear(&registry);
}

/* Random users, jobs, hangs and ends: nothing is lost, and no user has more than its limit. */
static void check_soak(guint32 seed)
{
    enum { STEPS = 4000, USERS = 3, JOBS = 12, SLOTS = 8, MOST = 14 };
    Fixture f;
    QosSchedState state;
    GQueue inside = G_QUEUE_INIT, waiting = G_QUEUE_INIT;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    fixture_init(&f, qos_policies[seed % 4], SLOTS);
    for (guint step = 0; step < STEPS || inside.length + waiting.length > 0; step++) {
        guint kind = (guint)g_rand_int_range(random, 0, 8);
        if (step % 1000 == 500 && seed % 3 == 0)
            set_fair(&f);
        f.now += kind == 0 ? QOS_STALL_TIME : QOS_MILLISECOND;
        if (kind < 4 && step < STEPS) {
            guint user = (guint)g_rand_int_range(random, 0, USERS);
            QosRequest *request = request_of(&f, user == 0 ? NULL : user_of(&f, 1000 + user),
                                             (guint)g_rand_int_range(random, 0, JOBS), QOS_OP_READ);
            gboolean goes =
                kind == 3 ? enter_close(&f, request) == QOS_GO : enter(&f, request) == QOS_GO;
            g_queue_push_tail(goes ? &inside : &waiting, request);
        } else if (kind == 4 && waiting.length > 0) {
            QosRequest *request = g_queue_pop_nth(
                &waiting, (guint)g_rand_int_range(random, 0, (gint32)waiting.length));
            qos_sched_cancel(f.sched, request, f.now);
            request_free(request);
        } else if (kind == 5 && waiting.length > 0) {
            qos_sched_boost(f.sched, waiting.head->data, f.now);
        } else if (kind > 5 && inside.length > 0 && (step >= STEPS || step % 3 == 0)) {
            leave(&f, g_queue_pop_nth(&inside,
                                      (guint)g_rand_int_range(random, 0, (gint32)inside.length)));
        }
        for (QosRequest *due; (due = next(&f)) != NULL;) {
            g_assert_true(g_queue_remove(&waiting, due));
            g_queue_push_tail(&inside, due);
        }
        for (guint user = 1; user < USERS; user++)
            g_assert_cmpuint(user_of(&f, 1000 + user)->use.running, <=, MOST);
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running + state.over_limit + state.at_limit, ==, 0);
    fixture_clear(&f);
}

static void test_soak(void)
{
    for (guint32 seed = 0; seed < 12; seed++)
        check_soak(seed);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/users/what-hangs-leaves-slots", test_what_hangs_leaves_slots);
    g_test_add_func("/users/more-slots", test_more_slots);
    g_test_add_func("/users/shares", test_shares);
    g_test_add_func("/users/passing-is-bounded", test_passing_is_bounded);
    g_test_add_func("/users/memory-is-bounded", test_memory_is_bounded);
    g_test_add_func("/users/the-background-is-bounded", test_the_background_is_bounded);
    g_test_add_func("/users/jobs-are-bounded", test_jobs_are_bounded);
    g_test_add_func("/users/soak", test_soak);
    return g_test_run();
}
