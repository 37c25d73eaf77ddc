/*
 * The table of mounts and the law of their floors; server/cluster_mounts.h states it.
 *
 * settle() decides for one mount, and is called again whenever something that it looks at may be
 * another: the list, N, what is durable, and the room that others leave.
 */
#include "server/cluster_mounts.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define WHOLE ((guint64)QOS_WIRE_PARTS_MAX)

struct QosClusterMounts {
    QosClusterMountsCalls calls;
    GHashTable *by_id; /* QosOwnerId -> QosClusterMount */
    guint64 version, serial;
    gboolean has_rules, has_hard;
    guint parts;  /* N */
    guint64 used; /* the sum of the parts that may be in use, of WHOLE */
    guint connected, known, blocked;
};

static guint smaller(guint one, guint other)
{
    return one == 0 ? other : other == 0 ? one : MIN(one, other);
}

/* The smallest N that the mount may be using, or is about to be told. */
static guint claimed(const QosClusterMount *mount)
{
    return smaller(mount->usable, mount->planned);
}

static guint64 share_of(guint parts)
{
    return parts > 0 ? WHOLE / parts : 0;
}

/* Sets both, and keeps the sums. */
static void claim(QosClusterMounts *mounts, QosClusterMount *mount, guint usable, guint planned)
{
    mounts->used -= share_of(claimed(mount));
    mounts->known -= claimed(mount) > 0;
    mount->usable = usable;
    mount->planned = planned;
    mounts->used += share_of(claimed(mount));
    mounts->known += claimed(mount) > 0;
}

static void mount_free(gpointer data)
{
    g_free(((QosClusterMount *)data)->name);
    g_free(data);
}

QosClusterMounts *qos_cluster_mounts_new(const QosClusterMountsCalls *calls)
{
    QosClusterMounts *mounts = g_new0(QosClusterMounts, 1);

    mounts->calls = *calls;
    mounts->by_id = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, mount_free);
    mounts->parts = QOS_CLUSTER_PARTS_MIN;
    return mounts;
}

void qos_cluster_mounts_free(QosClusterMounts *mounts)
{
    if (mounts == NULL)
        return;
    g_hash_table_unref(mounts->by_id);
    g_free(mounts);
}

static QosClusterMount *find(const QosClusterMounts *mounts, QosOwnerId id)
{
    return g_hash_table_lookup(mounts->by_id, &id);
}

static QosClusterMount *add(QosClusterMounts *mounts, QosOwnerId id, const char *name)
{
    QosClusterMount *mount = g_new0(QosClusterMount, 1);

    mount->id = id;
    mount->name = g_strdup(name);
    g_hash_table_insert(mounts->by_id, &mount->id, mount);
    return mount;
}

/* --- N --- */

static guint parts_for(guint parts, guint count)
{
    while (parts < count && parts < QOS_WIRE_PARTS_MAX)
        parts *= 2;
    while (parts > QOS_CLUSTER_PARTS_MIN && count <= parts / 4)
        parts /= 2;
    return parts;
}

/* Those that are known or connected. TRUE: N is another. */
static gboolean update_parts(QosClusterMounts *mounts)
{
    guint old = mounts->parts;

    mounts->parts = parts_for(old, g_hash_table_size(mounts->by_id));
    return mounts->parts != old;
}

/* --- the law --- */

static gboolean has_acknowledged(const QosClusterMount *mount)
{
    return mount->has_seen && mount->seen_version == mount->told_version &&
           mount->seen_parts == mount->told_parts;
}

/* The N that the mount is to have. With a hard rule a part grows only where there is room. It also
 * grows only after the N before was acknowledged: an acknowledgement says nothing of the order in
 * which the same N was told twice. */
static guint target_of(QosClusterMounts *mounts, QosClusterMount *mount)
{
    guint now = claimed(mount);
    guint64 others = mounts->used - share_of(now);
    guint parts = mounts->has_rules ? mounts->parts : 0;
    guint wanted = parts;

    if (mounts->has_hard && mount->is_told && mount->told_parts > parts && !has_acknowledged(mount))
        parts = mount->told_parts;
    if (mounts->has_hard && (now == 0 || parts < now) && others + share_of(parts) > WHOLE)
        parts = now;
    mounts->blocked -= (guint)mount->is_blocked;
    mount->is_blocked = parts != wanted;
    mounts->blocked += (guint)mount->is_blocked;
    return parts;
}

static void tell(QosClusterMounts *mounts, QosClusterMount *mount, guint parts)
{
    if (mount->is_told && mount->told_version == mounts->version &&
        mount->told_serial == mounts->serial && mount->told_parts == parts)
        return;
    mount->is_told = TRUE;
    mount->told_version = mounts->version;
    mount->told_serial = mounts->serial;
    mount->told_parts = parts;
    mounts->calls.tell(mount, parts, mounts->calls.arg);
}

/* Whether a restart would know that the mount may use one of `parts` parts. */
static gboolean is_durable(const QosClusterMount *mount, guint parts)
{
    return mount->row > 0 && mount->row <= parts &&
           (mount->row_next == 0 || mount->row_next <= parts);
}

static void save(QosClusterMounts *mounts, QosClusterMount *mount, guint parts)
{
    if (mount->row_next == parts)
        return;
    mount->row_next = parts;
    mount->row_number = mounts->calls.save(mount, parts, mounts->calls.arg);
}

/* Lets the row say what the mount may be using. */
static void keep_row(QosClusterMounts *mounts, QosClusterMount *mount)
{
    guint now = claimed(mount);

    if (now == (mount->row_next > 0 ? mount->row_next : mount->row))
        return;
    if (now > 0) {
        save(mounts, mount, now);
        return;
    }
    mount->row = mount->row_next = 0;
    mounts->calls.unsave(mount, mounts->calls.arg);
}

static void settle(QosClusterMounts *mounts, QosClusterMount *mount)
{
    guint parts, needed;

    if (!mount->is_connected || mount->is_leaving)
        return;
    parts = target_of(mounts, mount);
    needed = smaller(mount->usable, parts);
    if (parts == 0) {
        claim(mounts, mount, mount->usable, 0);
        tell(mounts, mount, 0);
    } else if (is_durable(mount, needed)) {
        claim(mounts, mount, needed, 0);
        tell(mounts, mount, parts);
    } else { /* the list does not wait for the disk */
        claim(mounts, mount, mount->usable, parts);
        tell(mounts, mount, mount->is_told ? mount->told_parts : 0);
    }
    keep_row(mounts, mount);
}

static void settle_all(QosClusterMounts *mounts)
{
    GHashTableIter iter;
    gpointer mount;

    g_hash_table_iter_init(&iter, mounts->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &mount))
        settle(mounts, mount);
}

/* There are more or fewer of them, or less is in use. */
static void follow(QosClusterMounts *mounts)
{
    if (update_parts(mounts)) {
        mounts->calls.parts_changed(mounts->calls.arg);
        settle_all(mounts);
    } else if (mounts->blocked > 0) {
        settle_all(mounts);
    }
}

/* --- what happens --- */

void qos_cluster_mounts_restore(QosClusterMounts *mounts, QosOwnerId id, const char *name,
                                guint parts, QosTime now)
{
    QosClusterMount *mount = add(mounts, id, name);

    mount->since = now;
    mount->row = parts;
    claim(mounts, mount, parts, 0);
    update_parts(mounts);
}

void qos_cluster_mounts_set_list(QosClusterMounts *mounts, guint64 version, guint64 serial,
                                 gboolean has_rules, gboolean has_hard)
{
    mounts->version = version;
    mounts->serial = serial;
    mounts->has_rules = has_rules;
    mounts->has_hard = has_hard;
    settle_all(mounts);
}

void qos_cluster_mounts_connected(QosClusterMounts *mounts, QosOwnerId id, const char *name,
                                  QosTime now)
{
    QosClusterMount *mount = find(mounts, id);

    if (mount == NULL)
        mount = add(mounts, id, name);
    if (!g_str_equal(mount->name, name)) {
        g_free(mount->name);
        mount->name = g_strdup(name);
    }
    mounts->connected += !mount->is_connected;
    mount->is_connected = TRUE;
    mount->since = mount->heard = now;
    mount->is_told = mount->has_seen = mount->is_leaving = FALSE;
    mount->told_parts = 0;
    settle(mounts, mount);
    follow(mounts);
}

/* Takes it out of the table, unless it still has to be known. */
static void drop(QosClusterMounts *mounts, QosClusterMount *mount)
{
    if (mount->is_connected || claimed(mount) > 0)
        return;
    mounts->blocked -= (guint)mount->is_blocked;
    g_hash_table_remove(mounts->by_id, &mount->id);
}

/* It uses nothing any more. */
static void leave(QosClusterMounts *mounts, QosClusterMount *mount)
{
    claim(mounts, mount, 0, 0);
    keep_row(mounts, mount);
    mounts->calls.left(mount->id, mounts->calls.arg);
}

void qos_cluster_mounts_disconnected(QosClusterMounts *mounts, QosOwnerId id, QosTime now)
{
    QosClusterMount *mount = find(mounts, id);

    if (mount == NULL || !mount->is_connected)
        return;
    mount->is_connected = FALSE;
    mounts->connected--;
    mount->since = now;
    mounts->blocked -= (guint)mount->is_blocked;
    mount->is_blocked = FALSE;
    claim(mounts, mount, mount->usable, 0); /* it was not told what was planned */
    keep_row(mounts, mount);
    drop(mounts, mount);
    follow(mounts);
}

void qos_cluster_mounts_heard(QosClusterMounts *mounts, QosOwnerId id, QosTime now)
{
    QosClusterMount *mount = find(mounts, id);

    if (mount != NULL)
        mount->heard = now;
}

void qos_cluster_mounts_seen(QosClusterMounts *mounts, QosOwnerId id, const QosWireSeen *seen)
{
    QosClusterMount *mount = find(mounts, id);

    if (mount == NULL || !mount->is_told || mount->is_leaving)
        return;
    if (seen->version == QOS_WIRE_SEEN_GOODBYE) {
        mount->is_leaving = TRUE;
        leave(mounts, mount);
        follow(mounts);
        return;
    }
    if (seen->version > mount->told_version)
        return; /* it cannot have it of this server */
    mount->has_seen = TRUE;
    mount->seen_version = seen->version;
    mount->seen_parts = seen->parts;
    if (!has_acknowledged(mount))
        return;
    claim(mounts, mount, seen->parts, mount->planned);
    keep_row(mounts, mount);
    follow(mounts);
}

void qos_cluster_mounts_durable(QosClusterMounts *mounts, guint64 number)
{
    GHashTableIter iter;
    gpointer data;

    g_hash_table_iter_init(&iter, mounts->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        QosClusterMount *mount = data;
        if (mount->row_next == 0 || mount->row_number > number)
            continue;
        mount->row = mount->row_next;
        mount->row_next = 0;
        settle(mounts, mount);
    }
}

/* The mount that goes by that name or id. */
static QosClusterMount *look_up(QosClusterMounts *mounts, const char *what, GError **error)
{
    QosClusterMount *found = NULL;
    GHashTableIter iter;
    gpointer data;
    guint64 id;

    if (g_ascii_string_to_unsigned(what, 16, 1, G_MAXUINT64, &id, NULL))
        found = find(mounts, id);
    if (found != NULL)
        return found;
    g_hash_table_iter_init(&iter, mounts->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        if (!g_str_equal(((QosClusterMount *)data)->name, what))
            continue;
        if (found != NULL) {
            qos_set_error(error, EINVAL,
                          "several mounts are named %s: give the id, as 'qosfsctl cluster status' "
                          "has it",
                          what);
            return NULL;
        }
        found = data;
    }
    if (found == NULL)
        qos_set_error(error, ENOENT,
                      "no mount %s is known: 'qosfsctl cluster status' has the names and ids",
                      what);
    return found;
}

gboolean qos_cluster_mounts_forget(QosClusterMounts *mounts, const char *what, GError **error)
{
    QosClusterMount *mount = look_up(mounts, what, error);

    if (mount == NULL)
        return FALSE;
    if (mount->is_connected) {
        qos_set_error(error, EBUSY,
                      "%s is connected: unmount it, or evict it first (qosfsctl server evict)",
                      mount->name);
        return FALSE;
    }
    leave(mounts, mount);
    drop(mounts, mount);
    follow(mounts);
    return TRUE;
}

QosTime qos_cluster_mounts_expire(QosClusterMounts *mounts, QosTime lease, QosTime now)
{
    const QosTime patience = QOS_CLUSTER_GONE_LEASES * lease;
    QosTime next = QOS_NEVER;
    GHashTableIter iter;
    gpointer data;
    gboolean is_less = FALSE;

    if (mounts->has_hard)
        return QOS_NEVER;
    g_hash_table_iter_init(&iter, mounts->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        QosClusterMount *mount = data;
        if (mount->is_connected)
            continue;
        if (now - mount->since < patience) {
            next = MIN(next, mount->since + patience);
            continue;
        }
        leave(mounts, mount);
        g_hash_table_iter_remove(&iter);
        is_less = TRUE;
    }
    if (is_less)
        follow(mounts);
    return next;
}

/* --- what it is --- */

guint qos_cluster_mounts_parts(const QosClusterMounts *mounts)
{
    return mounts->parts;
}

guint qos_cluster_mounts_connected_count(const QosClusterMounts *mounts)
{
    return mounts->connected;
}

guint qos_cluster_mounts_known(const QosClusterMounts *mounts)
{
    return mounts->known;
}

guint qos_cluster_mounts_behind(const QosClusterMounts *mounts)
{
    GHashTableIter iter;
    gpointer data;
    guint count = 0;

    g_hash_table_iter_init(&iter, mounts->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        const QosClusterMount *mount = data;
        count += mount->is_connected && !mount->is_leaving &&
                 !(mount->has_seen && mount->seen_version == mounts->version);
    }
    return count;
}

const QosClusterMount *qos_cluster_mounts_find(const QosClusterMounts *mounts, QosOwnerId id)
{
    return find(mounts, id);
}

static gint by_name(gconstpointer one, gconstpointer other)
{
    const QosClusterMount *a = *(QosClusterMount *const *)one;
    const QosClusterMount *b = *(QosClusterMount *const *)other;
    int order = strcmp(a->name, b->name);

    return order != 0 ? order : a->id < b->id ? -1 : a->id > b->id;
}

GPtrArray *qos_cluster_mounts_list(const QosClusterMounts *mounts)
{
    GPtrArray *list = g_ptr_array_new();
    GHashTableIter iter;
    gpointer mount;

    g_hash_table_iter_init(&iter, mounts->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &mount))
        g_ptr_array_add(list, mount);
    g_ptr_array_sort(list, by_name);
    return list;
}

guint64 qos_cluster_mounts_in_use(const QosClusterMounts *mounts)
{
    return mounts->used;
}
