#include "server/grants.h"

#include <errno.h>

#include "base/error.h"

#define SELF 1 /* the server's owner id */

struct QosGrants {
    QosGrantsConfig config;
    QosGrantsOutput output;
    QosOwner *owner;
    GHashTable *connected; /* QosOwnerId, owned: a set */
    GSource *timer;
};

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* --- the owner's outputs --- */

static void handle(QosGrants *grants, const QosOutput *output)
{
    switch (output->kind) {
    case QOS_OUTPUT_SEND:
        if (g_hash_table_contains(grants->connected, &output->peer))
            grants->output.send(output->peer, output->message, grants->output.arg);
        break;
    case QOS_OUTPUT_SAVE:
        qos_owner_saved(grants->owner, output->peer, now_of());
        break;
    default:
        break;
    }
}

/* Takes what the owner has put out, and sets the timer. */
static void settle(QosGrants *grants)
{
    QosOutput output;
    QosTime next;

    while (qos_owner_output(grants->owner, &output))
        handle(grants, &output);
    next = qos_owner_next(grants->owner);
    g_source_set_ready_time(
        grants->timer, next == QOS_NEVER ? -1 : (next + QOS_MICROSECOND - 1) / QOS_MICROSECOND);
}

static gboolean tick(gpointer data)
{
    QosGrants *grants = data;

    qos_owner_tick(grants->owner, now_of());
    settle(grants);
    return G_SOURCE_CONTINUE;
}

static gboolean dispatch(GSource *source G_GNUC_UNUSED, GSourceFunc function, gpointer data)
{
    return function(data);
}

/* --- start and end --- */

QosGrants *qos_grants_new(const QosGrantsConfig *config, const QosGrantsOutput *output,
                          GError **error G_GNUC_UNUSED)
{
    static GSourceFuncs functions = {.dispatch = dispatch};
    QosGrants *grants = g_new0(QosGrants, 1);
    QosOwnerConfig owner;

    grants->config = *config;
    grants->output = *output;
    grants->connected = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    qos_owner_config_init(&owner, SELF, 1);
    owner.lends = TRUE;
    owner.lease = config->lease;
    owner.resend = config->resend;
    grants->owner = qos_owner_new(&owner, NULL, 0, now_of());
    grants->timer = g_source_new(&functions, sizeof(GSource));
    g_source_set_callback(grants->timer, tick, grants, NULL);
    g_source_attach(grants->timer, NULL);
    settle(grants);
    return grants;
}

void qos_grants_free(QosGrants *grants)
{
    if (grants == NULL)
        return;
    g_source_destroy(grants->timer);
    g_source_unref(grants->timer);
    qos_owner_free(grants->owner);
    g_hash_table_unref(grants->connected);
    g_free(grants);
}

/* --- clients --- */

gboolean qos_grants_connected(QosGrants *grants, const QosWireHello *hello,
                              const char *principal G_GNUC_UNUSED, QosWireWelcome *ret_welcome,
                              QosWireRefused *ret_refused G_GNUC_UNUSED)
{
    g_hash_table_add(grants->connected, g_memdup2(&hello->id, sizeof(hello->id)));
    *ret_welcome = (QosWireWelcome){.version = QOS_WIRE_VERSION,
                                    .id = SELF,
                                    .incarnation = 1,
                                    .lease = grants->config.lease,
                                    .resend = grants->config.resend,
                                    .group = grants->config.group};
    return TRUE;
}

void qos_grants_received(QosGrants *grants, QosOwnerId id, const QosCreditMessage *messages,
                         guint count)
{
    for (guint i = 0; i < count; i++)
        qos_owner_receive(grants->owner, id, &messages[i], now_of());
    settle(grants);
}

void qos_grants_disconnected(QosGrants *grants, QosOwnerId id)
{
    g_hash_table_remove(grants->connected, &id);
}
