/*
 * Lists that are on their way to the kernel. fs/coherence/readdirplus.h has the contract.
 *
 * A thread waits for one answer at a time, so each has one reply at most. But a thread that reads a
 * reply, ends, and leaves its directory open, leaves the reply too. So there may be as many replies
 * as open files, and each request takes the lock while there are some. Therefore replies are
 * grouped, and a question about a directory costs the same however many replies there are. The
 * replies that were sent since those of the directory were last overdue share a Batch, which is
 * overdue or not as a whole.
 */
#include "fs/coherence/readdirplus.h"

#include "sys/mutex.h"

typedef struct {
    gint64 directory; /* first: the key */
    guint replies;    /* that are in it; it is there while there are some */
    gboolean is_overdue;
} Batch;

typedef struct {
    gint reader; /* first: the key */
    gconstpointer open_file;
    Batch *batch;
} Reply;

struct QosReaddirplus {
    gint count;          /* atomic: in `sent` */
    QosMutex lock;       /* the rest */
    GHashTable *sent;    /* of Reply, owned */
    GHashTable *batches; /* of Batch: of each directory the one that is not overdue */
};

static void free_reply(gpointer data)
{
    Reply *reply = data;

    if (--reply->batch->replies == 0)
        g_free(reply->batch);
    g_free(reply);
}

QosReaddirplus *qos_readdirplus_new(void)
{
    QosReaddirplus *readdirplus = g_new0(QosReaddirplus, 1);

    G_STATIC_ASSERT(G_STRUCT_OFFSET(Reply, reader) == 0);
    G_STATIC_ASSERT(G_STRUCT_OFFSET(Batch, directory) == 0);
    qos_mutex_init(&readdirplus->lock, QOS_MUTEX_READDIRPLUS);
    readdirplus->sent = g_hash_table_new_full(g_int_hash, g_int_equal, NULL, free_reply);
    readdirplus->batches = g_hash_table_new(g_int64_hash, g_int64_equal);
    return readdirplus;
}

void qos_readdirplus_free(QosReaddirplus *readdirplus)
{
    if (readdirplus == NULL)
        return;
    g_hash_table_unref(readdirplus->batches);
    g_hash_table_unref(readdirplus->sent);
    qos_mutex_destroy(&readdirplus->lock);
    g_free(readdirplus);
}

static Batch *find_locked(const QosReaddirplus *readdirplus, fuse_ino_t directory)
{
    const gint64 key = (gint64)directory;

    return g_hash_table_lookup(readdirplus->batches, &key);
}

static Batch *join_locked(QosReaddirplus *readdirplus, fuse_ino_t directory)
{
    Batch *batch = find_locked(readdirplus, directory);

    if (batch == NULL) {
        batch = g_new0(Batch, 1);
        batch->directory = (gint64)directory;
        g_hash_table_add(readdirplus->batches, batch);
    }
    batch->replies++;
    return batch;
}

/* Whether it was overdue. */
static gboolean remove_locked(QosReaddirplus *readdirplus, const Reply *reply)
{
    Batch *batch = reply->batch;
    const gboolean was_overdue = batch->is_overdue;

    if (batch->replies == 1 && !was_overdue)
        g_hash_table_remove(readdirplus->batches, batch);
    g_hash_table_remove(readdirplus->sent, reply);
    return was_overdue;
}

static Reply *find_sent_locked(const QosReaddirplus *readdirplus, pid_t reader)
{
    const gint key = reader;

    return g_hash_table_lookup(readdirplus->sent, &key);
}

void qos_readdirplus_note_sent(QosReaddirplus *readdirplus, pid_t reader, gconstpointer open_file,
                               fuse_ino_t directory)
{
    Reply *reply = g_new(Reply, 1);

    qos_mutex_lock(&readdirplus->lock);
    const Reply *before = find_sent_locked(readdirplus, reader);
    if (before != NULL)
        (void)remove_locked(readdirplus, before);
    *reply = (Reply){
        .reader = reader, .open_file = open_file, .batch = join_locked(readdirplus, directory)};
    g_hash_table_add(readdirplus->sent, reply);
    g_atomic_int_set(&readdirplus->count, (gint)g_hash_table_size(readdirplus->sent));
    qos_mutex_unlock(&readdirplus->lock);
}

gboolean qos_readdirplus_note_arrived(QosReaddirplus *readdirplus, pid_t reader,
                                      gconstpointer open_file)
{
    gboolean was_overdue = FALSE;

    if (g_atomic_int_get(&readdirplus->count) == 0)
        return FALSE;
    qos_mutex_lock(&readdirplus->lock);
    const Reply *reply = find_sent_locked(readdirplus, reader);
    if (reply != NULL && (open_file == NULL || reply->open_file == open_file)) {
        was_overdue = remove_locked(readdirplus, reply);
        g_atomic_int_set(&readdirplus->count, (gint)g_hash_table_size(readdirplus->sent));
    }
    qos_mutex_unlock(&readdirplus->lock);
    return was_overdue;
}

gboolean qos_readdirplus_is_in_flight(QosReaddirplus *readdirplus, fuse_ino_t directory)
{
    if (g_atomic_int_get(&readdirplus->count) == 0)
        return FALSE;
    qos_mutex_lock(&readdirplus->lock);
    gboolean is_any = find_locked(readdirplus, directory) != NULL;
    qos_mutex_unlock(&readdirplus->lock);
    return is_any;
}

void qos_readdirplus_note_overdue(QosReaddirplus *readdirplus, fuse_ino_t directory)
{
    qos_mutex_lock(&readdirplus->lock);
    Batch *batch = find_locked(readdirplus, directory);
    if (batch != NULL) {
        batch->is_overdue = TRUE;
        g_hash_table_remove(readdirplus->batches, batch);
    }
    qos_mutex_unlock(&readdirplus->lock);
}
