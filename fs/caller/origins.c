/*
 * Remembers the job with which a program was started. fs/caller/origins.h has the contract.
 */
#include "fs/caller/origins.h"

#include <string.h>

#include "fs/jobs.h"

/* As much of a job as an id of QOS_JOB_ID_MAX bytes can show, and that it is longer. */
#define JOB_MAX (4 * (QOS_JOB_ID_MAX + 1))

typedef struct {
    GQueue queue; /* of Origin, the one that was asked for last first */
    guint32 uid;
} User;

typedef struct {
    QosImage image;
    char *job;
    guint nodes;
    User *user;
    GList link;      /* among all */
    GList user_link; /* among the user's */
} Origin;

struct QosOrigins {
    GHashTable *origins; /* a set of Origin, by `image`; owned */
    GHashTable *users;   /* uid -> User, owned: the users that have some */
    GQueue recent;       /* of Origin, as with users */
};

static guint hash_image(gconstpointer key)
{
    const QosImage *image = key;
    const guint64 sum = image->code ^ image->stack * 31 ^ image->environment * 1021 ^
                        image->start * 65537 ^ image->process * 8191;

    return (guint)(sum ^ sum >> 32);
}

static gboolean equal_images(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(QosImage)) == 0;
}

static void free_origin(gpointer data)
{
    Origin *origin = data;

    g_free(origin->job);
    g_free(origin);
}

QosOrigins *qos_origins_new(void)
{
    QosOrigins *origins = g_new0(QosOrigins, 1);

    origins->origins = g_hash_table_new_full(hash_image, equal_images, free_origin, NULL);
    origins->users = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return origins;
}

void qos_origins_free(QosOrigins *origins)
{
    g_hash_table_unref(origins->origins);
    g_hash_table_unref(origins->users);
    g_free(origins);
}

void qos_origins_clear(QosOrigins *origins)
{
    g_hash_table_remove_all(origins->origins);
    g_hash_table_remove_all(origins->users);
    g_queue_init(&origins->recent);
}

guint qos_origins_count(const QosOrigins *origins)
{
    return origins->recent.length;
}

static User *find_user(QosOrigins *origins, guint32 uid)
{
    User *user = g_hash_table_lookup(origins->users, GUINT_TO_POINTER(uid));

    if (user != NULL)
        return user;
    user = g_new0(User, 1);
    user->uid = uid;
    g_hash_table_insert(origins->users, GUINT_TO_POINTER(uid), user);
    return user;
}

static void drop(QosOrigins *origins, Origin *origin)
{
    User *user = origin->user;

    g_queue_unlink(&origins->recent, &origin->link);
    g_queue_unlink(&user->queue, &origin->user_link);
    g_hash_table_remove(origins->origins, &origin->image);
    if (user->queue.length == 0)
        g_hash_table_remove(origins->users, GUINT_TO_POINTER(user->uid));
}

static void use(QosOrigins *origins, Origin *origin)
{
    g_queue_unlink(&origins->recent, &origin->link);
    g_queue_push_head_link(&origins->recent, &origin->link);
    g_queue_unlink(&origin->user->queue, &origin->user_link);
    g_queue_push_head_link(&origin->user->queue, &origin->user_link);
}

static void make_room(QosOrigins *origins, guint32 uid)
{
    User *user = g_hash_table_lookup(origins->users, GUINT_TO_POINTER(uid));

    if (user != NULL && uid != 0 && user->queue.length >= QOS_ORIGINS_USER)
        drop(origins, g_queue_peek_tail(&user->queue));
    else if (origins->recent.length >= QOS_ORIGINS_MAX)
        drop(origins, g_queue_peek_tail(&origins->recent));
}

static void add(QosOrigins *origins, const QosImage *image, guint32 uid, const char *job,
                guint nodes)
{
    Origin *origin = g_new0(Origin, 1);

    origin->image = *image;
    origin->job = g_strndup(job, JOB_MAX);
    origin->nodes = nodes;
    origin->link.data = origin->user_link.data = origin;
    make_room(origins, uid);
    origin->user = find_user(origins, uid);
    g_hash_table_add(origins->origins, origin);
    g_queue_push_head_link(&origins->recent, &origin->link);
    g_queue_push_head_link(&origin->user->queue, &origin->user_link);
}

void qos_origins_remember(QosOrigins *origins, const QosImage *image, guint32 uid, const char *job,
                          guint nodes)
{
    Origin *origin = g_hash_table_lookup(origins->origins, image);

    if (image->environment == 0)
        return;
    if (origin == NULL) {
        add(origins, image, uid, job, nodes);
        return;
    }
    use(origins, origin);
    if (strncmp(origin->job, job, JOB_MAX) != 0) {
        g_free(origin->job);
        origin->job = g_strndup(job, JOB_MAX);
    }
    origin->nodes = nodes;
}

char *qos_origins_find(QosOrigins *origins, const QosImage *image, guint *ret_nodes)
{
    Origin *origin = image->environment == 0 ? NULL : g_hash_table_lookup(origins->origins, image);

    if (origin == NULL)
        return NULL;
    use(origins, origin);
    *ret_nodes = origin->nodes;
    return g_strdup(origin->job);
}
