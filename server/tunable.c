/*
 * The table of the settings that may change while the server runs (server/tunable.h).
 */
#include "server/tunable.h"

#include <errno.h>

#include "base/error.h"
#include "base/units.h"
#include "core/wire.h"
#include "db/db_server.h"
#include "fs/rule.h"

#define LIMIT_MIN 1024 /* four credits; less is a forgotten letter */
#define CAP_MIN   1024 /* the same, and what one change may need */

typedef struct Tunable {
    const char *name;
    const char *help;
    gboolean (*parse)(QosServerSettings *settings, const struct Tunable *tunable, const char *text,
                      GError **error);
    char *(*print)(const QosServerSettings *settings, const struct Tunable *tunable);
    gsize field; /* in QosServerSettings, of a number of bytes */
} Tunable;

static gboolean parse_bytes(QosServerSettings *settings, const Tunable *tunable, const char *text,
                            GError **error)
{
    return qos_parse_bytes(text, G_STRUCT_MEMBER_P(settings, tunable->field), error);
}

static gboolean parse_limit(QosServerSettings *settings, const Tunable *tunable, const char *text,
                            GError **error)
{
    if (!parse_bytes(settings, tunable, text, error))
        return FALSE;
    if (settings->pool.limit >= LIMIT_MIN && settings->pool.limit <= QOS_POOL_BYTES_MAX)
        return TRUE;
    qos_set_error(error, ERANGE, "%s is not within 1K and 1T; a letter makes it more, as in 4G",
                  text);
    return FALSE;
}

static char *print_bytes(const QosServerSettings *settings, const Tunable *tunable)
{
    return qos_format_bytes_exact(G_STRUCT_MEMBER(gint64, settings, tunable->field));
}

static gboolean parse_law(QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED,
                          const char *text, GError **error)
{
    if (g_str_equal(text, "steady"))
        settings->pool.law = QOS_POOL_STEADY;
    else if (g_str_equal(text, "hld"))
        settings->pool.law = QOS_POOL_HLD;
    else
        qos_set_error(error, EINVAL, "\"%s\" is neither steady nor hld", text);
    return g_str_equal(text, "steady") || g_str_equal(text, "hld");
}

static char *print_law(const QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED)
{
    return g_strdup(settings->pool.law == QOS_POOL_HLD ? "hld" : "steady");
}

static gboolean parse_lease(QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED,
                            const char *text, GError **error)
{
    QosTime lease;

    if (!qos_parse_duration(text, &lease, error))
        return FALSE;
    if (lease < QOS_SECOND || lease > QOS_SERVER_LEASE_MAX) {
        qos_set_error(error, ERANGE, "%s is not between 1 s and 1 h", text);
        return FALSE;
    }
    settings->lease = lease;
    return TRUE;
}

static char *print_lease(const QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED)
{
    if (settings->lease % QOS_SECOND == 0)
        return g_strdup_printf("%" G_GINT64_FORMAT "s", settings->lease / QOS_SECOND);
    return g_strdup_printf("%" G_GINT64_FORMAT "ms", settings->lease / QOS_MILLISECOND);
}

static gboolean parse_group(QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED,
                            const char *text, GError **error)
{
    gint64 group;

    if (!qos_parse_integer("the number of inodes", text, 1, QOS_WIRE_GROUP_MAX, &group, error))
        return FALSE;
    if ((group & (group - 1)) != 0) {
        qos_set_error(error, EINVAL, "%s is no power of two", text);
        return FALSE;
    }
    settings->group = (guint)group;
    return TRUE;
}

static char *print_group(const QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED)
{
    return g_strdup_printf("%u", settings->group);
}

static gboolean parse_adapt(QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED,
                            const char *text, GError **error)
{
    settings->shares = g_str_equal(text, "fair");
    if (settings->shares || g_str_equal(text, "off"))
        return TRUE;
    qos_set_error(error, EINVAL, "\"%s\" is neither off nor fair", text);
    return FALSE;
}

static char *print_adapt(const QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED)
{
    return g_strdup(settings->shares ? "fair" : "off");
}

static gboolean parse_capacity(QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED,
                               const char *text, GError **error)
{
    gint64 capacity = 0;

    if (g_str_equal(text, "auto")) {
        qos_set_error(error, EINVAL,
                      "the server does not find out by itself what the store can do: say how many "
                      "operations a second");
        return FALSE;
    }
    if (!g_str_equal(text, "none") &&
        !qos_parse_integer("the operations a second", text, 1, QOS_RATE_MAX, &capacity, error))
        return FALSE;
    settings->capacity = (guint)capacity;
    return TRUE;
}

static char *print_capacity(const QosServerSettings *settings, const Tunable *tunable G_GNUC_UNUSED)
{
    return settings->capacity > 0 ? g_strdup_printf("%u", settings->capacity) : g_strdup("none");
}

#define FIELD(name) G_STRUCT_OFFSET(QosServerSettings, name)

static const Tunable tunables[] = {
    {"limit", "memory for credits: L", parse_limit, print_bytes, FIELD(pool.limit)},
    {"hard-limit", "beyond it no credit is granted: HL; if only the limit is set, 1.25 of that",
     parse_bytes, print_bytes, FIELD(pool.hard_limit)},
    {"floor", "what each mount may keep cached whatever the load", parse_bytes, print_bytes,
     FIELD(pool.floor)},
    {"cap", "what one mount may have; 0: no cap, and below 1K changes fail", parse_bytes,
     print_bytes, FIELD(pool.cap)},
    {"law", "how the lock rate is set: steady or hld", parse_law, print_law, 0},
    {"lease",
     "how long a silent mount keeps what it has; from the next start on, a shorter one when no "
     "mount is left then",
     parse_lease, print_lease, 0},
    {"group", "inodes in a resource, a power of two; from the next start on", parse_group,
     print_group, 0},
    {"adapt", "fair: jobs divide adapt-capacity by weight, over all mounts; off: they do not",
     parse_adapt, print_adapt, 0},
    {"adapt-capacity", "what the store can do for all mounts, in operations a second; none",
     parse_capacity, print_capacity, 0},
};

static const Tunable *find(const char *name)
{
    for (guint i = 0; i < G_N_ELEMENTS(tunables); i++) {
        if (g_str_equal(tunables[i].name, name))
            return &tunables[i];
    }
    return NULL;
}

const char *qos_server_tunable_name(guint index)
{
    return index < G_N_ELEMENTS(tunables) ? tunables[index].name : NULL;
}

const char *qos_server_tunable_help(const char *name)
{
    const Tunable *tunable = find(name);

    return tunable ? tunable->help : NULL;
}

char *qos_server_tunable_text(const QosServerSettings *settings, const char *name)
{
    const Tunable *tunable = find(name);

    return tunable->print(settings, tunable);
}

const char *qos_server_settings_doubt(const QosServerSettings *settings)
{
    if (settings->pool.cap == 0 || settings->pool.cap >= CAP_MIN)
        return NULL;
    return "with a cap below 1K changes wait for 30 s and fail (ENOLCK); 0 is none";
}

gboolean qos_server_settings_check_sharing(const QosServerSettings *settings, GError **error)
{
    if (!settings->shares || settings->capacity > 0)
        return TRUE;
    qos_set_error(error, EINVAL,
                  "adapt=fair divides what the store can do, and needs to be told it: set "
                  "adapt-capacity to a number of operations a second first");
    return FALSE;
}

gint64 qos_server_hard_limit(gint64 limit)
{
    limit = MIN(limit, QOS_POOL_BYTES_MAX);
    return MIN(limit + limit / 4, QOS_POOL_BYTES_MAX);
}

gboolean qos_server_tunable_set(QosServerSettings *settings, const char *name, const char *text,
                                GError **error)
{
    const Tunable *tunable = find(name);
    g_autoptr(GError) reason = NULL;

    if (!tunable) {
        qos_set_error(error, ENOENT, "there is no tunable \"%s\"", name);
        return FALSE;
    }
    if (tunable->parse(settings, tunable, text, &reason))
        return TRUE;
    qos_set_error(error, reason->code, "%s: %s", name, reason->message);
    return FALSE;
}

gboolean qos_server_settings_apply(QosServerSettings *settings, GHashTable *set, GError **error)
{
    QosServerSettings changed = *settings;
    GHashTableIter iter;
    gpointer name, text;

    g_hash_table_iter_init(&iter, set);
    while (g_hash_table_iter_next(&iter, &name, &text)) {
        if (!qos_server_tunable_set(&changed, name, text, error))
            return FALSE;
    }
    if (g_hash_table_contains(set, "limit") && !g_hash_table_contains(set, "hard-limit"))
        changed.pool.hard_limit = qos_server_hard_limit(changed.pool.limit);
    if (!qos_pool_config_check(&changed.pool, error) ||
        !qos_server_settings_check_sharing(&changed, error))
        return FALSE;
    *settings = changed;
    return TRUE;
}
