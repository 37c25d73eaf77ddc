/*
 * Pay points. fs/isolate/pay_point.h has the contract.
 *
 * Pay points that have run out, and passes, are swept out every few seconds when jobs go into
 * debt. So the tables are as small as what these jobs do.
 */
#include "fs/isolate/pay_point.h"

#include <time.h>
#include <unistd.h>

#include "fs/gate/gate.h"
#include "sys/service_thread.h"

/* All these times are of a clock that stands while the daemon does (used_time()). */

/* A pay point outlives the pause of a job that pays one operation a second. */
#define PAY_POINT_TIME (2 * QOS_SECOND)
/* How long a thread may queue for the directory's lock, behind all others of its job at its rate. A
 * pass that ended there would have the thread pay under the lock, and the queue would never
 * end. */
#define PASS_TIME (600 * QOS_SECOND)
/* How long a spent pass is remembered, so that a thread that was there before does not get
 * another. */
#define SPENT_TIME (60 * QOS_SECOND)
#define SWEEP_TIME (5 * QOS_SECOND)
/* More than any operation makes, one of either kind for each name of a deep path included; a thread
 * that does nothing else pays too. A pass that ended under the lock would have its thread wait
 * there. */
#define PASS_LOOKUPS 16
#define PASS_ASKS    16
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

/* What a pass was paid for, beside an opcode. */
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
    gboolean is_believed; /* the kernel may believe what an answer said since the last to_forget */
    gboolean is_told;     /* the kernel knows, ... */
    guint64 told;         /* ... since then, in clock ticks after boot; else G_MAXUINT64 */
} PayPoint;

typedef struct {
    gint64 tid;    /* first: the table holds these */
    fuse_ino_t at; /* where it was given */
    QosTime until;
    guint lookups; /* made so far */
    guint asked;   /* times that the thread asked for attributes */
    guint prepaid; /* an opcode, ANYTHING or NOTHING */
    gboolean is_spent;
} Pass;

struct QosPayPoints {
    struct fuse_session *session;
    QosTime (*clock)(void);
    QosServiceThread thread;
    QosTime last;   /* atomic: when the last pay point runs out */
    QosTime seen;   /* atomic: when a request last came, to 1 ms; by the daemon's clock */
    QosTime paused; /* atomic, written under the lock, before `seen`: what did not count so far */
    QosMutex lock;  /* everything below */
    pthread_cond_t told; /* the kernel knows of another pay point */
    GHashTable *points;  /* a set of PayPoint */
    GHashTable *passes;  /* a set of Pass */
    GArray *to_forget;   /* of fuse_ino_t: to be told to the kernel */
    QosTime swept;
};

static QosTime used_time_locked(QosPayPoints *pay_points)
{
    const QosTime now = pay_points->clock(),
                  seen = __atomic_load_n(&pay_points->seen, __ATOMIC_ACQUIRE);
    const QosTime pause = now - seen - PAUSE_MAX;

    if (pause > 0) {
        __atomic_store_n(&pay_points->paused, pay_points->paused + pause, __ATOMIC_RELAXED);
        __atomic_store_n(&pay_points->seen, now, __ATOMIC_RELEASE);
    }
    return now - pay_points->paused;
}

/* The same without the lock, which it takes after a pause alone. */
static QosTime used_time(QosPayPoints *pay_points)
{
    QosTime seen = __atomic_load_n(&pay_points->seen, __ATOMIC_ACQUIRE), now = pay_points->clock();

    if (now - seen > PAUSE_MAX) {
        qos_mutex_lock(&pay_points->lock);
        now = used_time_locked(pay_points);
        qos_mutex_unlock(&pay_points->lock);
        return now;
    }
    if (now - seen >= QOS_MILLISECOND)
        __atomic_compare_exchange_n(&pay_points->seen, &seen, now, FALSE, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    return now - __atomic_load_n(&pay_points->paused, __ATOMIC_RELAXED);
}

static void point_free(PayPoint *point)
{
    g_array_unref(point->debtors);
    g_array_unref(point->readers);
    g_free(point);
}

static PayPoint *find_point(QosPayPoints *pay_points, fuse_ino_t ino, QosTime now)
{
    const gint64 key = (gint64)ino;
    PayPoint *point = g_hash_table_lookup(pay_points->points, &key);

    return point != NULL && point->until > now ? point : NULL;
}

static PayPoint *add_point(QosPayPoints *pay_points, fuse_ino_t ino, gboolean is_file)
{
    PayPoint *point = g_new0(PayPoint, 1);

    point->ino = (gint64)ino;
    point->told = G_MAXUINT64;
    point->is_file = is_file;
    point->is_believed = TRUE; /* what the kernel was told before */
    point->debtors = g_array_new(FALSE, FALSE, sizeof(Debtor));
    point->readers = g_array_new(FALSE, FALSE, sizeof(Reader));
    g_hash_table_replace(pay_points->points, point, point);
    return point;
}

/* The job's part in a pay point, if that has not run out. */
static const Debtor *find_debtor(const PayPoint *point, const QosJob *job, QosTime now)
{
    for (guint i = 0; point != NULL && i < point->debtors->len; i++) {
        const Debtor *debtor = &g_array_index(point->debtors, Debtor, i);

        if (debtor->job == job && debtor->until > now)
            return debtor;
    }
    return NULL;
}

/* Replaces the job's part in the pay point, and drops the parts that have run out. */
static void note_debtor(PayPoint *point, Debtor *debtor, QosTime now)
{
    guint i = 0;

    while (i < point->debtors->len) {
        const Debtor *other = &g_array_index(point->debtors, Debtor, i);

        if (other->job == debtor->job && other->until > now) {
            debtor->since = other->since;
            debtor->joined = other->joined;
        }
        if (other->job == debtor->job || other->until <= now)
            g_array_remove_index_fast(point->debtors, i);
        else
            i++;
    }
    g_array_append_vals(point->debtors, debtor, 1);
}

/* The thread has come to read again, or does so elsewhere. */
static void come_back(PayPoint *point, pid_t tid, QosTime now)
{
    point->closed = now;
    for (guint i = point->readers->len; i-- > 0;) {
        const Reader *reader = &g_array_index(point->readers, Reader, i);

        if (reader->tid == tid || reader->until <= now)
            g_array_remove_index_fast(point->readers, i);
        else
            point->closed = MAX(point->closed, reader->until);
    }
}

/* The thread has read, and is waited for. */
static void expect(PayPoint *point, pid_t tid, gboolean did_pay, QosTime now)
{
    const Reader reader = {tid, now + (did_pay ? PAYER_TIME : RETURN_TIME)};

    come_back(point, tid, now);
    g_array_append_val(point->readers, reader);
    point->closed = MAX(point->closed, reader.until);
}

/* The thread's pass, if it has not run out. */
static Pass *find_pass(QosPayPoints *pay_points, pid_t tid, QosTime now)
{
    const gint64 key = tid;
    Pass *pass = g_hash_table_lookup(pay_points->passes, &key);

    return pass != NULL && pass->until > now ? pass : NULL;
}

static void spend(Pass *pass, QosTime now)
{
    pass->is_spent = TRUE;
    pass->until = MIN(pass->until, now + SPENT_TIME);
}

static void add_pass(QosPayPoints *pay_points, pid_t tid, fuse_ino_t ino, guint prepaid,
                     QosTime now)
{
    Pass *pass = g_new0(Pass, 1);

    pass->tid = tid;
    pass->at = ino;
    pass->until = now + PASS_TIME;
    pass->prepaid = prepaid;
    g_hash_table_replace(pay_points->passes, pass, pass);
}

static gboolean has_point_run_out(gpointer point, gpointer same G_GNUC_UNUSED, gpointer now)
{
    return ((const PayPoint *)point)->until <= *(const QosTime *)now;
}

static gboolean has_pass_run_out(gpointer pass, gpointer same G_GNUC_UNUSED, gpointer now)
{
    return ((const Pass *)pass)->until <= *(const QosTime *)now;
}

static void sweep_locked(QosPayPoints *pay_points, QosTime now)
{
    if (now - pay_points->swept < SWEEP_TIME)
        return;
    g_hash_table_foreach_remove(pay_points->points, has_point_run_out, &now);
    g_hash_table_foreach_remove(pay_points->passes, has_pass_run_out, &now);
    pay_points->swept = now;
}

/* Without the lock, and mostly without the clock: every request asks. */
static gboolean has_points(QosPayPoints *pay_points)
{
    QosTime last = __atomic_load_n(&pay_points->last, __ATOMIC_RELAXED);
    return last != 0 && last > used_time(pay_points);
}

/* A directory's is closed all the time. */
static gboolean is_closed(const PayPoint *point, QosTime now)
{
    return !point->is_file || now < point->closed;
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
static void tell_locked(QosPayPoints *pay_points, fuse_ino_t ino)
{
    qos_mutex_unlock(&pay_points->lock);
    /* An offset below 0: the attributes alone. What the kernel forgot is no error. */
    fuse_lowlevel_notify_inval_inode(pay_points->session, ino, -1, 0);
    qos_mutex_lock(&pay_points->lock);
    PayPoint *point = find_point(pay_points, ino, 0);
    if (point != NULL && !point->is_told) {
        point->is_told = TRUE;
        point->told = ticks_after_boot();
    }
    pthread_cond_broadcast(&pay_points->told);
}

/* Closes the pay point: from now on the kernel must ask. Waits until it has been told, if that does
 * not take long; the pay point may be gone then. `at_once`: the request that is served holds
 * nothing. */
static void close_locked(QosPayPoints *pay_points, PayPoint *point, gboolean at_once, QosTime now)
{
    const fuse_ino_t ino = (fuse_ino_t)point->ino;
    const QosTime end = qos_clock_now() + TELLING_TIME;
    const gboolean must_forget = point->is_believed;

    if (must_forget)
        point->is_told = point->is_believed = FALSE;
    if (must_forget && at_once) {
        tell_locked(pay_points, ino);
        return;
    }
    if (must_forget) {
        g_array_append_val(pay_points->to_forget, ino);
        qos_service_thread_wake_locked(&pay_points->thread);
    }
    while (point != NULL && !point->is_told &&
           qos_condition_wait_until(&pay_points->told, &pay_points->lock, end))
        point = find_point(pay_points, ino, now);
}

gboolean qos_pay_points_count(QosOpcode opcode)
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

static void raise_locked(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                         QosOpcode opcode, pid_t tid, gboolean has_paid, QosTime now)
{
    PayPoint *point = find_point(pay_points, ino, now);

    if (point == NULL)
        point = add_point(pay_points, ino, opcode == QOS_OP_READ);
    point->until = now + PAY_POINT_TIME;
    note_debtor(point, &(Debtor){job, opcode, now, ticks_after_boot(), point->until}, now);
    __atomic_store_n(&pay_points->last, point->until, __ATOMIC_RELAXED); /* time only grows */
    if (point->is_file && has_paid) {
        point->unread++;
        return;
    }
    if (point->is_file) {
        point->unread = 0;
        expect(point, tid, find_pass(pay_points, tid, now) != NULL, now);
    }
    close_locked(pay_points, point, has_paid, now);
}

void qos_pay_points_raise(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                          QosOpcode opcode, pid_t tid)
{
    QosTime now = used_time(pay_points);

    qos_mutex_lock(&pay_points->lock);
    sweep_locked(pay_points, now);
    raise_locked(pay_points, ino, job, opcode, tid, FALSE, now);
    qos_mutex_unlock(&pay_points->lock);
}

gboolean qos_pay_points_may_believe(QosPayPoints *pay_points, fuse_ino_t ino)
{
    if (!has_points(pay_points))
        return TRUE;
    qos_mutex_lock(&pay_points->lock);
    const QosTime now = used_time_locked(pay_points);
    PayPoint *point = find_point(pay_points, ino, now);
    const gboolean may_believe = point == NULL || !is_closed(point, now);
    if (point != NULL && may_believe)
        point->is_believed = TRUE;
    qos_mutex_unlock(&pay_points->lock);
    return may_believe;
}

/* TRUE if the thread may hold the directory's lock, or await it, since before the kernel was told,
 * or before its job was in debt here. Then it came by without paying. */
static gboolean was_there(const PayPoint *point, const Debtor *debtor, guint64 start, QosTime now)
{
    return !point->is_file && start <= MAX(point->told, debtor->joined) &&
           now - debtor->since < PASS_TIME;
}

/* The thread has come to pay: it reads neither here nor where it got its pass. */
static void end_reads(QosPayPoints *pay_points, PayPoint *point, const Pass *pass, pid_t tid,
                      QosTime now)
{
    PayPoint *last = pass != NULL ? find_point(pay_points, pass->at, now) : NULL;

    come_back(point, tid, now);
    if (last != NULL && last != point)
        come_back(last, tid, now);
}

QosPayPointState qos_pay_points_meet(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                                     pid_t tid, guint64 start, QosOpcode *ret_opcode)
{
    QosPayPointState state = QOS_PAY_POINT_NONE;

    if (!has_points(pay_points))
        return state;
    qos_mutex_lock(&pay_points->lock);
    QosTime now = used_time_locked(pay_points);
    PayPoint *point = find_point(pay_points, ino, now);
    const Debtor *debtor = find_debtor(point, job, now);
    Pass *pass = find_pass(pay_points, tid, now);
    if (point != NULL)
        state = debtor != NULL ? QOS_PAY_POINT_FREE : QOS_PAY_POINT_FOREIGN;
    if (debtor != NULL && pass == NULL && was_there(point, debtor, start, now)) {
        add_pass(pay_points, tid, ino, NOTHING, now);
    } else if (debtor != NULL && (pass == NULL || pass->is_spent)) {
        state = QOS_PAY_POINT_DUE;
        *ret_opcode = debtor->opcode;
        end_reads(pay_points, point, pass, tid, now);
    } else if (debtor != NULL && ++pass->asked > PASS_ASKS) {
        spend(pass, now);
    }
    qos_mutex_unlock(&pay_points->lock);
    return state;
}

void qos_pay_points_pay(QosPayPoints *pay_points, fuse_ino_t ino, const QosJob *job,
                        QosOpcode opcode, pid_t tid, QosOpcode prepaid)
{
    qos_mutex_lock(&pay_points->lock);
    const QosTime now = used_time_locked(pay_points);
    sweep_locked(pay_points, now);
    add_pass(pay_points, tid, ino, prepaid, now);
    const PayPoint *point = find_point(pay_points, ino, now);
    /* It may have run out while the thread waited. */
    if (point == NULL || point->unread < UNREAD_MAX)
        raise_locked(pay_points, ino, job, opcode, tid, TRUE, now);
    qos_mutex_unlock(&pay_points->lock);
}

gboolean qos_pay_points_use(QosPayPoints *pay_points, pid_t tid, QosOpcode opcode)
{
    gboolean is_prepaid = FALSE;

    if (!has_points(pay_points))
        return FALSE;
    qos_mutex_lock(&pay_points->lock);
    const QosTime now = used_time_locked(pay_points);
    Pass *pass = find_pass(pay_points, tid, now);
    if (pass != NULL && !pass->is_spent) {
        is_prepaid = pass->prepaid == ANYTHING || pass->prepaid == (guint)opcode;
        if (is_prepaid)
            pass->prepaid = NOTHING;
        PayPoint *point = opcode == QOS_OP_READ ? find_point(pay_points, pass->at, now) : NULL;
        if (point != NULL)
            point->unread = 0;
        if (opcode != QOS_OP_LOOKUP || ++pass->lookups >= PASS_LOOKUPS)
            spend(pass, now);
    }
    qos_mutex_unlock(&pay_points->lock);
    return is_prepaid;
}

static QosTime tell(gpointer data)
{
    QosPayPoints *pay_points = data;

    if (pay_points->to_forget->len == 0)
        return QOS_NEVER;
    fuse_ino_t ino =
        g_array_index(pay_points->to_forget, fuse_ino_t, pay_points->to_forget->len - 1);
    g_array_set_size(pay_points->to_forget, pay_points->to_forget->len - 1);
    tell_locked(pay_points, ino);
    return 0;
}

static void clear(QosPayPoints *pay_points)
{
    g_hash_table_unref(pay_points->passes);
    g_hash_table_unref(pay_points->points);
    g_array_unref(pay_points->to_forget);
    pthread_cond_destroy(&pay_points->told);
    qos_mutex_destroy(&pay_points->lock);
    g_free(pay_points);
}

QosPayPoints *qos_pay_points_new(struct fuse_session *session, QosTime (*clock)(void))
{
    QosPayPoints *pay_points = g_new0(QosPayPoints, 1);

    pay_points->session = session;
    pay_points->clock = clock;
    pay_points->seen = clock();
    qos_mutex_init(&pay_points->lock, QOS_MUTEX_PAY_POINTS);
    pthread_cond_init(&pay_points->told, NULL);
    pay_points->points = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL,
                                               (GDestroyNotify)(void (*)(void))point_free);
    pay_points->passes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    pay_points->to_forget = g_array_new(FALSE, FALSE, sizeof(fuse_ino_t));
    if (qos_service_thread_start(&pay_points->thread, "pay-points", &pay_points->lock, tell,
                                 pay_points, NULL))
        return pay_points;
    clear(pay_points);
    return NULL;
}

void qos_pay_points_free(QosPayPoints *pay_points)
{
    if (pay_points == NULL)
        return;
    qos_service_thread_stop(&pay_points->thread);
    clear(pay_points);
}
