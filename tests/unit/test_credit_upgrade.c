/*
 * Upgrades: what is held is kept until more of it is there, and of those that wait for each other
 * in a circle the one that closes it is denied.
 */
#include "credit_fixture.h"

static void test_upgrade(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, reading, 0, &other);
    put(&c, 5, &other);
    g_assert_cmpint(convert(&c, 4, writing, 0, &one), ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(one.hold.credit.reads, ==, QOS_INODE_ATTRIBUTES); /* held all the time */
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(one.hold.credit.writes, ==, QOS_INODE_ATTRIBUTES);

    get(&c, 5, reading, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(convert(&c, 4, reading, 0, &one), ==, QOS_CREDIT_GRANTED); /* down, at once */
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static void test_two_upgrades(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, reading, 0, &other);
    convert(&c, 4, writing, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    convert(&c, 5, writing, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_DENIED);
    g_assert_cmpuint(other.hold.credit.reads, ==, QOS_INODE_ATTRIBUTES);
    put(&c, 5, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* Each wants of a file what the other has locked: not the same bytes. */
static void test_crossed_upgrades(void)
{
    Cluster c;
    Use one, other;
    QosResource file;
    QosCredit low = qos_credit_span(2, 3, TRUE), high = qos_credit_span(5, 8, FALSE);
    QosCredit wants_high = qos_credit_span(5, 8, TRUE), wants_low = qos_credit_span(3, 3, FALSE);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    mounts_init(&c, 2);
    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    get_of(&c, 4, file, low, 0, &one);
    get_of(&c, 5, file, high, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    convert(&c, 4, wants_high, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    convert(&c, 5, wants_low, 0, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_DENIED);
    put(&c, 5, &other);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    qos_credit_clear(type, &low);
    qos_credit_clear(type, &high);
    qos_credit_clear(type, &wants_low);
    qos_credit_clear(type, &wants_high);
    cluster_clear(&c);
}

/* Each of four wants the byte that the next one has, and the last one that of the first. */
static void test_circle_of_upgrades(void)
{
    enum { MOUNTS = 4 };
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    Cluster c;
    Use uses[MOUNTS];
    QosCredit bytes[MOUNTS];
    QosResource file;
    mounts_init(&c, MOUNTS);
    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    for (guint i = 0; i < MOUNTS; i++) {
        bytes[i] = qos_credit_span(i, i, TRUE);
        get_of(&c, 4 + i, file, bytes[i], 0, &uses[i]);
    }
    run(&c, 10 * QOS_MILLISECOND);
    for (guint i = 0; i < MOUNTS; i++) {
        g_assert_cmpint(uses[i].verdict, ==, QOS_CREDIT_GRANTED);
        convert(&c, 4 + i, bytes[(i + 1) % MOUNTS], 0, &uses[i]);
        run(&c, 10 * QOS_MILLISECOND);
    }
    for (guint i = 0; i < MOUNTS - 1; i++)
        g_assert_cmpint(uses[i].verdict, ==, QOS_CREDIT_WAITING);
    g_assert_cmpint(uses[MOUNTS - 1].verdict, ==, QOS_CREDIT_DENIED);
    for (guint i = MOUNTS; i-- > 1;) { /* as each gives up, the one before it goes on */
        put(&c, 4 + i, &uses[i]);
        run(&c, 10 * QOS_MILLISECOND);
        g_assert_cmpint(uses[i - 1].verdict, ==, QOS_CREDIT_GRANTED);
    }
    for (guint i = 0; i < MOUNTS; i++)
        qos_credit_clear(type, &bytes[i]);
    cluster_clear(&c);
}

/* An upgrade is served before the waiters for what its owner holds. */
static void test_upgrade_before_wait(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 2);
    got(&c, 4, reading, 0, &one);
    got(&c, 5, writing, QOS_CREDIT_RESERVE, &other);
    convert(&c, 4, writing, 0, &one);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &one);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

static QosResource file_resource(void)
{
    QosResource file;

    qos_resource_init(&file, QOS_RESOURCE_EXTENT, "f", 1);
    return file;
}

static void get_byte(Cluster *c, QosOwnerId id, guint64 place, gboolean writes, guint flags,
                     Use *use)
{
    QosCredit want = qos_credit_span(place, place, writes);

    get_of(c, id, file_resource(), want, flags, use);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &want);
    run(c, 10 * QOS_MILLISECOND);
}

static void convert_to_byte(Cluster *c, QosOwnerId id, guint64 place, gboolean writes, Use *use)
{
    QosCredit want = qos_credit_span(place, place, writes);

    convert(c, id, want, 0, use);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &want);
    run(c, 10 * QOS_MILLISECOND);
}

/* A mount that has locked two bytes that others wait for may also take one of them to write. It is
 * called back anew for that byte, and the waiter for it does not wait until the other byte is free.
 */
static void test_taken_while_wanted(void)
{
    const guint waits = QOS_CREDIT_LASTING | QOS_CREDIT_WAIT;
    Cluster c;
    Use low, high, more, wants_low, wants_high;
    mounts_init(&c, 3);
    get_byte(&c, 4, 4, FALSE, QOS_CREDIT_LASTING, &low);
    get_byte(&c, 4, 6, FALSE, QOS_CREDIT_LASTING, &high);
    get_byte(&c, 5, 4, TRUE, waits, &wants_low);
    get_byte(&c, 6, 6, TRUE, waits, &wants_high);
    get_byte(&c, 4, 6, TRUE, QOS_CREDIT_LASTING, &more);
    g_assert_cmpint(more.verdict, ==, QOS_CREDIT_GRANTED);
    put(&c, 4, &more);
    put(&c, 4, &high);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(wants_high.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(wants_low.verdict, ==, QOS_CREDIT_WAITING);
    put(&c, 4, &low);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(wants_low.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* What a conversion gives up at once is free for its waiters. */
static void test_conversion_gives_up(void)
{
    Cluster c;
    Use one, other;
    mounts_init(&c, 1);
    get_byte(&c, 1, 4, TRUE, 0, &one);
    get_byte(&c, 4, 4, TRUE, 0, &other);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    convert_to_byte(&c, 1, 6, TRUE, &one);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

/* The same of two that have waited. */
static void test_conversions_give_up(void)
{
    Cluster c;
    Use one, two, third, other;
    mounts_init(&c, 3);
    get_byte(&c, 4, 4, FALSE, 0, &one);
    get_byte(&c, 4, 4, FALSE, 0, &two);
    get_byte(&c, 5, 6, TRUE, 0, &third);
    get_byte(&c, 6, 4, TRUE, 0, &other);
    convert_to_byte(&c, 4, 6, FALSE, &one);
    convert_to_byte(&c, 4, 6, FALSE, &two);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_WAITING);
    put(&c, 5, &third);
    run(&c, 10 * QOS_MILLISECOND);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(two.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    cluster_clear(&c);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit/upgrade", test_upgrade);
    g_test_add_func("/credit/two-upgrades", test_two_upgrades);
    g_test_add_func("/credit/crossed-upgrades", test_crossed_upgrades);
    g_test_add_func("/credit/circle-of-upgrades", test_circle_of_upgrades);
    g_test_add_func("/credit/upgrade-before-wait", test_upgrade_before_wait);
    g_test_add_func("/credit/taken-while-wanted", test_taken_while_wanted);
    g_test_add_func("/credit/conversion-gives-up", test_conversion_gives_up);
    g_test_add_func("/credit/conversions-give-up", test_conversions_give_up);
    return g_test_run();
}
