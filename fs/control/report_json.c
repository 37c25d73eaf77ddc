/*
 * state.json: all that the mount knows, for programs such as qosfsctl. docs/reference/reports.md
 * has the fields.
 *
 * Parts of it can be read alone, because with thousands of jobs the whole takes megabytes and a
 * second. Times are in seconds; a moment is in seconds since 1970.
 */
#include "net/report_json.h"
#include "fs/control/report.h"

static const char *const scope_names[] = {
    [QOS_SCOPE_MOUNT] = "mount", [QOS_SCOPE_CLUSTER] = "cluster"};
static const char *const away_names[] = {
    [QOS_RULE_AWAY_FLOOR] = "floor", [QOS_RULE_AWAY_OPEN] = "open", [QOS_RULE_AWAY_STOP] = "stop"};
static const char *const unit_names[] = {
    [QOS_UNIT_OPERATIONS] = "operations", [QOS_UNIT_BYTES] = "bytes"};

static void add_seconds(JsonBuilder *builder, const char *name, QosTime time)
{
    qos_json_add_number(builder, name, (double)time / (double)QOS_SECOND);
}

static void add_moment(JsonBuilder *builder, const char *name, const QosReport *report,
                       QosTime time)
{
    add_seconds(builder, name, qos_report_wall(report, time));
}

static void add_policies(JsonBuilder *builder, const QosReport *report)
{
    qos_json_begin_array(builder, "policies");
    for (guint i = 0; i < report->policy_count; i++) {
        json_builder_begin_object(builder);
        qos_json_add_text(builder, "name", report->policies[i].policy->name);
        qos_json_add_text(builder, "state", qos_policy_state_names[report->policies[i].state]);
        qos_json_add_count(builder, "queued", report->policies[i].queued);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

/* What only a rule of the cluster has. */
static void add_cluster_options(JsonBuilder *builder, const QosRule *rule)
{
    static const char *const shares[] = {[QOS_RULE_FAIR] = "fair", [QOS_RULE_HARD] = "hard"};

    qos_json_add_count(builder, "id", rule->id - QOS_RULE_CLUSTER_ID);
    qos_json_add_text(builder, "share", shares[rule->share]);
    qos_json_add_count(builder, "floor", rule->floor);
    qos_json_add_text(builder, "away", away_names[rule->away]);
}

static void add_rule(JsonBuilder *builder, const QosReport *report, const QosRule *rule,
                     const QosRuleState *state)
{
    g_autofree char *conditions = qos_rule_conditions(rule);
    g_autofree char *options = qos_rule_options(rule);

    json_builder_begin_object(builder);
    qos_json_add_text(builder, "name", rule->name);
    qos_json_add_text(builder, "conditions", conditions);
    qos_json_add_text(builder, "options", options);
    qos_json_add_count(builder, "rate", (guint64)rule->rate);
    qos_json_add_count(builder, "bps", (guint64)rule->bps);
    qos_json_add_count(builder, "depth_ops", (guint64)rule->depth_ops);
    qos_json_add_count(builder, "depth_bytes", (guint64)rule->depth_bytes);
    qos_json_add_text(builder, "per", qos_per_name(rule->per));
    qos_json_add_count(builder, "weight", (guint64)rule->weight);
    qos_json_add_count(builder, "min", (guint64)rule->minimum);
    if (rule->expires == QOS_NEVER)
        qos_json_add_text(builder, "expires_in", NULL);
    else
        add_seconds(builder, "expires_in", MAX(rule->expires - report->now, 0));
    qos_json_add_boolean(builder, "dryrun", rule->dryrun);
    qos_json_add_boolean(builder, "passthrough", rule->passthrough);
    qos_json_add_count(builder, "buckets", state->buckets);
    qos_json_add_count(builder, "waiting", state->waiting);
    qos_json_add_count(builder, "requests", state->requests);
    qos_json_add_count(builder, "bytes", state->bytes);
    qos_json_add_count(builder, "waits", state->waits);
    add_seconds(builder, "waited", state->waited);
    qos_json_add_count(builder, "dryrun_waits", state->dryrun_waits);
    qos_json_add_count(builder, "dryrun_bytes", state->dryrun_bytes);
    qos_json_add_text(builder, "scope", scope_names[rule->scope]);
    if (rule->scope == QOS_SCOPE_CLUSTER)
        add_cluster_options(builder, rule);
    json_builder_end_object(builder);
}

static void add_operations(JsonBuilder *builder, const QosJob *job)
{
    qos_json_begin_object(builder, "operations");
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (!job->operation[i].samples)
            continue;
        qos_json_begin_object(builder, qos_opcode_name(i));
        qos_json_add_count(builder, "samples", job->operation[i].samples);
        qos_json_add_number(builder, "seconds", (double)job->operation[i].sum / 1e6);
        json_builder_end_object(builder);
    }
    json_builder_end_object(builder);
}

static void add_wait(JsonBuilder *builder, const QosReport *report, const QosWait *wait)
{
    json_builder_begin_object(builder);
    qos_json_add_text(builder, "rule", wait->rule_name);
    qos_json_add_text(builder, "scope", scope_names[qos_report_is_cluster_wait(wait)]);
    qos_json_add_count(builder, "count", wait->count);
    add_seconds(builder, "waited", wait->waited);
    add_seconds(builder, "longest", wait->longest);
    add_moment(builder, "first", report, wait->first);
    add_moment(builder, "last", report, wait->last);
    json_builder_end_object(builder);
}

/* All, or the one that was waited for last. */
static void add_waits(JsonBuilder *builder, const QosReport *report, const QosJob *job,
                      gboolean is_brief)
{
    const QosWait *latest = NULL;

    qos_json_begin_array(builder, "wait");
    for (guint i = 0; i < job->wait_count; i++) {
        if (!is_brief)
            add_wait(builder, report, &job->wait[i]);
        else if (!latest || job->wait[i].last > latest->last)
            latest = &job->wait[i];
    }
    if (latest)
        add_wait(builder, report, latest);
    json_builder_end_array(builder);
}

static void add_share(JsonBuilder *builder, const QosReportShare *share)
{
    if (!share) {
        qos_json_add_text(builder, "share", NULL);
        return;
    }
    qos_json_begin_object(builder, "share");
    qos_json_add_boolean(builder, "takes_part", share->takes_part);
    qos_json_add_count(builder, "weight", (guint64)share->weight);
    qos_json_add_number(builder, "entitlement", share->entitlement);
    qos_json_add_number(builder, "demand", share->demand);
    qos_json_add_number(builder, "allocation", share->allocation);
    qos_json_add_number(builder, "repayment", share->repayment);
    qos_json_add_number(builder, "flow", share->flow);
    qos_json_add_text(builder, "partner", share->partner);
    qos_json_add_number(builder, "record", share->record);
    qos_json_add_number(builder, "lent", share->lent);
    qos_json_add_number(builder, "returned", share->returned);
    qos_json_add_number(builder, "borrowed", share->borrowed);
    qos_json_add_number(builder, "repaid", share->repaid);
    json_builder_end_object(builder);
}

/* Adds what a list of jobs shows of one. */
static void add_brief(JsonBuilder *builder, const QosReport *report, const QosJob *job)
{
    qos_json_add_text(builder, "id", job->id);
    add_moment(builder, "seen", report, job->seen);
    qos_json_add_count(builder, "requests", job->requests);
    qos_json_add_count(builder, "errors", job->errors);
    add_seconds(builder, "wait_time", job->wait_time);
    add_seconds(builder, "store_time", job->store_time);
    qos_json_add_count(builder, "waiting", job->sched.use.waiting);
    qos_json_add_count(builder, "running", job->sched.use.running);
    qos_json_add_number(builder, "operation_rate", job->operation_rate);
    qos_json_add_number(builder, "byte_rate", job->byte_rate);
    qos_json_add_count(builder, "read_bytes", job->read_bytes.sum);
    qos_json_add_count(builder, "write_bytes", job->write_bytes.sum);
    add_share(builder, qos_report_share(report, job->id));
}

static void add_rest(JsonBuilder *builder, const QosReport *report, const QosJob *job)
{
    qos_json_add_count(builder, "nodes", job->nodes);
    add_moment(builder, "started", report, job->started);
    qos_json_add_count(builder, "waits", job->waits);
    qos_json_add_count(builder, "parked_bytes", job->sched.use.parked_bytes);
    qos_json_add_count(builder, "refused", job->sched_rare.refused);
    qos_json_add_count(builder, "passthrough", job->passthrough);
    qos_json_add_count(builder, "open_files", job->files.count);
    qos_json_add_count(builder, "opens_refused", job->files.refused);
    add_operations(builder, job);
}

static void add_job(JsonBuilder *builder, const QosReport *report, const QosJob *job,
                    gboolean is_brief)
{
    json_builder_begin_object(builder);
    add_brief(builder, report, job);
    if (!is_brief)
        add_rest(builder, report, job);
    add_waits(builder, report, job, is_brief);
    json_builder_end_object(builder);
}

static void add_adapt(JsonBuilder *builder, const QosReport *report)
{
    const QosReportAdapt *adapt = &report->adapt;

    qos_json_begin_object(builder, "adapt");
    qos_json_add_text(builder, "mode", qos_adapt_mode_names[adapt->mode]);
    qos_json_add_number(builder, "capacity", adapt->capacity);
    qos_json_add_boolean(builder, "told", qos_report_is_told(adapt));
    qos_json_add_number(builder, "told_capacity", adapt->told);
    qos_json_add_number(builder, "reserved", adapt->reserved);
    qos_json_add_count(builder, "depth", adapt->depth);
    add_seconds(builder, "period", adapt->period);
    qos_json_add_count(builder, "members", adapt->members);
    json_builder_end_object(builder);
}

/* The lock server, where there is to be one. */
static void add_server(JsonBuilder *builder, const QosLockclientStatus *status)
{
    qos_json_begin_object(builder, "server");
    qos_json_add_text(builder, "address", status->server);
    qos_json_add_text(builder, "state", qos_lockclient_state_names[status->state]);
    qos_json_add_text(builder, "reason", status->reason);
    add_seconds(builder, "lease", status->lease);
    add_seconds(builder, "valid", status->valid);
    qos_json_add_count(builder, "incarnation", status->server_incarnation);
    qos_json_add_count(builder, "group", status->group);
    qos_json_add_count(builder, "credits", status->credits);
    qos_json_add_count(builder, "bytes", (guint64)status->bytes);
    qos_json_add_count(builder, "rate", (guint64)status->rate);
    qos_json_add_count(builder, "floor", (guint64)status->floor);
    qos_json_add_count(builder, "hits", status->hits);
    qos_json_add_count(builder, "misses", status->misses);
    qos_json_add_count(builder, "refusals", status->refusals);
    qos_json_add_count(builder, "enqueues", status->enqueues);
    qos_json_add_count(builder, "cancels", status->cancels);
    qos_json_add_count(builder, "cancel_messages", status->cancel_messages);
    qos_json_add_count(builder, "revocations", status->revocations);
    qos_json_add_count(builder, "evictions", status->evictions);
    qos_json_add_count(builder, "reconnects", status->reconnects);
    json_builder_end_object(builder);
}

static void add_mount(JsonBuilder *builder, const QosReport *report)
{
    qos_json_add_text(builder, "version", QOSFS_VERSION);
    qos_json_add_text(builder, "source", report->source);
    qos_json_add_text(builder, "mountpoint", report->mountpoint);
    qos_json_add_count(builder, "pid", (guint64)report->pid);
    add_seconds(builder, "started", report->started);
    add_seconds(builder, "now", report->wall);
    add_policies(builder, report);
    qos_json_begin_object(builder, "slots");
    qos_json_add_count(builder, "total", report->slots.slots);
    qos_json_add_count(builder, "running", report->slots.running);
    qos_json_add_count(builder, "stalled", report->slots.stalled);
    qos_json_add_count(builder, "passing", report->slots.over_limit);
    qos_json_add_count(builder, "held", report->slots.at_limit);
    qos_json_add_count(builder, "draining", report->slots.draining);
    json_builder_end_object(builder);
    add_adapt(builder, report);
    if (report->is_shared)
        add_server(builder, &report->sharing);
    qos_json_add_count(builder, "parked_max", report->slots.parked_max);
    qos_json_add_count(builder, "parked_bytes", report->slots.parked_bytes);
    qos_json_add_count(builder, "refused", report->slots.refused);
    qos_json_add_count(builder, "inodes", report->inodes);
    qos_json_add_count(builder, "callers", report->callers);
    qos_json_begin_object(builder, "tunables");
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        qos_json_add_text(builder, qos_tunable_names[i], report->tunables.text[i]);
    json_builder_end_object(builder);
}

static void add_counts(JsonBuilder *builder, const QosReport *report)
{
    qos_json_begin_object(builder, "counts");
    qos_json_add_count(builder, "rules", qos_rules_count(report->rules));
    qos_json_add_count(builder, "jobs", report->counts.all);
    qos_json_add_count(builder, "active", report->counts.active);
    qos_json_add_count(builder, "waiting", report->counts.waiting);
    json_builder_end_object(builder);
}

static gboolean has_waited(const QosJob *job, const QosRule *rule)
{
    for (guint i = 0; i < job->wait_count; i++) {
        if (g_str_equal(job->wait[i].rule_name, rule->name) &&
            qos_report_is_cluster_wait(&job->wait[i]) == (rule->scope == QOS_SCOPE_CLUSTER))
            return TRUE;
    }
    return FALSE;
}

/* All rules, or those that a job has waited for. */
static void add_rules(JsonBuilder *builder, const QosReport *report, const QosJob *job)
{
    for (guint i = 0; i < qos_rules_count(report->rules); i++) {
        const QosRule *rule = qos_rules_get(report->rules, i);

        if (!job || has_waited(job, rule))
            add_rule(builder, report, rule, &report->rule_states[i]);
    }
}

/* A rate of a budget by the second; null: there is no bound. */
static void add_rate(JsonBuilder *builder, const char *name, guint64 rate)
{
    if (rate == QOS_BUDGET_NO_BOUND)
        qos_json_add_text(builder, name, NULL);
    else
        qos_json_add_number(builder, name, (double)rate / QOS_BUDGET_UNIT);
}

static void add_class(JsonBuilder *builder, const QosBudgetsClass *class)
{
    json_builder_begin_object(builder);
    qos_json_add_text(builder, "rule", class->rule_name);
    qos_json_add_text(builder, "class", class->class_name);
    qos_json_add_text(builder, "unit", unit_names[class->unit]);
    add_rate(builder, "limit", class->limit);
    add_rate(builder, "demand", class->demand);
    add_rate(builder, "rate", class->rate);
    add_rate(builder, "floor", class->floor);
    add_rate(builder, "waiting", class->waiting);
    qos_json_add_boolean(builder, "is_away", class->is_away);
    json_builder_end_object(builder);
}

/* How many rules there are of each kind of away=. */
static void add_aways(JsonBuilder *builder, const QosReportCluster *cluster)
{
    guint counts[G_N_ELEMENTS(away_names)] = {0};

    for (guint i = 0; i < qos_report_cluster_count(cluster); i++)
        counts[qos_rules_get(cluster->rules, i)->away]++;
    qos_json_begin_object(builder, "aways");
    for (guint i = 0; i < G_N_ELEMENTS(away_names); i++)
        qos_json_add_count(builder, away_names[i], counts[i]);
    json_builder_end_object(builder);
}

/* The rules for all mounts together; `job` as for add_rules(). */
static void add_cluster(JsonBuilder *builder, const QosReport *report, gboolean has_rules,
                        const QosJob *job)
{
    const QosReportCluster *cluster = &report->cluster;
    const QosBudgetsTerms *terms = &cluster->terms;

    qos_json_begin_object(builder, "cluster");
    qos_json_add_count(builder, "version", terms->version);
    qos_json_add_count(builder, "count", qos_report_cluster_count(cluster));
    qos_json_add_count(builder, "parts", terms->parts);
    add_seconds(builder, "epoch", terms->epoch);
    add_seconds(builder, "lease", terms->lease);
    qos_json_add_boolean(builder, "connected", terms->is_connected);
    add_moment(builder, "since", report, terms->since);
    qos_json_add_boolean(builder, "is_away", cluster->is_away);
    qos_json_add_text(builder, "fault", cluster->fault);
    add_aways(builder, cluster);
    qos_json_begin_array(builder, "rules");
    for (guint i = 0; has_rules && i < qos_report_cluster_count(cluster); i++) {
        const QosRule *rule = qos_rules_get(cluster->rules, i);

        if (!job || has_waited(job, rule))
            add_rule(builder, report, rule, &cluster->rule_states[i]);
    }
    json_builder_end_array(builder);
    qos_json_begin_array(builder, "classes");
    for (guint i = 0; cluster->classes && i < cluster->classes->len; i++)
        add_class(builder, &g_array_index(cluster->classes, QosBudgetsClass, i));
    json_builder_end_array(builder);
    json_builder_end_object(builder);
}

typedef enum { COUNTS = 1, RULES = 2, JOBS = 4, BRIEF_JOBS = 8 } Parts;

/* `job`: the one that it is about; NULL: it is about the mount. */
static GString *make(const QosReport *report, Parts parts, const QosJob *job)
{
    g_autoptr(JsonBuilder) builder = json_builder_new_immutable();
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = NULL;
    GString *text = g_string_new(NULL);

    json_builder_begin_object(builder);
    add_mount(builder, report);
    if (parts & COUNTS)
        add_counts(builder, report);
    qos_json_begin_array(builder, "rules");
    if (parts & RULES)
        add_rules(builder, report, job);
    json_builder_end_array(builder);
    if (report->cluster.terms.version > 0 || report->cluster.fault[0] != '\0')
        add_cluster(builder, report, (parts & RULES) != 0, job);
    qos_json_begin_array(builder, "jobs");
    if (job)
        add_job(builder, report, job, FALSE);
    for (guint i = 0; i < report->jobs->len && parts & (JOBS | BRIEF_JOBS); i++)
        add_job(builder, report, g_ptr_array_index(report->jobs, i), !(parts & JOBS));
    json_builder_end_array(builder);
    json_builder_end_object(builder);
    root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    json_generator_to_gstring(generator, text);
    g_string_append_c(text, '\n');
    return text;
}

GString *qos_report_state(const QosReport *report)
{
    return make(report, RULES | JOBS, NULL);
}

GString *qos_report_status(const QosReport *report)
{
    return make(report, COUNTS, NULL);
}

GString *qos_report_rules_state(const QosReport *report)
{
    return make(report, RULES, NULL);
}

GString *qos_report_jobs_state(const QosReport *report)
{
    return make(report, BRIEF_JOBS, NULL);
}

GString *qos_report_job_state(const QosReport *report, const QosJob *job)
{
    return make(report, RULES, job);
}
