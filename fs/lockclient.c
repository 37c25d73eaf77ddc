/*
 * The engine (fs/lockengine.h) and the link (fs/locklink.h), put together: a mutex, and a thread.
 *
 * Whoever calls a function of fs/lockclient.h does what the engine decides at once, under `lock`,
 * and sends what there is to send, after it. What is to be told goes to the thread, which is woken
 * for it, for what the socket has no room for, and if the engine wants to be asked earlier than the
 * timer that is set. As long as the thread is awake all is left to it: it sends what has gathered
 * at once, and tells, before it sleeps. So an answer is told by the thread that has read it, and a
 * lone request wakes nobody here. The timer is one of CLOCK_BOOTTIME, as all times here: it is due
 * at once when a machine wakes up that slept beyond it.
 */
#include "fs/lockclient.h"

#include <errno.h>
#include <glib-unix.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/lockengine.h"
#include "fs/locklink.h"
#include "fs/pressure.h"

/* Of what is cached, each time that memory is short: gone within seconds, if that lasts. */
#define PRESSED_PART 0.25

const char *const qos_lockclient_state_names[] = {
    [QOS_LOCKCLIENT_CONNECTING] = "connecting",
    [QOS_LOCKCLIENT_RECOVERING] = "recovering",
    [QOS_LOCKCLIENT_REFUSED] = "refused",
    [QOS_LOCKCLIENT_UP] = "up",
};

struct QosLockclient {
    QosLockclientConfig config; /* strings owned */
    GMainContext *context;      /* the thread's */
    QosLocklink *link;          /* the thread's */
    int timer;                  /* a timerfd */
    QosTime set;                /* the thread's: for when the timer is */
    QosPressure *pressure;      /* the thread's */
    _Atomic QosTime until;      /* of the engine, for qos_lockclient_valid() */
    _Atomic guint losses;       /* not behind `until` */
    _Atomic guint group;
    atomic_bool ends;
    pthread_t thread;
    gboolean has_thread;
    QosLockgrips *grips; /* the engine's */

    pthread_mutex_t lock; /* the rest */
    QosLockengine *engine;
    QosTime armed;     /* for when the timer is, or will be soon */
    gboolean is_awake; /* the thread: it looks at all of the engine before it sleeps */
    gboolean is_open, is_refused;
    char reason[256]; /* of the last failure; "": none since it was open */
    guint64 opened;   /* how often */
};

static QosTime now_of(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * QOS_SECOND + now.tv_nsec;
}

static void lock(QosLockclient *client)
{
    pthread_mutex_lock(&client->lock);
}

/* Publishes what is read without the lock: where the engine was changed, by the thread. */
static void publish_and_unlock(QosLockclient *client)
{
    atomic_store_explicit(&client->losses, (guint)qos_lockengine_losses(client->engine),
                          memory_order_relaxed);
    atomic_store_explicit(&client->until, qos_lockengine_until(client->engine),
                          memory_order_release);
    atomic_store_explicit(&client->group, qos_lockengine_group(client->engine),
                          memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
}

/* The same by any thread: sends what there is, and leaves the rest to the thread. */
static void unlock(QosLockclient *client)
{
    const QosTime next = qos_lockengine_next(client->engine);
    gboolean wakes = FALSE, sends = FALSE;

    if (!client->is_awake) {
        wakes = next < client->armed || qos_lockengine_has_events(client->engine);
        sends = qos_lockengine_has_bytes(client->engine);
        client->is_awake = wakes;
    }
    publish_and_unlock(client);
    if (sends)
        wakes |= !qos_locklink_try_send(client->link);
    if (wakes)
        g_main_context_wakeup(client->context);
}

/* --- the thread --- */

static void hello(QosWireHello *ret_hello, gpointer arg)
{
    QosLockclient *client = arg;

    ret_hello->version = QOS_WIRE_VERSION;
    ret_hello->id = client->config.id;
    g_strlcpy(ret_hello->store, client->config.store, sizeof(ret_hello->store));
    g_strlcpy(ret_hello->name, client->config.name, sizeof(ret_hello->name));
    lock(client);
    ret_hello->incarnation = qos_lockengine_incarnation(client->engine);
    publish_and_unlock(client);
}

static gboolean welcomed(const QosWireWelcome *welcome, gpointer arg, GError **error)
{
    QosLockclient *client = arg;

    lock(client);
    gboolean is_open = qos_lockengine_connected(client->engine, welcome, now_of(), error);
    if (is_open) {
        client->is_open = TRUE;
        client->is_refused = FALSE;
        client->reason[0] = '\0';
        client->opened++;
    }
    publish_and_unlock(client);
    if (is_open)
        g_info("lock server %s: connected", client->config.server);
    return is_open;
}

static gboolean received(const guint8 *payload, gsize length, gpointer arg)
{
    QosLockclient *client = arg;

    lock(client);
    gboolean is_good = qos_lockengine_receive(client->engine, payload, length, now_of());
    publish_and_unlock(client);
    return is_good;
}

static gboolean deadlocked(const guint8 *payload, gsize length, gpointer arg)
{
    const QosLockclient *client = arg;
    guint64 wait;

    if (!qos_wire_get_deadlock(payload, length, &wait))
        return FALSE;
    client->config.deadlocked(wait, client->config.arg);
    return TRUE;
}

static GByteArray *more(gpointer arg)
{
    QosLockclient *client = arg;

    lock(client);
    GByteArray *bytes = qos_lockengine_take_bytes(client->engine);
    pthread_mutex_unlock(&client->lock);
    return bytes;
}

static void failed(const char *reason, gboolean is_refused, gpointer arg)
{
    QosLockclient *client = arg;

    lock(client);
    qos_lockengine_disconnected(client->engine);
    client->is_open = FALSE;
    client->is_refused = is_refused;
    gboolean is_news = strncmp(client->reason, reason, sizeof(client->reason) - 1) != 0;
    g_strlcpy(client->reason, reason, sizeof(client->reason));
    publish_and_unlock(client);
    if (is_news)
        g_warning("lock server %s: %s; it is tried again, and nothing is cached when the lease is "
                  "over",
                  client->config.server, reason);
}

/* Calls without the lock. */
static void tell(QosLockclient *client, const QosLockevent *event)
{
    const QosLockclientConfig *config = &client->config;

    switch (event->kind) {
    case QOS_LOCKEVENT_DONE:
        event->use->done(event->use, event->verdict);
        break;
    case QOS_LOCKEVENT_DROP:
        config->drop(&event->resource, &event->credit, config->arg);
        break;
    case QOS_LOCKEVENT_LOST:
        config->lost(&event->resource, &event->credit, config->arg);
        break;
    case QOS_LOCKEVENT_CHANGED:
        config->changed(event->is_up, config->arg);
        break;
    }
}

static gboolean take_event(QosLockclient *client, QosLockevent *ret_event)
{
    lock(client);
    gboolean is_one = qos_lockengine_take_event(client->engine, ret_event);
    pthread_mutex_unlock(&client->lock);
    return is_one;
}

/* One that is earlier than needed stays: nearly each message moves the time when it would be
 * repeated, and few are. */
static void set_timer(QosLockclient *client, QosTime next)
{
    struct itimerspec timer = {0};

    client->set = next;
    if (next != QOS_NEVER) { /* 0 would be none */
        timer.it_value.tv_sec = MAX(next, 1) / QOS_SECOND;
        timer.it_value.tv_nsec = MAX(next, 1) % QOS_SECOND;
    }
    timerfd_settime(client->timer, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* TRUE: nothing is left to do before the timer, and others do what they have to themselves.
 * `waits`: what is to be sent waits for the socket. */
static gboolean try_sleep(QosLockclient *client, gboolean waits)
{
    const QosTime now = now_of();

    lock(client);
    const QosTime next = qos_lockengine_next(client->engine);
    const gboolean is_set = client->set <= next && client->set > now;
    client->is_awake = qos_lockengine_has_events(client->engine) || next <= now ||
                       (qos_lockengine_has_bytes(client->engine) && !waits);
    const gboolean sleeps = !client->is_awake;
    client->armed = is_set ? client->set : next;
    pthread_mutex_unlock(&client->lock);
    if (!is_set)
        set_timer(client, next);
    return sleeps;
}

/* Does what there is to do. TRUE: the thread may sleep. */
static gboolean work(QosLockclient *client)
{
    QosLockevent event;

    lock(client);
    client->is_awake = TRUE;
    if (now_of() >= qos_lockengine_next(client->engine))
        qos_lockengine_tick(client->engine, now_of());
    publish_and_unlock(client);
    /* Messages first: others wait for them. */
    gboolean waits = !qos_locklink_send(client->link);
    while (take_event(client, &event)) {
        tell(client, &event);
        qos_credit_clear(qos_resource_type(event.resource.type), &event.credit);
    }
    return try_sleep(client, waits);
}

static gboolean on_timer(int fd, GIOCondition condition G_GNUC_UNUSED, gpointer data G_GNUC_UNUSED)
{
    guint64 times;

    /* Nothing, if it was set anew meanwhile. What it was due for, work() finds. */
    G_GNUC_UNUSED gssize length = read(fd, &times, sizeof(times));
    return G_SOURCE_CONTINUE;
}

/* Memory is short. */
static void pressed(gpointer arg)
{
    qos_lockclient_shrink(arg, PRESSED_PART);
}

static void *run(void *data)
{
    QosLockclient *client = data;
    GSource *timer = g_unix_fd_source_new(client->timer, G_IO_IN);
    gboolean sleeps = FALSE;

    pthread_setname_np(pthread_self(), "lockclient");
    g_main_context_push_thread_default(client->context);
    g_source_set_callback(timer, G_SOURCE_FUNC(on_timer), client, NULL);
    g_source_attach(timer, client->context);
    qos_locklink_start(client->link);
    while (!atomic_load(&client->ends)) {
        g_main_context_iteration(client->context, sleeps);
        sleeps = work(client);
    }
    g_source_destroy(timer);
    g_source_unref(timer);
    lock(client);
    client->is_awake = TRUE;
    qos_lockengine_leave(client->engine, now_of());
    publish_and_unlock(client);
    qos_locklink_stop(client->link);
    g_main_context_pop_thread_default(client->context);
    return NULL;
}

/* --- the client --- */

static void copy_config(QosLockclient *client, const QosLockclientConfig *config)
{
    client->config = *config;
    client->config.server = g_strdup(config->server);
    client->config.ca = g_strdup(config->ca);
    client->config.certificate = g_strdup(config->certificate);
    client->config.key = g_strdup(config->key);
    client->config.munged = g_strdup(config->munged);
    client->config.store = g_strdup(config->store);
    client->config.name = g_strdup(config->name);
}

static void clear_config(QosLockclientConfig *config)
{
    g_free((char *)config->server);
    g_free((char *)config->ca);
    g_free((char *)config->certificate);
    g_free((char *)config->key);
    g_free((char *)config->munged);
    g_free((char *)config->store);
    g_free((char *)config->name);
}

static gboolean start(QosLockclient *client, GError **error)
{
    const QosLocklinkConfig link = {.server = client->config.server,
                                    .ca = client->config.ca,
                                    .certificate = client->config.certificate,
                                    .key = client->config.key,
                                    .munged = client->config.munged};
    const QosLocklinkUser user = {.arg = client,
                                  .hello = hello,
                                  .welcomed = welcomed,
                                  .received = received,
                                  .deadlocked = deadlocked,
                                  .more = more,
                                  .failed = failed};
    int places[QOS_PRESSURE_PLACES];

    client->link = qos_locklink_new(&link, &user, client->context, error);
    if (client->link == NULL)
        return FALSE;
    client->pressure =
        qos_pressure_new(places, qos_pressure_open(places), client->context, pressed, client);
    client->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    client->has_thread =
        client->timer >= 0 && pthread_create(&client->thread, NULL, run, client) == 0;
    if (!client->has_thread)
        qos_set_error(error, EAGAIN, "cannot start a thread");
    return client->has_thread;
}

QosLockclient *qos_lockclient_new(const QosLockclientConfig *config, GError **error)
{
    QosLockclient *client = g_new0(QosLockclient, 1);

    copy_config(client, config);
    pthread_mutex_init(&client->lock, NULL);
    client->timer = -1;
    client->armed = client->set = QOS_NEVER;
    client->engine = qos_lockengine_new(config->id, config->incarnation);
    client->grips = qos_lockengine_grips(client->engine);
    client->context = g_main_context_new();
    if (start(client, error))
        return client;
    qos_lockclient_free(client);
    return NULL;
}

void qos_lockclient_free(QosLockclient *client)
{
    if (client == NULL)
        return;
    if (client->has_thread) {
        atomic_store(&client->ends, TRUE);
        g_main_context_wakeup(client->context);
        pthread_join(client->thread, NULL);
    }
    qos_pressure_free(client->pressure);
    qos_locklink_free(client->link);
    g_main_context_unref(client->context);
    if (client->timer >= 0)
        close(client->timer);
    qos_lockengine_free(client->engine);
    pthread_mutex_destroy(&client->lock);
    clear_config(&client->config);
    g_free(client);
}

/* --- uses --- */

/* Ends a use by a grip. */
static void let_go(QosLockclient *client, QosLockUse *use)
{
    QosLockgrip *grip = g_steal_pointer(&use->grip);

    if (!qos_lockgrip_unmark(grip, use->mark))
        return;
    lock(client);
    qos_lockengine_narrow(client->engine, grip, now_of());
    unlock(client);
}

/* The lease is looked at last, so that whoever slept before finds out. */
static gboolean is_gripped(const QosLockclient *client, const QosResource *resource,
                           const QosCredit *want)
{
    return qos_lockgrips_is_open(client->grips, resource, want) && qos_lockclient_valid(client) > 0;
}

/* Without the lock. FALSE: the engine is to be asked. */
static gboolean try_grip(QosLockclient *client, const QosResource *resource, const QosCredit *want,
                         QosLockUse *use)
{
    use->grip = qos_lockgrips_mark(client->grips, resource, want, &use->mark);
    if (use->grip == NULL)
        return FALSE;
    if (is_gripped(client, resource, want))
        return TRUE;
    let_go(client, use);
    return FALSE;
}

/* What is here is likely to be used again. */
static QosCreditVerdict get_locked(QosLockclient *client, const QosResource *resource,
                                   const QosCredit *want, guint flags, QosLockUse *use, QosTime now)
{
    const QosCreditVerdict verdict =
        qos_lockengine_get(client->engine, resource, want, flags, use, now);

    if (verdict == QOS_CREDIT_GRANTED && resource->type == QOS_RESOURCE_INODES)
        qos_lockengine_grip(client->engine, resource, now);
    return verdict;
}

QosCreditVerdict qos_lockclient_get(QosLockclient *client, const QosResource *resource,
                                    const QosCredit *want, guint flags, QosLockUse *use)
{
    if (try_grip(client, resource, want, use))
        return QOS_CREDIT_GRANTED;
    lock(client);
    const QosCreditVerdict verdict = get_locked(client, resource, want, flags, use, now_of());
    unlock(client);
    return verdict;
}

QosCreditVerdict qos_lockclient_convert(QosLockclient *client, const QosCredit *want, guint flags,
                                        QosLockUse *use)
{
    lock(client);
    QosCreditVerdict verdict = qos_lockengine_convert(client->engine, want, flags, use, now_of());
    unlock(client);
    return verdict;
}

QosCreditVerdict qos_lockclient_postpone(QosLockclient *client, QosLockUse *use,
                                         QosCreditVerdict verdict, QosTime *since)
{
    lock(client);
    verdict = qos_lockengine_postpone(client->engine, use, verdict, since, now_of());
    unlock(client);
    return verdict;
}

void qos_lockclient_put(QosLockclient *client, QosLockUse *use)
{
    if (use->grip != NULL) {
        let_go(client, use);
        return;
    }
    lock(client);
    qos_lockengine_put(client->engine, use, now_of());
    unlock(client);
}

gboolean qos_lockclient_has(QosLockclient *client, const QosResource *resource,
                            const QosCredit *want)
{
    QosLockUse use = {0};

    if (is_gripped(client, resource, want))
        return TRUE;
    lock(client);
    const QosTime now = now_of();
    gboolean has = get_locked(client, resource, want, QOS_CREDIT_NON_BLOCK_LOCAL, &use, now) ==
                   QOS_CREDIT_GRANTED;
    if (has)
        qos_lockengine_put(client->engine, &use, now);
    unlock(client);
    return has;
}

gboolean qos_lockclient_withdraw(QosLockclient *client, QosLockUse *use)
{
    lock(client);
    gboolean is_withdrawn = qos_lockengine_withdraw(client->engine, use, now_of());
    unlock(client);
    return is_withdrawn;
}

void qos_lockclient_release(QosLockclient *client, const QosResource *resource,
                            const QosCredit *credit)
{
    lock(client);
    qos_lockengine_release(client->engine, resource, credit, now_of());
    unlock(client);
}

gboolean qos_lockclient_spare(QosLockclient *client, const QosResource *resource, guint times)
{
    lock(client);
    gboolean is_spared = qos_lockengine_spare(client->engine, resource, times, now_of());
    unlock(client);
    return is_spared;
}

void qos_lockclient_shrink(QosLockclient *client, double part)
{
    lock(client);
    qos_lockengine_shrink(client->engine, part, now_of());
    unlock(client);
}

void qos_lockclient_set_wait(QosLockclient *client, const QosWireWait *wait)
{
    lock(client);
    qos_lockengine_set_wait(client->engine, wait);
    unlock(client);
}

void qos_lockclient_end_wait(QosLockclient *client, guint64 id)
{
    lock(client);
    qos_lockengine_end_wait(client->engine, id);
    unlock(client);
}

QosTime qos_lockclient_valid(const QosLockclient *client)
{
    QosTime until = atomic_load_explicit(&client->until, memory_order_acquire);

    return until == 0 ? 0 : MAX(until - now_of(), 0);
}

guint qos_lockclient_losses(const QosLockclient *client)
{
    return atomic_load_explicit(&client->losses, memory_order_relaxed);
}

guint qos_lockclient_group(const QosLockclient *client)
{
    return atomic_load_explicit(&client->group, memory_order_relaxed);
}

void qos_lockclient_status(QosLockclient *client, QosLockclientStatus *ret_status)
{
    QosLockclientStatus status = {.server = client->config.server};

    lock(client);
    qos_lockengine_status(client->engine, &status, now_of());
    status.state = client->is_open      ? QOS_LOCKCLIENT_UP
                   : client->is_refused ? QOS_LOCKCLIENT_REFUSED
                   : status.valid > 0   ? QOS_LOCKCLIENT_RECOVERING
                                        : QOS_LOCKCLIENT_CONNECTING;
    g_strlcpy(status.reason, client->reason, sizeof(status.reason));
    status.reconnects = client->opened > 0 ? client->opened - 1 : 0;
    unlock(client);
    *ret_status = status;
}
