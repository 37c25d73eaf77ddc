/*
 * The settings of adaptive sharing: their ranges, and what one request costs by them.
 */
#include <errno.h>

#include "base/error.h"
#include "fs/adapt.h"

const char *const qos_adapt_mode_names[QOS_ADAPT_MODES] = {
    [QOS_ADAPT_OFF] = "off",
    [QOS_ADAPT_PAPER] = "paper",
    [QOS_ADAPT_FAIR] = "fair",
};

static gboolean check_cost(const char *what, gint64 cost, GError **error)
{
    if (cost == 0 || (cost >= QOS_ADAPT_COST_MIN && cost <= QOS_ADAPT_COST_MAX))
        return TRUE;
    qos_set_error(error, ERANGE, "the cost of %s operations must be from 0.001 to 1000", what);
    return FALSE;
}

gboolean qos_adapt_config_check(const QosAdaptConfig *config, GError **error)
{
    if (config->period < QOS_ADAPT_PERIOD_MIN || config->period > QOS_ADAPT_PERIOD_MAX) {
        qos_set_error(error, ERANGE,
                      "the period of adaptive sharing must be from 5 ms to 10 s; "
                      "a number alone is seconds");
        return FALSE;
    }
    if (config->bytes_per_cost < 0 || config->bytes_per_cost > QOS_ADAPT_BYTES_MAX) {
        qos_set_error(error, ERANGE,
                      "the bytes that cost as much as an operation must be at most 1T; "
                      "0 = bytes cost nothing");
        return FALSE;
    }
    if (config->capacity < 0 || config->capacity > QOS_ADAPT_CAPACITY_MAX) {
        qos_set_error(error, ERANGE,
                      "the capacity must be from 1 to %" G_GINT64_FORMAT
                      " op/s; 0 has it found out",
                      QOS_ADAPT_CAPACITY_MAX);
        return FALSE;
    }
    return check_cost("data", config->data_cost, error) &&
           check_cost("metadata", config->metadata_cost, error);
}

G_STATIC_ASSERT(QOS_ADAPT_BYTES_MAX <= G_MAXINT64 / QOS_COST_UNIT);

gint64 qos_adapt_config_cost(const QosAdaptConfig *config, QosOpcode opcode, guint64 bytes)
{
    gint64 base = qos_opcode_is_data(opcode) ? config->data_cost : config->metadata_cost;

    if (config->mode == QOS_ADAPT_PAPER)
        return QOS_COST_UNIT;
    if (base == 0)
        base = QOS_COST_UNIT;
    if (config->bytes_per_cost == 0)
        return base;
    bytes = MIN(bytes, (guint64)QOS_ADAPT_BYTES_MAX);
    return base + (gint64)bytes * QOS_COST_UNIT / config->bytes_per_cost;
}
