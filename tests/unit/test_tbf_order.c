/*
 * The policy tbf: what waits goes in the order in which it came, and says what it waits for.
 */
#include "sched_fixture.h"

/* Before what waits is matched against new rules, one may be taken back, and a newcomer does not
 * overtake it. */
static void test_what_is_to_be_matched_again(void)
{
    Fixture f;
    QosRequest *requests[6];
    fixture_init(&f, &qos_policy_tbf, 4); /* a job's share: 3 */
    fixture_rule(&f, "start tight jobid={j} rate=1 depth=1");
    for (guint r = 0; r < 5; r++) {
        requests[r] = request_new(&f, "j", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, requests[r]), ==, r == 0 ? QOS_GO : QOS_WAIT);
    }
    fixture_rule(&f, "stop tight");
    qos_sched_cancel(f.sched, requests[1], f.now);
    request_free(requests[1]);
    requests[5] = request_new(&f, "j", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, requests[5]), ==, QOS_WAIT);
    g_assert_true(next(&f) == requests[2]);
    g_assert_true(next(&f) == requests[3]);
    g_assert_null(next(&f));
    leave(&f, requests[0]);
    g_assert_true(next(&f) == requests[4]);
    leave(&f, requests[2]);
    g_assert_true(next(&f) == requests[5]);
    for (guint r = 3; r < 6; r++)
        leave(&f, requests[r]);
    fixture_clear(&f);
}

/* What no bucket holds back goes in the order in which it came, whichever class it is of. */
static void test_slots_go_in_order_of_arrival(void)
{
    Fixture f;
    QosRequest *inside[4], *waiting[4];
    fixture_init(&f, &qos_policy_tbf, 4);
    for (guint r = 0; r < 4; r++) {
        inside[r] = request_new(&f, r < 2 ? "a" : "b", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, inside[r]), ==, QOS_GO);
    }
    for (guint r = 0; r < 4; r++) { /* two of c, then two of d */
        f.now++;
        waiting[r] = request_new(&f, r < 2 ? "c" : "d", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, waiting[r]), ==, QOS_WAIT);
    }
    for (guint r = 0; r < 4; r++) {
        f.now++;
        leave(&f, inside[r]);
        g_assert_true(next(&f) == waiting[r]);
        g_assert_null(next(&f));
    }
    for (guint r = 0; r < 4; r++)
        leave(&f, waiting[r]);
    fixture_clear(&f);
}

/* That a class was used last for an operation is forgotten with it. */
static void test_idle_classes_of_operations_go(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r opcode={read} rate=1 depth=1 per=rule");
    for (guint i = 0; i < 2; i++) {
        QosRequest *request = request_new(&f, "a", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, request), ==, QOS_GO);
        leave(&f, request);
        f.now += 3600 * QOS_SECOND;
        qos_sched_expire(f.sched, f.now);
    }
    fixture_clear(&f);
}

/* A request that has a token waits for a slot, and the next of its job for the rule. */
static void test_what_each_waits_for(void)
{
    Fixture f;
    QosRequest *requests[4];
    static const char *const jobs[] = {"a", "b", "j", "j"};
    fixture_init(&f, &qos_policy_tbf, 2);
    fixture_rule(&f, "start r jobid={j} rate=1 depth=1");
    for (guint r = 0; r < 4; r++) {
        requests[r] = request_new(&f, jobs[r], QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, requests[r]), ==, r < 2 ? QOS_GO : QOS_WAIT);
    }
    g_assert_cmpstr(requests[2]->wait_rule_name, ==, QOS_WAIT_SLOTS);
    g_assert_cmpstr(requests[3]->wait_rule_name, ==, "r");
    for (guint r = 2; r < 4; r++) {
        qos_sched_cancel(f.sched, requests[r], f.now);
        request_free(requests[r]);
    }
    for (guint r = 0; r < 2; r++)
        leave(&f, requests[r]);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf-order/matched-again", test_what_is_to_be_matched_again);
    g_test_add_func("/tbf-order/slots", test_slots_go_in_order_of_arrival);
    g_test_add_func("/tbf-order/idle-classes", test_idle_classes_of_operations_go);
    g_test_add_func("/tbf-order/causes", test_what_each_waits_for);
    return g_test_run();
}
