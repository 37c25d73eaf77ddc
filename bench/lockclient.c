/*
 * The time to borrow a credit from a server, through the mount's own client
 * (fs/lockclient/client.h):
 *
 *     build/bench/bench-lockclient SERVER [COUNT]
 *
 *     enqueue   one user asks for one credit after the other, without contention: microseconds
 *     batch     4096 requests are under way all the time: credits in a second
 *     revoke    two clients take one credit from each other by callbacks, and the holder forgets
 *               at once: microseconds from asking to having
 *     group     one user asks for inodes in the order of their numbers: how many of these requests
 *               went to the server
 *     shared    the same for inodes that the other client has, all of them, and does not use
 *
 * SERVER is as the mount option server=. Each figure is one line, NAME VALUE.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/units.h"
#include "bench/measure.h"
#include "fs/lockclient/client.h"

#define UNDER_WAY 4096
#define PATIENCE  30              /* seconds that anything may take */
#define LEAD_TIME QOS_MILLISECOND /* as a mount has it (fs/coherence/op_credits.c) */

typedef struct {
    QosLockclient *lockclient;
} Client;

typedef struct {
    QosLockUse use;
    QosCreditVerdict verdict;
    sem_t *ended;
} Use;

G_GNUC_NORETURN
static void die(const char *what)
{
    fprintf(stderr, "bench-lockclient: %s\n", what);
    exit(1);
}

static void wait_for(sem_t *semaphore, const char *what)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    if (sem_timedwait(semaphore, &until) < 0)
        die(what);
}

/* --- the client --- */

static void drop(const QosResource *resource, const QosCredit *credit,
                 gboolean is_wanted G_GNUC_UNUSED, gpointer arg)
{
    const Client *client = arg;

    qos_lockclient_release(client->lockclient, resource, credit);
}

static void wanted(const QosResource *resource G_GNUC_UNUSED, gpointer arg G_GNUC_UNUSED)
{
}

static void lost(const QosResource *resource G_GNUC_UNUSED, const QosCredit *credit G_GNUC_UNUSED,
                 gpointer arg G_GNUC_UNUSED)
{
    die("a credit was lost");
}

static void changed(gboolean is_up G_GNUC_UNUSED, gpointer arg G_GNUC_UNUSED)
{
}

static void client_start(Client *client, const char *server)
{
    g_autoptr(GError) error = NULL;
    const QosLockclientConfig config = {.server = server,
                                        .id = (QosOwnerId)g_random_int() << 32 | g_random_int() | 1,
                                        .incarnation = 1,
                                        .store = "bench",
                                        .name = "bench-lockclient",
                                        .arg = client,
                                        .drop = drop,
                                        .wanted = wanted,
                                        .lost = lost,
                                        .changed = changed};

    client->lockclient = qos_lockclient_new(&config, &error);
    if (client->lockclient == NULL)
        die(error->message);
    for (guint i = 0; qos_lockclient_valid(client->lockclient) == 0; i++) {
        if (i == PATIENCE * 1000)
            die("there is no server");
        g_usleep(1000);
    }
}

static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    Use *ended = (Use *)use;

    ended->verdict = verdict;
    sem_post(ended->ended);
}

/* The credit number `number`; with `ended` it may be waited for, and was for `patience`. */
static void ask(const Client *client, QosResourceTypeId type, guint64 number, guint64 offset,
                QosTime patience, Use *use, sem_t *ended)
{
    QosCredit want = qos_credit_span(offset, offset, TRUE);
    QosCreditVerdict verdict;
    QosResource resource;

    *use = (Use){.use.done = done, .ended = ended};
    qos_resource_init(&resource, type, &number, sizeof(number));
    verdict = qos_lockclient_await(client->lockclient, &resource, &want, 0, &use->use, patience);
    if (verdict != QOS_CREDIT_WAITING) /* else done() has been called, or will be */
        done(&use->use, verdict);
    qos_credit_clear(qos_resource_type(type), &want);
}

static void end(const Client *client, Use *use)
{
    if (use->verdict != QOS_CREDIT_GRANTED) {
        fprintf(stderr, "bench-lockclient: a credit was not granted: %d\n", use->verdict);
        exit(1);
    }
    qos_lockclient_put(client->lockclient, &use->use);
}

static double ask_and_wait(const Client *client, QosResourceTypeId type, guint64 number,
                           guint64 offset)
{
    struct timespec before, after;
    sem_t ended;
    Use use;

    sem_init(&ended, 0, 0);
    clock_gettime(CLOCK_MONOTONIC, &before);
    ask(client, type, number, offset, LEAD_TIME, &use, &ended);
    wait_for(&ended, "a credit took more than 30 s");
    clock_gettime(CLOCK_MONOTONIC, &after);
    end(client, &use);
    sem_destroy(&ended);
    return (double)(after.tv_sec - before.tv_sec) * 1e6 +
           (double)(after.tv_nsec - before.tv_nsec) / 1e3;
}

/* --- the cases --- */

static void print_times(const char *name, double *times, guint count)
{
    sort(times, count);
    printf("%s_median_us %.1f\n%s_p99_us %.1f\n", name, times[count / 2], name,
           times[(guint64)count * 99 / 100]);
}

static void enqueue(const Client *client, guint count)
{
    g_autofree double *times = g_new(double, count);

    for (guint i = 0; i < count; i++)
        times[i] = ask_and_wait(client, QOS_RESOURCE_EXTENT, (guint64)1 << 32 | i, 0);
    print_times("enqueue", times, count);
}

static void batch(const Client *client, guint count)
{
    g_autofree Use *uses = g_new(Use, UNDER_WAY);
    g_autofree sem_t *ended = g_new(sem_t, UNDER_WAY);
    gint64 start = g_get_monotonic_time();

    for (guint i = 0; i < UNDER_WAY; i++)
        sem_init(&ended[i], 0, 0);
    for (guint i = 0; i < count + UNDER_WAY; i++) {
        guint place = i % UNDER_WAY;

        if (i >= UNDER_WAY) {
            wait_for(&ended[place], "a credit took more than 30 s");
            end(client, &uses[place]);
        }
        if (i < count)
            ask(client, QOS_RESOURCE_EXTENT, (guint64)2 << 32 | i, 0, 0, &uses[place],
                &ended[place]);
    }
    printf("batch_per_second %.0f\n",
           (double)count * 1e6 / (double)(g_get_monotonic_time() - start));
    for (guint i = 0; i < UNDER_WAY; i++)
        sem_destroy(&ended[i]);
}

static void take_turns(const Client *one, const Client *other, guint count)
{
    g_autofree double *times = g_new(double, count);

    ask_and_wait(one, QOS_RESOURCE_EXTENT, (guint64)3 << 32, 0);
    for (guint i = 0; i < count; i++)
        times[i] = ask_and_wait(i % 2 ? one : other, QOS_RESOURCE_EXTENT, (guint64)3 << 32, 0);
    print_times("revoke", times, count);
}

static void group(const Client *client, guint count)
{
    QosLockclientStatus before, after;
    guint size = qos_lockclient_group(client->lockclient);

    qos_lockclient_status(client->lockclient, &before);
    for (guint i = 0; i < count; i++)
        ask_and_wait(client, QOS_RESOURCE_INODES, ((guint64)4 << 32) + i / size, i % size);
    qos_lockclient_status(client->lockclient, &after);
    printf("group_size %u\ngroup_inodes %u\ngroup_enqueues %" G_GUINT64_FORMAT "\n", size, count,
           after.enqueues - before.enqueues);
}

static void shared(const Client *client, const Client *other, guint count)
{
    QosLockclientStatus before, after;
    guint size = qos_lockclient_group(client->lockclient);

    for (guint i = 0; i < count; i += size)
        ask_and_wait(other, QOS_RESOURCE_INODES, ((guint64)5 << 32) + i / size, 0);
    qos_lockclient_status(client->lockclient, &before);
    for (guint i = 0; i < count; i++)
        ask_and_wait(client, QOS_RESOURCE_INODES, ((guint64)5 << 32) + i / size, i % size);
    qos_lockclient_status(client->lockclient, &after);
    printf("shared_enqueues %" G_GUINT64_FORMAT "\n", after.enqueues - before.enqueues);
}

int main(int argc, char **argv)
{
    gint64 count = 20000;
    g_autoptr(GError) error = NULL;
    Client one, other;

    if (argc < 2 || argc > 3 ||
        (argc == 3 && !qos_parse_integer("COUNT", argv[2], 1000, 100000000, &count, &error))) {
        fprintf(stderr, "usage: bench-lockclient SERVER [COUNT, at least 1000]\n");
        return 2;
    }
    client_start(&one, argv[1]);
    client_start(&other, argv[1]);
    enqueue(&one, (guint)count);
    batch(&one, (guint)count * 10);
    take_turns(&one, &other, (guint)count / 4);
    group(&one, (guint)count);
    shared(&one, &other, (guint)count);
    qos_lockclient_free(one.lockclient);
    qos_lockclient_free(other.lockclient);
    return 0;
}
