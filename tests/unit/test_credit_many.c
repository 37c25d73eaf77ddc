/*
 * An owner with very many books, and a resource with very many borrowers: the table of books
 * against one that is known to be right, and grants to many as if they were few.
 */
#include "core/credit_private.h"

/* --- books --- */

static QosResource numbered(guint number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, sizeof(number));
    return resource;
}

static void check_books(const QosBookTable *table, GHashTable *books)
{
    guint count = 0;

    for (const QosBook *book = qos_table_next(table, NULL); book != NULL;
         book = qos_table_next(table, book)) {
        g_assert_true(g_hash_table_lookup(books, &book->resource) == book);
        g_assert_true(qos_table_find(table, &book->resource) == book);
        count++;
    }
    g_assert_cmpuint(count, ==, g_hash_table_size(books));
}

/* Added, found, and removed in any order, while it grows. */
static void test_books(void)
{
    QosBookTable table;
    g_autoptr(GHashTable) books = g_hash_table_new(qos_resource_hash, qos_resource_equal);
    g_autoptr(GRand) random = g_rand_new_with_seed(1);

    qos_table_init(&table, 20, g_rand_boolean(random), TRUE);
    for (guint i = 0; i < 60000; i++) {
        /* Grows, and shrinks at the end. */
        const QosResource resource = numbered((guint)g_rand_int_range(random, 0, 20000));
        QosBook *book = qos_table_find(&table, &resource);
        g_assert_true(book == g_hash_table_lookup(books, &resource));
        if (book != NULL)
            g_assert_cmpuint(*qos_table_proof(&table, book), ==, qos_resource_hash(&resource));
        if (book == NULL && i < 50000) {
            book = qos_table_add(&table, &resource);
            memset(book + 1, 0xff, 20);
            *qos_table_proof(&table, book) = qos_resource_hash(&resource);
            g_hash_table_insert(books, &book->resource, book);
        } else if (book != NULL && g_rand_int_range(random, 0, i < 50000 ? 4 : 1) == 0) {
            g_hash_table_remove(books, &resource);
            qos_table_remove(&table, book);
        }
        if (i % 200 == 0)
            check_books(&table, books);
    }
    for (QosBook *book = qos_table_next(&table, NULL), *next; book != NULL; book = next) {
        next = qos_table_next(&table, book);
        g_hash_table_remove(books, &book->resource);
        qos_table_remove(&table, book);
    }
    g_assert_cmpuint(g_hash_table_size(books), ==, 0);
    g_assert_null(qos_table_next(&table, NULL));
    qos_table_clear(&table);
}

/* --- borrowers --- */

#define MANY 200

typedef struct {
    QosOwner *root;
    guint64 sequence[MANY + 1];
    QosCredit had[MANY + 1]; /* as the last answer said */
    QosToken token[MANY + 1];
    guint answer[MANY + 1]; /* QOS_MESSAGE_TYPES: none yet */
    guint revoked;          /* callbacks */
    QosResource resource;
} Lender;

static void drain(Lender *lender)
{
    QosOutput output;

    while (qos_owner_output(lender->root, &output)) {
        if (output.kind == QOS_OUTPUT_SAVE)
            qos_owner_saved(lender->root, output.peer, QOS_SECOND);
        if (output.kind != QOS_OUTPUT_SEND || output.message->sequence == 0)
            continue;
        const QosCreditMessage *message = output.message;
        const QosResourceType *type = qos_resource_type(message->resource.type);
        const guint number = (guint)output.peer - 100;
        lender->revoked += message->type == QOS_MESSAGE_REVOKE;
        if (message->type == QOS_MESSAGE_REVOKE)
            continue;
        lender->answer[number] = message->type;
        if (message->type != QOS_MESSAGE_GRANT)
            continue;
        qos_credit_clear(type, &lender->had[number]);
        lender->had[number] = qos_credit_copy(type, &message->credit);
        lender->token[number] = message->granted;
    }
}

static void send_to(Lender *lender, guint number, QosCreditMessage message)
{
    message.session = 1;
    message.lender = 1;
    message.sequence = ++lender->sequence[number];
    message.acknowledged = G_MAXUINT64;
    message.resource = lender->resource;
    qos_owner_receive(lender->root, 100 + number, &message, QOS_SECOND);
    drain(lender);
}

static guint ask(Lender *lender, guint number, QosCredit want, guint flags)
{
    lender->answer[number] = QOS_MESSAGE_TYPES;
    send_to(lender, number,
            (QosCreditMessage){.type = QOS_MESSAGE_ENQUEUE,
                               .request = lender->sequence[number] + 1,
                               .flags = flags,
                               .credit = want});
    return lender->answer[number];
}

static void keep(Lender *lender, guint number, QosCredit credit)
{
    const QosResourceType *type = qos_resource_type(lender->resource.type);

    send_to(lender, number,
            (QosCreditMessage){
                .type = QOS_MESSAGE_CANCEL, .credit = credit, .granted = lender->token[number]});
    qos_credit_clear(type, &lender->had[number]);
    lender->had[number] = qos_credit_copy(type, &credit);
}

static void capital(const QosResource *resource, QosCredit *ret_credit, gpointer arg G_GNUC_UNUSED)
{
    if (resource->type == QOS_RESOURCE_QUANTITY)
        *ret_credit = (QosCredit){.amount = MANY};
    else if (resource->type == QOS_RESOURCE_INODE)
        *ret_credit = (QosCredit){.reads = G_MAXUINT32, .writes = G_MAXUINT32};
    else
        *ret_credit = qos_credit_span(1, MANY, TRUE);
}

static void lender_init(Lender *lender, QosResourceTypeId type)
{
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .session = 1};
    QosOwnerConfig config;

    *lender = (Lender){0};
    qos_owner_config_init(&config, 1, 1);
    config.lends = TRUE;
    config.capital = capital;
    lender->root = qos_owner_new(&config, NULL, 0, QOS_SECOND);
    qos_resource_init_kind(&lender->resource, type, 1, "r", 1);
    for (guint i = 0; i <= MANY; i++) {
        qos_owner_receive(lender->root, 100 + i, &hello, QOS_SECOND);
        drain(lender);
    }
}

static void lender_clear(Lender *lender)
{
    for (guint i = 0; i <= MANY; i++)
        qos_credit_clear(qos_resource_type(lender->resource.type), &lender->had[i]);
    qos_owner_free(lender->root);
}

static const QosCredit reading = {.reads = 1}, writing = {.reads = 1, .writes = 1};

/* A writer among readers: it is served when the last of them has gone, and not before. */
static void test_readers(void)
{
    Lender lender;
    lender_init(&lender, QOS_RESOURCE_INODE);
    for (guint i = 0; i < MANY; i++)
        g_assert_cmpuint(ask(&lender, i, reading, 0), ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(qos_owner_lent(lender.root), ==, MANY);
    g_assert_cmpuint(ask(&lender, MANY, writing, 0), ==, QOS_MESSAGE_TYPES);
    g_assert_cmpuint(lender.revoked, ==, MANY);
    for (guint i = 0; i < MANY; i++) {
        g_assert_cmpuint(lender.answer[MANY], ==, QOS_MESSAGE_TYPES);
        keep(&lender, i, (QosCredit){0});
    }
    g_assert_cmpuint(lender.answer[MANY], ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(qos_owner_lent(lender.root), ==, 1);
    lender_clear(&lender);
}

/* One of the readers writes, when the others have gone. */
static void test_upgrade(void)
{
    Lender lender;
    lender_init(&lender, QOS_RESOURCE_INODE);
    for (guint i = 0; i < MANY; i++)
        ask(&lender, i, reading, 0);
    g_assert_cmpuint(ask(&lender, 5, writing, QOS_CREDIT_UPGRADE), ==, QOS_MESSAGE_TYPES);
    g_assert_cmpuint(lender.revoked, ==, MANY - 1);
    for (guint i = 0; i < MANY; i++) {
        g_assert_cmpuint(lender.answer[5], ==, QOS_MESSAGE_TYPES);
        if (i != 5)
            keep(&lender, i, (QosCredit){0});
    }
    g_assert_cmpuint(lender.answer[5], ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(lender.had[5].writes, ==, 1);
    lender_clear(&lender);
}

/* All that there is, and what comes back goes out again. */
static void test_amounts(void)
{
    Lender lender;
    lender_init(&lender, QOS_RESOURCE_QUANTITY);
    for (guint i = 0; i < MANY; i++)
        g_assert_cmpuint(ask(&lender, i, (QosCredit){.amount = 1}, 0), ==, QOS_MESSAGE_GRANT);
    for (guint i = 0; i < MANY; i++)
        keep(&lender, i, (QosCredit){.amount = i % 2});
    g_assert_cmpuint(ask(&lender, MANY, (QosCredit){.amount = MANY / 2}, 0), ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(ask(&lender, 3, (QosCredit){.amount = 1}, 0), ==, QOS_MESSAGE_TYPES);
    lender_clear(&lender);
}

/* Each has a byte, and gives it back; then another has all. */
static void test_extents(void)
{
    Lender lender;
    lender_init(&lender, QOS_RESOURCE_EXTENT);
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    for (guint i = 0; i < MANY; i++) {
        QosCredit want = qos_credit_span(1 + i / 2, 1 + i / 2, FALSE);
        g_assert_cmpuint(ask(&lender, i, want, 0), ==, QOS_MESSAGE_GRANT);
        qos_credit_clear(type, &want);
    }
    QosCredit far = qos_credit_span(1 + MANY / 2, MANY, TRUE);
    QosCredit near = qos_credit_span(1, 1, TRUE);
    g_assert_cmpuint(ask(&lender, MANY, near, 0), ==, QOS_MESSAGE_TYPES);
    g_assert_cmpuint(lender.revoked, ==, 2);
    keep(&lender, 0, (QosCredit){0});
    g_assert_cmpuint(lender.answer[MANY], ==, QOS_MESSAGE_TYPES);
    keep(&lender, 1, (QosCredit){0});
    g_assert_cmpuint(lender.answer[MANY], ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(ask(&lender, MANY, far, 0), ==, QOS_MESSAGE_GRANT);
    qos_credit_clear(type, &far);
    qos_credit_clear(type, &near);
    lender_clear(&lender);
}

/* Each start of a mount is another borrower: of those that have gone nothing is kept. */
static void test_records(void)
{
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .session = 1};
    QosOwnerConfig config;
    QosOutput output;
    guint forgotten = 0;

    qos_owner_config_init(&config, 1, 1);
    config.lends = TRUE;
    QosOwner *root = qos_owner_new(&config, NULL, 0, QOS_SECOND);
    for (QosOwnerId id = 100; id < 100 + MANY; id++) {
        qos_owner_receive(root, id, &hello, QOS_SECOND);
        while (qos_owner_output(root, &output)) {
            if (output.kind == QOS_OUTPUT_SAVE && output.peer % 2 == 0)
                qos_owner_saved(root, output.peer, QOS_SECOND);
        }
    }
    g_assert_cmpuint(g_hash_table_size(root->peers), ==, MANY);
    for (guint i = 0; i < 10 * MANY && qos_owner_next(root) != QOS_NEVER; i++) {
        qos_owner_tick(root, qos_owner_next(root));
        while (qos_owner_output(root, &output))
            forgotten += output.kind == QOS_OUTPUT_FORGET;
    }
    g_assert_cmpuint(forgotten, ==, MANY / 2);
    g_assert_cmpuint(g_hash_table_size(root->peers), ==, MANY / 2); /* being saved */
    for (QosOwnerId id = 101; id < 100 + MANY; id += 2)
        qos_owner_saved(root, id, 100 * QOS_SECOND);
    for (guint i = 0; i < 10 * MANY && qos_owner_next(root) != QOS_NEVER; i++) {
        qos_owner_tick(root, qos_owner_next(root));
        while (qos_owner_output(root, &output))
            forgotten += output.kind == QOS_OUTPUT_FORGET;
    }
    g_assert_cmpuint(forgotten, ==, MANY);
    g_assert_cmpuint(g_hash_table_size(root->peers), ==, 0);
    qos_owner_free(root);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit-many/books", test_books);
    g_test_add_func("/credit-many/records", test_records);
    g_test_add_func("/credit-many/readers", test_readers);
    g_test_add_func("/credit-many/upgrade", test_upgrade);
    g_test_add_func("/credit-many/amounts", test_amounts);
    g_test_add_func("/credit-many/extents", test_extents);
    return g_test_run();
}
