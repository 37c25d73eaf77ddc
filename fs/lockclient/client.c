/*
 * Joins the engine (fs/lockengine/engine.h) and the link (fs/lockclient/link.h), with a mutex and a
 * thread.
 *
 * A thread that calls a function of fs/lockclient/client.h lets the engine decide under `lock`, and
 * afterwards sends the messages itself. The client's thread makes the callbacks. It is woken for
 * these, and for messages that the socket has no room for. While it is awake all is left to it:
 * before it sleeps it sends all messages that have gathered, and makes all callbacks. So the thread
 * that has read an answer also makes its callback, and a lone request wakes no thread here.
 *
 * A leader (qos_lockclient_await) reads in place of the thread, and then also works in its
 * place: all is left to it, until it finds nothing more to do. Only one of them works at a time
 * (`worker`), so that callbacks are made in order.
 *
 * The timer uses CLOCK_BOOTTIME, as all times here do. If a machine has slept beyond it, it is due
 * at once when the machine wakes up.
 */
#include "fs/lockclient/state.h"

#include <errno.h>
#include <gio/gio.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "sys/mutex.h"

/* The part of the cache that is given back each time that memory is short. If that lasts, the cache
 * is empty within seconds. */
#define PRESSED_PART 0.25

const char *const qos_lockclient_state_names[] = {
    [QOS_LOCKCLIENT_CONNECTING] = "connecting",
    [QOS_LOCKCLIENT_RECOVERING] = "recovering",
    [QOS_LOCKCLIENT_REFUSED] = "refused",
    [QOS_LOCKCLIENT_UP] = "up",
};

QosTime qos_lockclient_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * QOS_SECOND + now.tv_nsec;
}

void qos_lockclient_lock(QosLockclient *client)
{
    qos_mutex_lock(&client->lock);
}

/* Publishes what is read without the lock: where the engine was changed, by the thread. */
static void publish_and_unlock(QosLockclient *client)
{
    atomic_store_explicit(&client->losses, (guint)qos_lockengine_losses(client->engine),
                          memory_order_relaxed);
    atomic_store_explicit(&client->until, qos_lockengine_until(client->engine),
                          memory_order_release);
    atomic_store_explicit(&client->grants, (guint)qos_lockengine_grants(client->engine),
                          memory_order_release);
    atomic_store_explicit(&client->group, qos_lockengine_group(client->engine),
                          memory_order_relaxed);
    qos_mutex_unlock(&client->lock);
}

static void set_timerfd(int fd, QosTime when)
{
    struct itimerspec timer = {0};

    if (when != QOS_NEVER) { /* 0 would be none */
        timer.it_value.tv_sec = MAX(when, 1) / QOS_SECOND;
        timer.it_value.tv_nsec = MAX(when, 1) % QOS_SECOND;
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void set_timer_locked(QosLockclient *client, QosTime next)
{
    client->armed = next;
    set_timerfd(client->timer, next);
}

void qos_lockclient_call_thread(QosLockclient *client)
{
    qos_lockclient_lock(client);
    if (client->worker == QOS_LOCKCLIENT_NOBODY)
        client->worker = QOS_LOCKCLIENT_THREAD;
    qos_mutex_unlock(&client->lock);
    g_main_context_wakeup(client->context);
}

void qos_lockclient_unlock(QosLockclient *client)
{
    const QosTime next = qos_lockengine_next(client->engine);
    gboolean wakes = FALSE, sends = FALSE;

    if (client->worker == QOS_LOCKCLIENT_NOBODY) {
        if (next < client->armed)
            set_timer_locked(client, next);
        wakes = qos_lockengine_has_events(client->engine);
        sends = qos_lockengine_has_bytes(client->engine);
        client->worker = wakes ? QOS_LOCKCLIENT_THREAD : QOS_LOCKCLIENT_NOBODY;
    }
    publish_and_unlock(client);
    if (sends && !qos_link_try_send(client->link))
        qos_lockclient_call_thread(client);
    else if (wakes)
        g_main_context_wakeup(client->context);
}

gboolean qos_lockclient_send(QosLockclient *client, GByteArray *frames)
{
    qos_lockclient_lock(client);
    const gboolean is_taken = client->is_open && (client->urgent == NULL ||
                                                  client->urgent->len <= QOS_LOCKCLIENT_URGENT_MAX);
    if (is_taken && client->urgent != NULL)
        g_byte_array_append(client->urgent, frames->data, frames->len);
    else if (is_taken && frames->len > 0)
        client->urgent = g_steal_pointer(&frames);
    qos_mutex_unlock(&client->lock);
    g_clear_pointer(&frames, g_byte_array_unref);
    /* Whichever thread works: it may be making callbacks for a while. */
    if (is_taken && !qos_link_try_send(client->link))
        qos_lockclient_call_thread(client);
    return is_taken;
}

void qos_lockclient_poke(QosLockclient *client)
{
    /* It fails where it was done very often since the thread has looked: that is enough. */
    G_GNUC_UNUSED gssize length = write(client->poke, &(guint64){1}, sizeof(guint64));
}

void qos_lockclient_call_at(QosLockclient *client, QosTime when)
{
    qos_lockclient_lock(client);
    if (when < client->due) {
        client->due = when;
        set_timerfd(client->alarm, when);
    }
    qos_mutex_unlock(&client->lock);
}

/* --- the thread --- */

static void hello(QosWireHello *ret_hello, gpointer arg)
{
    QosLockclient *client = arg;

    ret_hello->version = QOS_WIRE_VERSION;
    ret_hello->id = client->config.id;
    g_strlcpy(ret_hello->store, client->config.store, sizeof(ret_hello->store));
    g_strlcpy(ret_hello->name, client->config.name, sizeof(ret_hello->name));
    qos_lockclient_lock(client);
    ret_hello->incarnation = qos_lockengine_incarnation(client->engine);
    publish_and_unlock(client);
}

static void end_try_locked(QosLockclient *client)
{
    client->is_tried = TRUE;
    pthread_cond_broadcast(&client->tried);
}

static gboolean welcomed(const QosWireWelcome *welcome, gpointer arg, GError **error)
{
    QosLockclient *client = arg;

    qos_lockclient_lock(client);
    gboolean is_open =
        qos_lockengine_connected(client->engine, welcome, qos_lockclient_clock(), error);
    if (is_open) {
        client->is_open = TRUE;
        client->is_refused = FALSE;
        client->reason[0] = '\0';
        client->opened++;
        end_try_locked(client);
    }
    publish_and_unlock(client);
    if (is_open)
        g_info("lock server %s: connected", client->config.server);
    if (is_open && client->config.connected != NULL)
        client->config.connected(client, TRUE, client->config.arg);
    return is_open;
}

static gboolean received(const guint8 *payload, gsize length, gpointer arg)
{
    QosLockclient *client = arg;

    qos_lockclient_lock(client);
    /* Then only the thread can be reading, and it must make the callbacks for what came. */
    if (client->worker == QOS_LOCKCLIENT_NOBODY)
        client->worker = QOS_LOCKCLIENT_THREAD;
    gboolean is_good =
        qos_lockengine_receive(client->engine, payload, length, qos_lockclient_clock());
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

static gboolean frame(QosWireType type, const guint8 *payload, gsize length, gpointer arg)
{
    const QosLockclientConfig *config = &((const QosLockclient *)arg)->config;

    return config->frame != NULL && config->frame(type, payload, length, config->arg);
}

static GByteArray *more(gpointer arg)
{
    QosLockclient *client = arg;

    qos_lockclient_lock(client);
    GByteArray *bytes = qos_lockengine_take_bytes(client->engine);
    qos_mutex_unlock(&client->lock);
    return bytes;
}

static GByteArray *urgent(gpointer arg)
{
    QosLockclient *client = arg;

    qos_lockclient_lock(client);
    GByteArray *bytes = g_steal_pointer(&client->urgent);
    qos_mutex_unlock(&client->lock);
    return bytes;
}

static gboolean has_bytes_locked(const QosLockclient *client)
{
    return client->urgent != NULL || qos_lockengine_has_bytes(client->engine);
}

/* There is no connection any more. */
static void close_frames(QosLockclient *client)
{
    qos_lockclient_lock(client);
    const gboolean was_open = client->is_open;
    client->is_open = FALSE;
    g_clear_pointer(&client->urgent, g_byte_array_unref);
    qos_mutex_unlock(&client->lock);
    if (was_open && client->config.connected != NULL)
        client->config.connected(client, FALSE, client->config.arg);
}

/* Says in the log what the mount does without the server. */
static void warn(const QosLockclient *client, const char *reason, gboolean has_lease)
{
    g_warning("lock server %s: %s; it is tried again, and %s", client->config.server, reason,
              has_lease ? "nothing is cached when the lease is over"
                        : "meanwhile the mount works and caches nothing (see 'qosfsctl status')");
}

static void failed(const char *reason, gboolean is_refused, gpointer arg)
{
    QosLockclient *client = arg;

    qos_lockclient_lock(client);
    qos_lockengine_disconnected(client->engine, qos_lockclient_clock());
    publish_and_unlock(client);
    close_frames(client);
    qos_lockclient_lock(client);
    client->is_refused = is_refused;
    gboolean is_news = strncmp(client->reason, reason, sizeof(client->reason) - 1) != 0;
    gboolean has_lease = client->opened > 0;
    g_strlcpy(client->reason, reason, sizeof(client->reason));
    publish_and_unlock(client);
    if (is_news)
        warn(client, reason, has_lease);
    qos_lockclient_lock(client);
    end_try_locked(client); /* behind the warning: the thread that waits may go where no warning is
                             * read */
    qos_mutex_unlock(&client->lock);
}

/* Calls without the lock. */
static void tell(QosLockclient *client, const QosLockevent *event)
{
    const QosLockclientConfig *config = &client->config;

    switch (event->kind) {
    case QOS_LOCKEVENT_DONE:
        g_atomic_int_set(&event->use->is_over, TRUE);
        event->use->done(event->use, event->verdict);
        break;
    case QOS_LOCKEVENT_DROP:
        config->drop(&event->resource, &event->credit, event->is_wanted, config->arg);
        break;
    case QOS_LOCKEVENT_WANTED:
        config->wanted(&event->resource, config->arg);
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
    qos_lockclient_lock(client);
    gboolean is_one = qos_lockengine_take_event(client->engine, ret_event);
    qos_mutex_unlock(&client->lock);
    return is_one;
}

/* TRUE: nothing is left to do before the timer, and other threads do their own work themselves.
 * `waits`: messages wait for room in the socket. */
static gboolean try_rest(QosLockclient *client, gboolean waits)
{
    const QosTime now = qos_lockclient_clock();

    qos_lockclient_lock(client);
    const QosTime next = qos_lockengine_next(client->engine);
    const gboolean rests = !qos_lockengine_has_events(client->engine) && next > now &&
                           (!has_bytes_locked(client) || waits);
    /* A timer that is earlier than needed stays, because nearly each message moves the time at
     * which it would be repeated, and few messages are. */
    if (client->armed > next || client->armed <= now)
        set_timer_locked(client, next);
    if (rests)
        client->worker = QOS_LOCKCLIENT_NOBODY;
    qos_mutex_unlock(&client->lock);
    return rests;
}

/* Does what the clock asks for. FALSE: another works. */
static gboolean begin_work(QosLockclient *client, QosLockclientWorker worker)
{
    qos_lockclient_lock(client);
    const gboolean is_mine = client->worker == QOS_LOCKCLIENT_NOBODY || client->worker == worker;
    if (is_mine) {
        client->worker = worker;
        if (qos_lockclient_clock() >= qos_lockengine_next(client->engine))
            qos_lockengine_tick(client->engine, qos_lockclient_clock());
    }
    publish_and_unlock(client);
    return is_mine;
}

static void tell_all(QosLockclient *client)
{
    QosLockevent event;

    while (take_event(client, &event)) {
        tell(client, &event);
        qos_credit_clear(qos_resource_type(event.resource.type), &event.credit);
    }
}

/* Does what there is to do. TRUE: the thread may sleep. */
static gboolean work(QosLockclient *client)
{
    if (!begin_work(client, QOS_LOCKCLIENT_THREAD))
        return TRUE;
    /* Messages first: others wait for them. */
    gboolean waits = !qos_link_send(client->link);
    tell_all(client);
    return try_rest(client, waits);
}

static gboolean on_timer(int fd, GIOCondition condition G_GNUC_UNUSED, gpointer data G_GNUC_UNUSED)
{
    guint64 times;

    /* The read fails if the timer was set anew meanwhile. work() finds what it was due for. */
    G_GNUC_UNUSED gssize length = read(fd, &times, sizeof(times));
    return G_SOURCE_CONTINUE;
}

/* Of the alarm, and of the poke. */
static gboolean on_alarm(int fd, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    QosLockclient *client = data;
    guint64 times;

    G_GNUC_UNUSED gssize length = read(fd, &times, sizeof(times));
    qos_lockclient_lock(client);
    const gboolean is_due = fd == client->poke || qos_lockclient_clock() >= client->due;
    if (is_due && fd == client->alarm)
        client->due = QOS_NEVER;
    qos_mutex_unlock(&client->lock);
    if (is_due && client->config.due != NULL)
        client->config.due(client, client->config.arg);
    return G_SOURCE_CONTINUE;
}

/* Reads what is there, and does what comes of it. FALSE: the rest is the thread's. */
static gboolean lead_once(QosLockclient *client)
{
    gboolean waits;

    if (!begin_work(client, QOS_LOCKCLIENT_LEADER))
        return FALSE;
    const gboolean goes_on = qos_receive_read(qos_link_receive(client->link));
    do {
        waits = !qos_link_try_send(client->link);
        tell_all(client);
    } while (!try_rest(client, waits) && begin_work(client, QOS_LOCKCLIENT_LEADER));
    if (waits)
        qos_lockclient_call_thread(client);
    return goes_on && !waits;
}

void qos_lockclient_lead(QosLockclient *client, const QosLockUse *use, QosTime patience)
{
    const QosTime end = qos_lockclient_clock() + patience;

    qos_lockclient_lock(client);
    gboolean goes_on = client->worker == QOS_LOCKCLIENT_NOBODY;
    qos_mutex_unlock(&client->lock);
    while (goes_on && !g_atomic_int_get(&use->is_over)) {
        const QosTime rest = end - qos_lockclient_clock();
        goes_on =
            rest > 0 && qos_receive_wait(qos_link_receive(client->link), rest) && lead_once(client);
    }
}

void qos_lockclient_shrink(QosLockclient *client, double part)
{
    qos_lockclient_lock(client);
    qos_lockengine_shrink(client->engine, part, qos_lockclient_clock());
    qos_lockclient_unlock(client);
}

/* Memory is short. */
static void pressed(gpointer arg)
{
    qos_lockclient_shrink(arg, PRESSED_PART);
}

/* `fd`: a timer, or the poke; `func`: a GUnixFDSourceFunc. */
static GSource *watch_timer(QosLockclient *client, int fd, GSourceFunc func)
{
    GSource *source = g_unix_fd_source_new(fd, G_IO_IN);

    g_source_set_callback(source, func, client, NULL);
    g_source_attach(source, client->context);
    return source;
}

static void end_source(GSource *source)
{
    g_source_destroy(source);
    g_source_unref(source);
}

static void *run(void *data)
{
    QosLockclient *client = data;
    GSource *timer = watch_timer(client, client->timer, G_SOURCE_FUNC(on_timer));
    GSource *alarm = watch_timer(client, client->alarm, G_SOURCE_FUNC(on_alarm));
    GSource *poke = watch_timer(client, client->poke, G_SOURCE_FUNC(on_alarm));
    gboolean sleeps = FALSE;

    pthread_setname_np(pthread_self(), "lockclient");
    g_main_context_push_thread_default(client->context);
    qos_link_start(client->link);
    while (!atomic_load(&client->ends)) {
        g_main_context_iteration(client->context, sleeps);
        sleeps = work(client);
    }
    end_source(timer);
    end_source(alarm);
    end_source(poke);
    qos_lockclient_lock(client);
    client->worker = QOS_LOCKCLIENT_THREAD;
    qos_lockengine_leave(client->engine, qos_lockclient_clock());
    publish_and_unlock(client);
    qos_link_stop(client->link);
    close_frames(client);
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
    const QosLinkConfig link = {.server = client->config.server,
                                .ca = client->config.ca,
                                .certificate = client->config.certificate,
                                .key = client->config.key,
                                .munged = client->config.munged};
    const QosLinkUser user = {.arg = client,
                              .hello = hello,
                              .welcomed = welcomed,
                              .received = received,
                              .deadlocked = deadlocked,
                              .frame = frame,
                              .more = more,
                              .urgent = urgent,
                              .failed = failed};
    int places[QOS_PRESSURE_PLACES];

    client->link = qos_link_new(&link, &user, client->context, error);
    if (client->link == NULL)
        return FALSE;
    client->pressure =
        qos_pressure_new(places, qos_pressure_open(places), client->context, pressed, client);
    client->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    client->alarm = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    client->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->timer < 0 || client->alarm < 0 || client->poke < 0) {
        qos_set_error(error, errno, "cannot make a timer: %s", g_strerror(errno));
        return FALSE;
    }
    /* GLib 2.74 was seen to deadlock where two threads were the first to meet the type. */
    g_type_ensure(G_TYPE_SOCKET);
    client->has_thread = pthread_create(&client->thread, NULL, run, client) == 0;
    if (!client->has_thread)
        qos_set_thread_error(error);
    return client->has_thread;
}

QosLockclient *qos_lockclient_new(const QosLockclientConfig *config, GError **error)
{
    QosLockclient *client = g_new0(QosLockclient, 1);

    copy_config(client, config);
    qos_mutex_init(&client->lock, QOS_MUTEX_LOCKCLIENT);
    pthread_cond_init(&client->tried, NULL);
    client->timer = client->alarm = client->poke = -1;
    client->armed = client->due = QOS_NEVER;
    client->engine = qos_lockengine_new(config->id, config->incarnation);
    client->fastpaths = qos_lockengine_fastpaths(client->engine);
    client->context = g_main_context_new();
    if (start(client, error))
        return client;
    qos_lockclient_free(client);
    return NULL;
}

void qos_lockclient_await_first(QosLockclient *client, QosTime patience)
{
    const QosTime until = g_get_monotonic_time() * QOS_MICROSECOND + patience;
    g_autofree char *waited = qos_format_duration(patience);
    g_autofree char *reason = g_strdup_printf("it has not answered within %s", waited);

    qos_lockclient_lock(client);
    while (!client->is_tried && qos_condition_wait_until(&client->tried, &client->lock, until)) {
    }
    const gboolean is_tried = client->is_tried;
    qos_mutex_unlock(&client->lock);
    if (!is_tried)
        warn(client, reason, FALSE);
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
    qos_link_free(client->link);
    g_main_context_unref(client->context);
    if (client->timer >= 0)
        close(client->timer);
    if (client->alarm >= 0)
        close(client->alarm);
    if (client->poke >= 0)
        close(client->poke);
    qos_lockengine_free(client->engine);
    pthread_cond_destroy(&client->tried);
    qos_mutex_destroy(&client->lock);
    clear_config(&client->config);
    g_free(client);
}
