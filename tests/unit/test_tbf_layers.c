/*
 * Two layers of rules, the mount's own and the cluster's, with the time stepped by hand: a request
 * takes its tokens of both or of none, and waits for the one that has them last.
 */
#include "fs/bucket.h"
#include "sched_fixture.h"

#include <string.h>

#define THOUSAND    1000
#define CLASSES_MAX 1000

static void cluster_rule(Fixture *f, const char *command)
{
    g_autoptr(GError) error = NULL;
    QosRules *rules = qos_sched_cluster_rules(f->sched);
    g_autoptr(QosRules) old = rules != NULL ? qos_rules_ref(rules) : qos_rules_new_cluster();
    g_autoptr(QosRules) changed = qos_rules_apply(old, command, f->now, &error);

    g_assert_no_error(error);
    qos_sched_set_cluster_rules(f->sched, changed, 0.2, f->now);
}

typedef struct {
    QosClassBudget of[CLASSES_MAX];
    char names[CLASSES_MAX][QOS_JOB_ID_MAX + 1];
    guint count;
} Budgets;

static void note_budget(const QosClassBudget *budget, void *arg)
{
    Budgets *budgets = arg;

    g_assert_cmpuint(budgets->count, <, CLASSES_MAX);
    g_strlcpy(budgets->names[budgets->count], budget->name, sizeof(budgets->names[0]));
    budgets->of[budgets->count++] = *budget;
}

static void list_budgets(Fixture *f, Budgets *budgets)
{
    budgets->count = 0;
    qos_sched_each_budget(f->sched, note_budget, budgets);
}

/* The budget of the only class that there is. */
static QosClassBudget only_budget(Fixture *f)
{
    Budgets budgets;

    list_budgets(f, &budgets);
    g_assert_cmpuint(budgets.count, ==, 1);
    return budgets.of[0];
}

/* Gives the only class that rate of operations. */
static void grant(Fixture *f, guint64 rate)
{
    g_assert_true(
        qos_sched_set_budget(f->sched, only_budget(f).id, QOS_UNIT_OPERATIONS, rate, f->now));
}

/* Makes the class of the job, of which no request goes. */
static void make_class(Fixture *f, const char *job)
{
    QosRequest *request = request_new(f, job, QOS_OP_READ, 0);

    qos_sched_is_limited(f->sched, request, f->now);
    request_free(request);
}

/* The next one that goes; the time moves on to then. */
static QosRequest *await(Fixture *f, QosTime end)
{
    QosRequest *request;
    QosTime wake;

    while ((request = qos_sched_next(f->sched, f->now, &wake)) == NULL && wake <= end)
        f->now = MAX(f->now, wake);
    return request;
}

/* Serves `clients` of each of `jobs` for `duration`, each with one request outstanding; *served
 * are counted by job. */
static void serve(Fixture *f, const char *const *jobs, guint clients, QosTime duration,
                  guint *served)
{
    const QosTime end = f->now + duration;
    QosRequest *due;

    for (guint i = 0; jobs[i] != NULL; i++) {
        served[i] = 0;
        for (guint c = 0; c < clients; c++) {
            QosRequest *request = request_new(f, jobs[i], QOS_OP_READ, 0);
            while (enter(f, request) == QOS_GO) {
                served[i]++;
                leave(f, request);
                request = request_new(f, jobs[i], QOS_OP_READ, 0);
            }
        }
    }
    while ((due = await(f, end)) != NULL) {
        guint i = 0;
        while (strcmp(jobs[i], due->job->id) != 0)
            i++;
        leave(f, due);
        served[i]++;
        QosRequest *request = request_new(f, jobs[i], QOS_OP_READ, 0);
        while (enter(f, request) == QOS_GO) {
            served[i]++;
            leave(f, request);
            request = request_new(f, jobs[i], QOS_OP_READ, 0);
        }
    }
    f->now = end;
    /* those that still wait go without bounds */
    qos_sched_set_cluster_rules(f->sched, NULL, 0, f->now);
    QosRules *rules = qos_rules_new();
    qos_sched_set_rules(f->sched, rules, f->now);
    qos_rules_unref(rules);
    while ((due = await(f, f->now)) != NULL)
        leave(f, due);
}

static const char *const one_job[] = {"j", NULL};

/* --- exact values --- */

static void test_the_tighter_layer_decides(void)
{
    static const struct {
        const char *own, *cluster;
        guint served;
        const char *waited_for;
    } cases[] = {
        {"start own jobid={j} rate=10 depth=1", "start all jobid={*} rate=100 depth=5", 101, "own"},
        {"start own jobid={j} rate=100 depth=1", "start all jobid={*} rate=10 depth=1", 101, "all"},
        {"start own jobid={j} rate=100", "start all jobid={*} rate=10", 101, "all"},
        {"start own jobid={j} weight=5", "start all jobid={*} rate=10 depth=3", 103, "all"},
        {"start own jobid={j} rate=10 depth=3", "start all jobid={*} weight=2", 103, "own"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        guint served;
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, cases[i].own);
        cluster_rule(&f, cases[i].cluster);
        make_class(&f, "j");
        const QosClassBudget budget = only_budget(&f);
        if (budget.units[QOS_UNIT_OPERATIONS].limit > 0)
            grant(&f, budget.units[QOS_UNIT_OPERATIONS].limit);
        QosJob *job = qos_jobs_find(qos_sched_jobs(f.sched), "j");
        f.now += QOS_SECOND;
        serve(&f, one_job, 1, 10 * QOS_SECOND, &served);
        g_assert_cmpuint(served, ==, cases[i].served);
        for (guint w = 0; w < job->wait_count; w++) {
            if (job->wait[w].count > 10)
                g_assert_cmpstr(job->wait[w].rule_name, ==, cases[i].waited_for);
        }
        qos_job_unref(job);
        fixture_clear(&f);
    }
}

/* A request that waits for one bucket has taken nothing from the other. */
static void test_both_or_none(void)
{
    Fixture f;
    QosRequest *requests[32];

    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start own jobid={a} rate=1 depth=1");
    cluster_rule(&f, "start all jobid={*} rate=20 depth=10 per=rule");
    make_class(&f, "a");
    grant(&f, 20 * THOUSAND);
    f.now += QOS_SECOND;
    for (guint i = 0; i < 5; i++) { /* one goes, four wait for `own` */
        requests[i] = request_new(&f, "a", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, requests[i]), ==, i == 0 ? QOS_GO : QOS_WAIT);
        if (i > 0)
            g_assert_cmpstr(requests[i]->wait_rule_name, ==, "own");
    }
    for (guint i = 5; i < 16; i++) { /* so nine are left */
        requests[i] = request_new(&f, "b", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, requests[i]), ==, i < 14 ? QOS_GO : QOS_WAIT);
    }
    g_assert_cmpstr(requests[15]->wait_rule_name, ==, "all");
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_OPERATIONS].served, ==, 10 * THOUSAND);
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_OPERATIONS].waiting, ==, 6 * THOUSAND);

    const QosTime start = f.now;
    grant(&f, 0);
    g_assert_null(await(&f, start + 10 * QOS_SECOND)); /* `own` has a token all the while */
    f.now = start + 10 * QOS_SECOND;
    g_assert_null(next(&f));
    grant(&f, 1 * THOUSAND);
    for (guint i = 0; i < 6; i++) {
        QosRequest *due = await(&f, QOS_NEVER - 2);
        g_assert_nonnull(due);
        if (i == 0) /* in order of coming to the cluster's class */
            g_assert_cmpint(f.now, <=, start + 10 * QOS_SECOND + 2 * QOS_MILLISECOND);
        g_assert_true(i > 0 || due == requests[14]);
        g_assert_true(i != 1 || due == requests[1]);
        if (i <= 1)
            g_assert_cmpstr(due->wait_rule_name, ==, "all");
    }
    for (guint i = 0; i < 16; i++)
        leave(&f, requests[i]);
    fixture_clear(&f);
}

/* One cluster class with own classes of three jobs: each has a third, whatever its hunger. */
static void test_jobs_share_a_cluster_class(void)
{
    static const char *const jobs[] = {"a", "b", "c", NULL};

    for (guint clients = 1; clients <= 16; clients *= 4) {
        Fixture f;
        guint served[3];
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, "start own jobid={*} rate=100");
        cluster_rule(&f, "start all jobid={*} rate=30 per=rule depth=1");
        make_class(&f, "a");
        grant(&f, 30 * THOUSAND);
        f.now += QOS_SECOND;
        serve(&f, jobs, clients, 10 * QOS_SECOND, served);
        g_assert_cmpuint(served[0] + served[1] + served[2], ==, 301);
        for (guint i = 0; i < 3; i++) {
            g_assert_cmpuint(served[i], >=, 99);
            g_assert_cmpuint(served[i], <=, 102);
        }
        fixture_clear(&f);
    }
}

/* One own class, which the jobs share, with cluster classes of their own. */
static void test_cluster_classes_share_an_own_class(void)
{
    static const char *const jobs[] = {"a", "b", "c", NULL};
    Fixture f;
    Budgets budgets;
    guint served[3];

    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start own jobid={*} rate=30 per=rule depth=2");
    cluster_rule(&f, "start all jobid={*} rate=100 depth=1");
    for (guint i = 0; i < 3; i++)
        make_class(&f, jobs[i]);
    list_budgets(&f, &budgets);
    g_assert_cmpuint(budgets.count, ==, 3);
    for (guint i = 0; i < 3; i++) { /* "a" has the least */
        const guint64 rate = strcmp(budgets.names[i], "a") == 0 ? 4 : 100;
        qos_sched_set_budget(f.sched, budgets.of[i].id, QOS_UNIT_OPERATIONS, rate * THOUSAND,
                             f.now);
    }
    f.now += QOS_SECOND;
    serve(&f, jobs, 4, 10 * QOS_SECOND, served);
    g_assert_cmpuint(served[0] + served[1] + served[2], ==, 302);
    g_assert_cmpuint(served[0], >=, 37); /* its bucket is shallow: turns cost it some tokens */
    g_assert_cmpuint(served[0], <=, 41);
    g_assert_cmpuint(served[1], >=, 129);
    g_assert_cmpuint(served[2], >=, 129);
    fixture_clear(&f);
}

static void test_grants(void)
{
    Fixture f;
    QosTime wake;
    QosRequest *requests[4];

    fixture_init(&f, &qos_policy_tbf, 64);
    cluster_rule(&f, "start all jobid={*} rate=100 depth=1 floor=50%");
    make_class(&f, "j");
    /* a newcomer: a fifth of the floors */
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_OPERATIONS].rate, ==, 10 * THOUSAND);
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_OPERATIONS].limit, ==, 100 * THOUSAND);
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_BYTES].limit, ==, 0);
    for (guint i = 0; i < 4; i++)
        requests[i] = request_new(&f, "j", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, requests[0]), ==, QOS_GO); /* 100 thousandths are left by depth */
    g_assert_cmpint(qos_sched_enter(f.sched, requests[1], f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND * 901 / 10000);
    grant(&f, 901);
    g_assert_null(qos_sched_next(f.sched, f.now, &wake));
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND);
    grant(&f, 901 * THOUSAND);
    g_assert_null(qos_sched_next(f.sched, f.now, &wake));
    g_assert_cmpint(wake, ==, f.now + QOS_MILLISECOND);
    f.now = wake;
    g_assert_true(next(&f) == requests[1]);
    grant(&f, 0);
    requests[2]->cannot_fail = TRUE;
    g_assert_cmpint(qos_sched_enter(f.sched, requests[2], f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(qos_sched_enter(f.sched, requests[3], f.now, &wake), ==, QOS_WAIT);
    g_assert_null(await(&f, f.now + 3600 * QOS_SECOND));
    grant(&f, G_MAXUINT64);
    f.now++;
    g_assert_true(next(&f) == requests[2]);
    g_assert_true(next(&f) == requests[3]);
    for (guint i = 0; i < 4; i++)
        leave(&f, requests[i]);
    g_assert_false(qos_sched_set_budget(f.sched, 99, QOS_UNIT_OPERATIONS, 1, f.now));
    g_assert_false(qos_sched_set_budget(f.sched, only_budget(&f).id, QOS_UNIT_BYTES, 1, f.now));
    fixture_clear(&f);
}

static void test_bytes(void)
{
    Fixture f;
    QosTime wake;

    fixture_init(&f, &qos_policy_tbf, 64);
    cluster_rule(&f, "start all jobid={*} bps=1M depth=auto:1K per=uid");
    make_class(&f, "j");
    const QosClassBudget budget = only_budget(&f);
    QosRequest *requests[] = {request_new(&f, "j", QOS_OP_WRITE, 4096),
                              request_new(&f, "k", QOS_OP_WRITE, 1024)};
    qos_sched_set_budget(f.sched, budget.id, QOS_UNIT_BYTES, (guint64)1024 * THOUSAND, f.now);
    g_assert_cmpstr(budget.name, !=, NULL);
    g_assert_cmpuint(budget.units[QOS_UNIT_BYTES].limit, ==, (guint64)1048576 * THOUSAND);
    g_assert_cmpint(enter(&f, requests[0]), ==, QOS_GO);
    g_assert_cmpint(qos_sched_enter(f.sched, requests[1], f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, >, f.now + 3 * QOS_SECOND);
    qos_sched_leave(f.sched, requests[0], 0, 0, f.now); /* nothing was moved: it is given back */
    g_assert_true(next(&f) == requests[1]);
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_BYTES].served, ==, 1024 * THOUSAND);
    request_free(requests[0]);
    leave(&f, requests[1]);
    fixture_clear(&f);
}

static void test_dry_run(void)
{
    Fixture f;
    QosRuleState state;

    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start real jobid={j} rate=1000 depth=100");
    fixture_rule(&f, "start dry jobid={j} rate=2 depth=2 dryrun=1");
    cluster_rule(&f, "start all jobid={*} rate=5 depth=5 dryrun=1");
    make_class(&f, "j");
    g_assert_true(only_budget(&f).is_dryrun);
    grant(&f, 5 * THOUSAND);
    f.now += QOS_SECOND;
    for (guint i = 0; i < 20; i++) {
        QosRequest *request = request_new(&f, "j", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, request), ==, QOS_GO);
        leave(&f, request);
    }
    const guint64 id = qos_rules_by_name(qos_sched_cluster_rules(f.sched), "all")->id;
    g_assert_true(qos_sched_rule_state(f.sched, id, &state));
    g_assert_cmpuint(state.requests, ==, 20);
    g_assert_cmpuint(state.dryrun_waits, ==, 15);
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "dry")->id, &state));
    g_assert_cmpuint(state.dryrun_waits, ==, 18);
    g_assert_cmpuint(only_budget(&f).units[QOS_UNIT_OPERATIONS].served, ==, 20 * THOUSAND);
    fixture_clear(&f);
}

/* A rule's end reaches requests that wait for it, and the other layer's rule stays. */
static void test_rules_end_while_requests_wait(void)
{
    static const char *const ends[] = {"stop all", "change all dryrun=1",
                                       "change all rate=none weight=1", NULL};

    for (guint i = 0; i < G_N_ELEMENTS(ends); i++) {
        Fixture f;
        QosTime wake;
        QosRequest *requests[6];
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, "start own jobid={j} rate=10 depth=2");
        cluster_rule(&f, "start all jobid={*} rate=100 per=rule");
        make_class(&f, "j");
        grant(&f, 0);
        for (guint r = 0; r < 6; r++) {
            requests[r] = request_new(&f, "j", QOS_OP_READ, 1);
            g_assert_cmpint(enter(&f, requests[r]), ==, QOS_WAIT);
            g_assert_cmpstr(requests[r]->wait_rule_name, ==, "all");
        }
        if (ends[i] != NULL)
            cluster_rule(&f, ends[i]);
        else
            qos_sched_set_cluster_rules(f.sched, NULL, 0, f.now);
        g_assert_true(next(&f) == requests[0]);
        g_assert_true(next(&f) == requests[1]);
        for (guint r = 2; r < 6; r++) {
            g_assert_null(qos_sched_next(f.sched, f.now, &wake));
            g_assert_cmpint(wake, ==, f.now + QOS_SECOND / 10);
            f.now = wake;
            g_assert_true(next(&f) == requests[r]);
        }
        for (guint r = 0; r < 6; r++)
            leave(&f, requests[r]);
        f.now += 3600 * QOS_SECOND;
        qos_sched_expire(f.sched, f.now); /* classes that are idle go */
        Budgets budgets;
        list_budgets(&f, &budgets);
        g_assert_cmpuint(budgets.count, ==, 0);
        fixture_clear(&f);
    }
}

/* No request waits longer than it may, whether it is its queue's turn or not. */
static void test_longest_wait(void)
{
    static const char *const jobs[] = {"a", "b", "c"};
    Fixture f;
    QosRequest *requests[G_N_ELEMENTS(jobs)];

    fixture_init(&f, &qos_policy_tbf, 64);
    cluster_rule(&f, "start all jobid={*} rate=10 per=rule");
    make_class(&f, "a");
    grant(&f, 0);
    qos_sched_set_max_wait(f.sched, QOS_SECOND);
    for (guint i = 0; i < G_N_ELEMENTS(jobs); i++) {
        requests[i] = request_new(&f, jobs[i], QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, requests[i]), ==, QOS_WAIT);
        g_assert_cmpstr(requests[i]->wait_rule_name, ==, "all");
        f.now += QOS_MILLISECOND;
    }
    for (guint i = 0; i < G_N_ELEMENTS(jobs); i++) {
        g_assert_true(await(&f, QOS_NEVER - 2) == requests[i]);
        g_assert_cmpint(f.now, ==, requests[i]->arrival + QOS_SECOND);
    }
    for (guint i = 0; i < G_N_ELEMENTS(jobs); i++)
        leave(&f, requests[i]);
    fixture_clear(&f);
}

/* One job's lock holders keep the class that it shares in debt: the other's request has its turn
 * even so. */
static void test_lock_holders_starve_no_other_job(void)
{
    Fixture f;
    QosRequest *held[4], *payer = NULL;
    guint payers = 0, holders = 0;
    QosTime longest = 0;

    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start own jobid={*} rate=999999");
    cluster_rule(&f, "start all jobid={*} rate=100 per=rule");
    make_class(&f, "a");
    grant(&f, 100 * THOUSAND);
    for (guint i = 0; i < 4; i++)
        held[i] = NULL;
    for (const QosTime end = f.now + 60 * QOS_SECOND; f.now < end; f.now += QOS_MILLISECOND) {
        QosRequest *due;
        while ((due = next(&f)) != NULL) {
            payers += due == payer;
            holders += due != payer;
            if (due == payer) {
                longest = MAX(longest, f.now - due->arrival);
                payer = NULL;
            }
            for (guint i = 0; i < 4; i++)
                held[i] = held[i] == due ? NULL : held[i];
            leave(&f, due);
        }
        for (guint i = 0; i < 4; i++) {
            if (held[i] != NULL)
                continue;
            QosRequest *request = request_new(&f, "a", QOS_OP_READ, 0);
            request->holds_lock = TRUE;
            request->lock = 1;
            if (enter(&f, request) == QOS_WAIT) {
                held[i] = request;
                continue;
            }
            holders++;
            leave(&f, request);
        }
        if (payer == NULL) {
            payer = request_new(&f, "b", QOS_OP_READ, 0);
            if (enter(&f, payer) == QOS_GO) {
                payers++;
                leave(&f, payer);
                payer = NULL;
            }
        }
    }
    g_test_message("%u payers, %u holders, longest %g s", payers, holders, (double)longest / 1e9);
    g_assert_cmpuint(payers, >=, 10);
    g_assert_cmpint(longest, <=, 5 * QOS_SECOND);
    g_assert_cmpuint(payers + holders, >=, 6000);
    g_assert_cmpuint(payers + holders, <=, 6000 + 8 + 200 + 4);
    for (guint i = 0; i < 4; i++) {
        if (held[i] != NULL)
            drop(&f, held[i]);
    }
    if (payer != NULL)
        drop(&f, payer);
    fixture_clear(&f);
}

static void test_names_of_classes(void)
{
    static const struct {
        const char *per, *name;
    } cases[] = {
        {"jobid", "j"}, {"uid", "1000"}, {"gid", "100"}, {"rule", ""}, {"jobid+opcode", "read:j"}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        Budgets budgets;
        g_autofree char *rule = g_strdup_printf("start r jobid={*} rate=1 per=%s", cases[i].per);
        fixture_init(&f, &qos_policy_tbf, 64);
        cluster_rule(&f, rule);
        make_class(&f, "j");
        list_budgets(&f, &budgets);
        g_assert_cmpuint(budgets.count, ==, 1);
        g_assert_cmpstr(budgets.names[0], ==, cases[i].name);
        g_assert_cmpuint(budgets.of[0].rule_id, >, QOS_RULE_CLUSTER_ID);
        fixture_clear(&f);
    }
}

/* --- random rules --- */

/* What went in one class, held against what its rule allows. */
typedef struct {
    double rate[QOS_UNITS];    /* now, units a second; < 0: no bound */
    double most[QOS_UNITS];    /* of these */
    double allowed[QOS_UNITS]; /* since the start */
    double went[QOS_UNITS];    /* likewise */
    double lowest[QOS_UNITS];  /* the least of `went` less `allowed` before a request */
    double largest[QOS_UNITS]; /* request */
    double depth[QOS_UNITS];
    QosTime then;
} Meter;

typedef struct {
    Fixture f;
    GHashTable *meters; /* "SCOPE RULE CLASS" -> Meter, owned */
    gboolean has_holders;
} World;

static void allow(Meter *meter, QosTime now)
{
    for (guint unit = 0; unit < QOS_UNITS; unit++)
        meter->allowed[unit] += MAX(meter->rate[unit], 0) * (double)(now - meter->then) / 1e9;
    meter->then = now;
}

/* As in QosClassBudget. */
static char *class_name(const QosRule *rule, const QosRequest *request)
{
    switch (rule->per) {
    case QOS_PER_JOBID:
        return g_strdup(request->job->id);
    case QOS_PER_UID:
        return g_strdup_printf("%u", request->uid);
    case QOS_PER_JOBID_OPCODE:
        return g_strdup_printf("%s:%s", qos_opcode_name(request->opcode), request->job->id);
    default:
        return g_strdup("");
    }
}

static Meter *meter_of(World *world, const QosRule *rule, const char *name)
{
    static const gint64 least[] = {3, 4096};
    const gint64 limits[] = {rule->rate, rule->bps};
    const gint64 depths[] = {rule->depth_ops, rule->depth_bytes};
    g_autofree char *key = g_strdup_printf("%u %s %s", rule->scope, rule->name, name);
    Meter *meter = g_hash_table_lookup(world->meters, key);

    if (meter != NULL)
        return meter;
    meter = g_new0(Meter, 1);
    meter->then = world->f.now;
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        meter->rate[unit] = limits[unit] > 0 ? (double)limits[unit] : -1;
        meter->most[unit] = meter->rate[unit];
        if (depths[unit] > 0)
            meter->depth[unit] = (double)depths[unit];
        else if (rule->scope == QOS_SCOPE_CLUSTER) /* to a thousandth */
            meter->depth[unit] = MAX((double)limits[unit] * 0.08, 1);
        else
            meter->depth[unit] = (double)qos_bucket_default_depth(limits[unit], least[unit]);
    }
    g_hash_table_insert(world->meters, g_steal_pointer(&key), meter);
    return meter;
}

/* The meters of cluster classes follow the rates that these have. */
static void follow_budgets(World *world)
{
    Budgets budgets;

    list_budgets(&world->f, &budgets);
    for (guint i = 0; i < budgets.count; i++) {
        const QosRule *rule =
            qos_rules_by_id(qos_sched_cluster_rules(world->f.sched), budgets.of[i].rule_id);
        if (rule == NULL) /* it was stopped */
            continue;
        Meter *meter = meter_of(world, rule, budgets.names[i]);

        allow(meter, world->f.now);
        for (guint unit = 0; unit < QOS_UNITS; unit++) {
            if (budgets.of[i].units[unit].limit > 0)
                meter->rate[unit] = (double)budgets.of[i].units[unit].rate / THOUSAND;
        }
    }
}

static void check(World *world, const QosRule *rule, const QosRequest *request)
{
    const double costs[] = {1, (double)request->bytes};
    g_autofree char *name = class_name(rule, request);
    Meter *meter = meter_of(world, rule, name);

    allow(meter, world->f.now);
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        meter->lowest[unit] = MIN(meter->lowest[unit], meter->went[unit] - meter->allowed[unit]);
        meter->went[unit] += costs[unit];
        meter->largest[unit] = MAX(meter->largest[unit], costs[unit]);
        if (meter->rate[unit] < 0)
            continue;
        double bound = meter->depth[unit] + meter->largest[unit];
        if (world->has_holders)
            bound += 2 * meter->most[unit] + meter->largest[unit];
        g_assert_cmpfloat(meter->went[unit] - meter->allowed[unit] - meter->lowest[unit], <=,
                          bound + 0.01);
    }
}

static void went(World *world, QosRequest *request)
{
    QosSched *sched = world->f.sched;
    QosRules *const lists[] = {qos_sched_rules(sched), qos_sched_cluster_rules(sched)};
    const QosRuleSubject subject = {.job = request->job->id,
                                    .host = "node7",
                                    .uid = request->uid,
                                    .gid = request->gid,
                                    .opcode = request->opcode};
    const QosRule *dryrun;

    follow_budgets(world);
    for (guint i = 0; i < G_N_ELEMENTS(lists); i++)
        check(world, qos_rules_match(lists[i], &subject, &dryrun), request);
    leave(&world->f, request);
}

static char *random_rule(guint i)
{
    static const char *const pers[] = {"jobid", "uid", "rule", "jobid+opcode"};
    static const char *const jobs[] = {"*", "a", "b c", "a*"};
    GString *text = g_string_new(NULL);

    g_string_printf(text, "start r%u jobid={%s} per=%s", i, jobs[g_test_rand_int_range(0, 4)],
                    pers[g_test_rand_int_range(0, 4)]);
    if (g_test_rand_bit())
        g_string_append_printf(text, " rate=%d", g_test_rand_int_range(5, 200));
    if (g_test_rand_bit())
        g_string_append_printf(text, " bps=%d", g_test_rand_int_range(10000, 1000000));
    if (g_test_rand_bit())
        g_string_append_printf(text, " depth=%d:%d", g_test_rand_int_range(1, 20),
                               g_test_rand_int_range(1, 100000));
    if (g_test_rand_int_range(0, 5) == 0)
        g_string_append(text, " dryrun=1");
    return g_string_free(text, FALSE);
}

/* All classes have all of their rule's rate, or any part of it. */
static void change_budgets(World *world, gboolean is_all)
{
    Budgets budgets;

    follow_budgets(world);
    list_budgets(&world->f, &budgets);
    for (guint i = 0; i < budgets.count; i++) {
        for (guint unit = 0; unit < QOS_UNITS; unit++) {
            const guint64 limit = budgets.of[i].units[unit].limit;
            const double part = is_all                             ? 1
                                : g_test_rand_int_range(0, 5) == 0 ? 0
                                                                   : g_test_rand_double();
            if (limit > 0)
                qos_sched_set_budget(world->f.sched, budgets.of[i].id, unit,
                                     (guint64)((double)limit * part), world->f.now);
        }
    }
    follow_budgets(world);
}

static QosRequest *random_request(World *world)
{
    static const char *const jobs[] = {"a", "b", "c", "a1", "d"};
    QosRequest *request = request_new(&world->f, jobs[g_test_rand_int_range(0, 5)],
                                      g_test_rand_bit() ? QOS_OP_READ : QOS_OP_WRITE,
                                      (guint64)g_test_rand_int_range(0, 50000));

    request->uid = (guint32)g_test_rand_int_range(1000, 1003);
    request->lock = g_test_rand_int_range(0, 4) == 0 ? 7 : 0;
    if (world->has_holders && g_test_rand_int_range(0, 4) == 0) {
        request->holds_lock = request->lock != 0;
        request->writes_back = request->lock == 0;
    }
    return request;
}

static void run_random(gboolean has_holders)
{
    World world = {.has_holders = has_holders};
    Fixture *f = &world.f;
    QosRequest *due;
    guint waiting = 0;
    QosTime wake;

    world.meters = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    fixture_init(f, &qos_policy_tbf, 10000);
    for (guint i = 0; i < 3; i++) {
        g_autofree char *own = random_rule(i), *cluster = random_rule(i + 3);
        fixture_rule(f, own);
        cluster_rule(f, cluster);
    }
    for (guint step = 0; step < 3000; step++) {
        QosRequest *request = random_request(&world);
        f->now += g_test_rand_int_range(0, 20) * QOS_MILLISECOND;
        if (g_test_rand_int_range(0, 10) == 0)
            change_budgets(&world, FALSE);
        if (enter(f, request) == QOS_GO)
            went(&world, request);
        else if (g_test_rand_int_range(0, 10) == 0)
            drop(f, request);
        else
            waiting++;
        while ((due = next(f)) != NULL) {
            waiting--;
            went(&world, due);
        }
    }
    /* None waits for ever. */
    change_budgets(&world, TRUE);
    while (waiting > 0) {
        due = qos_sched_next(f->sched, f->now, &wake);
        if (due == NULL) {
            g_assert_cmpint(wake, >, f->now);
            g_assert_cmpint(wake, <, f->now + 36000 * QOS_SECOND);
            f->now = wake;
            continue;
        }
        waiting--;
        went(&world, due);
    }
    Budgets budgets;
    list_budgets(f, &budgets);
    for (guint i = 0; i < budgets.count; i++) {
        g_assert_cmpuint(budgets.of[i].units[QOS_UNIT_OPERATIONS].waiting, ==, 0);
        g_assert_cmpuint(budgets.of[i].units[QOS_UNIT_BYTES].waiting, ==, 0);
    }
    g_hash_table_unref(world.meters);
    fixture_clear(f);
}

/* Another rule takes the place of one of either layer. */
static void change_rules(Fixture *f)
{
    const guint i = (guint)g_test_rand_int_range(0, 6);
    g_autofree char *stop = g_strdup_printf("stop r%u", i), *start = random_rule(i);

    if (i < 3) {
        fixture_rule(f, stop);
        fixture_rule(f, start);
        return;
    }
    cluster_rule(f, stop);
    cluster_rule(f, start);
}

/* A request that waits is wanted by another job, or taken back. */
static void disturb(Fixture *f, GPtrArray *waiting)
{
    if (waiting->len == 0)
        return;
    const guint i = (guint)g_test_rand_int_range(0, (gint)waiting->len);
    QosRequest *request = waiting->pdata[i];

    if (g_test_rand_bit()) {
        if (request->state == QOS_REQUEST_QUEUED && request->lock != 0)
            qos_sched_boost(f->sched, request, f->now);
        return;
    }
    g_ptr_array_remove_index_fast(waiting, i);
    drop(f, request);
}

/* Rules, rates and requests change in any order: each request goes in the end, and no count is
 * left. */
static void run_changes(void)
{
    World world = {.has_holders = TRUE};
    Fixture *f = &world.f;
    g_autoptr(GPtrArray) waiting = g_ptr_array_new();
    QosRequest *due;
    QosTime wake;
    Budgets budgets;

    world.meters = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    fixture_init(f, &qos_policy_tbf, 10000);
    for (guint i = 0; i < 6; i++) {
        g_autofree char *rule = random_rule(i);
        (i < 3 ? fixture_rule : cluster_rule)(f, rule);
    }
    for (guint step = 0; step < 3000; step++) {
        const gint what = g_test_rand_int_range(0, 100);
        QosRequest *request = random_request(&world);
        f->now += g_test_rand_int_range(0, 20) * QOS_MILLISECOND;
        if (what < 5)
            change_rules(f);
        else if (what < 15)
            change_budgets(&world, what < 7);
        else if (what < 30)
            disturb(f, waiting);
        else if (what == 30)
            f->now += 20 * QOS_SECOND;
        qos_sched_expire(f->sched, f->now);
        if (enter(f, request) == QOS_GO)
            leave(f, request);
        else
            g_ptr_array_add(waiting, request);
        while ((due = next(f)) != NULL) {
            g_assert_true(g_ptr_array_remove_fast(waiting, due));
            leave(f, due);
        }
    }
    while (waiting->len > 0) {
        change_budgets(&world, TRUE); /* also of those that are only made now */
        due = qos_sched_next(f->sched, f->now, &wake);
        if (due == NULL) {
            g_assert_cmpint(wake, >, f->now);
            g_assert_cmpint(wake, <, f->now + 36000 * QOS_SECOND);
            f->now = wake;
            continue;
        }
        g_assert_true(g_ptr_array_remove_fast(waiting, due));
        leave(f, due);
    }
    change_budgets(&world, TRUE); /* at a rate of 0 a debt stays */
    for (guint i = 0; i < 20; i++) {
        f->now += 36000 * QOS_SECOND;
        qos_sched_expire(f->sched, f->now);
    }
    list_budgets(f, &budgets);
    g_assert_cmpuint(budgets.count, ==, 0);
    g_hash_table_unref(world.meters);
    fixture_clear(f);
}

static void test_changes_lose_no_request(void)
{
    for (guint i = 0; i < 20; i++)
        run_changes();
}

static void test_no_class_exceeds_its_rule(void)
{
    for (guint i = 0; i < 60; i++)
        run_random(i % 2 == 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf-layers/tighter", test_the_tighter_layer_decides);
    g_test_add_func("/tbf-layers/both-or-none", test_both_or_none);
    g_test_add_func("/tbf-layers/shared-cluster-class", test_jobs_share_a_cluster_class);
    g_test_add_func("/tbf-layers/shared-own-class", test_cluster_classes_share_an_own_class);
    g_test_add_func("/tbf-layers/grants", test_grants);
    g_test_add_func("/tbf-layers/bytes", test_bytes);
    g_test_add_func("/tbf-layers/dry-run", test_dry_run);
    g_test_add_func("/tbf-layers/rules-end", test_rules_end_while_requests_wait);
    g_test_add_func("/tbf-layers/longest-wait", test_longest_wait);
    g_test_add_func("/tbf-layers/starvation", test_lock_holders_starve_no_other_job);
    g_test_add_func("/tbf-layers/names", test_names_of_classes);
    g_test_add_func("/tbf-layers/random", test_no_class_exceeds_its_rule);
    g_test_add_func("/tbf-layers/random-changes", test_changes_lose_no_request);
    return g_test_run();
}
