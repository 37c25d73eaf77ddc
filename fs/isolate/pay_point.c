/*
 * Pay points. fs/isolate/pay_point.h has the contract.
 *
 * Pay points that have run out, and tickets, are swept out every few seconds when jobs go into
 * debt. So the tables are as small as what these jobs do.
 */
#include "fs/isolate/pay_point.h"

#include <time.h>
#include <unistd.h>

#include "fs/gate/gate.h"
#include "sys/service_thread.h"

/* All these times are of a clock that stands while the daemon does (used_time()). */

/* A pay point outlives the pause of a job that pays one operation a second. */
#define TOLL_TIME (2 * QOS_SECOND)
/* How long a thread may queue for the directory's lock, behind all others of its job at its rate. A
 * ticket that ended there would have the thread pay under the lock, and the queue would never
 * end. */
#define TICKET_TIME (600 * QOS_SECOND)
/* How long a spent ticket is remembered, so that a thread that was there before does not get
 * another. */
#define SPENT_TIME (60 * QOS_SECOND)
#define SWEEP_TIME (5 * QOS_SECOND)
/* More than any operation makes, one of either kind for each name of a deep path included; a thread
 * that does nothing else pays too. A ticket that ended under the lock would have its thread wait
 * there. */
#define TICKET_LOOKUPS 16
#define TICKET_ASKS    16
/* Within that a thread that has read a file comes to read again, if it does not read by a mapping,
 * for which the kernel does not ask; ... */
#define RETURN_TIME (2 * QOS_MILLISECOND)
/* ... and one that came to pay before does so, however busy the machine is. */
#define PAYER_TIME (100 * QOS_MILLISECOND)
/* Payments at a file for which no READ came: what is read there is in the page cache. */
#define UNREAD_MAX 8
/* A pause in which no request comes counts as no more than this. */
#define PAUSE_MAX (100 * QOS_MILLISECOND)
/* A reply waits no longer for the kernel to be told, because the kernel may be waiting for the
 * request of that very reply. */
#define TELLING_TIME (20 * QOS_MILLISECOND)

/* What a ticket was paid for, beside an opcode. */
#define NOTHING  (QOS_OP_COUNT + 1)
#define ANYTHING QOS_OP_COUNT

typedef struct {
    const QosJob *job; /* compared alone */
    QosOpcode opcode;  /* the last that went into debt */
    QosTime since;     /* it has been one, ... */
    guint64 joined;    /* ... and in clock ticks after boot */
    QosTime until;
} Debtor;

/* A thread of a job in debt that has read, and has not come back. */
typedef struct {
    pid_t tid;
    QosTime until; /* it is waited for */
} Reader;

typedef struct {
    gint64 ino;      /* first: the table holds these */
    QosTime until;   /* of the last debtor */
    GArray *debtors; /* of Debtor */
    gboolean is_file;
    GArray *readers;      /* of Reader: a file's */
    guint unread;         /* payments since the last READ for one */
    QosTime closed;       /* until then no attributes are believed: that of the last reader */
    gboolean is_believed; /* the kernel may believe what an answer said since the last news */
    gboolean is_told;     /* the kernel knows, ... */
    guint64 told;         /* ... since then, in clock ticks after boot; else G_MAXUINT64 */
} Toll;

typedef struct {
    gint64 tid;    /* first: the table holds these */
    fuse_ino_t at; /* where it was given */
    QosTime until;
    guint lookups; /* made so far */
    guint asked;   /* times that the thread asked for attributes */
    guint prepaid; /* an opcode, ANYTHING or NOTHING */
    gboolean is_spent;
} Ticket;

struct QosTolls {
    struct fuse_session *session;
    QosTime (*clock)(void);
    QosServiceThread thread;
    QosTime last;   /* atomic: when the last pay point runs out */
    QosTime seen;   /* atomic: when a request last came, to 1 ms; by the daemon's clock */
    QosTime paused; /* atomic, written under the lock, before `seen`: what did not count so far */
    QosMutex lock;  /* everything below */
    pthread_cond_t told; /* the kernel knows of another pay point */
    GHashTable *tolls;   /* a set of Toll */
    GHashTable *tickets; /* a set of Ticket */
    GArray *news;        /* of fuse_ino_t: to be told to the kernel */
    QosTime swept;
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

static void toll_free(Toll *toll)
{
    g_array_unref(toll->debtors);
    g_array_unref(toll->readers);
    g_free(toll);
}

static Toll *find_toll(QosTolls *tolls, fuse_ino_t ino, QosTime now)
{
    const gint64 key = (gint64)ino;
    Toll *toll = g_hash_table_lookup(tolls->tolls, &key);

    return toll != NULL && toll->until > now ? toll : NULL;
}

static Toll *add_toll(QosTolls *tolls, fuse_ino_t ino, gboolean is_file)
{
    Toll *toll = g_new0(Toll, 1);

    toll->ino = (gint64)ino;
    toll->told = G_MAXUINT64;
    toll->is_file = is_file;
    toll->is_believed = TRUE; /* what the kernel was told before */
    toll->debtors = g_array_new(FALSE, FALSE, sizeof(Debtor));
    toll->readers = g_array_new(FALSE, FALSE, sizeof(Reader));
    g_hash_table_replace(tolls->tolls, toll, toll);
    return toll;
}

/* The job's part in a pay point, if that has not run out. */
static const Debtor *find_debtor(const Toll *toll, const QosJob *job, QosTime now)
{
    for (guint i = 0; toll != NULL && i < toll->debtors->len; i++) {
        const Debtor *debtor = &g_array_index(toll->debtors, Debtor, i);

        if (debtor->job == job && debtor->until > now)
            return debtor;
    }
    return NULL;
}

/* Replaces the job's part in the pay point, and drops the parts that have run out. */
static void note_debtor(Toll *toll, Debtor *debtor, QosTime now)
{
    guint i = 0;

    while (i < toll->debtors->len) {
        const Debtor *other = &g_array_index(toll->debtors, Debtor, i);

        if (other->job == debtor->job && other->until > now) {
            debtor->since = other->since;
            debtor->joined = other->joined;
        }
        if (other->job == debtor->job || other->until <= now)
            g_array_remove_index_fast(toll->debtors, i);
        else
            i++;
    }
    g_array_append_vals(toll->debtors, debtor, 1);
}

/* The thread has come to read again, or does so elsewhere. */
static void come_back(Toll *toll, pid_t tid, QosTime now)
{
    toll->closed = now;
    for (guint i = toll->readers->len; i-- > 0;) {
        const Reader *reader = &g_array_index(toll->readers, Reader, i);

        if (reader->tid == tid || reader->until <= now)
            g_array_remove_index_fast(toll->readers, i);
        else
            toll->closed = MAX(toll->closed, reader->until);
    }
}

/* The thread has read, and is waited for. */
static void expect(Toll *toll, pid_t tid, gboolean did_pay, QosTime now)
{
    const Reader reader = {tid, now + (did_pay ? PAYER_TIME : RETURN_TIME)};

    come_back(toll, tid, now);
    g_array_append_val(toll->readers, reader);
    toll->closed = MAX(toll->closed, reader.until);
}

/* The thread's ticket, if it has not run out. */
static Ticket *find_ticket(QosTolls *tolls, pid_t tid, QosTime now)
{
    const gint64 key = tid;
    Ticket *ticket = g_hash_table_lookup(tolls->tickets, &key);

    return ticket != NULL && ticket->until > now ? ticket : NULL;
}

static void spend(Ticket *ticket, QosTime now)
{
    ticket->is_spent = TRUE;
    ticket->until = MIN(ticket->until, now + SPENT_TIME);
}

static void add_ticket(QosTolls *tolls, pid_t tid, fuse_ino_t ino, guint prepaid, QosTime now)
{
    Ticket *ticket = g_new0(Ticket, 1);

    ticket->tid = tid;
    ticket->at = ino;
    ticket->until = now + TICKET_TIME;
    ticket->prepaid = prepaid;
    g_hash_table_replace(tolls->tickets, ticket, ticket);
}

static gboolean has_toll_run_out(gpointer toll, gpointer same G_GNUC_UNUSED, gpointer now)
{
    return ((const Toll *)toll)->until <= *(const QosTime *)now;
}

static gboolean has_ticket_run_out(gpointer ticket, gpointer same G_GNUC_UNUSED, gpointer now)
{
    return ((const Ticket *)ticket)->until <= *(const QosTime *)now;
}

static void sweep_locked(QosTolls *tolls, QosTime now)
{
    if (now - tolls->swept < SWEEP_TIME)
        return;
    g_hash_table_foreach_remove(tolls->tolls, has_toll_run_out, &now);
    g_hash_table_foreach_remove(tolls->tickets, has_ticket_run_out, &now);
    tolls->swept = now;
}

/* Without the lock, and mostly without the clock: every request asks. */
static gboolean has_tolls(QosTolls *tolls)
{
    QosTime last = __atomic_load_n(&tolls->last, __ATOMIC_RELAXED);
    return last != 0 && last > used_time(tolls);
}

/* A directory's is closed all the time. */
static gboolean is_closed(const Toll *toll, QosTime now)
{
    return !toll->is_file || now < toll->closed;
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

/* The lock is released meanwhile, and the pay point may go. */
static void tell_locked(QosTolls *tolls, fuse_ino_t ino)
{
    qos_mutex_unlock(&tolls->lock);
    /* An offset below 0: the attributes alone. What the kernel forgot is no error. */
    fuse_lowlevel_notify_inval_inode(tolls->session, ino, -1, 0);
    qos_mutex_lock(&tolls->lock);
    Toll *toll = find_toll(tolls, ino, 0);
    if (toll != NULL && !toll->is_told) {
        toll->is_told = TRUE;
        toll->told = ticks_after_boot();
    }
    pthread_cond_broadcast(&tolls->told);
}

/* Closes the pay point: from now on the kernel must ask. Waits until it has been told, if that does
 * not take long; the pay point may be gone then. `at_once`: the request that is served holds
 * nothing. */
static void close_locked(QosTolls *tolls, Toll *toll, gboolean at_once, QosTime now)
{
    const fuse_ino_t ino = (fuse_ino_t)toll->ino;
    const QosTime end = qos_gate_now() + TELLING_TIME;
    const gboolean is_news = toll->is_believed;

    if (is_news)
        toll->is_told = toll->is_believed = FALSE;
    if (is_news && at_once) {
        tell_locked(tolls, ino);
        return;
    }
    if (is_news) {
        g_array_append_val(tolls->news, ino);
        qos_service_thread_wake_locked(&tolls->thread);
    }
    while (toll != NULL && !toll->is_told &&
           qos_condition_wait_until(&tolls->told, &tolls->lock, end))
        toll = find_toll(tolls, ino, now);
}

gboolean qos_tolls_count(QosOpcode opcode)
{
    switch (opcode) {
    case QOS_OP_CREATE:
    case QOS_OP_MKNOD:
    case QOS_OP_MKDIR:
    case QOS_OP_SYMLINK:
    case QOS_OP_LINK:
    case QOS_OP_UNLINK:
    case QOS_OP_RMDIR:
    case QOS_OP_RENAME:
    case QOS_OP_READDIR:
        return TRUE;
    default:
        return FALSE;
    }
}

static void raise_locked(QosTolls *tolls, fuse_ino_t ino, const QosJob *job, QosOpcode opcode,
                         pid_t tid, gboolean has_paid, QosTime now)
{
    Toll *toll = find_toll(tolls, ino, now);

    if (toll == NULL)
        toll = add_toll(tolls, ino, opcode == QOS_OP_READ);
    toll->until = now + TOLL_TIME;
    note_debtor(toll, &(Debtor){job, opcode, now, ticks_after_boot(), toll->until}, now);
    __atomic_store_n(&tolls->last, toll->until, __ATOMIC_RELAXED); /* time only grows */
    if (toll->is_file && has_paid) {
        toll->unread++;
        return;
    }
    if (toll->is_file) {
        toll->unread = 0;
        expect(toll, tid, find_ticket(tolls, tid, now) != NULL, now);
    }
    close_locked(tolls, toll, has_paid, now);
}

void qos_tolls_raise(QosTolls *tolls, fuse_ino_t ino, const QosJob *job, QosOpcode opcode,
                     pid_t tid)
{
    QosTime now = used_time(tolls);

    qos_mutex_lock(&tolls->lock);
    sweep_locked(tolls, now);
    raise_locked(tolls, ino, job, opcode, tid, FALSE, now);
    qos_mutex_unlock(&tolls->lock);
}

gboolean qos_tolls_may_believe(QosTolls *tolls, fuse_ino_t ino)
{
    if (!has_tolls(tolls))
        return TRUE;
    qos_mutex_lock(&tolls->lock);
    const QosTime now = used_time_locked(tolls);
    Toll *toll = find_toll(tolls, ino, now);
    const gboolean may_believe = toll == NULL || !is_closed(toll, now);
    if (toll != NULL && may_believe)
        toll->is_believed = TRUE;
    qos_mutex_unlock(&tolls->lock);
    return may_believe;
}

/* TRUE if the thread may hold the directory's lock, or await it, since before the kernel was told,
 * or before its job was in debt here. Then it came by without paying. */
static gboolean was_there(const Toll *toll, const Debtor *debtor, guint64 start, QosTime now)
{
    return !toll->is_file && start <= MAX(toll->told, debtor->joined) &&
           now - debtor->since < TICKET_TIME;
}

/* The thread has come to pay: it reads neither here nor where it got its ticket. */
static void end_reads(QosTolls *tolls, Toll *toll, const Ticket *ticket, pid_t tid, QosTime now)
{
    Toll *last = ticket != NULL ? find_toll(tolls, ticket->at, now) : NULL;

    come_back(toll, tid, now);
    if (last != NULL && last != toll)
        come_back(last, tid, now);
}

QosTollState qos_tolls_meet(QosTolls *tolls, fuse_ino_t ino, const QosJob *job, pid_t tid,
                            guint64 start, QosOpcode *ret_opcode)
{
    QosTollState state = QOS_TOLL_NONE;

    if (!has_tolls(tolls))
        return state;
    qos_mutex_lock(&tolls->lock);
    QosTime now = used_time_locked(tolls);
    Toll *toll = find_toll(tolls, ino, now);
    const Debtor *debtor = find_debtor(toll, job, now);
    Ticket *ticket = find_ticket(tolls, tid, now);
    if (toll != NULL)
        state = debtor != NULL ? QOS_TOLL_FREE : QOS_TOLL_FOREIGN;
    if (debtor != NULL && ticket == NULL && was_there(toll, debtor, start, now)) {
        add_ticket(tolls, tid, ino, NOTHING, now);
    } else if (debtor != NULL && (ticket == NULL || ticket->is_spent)) {
        state = QOS_TOLL_DUE;
        *ret_opcode = debtor->opcode;
        end_reads(tolls, toll, ticket, tid, now);
    } else if (debtor != NULL && ++ticket->asked > TICKET_ASKS) {
        spend(ticket, now);
    }
    qos_mutex_unlock(&tolls->lock);
    return state;
}

void qos_tolls_pay(QosTolls *tolls, fuse_ino_t ino, const QosJob *job, QosOpcode opcode, pid_t tid,
                   QosOpcode prepaid)
{
    qos_mutex_lock(&tolls->lock);
    const QosTime now = used_time_locked(tolls);
    sweep_locked(tolls, now);
    add_ticket(tolls, tid, ino, prepaid, now);
    const Toll *toll = find_toll(tolls, ino, now);
    /* It may have run out while the thread waited. */
    if (toll == NULL || toll->unread < UNREAD_MAX)
        raise_locked(tolls, ino, job, opcode, tid, TRUE, now);
    qos_mutex_unlock(&tolls->lock);
}

gboolean qos_tolls_use(QosTolls *tolls, pid_t tid, QosOpcode opcode)
{
    gboolean is_prepaid = FALSE;

    if (!has_tolls(tolls))
        return FALSE;
    qos_mutex_lock(&tolls->lock);
    const QosTime now = used_time_locked(tolls);
    Ticket *ticket = find_ticket(tolls, tid, now);
    if (ticket != NULL && !ticket->is_spent) {
        is_prepaid = ticket->prepaid == ANYTHING || ticket->prepaid == (guint)opcode;
        if (is_prepaid)
            ticket->prepaid = NOTHING;
        Toll *toll = opcode == QOS_OP_READ ? find_toll(tolls, ticket->at, now) : NULL;
        if (toll != NULL)
            toll->unread = 0;
        if (opcode != QOS_OP_LOOKUP || ++ticket->lookups >= TICKET_LOOKUPS)
            spend(ticket, now);
    }
    qos_mutex_unlock(&tolls->lock);
    return is_prepaid;
}

static QosTime tell(gpointer data)
{
    QosTolls *tolls = data;

    if (tolls->news->len == 0)
        return QOS_NEVER;
    fuse_ino_t ino = g_array_index(tolls->news, fuse_ino_t, tolls->news->len - 1);
    g_array_set_size(tolls->news, tolls->news->len - 1);
    tell_locked(tolls, ino);
    return 0;
}

static void clear(QosTolls *tolls)
{
    g_hash_table_unref(tolls->tickets);
    g_hash_table_unref(tolls->tolls);
    g_array_unref(tolls->news);
    pthread_cond_destroy(&tolls->told);
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
    pthread_cond_init(&tolls->told, NULL);
    tolls->tolls = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL,
                                         (GDestroyNotify)(void (*)(void))toll_free);
    tolls->tickets = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    tolls->news = g_array_new(FALSE, FALSE, sizeof(fuse_ino_t));
    if (qos_service_thread_start(&tolls->thread, "tolls", &tolls->lock, tell, tolls, NULL))
        return tolls;
    clear(tolls);
    return NULL;
}

void qos_tolls_free(QosTolls *tolls)
{
    if (tolls == NULL)
        return;
    qos_service_thread_stop(&tolls->thread);
    clear(tolls);
}
