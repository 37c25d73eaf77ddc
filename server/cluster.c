/*
 * Joins the rules, the mounts, the budgets and the jobs of the cluster (server/cluster.h).
 */
#include "server/cluster_private.h"

#include "fs/policy.h"

#define LOOK QOS_SECOND /* at the wall clock */
/* E is long above QOS_BUDGET_MANY mounts, and short again below nine tenths of that. */
#define MANY_AGAIN(count) ((count) + (count) / 9)

/* The peer of a connection, for its questions. */
typedef struct {
    QosAsker asker;
    char *subject;
    guint64 connection; /* its number */
} Peer;

static void peer_free(gpointer data)
{
    Peer *peer = data;

    g_free(peer->subject);
    g_free(peer);
}

/* --- the timer --- */

static void send_frames(QosOwnerId client, const GByteArray *frames, gpointer arg)
{
    QosCluster *cluster = arg;

    if (g_hash_table_contains(cluster->peers, &client))
        cluster->output.send_urgent(client, frames->data, frames->len, cluster->output.arg);
}

/* Ends what is due, of budgets and of the policies' epochs. */
static void tick_frames(QosCluster *cluster, QosTime now)
{
    QosTime next;

    cluster->is_due = FALSE;
    next = qos_server_budgets_tick(cluster->budgets, now, send_frames, cluster);
    cluster->frames_at =
        MIN(next, qos_server_epochs_step(cluster->epochs, now, send_frames, cluster));
    qos_cluster_arm(cluster, cluster->frames_at);
}

static void job_expired(const char *id, gpointer arg)
{
    QosCluster *cluster = arg;

    qos_server_db_forget_job(cluster->db, id);
}

/* Rules, jobs and mounts whose time has come go. Returns when to look again. */
static QosTime expire(QosCluster *cluster, QosTime now)
{
    QosTime wall = qos_cluster_wall();
    QosTime next = qos_cluster_rules_tick(cluster->rules, wall);
    QosTime due = qos_cluster_mounts_expire(cluster->mounts, cluster->lease, now);

    next = MIN(next, qos_server_jobs_expire(cluster->jobs, wall, job_expired, cluster));
    if (next != QOS_NEVER)
        due = MIN(due, now + CLAMP(next - wall, QOS_MILLISECOND, LOOK));
    return due;
}

static gboolean tick(gpointer data)
{
    QosCluster *cluster = data;
    QosTime now = qos_cluster_now();

    cluster->armed = 0;
    tick_frames(cluster, now);
    qos_cluster_arm(cluster, expire(cluster, now));
    return G_SOURCE_CONTINUE;
}

static gboolean dispatch(GSource *source G_GNUC_UNUSED, GSourceFunc function, gpointer data)
{
    return function(data);
}

static void start_timer(QosCluster *cluster)
{
    static GSourceFuncs functions = {.dispatch = dispatch};

    cluster->timer = g_source_new(&functions, sizeof(GSource));
    g_source_set_priority(cluster->timer, G_PRIORITY_HIGH);
    g_source_set_callback(cluster->timer, tick, cluster, NULL);
    g_source_attach(cluster->timer, NULL);
}

void qos_cluster_turned(QosCluster *cluster)
{
    QosTime now;

    if (!cluster->is_due && cluster->frames_at == QOS_NEVER)
        return;
    now = qos_cluster_now();
    if (cluster->is_due || now >= cluster->frames_at)
        tick_frames(cluster, now);
}

/* --- the list in force --- */

static QosServerBudgetRule budget_of(const QosCluster *cluster, const QosRule *rule)
{
    QosServerBudgetRule budget = {.id = qos_cluster_rules_id(cluster->rules, rule->name),
                                  .name = rule->name,
                                  .floor = rule->floor};

    budget.limit[QOS_UNIT_OPERATIONS] = (guint64)rule->rate * QOS_BUDGET_UNIT;
    budget.limit[QOS_UNIT_BYTES] = (guint64)rule->bps * QOS_BUDGET_UNIT;
    budget.share = rule->share == QOS_RULE_HARD ? QOS_BUDGET_HARD : QOS_BUDGET_FAIR;
    switch (rule->away) {
    case QOS_RULE_AWAY_FLOOR:
        budget.away = QOS_BUDGET_AWAY_FLOOR;
        break;
    case QOS_RULE_AWAY_OPEN:
        budget.away = QOS_BUDGET_AWAY_OPEN;
        break;
    case QOS_RULE_AWAY_STOP:
        budget.away = QOS_BUDGET_AWAY_STOP;
        break;
    }
    return budget;
}

/* A rule of adapt=fair, as server/cluster_rules.c tells it to mounts. */
static QosServerBudgetRule sharing_of(const QosCluster *cluster, guint64 id, const char *name,
                                      gint64 weight)
{
    const guint64 capacity = qos_cluster_rules_sharing(cluster->rules);

    return (QosServerBudgetRule){.id = id,
                                 .name = name,
                                 .weight = (guint)weight,
                                 .limit = {[QOS_UNIT_OPERATIONS] = capacity * QOS_BUDGET_UNIT},
                                 .share = QOS_BUDGET_FAIR,
                                 .away = QOS_BUDGET_AWAY_OPEN,
                                 .is_divided = TRUE};
}

static guint64 weigh(const char *job, guint mounts, gpointer arg)
{
    return qos_cluster_job_weight(arg, job, mounts);
}

/* Tells the budgets of the rules, and of the terms. */
static void set_budgets(QosCluster *cluster)
{
    const QosRules *list = qos_cluster_rules_list(cluster->rules);
    g_autoptr(GArray) budgets = g_array_new(FALSE, FALSE, sizeof(QosServerBudgetRule));

    cluster->has_hard = FALSE;
    for (guint i = 0; i < qos_rules_count(list); i++) {
        const QosRule *rule = qos_rules_get(list, i);
        QosServerBudgetRule budget;

        if (rule->condition == NULL)
            continue;
        budget = budget_of(cluster, rule);
        if (qos_cluster_rules_is_of_sharing(cluster->rules, rule))
            budget = sharing_of(cluster, budget.id, rule->name, rule->weight);
        g_array_append_val(budgets, budget);
        cluster->has_hard = cluster->has_hard || rule->share == QOS_RULE_HARD;
    }
    if (qos_cluster_rules_sharing(cluster->rules) > 0) {
        const QosServerBudgetRule sharing =
            sharing_of(cluster, QOS_CLUSTER_SHARING_ID, QOS_RULE_SHARING_NAME, 1);
        g_array_append_val(budgets, sharing);
    }
    qos_server_budgets_set_rules(cluster->budgets, (const QosServerBudgetRule *)budgets->data,
                                 budgets->len, cluster->epoch, cluster->lease,
                                 qos_cluster_mounts_parts(cluster->mounts), qos_cluster_now());
    cluster->is_due = TRUE;
}

static void tell_list(QosCluster *cluster)
{
    const gboolean has_rules = qos_rules_count(qos_cluster_rules_list(cluster->rules)) > 1 ||
                               qos_cluster_rules_sharing(cluster->rules) > 0;

    qos_cluster_mounts_set_list(cluster->mounts, qos_cluster_rules_version(cluster->rules),
                                cluster->serial, has_rules, cluster->has_hard);
}

/* E follows the number of mounts. */
static void update_terms(QosCluster *cluster)
{
    guint count = qos_cluster_mounts_connected_count(cluster->mounts);
    QosTime epoch =
        qos_budget_epoch_for(cluster->epoch > QOS_BUDGET_EPOCH ? MANY_AGAIN(count) : count);

    if (epoch == cluster->epoch)
        return;
    cluster->epoch = epoch;
    cluster->lease = qos_budget_lease_for(epoch);
    cluster->serial++;
    set_budgets(cluster);
    tell_list(cluster);
}

static void rules_changed(gpointer arg)
{
    QosCluster *cluster = arg;

    cluster->serial++; /* another capacity has no version of its own before that is saved */
    set_budgets(cluster);
    tell_list(cluster);
    qos_cluster_arm(cluster, qos_cluster_now());
}

void qos_cluster_set_sharing(QosCluster *cluster, const QosServerSettings *settings)
{
    qos_cluster_rules_set_sharing(cluster->rules, settings->shares ? settings->capacity : 0,
                                  qos_cluster_wall());
}

static void save_rules(QosServerDbRules *rules, const QosServerDbLogEntry *entry,
                       QosServerDbRulesSaved done, gpointer done_arg, gpointer arg)
{
    qos_server_db_save_rules(((QosCluster *)arg)->db, rules, entry, done, done_arg);
}

/* --- pages --- */

static GBytes *make_pages(QosCluster *cluster, guint parts, QosTime wall)
{
    QosWireRules list = qos_cluster_rules_describe(cluster->rules, wall);
    GByteArray *bytes = g_byte_array_new();
    guint next = 0;

    list.epoch = cluster->epoch;
    list.lease = cluster->lease;
    list.parts = parts;
    do
        next = qos_wire_put_rules(bytes, &list, next);
    while (next < list.total);
    qos_wire_rules_clear(&list);
    return g_byte_array_free_to_bytes(bytes);
}

/* The frames of the list, which all mounts share that are told so within a second: it says how long
 * rules last. */
static GBytes *pages_for(QosCluster *cluster, guint parts)
{
    guint64 version = qos_cluster_rules_version(cluster->rules);
    QosTime now = qos_cluster_now();
    GBytes *pages;

    if (cluster->pages_version != version || cluster->pages_serial != cluster->serial ||
        now - cluster->pages_made > QOS_SECOND) {
        g_hash_table_remove_all(cluster->pages);
        cluster->pages_version = version;
        cluster->pages_serial = cluster->serial;
        cluster->pages_made = now;
    }
    pages = g_hash_table_lookup(cluster->pages, GUINT_TO_POINTER(parts));
    if (pages == NULL) {
        pages = make_pages(cluster, parts, qos_cluster_wall());
        g_hash_table_insert(cluster->pages, GUINT_TO_POINTER(parts), pages);
    }
    return pages;
}

/* --- what the mounts' table puts out --- */

static void tell_mount(const QosClusterMount *mount, guint parts, gpointer arg)
{
    QosCluster *cluster = arg;

    cluster->output.send_bulk(mount->id, pages_for(cluster, parts), cluster->output.arg);
}

static guint64 save_mount(const QosClusterMount *mount, guint parts, gpointer arg)
{
    return qos_server_db_save_budget_client(((QosCluster *)arg)->db, mount->id, mount->name, parts);
}

static void unsave_mount(const QosClusterMount *mount, gpointer arg)
{
    qos_server_db_forget_budget_client(((QosCluster *)arg)->db, mount->id);
}

static void mount_left(QosOwnerId id, gpointer arg)
{
    QosCluster *cluster = arg;

    qos_server_budgets_leave(cluster->budgets, id, qos_cluster_now());
}

static void parts_changed(gpointer arg)
{
    set_budgets(arg);
}

static void durable(guint64 number, gpointer arg)
{
    QosCluster *cluster = arg;

    qos_cluster_mounts_durable(cluster->mounts, number);
    qos_cluster_requests_durable(cluster, number);
}

/* --- frames --- */

/* A question that a mount has passed on. */
typedef struct {
    QosCluster *cluster;
    QosOwnerId client;
    guint64 connection, id;
} Question;

static void answer_question(int error, const char *text, gpointer arg)
{
    g_autofree Question *question = arg;
    QosCluster *cluster = question->cluster;
    const Peer *peer = g_hash_table_lookup(cluster->peers, &question->client);
    g_autoptr(GByteArray) bytes = NULL;

    if (peer == NULL || peer->connection != question->connection)
        return;
    bytes = g_byte_array_new();
    qos_wire_put_admin_result(bytes, &(QosWireAdminResult){.id = question->id,
                                                           .error = (guint)MAX(error, 0),
                                                           .text = (char *)text});
    cluster->output.send_urgent(question->client, bytes->data, bytes->len, cluster->output.arg);
}

static const char *take_admin(QosCluster *cluster, QosOwnerId id, const Peer *peer,
                              const guint8 *payload, gsize length)
{
    QosAsker asker = peer->asker;
    Question *question;
    QosWireAdmin admin;

    if (!qos_wire_get_admin(payload, length, &admin))
        return "an ADMIN that cannot be read";
    asker.caller = admin.uid;
    question = g_new(Question, 1);
    *question = (Question){
        .cluster = cluster, .client = id, .connection = peer->connection, .id = admin.id};
    qos_cluster_ask(cluster, &asker, admin.command, FALSE, answer_question, question);
    qos_wire_admin_clear(&admin);
    return NULL;
}

static const char *take_seen(QosCluster *cluster, QosOwnerId id, const guint8 *payload,
                             gsize length)
{
    QosWireSeen seen;

    if (!qos_wire_get_seen(payload, length, &seen))
        return "a RULES_SEEN that cannot be read";
    qos_cluster_mounts_seen(cluster->mounts, id, &seen);
    return NULL;
}

static const char *take_report(QosCluster *cluster, QosOwnerId id, const guint8 *payload,
                               gsize length)
{
    if (!qos_server_budgets_report(cluster->budgets, id, payload, length, qos_cluster_now()))
        return "a BUDGET_REPORT that cannot be read";
    cluster->is_due = TRUE;
    return NULL;
}

static const char *take_epoch(QosCluster *cluster, QosOwnerId id, const guint8 *payload,
                              gsize length)
{
    if (!qos_server_epochs_receive(cluster->epochs, id, payload, length, qos_cluster_now()))
        return "an EPOCH that cannot be read, or that no mount sends";
    cluster->is_due = TRUE;
    return NULL;
}

const char *qos_cluster_frame(QosCluster *cluster, QosOwnerId id, QosWireType type,
                              const guint8 *payload, gsize length)
{
    const Peer *peer = g_hash_table_lookup(cluster->peers, &id);

    g_return_val_if_fail(peer != NULL, "a frame of a connection that has ended");
    qos_cluster_mounts_heard(cluster->mounts, id, qos_cluster_now());
    switch (type) {
    case QOS_WIRE_RULES_SEEN:
        return take_seen(cluster, id, payload, length);
    case QOS_WIRE_BUDGET_REPORT:
        return take_report(cluster, id, payload, length);
    case QOS_WIRE_ADMIN:
        return take_admin(cluster, id, peer, payload, length);
    case QOS_WIRE_EPOCH:
        return take_epoch(cluster, id, payload, length);
    default:
        g_return_val_if_reached("no frame of the cluster");
    }
}

/* --- connections --- */

void qos_cluster_connected(QosCluster *cluster, QosOwnerId id, const char *name,
                           const QosAsker *peer)
{
    Peer *copy = g_new0(Peer, 1);

    copy->asker = *peer;
    copy->subject = g_strdup(peer->subject);
    copy->asker.subject = copy->subject;
    copy->connection = ++cluster->connections;
    g_hash_table_replace(cluster->peers, g_memdup2(&id, sizeof(id)), copy);
    qos_cluster_mounts_connected(cluster->mounts, id, name, qos_cluster_now());
    update_terms(cluster);
}

void qos_cluster_disconnected(QosCluster *cluster, QosOwnerId id)
{
    if (!g_hash_table_remove(cluster->peers, &id))
        return;
    qos_cluster_mounts_disconnected(cluster->mounts, id, qos_cluster_now());
    qos_server_epochs_leave(cluster->epochs, id, qos_cluster_now());
    cluster->is_due = TRUE;
    update_terms(cluster);
    qos_cluster_arm(cluster, qos_cluster_now() + LOOK);
}

/* --- start and end --- */

static void restore(QosCluster *cluster, const QosServerRecord *record)
{
    QosTime now = qos_cluster_now();

    for (guint i = 0; i < record->budget_clients->len; i++) {
        const QosServerDbBudgetClient *client = record->budget_clients->pdata[i];
        qos_cluster_mounts_restore(cluster->mounts, client->id, client->name, client->parts, now);
    }
    for (guint i = 0; i < record->jobs->len; i++) {
        const QosServerDbJob *saved = record->jobs->pdata[i];
        const QosServerJob job = {.id = saved->id,
                                  .nodes = saved->nodes,
                                  .weight = saved->weight,
                                  .expires = saved->expires};
        qos_server_jobs_set(cluster->jobs, &job, NULL);
    }
}

/* Until when mounts may have rates of a former life of the server: the longest lease is told to
 * those of a large cluster. */
static QosTime grace_of(const QosServerRecord *record)
{
    QosTime lease = qos_budget_lease_for(QOS_BUDGET_EPOCH_LONG);

    return record->incarnation > 1 ? qos_cluster_now() + lease + QOS_BUDGET_DRIFT(lease) : 0;
}

QosCluster *qos_cluster_new(const QosServerOptions *options, QosServerDb *db,
                            const QosClusterOutput *output, GError **error)
{
    const QosServerRecord *record = qos_server_db_record(db);
    QosCluster *cluster = g_new0(QosCluster, 1);
    const QosClusterRulesCalls rules_calls = {
        .arg = cluster, .save = save_rules, .changed = rules_changed};
    const QosClusterMountsCalls mounts_calls = {.arg = cluster,
                                                .tell = tell_mount,
                                                .save = save_mount,
                                                .unsave = unsave_mount,
                                                .left = mount_left,
                                                .parts_changed = parts_changed};

    cluster->rules = qos_cluster_rules_new(&record->rules, record->log, &rules_calls, error);
    if (cluster->rules == NULL) {
        g_free(cluster);
        return NULL;
    }
    cluster->options = options;
    cluster->db = db;
    cluster->output = *output;
    cluster->peers = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, peer_free);
    cluster->pages =
        g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, (GDestroyNotify)g_bytes_unref);
    cluster->mounts = qos_cluster_mounts_new(&mounts_calls);
    cluster->budgets = qos_server_budgets_new(grace_of(record));
    qos_server_budgets_set_weigher(cluster->budgets, weigh, cluster);
    cluster->epochs = qos_server_epochs_new(record->incarnation);
    cluster->jobs = qos_server_jobs_new();
    cluster->epoch = qos_budget_epoch_for(0);
    cluster->lease = qos_budget_lease_for(cluster->epoch);
    cluster->frames_at = QOS_NEVER;
    g_queue_init(&cluster->requests);
    start_timer(cluster);
    restore(cluster, record);
    set_budgets(cluster);
    tell_list(cluster);
    qos_server_db_watch(db, durable, cluster);
    qos_cluster_arm(cluster, qos_cluster_now());
    return cluster;
}

static void request_free(gpointer data)
{
    QosClusterRequest *request = data;

    if (request->done == answer_question)
        g_free(request->arg);
    g_free(request->asker);
    g_free(request->text);
    g_free(request);
}

void qos_cluster_free(QosCluster *cluster)
{
    QosClusterRequest *request;

    if (cluster == NULL)
        return;
    qos_server_db_watch(cluster->db, NULL, NULL);
    g_source_destroy(cluster->timer);
    g_source_unref(cluster->timer);
    qos_cluster_rules_free(cluster->rules);
    while ((request = g_queue_peek_head(&cluster->requests)) != NULL) {
        g_queue_unlink(&cluster->requests, &request->link);
        request_free(request);
    }
    qos_cluster_mounts_free(cluster->mounts);
    qos_server_budgets_free(cluster->budgets);
    qos_server_epochs_free(cluster->epochs);
    qos_server_jobs_free(cluster->jobs);
    g_hash_table_unref(cluster->peers);
    g_hash_table_unref(cluster->pages);
    g_free(cluster);
}
