/*
 * Peers that break the rules: what they say has no effect but to end their own session.
 */
#include <string.h>

#include "core/credit.h"
#include "core/proof.h"

#define LEASE (10 * QOS_SECOND)

static const QosCredit reading = {.reads = QOS_INODE_ATTRIBUTES};
static const QosCredit writing = {.reads = QOS_INODE_ATTRIBUTES, .writes = QOS_INODE_ATTRIBUTES};

static QosResource inode(guint8 number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, 1);
    return resource;
}

/* A borrower that breaks the rules: what the root says to it last, with the message sent after a
 * HELLO. */
static guint answer_to(QosCreditMessage message, const QosOwnerId *clients, guint count)
{
    QosOwnerConfig config;
    QosOutput output;
    guint last = QOS_MESSAGE_TYPES;
    QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .session = 5};

    qos_owner_config_init(&config, 1, 2);
    config.lends = TRUE;
    QosOwner *root = qos_owner_new(&config, clients, count, QOS_SECOND);
    qos_owner_receive(root, 4, &hello, QOS_SECOND);
    qos_owner_saved(root, 4, QOS_SECOND);
    message.session += 5;
    message.lender = 2;
    message.sequence = 1;
    qos_owner_receive(root, 4, &message, QOS_SECOND);
    while (qos_owner_output(root, &output)) {
        if (output.kind == QOS_OUTPUT_SEND)
            last = output.message->type;
    }
    g_assert_cmpuint(qos_owner_lent(root), ==, last == QOS_MESSAGE_GRANT);
    qos_owner_free(root);
    return last;
}

static void test_rules_broken(void)
{
    static const QosOwnerId clients[] = {4, 5};
    QosCreditItem item = {.resource = inode(7), .credit = writing, .token = 1};
    GArray *items = g_array_new(FALSE, FALSE, sizeof(item));
    g_array_append_val(items, item);
    QosCreditMessage good = {
        .type = QOS_MESSAGE_ENQUEUE, .request = 1, .resource = inode(7), .credit = writing};
    QosCreditMessage ahead = good;
    ahead.token = (QosToken)3 << QOS_TOKEN_INCARNATION_SHIFT;
    QosCreditMessage unknown = good;
    unknown.session = 1;
    QosCreditMessage late = good;
    late.session = -1;
    QosCreditMessage claim = {.type = QOS_MESSAGE_RECLAIM, .more = items};
    QosCreditMessage grant = good;
    grant.type = QOS_MESSAGE_GRANT;
    g_assert_cmpuint(answer_to(good, NULL, 0), ==, QOS_MESSAGE_GRANT);
    g_assert_cmpuint(answer_to(ahead, NULL, 0), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(answer_to(unknown, NULL, 0), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(answer_to(late, NULL, 0), ==, QOS_MESSAGE_WELCOME); /* to the HELLO */
    g_assert_cmpuint(answer_to(grant, NULL, 0), ==, QOS_MESSAGE_WELCOME);
    g_assert_cmpuint(answer_to(claim, NULL, 0), ==, QOS_MESSAGE_RESET);
    /* In the grace too, as it has said that it has nothing. */
    g_assert_cmpuint(answer_to(claim, clients, 2), ==, QOS_MESSAGE_RESET);
    g_array_unref(items);
}

/* An owner and one that speaks to it, by hand. */
typedef struct {
    QosOwner *owner;
    QosTime now;
    guint32 lender; /* the lender's incarnation */
    guint64 session, sequence;
} Talk;

/* What the owner says to `message` last; QOS_MESSAGE_TYPES: nothing. */
static guint answer(Talk *talk, QosOwnerId from, QosCreditMessage message)
{
    guint last = QOS_MESSAGE_TYPES;
    QosOutput output;

    message.session = talk->session;
    message.lender = talk->lender;
    message.sequence = message.type > QOS_MESSAGE_RESET ? ++talk->sequence : 0;
    qos_owner_receive(talk->owner, from, &message, talk->now);
    while (qos_owner_output(talk->owner, &output)) {
        if (output.kind == QOS_OUTPUT_SAVE)
            qos_owner_saved(talk->owner, output.peer, talk->now);
        else if (output.kind == QOS_OUTPUT_SEND)
            last = output.message->type;
    }
    return last;
}

static const guint64 key[2] = {17, 4};
static guint claims_left = G_MAXUINT;

static gboolean may_claim(QosOwnerId borrower G_GNUC_UNUSED, gsize bytes G_GNUC_UNUSED,
                          gpointer arg G_GNUC_UNUSED)
{
    return claims_left-- > 0;
}

/* A root in its second life. */
static Talk root_init(const QosOwnerId *clients, guint count)
{
    Talk talk = {.now = QOS_SECOND, .lender = 2, .session = 5};
    QosOwnerConfig config;

    qos_owner_config_init(&config, 1, 2);
    config.lends = TRUE;
    config.key[0] = key[0];
    config.key[1] = key[1];
    config.may_claim = may_claim;
    talk.owner = qos_owner_new(&config, clients, count, talk.now);
    return talk;
}

static guint claim_item(Talk *talk, QosOwnerId id, QosCreditItem item)
{
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(item));

    g_array_append_val(items, item);
    return answer(talk, id, (QosCreditMessage){.type = QOS_MESSAGE_RECLAIM, .more = items});
}

static guint claim(Talk *talk, QosOwnerId id, QosCredit credit, QosToken token)
{
    QosCreditItem item = {.resource = inode(7), .credit = credit, .token = token};

    item.proof = qos_proof(key, id, token, &item.resource);
    talk->sequence = 0;
    return claim_item(talk, id, item);
}

/* Of what can have been lent before the restart a borrower is given what nobody claimed before it;
 * one that says else is out, and the grace goes on. */
static void test_false_claims(void)
{
    static const QosOwnerId clients[] = {4, 5, 6, 7};
    const QosToken first = (QosToken)2 << QOS_TOKEN_INCARNATION_SHIFT; /* after the restart */
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .flags = QOS_HELLO_RECLAIMS};
    Talk talk = root_init(clients, G_N_ELEMENTS(clients));

    for (guint i = 0; i < G_N_ELEMENTS(clients); i++)
        g_assert_cmpuint(answer(&talk, clients[i], hello), ==, QOS_MESSAGE_WELCOME);
    g_assert_cmpuint(claim(&talk, 4, reading, first - 1), !=, QOS_MESSAGE_RESET);
    g_assert_cmpuint(claim(&talk, 5, writing, 1), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(claim(&talk, 6, reading, first), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(claim(&talk, 7, (QosCredit){0}, 1), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(qos_owner_lent(talk.owner), ==, 1);
    g_assert_true(qos_owner_in_grace(talk.owner));
    qos_owner_free(talk.owner);
}

/* The token of a claim belongs to the resource and to the borrower. */
static void test_claims_of_others_tokens(void)
{
    static const QosOwnerId clients[] = {4, 5, 6, 7};
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .flags = QOS_HELLO_RECLAIMS};
    const QosResource mine = inode(7), other = inode(8);
    const QosCreditItem good = {
        .resource = mine, .credit = writing, .token = 9, .proof = qos_proof(key, 4, 9, &mine)};
    QosCreditItem bad = good;

    for (guint i = 0; i < 4; i++) {
        Talk talk = root_init(clients, G_N_ELEMENTS(clients));
        const QosOwnerId id = i == 1 ? 5 : 4;
        bad = good;
        if (i == 2)
            bad.resource = other;
        if (i == 3)
            bad.token++;
        answer(&talk, id, hello);
        talk.sequence = 0;
        g_assert_cmpint(claim_item(&talk, id, bad) == QOS_MESSAGE_RESET, ==, i != 0);
        g_assert_cmpuint(qos_owner_lent(talk.owner), ==, i == 0);
        qos_owner_free(talk.owner);
    }
}

/* A borrower that claims more than it can have had is expelled, with all that it has. */
static void test_claims_without_end(void)
{
    static const QosOwnerId clients[] = {4, 5};
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .flags = QOS_HELLO_RECLAIMS};
    Talk talk = root_init(clients, G_N_ELEMENTS(clients));
    guint last = QOS_MESSAGE_TYPES;
    guint8 number = 0;

    answer(&talk, 4, hello);
    claims_left = 10;
    talk.sequence = 0;
    while (last != QOS_MESSAGE_RESET) {
        QosCreditItem item = {.resource = inode(++number), .credit = writing, .token = 9};
        item.proof = qos_proof(key, 4, 9, &item.resource);
        last = claim_item(&talk, 4, item);
    }
    claims_left = G_MAXUINT;
    g_assert_cmpuint(number, ==, 11);
    g_assert_cmpuint(qos_owner_lent(talk.owner), <=, 10);
    qos_owner_free(talk.owner);
}

/* Of the reference implementation's test vectors. */
static void test_siphash(void)
{
    guint64 made_key[2];
    guint8 bytes[16];

    for (guint i = 0; i < sizeof(bytes); i++)
        bytes[i] = (guint8)i;
    memcpy(made_key, bytes, sizeof(made_key));
    made_key[0] = GUINT64_FROM_LE(made_key[0]);
    made_key[1] = GUINT64_FROM_LE(made_key[1]);
    g_assert_cmphex(qos_siphash(made_key, bytes, 0), ==, G_GUINT64_CONSTANT(0x726fdb47dd0e0e31));
    g_assert_cmphex(qos_siphash(made_key, bytes, 15), ==, G_GUINT64_CONSTANT(0xa129ca6149be45e5));
}

static guint enqueue(Talk *talk, QosOwnerId id, guint64 request, QosCredit credit, guint flags)
{
    return answer(talk, id,
                  (QosCreditMessage){.type = QOS_MESSAGE_ENQUEUE,
                                     .request = request,
                                     .flags = flags,
                                     .resource = inode(7),
                                     .credit = credit});
}

static void add_reads(QosOwnerId borrower G_GNUC_UNUSED, const QosResource *resource G_GNUC_UNUSED,
                      const QosCredit *credit, QosToken token G_GNUC_UNUSED, gpointer reads)
{
    *(guint32 *)reads |= credit->reads;
}

/* A borrower that gives up a credit by saying that it keeps what it never had. */
static void test_keeps_what_it_had_not(void)
{
    const QosCredit others[] = {writing, {.reads = QOS_INODE_LAYOUT}};

    for (guint i = 0; i < G_N_ELEMENTS(others); i++) {
        Talk talk = root_init(NULL, 0);
        guint32 reads = 0;
        answer(&talk, 4, (QosCreditMessage){.type = QOS_MESSAGE_HELLO});
        g_assert_cmpuint(enqueue(&talk, 4, 1, reading, 0), ==, QOS_MESSAGE_GRANT);
        QosCreditMessage cancel = {.type = QOS_MESSAGE_CANCEL,
                                   .resource = inode(7),
                                   .credit = others[i],
                                   .granted = qos_owner_token(talk.owner)};
        g_assert_cmpuint(answer(&talk, 4, cancel), ==, QOS_MESSAGE_RESET);
        qos_owner_each_sublet(talk.owner, add_reads, &reads);
        g_assert_cmpuint(reads, ==, QOS_INODE_ATTRIBUTES);
        qos_owner_free(talk.owner);
    }
}

/* A borrower that lends may be ahead, but not so far that there would soon be no tokens. */
static void test_tokens_far_ahead(void)
{
    Talk talk = root_init(NULL, 0);
    QosCreditMessage renewal = {.type = QOS_MESSAGE_RENEW};

    answer(&talk, 4, (QosCreditMessage){.type = QOS_MESSAGE_HELLO, .flags = QOS_HELLO_LENDS});
    renewal.token = qos_owner_token(talk.owner) + (1 << 20);
    g_assert_cmpuint(answer(&talk, 4, renewal), !=, QOS_MESSAGE_RESET);
    g_assert_cmpuint(qos_owner_token(talk.owner), ==, renewal.token);
    renewal.token += (QosToken)1 << 31;
    g_assert_cmpuint(answer(&talk, 4, renewal), ==, QOS_MESSAGE_RESET);
    g_assert_cmpuint(qos_owner_token(talk.owner), <, renewal.token);
    qos_owner_free(talk.owner);
}

/* One that lent, and comes back with nothing to restore: others may use what it had until its lease
 * ends. */
static void test_lender_that_forgot(void)
{
    Talk talk = root_init(NULL, 0);
    const QosCreditMessage hello = {.type = QOS_MESSAGE_HELLO, .flags = QOS_HELLO_LENDS};

    talk.session = (guint64)1 << 32 | 1;
    g_assert_cmpuint(answer(&talk, 4, hello), ==, QOS_MESSAGE_WELCOME);
    g_assert_cmpuint(enqueue(&talk, 4, 1, writing, 0), ==, QOS_MESSAGE_GRANT);
    talk.session = (guint64)2 << 32 | 1;
    talk.sequence = 0;
    g_assert_cmpuint(answer(&talk, 4, hello), ==, QOS_MESSAGE_TYPES);
    g_assert_cmpuint(qos_owner_lent(talk.owner), ==, 1);
    talk.now += 31 * QOS_SECOND;
    qos_owner_tick(talk.owner, talk.now);
    g_assert_cmpuint(answer(&talk, 4, hello), ==, QOS_MESSAGE_WELCOME);
    g_assert_cmpuint(qos_owner_lent(talk.owner), ==, 0);
    qos_owner_free(talk.owner);
}

/* Requests of one borrower that wait are bounded. */
static void test_requests_without_end(void)
{
    Talk talk = root_init(NULL, 0);
    guint64 request = 1;

    answer(&talk, 5, (QosCreditMessage){.type = QOS_MESSAGE_HELLO});
    g_assert_cmpuint(enqueue(&talk, 5, 1, writing, 0), ==, QOS_MESSAGE_GRANT);
    talk.sequence = 0;
    answer(&talk, 4, (QosCreditMessage){.type = QOS_MESSAGE_HELLO});
    while (request <= 65536)
        g_assert_cmpuint(enqueue(&talk, 4, request++, reading, QOS_CREDIT_WAIT), !=,
                         QOS_MESSAGE_DENIED);
    g_assert_cmpuint(enqueue(&talk, 4, request, reading, QOS_CREDIT_WAIT), ==, QOS_MESSAGE_DENIED);
    qos_owner_free(talk.owner);
}

/* A borrower of a lender that it will have: with `flags` of the WELCOME. */
static Talk borrower_init(gboolean lends, guint flags)
{
    Talk talk = {.now = QOS_SECOND, .lender = 1, .session = (guint64)1 << 32 | 1};
    QosCreditMessage welcome = {
        .type = QOS_MESSAGE_WELCOME, .flags = flags, .lease = LEASE, .token = 100};
    QosOwnerConfig config;

    qos_owner_config_init(&config, 4, 1);
    config.above = 1;
    config.lends = lends;
    talk.owner = qos_owner_new(&config, NULL, 0, talk.now);
    answer(&talk, 1, welcome);
    return talk;
}

/* If its lender breaks the rules, a borrower begins anew, without what it had. */
static void assert_begins_anew(Talk *talk, QosCreditMessage message)
{
    QosResource resource = inode(7);

    g_assert_cmpuint(answer(talk, 1, message), ==, QOS_MESSAGE_HELLO);
    g_assert_cmpuint(qos_credit_owned(talk->owner, &resource).reads, ==, 0);
    qos_owner_free(talk->owner);
}

static void test_grants_that_take(void)
{
    const QosCreditMessage grant = {
        .type = QOS_MESSAGE_GRANT, .resource = inode(7), .credit = writing, .granted = 100};
    QosResource resource = inode(7);
    QosCreditMessage less = grant;

    less.granted++;
    less.credit = reading;
    for (guint i = 0; i < 2; i++) {
        Talk talk = borrower_init(FALSE, 0);
        answer(&talk, 1, grant);
        g_assert_cmpuint(qos_credit_owned(talk.owner, &resource).writes, ==, writing.writes);
        assert_begins_anew(&talk, i == 0 ? grant : less);
    }
}

static void test_restored_twice(void)
{
    QosCreditItem item = {.resource = inode(7), .credit = writing, .token = 50};
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(item));
    const QosCreditMessage restore = {.type = QOS_MESSAGE_RESTORE, .more = items};
    Talk talk = borrower_init(TRUE, QOS_WELCOME_RESTORE);
    QosResource resource = inode(7);

    g_array_append_val(items, item);
    answer(&talk, 1, restore);
    g_assert_cmpuint(qos_credit_owned(talk.owner, &resource).writes, ==, writing.writes);
    assert_begins_anew(&talk, restore);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/credit/rules-broken", test_rules_broken);
    g_test_add_func("/credit/false-claims", test_false_claims);
    g_test_add_func("/credit/claims-of-others-tokens", test_claims_of_others_tokens);
    g_test_add_func("/credit/claims-without-end", test_claims_without_end);
    g_test_add_func("/credit/siphash", test_siphash);
    g_test_add_func("/credit/keeps-what-it-had-not", test_keeps_what_it_had_not);
    g_test_add_func("/credit/tokens-far-ahead", test_tokens_far_ahead);
    g_test_add_func("/credit/lender-that-forgot", test_lender_that_forgot);
    g_test_add_func("/credit/requests-without-end", test_requests_without_end);
    g_test_add_func("/credit/grants-that-take", test_grants_that_take);
    g_test_add_func("/credit/restored-twice", test_restored_twice);
    return g_test_run();
}
