/*
 * The pool: counts, bounds, the signal, and the laws step by step. That they settle a cluster is
 * test_pool_cluster.c's.
 */
#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "core/pool.h"

#define L         10000
#define HOUR      (3600 * QOS_SECOND)
#define TOLERANCE 1e-9

static const QosPoolConfig usual = {.limit = L, .hard_limit = 4 * L};

typedef struct {
    QosPool pool;
    QosPoolClient client;
    QosTime now;
} Fixture;

static void start(Fixture *f, const QosPoolConfig *config)
{
    g_assert_true(qos_pool_config_check(config, NULL));
    f->now = 7 * QOS_SECOND;
    qos_pool_init(&f->pool, config, 1, f->now);
    qos_pool_join(&f->pool, &f->client);
}

static QosPoolVerdict grant(Fixture *f, gint64 bytes)
{
    QosTime wait = 0;
    return qos_pool_grant(&f->pool, &f->client, bytes, f->now, &wait);
}

static void step(Fixture *f)
{
    f->now += QOS_POOL_STEP;
    g_assert_cmpint(qos_pool_step(&f->pool, f->now), ==, f->now + QOS_POOL_STEP);
}

/* A step in which G stays as it is while `bytes` come and go, so that SLR binds in full. */
static void turn_over(Fixture *f, gint64 bytes)
{
    qos_pool_adopt(&f->pool, &f->client, bytes);
    qos_pool_cancel(&f->pool, &f->client, bytes);
    step(f);
}

/* By what SLR is multiplied by a step with G = granted. */
static double factor_at(const QosPoolConfig *config, gint64 granted)
{
    Fixture f;
    start(&f, config);
    qos_pool_adopt(&f.pool, &f.client, granted);
    step(&f);
    double before = f.pool.rate;
    turn_over(&f, config->limit);
    return f.pool.rate / before;
}

static void assert_near(double value, double expected)
{
    g_assert_cmpfloat_with_epsilon(value / expected, 1, TOLERANCE);
}

/* --- numbers --- */

static void test_configuration(void)
{
    static const struct {
        QosPoolConfig config;
        const char *reason;
    } bad[] = {
        {{.limit = 0, .hard_limit = 1}, "the limit"},
        {{.limit = -1, .hard_limit = 1}, "the limit"},
        {{.limit = QOS_POOL_BYTES_MAX + 1, .hard_limit = G_MAXINT64}, "the limit"},
        {{.limit = 2, .hard_limit = 1}, "the hard limit"},
        {{.limit = 2, .hard_limit = QOS_POOL_BYTES_MAX + 1}, "the hard limit"},
        {{.limit = 2, .hard_limit = 2, .floor = 3}, "the floor"},
        {{.limit = 2, .hard_limit = 2, .floor = -1}, "the floor"},
        {{.limit = 2, .hard_limit = 2, .floor = 2, .cap = 1}, "the cap"},
        {{.limit = 2, .hard_limit = 2, .cap = -1}, "the cap"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(qos_pool_config_check(&bad[i].config, &error));
        g_assert_error(error, QOS_ERROR, ERANGE);
        g_assert_nonnull(strstr(error->message, bad[i].reason));
    }
    g_assert_true(qos_pool_config_check(&usual, NULL));
    g_assert_true(qos_pool_config_check(&(QosPoolConfig){.limit = 1, .hard_limit = 1}, NULL));
}

static void test_counts(void)
{
    Fixture f;
    QosPoolClient other;
    start(&f, &usual);
    qos_pool_join(&f.pool, &other);
    g_assert_cmpint(grant(&f, 300), ==, QOS_POOL_GRANTED);
    qos_pool_adopt(&f.pool, &other, 500);
    qos_pool_cancel(&f.pool, &f.client, 100);
    g_assert_cmpint(f.pool.granted, ==, 700);
    g_assert_cmpint(f.client.granted, ==, 200);
    qos_pool_cancel(&f.pool, &f.client, 201); /* more than there is, and less than nothing */
    qos_pool_cancel(&f.pool, &other, -1);
    g_assert_cmpint(f.client.granted, ==, 0);
    g_assert_cmpint(f.pool.granted, ==, 500);
    step(&f);
    g_assert_cmpint(f.pool.grant_speed, ==, 800);
    g_assert_cmpint(f.pool.cancel_speed, ==, 300);
    qos_pool_leave(&f.pool, &other);
    g_assert_cmpint(f.pool.granted, ==, 0);
    g_assert_cmpuint(f.pool.clients, ==, 1);
    qos_pool_adopt(&f.pool, &f.client, G_MAXINT64);
    g_assert_cmpint(f.pool.granted, ==, QOS_POOL_BYTES_MAX);
}

/* --- HL, cap, floor --- */

static void test_hard_limit(void)
{
    Fixture f;
    QosTime wait = -1;
    start(&f, &usual);
    g_assert_cmpint(grant(&f, 4 * L - 10), ==, QOS_POOL_GRANTED);
    f.now += QOS_POOL_STEP / 4;
    g_assert_cmpint(qos_pool_grant(&f.pool, &f.client, 11, f.now, &wait), ==, QOS_POOL_FULL);
    g_assert_cmpint(wait, ==, QOS_POOL_STEP * 7 / 4);
    g_assert_cmpuint(f.pool.refused, ==, 1);
    g_assert_cmpint(grant(&f, 10), ==, QOS_POOL_GRANTED);
    g_assert_cmpint(f.pool.granted, ==, 4 * L);
    /* A step that is late does not lengthen it. */
    f.now += HOUR;
    g_assert_cmpint(qos_pool_grant(&f.pool, &f.client, 1, f.now, &wait), ==, QOS_POOL_FULL);
    g_assert_cmpint(wait, ==, QOS_POOL_STEP);
    /* Replay, conversion and cancel pass. */
    qos_pool_adopt(&f.pool, &f.client, 5);
    g_assert_cmpint(f.pool.granted, ==, 4 * L + 5);
    qos_pool_cancel(&f.pool, &f.client, 6);
    g_assert_cmpint(grant(&f, 2), ==, QOS_POOL_FULL);
    g_assert_cmpint(grant(&f, 1), ==, QOS_POOL_GRANTED);
}

static void test_hard_limit_is_lowered(void)
{
    Fixture f;
    start(&f, &usual);
    g_assert_cmpint(grant(&f, 3 * L), ==, QOS_POOL_GRANTED);
    qos_pool_configure(&f.pool, &(QosPoolConfig){.limit = L, .hard_limit = 2 * L});
    g_assert_cmpint(f.pool.granted, ==, 3 * L);
    g_assert_cmpint(grant(&f, 1), ==, QOS_POOL_FULL);
    qos_pool_cancel(&f.pool, &f.client, L + 1);
    g_assert_cmpint(grant(&f, 1), ==, QOS_POOL_GRANTED);
}

static void test_cap(void)
{
    Fixture f;
    QosPoolClient other;
    QosPoolConfig config = usual;
    config.cap = 100;
    start(&f, &config);
    qos_pool_join(&f.pool, &other);
    qos_pool_adopt(&f.pool, &other, 1000); /* what it had before: it is asked for nothing */
    g_assert_cmpint(grant(&f, 101), ==, QOS_POOL_CAPPED);
    g_assert_cmpint(grant(&f, 100), ==, QOS_POOL_GRANTED);
    g_assert_cmpint(grant(&f, 1), ==, QOS_POOL_CAPPED);
    qos_pool_cancel(&f.pool, &f.client, 1);
    g_assert_cmpint(grant(&f, 1), ==, QOS_POOL_GRANTED);
    g_assert_cmpuint(f.pool.refused, ==, 2);
}

/* All floors together leave half of L to SLR. */
static void test_floor(void)
{
    Fixture f;
    QosPoolClient other;
    QosPoolConfig config = usual;
    config.floor = 4000;
    start(&f, &config);
    g_assert_cmpint(qos_pool_signal(&f.pool).floor, ==, 4000);
    qos_pool_join(&f.pool, &other);
    g_assert_cmpint(qos_pool_signal(&f.pool).floor, ==, 2500);
    qos_pool_leave(&f.pool, &other);
    g_assert_cmpint(qos_pool_signal(&f.pool).floor, ==, 4000);
}

/* --- the signal --- */

static void test_sequence(void)
{
    Fixture f;
    start(&f, &usual);
    guint64 first = qos_pool_signal(&f.pool).sequence;
    g_assert_cmpuint(first, ==, 1);
    step(&f);
    g_assert_cmpuint(qos_pool_signal(&f.pool).sequence, ==, first + 1);
    qos_pool_configure(&f.pool, &usual);
    g_assert_cmpuint(qos_pool_signal(&f.pool).sequence, ==, first + 2);
    qos_pool_init(&f.pool, &usual, 0, 0); /* 0 would be no signal */
    g_assert_cmpuint(qos_pool_signal(&f.pool).sequence, ==, 1);
    qos_pool_init(&f.pool, &usual, 1000, 0);
    g_assert_cmpuint(qos_pool_signal(&f.pool).sequence, ==, 1000);
}

static void test_resume(void)
{
    Fixture f;
    start(&f, &usual);
    guint64 first = qos_pool_signal(&f.pool).sequence;
    qos_pool_resume(&f.pool, 5 * L);
    g_assert_cmpint(qos_pool_signal(&f.pool).rate, ==, 5 * L);
    g_assert_cmpuint(qos_pool_signal(&f.pool).sequence, ==, first + 1);
    qos_pool_resume(&f.pool, -1); /* it may be anything: a mount says it */
    g_assert_cmpint(qos_pool_signal(&f.pool).rate, ==, L);
    qos_pool_resume(&f.pool, G_MAXINT64);
    g_assert_cmpint(qos_pool_signal(&f.pool).rate, ==, L * G_GINT64_CONSTANT(36000000));
}

/* --- the law --- */

static void test_factor(void)
{
    double two = log(2);
    double room = log((4 * L + 1.0) / (L + 1));
    double part = two / room;
    assert_near(factor_at(&usual, L), 1);
    assert_near(factor_at(&usual, 2 * L + 1), exp(-0.5 * (two + part * part)));
    assert_near(factor_at(&usual, 4 * L), exp(-0.5 * (room + 1)));
    assert_near(factor_at(&usual, 4 * L + 3), exp(-0.5 * (2 * two + 1)));
    assert_near(factor_at(&usual, L / 2), exp(0.5 * log((L + 1.0) / (L / 2 + 1))));
    assert_near(factor_at(&usual, 1), exp(0.5)); /* at most */
    /* HL close to L: the range in which the law grows strong is no narrower than a tenth. */
    QosPoolConfig close = {.limit = L, .hard_limit = L};
    double tenth = log((L + 201.0) / (L + 1)) / 0.1;
    assert_near(factor_at(&close, L + 200), exp(-0.5 * (0.1 * tenth + tenth * tenth)));
}

/* What HL refused counts as if it had been granted, in its own step. */
static void test_refused_counts(void)
{
    Fixture f;
    QosPoolConfig config = {.limit = L, .hard_limit = L};
    start(&f, &config);
    qos_pool_adopt(&f.pool, &f.client, L);
    step(&f);
    double before = f.pool.rate;
    g_assert_cmpint(grant(&f, 150), ==, QOS_POOL_FULL);
    g_assert_cmpint(grant(&f, 50), ==, QOS_POOL_FULL);
    step(&f);
    double error = log((L + 201.0) / (L + 1));
    assert_near(f.pool.rate / before, exp(-0.5 * (error + 100 * error * error)));
    before = f.pool.rate;
    step(&f);
    g_assert_cmpfloat(f.pool.rate, ==, before);
}

static void test_no_dead_band(void)
{
    static const gint64 limits[] = {1, 2, 3, 10, 999, 1000000, QOS_POOL_BYTES_MAX / 4};
    for (guint i = 0; i < G_N_ELEMENTS(limits); i++) {
        QosPoolConfig config = {.limit = limits[i], .hard_limit = QOS_POOL_BYTES_MAX};
        g_assert_cmpfloat(factor_at(&config, limits[i] - 1), >, 1);
        g_assert_cmpfloat(factor_at(&config, limits[i]), ==, 1);
        g_assert_cmpfloat(factor_at(&config, limits[i] + 1), <, 1);
    }
}

static void test_monotone(void)
{
    double last = 1;
    for (gint64 granted = L + 1; granted < 6 * L; granted += 7) {
        double factor = factor_at(&usual, granted);
        g_assert_cmpfloat(factor, <, last);
        last = factor;
    }
}

/* Below L, SLR rises by as much as was cancelled of what was granted; above, it falls in any case.
 */
static void test_rises_as_far_as_it_binds(void)
{
    static const struct {
        gint64 came, went;
        double part;
    } cases[] = {{1000, 1000, 1}, {1000, 500, 0.5}, {1000, 0, 0}, {0, 0, 0}, {0, 10, 1}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        start(&f, &usual);
        qos_pool_adopt(&f.pool, &f.client, L / 2);
        step(&f);
        f.pool.planned = L; /* so that what comes is far less than planned */
        double before = f.pool.rate;
        qos_pool_adopt(&f.pool, &f.client, cases[i].came);
        qos_pool_cancel(&f.pool, &f.client, cases[i].went);
        gint64 gained = cases[i].came - cases[i].went;
        step(&f);
        double error = log((L + 1.0) / (L / 2.0 + (double)gained + 1));
        double missing = MIN(1 - (double)gained / (L / 2.0), 1);
        assert_near(f.pool.rate / before, exp(0.5 * error * cases[i].part * missing));
        g_assert_cmpfloat(f.pool.rate, >=, before);
    }
    Fixture f;
    start(&f, &usual);
    qos_pool_adopt(&f.pool, &f.client, 2 * L);
    step(&f);
    double before = f.pool.rate;
    step(&f);
    g_assert_cmpfloat(f.pool.rate, <, before);
}

/* Where G comes as planned, SLR waits; GP is a tenth of the way. */
static void test_rises_as_far_as_the_plan_is_missed(void)
{
    static const struct {
        gint64 gained;
        double part;
    } cases[] = {{-100, 1}, {0, 1}, {100, 0.8}, {250, 0.5}, {500, 0}, {1000, 0}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        start(&f, &usual);
        qos_pool_adopt(&f.pool, &f.client, L / 2);
        step(&f);
        assert_near(f.pool.planned, L / 2 + L / 20);
        double before = f.pool.rate;
        qos_pool_adopt(&f.pool, &f.client, 1000000 + cases[i].gained);
        qos_pool_cancel(&f.pool, &f.client, 1000000);
        step(&f);
        double binding = MIN(1000000.0 / (1000000 + (double)cases[i].gained), 1);
        double error = log((L + 1.0) / (L / 2.0 + (double)cases[i].gained + 1));
        assert_near(f.pool.rate / before, exp(0.5 * error * binding * cases[i].part));
    }
    /* G falls from above L below it: nothing of a plan to come down has to be awaited. */
    Fixture f;
    start(&f, &usual);
    qos_pool_adopt(&f.pool, &f.client, 2 * L);
    step(&f);
    double before = f.pool.rate;
    qos_pool_cancel(&f.pool, &f.client, L + L / 2);
    step(&f);
    assert_near(f.pool.rate / before, exp(0.5 * log((L + 1.0) / (L / 2.0 + 1))));
}

/* From the least SLR to one that leaves an average client's credits a minute, and to the most. */
static void test_leaves_the_floor(void)
{
    Fixture f;
    guint steps = 0;
    start(&f, &usual);
    f.pool.rate = L;
    while (f.pool.rate < L * 60000.0) {
        turn_over(&f, 10);
        steps++;
    }
    g_assert_cmpuint(steps, ==, 23);
    for (; f.pool.rate < L * 36e6; steps++)
        turn_over(&f, 10);
    g_assert_cmpuint(steps, ==, 35);
    turn_over(&f, 10);
    g_assert_cmpfloat(f.pool.rate, ==, L * 36e6);
}

/* The least is for each client's share; and no law gets out of the range. */
static void test_bounds_of_the_rate(void)
{
    for (QosPoolLaw law = QOS_POOL_STEADY; law <= QOS_POOL_HLD; law++) {
        Fixture f;
        QosPoolConfig config = {.law = law, .limit = L, .hard_limit = QOS_POOL_BYTES_MAX};
        start(&f, &config);
        f.pool.clients = 100;
        qos_pool_adopt(&f.pool, &f.client, 1000 * L);
        for (guint i = 0; i < 100; i++)
            step(&f);
        g_assert_cmpfloat(f.pool.rate, ==, L / 100.0);
        g_assert_cmpint(qos_pool_signal(&f.pool).rate, ==, L / 100);
    }
    Fixture f;
    QosPoolConfig config = {.limit = QOS_POOL_BYTES_MAX, .hard_limit = QOS_POOL_BYTES_MAX};
    start(&f, &config);
    for (guint i = 0; i < 100; i++)
        turn_over(&f, 10);
    g_assert_cmpint(qos_pool_signal(&f.pool).rate, ==, G_GINT64_CONSTANT(1) << 62);
}

/* The seed's arithmetic, by hand: K lives on, and the emergency's square has the published sign. */
static void test_published_law(void)
{
    Fixture f;
    QosPoolConfig config = usual;
    config.law = QOS_POOL_HLD;
    start(&f, &config);
    double rate = f.pool.rate;
    assert_near(f.pool.planned, 1000); /* GP = 0 + L / 10 */
    qos_pool_adopt(&f.pool, &f.client, 500);
    step(&f); /* GS = GSL: K = 1 - (500 - 1000) / L */
    assert_near(f.pool.factor, 1.05);
    assert_near(f.pool.rate, rate * 1.05);
    assert_near(f.pool.planned, 500 + 950);
    step(&f); /* K = 1.05 x (1 - (500 - 1450) / L) */
    assert_near(f.pool.factor, 1.05 * 1.095);
    assert_near(f.pool.rate, rate * 1.05 * 1.05 * 1.095);
    qos_pool_adopt(&f.pool, &f.client, 2950);
    step(&f); /* GS > GSL: K x (1 - (1450 - 3450) / L)^2: an overload raises it */
    assert_near(f.pool.factor, 1.05 * 1.095 * 1.2 * 1.2);
    config.law = QOS_POOL_STEADY;
    qos_pool_configure(&f.pool, &config);
    g_assert_cmpfloat(f.pool.factor, ==, 1);
}

/* --- time --- */

static void test_steps(void)
{
    Fixture f;
    start(&f, &usual);
    QosTime end = f.now + QOS_POOL_STEP;
    g_assert_cmpint(qos_pool_step(&f.pool, f.now), ==, end);
    g_assert_cmpint(qos_pool_step(&f.pool, end - 1), ==, end);
    g_assert_cmpint(qos_pool_step(&f.pool, f.now - HOUR), ==, end); /* a clock that went back */
    g_assert_cmpuint(f.pool.sequence, ==, 1);
    g_assert_cmpint(qos_pool_step(&f.pool, end), ==, end + QOS_POOL_STEP);
    g_assert_cmpuint(f.pool.sequence, ==, 2);
}

/* Three hours that nobody saw are one step, and speeds stay per T. */
static void test_jumps(void)
{
    Fixture f;
    start(&f, &usual);
    qos_pool_adopt(&f.pool, &f.client, 2 * L);
    qos_pool_cancel(&f.pool, &f.client, L - 1);
    double before = f.pool.rate;
    f.now += 100 * QOS_POOL_STEP;
    g_assert_cmpint(qos_pool_step(&f.pool, f.now), ==, f.now + QOS_POOL_STEP);
    g_assert_cmpint(f.pool.grant_speed, ==, 2 * L / 100);
    g_assert_cmpint(f.pool.cancel_speed, ==, (L - 1) / 100);
    double error = log((L + 2.0) / (L + 1.0));
    double part = error / log((4 * L + 1.0) / (L + 1));
    assert_near(f.pool.rate / before, exp(-0.5 * (error + part * part)));
    f.now += 3 * HOUR;
    before = f.pool.rate;
    qos_pool_step(&f.pool, f.now);
    assert_near(f.pool.rate / before, exp(-0.5 * (error + part * part)));
    g_assert_cmpuint(f.pool.sequence, ==, 3);
    /* The end of time. */
    QosTime wait;
    qos_pool_init(&f.pool, &usual, 1, QOS_NEVER - 1);
    g_assert_cmpint(qos_pool_step(&f.pool, QOS_NEVER - 1), ==, QOS_NEVER);
    f.client = (QosPoolClient){0};
    g_assert_cmpint(qos_pool_grant(&f.pool, &f.client, 5 * L, QOS_NEVER - 1, &wait), ==,
                    QOS_POOL_FULL);
}

/* --- words --- */

static void test_advice(void)
{
    Fixture f;
    start(&f, &usual);
    for (guint i = 0; i < 200 && f.pool.short_steps < 59; i++) {
        g_assert_null(qos_pool_advice(&f.pool));
        turn_over(&f, 0);
        if (f.pool.granted == 0)
            qos_pool_adopt(&f.pool, &f.client, 2 * L);
    }
    g_assert_cmpuint(f.pool.short_steps, ==, 59);
    g_assert_null(qos_pool_advice(&f.pool));
    turn_over(&f, 3 * L);
    g_autofree char *advice = qos_pool_advice(&f.pool);
    g_assert_cmpstr(advice, ==,
                    "the pool of credits is too small for its clients (1): they take 29.3 KiB of "
                    "new ones a second and can keep one for 500.0 us; raise its limit from 9.8 KiB "
                    "to 293.0 KiB, or spread the clients over more servers");
    qos_pool_cancel(&f.pool, &f.client, 2 * L); /* there is room: it is silent at once */
    f.pool.rate = L * 60000.0;
    step(&f);
    g_assert_null(qos_pool_advice(&f.pool));
}

/* --- any sequence of calls --- */

static void do_anything(QosPool *pool, QosPoolClient *clients, guint count, GRand *random,
                        QosTime now)
{
    QosPoolClient *client = &clients[g_rand_int_range(random, 0, (gint32)count)];
    gint64 bytes = g_rand_int_range(random, 1, 1000);
    gint64 before = pool->granted;
    QosTime wait = 0;
    switch (g_rand_int_range(random, 0, 8)) {
    case 0:
        qos_pool_adopt(pool, client, bytes);
        break;
    case 1:
    case 2:
        qos_pool_cancel(pool, client, bytes);
        break;
    case 3:
        qos_pool_leave(pool, client);
        qos_pool_join(pool, client);
        break;
    default:
        if (qos_pool_grant(pool, client, bytes, now, &wait) == QOS_POOL_GRANTED) {
            g_assert_cmpint(pool->granted, <=, pool->config.hard_limit);
            g_assert_true(pool->config.cap == 0 || client->granted <= pool->config.cap);
        } else {
            g_assert_cmpint(pool->granted, ==, before);
        }
    }
}

/* Where it rests, hours of steps change nothing but the sequence. Returns whether it does. */
static gboolean check_rest(const QosPool *pool, QosTime now)
{
    QosPool later = *pool;

    if (!qos_pool_rests(pool))
        return FALSE;
    for (guint i = 1; i <= 5; i++)
        qos_pool_step(&later, now + i * HOUR);
    g_assert_cmpfloat(later.rate, ==, pool->rate);
    g_assert_cmpfloat(later.planned, ==, pool->planned);
    g_assert_cmpuint(later.short_steps, ==, pool->short_steps);
    return qos_pool_rests(&later);
}

static void test_rests(void)
{
    QosPoolConfig config = {.limit = 1000, .hard_limit = 1100};
    QosPoolClient client;
    QosTime retry;
    QosPool pool;

    qos_pool_init(&pool, &config, 1, 0);
    qos_pool_join(&pool, &client);
    g_assert_true(check_rest(&pool, 0));
    qos_pool_grant(&pool, &client, 1000, 0, &retry);
    g_assert_false(qos_pool_rests(&pool));
    qos_pool_step(&pool, QOS_SECOND);
    g_assert_false(qos_pool_rests(&pool)); /* the next step plans with no more growth */
    qos_pool_step(&pool, 2 * QOS_SECOND);
    g_assert_true(check_rest(&pool, 2 * QOS_SECOND));
    qos_pool_adopt(&pool, &client, 1);
    qos_pool_step(&pool, 3 * QOS_SECOND);
    qos_pool_step(&pool, 4 * QOS_SECOND);
    g_assert_false(qos_pool_rests(&pool)); /* above L SLR falls */
    config.law = QOS_POOL_HLD;
    config.limit = 1100;
    qos_pool_configure(&pool, &config);
    g_assert_false(qos_pool_rests(&pool));
}

static void run_anything(guint seed)
{
    GRand *random = g_rand_new_with_seed(seed);
    QosPoolClient clients[5];
    QosPool pool;
    QosTime now = 0;
    QosPoolConfig config = {.law = seed % 2 ? QOS_POOL_STEADY : QOS_POOL_HLD,
                            .limit = g_rand_int_range(random, 1, 5000),
                            .hard_limit = 6000,
                            .cap = seed % 3 ? 0 : 2500};
    qos_pool_init(&pool, &config, 1, now);
    for (guint i = 0; i < G_N_ELEMENTS(clients); i++)
        qos_pool_join(&pool, &clients[i]);
    for (guint i = 0; i < 3000; i++) {
        guint64 sequence = pool.sequence;
        gint64 sum = 0;
        do_anything(&pool, clients, G_N_ELEMENTS(clients), random, now);
        now += g_rand_int_range(random, 0, 200) * QOS_MILLISECOND;
        if (g_rand_int_range(random, 0, 500) == 0)
            now += 5 * HOUR;
        g_assert_cmpint(qos_pool_step(&pool, now), >, now);
        for (guint k = 0; k < G_N_ELEMENTS(clients); k++)
            sum += clients[k].granted;
        g_assert_cmpint(pool.granted, ==, sum);
        g_assert_cmpuint(pool.sequence, >=, sequence);
        g_assert_cmpint(qos_pool_signal(&pool).rate, >=, 1);
        g_assert_cmpfloat(pool.rate, <=, (double)config.limit * 36e6);
        check_rest(&pool, now);
        if (g_rand_int_range(random, 0, 300) == 0) {
            config.limit = g_rand_int_range(random, 1, 6000);
            qos_pool_configure(&pool, &config);
        }
    }
    g_rand_free(random);
}

static void test_anything(void)
{
    for (guint seed = 1; seed <= 200; seed++) {
        g_test_message("seed %u", seed);
        run_anything(seed);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pool/configuration", test_configuration);
    g_test_add_func("/pool/counts", test_counts);
    g_test_add_func("/pool/hard-limit", test_hard_limit);
    g_test_add_func("/pool/hard-limit-is-lowered", test_hard_limit_is_lowered);
    g_test_add_func("/pool/cap", test_cap);
    g_test_add_func("/pool/floor", test_floor);
    g_test_add_func("/pool/sequence", test_sequence);
    g_test_add_func("/pool/resume", test_resume);
    g_test_add_func("/pool/factor", test_factor);
    g_test_add_func("/pool/refused-counts", test_refused_counts);
    g_test_add_func("/pool/no-dead-band", test_no_dead_band);
    g_test_add_func("/pool/monotone", test_monotone);
    g_test_add_func("/pool/rises-as-far-as-it-binds", test_rises_as_far_as_it_binds);
    g_test_add_func("/pool/rises-as-far-as-the-plan-is-missed",
                    test_rises_as_far_as_the_plan_is_missed);
    g_test_add_func("/pool/leaves-the-floor", test_leaves_the_floor);
    g_test_add_func("/pool/bounds-of-the-rate", test_bounds_of_the_rate);
    g_test_add_func("/pool/published-law", test_published_law);
    g_test_add_func("/pool/steps", test_steps);
    g_test_add_func("/pool/jumps", test_jumps);
    g_test_add_func("/pool/advice", test_advice);
    g_test_add_func("/pool/rests", test_rests);
    g_test_add_func("/pool/anything", test_anything);
    return g_test_run();
}
