/*
 * The mount's lock client. fs/coherence/cluster.h has the contract.
 */
#include "fs/coherence/cluster.h"

#include <errno.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/error.h"
#include "core/wire_cluster.h"
#include "fs/cluster/admin.h"
#include "fs/cluster/shared_rules.h"
#include "fs/coherence/coherence.h"
#include "fs/filelocks/filelocks.h"
#include "fs/lockclient/address.h"
#include "fs/store/local_fs.h"

void qos_cluster_config_clear(QosClusterConfig *config)
{
    g_clear_pointer(&config->server, g_free);
    g_clear_pointer(&config->ca, g_free);
    g_clear_pointer(&config->certificate, g_free);
    g_clear_pointer(&config->key, g_free);
    g_clear_pointer(&config->munged, g_free);
    g_clear_pointer(&config->store, g_free);
}

/* --- names --- */

/* Text for the wire: what is no UTF-8 or controls something becomes another character. */
static char *make_text(const char *raw, gsize max)
{
    g_autofree char *valid = g_utf8_make_valid(raw, -1);
    g_autoptr(GString) text = g_string_new(NULL);

    for (const char *at = valid; *at != '\0'; at = g_utf8_next_char(at)) {
        gunichar character = g_utf8_get_char(at);
        if (text->len + (gsize)(g_utf8_next_char(at) - at) > max)
            break;
        g_string_append_unichar(text, g_unichar_iscntrl(character) ? '?' : character);
    }
    return g_string_free(g_steal_pointer(&text), FALSE);
}

/* The name of the store, which is the same on every mount of it: the file system's magic number and
 * its id, or the given name. A local file system adds the former to the latter, because files are
 * known by their numbers in it. */
static char *name_store(const char *source, const char *given, GError **error)
{
    struct statfs about;
    guint32 id[2];

    G_STATIC_ASSERT(sizeof(about.f_fsid) == sizeof(id));
    if (statfs(source, &about) != 0) {
        qos_set_error(error, errno, "cannot ask what \"%s\" is: %s", source, g_strerror(errno));
        return NULL;
    }
    memcpy(id, &about.f_fsid, sizeof(id));
    const gboolean has_id = id[0] != 0 || id[1] != 0;
    if (given != NULL && !(has_id && qos_local_store(&about)))
        return make_text(given, QOS_WIRE_STORE_MAX);
    if (!has_id) {
        qos_set_error(error, ENODEV,
                      "the file system of \"%s\" has no id by which other mounts could tell that "
                      "theirs is the same: name it with -o store=NAME on each of them",
                      source);
        return NULL;
    }
    g_autofree char *name =
        g_strdup_printf("%" G_GINT64_MODIFIER "x:%08x%08x%s%s", (guint64)about.f_type, id[0], id[1],
                        given != NULL ? " " : "", given != NULL ? given : "");
    return make_text(name, QOS_WIRE_STORE_MAX);
}

/* The id of a mount, from the number `saved` in its database and its name. Each machine and
 * directory gives another one, so that a database may be copied, with its machine or without. */
static QosOwnerId own_id(QosOwnerId saved, const char *name)
{
    g_autofree char *text = g_strdup_printf("%" G_GINT64_MODIFIER "x %s", saved, name);
    g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);

    sum[2 * sizeof(QosOwnerId)] = '\0';
    return MAX(g_ascii_strtoull(sum, NULL, 16), 1); /* 0 is nobody */
}

/* --- what the client tells --- */

static void drop(const QosResource *resource, const QosCredit *credit, gboolean is_wanted,
                 gpointer arg)
{
    QosFs *fs = arg;

    if (resource->type == QOS_RESOURCE_INODES)
        qos_coherence_forget(fs->coherence, resource, credit,
                             is_wanted ? QOS_RECALL_WANTED : QOS_RECALL_SHRINK);
    else if (resource->type == QOS_RESOURCE_EXTENT && fs->filelocks != NULL)
        qos_filelocks_drop(fs->filelocks, resource, credit);
    else
        qos_lockclient_release(fs->lockclient, resource, credit);
}

static void wanted(const QosResource *resource, gpointer arg)
{
    const QosFs *fs = arg;

    if (resource->type == QOS_RESOURCE_INODES)
        qos_coherence_make_urgent(fs->coherence, resource);
}

static void lost(const QosResource *resource, const QosCredit *credit, gpointer arg)
{
    QosFs *fs = arg;

    if (resource->type == QOS_RESOURCE_INODES)
        qos_coherence_forget(fs->coherence, resource, credit, QOS_RECALL_LOST);
    else if (resource->type == QOS_RESOURCE_EXTENT && fs->filelocks != NULL)
        qos_filelocks_lost(fs->filelocks, resource);
}

static void changed(gboolean is_up, gpointer arg)
{
    const QosFs *fs = arg;

    if (fs->filelocks != NULL)
        qos_filelocks_changed(fs->filelocks, is_up);
    if (is_up)
        g_info("%s: what is cached is valid on all mounts", fs->mountpoint);
    else
        g_info("%s: nothing is cached, there is no lock server", fs->mountpoint);
}

static void deadlocked(guint64 wait, gpointer arg)
{
    const QosFs *fs = arg;

    if (fs->filelocks != NULL)
        qos_filelocks_deadlocked(fs->filelocks, wait);
}

static void connected(QosLockclient *client, gboolean is_connected, gpointer arg)
{
    const QosFs *fs = arg;

    qos_shared_rules_connected(fs->shared_rules, client, is_connected);
    qos_admin_connected(fs->admin, client, is_connected);
}

static gboolean frame(QosWireType type, const guint8 *payload, gsize length, gpointer arg)
{
    const QosFs *fs = arg;

    switch (type) {
    case QOS_WIRE_RULES:
        return qos_shared_rules_page(fs->shared_rules, payload, length);
    case QOS_WIRE_BUDGET_GRANT:
        return qos_shared_rules_grant(fs->shared_rules, payload, length);
    case QOS_WIRE_ADMIN_RESULT:
        return qos_admin_result(fs->admin, payload, length);
    case QOS_WIRE_EPOCH:
        return qos_shared_rules_epoch(fs->shared_rules, payload, length);
    default:
        return FALSE;
    }
}

static void due(QosLockclient *client G_GNUC_UNUSED, gpointer arg)
{
    const QosFs *fs = arg;

    qos_shared_rules_due(fs->shared_rules);
    qos_admin_due(fs->admin);
}

/* --- beginning --- */

gboolean qos_cluster_check(const char *source, const QosClusterConfig *config, GError **error)
{
    const QosLinkConfig link = {config->server, config->ca, config->certificate, config->key,
                                config->munged};
    g_autofree char *store = NULL;
    QosLockaddress address;
    gboolean good;

    if (config->server == NULL)
        return TRUE;
    store = name_store(source, config->store, error);
    if (store == NULL)
        return FALSE;
    good = qos_lockaddress_init(&address, &link, error);
    qos_lockaddress_clear(&address);
    return good;
}

QosLockclient *qos_cluster_start(QosFs *fs, QosDb *db, const QosClusterConfig *config,
                                 GError **error)
{
    g_autofree char *store = name_store(fs->source, config->store, error);
    g_autofree char *whole = g_strdup_printf("%s:%s", g_get_host_name(), fs->mountpoint);
    g_autofree char *name = make_text(whole, QOS_WIRE_NAME_MAX);
    QosLockclientConfig client = {.server = config->server,
                                  .ca = config->ca,
                                  .certificate = config->certificate,
                                  .key = config->key,
                                  .munged = config->munged,
                                  .store = store,
                                  .name = name,
                                  .arg = fs,
                                  .drop = drop,
                                  .wanted = wanted,
                                  .lost = lost,
                                  .deadlocked = deadlocked,
                                  .changed = changed,
                                  .connected = connected,
                                  .frame = frame,
                                  .due = due};

    if (store == NULL || !qos_db_next_identity(db, &client.id, &client.incarnation, error))
        return NULL;
    fs->admin = qos_admin_new();
    fs->shared_rules = qos_shared_rules_new(fs->gate, client.incarnation);
    client.id = own_id(client.id, whole);
    return qos_lockclient_new(&client, error);
}
