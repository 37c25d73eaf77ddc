/*
 * The list of cluster rules, and how a command gets into force; server/cluster_rules.h says why so.
 *
 *     command -> permitted? -> waiting -> applied to the list in force -> saved -> in force
 *                                 |                |                        |
 *                              EBUSY       refused: the log is saved    nothing changed
 *
 * A rule's id on the wire is the version in which it was started, because that number is never used
 * again, not even by a later start of the server.
 */
#include "server/cluster_rules.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define RETRY (1 * QOS_SECOND)        /* after a save of expiry that failed */
#define BUSY  (100 * QOS_MILLISECOND) /* while a save is under way */
/* In the log, for what no administrator's command did. */
#define SERVER "qosfs-server"

/* One place of the list, and some bytes, are for the rule of adapt=fair. */
#define LIST_MAX      (QOS_RULES_MAX - 1)
#define SHARING_BYTES 128

G_STATIC_ASSERT(QOS_RULES_MAX <= QOS_WIRE_RULES_MAX);

typedef struct {
    gboolean is_note; /* nothing is applied: a change of the sharing is logged */
    char *text;
    char *principal;
    QosTime wall;
    QosClusterRulesDone done; /* NULL: nobody is to be told */
    gpointer arg;
} Command;

struct QosClusterRules {
    QosClusterRulesCalls calls;
    guint64 version;
    QosRules *list;
    GHashTable *ids; /* name -> guint64, of the list */
    GPtrArray *log;  /* of QosServerDbLogEntry */
    guint sharing;   /* op/s; 0: none */

    GQueue waiting; /* of Command */
    /* The save that is under way. */
    gboolean is_saving;
    Command *command;           /* that it is for; NULL: expiry */
    QosRules *next;             /* NULL: the list stays */
    GHashTable *next_ids;       /* with `next` */
    QosServerDbLogEntry *entry; /* that is being saved */
    GError *refusal;            /* of the command, where the list stays */
    gboolean has_failed;        /* the last save did */
};

static void command_free(Command *command)
{
    if (command == NULL)
        return;
    g_free(command->text);
    g_free(command->principal);
    g_free(command);
}

static GHashTable *ids_new(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

static void ids_add(GHashTable *ids, const char *name, guint64 id)
{
    g_hash_table_insert(ids, g_strdup(name), g_memdup2(&id, sizeof(id)));
}

/* 0: there is none. */
static guint64 id_of(GHashTable *ids, const char *name)
{
    const guint64 *id = g_hash_table_lookup(ids, name);

    return id != NULL ? *id : 0;
}

static gboolean is_default(const QosRule *rule)
{
    return rule->condition == NULL;
}

/* --- the beginning and the end --- */

/* Puts a saved rule on top of the list. */
static gboolean restore(QosClusterRules *rules, const QosServerDbRule *saved, GError **error)
{
    gboolean is_for_ever = saved->expires == QOS_NEVER;
    g_autofree char *command = g_strconcat(saved->command, is_for_ever ? "" : " expire=1s", NULL);
    g_autoptr(GError) reason = NULL;
    QosTime start = is_for_ever ? 0 : saved->expires - QOS_SECOND; /* so that it ends when it did */
    QosRules *list = qos_rules_apply(rules->list, command, start, &reason);

    if (list != NULL && qos_rules_count(list) != qos_rules_count(rules->list) + 1) {
        g_clear_pointer(&list, qos_rules_unref);
        qos_set_error(&reason, EUCLEAN, "it starts no rule");
    }
    if (list == NULL) {
        qos_set_error(error, reason->code,
                      "the saved rule of the cluster \"%s\" is refused: %s; use the version of "
                      "qosfs-server that saved it",
                      saved->command, reason->message);
        return FALSE;
    }
    qos_rules_unref(rules->list);
    rules->list = list;
    ids_add(rules->ids, qos_rules_get(list, 0)->name, saved->id);
    return TRUE;
}

QosClusterRules *qos_cluster_rules_new(const QosServerDbRules *saved, const GPtrArray *log,
                                       const QosClusterRulesCalls *calls, GError **error)
{
    QosClusterRules *rules = g_new0(QosClusterRules, 1);
    gboolean is_right = TRUE;

    rules->calls = *calls;
    rules->version = saved->version;
    rules->list = qos_rules_new_cluster();
    rules->ids = ids_new();
    rules->log = g_ptr_array_new_with_free_func((GDestroyNotify)qos_server_db_log_entry_free);
    g_queue_init(&rules->waiting);
    for (guint i = 0; i < log->len; i++)
        g_ptr_array_add(rules->log, qos_server_db_log_entry_new(log->pdata[i]));
    for (guint i = saved->rules->len; is_right && i-- > 0;)
        is_right = restore(rules, saved->rules->pdata[i], error);
    if (!is_right)
        g_clear_pointer(&rules, qos_cluster_rules_free);
    return rules;
}

void qos_cluster_rules_free(QosClusterRules *rules)
{
    if (rules == NULL)
        return;
    g_queue_clear_full(&rules->waiting, (GDestroyNotify)command_free);
    command_free(rules->command);
    qos_rules_unref(rules->next);
    qos_rules_unref(rules->list);
    g_clear_pointer(&rules->next_ids, g_hash_table_unref);
    g_hash_table_unref(rules->ids);
    qos_server_db_log_entry_free(rules->entry);
    g_clear_error(&rules->refusal);
    g_ptr_array_unref(rules->log);
    g_free(rules);
}

/* --- a list and its limits --- */

/* Whether mounts can be told the list. */
static gboolean check_list(const QosRules *list, GError **error)
{
    guint count = qos_rules_count(list);
    gsize size = SHARING_BYTES;

    if (qos_rules_by_name(list, QOS_RULE_SHARING_NAME) != NULL) {
        qos_set_error(error, EEXIST,
                      "\"" QOS_RULE_SHARING_NAME "\" is the rule of the setting adapt=fair "
                      "('qosfsctl server set adapt'): choose another name");
        return FALSE;
    }
    if (count > LIST_MAX) {
        qos_set_error(error, ENOSPC, "there are %u rules of the cluster already, which is the most",
                      LIST_MAX - 1);
        return FALSE;
    }
    for (guint i = 0; i + 1 < count; i++) {
        const QosRule *rule = qos_rules_get(list, i);
        g_autofree char *command = qos_rule_command(rule);
        gsize length = strlen(command);

        size += length;
        if (length > QOS_WIRE_COMMAND_MAX || size > QOS_WIRE_RULES_BYTES_MAX) {
            qos_set_error(error, E2BIG,
                          "%s: a rule of the cluster has at most %u bytes, and all of them "
                          "together %u: write patterns instead of lists",
                          rule->name, QOS_WIRE_COMMAND_MAX, QOS_WIRE_RULES_BYTES_MAX);
            return FALSE;
        }
    }
    return TRUE;
}

/* The ids of `list`, which follows the list in force. */
static GHashTable *ids_after(const QosClusterRules *rules, const QosRules *list)
{
    GHashTable *ids = ids_new();

    for (guint i = 0; i < qos_rules_count(list); i++) {
        const QosRule *rule = qos_rules_get(list, i);
        guint64 id = id_of(rules->ids, rule->name);

        if (!is_default(rule))
            ids_add(ids, rule->name, id != 0 ? id : rules->version + 1);
    }
    return ids;
}

/* --- saving --- */

static char *logged(const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);

    if (strlen(valid) <= QOS_CLUSTER_RULES_LOGGED_MAX)
        return g_steal_pointer(&valid);
    const char *end = g_utf8_find_prev_char(valid, valid + QOS_CLUSTER_RULES_LOGGED_MAX);
    return g_strdup_printf("%.*s...", (int)(end - valid), valid);
}

static QosServerDbRules rows_of(const QosClusterRules *rules)
{
    QosServerDbRules rows = qos_server_db_rules_new();

    rows.version = rules->version + 1;
    for (guint i = 0; i < qos_rules_count(rules->next); i++) {
        const QosRule *rule = qos_rules_get(rules->next, i);
        g_autofree char *command = qos_rule_command(rule);

        if (!is_default(rule))
            qos_server_db_rules_add(&rows, id_of(rules->next_ids, rule->name), command,
                                    rule->expires);
    }
    return rows;
}

static void saved(const GError *error, gpointer arg);

/* Takes `next` (NULL: the list stays). */
static void save(QosClusterRules *rules, QosRules *next, const QosServerDbLogEntry *entry)
{
    QosServerDbRules rows = {0};

    rules->is_saving = TRUE;
    rules->entry = qos_server_db_log_entry_new(entry);
    rules->next = next;
    if (next != NULL) {
        rules->next_ids = ids_after(rules, next);
        rows = rows_of(rules);
    }
    rules->calls.save(next != NULL ? &rows : NULL, rules->entry, saved, rules, rules->calls.arg);
}

/* Begins with the next command that waits, unless a save is under way. */
static void begin_next(QosClusterRules *rules)
{
    Command *command = rules->is_saving ? NULL : g_queue_pop_head(&rules->waiting);
    g_autofree char *text = NULL;
    g_autofree char *result = NULL;
    QosRules *next;

    if (command == NULL)
        return;
    rules->command = command;
    next = command->is_note
               ? qos_rules_ref(rules->list)
               : qos_rules_apply(rules->list, command->text, command->wall, &rules->refusal);
    if (next != NULL && !check_list(next, &rules->refusal))
        g_clear_pointer(&next, qos_rules_unref);
    text = logged(command->text);
    result = next != NULL ? g_strdup_printf("version %" G_GUINT64_FORMAT, rules->version + 1)
                          : logged(rules->refusal->message);
    save(rules, next,
         &(QosServerDbLogEntry){.time = command->wall,
                                .principal = command->principal,
                                .command = text,
                                .error = next != NULL ? 0 : (guint)rules->refusal->code,
                                .result = result});
}

static void put_in_force(QosClusterRules *rules)
{
    qos_rules_unref(rules->list);
    rules->list = g_steal_pointer(&rules->next);
    g_hash_table_unref(rules->ids);
    rules->ids = g_steal_pointer(&rules->next_ids);
    rules->version++;
}

static void note_entry(QosClusterRules *rules)
{
    g_ptr_array_add(rules->log, g_steal_pointer(&rules->entry));
    if (rules->log->len > QOS_SERVER_DB_LOG_MAX)
        g_ptr_array_remove_index(rules->log, 0);
}

/* A save has ended: what it was for is in force, or not, and the asker is told. */
static void saved(const GError *error, gpointer arg)
{
    QosClusterRules *rules = arg;
    Command *command = g_steal_pointer(&rules->command);
    g_autoptr(GError) refusal = g_steal_pointer(&rules->refusal);
    gboolean is_new = error == NULL && rules->next != NULL;

    if (error == NULL)
        note_entry(rules);
    if (is_new)
        put_in_force(rules);
    if (error != NULL && refusal == NULL)
        qos_set_error(&refusal, error->code, "the rules of the cluster stay as they are: %s",
                      error->message);
    g_clear_pointer(&rules->next, qos_rules_unref);
    g_clear_pointer(&rules->next_ids, g_hash_table_unref);
    g_clear_pointer(&rules->entry, qos_server_db_log_entry_free);
    rules->has_failed = error != NULL;
    rules->is_saving = FALSE;
    if (is_new)
        rules->calls.changed(rules->calls.arg);
    if (command != NULL && command->done != NULL)
        command->done(refusal, command->arg);
    command_free(command);
    begin_next(rules);
}

/* --- commands --- */

void qos_cluster_rules_command(QosClusterRules *rules, const QosServerOptions *options,
                               const QosAsker *asker, const char *command, QosTime wall,
                               QosClusterRulesDone done, gpointer arg)
{
    g_autoptr(GError) error = NULL;

    if (!qos_admins_permit(options, asker, &error)) {
        done(error, arg);
        return;
    }
    if (!g_utf8_validate(command, -1, NULL))
        qos_set_error(&error, EINVAL, "the command is not UTF-8");
    else if (rules->waiting.length >= QOS_CLUSTER_RULES_WAITING_MAX)
        qos_set_error(&error, EBUSY,
                      "%u commands on rules of the cluster wait already: try again; if it stays "
                      "so, see whether the disk of the server's database is slow",
                      rules->waiting.length);
    if (error != NULL) {
        done(error, arg);
        return;
    }
    Command *waiting = g_new(Command, 1);
    *waiting = (Command){.text = g_strdup(command),
                         .principal = qos_asker_text(asker),
                         .wall = wall,
                         .done = done,
                         .arg = arg};
    g_queue_push_tail(&rules->waiting, waiting);
    begin_next(rules);
}

/* Whether the log says so of the sharing already, as it does at a start with the same settings. */
static gboolean is_noted(const QosClusterRules *rules, const char *text)
{
    for (guint i = rules->log->len; i-- > 0;) {
        const QosServerDbLogEntry *entry = rules->log->pdata[i];
        if (g_str_equal(entry->principal, SERVER) && g_str_has_prefix(entry->command, "adapt="))
            return g_str_equal(entry->command, text);
    }
    return FALSE;
}

static void note_sharing(QosClusterRules *rules, QosTime wall)
{
    g_autofree char *text = rules->sharing > 0
                                ? g_strdup_printf("adapt=fair adapt-capacity=%u", rules->sharing)
                                : g_strdup("adapt=off");
    Command *note;

    if (is_noted(rules, text) || rules->waiting.length >= QOS_CLUSTER_RULES_WAITING_MAX)
        return; /* or the database is stuck: mounts have it, and the log goes without */
    note = g_new(Command, 1);
    *note = (Command){.is_note = TRUE,
                      .text = g_steal_pointer(&text),
                      .principal = g_strdup(SERVER),
                      .wall = wall};
    g_queue_push_tail(&rules->waiting, note);
    begin_next(rules);
}

void qos_cluster_rules_set_sharing(QosClusterRules *rules, guint capacity, QosTime wall)
{
    if (capacity == rules->sharing)
        return;
    rules->sharing = capacity;
    rules->calls.changed(rules->calls.arg);
    note_sharing(rules, wall);
}

guint qos_cluster_rules_sharing(const QosClusterRules *rules)
{
    return rules->sharing;
}

void qos_cluster_rules_forget(QosClusterRules *rules, gconstpointer arg)
{
    for (GList *link = rules->waiting.head; link != NULL; link = link->next) {
        Command *command = link->data;
        if (command->arg == arg)
            command->done = NULL;
    }
    if (rules->command != NULL && rules->command->arg == arg)
        rules->command->done = NULL;
}

/* "expire a b": the rules of the list in force that are not in `next`. */
static char *expired_names(const QosClusterRules *rules, const QosRules *next)
{
    g_autoptr(GString) names = g_string_new("expire");

    for (guint i = 0; i < qos_rules_count(rules->list); i++) {
        const char *name = qos_rules_get(rules->list, i)->name;
        if (qos_rules_by_name(next, name) == NULL)
            g_string_append_printf(names, " %s", name);
    }
    return logged(names->str);
}

QosTime qos_cluster_rules_tick(QosClusterRules *rules, QosTime wall)
{
    QosTime expiry = qos_rules_next_expiry(rules->list);
    g_autofree char *names = NULL;
    g_autofree char *result = NULL;
    QosRules *next;

    if (expiry > wall)
        return expiry;
    if (rules->is_saving)
        return qos_time_add(wall, BUSY);
    next = qos_rules_expire(rules->list, wall);
    names = expired_names(rules, next);
    result = g_strdup_printf("version %" G_GUINT64_FORMAT, rules->version + 1);
    save(rules, next,
         &(QosServerDbLogEntry){
             .time = wall, .principal = (char *)SERVER, .command = names, .result = result});
    return qos_time_add(wall, rules->has_failed ? RETRY : BUSY);
}

/* --- what it is --- */

guint64 qos_cluster_rules_version(const QosClusterRules *rules)
{
    return rules->version;
}

const QosRules *qos_cluster_rules_list(const QosClusterRules *rules)
{
    return rules->list;
}

guint64 qos_cluster_rules_id(const QosClusterRules *rules, const char *name)
{
    return id_of(rules->ids, name);
}

static void add_item(QosWireRules *list, const QosWireRule *item)
{
    list->size += strlen(item->command);
    g_array_append_vals(list->rules, item, 1);
}

gboolean qos_cluster_rules_is_of_sharing(const QosClusterRules *rules, const QosRule *rule)
{
    return rules->sharing > 0 && rule->weight > 0 && rule->rate == 0 && rule->bps == 0;
}

/* As that of add_sharing(), for the jobs that the rule matches. */
static char *sharing_command(const QosRule *rule, guint capacity)
{
    QosRule told = *rule;

    told.rate = capacity;
    told.per = QOS_PER_JOBID;
    told.share = QOS_RULE_FAIR;
    told.floor = 0;
    told.away = QOS_RULE_AWAY_OPEN;
    return qos_rule_command(&told);
}

/* The last one: what no rule of an administrator matches. A job has no part of it before it asks,
 * because jobs may be many; so it has no floor, and without a server nothing is held back. */
static void add_sharing(QosWireRules *list, guint capacity)
{
    const QosWireRule item = {
        .id = QOS_CLUSTER_SHARING_ID,
        .left = QOS_NEVER,
        .command = g_strdup_printf("start " QOS_RULE_SHARING_NAME
                                   " jobid={*} per=jobid rate=%u floor=0%% away=open scope=cluster",
                                   capacity)};

    add_item(list, &item);
}

QosWireRules qos_cluster_rules_describe(const QosClusterRules *rules, QosTime wall)
{
    QosWireRules list = {.version = rules->version};

    list.rules = g_array_new(FALSE, FALSE, sizeof(QosWireRule));
    for (guint i = 0; i < qos_rules_count(rules->list); i++) {
        const QosRule *rule = qos_rules_get(rules->list, i);
        QosWireRule item = {.id = id_of(rules->ids, rule->name), .left = QOS_NEVER};

        if (is_default(rule))
            continue;
        if (rule->expires != QOS_NEVER)
            item.left = MAX(rule->expires - wall, QOS_MILLISECOND);
        item.command = qos_cluster_rules_is_of_sharing(rules, rule)
                           ? sharing_command(rule, rules->sharing)
                           : qos_rule_command(rule);
        add_item(&list, &item);
    }
    if (rules->sharing > 0)
        add_sharing(&list, rules->sharing);
    list.total = list.rules->len;
    return list;
}

const GPtrArray *qos_cluster_rules_log(const QosClusterRules *rules)
{
    return rules->log;
}
