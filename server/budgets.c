/*
 * The table of classes and of mounts that report. server/budgets.h has the contract.
 *
 * The problem: 2,000 mounts that report ten times a second, and a hundred thousand classes, most of
 * which rest. So a report costs the look-up of its class and of its client, and a copy into the
 * class's member. An answer costs some bytes in the client's frames: a class's grant is encoded
 * once, and only the ticket differs. Neither allocates, once buffers have grown.
 *
 * Classes with reports that are not answered are in `open`, a heap by when their epochs end. All
 * are in `by_use`, the latest used last, so that what rests is found at its front.
 *
 * Limit: a client that leaves is looked for in each class.
 */
#include "server/budgets.h"

#include <string.h>

#include "base/heap.h"

#define FRAMES_KEPT 4096              /* bytes of a client's buffer that stay between epochs */
#define TIDY        (10 * QOS_SECOND) /* a member that is silent for longer is taken off */
#define RESTS_MAX   1000              /* classes that one tick frees */

typedef struct {
    guint64 id;
    char *name;
    guint64 limit[QOS_WIRE_UNITS];
    QosBudgetShare share;
    QosBudgetAway away;
    guint floor;
    gboolean is_divided;
    guint weight;
} Rule;

typedef struct {
    QosOwnerId id;
    GByteArray *frames; /* what the end of epochs has for it */
    gsize batch;
    gboolean is_listed; /* in `answered` */
    guint classes;      /* that were made by its reports, and are there */
    guint weight;       /* mounts that it stands for */
} Client;

typedef struct {
    const Rule *rule;
    guint64 rule_id;
    guint unit;
    char *name;
    QosBudget *budget;
    QosServerShare share; /* with a rule that jobs divide: the budget is the sharing's */
    QosOwnerId maker;     /* whose report made it */
    QosTime used;         /* the latest report */
    QosTime closed;       /* the end of the latest epoch; a combiner's latest report */
    gboolean is_asking;   /* a combiner's report is not answered yet */
    QosTime tidied;       /* when members were taken off */
    QosHeapNode due;      /* in `open` */
    GList link;           /* in `by_use` */
} Class;

struct QosServerBudgets {
    QosTime grace;
    Client *parent;            /* of a combiner; NULL: these are coordinators */
    guint32 incarnation;       /* of a combiner, */
    guint64 ticket;            /* the latest of all its reports, */
    guint lent;                /* and how many parts of the floors it has */
    GHashTable *rules;         /* id -> Rule, owned */
    GHashTable *classes;       /* a set of Class, owned */
    GHashTable *clients;       /* id -> Client, owned */
    QosServerSharing *sharing; /* NULL: no rule is divided, or this is a combiner */
    QosServerWeigher weigher;  /* for the sharing */
    gpointer weigher_arg;
    QosHeap open;        /* of Class: those with fresh reports, by the end of their epochs */
    GQueue by_use;       /* of Class */
    GPtrArray *answered; /* of Client, while epochs end */
    GArray *answers;     /* of QosBudgetAnswer, likewise */
    GByteArray *bytes;   /* one encoded grant */
    QosBudgetReport report;
    QosTime epoch, lease;
    guint parts;
    guint64 passed_over;
};

/* --- lifetimes --- */

static guint class_hash(gconstpointer data)
{
    const Class *class = data;

    return g_str_hash(class->name) ^ (guint)(class->rule_id * 2654435761u) ^ class->unit;
}

static gboolean class_equal(gconstpointer a, gconstpointer b)
{
    const Class *left = a, *right = b;

    return left->rule_id == right->rule_id && left->unit == right->unit &&
           strcmp(left->name, right->name) == 0;
}

static void class_free(gpointer data)
{
    Class *class = data;

    if (class->share.number == 0)
        qos_budget_free(class->budget);
    g_free(class->name);
    g_free(class);
}

static void rule_free(gpointer data)
{
    Rule *rule = data;

    g_free(rule->name);
    g_free(rule);
}

static void client_free(gpointer data)
{
    Client *client = data;

    g_byte_array_unref(client->frames);
    g_free(client);
}

static Client *client_new(QosOwnerId id)
{
    Client *client = g_new0(Client, 1);

    client->id = id;
    client->frames = g_byte_array_new();
    client->batch = QOS_WIRE_NO_BATCH;
    client->weight = 1;
    return client;
}

QosServerBudgets *qos_server_budgets_new(QosTime grace)
{
    QosServerBudgets *budgets = g_new0(QosServerBudgets, 1);

    budgets->grace = grace;
    budgets->rules = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, rule_free);
    budgets->classes = g_hash_table_new_full(class_hash, class_equal, class_free, NULL);
    budgets->clients = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, client_free);
    qos_heap_init(&budgets->open);
    g_queue_init(&budgets->by_use);
    budgets->answered = g_ptr_array_new();
    budgets->answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));
    budgets->bytes = g_byte_array_new();
    return budgets;
}

QosServerBudgets *qos_server_budgets_new_combiner(guint32 incarnation)
{
    QosServerBudgets *budgets = qos_server_budgets_new(0);

    budgets->parent = client_new(QOS_SERVER_BUDGETS_PARENT);
    budgets->incarnation = incarnation;
    return budgets;
}

void qos_server_budgets_free(QosServerBudgets *budgets)
{
    if (budgets == NULL)
        return;
    qos_heap_clear(&budgets->open);
    g_hash_table_unref(budgets->classes);
    qos_server_sharing_free(budgets->sharing);
    g_hash_table_unref(budgets->rules);
    g_hash_table_unref(budgets->clients);
    g_clear_pointer(&budgets->parent, client_free);
    g_ptr_array_unref(budgets->answered);
    g_array_unref(budgets->answers);
    g_byte_array_unref(budgets->bytes);
    qos_budget_report_clear(&budgets->report);
    g_free(budgets);
}

static Client *find_client(const QosServerBudgets *budgets, QosOwnerId id)
{
    return g_hash_table_lookup(budgets->clients, &id);
}

static Client *get_client(QosServerBudgets *budgets, QosOwnerId id)
{
    Client *client = find_client(budgets, id);

    if (client == NULL) {
        client = client_new(id);
        g_hash_table_insert(budgets->clients, &client->id, client);
    }
    return client;
}

void qos_server_budgets_set_weight(QosServerBudgets *budgets, QosOwnerId client, guint weight)
{
    get_client(budgets, client)->weight = weight;
}

void qos_server_budgets_set_lent(QosServerBudgets *budgets, guint lent)
{
    budgets->lent = lent;
}

/* --- classes --- */

static QosTime due_of(const QosServerBudgets *budgets, const Class *class)
{
    const QosTime length =
        qos_budget_is_complete(class->budget) ? budgets->epoch / 2 : budgets->epoch;

    /* While the parent has not answered, another report would make its answer void. */
    return class->closed + (class->is_asking ? MAX(budgets->lease / 2, budgets->epoch) : length);
}

static gint64 key_of(QosHeapNode *node, gpointer budgets)
{
    return due_of(budgets, (const Class *)((char *)node - offsetof(Class, due)));
}

/* Its epoch ends at another time, if there is one to be ended. */
static void move_due(QosServerBudgets *budgets, Class *class)
{
    const QosTime due = due_of(budgets, class);

    if (class->share.number != 0)
        qos_server_sharing_note(budgets->sharing, &class->share, FALSE);
    else if (qos_heap_contains(&class->due) && class->due.key != due)
        qos_heap_update(&budgets->open, &class->due, due);
}

static void note_use(QosServerBudgets *budgets, Class *class, QosTime now)
{
    class->used = now;
    g_queue_unlink(&budgets->by_use, &class->link);
    g_queue_push_tail_link(&budgets->by_use, &class->link);
}

/* What is to be done before it is freed. */
static void take_off(QosServerBudgets *budgets, Class *class)
{
    Client *maker = find_client(budgets, class->maker);

    qos_heap_remove(&budgets->open, &class->due);
    if (class->share.number != 0) {
        qos_server_sharing_remove(budgets->sharing, &class->share);
        class->budget = NULL;
    }
    g_queue_unlink(&budgets->by_use, &class->link);
    if (maker != NULL)
        maker->classes--;
}

static QosBudgetConfig config_of(const QosServerBudgets *budgets, const Rule *rule, guint unit)
{
    return (QosBudgetConfig){.limit = rule->limit[unit],
                             .share = rule->share,
                             .away = rule->away,
                             .floor = rule->floor,
                             .epoch = budgets->epoch,
                             .lease = budgets->lease,
                             .registered =
                                 budgets->parent != NULL ? budgets->lent : budgets->parts};
}

/* Of a combiner: its part of the floors. Each mount has as much of it as of the whole. */
static guint64 floor_of(const QosServerBudgets *budgets, const Rule *rule, guint unit)
{
    return rule->limit[unit] / 100 * rule->floor / budgets->parts * budgets->lent;
}

static QosBudget *make_budget(const QosServerBudgets *budgets, const Rule *rule, guint unit,
                              const QosBudgetConfig *config, QosTime now)
{
    QosBudget *budget;

    if (budgets->parent == NULL)
        return qos_budget_new(config, now >= budgets->grace, now);
    budget =
        qos_budget_combiner_new(config, floor_of(budgets, rule, unit), budgets->incarnation, now);
    qos_budget_continue(budget, budgets->ticket);
    return budget;
}

/* Jobs divide the rule's rate here: a combiner leaves that to its parent. */
static gboolean is_shared(const QosServerBudgets *budgets, const Rule *rule)
{
    return rule->is_divided && budgets->parent == NULL;
}

/* NULL: there is no such rule, or there are too many classes. */
static Class *make_class(QosServerBudgets *budgets, const Class *key, Client *client, QosTime now)
{
    const Rule *rule = g_hash_table_lookup(budgets->rules, &key->rule_id);
    QosBudgetConfig config;
    Class *class;

    if (rule == NULL || rule->limit[key->unit] == 0 ||
        client->classes >= QOS_SERVER_BUDGETS_CLIENT_MAX ||
        g_hash_table_size(budgets->classes) >= QOS_SERVER_BUDGETS_MAX)
        return NULL;
    config = config_of(budgets, rule, key->unit);
    if (!qos_budget_config_check(&config, NULL))
        return NULL;
    class = g_new0(Class, 1);
    class->rule = rule;
    class->rule_id = key->rule_id;
    class->unit = key->unit;
    class->name = g_strdup(key->name);
    class->maker = client->id;
    class->closed = now - budgets->epoch; /* its first report need not wait for a whole epoch */
    class->used = class->tidied = now;
    class->link.data = class;
    if (is_shared(budgets, rule)) {
        qos_server_sharing_add(budgets->sharing, &class->share, class, class->name, rule->weight,
                               now);
        class->budget = class->share.budget;
    } else {
        class->budget = make_budget(budgets, rule, key->unit, &config, now);
    }
    client->classes++;
    g_hash_table_add(budgets->classes, class);
    g_queue_push_tail_link(&budgets->by_use, &class->link);
    return class;
}

/* Frees a class whose rule is gone; changes the others'. */
static gboolean is_unwanted(gpointer data, gpointer value G_GNUC_UNUSED, gpointer arg)
{
    QosServerBudgets *budgets = arg;
    Class *class = data;

    class->rule = g_hash_table_lookup(budgets->rules, &class->rule_id);
    if (class->rule != NULL && class->rule->limit[class->unit] > 0 &&
        is_shared(budgets, class->rule) == (class->share.number != 0)) {
        const QosBudgetConfig config = config_of(budgets, class->rule, class->unit);
        if (qos_budget_config_check(&config, NULL)) {
            if (budgets->parent != NULL)
                qos_budget_lend(class->budget, floor_of(budgets, class->rule, class->unit));
            class->share.factor = class->rule->weight;
            if (class->share.number == 0)
                qos_budget_configure(class->budget, &config);
            return FALSE;
        }
    }
    take_off(budgets, class);
    return TRUE;
}

/* Begins or changes the sharing as the rule says that is divided; FALSE: there is none. */
static gboolean set_sharing(QosServerBudgets *budgets, const Rule *rule, QosTime now)
{
    QosBudgetConfig config;

    if (rule == NULL || !is_shared(budgets, rule))
        return FALSE;
    config = config_of(budgets, rule, 0);
    if (!qos_budget_config_check(&config, NULL))
        return FALSE;
    if (budgets->sharing != NULL) {
        qos_server_sharing_configure(budgets->sharing, &config);
    } else {
        budgets->sharing = qos_server_sharing_new(&config, now >= budgets->grace, now);
        qos_server_sharing_set_weigher(budgets->sharing, budgets->weigher, budgets->weigher_arg);
    }
    return TRUE;
}

void qos_server_budgets_set_weigher(QosServerBudgets *budgets, QosServerWeigher weigher,
                                    gpointer arg)
{
    budgets->weigher = weigher;
    budgets->weigher_arg = arg;
    if (budgets->sharing != NULL)
        qos_server_sharing_set_weigher(budgets->sharing, weigher, arg);
}

void qos_server_budgets_set_rules(QosServerBudgets *budgets, const QosServerBudgetRule *rules,
                                  guint count, QosTime epoch, QosTime lease, guint parts,
                                  QosTime now)
{
    GHashTable *old = budgets->rules;
    const Rule *divided = NULL;

    budgets->rules = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, rule_free);
    budgets->epoch = epoch;
    budgets->lease = lease;
    budgets->parts = parts;
    for (guint i = 0; i < count; i++) {
        Rule *rule = g_new0(Rule, 1);

        *rule = (Rule){.id = rules[i].id,
                       .name = g_strdup(rules[i].name),
                       .share = rules[i].share,
                       .away = rules[i].away,
                       .floor = rules[i].floor,
                       .is_divided = rules[i].is_divided,
                       .weight = MAX(rules[i].weight, 1)};
        memcpy(rule->limit, rules[i].limit, sizeof(rule->limit));
        g_hash_table_replace(budgets->rules, &rule->id, rule);
        if (rule->is_divided)
            divided = rule;
    }
    const gboolean has_sharing = set_sharing(budgets, divided, now);
    g_hash_table_foreach_remove(budgets->classes, is_unwanted, budgets);
    g_hash_table_unref(old); /* no class has a rule of it any more */
    if (!has_sharing)
        g_clear_pointer(&budgets->sharing, qos_server_sharing_free);
    qos_heap_rekey(&budgets->open, key_of, budgets);
}

/* --- reports --- */

static gboolean take_item(QosServerBudgets *budgets, Client *client, QosWireBudget *item,
                          QosTime now)
{
    const Class key = {.rule_id = item->rule, .unit = item->unit, .name = item->class};
    Class *class = g_hash_table_lookup(budgets->classes, &key);

    if (class == NULL && budgets->report.count == 0)
        return TRUE; /* it says that it is idle, and nothing is known of it */
    if (class == NULL)
        class = make_class(budgets, &key, client, now);
    if (class == NULL)
        return FALSE;
    qos_budget_join(class->budget, client->id, client->weight, now);
    if (!qos_budget_report(class->budget, client->id, &budgets->report, now))
        return FALSE;
    note_use(budgets, class, now);
    /* A combiner tells its parent of members that became idle, too. */
    if (class->share.number != 0)
        qos_server_sharing_note(budgets->sharing, &class->share, budgets->report.count > 0);
    else if ((budgets->report.count > 0 || budgets->parent != NULL) &&
             !qos_heap_contains(&class->due))
        qos_heap_push(&budgets->open, &class->due, due_of(budgets, class));
    else
        move_due(budgets, class);
    return TRUE;
}

gboolean qos_server_budgets_report(QosServerBudgets *budgets, QosOwnerId client,
                                   const guint8 *payload, gsize length, QosTime now)
{
    Client *from = get_client(budgets, client);

    while (length > 0) {
        QosWireBudget item;

        if (!qos_wire_get_budget(&payload, &length, &item) ||
            !qos_budget_report_decode(item.bytes, item.length, &budgets->report))
            return FALSE;
        budgets->passed_over += !take_item(budgets, from, &item, now);
    }
    return TRUE;
}

void qos_server_budgets_leave(QosServerBudgets *budgets, QosOwnerId client, QosTime now)
{
    Client *left = find_client(budgets, client);
    GHashTableIter iter;
    Class *class;

    if (left == NULL)
        return;
    g_hash_table_iter_init(&iter, budgets->classes);
    while (g_hash_table_iter_next(&iter, (gpointer *)&class, NULL)) {
        qos_budget_leave(class->budget, client, now);
        move_due(budgets, class); /* it may have been the last that was awaited */
        if (class->maker == client)
            class->maker = 0;
    }
    if (left->is_listed) /* a combiner answers at its next tick */
        g_ptr_array_remove(budgets->answered, left);
    g_hash_table_remove(budgets->clients, &client);
}

/* --- the end of an epoch --- */

/* `item` has the class; `bytes` are what it carries. */
static void put_item(QosServerBudgets *budgets, Client *client, QosWireType type,
                     QosWireBudget *item)
{
    item->bytes = budgets->bytes->data;
    item->length = budgets->bytes->len;
    qos_wire_put_budget(client->frames, &client->batch, type, item);
    if (!client->is_listed)
        g_ptr_array_add(budgets->answered, client);
    client->is_listed = TRUE;
}

/* `all` are answered the same. */
static void put_answers(QosServerBudgets *budgets, const Class *class, const GArray *all)
{
    const QosBudgetAnswer *answers = (const QosBudgetAnswer *)all->data;
    QosWireBudget item = {.rule = class->rule_id, .unit = class->unit};

    if (all->len == 0)
        return;
    g_strlcpy(item.class, class->name, sizeof(item.class));
    g_byte_array_set_size(budgets->bytes, 0);
    qos_budget_grant_encode(&answers[0].grant, budgets->bytes);
    for (guint i = 0; i < all->len; i++) {
        Client *client = find_client(budgets, answers[i].to);
        if (client == NULL)
            continue;
        qos_budget_grant_set_ticket(budgets->bytes, answers[i].grant.ticket);
        put_item(budgets, client, QOS_WIRE_BUDGET_GRANT, &item);
    }
}

/* A combiner's report. */
static void put_report(QosServerBudgets *budgets, Class *class, QosTime now)
{
    QosWireBudget item = {.rule = class->rule_id, .unit = class->unit};

    if (!qos_budget_pass_up(class->budget, now, &budgets->report))
        return;
    class->is_asking = budgets->report.count > 0;
    budgets->ticket = MAX(budgets->ticket, budgets->report.ticket);
    g_strlcpy(item.class, class->name, sizeof(item.class));
    g_byte_array_set_size(budgets->bytes, 0);
    qos_budget_report_encode(&budgets->report, budgets->bytes);
    put_item(budgets, budgets->parent, QOS_WIRE_BUDGET_REPORT, &item);
}

/* Members that are long silent leave. */
static void tidy(Class *class, QosTime now)
{
    if (now - class->tidied >= TIDY) {
        qos_budget_forget_silent(class->budget, now - TIDY);
        class->tidied = now;
    }
}

static void close_class(QosServerBudgets *budgets, Class *class, QosTime now)
{
    class->closed = now;
    qos_heap_remove(&budgets->open, &class->due);
    if (budgets->parent != NULL) {
        put_report(budgets, class, now);
    } else {
        g_array_set_size(budgets->answers, 0);
        qos_budget_close(class->budget, now, budgets->answers);
        put_answers(budgets, class, budgets->answers);
    }
    tidy(class, now);
}

/* A job of the sharing. */
static void close_job(gpointer owner, const GArray *answers, QosTime now, gpointer arg)
{
    QosServerBudgets *budgets = arg;
    Class *class = owner;

    class->closed = now;
    put_answers(budgets, class, answers);
    tidy(class, now);
}

/* QOS_NEVER: nothing waits for it. */
static QosTime sharing_due(const QosServerBudgets *budgets)
{
    return budgets->sharing != NULL ? qos_server_sharing_due(budgets->sharing) : QOS_NEVER;
}

static void close_due(QosServerBudgets *budgets, QosTime now)
{
    QosHeapNode *node;

    while ((node = qos_heap_peek(&budgets->open)) != NULL && node->key <= now)
        close_class(budgets, (Class *)((char *)node - offsetof(Class, due)), now);
    if (sharing_due(budgets) <= now)
        qos_server_sharing_close(budgets->sharing, now, close_job, budgets);
}

static gboolean take_grant(QosServerBudgets *budgets, const QosWireBudget *item,
                           const QosBudgetGrant *grant, QosTime now)
{
    const Class key = {.rule_id = item->rule, .unit = item->unit, .name = (char *)item->class};
    Class *class = g_hash_table_lookup(budgets->classes, &key);

    g_array_set_size(budgets->answers, 0);
    if (class == NULL || !qos_budget_pass_down(class->budget, grant, now, budgets->answers))
        return FALSE;
    class->is_asking = FALSE;
    move_due(budgets, class);
    put_answers(budgets, class, budgets->answers);
    return TRUE;
}

gboolean qos_server_budgets_grant(QosServerBudgets *budgets, const guint8 *payload, gsize length,
                                  QosTime now)
{
    if (budgets->parent == NULL)
        return FALSE;
    while (length > 0) {
        QosWireBudget item;
        QosBudgetGrant grant;

        if (!qos_wire_get_budget(&payload, &length, &item) ||
            !qos_budget_grant_decode(item.bytes, item.length, &grant))
            return FALSE;
        budgets->passed_over += !take_grant(budgets, &item, &grant, now);
    }
    return TRUE;
}

static void send_answers(QosServerBudgets *budgets, QosServerBudgetsSend send, gpointer arg)
{
    for (guint i = 0; i < budgets->answered->len; i++) {
        Client *client = budgets->answered->pdata[i];

        send(client->id, client->frames, arg);
        if (client->frames->len > FRAMES_KEPT) {
            g_byte_array_unref(client->frames);
            client->frames = g_byte_array_new();
        }
        g_byte_array_set_size(client->frames, 0);
        client->batch = QOS_WIRE_NO_BATCH;
        client->is_listed = FALSE;
    }
    g_ptr_array_set_size(budgets->answered, 0);
}

/* When a class that is not used any more is looked at: an answer came an epoch after the latest
 * report at most, and its lease has ended. */
static QosTime rest_of(const QosServerBudgets *budgets, const Class *class)
{
    return class->used + budgets->epoch + budgets->lease + QOS_BUDGET_DRIFT(budgets->lease);
}

static Class *least_used(const QosServerBudgets *budgets)
{
    return budgets->by_use.head != NULL ? budgets->by_use.head->data : NULL;
}

/* Its debt is lost, and that is no way to be rid of one: by then all of R would have repaid it. */
static void free_resting(QosServerBudgets *budgets, QosTime now)
{
    Class *class;

    for (guint i = 0; i < RESTS_MAX && (class = least_used(budgets)) != NULL; i++) {
        if (now < rest_of(budgets, class))
            return;
        if (qos_heap_contains(&class->due) || !qos_budget_is_at_rest(class->budget, now)) {
            note_use(budgets, class, now);
            continue;
        }
        take_off(budgets, class);
        g_hash_table_remove(budgets->classes, class);
    }
}

QosTime qos_server_budgets_tick(QosServerBudgets *budgets, QosTime now, QosServerBudgetsSend send,
                                gpointer arg)
{
    close_due(budgets, now);
    send_answers(budgets, send, arg);
    free_resting(budgets, now);

    const QosHeapNode *first = qos_heap_peek(&budgets->open);
    const Class *class = least_used(budgets);
    const QosTime due = MIN(first != NULL ? first->key : QOS_NEVER, sharing_due(budgets));
    return MIN(due, class != NULL ? rest_of(budgets, class) : QOS_NEVER);
}

/* --- for reports --- */

void qos_server_budgets_each(const QosServerBudgets *budgets, QosServerBudgetsFunc func,
                             gpointer arg, QosTime now)
{
    GHashTableIter iter;
    const Class *class;

    g_hash_table_iter_init(&iter, budgets->classes);
    while (g_hash_table_iter_next(&iter, (gpointer *)&class, NULL)) {
        QosServerBudgetsClass item = {.rule = class->rule_id,
                                      .rule_name = class->rule->name,
                                      .class_name = class->name,
                                      .unit = class->unit,
                                      .limit = class->rule->limit[class->unit],
                                      .state = qos_budget_state(class->budget, now)};

        if (class->share.number != 0) {
            const QosBudgetSharesJob job =
                qos_server_sharing_job(budgets->sharing, &class->share, now);
            item.is_divided = TRUE;
            item.limit = job.limit;
            item.entitlement = job.entitlement;
            item.weight = job.weight;
        }
        item.demand = (guint64)item.state.demand;
        item.served = (guint64)item.state.served;
        func(&item, arg);
    }
}

typedef struct {
    QosServerBudgetsMemberFunc func;
    gpointer arg;
} Telling;

static void tell_member(const QosBudgetMemberState *member, gpointer arg)
{
    const Telling *telling = arg;
    const QosServerBudgetsMember item = {.client = member->id,
                                         .demand = member->demand,
                                         .held = member->held,
                                         .bound = member->bound,
                                         .is_silent = member->is_silent};

    telling->func(&item, telling->arg);
}

void qos_server_budgets_each_member(const QosServerBudgets *budgets, guint64 rule,
                                    const char *class_name, guint unit,
                                    QosServerBudgetsMemberFunc func, gpointer arg, QosTime now)
{
    const Class key = {.rule_id = rule, .unit = unit, .name = (char *)class_name};
    const Class *class = g_hash_table_lookup(budgets->classes, &key);
    Telling telling = {func, arg};

    if (class != NULL)
        qos_budget_each_member(class->budget, now, tell_member, &telling);
}

guint64 qos_server_budgets_passed_over(const QosServerBudgets *budgets)
{
    return budgets->passed_over;
}
