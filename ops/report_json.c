/*
 * state.json: all that the mount knows, for programs (qosfsctl is one). docs/reports.md has the
 * fields. Times are seconds: since 1970 where a moment is meant.
 */
#include <json-glib/json-glib.h>

#include "ops/report.h"

/* Paths and conditions may be any bytes, JSON is UTF-8. */
static void add_text(JsonBuilder *builder, const char *name, const char *value)
{
    g_autofree char *valid = g_utf8_make_valid(value, -1);

    json_builder_set_member_name(builder, name);
    json_builder_add_string_value(builder, valid);
}

static void add_boolean(JsonBuilder *builder, const char *name, gboolean value)
{
    json_builder_set_member_name(builder, name);
    json_builder_add_boolean_value(builder, value);
}

static void add_number(JsonBuilder *builder, const char *name, guint64 value)
{
    json_builder_set_member_name(builder, name);
    json_builder_add_int_value(builder, (gint64)MIN(value, G_MAXINT64));
}

static void add_double(JsonBuilder *builder, const char *name, double value)
{
    json_builder_set_member_name(builder, name);
    json_builder_add_double_value(builder, value);
}

static void add_seconds(JsonBuilder *builder, const char *name, QosTime time)
{
    add_double(builder, name, (double)time / (double)QOS_SECOND);
}

static void add_moment(JsonBuilder *builder, const char *name, const QosReport *report,
                       QosTime time)
{
    add_seconds(builder, name, qos_report_wall(report, time));
}

static void add_policies(JsonBuilder *builder, const QosReport *report)
{
    json_builder_set_member_name(builder, "policies");
    json_builder_begin_array(builder);
    for (guint i = 0; i < report->policy_count; i++) {
        json_builder_begin_object(builder);
        add_text(builder, "name", report->policies[i].policy->name);
        add_text(builder, "state", qos_policy_state_names[report->policies[i].state]);
        add_number(builder, "queued", report->policies[i].queued);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

static void add_rule(JsonBuilder *builder, const QosReport *report, const QosRule *rule,
                     const QosRuleState *state)
{
    g_autofree char *conditions = qos_rule_conditions(rule);
    g_autofree char *options = qos_rule_options(rule);

    json_builder_begin_object(builder);
    add_text(builder, "name", rule->name);
    add_text(builder, "conditions", conditions);
    add_text(builder, "options", options);
    add_number(builder, "rate", (guint64)rule->rate);
    add_number(builder, "bps", (guint64)rule->bps);
    add_number(builder, "depth_ops", (guint64)rule->depth_ops);
    add_number(builder, "depth_bytes", (guint64)rule->depth_bytes);
    add_text(builder, "per", qos_per_name(rule->per));
    add_number(builder, "weight", (guint64)rule->weight);
    add_number(builder, "min", (guint64)rule->minimum);
    if (rule->expires == QOS_NEVER) {
        json_builder_set_member_name(builder, "expires_in");
        json_builder_add_null_value(builder);
    } else {
        add_seconds(builder, "expires_in", MAX(rule->expires - report->now, 0));
    }
    add_boolean(builder, "dryrun", rule->dryrun);
    add_boolean(builder, "passthrough", rule->passthrough);
    add_number(builder, "buckets", state->buckets);
    add_number(builder, "waiting", state->waiting);
    add_number(builder, "requests", state->requests);
    add_number(builder, "bytes", state->bytes);
    add_number(builder, "waits", state->waits);
    add_seconds(builder, "waited", state->waited);
    add_number(builder, "dryrun_waits", state->dryrun_waits);
    add_number(builder, "dryrun_bytes", state->dryrun_bytes);
    json_builder_end_object(builder);
}

static void add_operations(JsonBuilder *builder, const QosJob *job)
{
    json_builder_set_member_name(builder, "operations");
    json_builder_begin_object(builder);
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (!job->operation[i].samples)
            continue;
        json_builder_set_member_name(builder, qos_opcode_name(i));
        json_builder_begin_object(builder);
        add_number(builder, "samples", job->operation[i].samples);
        add_double(builder, "seconds", (double)job->operation[i].sum / 1e6);
        json_builder_end_object(builder);
    }
    json_builder_end_object(builder);
}

static void add_waits(JsonBuilder *builder, const QosReport *report, const QosJob *job)
{
    json_builder_set_member_name(builder, "wait");
    json_builder_begin_array(builder);
    for (guint i = 0; i < job->wait_count; i++) {
        const QosWait *wait = &job->wait[i];

        json_builder_begin_object(builder);
        add_text(builder, "rule", wait->rule_name);
        add_number(builder, "count", wait->count);
        add_seconds(builder, "waited", wait->waited);
        add_seconds(builder, "longest", wait->longest);
        add_moment(builder, "first", report, wait->first);
        add_moment(builder, "last", report, wait->last);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

static void add_share(JsonBuilder *builder, const QosReportShare *share)
{
    json_builder_set_member_name(builder, "share");
    if (!share) {
        json_builder_add_null_value(builder);
        return;
    }
    json_builder_begin_object(builder);
    add_boolean(builder, "takes_part", share->takes_part);
    add_number(builder, "weight", (guint64)share->weight);
    add_double(builder, "entitlement", share->entitlement);
    add_double(builder, "demand", share->demand);
    add_double(builder, "allocation", share->allocation);
    add_double(builder, "repayment", share->repayment);
    add_double(builder, "flow", share->flow);
    add_text(builder, "partner", share->partner);
    add_double(builder, "record", share->record);
    add_double(builder, "lent", share->lent);
    add_double(builder, "returned", share->returned);
    add_double(builder, "borrowed", share->borrowed);
    add_double(builder, "repaid", share->repaid);
    json_builder_end_object(builder);
}

static void add_job(JsonBuilder *builder, const QosReport *report, const QosJob *job)
{
    json_builder_begin_object(builder);
    add_text(builder, "id", job->id);
    add_number(builder, "nodes", job->nodes);
    add_moment(builder, "started", report, job->started);
    add_moment(builder, "seen", report, job->seen);
    add_number(builder, "requests", job->requests);
    add_number(builder, "errors", job->errors);
    add_number(builder, "waits", job->waits);
    add_seconds(builder, "wait_time", job->wait_time);
    add_seconds(builder, "store_time", job->store_time);
    add_number(builder, "waiting", job->waiting);
    add_number(builder, "running", job->use.running);
    add_number(builder, "parked_bytes", job->use.parked_bytes);
    add_number(builder, "refused", job->refused);
    add_number(builder, "passthrough", job->passthrough);
    add_number(builder, "open_files", job->open_files);
    add_number(builder, "opens_refused", job->opens_refused);
    add_double(builder, "operation_rate", job->operation_rate);
    add_double(builder, "byte_rate", job->byte_rate);
    add_number(builder, "read_bytes", job->read_bytes.sum);
    add_number(builder, "write_bytes", job->write_bytes.sum);
    add_share(builder, qos_report_share(report, job->id));
    add_operations(builder, job);
    add_waits(builder, report, job);
    json_builder_end_object(builder);
}

static void add_adapt(JsonBuilder *builder, const QosReport *report)
{
    const QosReportAdapt *adapt = &report->adapt;

    json_builder_set_member_name(builder, "adapt");
    json_builder_begin_object(builder);
    add_text(builder, "mode", qos_adapt_mode_names[adapt->mode]);
    add_double(builder, "capacity", adapt->capacity);
    add_boolean(builder, "told", adapt->is_told);
    add_number(builder, "depth", adapt->depth);
    add_seconds(builder, "period", adapt->period);
    add_number(builder, "members", adapt->members);
    json_builder_end_object(builder);
}

/* The lock server, where there is to be one. */
static void add_server(JsonBuilder *builder, const QosLockclientStatus *status)
{
    json_builder_set_member_name(builder, "server");
    json_builder_begin_object(builder);
    add_text(builder, "address", status->server);
    add_text(builder, "state", qos_lockclient_state_names[status->state]);
    add_text(builder, "reason", status->reason);
    add_seconds(builder, "lease", status->lease);
    add_seconds(builder, "valid", status->valid);
    add_number(builder, "incarnation", status->server_incarnation);
    add_number(builder, "group", status->group);
    add_number(builder, "credits", status->credits);
    add_number(builder, "bytes", (guint64)status->bytes);
    add_number(builder, "rate", (guint64)status->rate);
    add_number(builder, "floor", (guint64)status->floor);
    add_number(builder, "hits", status->hits);
    add_number(builder, "misses", status->misses);
    add_number(builder, "refusals", status->refusals);
    add_number(builder, "enqueues", status->enqueues);
    add_number(builder, "cancels", status->cancels);
    add_number(builder, "cancel_messages", status->cancel_messages);
    add_number(builder, "revocations", status->revocations);
    add_number(builder, "evictions", status->evictions);
    add_number(builder, "reconnects", status->reconnects);
    json_builder_end_object(builder);
}

static void add_mount(JsonBuilder *builder, const QosReport *report)
{
    add_text(builder, "version", QOSFS_VERSION);
    add_text(builder, "source", report->source);
    add_text(builder, "mountpoint", report->mountpoint);
    add_number(builder, "pid", (guint64)report->pid);
    add_seconds(builder, "started", report->started);
    add_seconds(builder, "now", report->wall);
    add_policies(builder, report);
    json_builder_set_member_name(builder, "slots");
    json_builder_begin_object(builder);
    add_number(builder, "total", report->slots.slots);
    add_number(builder, "running", report->slots.running);
    add_number(builder, "stalled", report->slots.stalled);
    add_number(builder, "passing", report->slots.passing);
    add_number(builder, "held", report->slots.held);
    add_number(builder, "draining", report->slots.draining);
    json_builder_end_object(builder);
    add_adapt(builder, report);
    if (report->is_shared)
        add_server(builder, &report->sharing);
    add_number(builder, "parked_max", report->slots.parked_max);
    add_number(builder, "parked_bytes", report->slots.parked_bytes);
    add_number(builder, "refused", report->slots.refused);
    add_number(builder, "inodes", report->inodes);
    add_number(builder, "callers", report->callers);
    json_builder_set_member_name(builder, "tunables");
    json_builder_begin_object(builder);
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        add_text(builder, qos_tunable_names[i], report->tunables.text[i]);
    json_builder_end_object(builder);
}

GString *qos_report_state(const QosReport *report)
{
    g_autoptr(JsonBuilder) builder = json_builder_new_immutable();
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = NULL;
    GString *text = g_string_new(NULL);

    json_builder_begin_object(builder);
    add_mount(builder, report);
    json_builder_set_member_name(builder, "rules");
    json_builder_begin_array(builder);
    for (guint i = 0; i < qos_rules_count(report->rules); i++)
        add_rule(builder, report, qos_rules_get(report->rules, i), &report->rule_states[i]);
    json_builder_end_array(builder);
    json_builder_set_member_name(builder, "jobs");
    json_builder_begin_array(builder);
    for (guint i = 0; i < report->jobs->len; i++)
        add_job(builder, report, g_ptr_array_index(report->jobs, i));
    json_builder_end_array(builder);
    json_builder_end_object(builder);
    root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    json_generator_to_gstring(generator, text);
    g_string_append_c(text, '\n');
    return text;
}
