/*
 * The list of rules: commands make a new one, requests are matched against it.
 *
 * A list is a GPtrArray of rules in the order of matching, and never changes. What depends on all
 * rules is computed when the list is sealed. The index for matching is made when it is first used,
 * because after a remount each saved rule makes a list that no request ever meets. The index
 * separates the rules that are only for certain job ids, usually nearly all. So a request is
 * compared with the rules of its own job and with the few that name no job, in the order of the
 * list.
 */
#include "fs/rule.h"

#include <errno.h>
#include <string.h>

#include "base/box.h"
#include "base/error.h"
#include "base/near.h"
#include "base/units.h"
#include "fs/rule_private.h"

#define DEFAULT_ID      1

#define CLUSTER_OPTIONS (QOS_OPTION_SHARE | QOS_OPTION_FLOOR | QOS_OPTION_AWAY)

/* Places in the list, ascending; `default` is in none of them. */
typedef struct {
    GHashTable *by_job; /* job id -> GArray of guint; the ids are the conditions' */
    GArray *others;     /* of guint */
} Index;

struct QosRules {
    GPtrArray *rules; /* of QosRule, one reference each */
    QosScope scope;
    guint64 next_id;
    /* Worked out by seal(). */
    GHashTable *by_id; /* QosRule.id -> it, of `rules` */
    QosRule *fallback; /* `default` */
    guint fields;
    QosTime next_expiry;
    gboolean has_passthrough;
    /* Made when first used; set once, atomically. */
    Index *index;
};

/* --- lifetimes --- */

static void rule_clear(QosRule *rule)
{
    qos_condition_unref(rule->condition);
}

static void rule_unref(QosRule *rule)
{
    qos_box_unref(rule, (GDestroyNotify)rule_clear);
}

static QosRule *rule_copy(QosRule *rule)
{
    QosRule *copy = qos_box_copy(rule, sizeof *rule);

    if (copy->condition != NULL)
        qos_condition_ref(copy->condition);
    return copy;
}

static void index_free(Index *index)
{
    if (index == NULL)
        return;
    g_hash_table_unref(index->by_job);
    g_array_unref(index->others);
    g_free(index);
}

static void rules_clear(QosRules *rules)
{
    index_free(rules->index);
    g_hash_table_unref(rules->by_id);
    g_ptr_array_unref(rules->rules);
}

QosRules *qos_rules_ref(QosRules *rules)
{
    return qos_box_ref(rules);
}

void qos_rules_unref(QosRules *rules)
{
    if (rules != NULL)
        qos_box_unref(rules, (GDestroyNotify)rules_clear);
}

static guint per_fields(QosPer per)
{
    switch (per) {
    case QOS_PER_JOBID:
        return QOS_FIELD_JOBID;
    case QOS_PER_UID:
        return QOS_FIELD_UID;
    case QOS_PER_GID:
        return QOS_FIELD_GID;
    case QOS_PER_RULE:
        return 0;
    case QOS_PER_JOBID_OPCODE:
        return QOS_FIELD_JOBID | QOS_FIELD_OPCODE;
    }
    g_return_val_if_reached(0);
}

/* Makes the list of `members`, which it takes over. */
static QosRules *seal(GPtrArray *members, QosScope scope, guint64 next_id)
{
    QosRules *rules = qos_box_new0(sizeof(QosRules));

    rules->rules = members;
    rules->scope = scope;
    rules->next_id = next_id;
    rules->next_expiry = QOS_NEVER;
    rules->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    for (guint i = 0; i < members->len; i++) {
        QosRule *rule = members->pdata[i];

        g_hash_table_insert(rules->by_id, &rule->id, rule);
        rules->fields |= per_fields(rule->per);
        rules->next_expiry = MIN(rules->next_expiry, rule->expires);
        rules->has_passthrough |= rule->passthrough;
        if (rule->condition == NULL)
            rules->fallback = rule;
        else
            rules->fields |= qos_condition_fields(rule->condition);
    }
    return rules;
}

static void add_default(GPtrArray *members, QosScope scope, guint64 id)
{
    QosRule *fallback = qos_box_new0(sizeof(QosRule));

    fallback->id = id;
    fallback->scope = scope;
    fallback->expires = QOS_NEVER;
    g_strlcpy(fallback->name, QOS_RULE_DEFAULT_NAME, sizeof fallback->name);
    g_ptr_array_add(members, fallback);
}

static QosRules *list_new(QosScope scope)
{
    const guint64 id = DEFAULT_ID + (scope == QOS_SCOPE_CLUSTER ? QOS_RULE_CLUSTER_ID : 0);
    GPtrArray *members = g_ptr_array_new_with_free_func((GDestroyNotify)rule_unref);

    add_default(members, scope, id);
    return seal(members, scope, id + 1);
}

QosRules *qos_rules_new(void)
{
    return list_new(QOS_SCOPE_MOUNT);
}

QosRules *qos_rules_new_cluster(void)
{
    return list_new(QOS_SCOPE_CLUSTER);
}

QosScope qos_rules_scope(const QosRules *rules)
{
    return rules->scope;
}

static gpointer copy_reference(gconstpointer rule, gpointer data)
{
    (void)data;
    return qos_box_ref((gpointer)rule);
}

static GPtrArray *copy_members(const QosRules *rules)
{
    GPtrArray *members = g_ptr_array_copy(rules->rules, copy_reference, NULL);

    g_ptr_array_set_free_func(members, (GDestroyNotify)rule_unref);
    return members;
}

/* --- commands --- */

/* The place of the rule `name`, or -1 with ENOENT. */
static gint find(const GPtrArray *members, const char *name, GError **error)
{
    QosNear near;

    qos_near_init(&near, name);
    for (guint i = 0; i < members->len; i++) {
        const QosRule *rule = members->pdata[i];

        if (strcmp(rule->name, name) == 0)
            return (gint)i;
        qos_near_consider(&near, rule->name);
    }
    qos_set_error(error, ENOENT,
                  near.nearest ? "there is no rule \"%s\"; did you mean \"%s\"?"
                               : "there is no rule \"%s\"",
                  name, near.nearest);
    return -1;
}

/* Sets in `rule` what the command gives. */
static void set_options(QosRule *rule, const QosRuleCommand *command, QosTime now)
{
    const QosRule *options = &command->options;

    if (command->given & QOS_OPTION_RATE)
        rule->rate = options->rate;
    if (command->given & QOS_OPTION_BPS)
        rule->bps = options->bps;
    if (command->given & QOS_OPTION_DEPTH)
        rule->depth_ops = options->depth_ops;
    if (command->given & QOS_OPTION_DEPTH_BYTES)
        rule->depth_bytes = options->depth_bytes;
    if (command->given & QOS_OPTION_PER)
        rule->per = options->per;
    if (command->given & QOS_OPTION_WEIGHT)
        rule->weight = options->weight;
    if (command->given & QOS_OPTION_MINIMUM)
        rule->minimum = options->minimum;
    if (command->given & QOS_OPTION_EXPIRE)
        rule->expires = qos_time_add(now, options->expires);
    if (command->given & QOS_OPTION_DRYRUN)
        rule->dryrun = options->dryrun;
    if (command->given & QOS_OPTION_PASSTHROUGH)
        rule->passthrough = options->passthrough;
    if (command->given & QOS_OPTION_SHARE)
        rule->share = options->share;
    if (command->given & QOS_OPTION_FLOOR)
        rule->floor = options->floor;
    if (command->given & QOS_OPTION_AWAY)
        rule->away = options->away;
}

/* TRUE where a list of that scope takes such a command. */
static gboolean check_scope(const QosRuleCommand *command, QosScope scope, GError **error)
{
    const gboolean is_cluster = scope == QOS_SCOPE_CLUSTER;
    const gboolean is_other =
        (command->given & QOS_OPTION_SCOPE) != 0 && command->options.scope != scope;

    if (!is_cluster && (is_other || (command->given & CLUSTER_OPTIONS) != 0)) {
        qos_set_error(error, EINVAL,
                      "%s: a mount's own rules have scope=mount, without share=, floor= and away=; "
                      "a rule for all mounts together is set with \"qosfsctl cluster rule start "
                      "...\"",
                      command->name);
        return FALSE;
    }
    if (is_cluster && (is_other || command->options.passthrough)) {
        qos_set_error(error, EINVAL,
                      "%s: the cluster's rules have scope=cluster, without passthrough; a rule for "
                      "one mount is set with \"qosfsctl rule start ...\"",
                      command->name);
        return FALSE;
    }
    if (is_cluster && command->verb == QOS_RULE_CHANGE &&
        strcmp(command->name, QOS_RULE_DEFAULT_NAME) == 0) {
        qos_set_error(error, EPERM,
                      "the cluster's default bounds nothing: it leaves to the mounts' own rules "
                      "what no cluster rule matches; start a rule with jobid={*} instead");
        return FALSE;
    }
    return TRUE;
}

static gboolean check_rule(const QosRule *rule, GError **error)
{
    if (rule->condition == NULL && (rule->dryrun || rule->expires != QOS_NEVER)) {
        qos_set_error(error, EINVAL,
                      "default governs what no other rule does: it takes no %s=; start a rule with "
                      "jobid={*} for that",
                      rule->dryrun ? "dryrun" : "expire");
        return FALSE;
    }
    if (rule->rate > 0 && rule->minimum > rule->rate) {
        qos_set_error(error, EINVAL,
                      "%s: min=%" G_GINT64_FORMAT " is more than rate=%" G_GINT64_FORMAT,
                      rule->name, rule->minimum, rule->rate);
        return FALSE;
    }
    if (rule->passthrough && (rule->rate > 0 || rule->bps > 0 || rule->dryrun)) {
        qos_set_error(error, EINVAL,
                      "%s: passthrough leaves nothing to hold back, it goes with rate=none, "
                      "bps=none and dryrun=0; other rules may bound the job's opcode={meta}",
                      rule->name);
        return FALSE;
    }
    if (rule->share == QOS_RULE_HARD && rule->away == QOS_RULE_AWAY_OPEN) {
        qos_set_error(error, EINVAL,
                      "%s: share=hard keeps all mounts together within the rate at any time, and "
                      "away=open lets a mount without a server exceed it; give share=fair, or "
                      "away=floor or away=stop",
                      rule->name);
        return FALSE;
    }
    return TRUE;
}

/* The rule of a `start`, whose conditions it takes over. */
static QosRule *start_rule(QosRuleCommand *command, QosScope scope, guint64 id, QosTime now)
{
    const guint bounds = QOS_OPTION_RATE | QOS_OPTION_BPS | QOS_OPTION_WEIGHT | QOS_OPTION_MINIMUM;
    QosRule *rule = qos_box_new0(sizeof(QosRule));

    rule->id = id;
    g_strlcpy(rule->name, command->name, sizeof rule->name);
    rule->condition = g_steal_pointer(&command->condition);
    if ((command->given & bounds) == 0 && !command->options.passthrough)
        rule->rate = QOS_RATE_DEFAULT;
    rule->expires = QOS_NEVER;
    rule->scope = scope;
    rule->floor = scope == QOS_SCOPE_CLUSTER ? QOS_FLOOR_DEFAULT : 0;
    set_options(rule, command, now);
    return rule;
}

static gboolean start(GPtrArray *members, QosRuleCommand *command, QosScope scope, guint64 id,
                      QosTime now, GError **error)
{
    gint place = 0;
    QosRule *rule;

    if (find(members, command->name, NULL) >= 0) {
        qos_set_error(error, EEXIST, "there is a rule \"%s\" already; change or stop it",
                      command->name);
        return FALSE;
    }
    if (members->len >= QOS_RULES_MAX) {
        qos_set_error(error, ENOSPC,
                      "there are %u rules already, as many as there may be; stop some",
                      members->len);
        return FALSE;
    }
    if (command->given & QOS_OPTION_RANK)
        place = find(members, command->rank, error);
    if (place < 0)
        return FALSE;
    rule = start_rule(command, scope, id, now);
    g_ptr_array_insert(members, place, rule);
    return check_rule(rule, error);
}

/* Moves the rule at `place` to just before the rule `target`. */
static gboolean move(GPtrArray *members, gint place, const char *target, GError **error)
{
    gint before = find(members, target, error);

    if (before < 0)
        return FALSE;
    if (before != place) {
        QosRule *rule = g_ptr_array_steal_index(members, (guint)place);

        g_ptr_array_insert(members, before > place ? before - 1 : before, rule);
    }
    return TRUE;
}

static gboolean change(GPtrArray *members, const QosRuleCommand *command, QosTime now,
                       GError **error)
{
    gint place = find(members, command->name, error);
    QosRule *old, *rule;

    if (place < 0)
        return FALSE;
    old = members->pdata[place];
    rule = members->pdata[place] = rule_copy(old);
    rule_unref(old);
    set_options(rule, command, now);
    return check_rule(rule, error) &&
           ((command->given & QOS_OPTION_RANK) == 0 || move(members, place, command->rank, error));
}

static gboolean stop(GPtrArray *members, const QosRuleCommand *command, GError **error)
{
    gint place = find(members, command->name, error);

    if (place < 0)
        return FALSE;
    if (strcmp(command->name, QOS_RULE_DEFAULT_NAME) == 0) {
        const QosRule *rule = members->pdata[place];
        qos_set_error(error, EPERM, "default cannot be stopped; %s",
                      rule->scope == QOS_SCOPE_CLUSTER
                          ? "the cluster's bounds nothing"
                          : "\"change default rate=none bps=none\" lifts its bounds");
        return FALSE;
    }
    g_ptr_array_remove_index(members, (guint)place);
    return TRUE;
}

QosRules *qos_rules_apply(QosRules *rules, const char *command, QosTime now, GError **error)
{
    g_auto(QosRuleCommand) parsed = {0};
    g_autoptr(GPtrArray) members = NULL;
    guint64 next_id = rules->next_id;
    gboolean done = FALSE;

    if (!qos_rule_command_parse(&parsed, command, error) ||
        !check_scope(&parsed, rules->scope, error))
        return NULL;
    members = copy_members(rules);
    switch (parsed.verb) {
    case QOS_RULE_START:
        done = start(members, &parsed, rules->scope, next_id++, now, error);
        break;
    case QOS_RULE_CHANGE:
        done = change(members, &parsed, now, error);
        break;
    case QOS_RULE_STOP:
        done = stop(members, &parsed, error);
        break;
    }
    return done ? seal(g_steal_pointer(&members), rules->scope, next_id) : NULL;
}

/* Appends the rule of `start`, unless its name is among `names`. */
static gboolean append(GPtrArray *members, GHashTable *names, const QosRuleStart *start,
                       QosTime now, GError **error)
{
    g_auto(QosRuleCommand) parsed = {0};

    if (!qos_rule_command_parse(&parsed, start->command, error) ||
        !check_scope(&parsed, QOS_SCOPE_CLUSTER, error))
        return FALSE;
    if (parsed.verb != QOS_RULE_START || (parsed.given & QOS_OPTION_RANK) != 0) {
        qos_set_error(error, EINVAL,
                      "%s: a list has \"start\" commands without rank=", parsed.name);
        return FALSE;
    }
    QosRule *rule = start_rule(&parsed, QOS_SCOPE_CLUSTER, start->id, now);
    if (start->left != QOS_NEVER)
        rule->expires = qos_time_add(now, start->left);
    g_ptr_array_add(members, rule);
    if (strcmp(rule->name, QOS_RULE_DEFAULT_NAME) == 0 || !g_hash_table_add(names, rule->name)) {
        qos_set_error(error, EEXIST, "%s: a list has each name once, and no \"default\"",
                      rule->name);
        return FALSE;
    }
    return check_rule(rule, error);
}

QosRules *qos_rules_new_cluster_of(const QosRuleStart *starts, guint count, QosTime now,
                                   GError **error)
{
    const guint64 default_id = QOS_RULE_CLUSTER_ID;
    g_autoptr(GPtrArray) members = g_ptr_array_new_with_free_func((GDestroyNotify)rule_unref);
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    guint64 last = default_id;

    if (count >= QOS_RULES_MAX) {
        qos_set_error(error, ENOSPC, "%u rules are too many: a list has %d with its default", count,
                      QOS_RULES_MAX);
        return NULL;
    }
    for (guint i = 0; i < count; i++) {
        if (!append(members, names, &starts[i], now, error))
            return NULL;
        last = MAX(last, starts[i].id);
    }
    add_default(members, QOS_SCOPE_CLUSTER, default_id);
    return seal(g_steal_pointer(&members), QOS_SCOPE_CLUSTER, last + 1);
}

QosRules *qos_rules_expire(QosRules *rules, QosTime now)
{
    GPtrArray *members;

    if (rules->next_expiry == QOS_NEVER || rules->next_expiry > now)
        return NULL;
    members = g_ptr_array_new_with_free_func((GDestroyNotify)rule_unref);
    for (guint i = 0; i < rules->rules->len; i++) {
        QosRule *rule = rules->rules->pdata[i];

        if (rule->expires > now)
            g_ptr_array_add(members, qos_box_ref(rule));
    }
    return seal(members, rules->scope, rules->next_id);
}

QosTime qos_rules_next_expiry(const QosRules *rules)
{
    return rules->next_expiry;
}

/* --- matching --- */

/* Notes that the rule at `place` is for `job`, unless its last entry says so. */
static void add_place(GHashTable *by_job, const char *job, guint place)
{
    GArray *places = g_hash_table_lookup(by_job, job);

    if (places == NULL) {
        places = g_array_new(FALSE, FALSE, sizeof(guint));
        g_hash_table_insert(by_job, (gpointer)job, places);
    }
    if (places->len == 0 || g_array_index(places, guint, places->len - 1) != place)
        g_array_append_val(places, place);
}

static Index *index_new(const GPtrArray *members)
{
    Index *index = g_new(Index, 1);

    index->by_job =
        g_hash_table_new_full(g_str_hash, g_str_equal, NULL, (GDestroyNotify)g_array_unref);
    index->others = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint place = 0; place < members->len; place++) {
        const QosRule *rule = members->pdata[place];
        g_autoptr(GPtrArray) jobs = NULL;

        if (rule->condition == NULL)
            continue;
        jobs = qos_condition_exact_jobs(rule->condition);
        if (jobs == NULL)
            g_array_append_val(index->others, place);
        for (guint i = 0; jobs != NULL && i < jobs->len; i++)
            add_place(index->by_job, jobs->pdata[i], place);
    }
    return index;
}

/* The list is shared without a lock: where two make the index at once, the first one's stays. */
static const Index *rules_index(const QosRules *rules)
{
    QosRules *shared = (QosRules *)rules;
    Index *index = g_atomic_pointer_get(&shared->index);

    if (index != NULL)
        return index;
    index = index_new(rules->rules);
    if (g_atomic_pointer_compare_and_exchange(&shared->index, NULL, index))
        return index;
    index_free(index);
    return g_atomic_pointer_get(&shared->index);
}

/* The smallest place that is left in either array, each from its cursor on. */
static gboolean next_place(const GArray *a, guint *a_next, const GArray *b, guint *b_next,
                           guint *ret_place)
{
    guint a_place = a != NULL && *a_next < a->len ? g_array_index(a, guint, *a_next) : G_MAXUINT;
    guint b_place = *b_next < b->len ? g_array_index(b, guint, *b_next) : G_MAXUINT;

    if (a_place < b_place)
        (*a_next)++;
    else if (b_place != G_MAXUINT)
        (*b_next)++;
    *ret_place = MIN(a_place, b_place);
    return *ret_place != G_MAXUINT;
}

const QosRule *qos_rules_match(const QosRules *rules, const QosRuleSubject *subject,
                               const QosRule **ret_dryrun)
{
    const Index *index = rules_index(rules);
    const GArray *own = g_hash_table_lookup(index->by_job, subject->job);
    guint own_next = 0, others_next = 0, place;

    *ret_dryrun = NULL;
    while (next_place(own, &own_next, index->others, &others_next, &place)) {
        const QosRule *rule = rules->rules->pdata[place];

        if (!qos_condition_matches(rule->condition, subject))
            continue;
        if (!rule->dryrun)
            return rule;
        if (*ret_dryrun == NULL)
            *ret_dryrun = rule;
    }
    return rules->fallback;
}

gboolean qos_rules_pass_through(const QosRules *rules, const QosRuleSubject *subject,
                                QosOpcodeSet opcodes)
{
    QosRuleSubject each = *subject;
    const QosRule *dryrun;

    if (!rules->has_passthrough)
        return FALSE;
    for (guint opcode = 0; opcode < QOS_OP_COUNT; opcode++) {
        each.opcode = opcode;
        if ((opcodes >> opcode & 1) != 0 && !qos_rules_match(rules, &each, &dryrun)->passthrough)
            return FALSE;
    }
    return TRUE;
}

guint qos_rules_fields(const QosRules *rules)
{
    return rules->fields;
}

/* --- reading --- */

guint qos_rules_count(const QosRules *rules)
{
    return rules->rules->len;
}

const QosRule *qos_rules_get(const QosRules *rules, guint index)
{
    return g_ptr_array_index(rules->rules, index);
}

const QosRule *qos_rules_by_id(const QosRules *rules, guint64 id)
{
    return g_hash_table_lookup(rules->by_id, &id);
}

const QosRule *qos_rules_by_name(const QosRules *rules, const char *name)
{
    gint place = find(rules->rules, name, NULL);

    return place < 0 ? NULL : rules->rules->pdata[place];
}

char *qos_rule_conditions(const QosRule *rule)
{
    return g_strdup(rule->condition == NULL ? "*" : qos_condition_text(rule->condition));
}

static void append_number(GString *text, const char *name, gint64 value)
{
    if (value > 0)
        g_string_append_printf(text, " %s=%" G_GINT64_FORMAT, name, value);
}

static void append_depth(GString *text, const QosRule *rule)
{
    g_autofree char *bytes = qos_format_bytes_exact(rule->depth_bytes);

    if (rule->depth_ops > 0)
        append_number(text, "depth", rule->depth_ops);
    else if (rule->depth_bytes > 0)
        g_string_append(text, " depth=auto");
    if (rule->depth_bytes > 0)
        g_string_append_printf(text, ":%s", bytes);
}

static void append_scope(GString *text, const QosRule *rule)
{
    if (rule->scope != QOS_SCOPE_CLUSTER || rule->condition == NULL)
        return;
    g_string_append_printf(text, " scope=%s", qos_rule_scopes[rule->scope]);
    if (rule->share != QOS_RULE_FAIR)
        g_string_append_printf(text, " share=%s", qos_rule_shares[rule->share]);
    if (rule->floor != QOS_FLOOR_DEFAULT)
        g_string_append_printf(text, " floor=%u%%", rule->floor);
    if (rule->away != QOS_RULE_AWAY_FLOOR)
        g_string_append_printf(text, " away=%s", qos_rule_aways[rule->away]);
}

char *qos_rule_options(const QosRule *rule)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_autofree char *bps = qos_format_bytes_exact(rule->bps);

    if (rule->rate == 0 && rule->bps == 0)
        g_string_append(text, " rate=none");
    append_number(text, "rate", rule->rate);
    if (rule->bps > 0)
        g_string_append_printf(text, " bps=%s", bps);
    append_depth(text, rule);
    if (rule->per != QOS_PER_JOBID)
        g_string_append_printf(text, " per=%s", qos_per_name(rule->per));
    append_number(text, "weight", rule->weight);
    append_number(text, "min", rule->minimum);
    append_number(text, "dryrun", rule->dryrun);
    append_number(text, "passthrough", rule->passthrough);
    append_scope(text, rule);
    return g_strdup(text->str + strlen(" "));
}

char *qos_rule_command(const QosRule *rule)
{
    g_autofree char *options = qos_rule_options(rule);

    if (rule->condition != NULL)
        return g_strdup_printf("start %s %s %s", rule->name, qos_condition_text(rule->condition),
                               options);
    return strcmp(options, "rate=none") == 0 ? NULL : g_strdup_printf("change default %s", options);
}
