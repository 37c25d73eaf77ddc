/*
 * The tunables of the adaptive sharing: their texts, and the QosAdaptConfig that they make.
 *
 * A capacity in bytes a second is that of requests of CAPACITY_REQUEST, whatever these cost by the
 * other tunables: so it holds what it says for those who stream, and is the last that is looked at.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "fs/control/tunable.h"

#define CAPACITY_AUTO      "auto"
#define CAPACITY_REQUEST   (G_GINT64_CONSTANT(1) << 20)
#define CAPACITY_BYTES_MAX (QOS_ADAPT_CAPACITY_MAX * CAPACITY_REQUEST)

static gboolean parse_mode(const char *text, QosAdaptMode *ret_mode, GError **error)
{
    for (guint i = 0; i < QOS_ADAPT_MODES; i++) {
        if (strcmp(text, qos_adapt_mode_names[i]) == 0) {
            *ret_mode = (QosAdaptMode)i;
            return TRUE;
        }
    }
    qos_set_error(error, EINVAL, "\"%s\" is no way of sharing: use off, fair or paper", text);
    return FALSE;
}

/* A decimal number of operations: "0.5"; *ret_cost in units, never 0. */
static gboolean parse_cost(const char *text, gint64 *ret_cost, GError **error)
{
    char *end;
    double cost = g_ascii_strtod(text, &end);

    /* Nor "0x1", "inf" or "1e3". */
    if (end == text || *end != '\0' || text[strspn(text, "0123456789.")] != '\0') {
        qos_set_error(error, EINVAL, "\"%s\" is no number of operations, such as 0.5", text);
        return FALSE;
    }
    cost = CLAMP(cost * (double)QOS_COST_UNIT, 1, 1e15);
    *ret_cost = (gint64)cost;
    return TRUE;
}

/* "200MB/s": without "/s" nobody could tell 10K operations from 10 KiB. */
static gboolean parse_byte_rate(const char *text, gint64 *ret_rate, GError **error)
{
    g_autofree char *size = g_strndup(text, strlen(text) - strlen("/s"));

    if (!qos_parse_bytes(size, ret_rate, error))
        return FALSE;
    if (*ret_rate >= CAPACITY_REQUEST && *ret_rate <= CAPACITY_BYTES_MAX)
        return TRUE;
    qos_set_error(error, ERANGE, "%s is not between 1MB/s and 95TB/s", text);
    return FALSE;
}

/* "5000", or "5000op/s" and "5000 op/s", as reports have it. */
static gboolean parse_operation_rate(const char *text, gint64 *ret_rate, GError **error)
{
    const char *rest = text + strspn(text, "-0123456789");
    const char *unit = rest + (*rest == ' ');

    if (rest > text && (*rest == '\0' || strcmp(unit, "op/s") == 0)) {
        g_autofree char *number = g_strndup(text, (gsize)(rest - text));

        return qos_parse_integer("op/s", number, 1, QOS_ADAPT_CAPACITY_MAX, ret_rate, error);
    }
    qos_set_error(error, EINVAL, "\"%s\" is neither op/s (5000) nor bytes/s (200MB/s) nor auto",
                  text);
    return FALSE;
}

/* By the costs that `config` has. */
static gboolean parse_capacity(const char *text, QosAdaptConfig *config, GError **error)
{
    gint64 rate;

    if (g_str_has_suffix(text, "/s") && !g_str_has_suffix(text, "op/s")) {
        if (!parse_byte_rate(text, &rate, error))
            return FALSE;
        gint64 cost = qos_adapt_config_cost(config, QOS_OP_WRITE, CAPACITY_REQUEST);
        __int128 capacity = (__int128)rate * cost / CAPACITY_REQUEST / QOS_COST_UNIT;
        config->capacity = (gint64)MIN(capacity, QOS_ADAPT_CAPACITY_MAX);
        return TRUE;
    }
    config->capacity = 0;
    return strcmp(text, CAPACITY_AUTO) == 0 || parse_operation_rate(text, &config->capacity, error);
}

static gboolean set_part(QosAdaptConfig *config, QosTunable tunable, const char *text,
                         GError **error)
{
    switch (tunable) {
    case QOS_TUNABLE_ADAPT:
        return parse_mode(text, &config->mode, error);
    case QOS_TUNABLE_ADAPT_PERIOD:
        return qos_parse_duration(text, &config->period, error);
    case QOS_TUNABLE_ADAPT_BYTES:
        return qos_parse_bytes(text, &config->bytes_per_cost, error);
    case QOS_TUNABLE_ADAPT_METADATA:
        return parse_cost(text, &config->metadata_cost, error);
    case QOS_TUNABLE_CAPACITY:
        return parse_capacity(text, config, error);
    default:
        g_assert_not_reached();
    }
}

QosAdaptConfig qos_tunables_adapt(const QosTunables *tunables)
{
    static const QosTunable parts[] = {
        QOS_TUNABLE_ADAPT,          QOS_TUNABLE_ADAPT_PERIOD, QOS_TUNABLE_ADAPT_BYTES,
        QOS_TUNABLE_ADAPT_METADATA, QOS_TUNABLE_CAPACITY,
    };
    QosAdaptConfig config = {0};

    for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
        set_part(&config, parts[i], tunables->text[parts[i]], NULL);
    return config;
}

static char *canonical(const QosAdaptConfig *config, QosTunable tunable, const char *text)
{
    char number[G_ASCII_DTOSTR_BUF_SIZE];
    gint64 rate;

    if (tunable == QOS_TUNABLE_ADAPT_PERIOD)
        return g_strdup_printf("%" G_GINT64_FORMAT "ms", config->period / QOS_MILLISECOND);
    if (tunable == QOS_TUNABLE_ADAPT_BYTES)
        return qos_format_bytes_exact(config->bytes_per_cost);
    if (tunable == QOS_TUNABLE_ADAPT_METADATA)
        return g_strdup(g_ascii_formatd(number, sizeof(number), "%.6g",
                                        (double)config->metadata_cost / (double)QOS_COST_UNIT));
    if (tunable == QOS_TUNABLE_CAPACITY && g_str_has_suffix(text, "/s") &&
        parse_byte_rate(text, &rate, NULL)) {
        g_autofree char *size = qos_format_bytes_exact(rate);
        return g_strconcat(size, "B/s", NULL);
    }
    if (tunable == QOS_TUNABLE_CAPACITY && config->capacity > 0)
        return g_strdup_printf("%" G_GINT64_FORMAT, config->capacity);
    return g_strdup(text);
}

char *qos_tunables_check_adapt(const QosTunables *tunables, QosTunable tunable, const char *text,
                               GError **error)
{
    QosAdaptConfig config = qos_tunables_adapt(tunables);

    if (set_part(&config, tunable, text, error) && qos_adapt_config_check(&config, error))
        return canonical(&config, tunable, text);
    g_prefix_error(error, "%s: ", qos_tunable_names[tunable]);
    return NULL;
}
