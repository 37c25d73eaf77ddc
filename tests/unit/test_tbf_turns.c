/*
 * The turns of those that wait in a class of the tbf policy: none is passed over for ever, by no
 * mixture, each is told when it is due, and a change of the rules keeps their order. By hand, and
 * by chance.
 */
#include <math.h>

#include "sched_fixture.h"

#define MIB (1 << 20)

enum { LOCK = 1, WANTED = 2, WRITES_BACK = 4, TOLL = 8 };

/* All that came, in order. What goes leaves at once. */
typedef struct {
    Fixture f;
    GPtrArray *all; /* of QosRequest */
    QosTime wake;   /* as told last */
} Bench;

static void begin(Bench *bench, const char *rule)
{
    fixture_init(&bench->f, &qos_policy_tbf, 4096);
    fixture_rule(&bench->f, rule);
    bench->all = g_ptr_array_new_with_free_func((GDestroyNotify)request_free);
    bench->wake = QOS_NEVER;
}

static gboolean has_gone(const QosRequest *request)
{
    return request->state >= QOS_REQUEST_RUNNING;
}

static void end(Bench *bench)
{
    for (guint i = 0; i < bench->all->len; i++) {
        QosRequest *request = bench->all->pdata[i];
        if (!has_gone(request))
            qos_sched_cancel(bench->f.sched, request, bench->f.now);
    }
    g_ptr_array_unref(bench->all);
    fixture_clear(&bench->f);
}

static QosRequest *make(Bench *bench, const char *job, QosOpcode opcode, guint64 bytes, guint flags)
{
    QosRequest *request = request_new(&bench->f, job, opcode, bytes);

    g_ptr_array_add(bench->all, request);
    request->lock = flags & LOCK ? 7 : 0;
    request->holds_lock = (flags & WANTED) != 0;
    request->writes_back = (flags & WRITES_BACK) != 0;
    request->is_at_pay_point = (flags & TOLL) != 0;
    request->pay_opcode = QOS_OP_CREATE;
    return request;
}

static QosVerdict put(Bench *bench, QosRequest *request)
{
    QosTime told;
    const QosVerdict verdict = qos_sched_enter(bench->f.sched, request, bench->f.now, &told);

    if (verdict == QOS_GO)
        qos_sched_leave(bench->f.sched, request, request->bytes, 0, bench->f.now);
    else
        bench->wake = told;
    return verdict;
}

static QosRequest *come(Bench *bench, const char *job, QosOpcode opcode, guint64 bytes, guint flags)
{
    QosRequest *request = make(bench, job, opcode, bytes, flags);

    put(bench, request);
    return request;
}

/* The next that is due now; NULL where none is. */
static QosRequest *take(Bench *bench)
{
    QosRequest *gone;

    do
        gone = qos_sched_next(bench->f.sched, bench->f.now, &bench->wake);
    while (gone == NULL && bench->wake <= bench->f.now); /* the rest is matched */
    if (gone != NULL)
        qos_sched_leave(bench->f.sched, gone, gone->bytes, 0, bench->f.now);
    return gone;
}

/* Lets the time go on until `request` goes, or until `until`, as the gate does: from one time that
 * was told to the next. */
static void await(Bench *bench, const QosRequest *request, QosTime until)
{
    for (;;) {
        while (take(bench) != NULL && (request == NULL || !has_gone(request)))
            continue;
        if ((request != NULL && has_gone(request)) || bench->wake > until)
            break;
        bench->f.now = bench->wake;
    }
    if (request == NULL || !has_gone(request))
        bench->f.now = until;
}

#define FOREVER (QOS_NEVER - 1)

/* --- by hand --- */

/* Two classes in which holders pass over others, due at one time: a look at the one makes the other
 * the first, by what its holder may owe. */
static void test_two_classes_at_once(void)
{
    static const char *const jobs[] = {"a", "b"};
    Bench bench;
    QosRequest *read[2];
    begin(&bench, "start r jobid={a b} rate=2 bps=1M depth=1:1M");
    for (guint i = 0; i < 2; i++, bench.f.now += QOS_MILLISECOND) {
        come(&bench, jobs[i], QOS_OP_READ, MIB, 0);
        read[i] = come(&bench, jobs[i], QOS_OP_READ, 64 * MIB, 0);
        come(&bench, jobs[i], QOS_OP_WRITE, 64 * MIB, LOCK | WANTED); /* into debt: 64 s */
        for (guint waiting = 0; waiting < 10;)
            waiting +=
                put(&bench, make(&bench, jobs[i], QOS_OP_SETATTR, 0, LOCK | WANTED)) == QOS_WAIT;
    }
    const QosTime began = bench.f.now;
    while (!has_gone(read[0]) && !has_gone(read[1])) {
        while (take(&bench) != NULL)
            continue;
        bench.f.now = bench.wake + 10 * QOS_MILLISECOND; /* it wakes up late */
    }
    for (guint i = 0; i < 2; i++)
        g_assert_true(!has_gone(read[i]) || read[i]->start - began > 61 * QOS_SECOND);
    end(&bench);
}

/* One with a lock that nobody is known to want, beside a thread that reads, and wanted locks that
 * never have to wait. */
static void test_an_unwanted_lock_beside_reads(void)
{
    static const guint rates[] = {1, 10, 100};

    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        const guint burst = 2 * rates[i] - 1;
        g_autofree char *rule = g_strdup_printf("start r jobid={j} rate=%u depth=1", rates[i]);
        Bench bench;
        begin(&bench, rule);
        const QosTime began = bench.f.now;
        come(&bench, "j", QOS_OP_READ, 0, 0);
        QosRequest *victim = come(&bench, "j", QOS_OP_SETATTR, 0, LOCK);
        QosRequest *read = come(&bench, "j", QOS_OP_READ, 0, 0);
        for (guint n = 0; n <= burst; n++)
            come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED);
        while (!has_gone(victim)) {
            await(&bench, read, FOREVER);
            g_assert_cmpint(bench.f.now - began, <, 10 * QOS_SECOND);
            read = come(&bench, "j", QOS_OP_READ, 0, 0);
            for (guint n = 0; n < burst; n++)
                come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED);
        }
        end(&bench);
    }
}

/* Wanted locks alone, at the rule's rate or a little less: they pass it over for 2 s at most. */
static void test_an_unwanted_lock_beside_wanted_ones(void)
{
    for (guint percent = 80; percent <= 100; percent += 4) {
        Bench bench;
        begin(&bench, "start r jobid={j} rate=10 depth=1");
        for (guint i = 0; i < 1 + 20; i++)
            come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED);
        bench.f.now += QOS_SECOND / 10;
        QosRequest *victim = come(&bench, "j", QOS_OP_SETATTR, 0, LOCK);
        while (!has_gone(victim)) {
            g_assert_cmpint(bench.f.now - victim->arrival, <, 5 * QOS_SECOND / 2);
            await(&bench, victim, bench.f.now + QOS_SECOND * 10 / percent);
            come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED);
        }
        end(&bench);
    }
}

/* What holds nothing is passed over for 2 s, and that is told, whether one more comes or not. */
static void test_the_end_of_passing_is_told(void)
{
    Bench bench;
    begin(&bench, "start r jobid={j} bps=4K depth=1:4K");
    come(&bench, "j", QOS_OP_WRITE, 4096, LOCK | WANTED);
    QosRequest *stat = come(&bench, "j", QOS_OP_GETATTR, 0, 0);
    come(&bench, "j", QOS_OP_WRITE, 512 << 10, LOCK | WANTED); /* into debt: 128 s */
    come(&bench, "j", QOS_OP_WRITE, 4096, LOCK | WANTED);
    await(&bench, stat, FOREVER);
    g_assert_cmpint(stat->start - stat->arrival, ==, 2 * QOS_SECOND);
    end(&bench);
}

/* Many at a pay point, behind one that asks, beside threads that read at once whenever the bound on
 * debt lets them: the debt is paid once for all. */
static void test_many_at_a_pay_point(void)
{
    enum { COUNT = 16 };
    Bench bench;
    QosRequest *payers[COUNT];
    begin(&bench, "start r jobid={j} rate=100 depth=8");
    for (guint i = 0; i < 208; i++) /* into as much debt as may be */
        come(&bench, "j", QOS_OP_READ, 0, LOCK | WANTED);
    for (guint i = 0; i < COUNT; i++)
        payers[i] = come(&bench, "j", QOS_OP_GETATTR, 0, i == 1 ? 0 : TOLL);
    QosRequest *read = come(&bench, "j", QOS_OP_READ, 0, LOCK | WANTED);
    while (!has_gone(payers[COUNT - 1])) {
        g_assert_cmpint(bench.f.now - payers[0]->arrival, <, 5 * QOS_SECOND);
        await(&bench, read, bench.f.now + QOS_SECOND / 100);
        if (has_gone(read))
            read = come(&bench, "j", QOS_OP_READ, 0, LOCK | WANTED);
    }
    end(&bench);
}

/* One with a lock that another job wants waits for those that came before it, not for reads and
 * write-back that came later and have turns. */
static void test_what_comes_later_goes_later(void)
{
    enum { COUNT = 64 };
    Bench bench;
    QosRequest *last = NULL;
    guint waiting = 0;
    begin(&bench, "start r jobid={j} rate=10 depth=1");
    come(&bench, "j", QOS_OP_READ, 0, 0);
    come(&bench, "j", QOS_OP_READ, 0, 0);
    while (waiting < COUNT) {
        last = come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED);
        waiting += !has_gone(last);
    }
    bench.f.now++;
    for (guint i = 0; i < COUNT; i++) {
        come(&bench, "j", QOS_OP_READ, 0, 0);
        come(&bench, "j", QOS_OP_WRITE, 0, WRITES_BACK);
    }
    await(&bench, last, FOREVER);
    g_assert_cmpint(last->start - last->arrival, <=, (COUNT + 2) * QOS_SECOND / 10);
    end(&bench);
}

/* --- changes of the rules --- */

/* Another job's rule is started while two lines wait: the older goes when it is overdue. */
static void test_max_wait_outlives_a_change(void)
{
    Bench bench;
    begin(&bench, "start r jobid={j} bps=4K depth=1:4K");
    qos_sched_set_max_wait(bench.f.sched, 30 * QOS_SECOND);
    come(&bench, "j", QOS_OP_READ, 4096, 0);
    await(&bench, come(&bench, "j", QOS_OP_READ, 8 * MIB, 0), FOREVER); /* a debt of 2048 s */
    QosRequest *read = come(&bench, "j", QOS_OP_READ, 4096, 0);
    await(&bench, read, bench.f.now + 29 * QOS_SECOND);
    come(&bench, "j", QOS_OP_SETATTR, 0, LOCK);
    fixture_rule(&bench.f, "start other jobid={x} rate=1");
    await(&bench, read, FOREVER);
    g_assert_cmpint(read->start - read->arrival, ==, 30 * QOS_SECOND);
    end(&bench);
}

/* Classes become one: all that wait stand in it in order of arrival. */
static void test_classes_that_become_one(void)
{
    enum { JOBS = 8 };
    QosRequest *last[JOBS];
    Bench bench;
    begin(&bench, "start r jobid={*} rate=1 depth=1");
    qos_sched_set_max_wait(bench.f.sched, 30 * QOS_SECOND);
    for (guint i = 0; i < JOBS; i++) {
        g_autofree char *job = g_strdup_printf("job%u", i);
        for (guint n = 0; n < 40; n++)
            last[i] = come(&bench, job, QOS_OP_READ, 0, 0);
        await(&bench, NULL, bench.f.now + 3 * QOS_SECOND);
    }
    fixture_rule(&bench.f, "change r per=rule");
    for (guint i = 0; i < JOBS; i++) {
        await(&bench, last[i], FOREVER);
        g_assert_cmpint(last[i]->start - last[i]->arrival, <=, 30 * QOS_SECOND);
    }
    end(&bench);
}

/* Two changes, while what waits is given to its classes again. */
static void test_order_outlives_two_changes(void)
{
    enum { COUNT = 200 };
    Bench bench;
    QosRequest *reads[COUNT];
    begin(&bench, "start r jobid={j} rate=10 depth=1");
    come(&bench, "j", QOS_OP_READ, 0, 0);
    for (guint i = 0; i < COUNT; i++, bench.f.now++)
        reads[i] = come(&bench, "j", QOS_OP_READ, 0, 0);
    fixture_rule(&bench.f, "start x jobid={x} rate=1");
    qos_sched_next(bench.f.sched, bench.f.now, &bench.wake); /* a part of them */
    fixture_rule(&bench.f, "start y jobid={y} rate=1");
    for (guint i = 0; i < COUNT; i++) {
        await(&bench, reads[i], FOREVER);
        g_assert_true(i + 1 == COUNT || !has_gone(reads[i + 1]));
    }
    end(&bench);
}

/* A newcomer waits behind those that are not in their classes yet. */
static void test_nobody_overtakes_after_a_change(void)
{
    Bench bench;
    begin(&bench, "start r jobid={j} rate=10 depth=1");
    QosRequest *first;
    do
        first = come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED);
    while (has_gone(first));
    bench.f.now = bench.wake;
    fixture_rule(&bench.f, "start x jobid={x} rate=1");
    g_assert_false(has_gone(come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED)));
    g_assert_true(take(&bench) == first);
    end(&bench);
}

/* However many of one kind were overdue, the other saves up no more than 2 s. */
static void test_what_is_saved_up_is_bounded(void)
{
    QosRequest *read = NULL;
    Bench bench;
    begin(&bench, "start r jobid={j} rate=1 depth=1");
    qos_sched_set_max_wait(bench.f.sched, 60 * QOS_SECOND);
    come(&bench, "j", QOS_OP_READ, 0, 0);
    for (guint i = 0; i < 200; i++)
        come(&bench, "j", QOS_OP_SETATTR, 0, LOCK);
    bench.f.now++;
    for (guint i = 0; i < 100; i++)
        come(&bench, "j", QOS_OP_READ, 0, 0);
    await(&bench, NULL, bench.f.now + 61 * QOS_SECOND); /* all are overdue at once */
    fixture_rule(&bench.f, "change r rate=2");
    await(&bench, NULL, bench.f.now + 5 * QOS_SECOND);
    for (guint i = 0; i < 100; i++)
        read = come(&bench, "j", QOS_OP_READ, 0, 0);
    QosRequest *locked = come(&bench, "j", QOS_OP_SETATTR, 0, LOCK);
    await(&bench, locked, FOREVER);
    g_assert_cmpint(locked->start - locked->arrival, <=, 2 * QOS_SECOND);
    g_assert_false(has_gone(read));
    end(&bench);
}

/* Threads stand in line for a directory that another job wants: each has its turn when the one
 * before it has gone, and then comes to the pay point. The last has it after two seconds and an
 * operation for each of them. */
static void test_a_line_for_a_directory(void)
{
    enum { THREADS = 64, RATE = 10 };
    Bench bench;
    begin(&bench, "start r jobid={j} rate=10 depth=1");
    const QosTime start = bench.f.now;
    for (guint i = 0; i < THREADS; i++) {
        await(&bench, come(&bench, "j", QOS_OP_CREATE, 0, LOCK | WANTED), FOREVER);
        come(&bench, "j", QOS_OP_GETATTR, 0, TOLL);
    }
    g_assert_cmpint(bench.f.now - start, <=, QOS_DEBT_MAX + THREADS * QOS_SECOND / RATE);
    end(&bench);
}

/* --- by chance --- */

enum { RATE = 10 };

/* What the class owes, and what waited as each request came, by books of its own. */
typedef struct {
    double tokens; /* at `then`; less than none is debt */
    QosTime then;
    GHashTable *before; /* QosRequest -> how many waited as it came */
    guint most;         /* that waited at one time */
} Books;

static void earn(Books *books, QosTime now)
{
    books->tokens = MIN(books->tokens + (double)(now - books->then) * RATE / 1e9, 1);
    books->then = now;
}

/* A request has gone at `now`. Was the class allowed to owe what it did? Did one with a lock that
 * another job wants wait for what came before it alone, each of which may cost a quarter more? The
 * others wait for their turns, too. */
static void check_gone(Books *books, const QosRequest *request, QosTime now)
{
    const guint before = GPOINTER_TO_UINT(g_hash_table_lookup(books->before, request));
    const QosTime bound = request->holds_lock
                              ? 2 * QOS_SECOND + (5 * before + 4) * QOS_SECOND / 4 / RATE
                              : 6 * QOS_SECOND + 4 * books->most * QOS_SECOND / RATE;

    earn(books, now);
    g_assert_cmpfloat(books->tokens, >=, 1 - RATE * 2 - 1e-6);
    books->tokens--;
    g_assert_cmpint(now - request->arrival, <=, bound);
}

static guint waiting_in(const Bench *bench)
{
    guint count = 0;

    for (guint i = 0; i < bench->all->len; i++)
        count += !has_gone(bench->all->pdata[i]);
    return count;
}

enum { KINDS = 5 };

/* Of each kind as many as `parts` says. */
static QosRequest *come_by_chance(Bench *bench, const double *parts, GRand *random)
{
    static const struct {
        QosOpcode opcode;
        guint flags;
    } kinds[KINDS] = {{QOS_OP_READ, 0},
                      {QOS_OP_GETATTR, TOLL},
                      {QOS_OP_SETATTR, LOCK},
                      {QOS_OP_CREATE, LOCK | WANTED},
                      {QOS_OP_WRITE, WRITES_BACK}};
    double rest = 0;
    guint kind = 0;

    for (guint i = 0; i < KINDS; i++)
        rest += parts[i];
    for (rest *= g_rand_double(random); kind + 1 < KINDS && rest >= parts[kind]; kind++)
        rest -= parts[kind];

    return make(bench, "j", kinds[kind].opcode, 0, kinds[kind].flags);
}

/* Lets the time go on to `until`; checks each that goes. The time that is told is right: in a row
 * few are for nothing, and nothing is due before. */
static void go_on(Bench *bench, Books *books, QosTime until)
{
    guint vain = 0;

    for (;;) {
        QosRequest *gone = take(bench);

        if (gone != NULL) {
            check_gone(books, gone, bench->f.now);
            vain = 0;
            continue;
        }
        g_assert_cmpuint(++vain, <=, 5);
        if (bench->wake > until)
            break;
        if (bench->wake > bench->f.now + 1) { /* nothing before that */
            const QosTime told = bench->wake;
            bench->f.now += (told - bench->f.now) / 2;
            g_assert_null(take(bench));
            g_assert_cmpint(bench->wake, ==, told);
        }
        bench->f.now = bench->wake;
    }
    bench->f.now = MAX(bench->f.now, until);
}

/* All kinds, at random times, in number of which the rule brings half, or twice as many: none waits
 * for longer than what came before it takes, and its turns; the class never owes more than 2 s. */
static void test_by_chance(void)
{
    enum { SEEDS = 300, STEPS = 300 };

    for (guint seed = 1; seed <= SEEDS; seed++) {
        g_autoptr(GRand) random = g_rand_new_with_seed(seed);
        Bench bench;
        begin(&bench, "start r jobid={j} rate=10 depth=1");
        g_autoptr(GHashTable) before = g_hash_table_new(NULL, NULL);
        Books books = {.tokens = 1, .then = bench.f.now, .before = before};
        const double load = g_rand_double_range(random, 0.5, 1.5);
        double parts[KINDS]; /* hardly any of some kinds, often */
        for (guint i = 0; i < KINDS; i++)
            parts[i] = pow(g_rand_double(random), 6) + 1e-3;

        g_test_message("seed %u", seed);
        for (guint i = 0; i < STEPS; i++) {
            const guint waiting = waiting_in(&bench);
            QosRequest *request = come_by_chance(&bench, parts, random);
            g_hash_table_insert(before, request, GUINT_TO_POINTER(waiting));
            books.most = MAX(books.most, waiting + 1);
            if (put(&bench, request) == QOS_GO)
                check_gone(&books, request, bench.f.now);
            const double pause = 2 * g_rand_double(random) / (RATE * load);
            go_on(&bench, &books, bench.f.now + (QosTime)(pause * 1e9));
        }
        go_on(&bench, &books, bench.f.now + 1000 * QOS_SECOND);
        g_assert_cmpuint(waiting_in(&bench), ==, 0);
        end(&bench);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf-turns/two-classes-at-once", test_two_classes_at_once);
    g_test_add_func("/tbf-turns/an-unwanted-lock-beside-reads", test_an_unwanted_lock_beside_reads);
    g_test_add_func("/tbf-turns/an-unwanted-lock-beside-wanted-ones",
                    test_an_unwanted_lock_beside_wanted_ones);
    g_test_add_func("/tbf-turns/the-end-of-passing-is-told", test_the_end_of_passing_is_told);
    g_test_add_func("/tbf-turns/many-at-a-pay-point", test_many_at_a_pay_point);
    g_test_add_func("/tbf-turns/a-line-for-a-directory", test_a_line_for_a_directory);
    g_test_add_func("/tbf-turns/what-comes-later-goes-later", test_what_comes_later_goes_later);
    g_test_add_func("/tbf-turns/max-wait-outlives-a-change", test_max_wait_outlives_a_change);
    g_test_add_func("/tbf-turns/classes-that-become-one", test_classes_that_become_one);
    g_test_add_func("/tbf-turns/order-outlives-two-changes", test_order_outlives_two_changes);
    g_test_add_func("/tbf-turns/nobody-overtakes-after-a-change",
                    test_nobody_overtakes_after_a_change);
    g_test_add_func("/tbf-turns/what-is-saved-up-is-bounded", test_what_is_saved_up_is_bounded);
    g_test_add_func("/tbf-turns/by-chance", test_by_chance);
    return g_test_run();
}
