/*
 * Lists that are on their way to the kernel; ops/lists.h tells why that matters.
 *
 * A thread waits for one answer at a time, so that there is one list of each at most.
 */
#include "ops/lists.h"

#include <pthread.h>

typedef struct {
    gint reader; /* first: the table holds these */
    gconstpointer handle;
    fuse_ino_t directory;
    gboolean is_late;
} List;

struct QosLists {
    gint count;           /* atomic: in `sent` */
    pthread_mutex_t lock; /* the rest */
    GHashTable *sent;     /* of List */
};

QosLists *qos_lists_new(void)
{
    QosLists *lists = g_new0(QosLists, 1);

    pthread_mutex_init(&lists->lock, NULL);
    lists->sent = g_hash_table_new_full(g_int_hash, g_int_equal, NULL, g_free);
    return lists;
}

void qos_lists_free(QosLists *lists)
{
    if (lists == NULL)
        return;
    g_hash_table_unref(lists->sent);
    pthread_mutex_destroy(&lists->lock);
    g_free(lists);
}

void qos_lists_note_sent(QosLists *lists, pid_t reader, gconstpointer handle, fuse_ino_t directory)
{
    List *list = g_new(List, 1);

    *list = (List){.reader = reader, .handle = handle, .directory = directory};
    pthread_mutex_lock(&lists->lock);
    g_hash_table_replace(lists->sent, list, list);
    g_atomic_int_set(&lists->count, (gint)g_hash_table_size(lists->sent));
    pthread_mutex_unlock(&lists->lock);
}

gboolean qos_lists_note_arrived(QosLists *lists, pid_t reader, gconstpointer handle)
{
    const gint key = reader;
    gboolean was_late = FALSE;

    if (g_atomic_int_get(&lists->count) == 0)
        return FALSE;
    pthread_mutex_lock(&lists->lock);
    const List *list = g_hash_table_lookup(lists->sent, &key);
    if (list != NULL && (handle == NULL || list->handle == handle)) {
        was_late = list->is_late;
        g_hash_table_remove(lists->sent, &key);
        g_atomic_int_set(&lists->count, (gint)g_hash_table_size(lists->sent));
    }
    pthread_mutex_unlock(&lists->lock);
    return was_late;
}

/* One of the directory that is not late, or NULL. */
static List *find_locked(const QosLists *lists, fuse_ino_t directory)
{
    GHashTableIter iterator;
    gpointer value;

    g_hash_table_iter_init(&iterator, lists->sent);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        List *list = value;

        if (list->directory == directory && !list->is_late)
            return list;
    }
    return NULL;
}

gboolean qos_lists_are_on_their_way(QosLists *lists, fuse_ino_t directory)
{
    if (g_atomic_int_get(&lists->count) == 0)
        return FALSE;
    pthread_mutex_lock(&lists->lock);
    gboolean is_any = find_locked(lists, directory) != NULL;
    pthread_mutex_unlock(&lists->lock);
    return is_any;
}

void qos_lists_note_late(QosLists *lists, fuse_ino_t directory)
{
    List *list;

    pthread_mutex_lock(&lists->lock);
    while ((list = find_locked(lists, directory)) != NULL)
        list->is_late = TRUE;
    pthread_mutex_unlock(&lists->lock);
}
