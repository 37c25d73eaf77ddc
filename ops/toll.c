/*
 * Tolls; ops/toll.h tells what for. Tolls and tickets that have run out are swept out every few
 * seconds, as jobs in debt go on, so that the tables stay as small as what these do.
 */
#include "ops/toll.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "fs/gate.h"
#include "fs/mutex.h"

/* All these times are of a clock that stands while the daemon does (used_time()): its process may
 * be stopped, or the machine, or so busy that nobody gets on, and who queues for a lock still does.
 */

/* How long a toll stands: it outlives the pause of a job that pays one operation a second. */
#define TOLL_TIME (2 * QOS_SECOND)
/* How long a thread may queue for the directory's lock. */
#define TICKET_TIME (5 * QOS_SECOND)
/* Directories whose last change is remembered: of two in one place that of the later. */
#define CHANGES        64
#define GRACE_TIME     TICKET_TIME /* no longer: a ticket is remembered so long */
#define TICKET_LOOKUPS 3
/* More than any operation asks for; who does nothing else pays too. */
#define TICKET_ASKS 16
/* Within that who passed at a file has read there, and comes to read again. */
#define CLOSED_TIME (2 * QOS_MILLISECOND)
/* Of a time in which no request came no more counts. */
#define PAUSE_MAX (100 * QOS_MILLISECOND)
/* Beyond it, what keeps the kernel may be the very request whose reply waits to be sent. */
#define TELLING_TIME (20 * QOS_MILLISECOND)

typedef struct {
    fuse_ino_t ino;
    gint64 tid; /* 0 in a toll */
} Key;

/* A toll or a ticket. */
typedef struct {
    Key key;
    QosTime since;
    QosTime until;
    guint lookups;         /* of a ticket: made so far */
    guint asked;           /* of a ticket: times that he asked for the attributes */
    gboolean is_spent;     /* of a ticket: he has done what he came for */
    gboolean is_directory; /* of a toll */
    gboolean is_believed;  /* of a file's toll: the kernel may believe what somebody was answered */
    gboolean is_told;      /* of a toll: the kernel knows, ... */
    guint64 told;          /* ... since then, in clock ticks after boot; else G_MAXUINT64 */
    QosTime closed;        /* of a file's toll: until when nobody's attributes are believed */
    QosOpcode opcode;      /* of a toll: in debt; of a ticket: paid for, QOS_OP_COUNT = none */
} Pass;

/* Both atomic, each by itself: one that is read half is a change too many or too few. */
typedef struct {
    fuse_ino_t ino;
    QosTime time;
} Change;

struct QosTolls {
    struct fuse_session *session;
    QosTime (*clock)(void);
    pthread_t thread;
    QosTime last;   /* atomic: when the last toll runs out */
    QosTime seen;   /* atomic: when a request last came, to 1 ms; by the daemon's clock */
    QosTime paused; /* atomic, written under the lock, before `seen`: what did not count so far */
    Change changes[CHANGES];
    QosMutex lock; /* everything below */
    pthread_cond_t changed;
    pthread_cond_t told; /* the kernel knows of another toll */
    GHashTable *tolls;   /* Key -> Pass */
    GHashTable *tickets; /* Key -> Pass */
    GArray *news;        /* of fuse_ino_t: to be told to the kernel */
    QosTime swept;
    gboolean is_stopping;
};

static QosTime used_time_locked(QosTolls *tolls)
{
    const QosTime now = tolls->clock(), seen = __atomic_load_n(&tolls->seen, __ATOMIC_ACQUIRE);
    const QosTime pause = now - seen - PAUSE_MAX;

    if (pause > 0) {
        __atomic_store_n(&tolls->paused, tolls->paused + pause, __ATOMIC_RELAXED);
        __atomic_store_n(&tolls->seen, now, __ATOMIC_RELEASE);
    }
    return now - tolls->paused;
}

/* The same without the lock, which it takes after a pause alone. */
static QosTime used_time(QosTolls *tolls)
{
    QosTime seen = __atomic_load_n(&tolls->seen, __ATOMIC_ACQUIRE), now = tolls->clock();

    if (now - seen > PAUSE_MAX) {
        qos_mutex_lock(&tolls->lock);
        now = used_time_locked(tolls);
        qos_mutex_unlock(&tolls->lock);
        return now;
    }
    if (now - seen >= QOS_MILLISECOND)
        __atomic_compare_exchange_n(&tolls->seen, &seen, now, FALSE, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    return now - __atomic_load_n(&tolls->paused, __ATOMIC_RELAXED);
}

static guint key_hash(gconstpointer data)
{
    const Key *key = data;
    return (guint)((key->ino * 31 + (guint64)key->tid) * G_GUINT64_CONSTANT(0x9E3779B97F4A7C15) >>
                   32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
    const Key *one = a, *other = b;
    return one->ino == other->ino && one->tid == other->tid;
}

static gboolean has_run_out(gpointer key G_GNUC_UNUSED, gpointer pass, gpointer now)
{
    return ((const Pass *)pass)->until <= *(const QosTime *)now;
}

/* The toll or ticket of that key, if it has not run out. */
static Pass *find(GHashTable *passes, fuse_ino_t ino, pid_t tid, QosTime now)
{
    Key key = {ino, tid};
    Pass *pass = g_hash_table_lookup(passes, &key);
    return pass != NULL && pass->until > now ? pass : NULL;
}

static Pass *find_toll(QosTolls *tolls, fuse_ino_t ino, QosTime now)
{
    return find(tolls->tolls, ino, 0, now);
}

/* A ticket of an earlier toll is none. */
static Pass *find_ticket(QosTolls *tolls, const Pass *toll, pid_t tid, QosTime now)
{
    Pass *ticket = toll != NULL ? find(tolls->tickets, toll->key.ino, tid, now) : NULL;
    return ticket != NULL && ticket->since >= toll->since ? ticket : NULL;
}

static Pass *add(GHashTable *passes, fuse_ino_t ino, pid_t tid, QosTime now, QosTime duration)
{
    Pass *pass = g_new0(Pass, 1);
    pass->key = (Key){ino, tid};
    pass->since = now;
    pass->until = now + duration;
    g_hash_table_replace(passes, &pass->key, pass);
    return pass;
}

/* A directory's is closed from when the kernel has been told, a file's for a while. */
static gboolean is_closed_at(const Pass *toll, QosTime now)
{
    return toll->closed != 0 && (toll->is_directory || now < toll->closed);
}

/* Without the lock, and mostly without the clock: every request asks. */
static gboolean has_tolls(QosTolls *tolls)
{
    QosTime last = __atomic_load_n(&tolls->last, __ATOMIC_RELAXED);
    return last != 0 && last > used_time(tolls);
}

/* Whoever comes has to ask from now on. Waits until the kernel has been told, if that does not take
 * long; the toll may be gone then. Where it believes nothing it is not told: it takes no size from
 * an answer to what was asked before, and the next one told may be just about to get such. */
static void close_locked(QosTolls *tolls, Pass *toll, QosTime now)
{
    const fuse_ino_t ino = toll->key.ino;

    if (!is_closed_at(toll, now) && toll->is_believed) {
        toll->is_told = toll->is_believed = FALSE;
        g_array_append_val(tolls->news, ino);
        pthread_cond_signal(&tolls->changed);
    }
    toll->closed = now + CLOSED_TIME;
    const QosTime end = qos_gate_now() + TELLING_TIME;
    while (toll != NULL && !toll->is_told &&
           qos_condition_wait_until(&tolls->told, &tolls->lock, end))
        toll = find_toll(tolls, ino, now);
}

/* The clock that the start of threads is told by. */
static guint64 ticks_after_boot(void)
{
    const guint64 ticks_per_second = (guint64)sysconf(_SC_CLK_TCK);
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    /* The nanoseconds apart: a product with all of them would overflow after six years. */
    return (guint64)now.tv_sec * ticks_per_second +
           (guint64)now.tv_nsec * ticks_per_second / QOS_SECOND;
}

void qos_tolls_raise(QosTolls *tolls, fuse_ino_t ino, QosOpcode opcode, gboolean is_directory)
{
    QosTime now = used_time(tolls);

    qos_mutex_lock(&tolls->lock);
    if (now - tolls->swept >= TICKET_TIME) {
        g_hash_table_foreach_remove(tolls->tolls, has_run_out, &now);
        g_hash_table_foreach_remove(tolls->tickets, has_run_out, &now);
        tolls->swept = now;
    }
    Pass *toll = find_toll(tolls, ino, now);
    if (toll == NULL) {
        toll = add(tolls->tolls, ino, 0, now, TOLL_TIME);
        toll->is_directory = is_directory;
        toll->is_believed = TRUE; /* of what was before there was a toll */
        toll->told = G_MAXUINT64;
    }
    toll->until = now + TOLL_TIME;
    toll->opcode = opcode;
    __atomic_store_n(&tolls->last, toll->until, __ATOMIC_RELAXED); /* time only grows */
    close_locked(tolls, toll, now);
    qos_mutex_unlock(&tolls->lock);
}

gboolean qos_tolls_may_believe(QosTolls *tolls, fuse_ino_t ino)
{
    if (!has_tolls(tolls))
        return TRUE;
    qos_mutex_lock(&tolls->lock);
    QosTime now = used_time_locked(tolls);
    Pass *toll = find_toll(tolls, ino, now);
    gboolean is_closed = toll != NULL && is_closed_at(toll, now);
    if (toll != NULL && !is_closed)
        toll->is_believed = TRUE;
    qos_mutex_unlock(&tolls->lock);
    return !is_closed;
}

void qos_tolls_note_change(QosTolls *tolls, fuse_ino_t ino)
{
    Change *change = &tolls->changes[ino % CHANGES];

    __atomic_store_n(&change->time, used_time(tolls), __ATOMIC_RELAXED);
    __atomic_store_n(&change->ino, ino, __ATOMIC_RELEASE);
}

/* He may have come by, with what the kernel believed then, and have waited for the lock since. */
static gboolean has_changed(QosTolls *tolls, fuse_ino_t ino)
{
    const Change *change = &tolls->changes[ino % CHANGES];

    return __atomic_load_n(&change->ino, __ATOMIC_ACQUIRE) == ino &&
           used_time(tolls) - __atomic_load_n(&change->time, __ATOMIC_RELAXED) < GRACE_TIME;
}

/* He may hold or await the directory's lock since before the kernel knew of the toll, and so came
 * by without being asked. */
static gboolean was_there(const Pass *toll, guint64 start, QosTime now)
{
    return start <= toll->told && now - toll->since < GRACE_TIME;
}

QosTollState qos_tolls_meet(QosTolls *tolls, fuse_ino_t ino, pid_t tid, guint64 start,
                            QosOpcode *ret_opcode)
{
    QosTollState state = has_changed(tolls, ino) ? QOS_TOLL_FREE : QOS_TOLL_NONE;

    if (!has_tolls(tolls))
        return state;
    qos_mutex_lock(&tolls->lock);
    QosTime now = used_time_locked(tolls);
    const Pass *toll = find_toll(tolls, ino, now);
    Pass *ticket = find_ticket(tolls, toll, tid, now);
    if (ticket != NULL && ++ticket->asked > TICKET_ASKS)
        ticket->is_spent = TRUE;
    if (toll != NULL) {
        gboolean is_free = ticket != NULL ? !ticket->is_spent : was_there(toll, start, now);
        state = is_free && toll->is_directory ? QOS_TOLL_FREE : QOS_TOLL_DUE;
        *ret_opcode = toll->opcode;
    }
    qos_mutex_unlock(&tolls->lock);
    return state;
}

void qos_tolls_pass(QosTolls *tolls, fuse_ino_t ino, pid_t tid, QosOpcode prepaid,
                    gboolean has_waited)
{
    if (!has_tolls(tolls))
        return;
    qos_mutex_lock(&tolls->lock);
    QosTime now = used_time_locked(tolls);
    Pass *toll = find_toll(tolls, ino, now);
    Pass *ticket = find_ticket(tolls, toll, tid, now);
    if (ticket != NULL && !ticket->is_spent)
        ticket->until = now + TICKET_TIME;
    else if (toll != NULL && toll->is_directory)
        add(tolls->tickets, ino, tid, now, TICKET_TIME)->opcode = prepaid;
    else if (toll != NULL && has_waited)
        close_locked(tolls, toll, now);
    qos_mutex_unlock(&tolls->lock);
}

gboolean qos_tolls_use(QosTolls *tolls, fuse_ino_t ino, pid_t tid, QosOpcode opcode)
{
    gboolean is_look = opcode == QOS_OP_LOOKUP || opcode == QOS_OP_READDIR;
    gboolean is_prepaid = FALSE;

    if (!has_tolls(tolls))
        return FALSE;
    qos_mutex_lock(&tolls->lock);
    QosTime now = used_time_locked(tolls);
    Pass *ticket = find_ticket(tolls, find_toll(tolls, ino, now), tid, now);
    if (ticket != NULL && !ticket->is_spent) {
        is_prepaid = ticket->opcode == opcode;
        if (is_prepaid)
            ticket->opcode = QOS_OP_COUNT;
        ticket->is_spent = !is_look || ++ticket->lookups >= TICKET_LOOKUPS;
    }
    qos_mutex_unlock(&tolls->lock);
    return is_prepaid;
}

static void *tell(void *arg)
{
    QosTolls *tolls = arg;

    pthread_setname_np(pthread_self(), "tolls");
    qos_mutex_lock(&tolls->lock);
    while (!tolls->is_stopping) {
        if (tolls->news->len == 0) {
            qos_condition_wait(&tolls->changed, &tolls->lock);
            continue;
        }
        fuse_ino_t ino = g_array_index(tolls->news, fuse_ino_t, tolls->news->len - 1);
        g_array_set_size(tolls->news, tolls->news->len - 1);
        qos_mutex_unlock(&tolls->lock);
        /* An offset below 0: the attributes alone. What the kernel forgot is no error. */
        fuse_lowlevel_notify_inval_inode(tolls->session, ino, -1, 0);
        qos_mutex_lock(&tolls->lock);
        Pass *toll = find_toll(tolls, ino, 0);
        if (toll != NULL && !toll->is_told) {
            toll->is_told = TRUE;
            toll->told = ticks_after_boot();
        }
        pthread_cond_broadcast(&tolls->told);
    }
    qos_mutex_unlock(&tolls->lock);
    return NULL;
}

static void clear(QosTolls *tolls)
{
    g_hash_table_unref(tolls->tickets);
    g_hash_table_unref(tolls->tolls);
    g_array_unref(tolls->news);
    pthread_cond_destroy(&tolls->told);
    pthread_cond_destroy(&tolls->changed);
    qos_mutex_destroy(&tolls->lock);
    g_free(tolls);
}

QosTolls *qos_tolls_new(struct fuse_session *session, QosTime (*clock)(void))
{
    QosTolls *tolls = g_new0(QosTolls, 1);

    tolls->session = session;
    tolls->clock = clock;
    tolls->seen = clock();
    qos_mutex_init(&tolls->lock, QOS_MUTEX_TOLLS);
    pthread_cond_init(&tolls->changed, NULL);
    pthread_cond_init(&tolls->told, NULL);
    tolls->tolls = g_hash_table_new_full(key_hash, key_equal, NULL, g_free);
    tolls->tickets = g_hash_table_new_full(key_hash, key_equal, NULL, g_free);
    tolls->news = g_array_new(FALSE, FALSE, sizeof(fuse_ino_t));
    if (pthread_create(&tolls->thread, NULL, tell, tolls) == 0)
        return tolls;
    clear(tolls);
    return NULL;
}

void qos_tolls_free(QosTolls *tolls)
{
    if (tolls == NULL)
        return;
    qos_mutex_lock(&tolls->lock);
    tolls->is_stopping = TRUE;
    pthread_cond_signal(&tolls->changed);
    qos_mutex_unlock(&tolls->lock);
    pthread_join(tolls->thread, NULL);
    clear(tolls);
}
