/*
 * Lists that are on their way to the kernel. fs/coherence/readdirplus.h has the contract.
 *
 * A thread waits for one answer at a time, so each has one list at most. But a thread that reads a
 * list, ends, and leaves its directory open, leaves the list too. So there may be as many lists as
 * open files, and each request takes the lock while there are some. Therefore lists are grouped,
 * and a question about a directory costs the same however many lists there are. The lists that were
 * sent since those of the directory were last late share a Batch, which is late or not as a whole.
 */
#include "fs/coherence/readdirplus.h"

#include "sys/mutex.h"

typedef struct {
    gint64 directory; /* first: the key */
    guint lists;      /* that are in it; it is there while there are some */
    gboolean is_late;
} Batch;

typedef struct {
    gint reader; /* first: the key */
    gconstpointer handle;
    Batch *batch;
} List;

struct QosLists {
    gint count;          /* atomic: in `sent` */
    QosMutex lock;       /* the rest */
    GHashTable *sent;    /* of List, owned */
    GHashTable *batches; /* of Batch: of each directory the one that is not late */
};

static void free_list(gpointer data)
{
    List *list = data;

    if (--list->batch->lists == 0)
        g_free(list->batch);
    g_free(list);
}

QosLists *qos_lists_new(void)
{
    QosLists *lists = g_new0(QosLists, 1);

    G_STATIC_ASSERT(G_STRUCT_OFFSET(List, reader) == 0);
    G_STATIC_ASSERT(G_STRUCT_OFFSET(Batch, directory) == 0);
    qos_mutex_init(&lists->lock, QOS_MUTEX_LISTS);
    lists->sent = g_hash_table_new_full(g_int_hash, g_int_equal, NULL, free_list);
    lists->batches = g_hash_table_new(g_int64_hash, g_int64_equal);
    return lists;
}

void qos_lists_free(QosLists *lists)
{
    if (lists == NULL)
        return;
    g_hash_table_unref(lists->batches);
    g_hash_table_unref(lists->sent);
    qos_mutex_destroy(&lists->lock);
    g_free(lists);
}

static Batch *find_locked(const QosLists *lists, fuse_ino_t directory)
{
    const gint64 key = (gint64)directory;

    return g_hash_table_lookup(lists->batches, &key);
}

static Batch *join_locked(QosLists *lists, fuse_ino_t directory)
{
    Batch *batch = find_locked(lists, directory);

    if (batch == NULL) {
        batch = g_new0(Batch, 1);
        batch->directory = (gint64)directory;
        g_hash_table_add(lists->batches, batch);
    }
    batch->lists++;
    return batch;
}

/* Whether it was late. */
static gboolean remove_locked(QosLists *lists, const List *list)
{
    Batch *batch = list->batch;
    const gboolean was_late = batch->is_late;

    if (batch->lists == 1 && !was_late)
        g_hash_table_remove(lists->batches, batch);
    g_hash_table_remove(lists->sent, list);
    return was_late;
}

static List *find_sent_locked(const QosLists *lists, pid_t reader)
{
    const gint key = reader;

    return g_hash_table_lookup(lists->sent, &key);
}

void qos_lists_note_sent(QosLists *lists, pid_t reader, gconstpointer handle, fuse_ino_t directory)
{
    List *list = g_new(List, 1);

    qos_mutex_lock(&lists->lock);
    const List *before = find_sent_locked(lists, reader);
    if (before != NULL)
        (void)remove_locked(lists, before);
    *list = (List){.reader = reader, .handle = handle, .batch = join_locked(lists, directory)};
    g_hash_table_add(lists->sent, list);
    g_atomic_int_set(&lists->count, (gint)g_hash_table_size(lists->sent));
    qos_mutex_unlock(&lists->lock);
}

gboolean qos_lists_note_arrived(QosLists *lists, pid_t reader, gconstpointer handle)
{
    gboolean was_late = FALSE;

    if (g_atomic_int_get(&lists->count) == 0)
        return FALSE;
    qos_mutex_lock(&lists->lock);
    const List *list = find_sent_locked(lists, reader);
    if (list != NULL && (handle == NULL || list->handle == handle)) {
        was_late = remove_locked(lists, list);
        g_atomic_int_set(&lists->count, (gint)g_hash_table_size(lists->sent));
    }
    qos_mutex_unlock(&lists->lock);
    return was_late;
}

gboolean qos_lists_are_on_their_way(QosLists *lists, fuse_ino_t directory)
{
    if (g_atomic_int_get(&lists->count) == 0)
        return FALSE;
    qos_mutex_lock(&lists->lock);
    gboolean is_any = find_locked(lists, directory) != NULL;
    qos_mutex_unlock(&lists->lock);
    return is_any;
}

void qos_lists_note_late(QosLists *lists, fuse_ino_t directory)
{
    qos_mutex_lock(&lists->lock);
    Batch *batch = find_locked(lists, directory);
    if (batch != NULL) {
        batch->is_late = TRUE;
        g_hash_table_remove(lists->batches, batch);
    }
    qos_mutex_unlock(&lists->lock);
}
