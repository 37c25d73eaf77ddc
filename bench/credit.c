/*
 * What the resource manager costs (core/credit.h), without a network:
 *
 *     build/bench/bench-credit [CREDITS]
 *
 * It prints CPU times of these:
 *
 *     get, cached   qos_credit_get() and qos_credit_put() of a cached credit
 *     grant         an owner's part of an uncontended ENQUEUE, from receiving it to handing out the
 *                   GRANT, the acknowledgement included
 *
 * Both are measured by the number of credits that there are, up to CREDITS (1,000,000). The credits
 * are taken in an order that has nothing to do with memory; gets are also measured in the order in
 * which the credits came. A get reads two lines of memory one after the other, a slot's and a
 * book's. For comparison the program prints what one such dependent read costs on this machine: it
 * follows a chain through as many lines of 128 bytes.
 *
 * Then follows a get of an inode by a mount that has the credits of whole groups, by the number of
 * files. The same is measured with a group that is in pieces. The last is a grant of one resource
 * that many clients already read.
 *
 * Build with -Dbuildtype=release, because other builds check the books after each step.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"
#include "core/credit.h"

#define ROUND    100000 /* operations measured */
#define NO_ORDER 7919   /* a prime: credits so far apart have nothing to do with one another */

typedef struct {
    QosOwner *root, *mount;
    QosTime now;
} Pair;

static QosResource resource_of(guint number)
{
    guint64 name[3] = {0x1234567812345678, number, 1}; /* store, inode number, generation */
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODE, name, sizeof(name));
    return resource;
}

static QosResource group_of(guint number)
{
    guint64 name[2] = {0x1234567812345678, number}; /* store, first inode number / their number */
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, name, sizeof(name));
    return resource;
}

/* Carries messages to and fro until there are none. */
static void carry(Pair *pair)
{
    QosOutput output;
    gboolean is_done;

    do {
        is_done = TRUE;
        while (qos_owner_output(pair->mount, &output)) {
            is_done = FALSE;
            if (output.kind == QOS_OUTPUT_SEND)
                qos_owner_receive(pair->root, 2, output.message, pair->now);
        }
        while (qos_owner_output(pair->root, &output)) {
            is_done = FALSE;
            if (output.kind == QOS_OUTPUT_SEND)
                qos_owner_receive(pair->mount, 1, output.message, pair->now);
            else if (output.kind == QOS_OUTPUT_SAVE)
                qos_owner_saved(pair->root, output.peer, pair->now);
        }
    } while (!is_done);
}

static void pair_init(Pair *pair)
{
    QosOwnerConfig config;

    pair->now = QOS_SECOND;
    qos_owner_config_init(&config, 1, 1);
    config.lends = TRUE;
    pair->root = qos_owner_new(&config, NULL, 0, pair->now);
    qos_owner_config_init(&config, 2, 1);
    config.above = 1;
    pair->mount = qos_owner_new(&config, NULL, 0, pair->now);
    carry(pair);
}

/* An ENQUEUE of a mount's, as it comes to the root; time in the root is added to *cost. */
static void borrow(Pair *pair, const QosResource *resource, const QosCredit *want, double *cost)
{
    QosHold hold = {0};
    QosOutput output, reply;

    if (qos_credit_get(pair->mount, pair->now, resource, want, 0, &hold) != QOS_CREDIT_WAITING ||
        !qos_owner_output(pair->mount, &output))
        abort();
    double start = cpu_now();
    qos_owner_receive(pair->root, 2, output.message, pair->now);
    gboolean has_reply = qos_owner_output(pair->root, &reply);
    *cost += cpu_now() - start;
    if (!has_reply)
        abort();
    qos_owner_receive(pair->mount, 1, reply.message, pair->now);
    carry(pair);
    if (hold.book == NULL)
        abort();
    qos_credit_put(pair->mount, pair->now, &hold);
}

static double clock_cost(void)
{
    double start = cpu_now();
    for (guint i = 0; i < ROUND; i++)
        cpu_now();
    return (cpu_now() - start) / ROUND;
}

/* One after the other, `stride` credits apart. */
static double cached_get(Pair *pair, guint credits, guint stride)
{
    const QosCredit want = {.reads = QOS_INODE_ATTRIBUTES};
    g_autofree QosResource *resources = g_new(QosResource, ROUND);
    QosHold hold = {0};

    for (guint i = 0; i < ROUND; i++)
        resources[i] = resource_of((guint)((guint64)i * stride % credits));
    double start = cpu_now();
    for (guint i = 0; i < ROUND; i++) {
        if (qos_credit_get(pair->mount, pair->now, &resources[i], &want, 0, &hold) !=
            QOS_CREDIT_GRANTED)
            abort();
        qos_credit_put(pair->mount, pair->now, &hold);
    }
    return (cpu_now() - start) / ROUND;
}

/* Reads so many lines, each of which tells which is the next, in one circle. */
static double dependent_read(guint lines)
{
    typedef struct {
        guint next;
        guint8 rest[124]; /* as far from the next as books are */
    } Line;
    g_autofree Line *all = g_new0(Line, lines);
    g_autoptr(GRand) random = g_rand_new_with_seed(1);
    guint at = 0;

    for (guint i = 0; i < lines; i++)
        all[i].next = i;
    for (guint i = lines - 1; i > 0; i--) { /* Sattolo: one circle */
        guint other = (guint)g_rand_int_range(random, 0, (gint32)i);
        guint next = all[i].next;
        all[i].next = all[other].next;
        all[other].next = next;
    }
    double start = cpu_now();
    for (guint i = 0; i < ROUND; i++)
        at = all[at].next;
    double cost = (cpu_now() - start) / ROUND;
    return at < lines ? cost
                      : 0; /* `at` is used, so that the compiler cannot leave out the reads */
}

static size_t memory_used(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void print_credits(guint most, double clock_time)
{
    const QosCredit want = {.reads = QOS_INODE_LOOKUP | QOS_INODE_ATTRIBUTES};
    guint credits = 0;
    Pair pair;

    pair_init(&pair);
    size_t before = memory_used();
    printf("| credits | get and put, cached, ns | as they came, ns | one read, ns | grant, ns | "
           "memory of "
           "both, bytes a credit |\n|---|---|---|---|---|---|\n");
    for (guint goal = 1000; goal <= most; goal *= 10) {
        double cost = 0;
        guint first = credits;
        while (credits < goal) {
            QosResource resource = resource_of(credits++);
            borrow(&pair, &resource, &want, &cost);
            pair.now += QOS_MICROSECOND;
        }
        cost = cost / (credits - first) - clock_time;
        double get = cached_get(&pair, credits, NO_ORDER);
        double next = cached_get(&pair, credits, 1);
        printf("| %u | %.0f | %.0f | %.0f | %.0f | %.0f |\n", credits, get, next,
               dependent_read(credits), cost, (double)(memory_used() - before) / credits);
    }
    qos_owner_free(pair.mount);
    qos_owner_free(pair.root);
}

/* Of one inode each time; all files in no order. */
static double cached_inode(Pair *pair, guint files)
{
    g_autofree guint *numbers = g_new(guint, ROUND);
    g_autoptr(GRand) random = g_rand_new_with_seed(1);
    QosHold hold = {0};

    for (guint i = 0; i < ROUND; i++)
        numbers[i] = (guint)g_rand_int_range(random, 0, (gint32)files);
    double start = cpu_now();
    for (guint i = 0; i < ROUND; i++) {
        const guint place = numbers[i] % QOS_INODES_GROUP_MAX;
        QosResource group = group_of(numbers[i] / QOS_INODES_GROUP_MAX);
        QosSpan span = {.first = place, .last = place};
        const QosCredit want = {.spans = &span, .count = 1};
        if (qos_credit_get(pair->mount, pair->now, &group, &want, 0, &hold) != QOS_CREDIT_GRANTED)
            abort();
        qos_credit_put(pair->mount, pair->now, &hold);
    }
    return (cpu_now() - start) / ROUND;
}

/* A hundred times as many files: up to a tenth as many credits. */
static void print_groups(guint most)
{
    QosSpan first = {0};
    const QosCredit want = {.spans = &first, .count = 1};
    guint credits = 0;
    double cost = 0;
    Pair pair;

    pair_init(&pair);
    printf(
        "\n| files | credits on groups of %u | get and put of one, cached, ns |\n|---|---|---|\n",
        QOS_INODES_GROUP_MAX);
    for (guint64 files = 1000; files <= 100 * (guint64)most && files <= G_MAXINT32; files *= 10) {
        while ((guint64)credits * QOS_INODES_GROUP_MAX < files) {
            QosResource group = group_of(credits++);
            borrow(&pair, &group, &want, &cost);
            pair.now += QOS_MICROSECOND;
        }
        printf("| %" G_GUINT64_FORMAT " | %u | %.0f |\n", files, credits,
               cached_inode(&pair, (guint)files));
    }
    qos_owner_free(pair.mount);
    qos_owner_free(pair.root);
}

/* Of one number of a credit that is in pieces. */
static void print_pieces(void)
{
    QosSpan spans[QOS_INODES_GROUP_MAX / 2];
    double cost = 0;

    printf("\n| pieces of a credit | get and put of one, cached, ns |\n|---|---|\n");
    for (guint count = 1; count <= G_N_ELEMENTS(spans); count *= 2) {
        const QosCredit all = {.spans = spans, .count = count};
        QosResource file = resource_of(1);
        QosHold hold = {0};
        Pair pair;
        file.type = QOS_RESOURCE_EXTENT; /* as a group, but nothing is added to what is asked for */
        for (guint i = 0; i < count; i++)
            spans[i] = (QosSpan){.first = 2 * i, .last = 2 * i};
        pair_init(&pair);
        borrow(&pair, &file, &all, &cost);
        double start = cpu_now();
        for (guint i = 0; i < ROUND; i++) {
            const QosCredit want = {.spans = &spans[i % count], .count = 1};
            if (qos_credit_get(pair.mount, pair.now, &file, &want, 0, &hold) != QOS_CREDIT_GRANTED)
                abort();
            qos_credit_put(pair.mount, pair.now, &hold);
        }
        printf("| %u | %.0f |\n", count, (cpu_now() - start) / ROUND);
        qos_owner_free(pair.mount);
        qos_owner_free(pair.root);
    }
}

/* A message of borrower `id`'s, and what the lender says to it is dropped. */
static void receive_from(QosOwner *lender, QosOwnerId id, QosCreditMessage message)
{
    QosOutput output;

    message.session = 1;
    qos_owner_receive(lender, id, &message, QOS_SECOND);
    while (qos_owner_output(lender, &output)) {
        if (output.kind == QOS_OUTPUT_SAVE)
            qos_owner_saved(lender, output.peer, QOS_SECOND);
    }
}

static void print_readers(guint most, double clock_time)
{
    QosOwnerConfig config;
    double cost = 0;
    guint counted = 0;

    qos_owner_config_init(&config, 1, 1);
    config.lends = TRUE;
    QosOwner *lender = qos_owner_new(&config, NULL, 0, QOS_SECOND);
    printf("\n| readers of one resource | grant, ns |\n|---|---|\n");
    for (guint readers = 0, goal = 10; readers < most;) {
        QosOwnerId id = 2 + readers++;
        receive_from(lender, id, (QosCreditMessage){.type = QOS_MESSAGE_HELLO});
        double start = cpu_now();
        receive_from(lender, id,
                     (QosCreditMessage){.type = QOS_MESSAGE_ENQUEUE,
                                        .lender = 1,
                                        .sequence = 1,
                                        .request = 1,
                                        .resource = resource_of(1),
                                        .credit = {.reads = QOS_INODE_ATTRIBUTES}});
        cost += cpu_now() - start - clock_time;
        counted++;
        if (readers < goal)
            continue;
        printf("| %u | %.0f |\n", readers, cost / counted);
        cost = counted = 0;
        goal *= 10;
    }
    qos_owner_free(lender);
}

int main(int argc, char **argv)
{
    const guint most = argc > 1 ? (guint)strtoul(argv[1], NULL, 10) : 1000000;
    const double clock_time = clock_cost();

    print_credits(most, clock_time);
    print_groups(most);
    print_pieces();
    print_readers(10000, clock_time);
    return 0;
}
