/*
 * The thread that tells the kernel to forget. fs/coherence/invalidator.h has the contract.
 */
#include "fs/coherence/invalidator.h"

#include <errno.h>
#include <string.h>

#include "fs/coherence/inode_credit.h"
#include "fs/store/inode.h"
#include "sys/service_thread.h"

/* The pauses, first and last, after which an inode in doubt is looked at again. The kernel was told
 * of it, but a program may wait for the processor before it takes the answer to its look-up. After
 * the last pause the look-up is taken to have failed. */
#define DOUBT_FIRST QOS_MILLISECOND
#define DOUBT_LAST  (4 * QOS_SECOND)
/* How long a release waits for such an inode. It looks after a first pause, and then ever later. */
#define AWAIT_MAX   QOS_SECOND
#define AWAIT_FIRST (20 * QOS_MICROSECOND)
#define AWAIT_LAST  QOS_MILLISECOND
/* A new file that was sent to the kernel has arrived if it is not used for this long, because it is
 * open then. A list of names has arrived if its reader has asked for nothing for this long. */
#define AWAIT_USE  (100 * QOS_MILLISECOND)
#define STOP_PAUSE 1000 /* us: what others do in a moment */
/* FUSE 7.44, Linux 6.16. */
#define EPOCH_MINOR 44

typedef struct {
    fuse_ino_t ino; /* first: the table holds these */
    QosTime next;
    QosTime pause;
} Doubt;

/* The credit to read an open file that another mount wanted, asked for again. */
typedef struct {
    fuse_ino_t ino; /* first: the table holds these */
    QosInvalidator *invalidator;
    QosLockUse use;
} Regain;

struct QosInvalidator {
    const QosFs *fs;
    QosPages *pages;
    QosReaddirplus *readdirplus;
    QosNamecache *names;
    QosServiceThread thread;
    GArray *known; /* the thread's: QosKnownInode */
    GArray *open;  /* likewise: of these, what is to be asked for again */
    gboolean has_epochs;
    gint doubt_count; /* atomic */
    QosMutex lock;    /* everything below */
    QosRecallQueue queue;
    GHashTable *doubts;  /* of Doubt */
    GHashTable *regains; /* of Regain */
};

static gboolean tell(const QosInvalidator *invalidator, fuse_ino_t ino)
{
    /* An offset below 0: the attributes alone. */
    return fuse_lowlevel_notify_inval_inode(invalidator->fs->session, ino, -1, 0) != -ENOENT;
}

/* --- inodes in doubt --- */

static void doubt(QosInvalidator *invalidator, fuse_ino_t ino)
{
    Doubt *one = g_new(Doubt, 1);

    *one = (Doubt){.ino = ino, .next = qos_clock_now() + DOUBT_FIRST, .pause = DOUBT_FIRST};
    qos_mutex_lock(&invalidator->lock);
    g_hash_table_replace(invalidator->doubts, one, one);
    g_atomic_int_set(&invalidator->doubt_count, (gint)g_hash_table_size(invalidator->doubts));
    qos_mutex_unlock(&invalidator->lock);
}

void qos_invalidator_confirm(QosInvalidator *invalidator, fuse_ino_t ino)
{
    guint64 key = ino;

    if (g_atomic_int_get(&invalidator->doubt_count) == 0)
        return;
    qos_mutex_lock(&invalidator->lock);
    gboolean is_doubted = g_hash_table_contains(invalidator->doubts, &key);
    qos_mutex_unlock(&invalidator->lock);
    if (is_doubted)
        tell(invalidator, ino);
}

/* Those that are due now; the earliest that is due later. */
static GArray *due_doubts_locked(QosInvalidator *invalidator, QosTime now, QosTime *ret_next)
{
    GArray *due = g_array_new(FALSE, FALSE, sizeof(fuse_ino_t));
    GHashTableIter iterator;
    gpointer value;

    *ret_next = QOS_NEVER;
    g_hash_table_iter_init(&iterator, invalidator->doubts);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        const Doubt *one = value;

        if (one->next <= now)
            g_array_append_val(due, one->ino);
        else
            *ret_next = MIN(*ret_next, one->next);
    }
    return due;
}

/* The kernel was told again: whether it knew it. */
static void settle_doubt_locked(QosInvalidator *invalidator, fuse_ino_t ino, gboolean is_known)
{
    guint64 key = ino;
    Doubt *one = g_hash_table_lookup(invalidator->doubts, &key);

    if (one == NULL)
        return;
    one->pause *= 2;
    one->next = qos_clock_now() + one->pause;
    if (is_known || one->pause > DOUBT_LAST ||
        !qos_inodes_is_known(invalidator->fs->inodes, one->ino))
        g_hash_table_remove(invalidator->doubts, &key);
    g_atomic_int_set(&invalidator->doubt_count, (gint)g_hash_table_size(invalidator->doubts));
}

/* Tells the kernel again of the inodes that are due; the lock is released meanwhile. Returns when
 * to look again. */
static QosTime tell_again_locked(QosInvalidator *invalidator)
{
    QosTime next;
    g_autoptr(GArray) due = due_doubts_locked(invalidator, qos_clock_now(), &next);

    for (guint i = 0; i < due->len; i++) {
        fuse_ino_t ino = g_array_index(due, fuse_ino_t, i);

        qos_mutex_unlock(&invalidator->lock);
        gboolean is_known = tell(invalidator, ino);
        qos_mutex_lock(&invalidator->lock);
        settle_doubt_locked(invalidator, ino, is_known);
        next = 0;
    }
    return next;
}

/* --- recalls --- */

/* FALSE: the kernel has yet to come to a reply that tells of it, and will believe that. */
static gboolean tell_known(QosInvalidator *invalidator, const QosKnownInode *inode)
{
    QosInodes *inodes = invalidator->fs->inodes;

    if (qos_inodes_is_on_its_way(inodes, inode->id) ||
        (inode->is_directory && qos_readdirplus_is_in_flight(invalidator->readdirplus, inode->id)))
        return FALSE;
    return tell(invalidator, inode->id) || !qos_inodes_is_known(inodes, inode->id);
}

static gboolean forget_inode(QosInvalidator *invalidator, const QosKnownInode *inode)
{
    qos_inodes_note_foreign(invalidator->fs->inodes, inode->id);
    /* The drop is queued first, because a program that then asks for the attributes again must wait
     * for it. */
    if (inode->has_pages)
        qos_pages_drop(invalidator->pages, inode->id);
    return tell_known(invalidator, inode);
}

/* The reply that was on its way, or the list, must have arrived by now. */
static void end_way(QosInvalidator *invalidator, const QosKnownInode *inode)
{
    if (qos_inodes_end_way(invalidator->fs->inodes, inode->id))
        doubt(invalidator, inode->id);
    if (inode->is_directory)
        qos_readdirplus_note_overdue(invalidator->readdirplus, inode->id);
}

/* Waits for the inodes that are left in `known`. Either a reply is on its way, from which the
 * kernel hears of the inode and which it will believe, or FORGET is on its way to us. One of the
 * two shows soon. */
static void await_known(QosInvalidator *invalidator, GArray *known)
{
    const QosTime begun = qos_clock_now();
    QosTime pause = AWAIT_FIRST;

    while (known->len > 0 && qos_clock_now() < begun + AWAIT_MAX) {
        g_usleep((gulong)(pause / QOS_MICROSECOND));
        pause = MIN(2 * pause, AWAIT_LAST);
        for (guint i = known->len; i > 0; i--) {
            const QosKnownInode *inode = &g_array_index(known, QosKnownInode, i - 1);

            if (qos_clock_now() >= begun + AWAIT_USE)
                end_way(invalidator, inode);
            if (tell_known(invalidator, inode))
                g_array_remove_index_fast(known, i - 1);
        }
    }
    for (guint i = 0; i < known->len; i++)
        doubt(invalidator, g_array_index(known, QosKnownInode, i).id);
}

/* Lists the known inodes that `recall` covers. FALSE: nothing need be forgotten, because the other
 * mount only reads. */
static gboolean list_known(QosInvalidator *invalidator, const QosRecall *recall)
{
    const guint group = qos_lockclient_group(invalidator->fs->lockclient);
    const guint64 base = qos_inode_group_start(&recall->resource, group);
    gboolean is_any = FALSE;

    for (guint i = 0; i < recall->credit.count; i++) {
        const QosSpan *span = &recall->credit.spans[i];

        if ((recall->kind != QOS_RECALL_LOST && !span->writes) || span->first >= group)
            continue;
        is_any = TRUE;
        qos_inodes_list(invalidator->fs->inodes, base + span->first,
                        base + MIN(span->last, group - 1), invalidator->known);
    }
    return is_any;
}

/* A directory is worth as much as all that is in it. If there is one among the inodes known from
 * `first` on, and the credit may stay, it stays, and nothing is forgotten. */
static void spare(QosInvalidator *invalidator, QosRecall *recall, guint first)
{
    const QosFs *fs = invalidator->fs;
    gboolean has_names = FALSE;

    for (guint i = first; i < invalidator->known->len; i++)
        has_names |= g_array_index(invalidator->known, QosKnownInode, i).is_directory;
    recall->is_spared = has_names && recall->kind != QOS_RECALL_LOST &&
                        qos_lockclient_spare(fs->lockclient, &recall->resource,
                                             qos_inodes_by_directory(fs->inodes));
    if (recall->is_spared)
        g_array_set_size(invalidator->known, first);
}

/* Open files stay that no other mount wants, but that would go along (fs/lockengine/recall.h). If
 * one were forgotten while a READ of it is under way, the kernel would take no size from the answer
 * (docs/design/coherence.md). */
static void keep_open(QosInvalidator *invalidator, const QosRecall *recall, guint first)
{
    const QosFs *fs = invalidator->fs;
    const guint group = qos_lockclient_group(fs->lockclient);

    for (guint i = invalidator->known->len; i > first && recall->kind == QOS_RECALL_WANTED; i--) {
        const QosKnownInode *inode = &g_array_index(invalidator->known, QosKnownInode, i - 1);
        QosResource resource;
        QosSpan span;
        const QosCredit credit = qos_inode_credit(inode->number, group, TRUE, &resource, &span);

        if (inode->is_referenced && qos_lockclient_keep(fs->lockclient, &resource, &credit))
            g_array_remove_index_fast(invalidator->known, i - 1);
    }
}

/* --- open files --- */

/* It is kept, so that the next to change the file calls it back. */
static void regained(QosLockUse *use, QosCreditVerdict verdict)
{
    Regain *regain = use->hold.user;
    QosInvalidator *invalidator = regain->invalidator;

    if (verdict == QOS_CREDIT_GRANTED) {
        qos_pages_push_size(invalidator->pages, regain->ino);
        qos_lockclient_put(invalidator->fs->lockclient, use);
    }
    qos_mutex_lock(&invalidator->lock);
    g_hash_table_remove(invalidator->regains, regain);
    qos_mutex_unlock(&invalidator->lock);
}

static void ask_again(QosInvalidator *invalidator, const QosKnownInode *inode)
{
    QosLockclient *client = invalidator->fs->lockclient;
    Regain *regain = g_new0(Regain, 1);
    QosResource resource;
    QosSpan span;

    *regain = (Regain){.ino = inode->id,
                       .invalidator = invalidator,
                       .use = {.hold.user = regain, .done = regained, .goes_on = TRUE}};
    qos_mutex_lock(&invalidator->lock);
    const gboolean is_new = !g_hash_table_contains(invalidator->regains, regain);
    if (is_new)
        g_hash_table_add(invalidator->regains, regain);
    qos_mutex_unlock(&invalidator->lock);
    if (!is_new) {
        g_free(regain);
        return;
    }
    const QosCredit want =
        qos_inode_credit(inode->number, qos_lockclient_group(client), FALSE, &resource, &span);
    const QosCreditVerdict verdict = qos_lockclient_get(
        client, &resource, &want, QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, &regain->use);
    if (verdict != QOS_CREDIT_WAITING)
        regained(&regain->use, verdict);
}

/* Before the release, so that the server has the two together. */
static void ask_for_open(QosInvalidator *invalidator)
{
    for (guint i = 0; i < invalidator->open->len; i++)
        ask_again(invalidator, &g_array_index(invalidator->open, QosKnownInode, i));
    g_array_set_size(invalidator->open, 0);
}

/* Notes which of the wanted inodes, from `first` on, are open here. Programs may map, send or copy
 * such a file without a request from the kernel, so the kernel must know its size. */
static void note_open(QosInvalidator *invalidator, const QosRecall *recall, guint first)
{
    for (guint i = first; i < invalidator->known->len && recall->kind == QOS_RECALL_WANTED; i++) {
        const QosKnownInode *inode = &g_array_index(invalidator->known, QosKnownInode, i);

        if (inode->is_directory || !inode->is_referenced)
            continue;
        qos_pages_push_size(invalidator->pages, inode->id);
        g_array_append_val(invalidator->open, *inode);
    }
}

static gboolean take_back_regains(QosInvalidator *invalidator)
{
    GHashTableIter iterator;
    gpointer regain;

    qos_mutex_lock(&invalidator->lock);
    g_hash_table_iter_init(&iterator, invalidator->regains);
    while (g_hash_table_iter_next(&iterator, &regain, NULL)) {
        if (qos_lockclient_withdraw(invalidator->fs->lockclient, &((Regain *)regain)->use))
            g_hash_table_iter_remove(&iterator);
    }
    const gboolean is_any = g_hash_table_size(invalidator->regains) > 0;
    qos_mutex_unlock(&invalidator->lock);
    return is_any;
}

static void release(QosInvalidator *invalidator, const GArray *recalls)
{
    for (guint i = 0; i < recalls->len; i++) {
        const QosRecall *recall = &g_array_index(recalls, QosRecall, i);

        if (recall->kind != QOS_RECALL_LOST && !recall->is_spared)
            qos_lockclient_release(invalidator->fs->lockclient, &recall->resource, &recall->credit);
    }
}

/* All that is urgent together, so that the epoch is raised once for it. */
static void forget(QosInvalidator *invalidator, GArray *recalls)
{
    gboolean has_names = FALSE, has_pages = FALSE, is_any = FALSE;

    g_array_set_size(invalidator->known, 0);
    for (guint i = 0; i < recalls->len; i++) {
        QosRecall *recall = &g_array_index(recalls, QosRecall, i);
        const guint first = invalidator->known->len;

        const gboolean is_more = list_known(invalidator, recall);
        spare(invalidator, recall, first);
        keep_open(invalidator, recall, first);
        note_open(invalidator, recall, first);
        is_any |= is_more && !recall->is_spared;
    }
    if (is_any) /* also of folders that the kernel does not know any more */
        qos_namecache_outdate(invalidator->names);
    for (guint i = invalidator->known->len; i > 0; i--) {
        const QosKnownInode *inode = &g_array_index(invalidator->known, QosKnownInode, i - 1);

        has_names |= inode->is_directory;
        has_pages |= inode->has_pages;
        if (forget_inode(invalidator, inode))
            g_array_remove_index_fast(invalidator->known, i - 1);
    }
    await_known(invalidator, invalidator->known);
    if (has_names)
        qos_invalidator_outdate_names(invalidator);
    if (has_pages || invalidator->open->len > 0)
        qos_pages_await_told(invalidator->pages);
    ask_for_open(invalidator);
    release(invalidator, recalls);
}

void qos_invalidator_forget(QosInvalidator *invalidator, const QosResource *resource,
                            const QosCredit *credit, QosRecallKind kind)
{
    qos_mutex_lock(&invalidator->lock);
    qos_recall_queue_add(&invalidator->queue, resource, credit, kind);
    qos_service_thread_wake_locked(&invalidator->thread);
    qos_mutex_unlock(&invalidator->lock);
}

void qos_invalidator_make_urgent(QosInvalidator *invalidator, const QosResource *resource)
{
    qos_mutex_lock(&invalidator->lock);
    qos_recall_queue_make_urgent(&invalidator->queue, resource);
    qos_mutex_unlock(&invalidator->lock);
}

void qos_invalidator_outdate_names(QosInvalidator *invalidator)
{
    if (invalidator->has_epochs)
        fuse_lowlevel_notify_increment_epoch(invalidator->fs->session);
}

void qos_invalidator_meet_kernel(QosInvalidator *invalidator, guint minor)
{
    invalidator->has_epochs = minor >= EPOCH_MINOR;
}

gboolean qos_invalidator_forgets_names(const QosInvalidator *invalidator)
{
    return invalidator->has_epochs;
}

/* --- the thread --- */

static QosTime work(gpointer data)
{
    QosInvalidator *invalidator = data;
    GArray *recalls = qos_recall_queue_take(&invalidator->queue);

    if (recalls == NULL)
        return tell_again_locked(invalidator);
    qos_mutex_unlock(&invalidator->lock);
    forget(invalidator, recalls);
    qos_recall_queue_free(recalls);
    qos_mutex_lock(&invalidator->lock);
    return 0;
}

static void clear(QosInvalidator *invalidator)
{
    qos_recall_queue_clear(&invalidator->queue);
    g_array_unref(invalidator->known);
    g_array_unref(invalidator->open);
    g_hash_table_unref(invalidator->regains);
    g_hash_table_unref(invalidator->doubts);
    qos_mutex_destroy(&invalidator->lock);
    g_free(invalidator);
}

QosInvalidator *qos_invalidator_new(const QosFs *fs, QosPages *pages, QosReaddirplus *readdirplus,
                                    QosNamecache *names)
{
    QosInvalidator *invalidator = g_new0(QosInvalidator, 1);

    invalidator->fs = fs;
    invalidator->pages = pages;
    invalidator->readdirplus = readdirplus;
    invalidator->names = names;
    invalidator->known = g_array_new(FALSE, FALSE, sizeof(QosKnownInode));
    invalidator->open = g_array_new(FALSE, FALSE, sizeof(QosKnownInode));
    invalidator->regains = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    qos_recall_queue_init(&invalidator->queue);
    invalidator->doubts = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    qos_mutex_init(&invalidator->lock, QOS_MUTEX_INVALIDATOR);
    if (qos_service_thread_start(&invalidator->thread, "invalidator", &invalidator->lock, work,
                                 invalidator, NULL))
        return invalidator;
    clear(invalidator);
    return NULL;
}

void qos_invalidator_stop(QosInvalidator *invalidator)
{
    if (invalidator == NULL)
        return;
    qos_service_thread_stop(&invalidator->thread);
    while (take_back_regains(invalidator))
        g_usleep(STOP_PAUSE);
}

void qos_invalidator_free(QosInvalidator *invalidator)
{
    if (invalidator != NULL)
        clear(invalidator);
}
