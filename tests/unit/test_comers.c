/*
 * Who comes by a file's name, or is told news of it: when he is looked at, when he waits, and what
 * many of them may take.
 */
#include "fs/comers.h"
#include "fs/turns.h"

#define MS QOS_MILLISECOND

typedef struct {
    QosAccount account;
    QosComers *comers;
    QosJob *job, *other;
    QosTime now;
} Fixture;

static void set_up(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    qos_account_init(&f->account, QOS_NEVER);
    f->comers = qos_comers_new();
    f->job = qos_account_job(&f->account, "job", 0);
    f->other = qos_account_job(&f->account, "other", 0);
    f->now = 1000 * QOS_SECOND;
}

static void tear_down(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    qos_comers_free(f->comers);
    qos_job_unref(f->job);
    qos_job_unref(f->other);
    qos_account_clear(&f->account);
}

static void note(Fixture *f, gint thread, guint64 file)
{
    qos_comers_note(f->comers, thread, file, f->job, NULL, f->now);
}

/* The next look is at `thread` after `pause`, and finds it so. Whether it waits. */
static gboolean look(Fixture *f, QosTime pause, gint thread, char state)
{
    QosTime wake;
    QosComer comer;

    g_assert_cmpint(qos_comers_next(f->comers, f->now + pause - 1, &wake), ==, 0);
    g_assert_cmpint(wake, ==, f->now + pause);
    f->now += pause;
    g_assert_cmpint(qos_comers_next(f->comers, f->now, &wake), ==, thread);
    if (!qos_comers_seen(f->comers, thread, state, f->now, &comer))
        return FALSE;
    qos_comer_clear(&comer);
    return TRUE;
}

static void assert_nobody_is_due(Fixture *f)
{
    QosTime wake;

    g_assert_cmpint(qos_comers_next(f->comers, f->now, &wake), ==, 0);
    g_assert_cmpint(wake, ==, QOS_NEVER);
}

static void test_looks(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    assert_nobody_is_due(f);
    g_assert_cmpint(qos_comers_note(f->comers, 7, 1, f->job, NULL, f->now), ==, f->now + 2 * MS);
    for (QosTime pause = 2 * MS; pause <= 4 * QOS_SECOND; pause *= 2)
        g_assert_false(look(f, pause, 7, 'S'));
    assert_nobody_is_due(f);
    note(f, 7, 1);
    g_assert_false(look(f, 2 * MS, 7, 'S'));
    f->now += MS;
    note(f, 7, 1); /* anew from his last look-up on */
    g_assert_false(look(f, 2 * MS, 7, 'S'));
    g_assert_false(look(f, 4 * MS, 7, 0)); /* he has ended */
    assert_nobody_is_due(f);
    QosComer comer;
    g_assert_false(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
}

static void test_waiting(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    note(f, 7, 1);
    note(f, 7, 2); /* rename(2) */
    g_assert_false(look(f, 2 * MS, 7, 'D'));
    g_assert_false(look(f, 4 * MS, 7, 'R')); /* it was a page's */
    g_assert_false(look(f, 8 * MS, 7, 'D'));
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 0);
    g_assert_true(look(f, 16 * MS, 7, 'D'));
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 1);
    for (guint64 file = 0; file < 4; file++) {
        g_assert_cmpint(qos_comers_wait_for(f->comers, file, f->other), ==, file == 1 || file == 2);
        g_assert_false(qos_comers_wait_for(f->comers, file, f->job)); /* its own */
    }
    g_assert_true(look(f, 2 * MS, 7, 'D'));
    for (QosTime pause = 4 * MS; pause < 50 * MS; pause *= 2)
        g_assert_true(look(f, pause, 7, 'D'));
    for (guint i = 0; i < 1000; i++) /* as long as it sleeps */
        g_assert_true(look(f, 50 * MS, 7, 'D'));
    g_assert_false(look(f, 50 * MS, 7, 'S'));
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 0);
    g_assert_false(qos_comers_wait_for(f->comers, 1, f->other));
    g_assert_false(look(f, 2 * MS, 7, 'D')); /* for the next lock */
    g_assert_true(look(f, 4 * MS, 7, 'D'));
    note(f, 7, 3);
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 0);
}

/* Whom a waiter is told with. */
static void test_who_waits(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    QosComer comer;

    note(f, 7, 1);
    note(f, 7, 2);
    note(f, 7, 3);
    f->now += 2 * MS;
    g_assert_false(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
    g_assert_true(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
    g_assert_true(comer.job == f->job && comer.files[0] == 3 && comer.files[1] == 2);
    qos_comer_clear(&comer);
    qos_comers_note(f->comers, 7, 4, f->other, NULL, f->now); /* he works for another now */
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 0);
    g_assert_false(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
    g_assert_true(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
    g_assert_true(comer.job == f->other && comer.files[0] == 4 && comer.files[1] == 0);
    qos_comer_clear(&comer);
}

static void tell(Fixture *f, gint thread, guint64 request, guint64 file, gint64 size)
{
    qos_comers_tell(f->comers, thread, request, (QosTold){file, size}, f->job, NULL, f->now);
}

static gboolean wants_pages(const Fixture *f, guint64 file, gint64 end)
{
    return qos_comers_wait_for_pages(f->comers, file, end, 8);
}

/* Of what his last request told: for pages whatever his job, for the lock as who came by name. */
static void test_who_waits_for_pages(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    tell(f, 7, 1, 1, 4096);
    tell(f, 7, 2, 2, 4096);
    tell(f, 7, 2, 3, 0); /* a list */
    g_assert_false(look(f, 2 * MS, 7, 'D'));
    g_assert_false(wants_pages(f, 2, 0));
    g_assert_true(look(f, 4 * MS, 7, 'D'));
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 1);
    g_assert_true(wants_pages(f, 2, 0) && wants_pages(f, 2, 4096) && wants_pages(f, 3, 0));
    g_assert_false(wants_pages(f, 2, 4097) || wants_pages(f, 3, 1)); /* beyond the end */
    g_assert_false(wants_pages(f, 1, 0));
    g_assert_false(qos_comers_wait_for_pages(f->comers, 2, 0, 7)); /* who asks is awake */
    g_assert_true(qos_comers_wait_for(f->comers, 2, f->other));
    g_assert_false(qos_comers_wait_for(f->comers, 1, f->other));
    g_assert_false(qos_comers_wait_for(f->comers, 2, f->job));
    g_assert_false(look(f, 2 * MS, 7, 'R'));
    g_assert_false(wants_pages(f, 2, 0));
}

/* One who gives up takes nothing from another. */
static void test_two_wait_for_one_file(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    QosComer comer;

    tell(f, 7, 1, 1, 4096);
    qos_comers_note(f->comers, 7, 1, f->job, NULL, f->now); /* by its name too */
    qos_comers_tell(f->comers, 9, 2, (QosTold){1, 100}, f->other, NULL, f->now);
    for (gint thread = 7; thread <= 9; thread += 2) {
        g_assert_false(qos_comers_seen(f->comers, thread, 'D', f->now, &comer));
        g_assert_true(qos_comers_seen(f->comers, thread, 'D', f->now, &comer));
        qos_comer_clear(&comer);
    }
    g_assert_cmpuint(qos_comers_waiting(f->comers), ==, 2);
    g_assert_true(wants_pages(f, 1, 4096));
    tell(f, 7, 3, 2, 0); /* it is awake */
    g_assert_true(wants_pages(f, 1, 100));
    g_assert_false(wants_pages(f, 1, 101));
    g_assert_true(qos_comers_wait_for(f->comers, 1, f->job));
    g_assert_false(qos_comers_wait_for(f->comers, 1, f->other));
}

static void test_a_long_list(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    QosComer comer;

    for (guint64 file = 1; file <= QOS_COMER_TOLD + 1; file++)
        tell(f, 7, 1, file, 0);
    f->now += 2 * MS;
    g_assert_false(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
    g_assert_true(qos_comers_seen(f->comers, 7, 'D', f->now, &comer));
    tell(f, 7, 2, 1, 0); /* not to him who has him already */
    g_assert_cmpuint(comer.told->len, ==, QOS_COMER_TOLD);
    g_assert_cmpuint(g_array_index(comer.told, QosTold, 0).file, ==, 2);
    qos_comer_clear(&comer);
}

/* Threads from `first` on that find room, of `count` that come for `job` and `user`. */
static guint crowd(Fixture *f, gint first, guint count, QosJob *job, QosUser *user)
{
    guint came = 0;

    for (guint i = 0; i < count; i++) {
        const gint thread = first + (gint)i;
        QosComer comer;

        qos_comers_note(f->comers, thread, 1, job, user, f->now);
        qos_comers_seen(f->comers, thread, 'D', f->now, &comer);
        if (qos_comers_seen(f->comers, thread, 'D', f->now, &comer)) {
            qos_comer_clear(&comer);
            came++;
        }
    }
    return came;
}

static void test_share_of_a_job(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_cmpuint(crowd(f, 1, 2000, f->job, NULL), ==, QOS_COMERS_MAX * 7 / 8);
    g_assert_cmpuint(crowd(f, 2001, 2000, f->other, NULL), ==, QOS_COMERS_MAX * 7 / 64);
    for (gint thread = 1; thread <= 100; thread++)
        qos_comers_seen(f->comers, thread, 0, f->now, NULL);
    g_assert_cmpuint(crowd(f, 2001, 2000, f->other, NULL), >, QOS_COMERS_MAX * 7 / 64);
}

static void test_share_of_a_user(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    QosUser *user = qos_account_user(&f->account, 1000), *guest = qos_account_user(&f->account, 1);
    guint came = 0;

    for (guint i = 0; i < 20; i++) {
        g_autofree char *id = g_strdup_printf("forged%u", i);
        QosJob *job = qos_account_job(&f->account, id, f->now);
        came += crowd(f, (gint)(1 + 100 * i), 100, job, user);
        qos_job_unref(job);
    }
    g_assert_cmpuint(came, ==, QOS_COMERS_MAX * 15 / 16);
    g_assert_cmpuint(crowd(f, 10000, 20, f->other, guest), ==, 20);
}

/* Those due now; a round at the most after when the guest, thread 1000, is to be looked at, he is.
 * The others come again and again. */
static guint look_at_all(Fixture *f, QosUser *user, QosTime *guest, QosTime *guest_pause)
{
    guint looks = 0;
    QosTime wake;
    QosComer comer;
    gint thread;

    for (; (thread = qos_comers_next(f->comers, f->now, &wake)) != 0; looks++) {
        g_assert_false(qos_comers_seen(f->comers, thread, 'R', f->now, &comer));
        if (thread == 1000)
            *guest = f->now + (*guest_pause *= 2);
        else
            qos_comers_note(f->comers, thread, 1, f->job, user, f->now);
    }
    g_assert_cmpint(f->now - *guest, <, QOS_TURNS_ROUND);
    return looks;
}

static void test_looks_are_shared(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    const QosTime end = f->now + 10 * QOS_SECOND;
    QosUser *user = qos_account_user(&f->account, 1000);
    QosTime guest = 0, guest_pause = 0;
    guint looks = 0;

    for (gint thread = 1; thread <= 800; thread++)
        qos_comers_note(f->comers, thread, 1, f->job, user, f->now);
    for (; f->now < end; f->now += MS / 10) {
        if (f->now % (100 * MS) == 0) {
            guest = qos_comers_note(f->comers, 1000, 2, f->other, NULL, f->now);
            guest_pause = 2 * MS;
        }
        looks += look_at_all(f, user, &guest, &guest_pause);
    }
    g_assert_cmpuint(looks, <=, 10 * QOS_TURNS_LOOKS);
    g_assert_cmpuint(looks, >=, 9 * QOS_TURNS_LOOKS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, function) g_test_add(name, Fixture, NULL, set_up, function, tear_down)
    ADD("/comers/looks", test_looks);
    ADD("/comers/waiting", test_waiting);
    ADD("/comers/who-waits", test_who_waits);
    ADD("/comers/who-waits-for-pages", test_who_waits_for_pages);
    ADD("/comers/two-wait-for-one-file", test_two_wait_for_one_file);
    ADD("/comers/a-long-list", test_a_long_list);
    ADD("/comers/share-of-a-job", test_share_of_a_job);
    ADD("/comers/share-of-a-user", test_share_of_a_user);
    ADD("/comers/looks-are-shared", test_looks_are_shared);
    return g_test_run();
}
