/*
 * The frames of cluster rules and budgets: known bytes, round trips, limits, and lists in pages.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "core/wire_cluster.h"

/* The payload of the one frame in `bytes`. */
static const guint8 *payload_of(const GByteArray *bytes, QosWireType type, gsize *ret_length)
{
    const guint8 *next = bytes->data;
    gsize left = bytes->len;
    guint32 length = 0;
    guint8 found = 0;

    g_assert_true(qos_bytes_take_u32(&next, &left, &length));
    g_assert_cmpuint(length, ==, left);
    g_assert_true(qos_bytes_take_u8(&next, &left, &found));
    g_assert_cmpuint(found, ==, type);
    *ret_length = left;
    return next;
}

/* Of every part of a payload, and of it with one byte more, `get` makes nothing. */
static void assert_exact(const guint8 *payload, gsize length,
                         gboolean (*get)(const guint8 *, gsize))
{
    g_autofree guint8 *longer = g_malloc0(length + 1);

    for (gsize cut = 0; cut < length; cut++) {
        g_autofree guint8 *exact = g_memdup2(payload, cut);
        g_assert_false(get(exact, cut));
    }
    memcpy(longer, payload, length);
    g_assert_false(get(longer, length + 1));
    g_assert_true(get(longer, length));
}

static gboolean get_rules(const guint8 *payload, gsize length)
{
    QosWireRules page;

    if (!qos_wire_get_rules(payload, length, &page))
        return FALSE;
    qos_wire_rules_clear(&page);
    return TRUE;
}

static gboolean get_seen(const guint8 *payload, gsize length)
{
    QosWireSeen seen;

    return qos_wire_get_seen(payload, length, &seen);
}

static gboolean get_admin(const guint8 *payload, gsize length)
{
    QosWireAdmin admin;

    if (!qos_wire_get_admin(payload, length, &admin))
        return FALSE;
    qos_wire_admin_clear(&admin);
    return TRUE;
}

static gboolean get_result(const guint8 *payload, gsize length)
{
    QosWireAdminResult result;

    if (!qos_wire_get_admin_result(payload, length, &result))
        return FALSE;
    qos_wire_admin_result_clear(&result);
    return TRUE;
}

/* --- rules --- */

static QosWireRules list_new(guint64 version)
{
    return (QosWireRules){.version = version,
                          .epoch = 100 * QOS_MILLISECOND,
                          .lease = QOS_SECOND,
                          .parts = 8,
                          .rules = g_array_new(FALSE, FALSE, sizeof(QosWireRule))};
}

/* Takes `command`. */
static void add_rule(QosWireRules *list, guint64 id, QosTime left, char *command)
{
    QosWireRule rule = {.id = id, .left = left, .command = command};

    g_array_append_val(list->rules, rule);
    list->total++;
    list->size += strlen(command);
}

static void assert_equal(const QosWireRules *a, const QosWireRules *b)
{
    g_assert_cmpuint(a->version, ==, b->version);
    g_assert_cmpint(a->epoch, ==, b->epoch);
    g_assert_cmpint(a->lease, ==, b->lease);
    g_assert_cmpuint(a->parts, ==, b->parts);
    g_assert_cmpuint(a->total, ==, b->total);
    g_assert_cmpuint(a->size, ==, b->size);
    for (guint i = 0; i < a->total; i++) {
        const QosWireRule *one = &g_array_index(a->rules, QosWireRule, i);
        const QosWireRule *other = &g_array_index(b->rules, QosWireRule, i);
        g_assert_cmpuint(one->id, ==, other->id);
        g_assert_cmpint(one->left, ==, other->left);
        g_assert_cmpstr(one->command, ==, other->command);
    }
}

static void test_rules_bytes(void)
{
    static const guint8 expected[] = {
        76,  0, 0, 0, 7,              /* length, RULES */
        5,   0, 0, 0, 0,   0,   0, 0, /* version */
        100, 0, 0, 0,                 /* epoch */
        232, 3, 0, 0,                 /* lease */
        8,   0, 0, 0,                 /* floor parts */
        2,   0, 0, 0,                 /* total */
        0,   0, 0, 0,                 /* first */
        2,   0, 0, 0,                 /* count */
        4,   0, 0, 0, 0,   0,   0, 0, /* id */
        0,   0, 0, 0, 0,   0,   0, 0, /* left: for ever */
        1,   0, 0, 0, 'a',            /* command */
        2,   0, 0, 0, 0,   0,   0, 0, /* id */
        221, 5, 0, 0, 0,   0,   0, 0, /* left: 1,501 ms */
        2,   0, 0, 0, 'b', 'c',       /* command */
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireRules list = list_new(5), page;
    gsize length;

    add_rule(&list, 4, QOS_NEVER, g_strdup("a"));
    add_rule(&list, 2, 1500 * QOS_MILLISECOND + 1, g_strdup("bc"));
    g_assert_cmpuint(qos_wire_put_rules(bytes, &list, 0), ==, 2);
    qos_wire_rules_clear(&list);
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));

    const guint8 *payload = payload_of(bytes, QOS_WIRE_RULES, &length);
    assert_exact(payload, length, get_rules);
    g_assert_true(qos_wire_get_rules(payload, length, &page));
    g_assert_cmpuint(page.size, ==, 3);
    g_assert_cmpint(g_array_index(page.rules, QosWireRule, 0).left, ==, QOS_NEVER);
    g_assert_cmpint(g_array_index(page.rules, QosWireRule, 1).left, ==, 1501 * QOS_MILLISECOND);
    qos_wire_rules_clear(&page);
}

static void test_no_rules(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireRules none = list_new(7), list = {0}, page;
    gsize length;

    g_assert_cmpuint(qos_wire_put_rules(bytes, &none, 0), ==, 0);
    qos_wire_rules_clear(&none);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_RULES, &length);
    assert_exact(payload, length, get_rules);
    g_assert_true(qos_wire_get_rules(payload, length, &page));
    g_assert_true(qos_wire_rules_join(&list, &page));
    g_assert_true(qos_wire_rules_are_whole(&list));
    g_assert_cmpuint(list.version, ==, 7);
    g_assert_null(list.rules);
}

/* What no page says: changes of one byte of one that is right. */
static void test_rules_limits(void)
{
    static const struct {
        guint at;
        guint8 value;
    } changes[] = {
        {8, 0},     /* no epoch */
        {9, 0xff},  /* an epoch of more than 10 s */
        {13, 0},    /* a lease of less than 1 s */
        {14, 0xff}, /* a lease of more than 1 h */
        {19, 0xff}, /* more parts than mounts may be */
        {20, 0},    /* no rules in the list, and one here */
        {21, 0xff}, /* more than there may be in a list */
        {24, 1},    /* it begins behind the end */
        {28, 0},    /* none here, of a list of one */
        {28, 2},    /* more than the list has */
        {32, 0},    /* the id is 0 */
        {47, 0x80}, /* it ends after the end of time */
        {48, 0},    /* no command, but a byte behind */
        {48, 2},    /* longer than what is there */
        {52, '\n'}, /* a control character */
        {52, 0xff}, /* not UTF-8 */
        {52, 0},
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireRules list = list_new(5);
    gsize length;

    add_rule(&list, 4, QOS_NEVER, g_strdup("a"));
    qos_wire_put_rules(bytes, &list, 0);
    qos_wire_rules_clear(&list);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_RULES, &length);
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autofree guint8 *changed = g_memdup2(payload, length);
        changed[changes[i].at] = changes[i].value;
        g_assert_false(get_rules(changed, length));
    }
}

static char *long_command(guint i)
{
    g_autofree char *filler = g_strnfill(1 + 37 * i % 5000, 'x');

    return g_strdup_printf("rule %u %s", i, filler);
}

/* A long list comes in pages, none of which is long unless one rule is; and the same comes out. */
static void test_pages(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireRules list = list_new(9), arrived = {0};
    QosWireReader reader;
    QosWireType type;
    const guint8 *payload;
    guint pages = 0, first = 0;
    gsize length;

    for (guint i = 0; i < 100; i++)
        add_rule(&list, i + 1, i % 2 ? QOS_NEVER : i * QOS_SECOND + QOS_MILLISECOND,
                 i == 50 ? g_strnfill(QOS_WIRE_COMMAND_MAX, 'y') : long_command(i));
    do
        first = qos_wire_put_rules(bytes, &list, first);
    while (first < list.total);
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, bytes->data, bytes->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        QosWireRules page;
        g_assert_cmpint(type, ==, QOS_WIRE_RULES);
        g_assert_false(pages > 0 && qos_wire_rules_are_whole(&arrived));
        g_assert_true(qos_wire_get_rules(payload, length, &page));
        g_assert_true(length < QOS_WIRE_PAGE_MAX || page.rules->len == 1);
        g_assert_true(qos_wire_rules_join(&arrived, &page));
        pages++;
    }
    g_assert_cmpuint(pages, ==, 5);
    g_assert_true(qos_wire_rules_are_whole(&arrived));
    assert_equal(&arrived, &list);
    qos_wire_reader_clear(&reader);
    qos_wire_rules_clear(&arrived);
    qos_wire_rules_clear(&list);
}

static QosWireRules page_of(guint64 version, guint total, guint first)
{
    QosWireRules page = list_new(version);

    add_rule(&page, 1, QOS_NEVER, g_strdup("a"));
    page.total = total;
    page.first = first;
    return page;
}

/* A list that a newer one overtakes is forgotten; a page that does not continue it is an error. */
static void test_pages_out_of_order(void)
{
    QosWireRules list = {0}, page;

    page = page_of(1, 3, 0);
    g_assert_true(qos_wire_rules_join(&list, &page));
    page = page_of(2, 2, 0);
    g_assert_true(qos_wire_rules_join(&list, &page));
    g_assert_false(qos_wire_rules_are_whole(&list));
    page = page_of(2, 2, 1);
    g_assert_true(qos_wire_rules_join(&list, &page));
    g_assert_true(qos_wire_rules_are_whole(&list));
    page = page_of(2, 2, 1); /* again */
    g_assert_false(qos_wire_rules_join(&list, &page));
    g_assert_null(list.rules);
    g_assert_null(page.rules);
    for (guint i = 0; i < 3; i++) {
        page = page_of(2, 3, 0);
        g_assert_true(qos_wire_rules_join(&list, &page));
        page = i == 0 ? page_of(3, 3, 1) : i == 1 ? page_of(2, 4, 1) : page_of(2, 3, 2);
        g_assert_false(qos_wire_rules_join(&list, &page));
    }
}

static void test_pages_too_many(void)
{
    QosWireRules list = {0}, page;

    page = page_of(1, 2, 0);
    page.size = QOS_WIRE_RULES_BYTES_MAX;
    g_assert_true(qos_wire_rules_join(&list, &page));
    page = page_of(1, 2, 1);
    g_assert_false(qos_wire_rules_join(&list, &page));
    g_assert_null(list.rules);
}

static void test_seen(void)
{
    static const guint8 expected[] = {
        13, 0, 0, 0, 12,            /* length, RULES_SEEN */
        5,  0, 0, 0, 0,  0, 0, 128, /* version */
        16, 0, 0, 0,                /* floor parts */
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    const QosWireSeen seen = {.version = 5 | G_GUINT64_CONSTANT(1) << 63, .parts = 16};
    QosWireSeen found;
    gsize length;

    qos_wire_put_seen(bytes, &seen);
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));
    const guint8 *payload = payload_of(bytes, QOS_WIRE_RULES_SEEN, &length);
    assert_exact(payload, length, get_seen);
    g_assert_true(qos_wire_get_seen(payload, length, &found));
    g_assert_cmpuint(found.version, ==, seen.version);
    g_assert_cmpuint(found.parts, ==, 16);
    g_assert_false(get_seen((const guint8 *)"12345678\0\0\0\2", 12)); /* parts: 2^25 */
}

/* --- epochs --- */

static void test_epoch(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GBytes) data = g_bytes_new_static("12345678", 8);
    g_autofree guint8 *long_data = g_malloc0(QOS_EPOCH_DATA_MAX + 1);
    g_autoptr(GBytes) longer = g_bytes_new_static(long_data, QOS_EPOCH_DATA_MAX + 1);
    QosEpochMessage message = {.type = QOS_EPOCH_READY, .ticket = 7, .epoch = 9, .data = data};
    QosEpochMessage found;
    gsize length;

    g_assert_true(qos_wire_put_epoch(bytes, &message));
    const guint8 *payload = payload_of(bytes, QOS_WIRE_EPOCH, &length);
    g_assert_cmpuint(length, ==, QOS_EPOCH_HEADER + 8);
    g_assert_true(qos_wire_get_epoch(payload, length, &found));
    g_assert_cmpint(found.type, ==, QOS_EPOCH_READY);
    g_assert_cmpuint(found.ticket, ==, 7);
    g_assert_cmpint(found.epoch, ==, 9);
    g_assert_true(g_bytes_equal(found.data, data));
    qos_epoch_message_clear(&found);
    g_assert_false(qos_wire_get_epoch(payload, length - 1, &found));
    message.data = longer;
    g_byte_array_set_size(bytes, 0);
    g_assert_false(qos_wire_put_epoch(bytes, &message));
    g_assert_cmpuint(bytes->len, ==, 0);
}

/* --- budgets --- */

static void test_budget_bytes(void)
{
    static const guint8 expected[] = {
        37, 0,   0,   0,   8,            /* length, BUDGET_REPORT */
        5,  0,   0,   0,   0,   0, 0, 0, /* rule */
        1,                               /* unit */
        4,  'j', 'o', 'b', '1',          /* class */
        3,  0,   0,   0,   1,   2, 3,    /* bytes */
        2,  0,   0,   0,   0,   0, 0, 0, /* rule */
        0,                               /* unit */
        0,                               /* class */
        1,  0,   0,   0,                 /* bytes: */
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireBudget item = {5, 1, "job1", (const guint8 *)"\1\2\3", 3};
    gsize batch = QOS_WIRE_NO_BATCH, length;

    qos_wire_put_budget(bytes, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    item = (QosWireBudget){2, 0, "", (const guint8 *)"\x9", 1};
    qos_wire_put_budget(bytes, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    g_assert_cmpuint(batch, ==, 0);
    g_assert_cmpmem(bytes->data, bytes->len - 1, expected, sizeof(expected));
    g_assert_cmpuint(bytes->data[bytes->len - 1], ==, 9);

    const guint8 *payload = payload_of(bytes, QOS_WIRE_BUDGET_REPORT, &length);
    g_assert_true(qos_wire_get_budget(&payload, &length, &item));
    g_assert_cmpuint(item.rule, ==, 5);
    g_assert_cmpuint(item.unit, ==, 1);
    g_assert_cmpstr(item.class, ==, "job1");
    g_assert_cmpmem(item.bytes, item.length, "\1\2\3", 3);
    g_assert_true(qos_wire_get_budget(&payload, &length, &item));
    g_assert_cmpuint(item.rule, ==, 2);
    g_assert_cmpstr(item.class, ==, "");
    g_assert_cmpmem(item.bytes, item.length, "\x9", 1);
    g_assert_cmpuint(length, ==, 0);
}

static gboolean can_get_budget(const guint8 *payload, gsize length)
{
    const guint8 *next = payload;
    gsize left = length;
    QosWireBudget item;
    gboolean is_one = qos_wire_get_budget(&next, &left, &item);

    g_assert_true(is_one || (next == payload && left == length));
    return is_one;
}

static void test_budget_limits(void)
{
    static const struct {
        guint at;
        guint8 value;
    } changes[] = {{0, 0}, {8, 2}, {9, 0xff}, {10, '\t'}, {11, 0}, {11, 2}, {12, 0x80}, {14, 0xff}};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    const QosWireBudget item = {5, 1, "j", (const guint8 *)"x", 1};
    gsize batch = QOS_WIRE_NO_BATCH, length;

    qos_wire_put_budget(bytes, &batch, QOS_WIRE_BUDGET_GRANT, &item);
    const guint8 *payload = payload_of(bytes, QOS_WIRE_BUDGET_GRANT, &length);
    g_assert_true(can_get_budget(payload, length));
    for (gsize cut = 0; cut < length; cut++) {
        g_autofree guint8 *exact = g_memdup2(payload, cut);
        g_assert_false(can_get_budget(exact, cut));
    }
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autofree guint8 *changed = g_memdup2(payload, length);
        changed[changes[i].at] = changes[i].value;
        g_assert_false(can_get_budget(changed, length));
    }
}

/* Items of the most bytes, and more than a frame of a mount of 10,000 classes. */
static void test_budget_batches(void)
{
    g_autofree guint8 *most = g_malloc0(QOS_WIRE_BUDGET_MAX);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireBudget item = {.rule = 1, .bytes = most};
    gsize batch = QOS_WIRE_NO_BATCH, length;
    guint frames = 0, count = 0;
    QosWireReader reader;
    QosWireType type;
    const guint8 *payload;

    memset(item.class, 'c', QOS_WIRE_CLASS_MAX);
    for (guint i = 0; i < 1000; i++) {
        item.length = i < 10 ? QOS_WIRE_BUDGET_MAX : 50;
        qos_wire_put_budget(bytes, &batch, QOS_WIRE_BUDGET_GRANT, &item);
    }
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, bytes->data, bytes->len);
    for (; qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME; frames++) {
        g_assert_cmpint(type, ==, QOS_WIRE_BUDGET_GRANT);
        g_assert_cmpuint(length, <, QOS_WIRE_PAGE_MAX);
        for (; length > 0; count++)
            g_assert_true(qos_wire_get_budget(&payload, &length, &item));
    }
    g_assert_cmpuint(count, ==, 1000);
    g_assert_cmpuint(frames, ==, 15);
    qos_wire_reader_clear(&reader);
}

/* --- commands --- */

static void test_admin(void)
{
    static const guint8 expected[] = {
        21, 0, 0, 0, 10,                 /* length, ADMIN */
        3,  0, 0, 0, 0,   0,   0,   0,   /* id */
        7,  0, 0, 0,                     /* uid */
        4,  0, 0, 0, 's', 't', 'o', 'p', /* command */
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    const QosWireAdmin admin = {3, 7, (char *)"stop"};
    QosWireAdmin found;
    gsize length;

    g_assert_true(qos_wire_put_admin(bytes, &admin));
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));
    const guint8 *payload = payload_of(bytes, QOS_WIRE_ADMIN, &length);
    assert_exact(payload, length, get_admin);
    g_assert_true(qos_wire_get_admin(payload, length, &found));
    g_assert_cmpuint(found.id, ==, 3);
    g_assert_cmpuint(found.uid, ==, 7);
    g_assert_cmpstr(found.command, ==, "stop");
    qos_wire_admin_clear(&found);
}

static void test_admin_limits(void)
{
    g_autofree char *longest = g_strnfill(QOS_WIRE_COMMAND_MAX, 'c');
    g_autofree char *longer = g_strnfill(QOS_WIRE_COMMAND_MAX + 1, 'c');
    const char *const bad[] = {"", "a\nb", "a\tb", "\xff", "\xc2\x9b", longer};
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    for (guint i = 0; i < G_N_ELEMENTS(bad); i++)
        g_assert_false(qos_wire_put_admin(bytes, &(QosWireAdmin){1, 0, (char *)bad[i]}));
    g_assert_cmpuint(bytes->len, ==, 0);
    g_assert_true(qos_wire_put_admin(bytes, &(QosWireAdmin){1, 0, longest}));
    g_assert_true(qos_wire_put_admin(bytes, &(QosWireAdmin){2, 0, (char *)"h\xc3\xb4te"}));
    g_assert_false(get_admin((const guint8 *)"12345678uid.\0\0\0\0", 16)); /* an empty command */
}

static void test_result(void)
{
    static const guint8 expected[] = {
        20, 0, 0, 0, 11,                /* length, ADMIN_RESULT */
        3,  0, 0, 0, 0,   0,    0,   0, /* id */
        1,  0, 0, 0,                    /* EPERM */
        3,  0, 0, 0, 'a', '\n', 'b',    /* text */
    };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireAdminResult found;
    gsize length;

    qos_wire_put_admin_result(bytes, &(QosWireAdminResult){3, EPERM, (char *)"a\nb"});
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));
    const guint8 *payload = payload_of(bytes, QOS_WIRE_ADMIN_RESULT, &length);
    assert_exact(payload, length, get_result);
    g_assert_true(qos_wire_get_admin_result(payload, length, &found));
    g_assert_cmpuint(found.id, ==, 3);
    g_assert_cmpuint(found.error, ==, EPERM);
    g_assert_cmpstr(found.text, ==, "a\nb");
    qos_wire_admin_result_clear(&found);
    g_assert_false(get_result((const guint8 *)"12345678\0\20\0\0\0\0\0\0", 16)); /* no errno */
    g_assert_true(get_result((const guint8 *)"12345678\377\17\0\0\0\0\0\0", 16));
}

/* Whatever the text is, what goes out can be read. */
static void test_result_is_cut(void)
{
    g_autoptr(GString) text = g_string_new("\t\xff\n");
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireAdminResult found;
    gsize length;

    while (text->len < 2 * QOS_WIRE_RESULT_MAX)
        g_string_append(text, "\xc3\xb4");
    qos_wire_put_admin_result(bytes, &(QosWireAdminResult){1, 0, text->str});
    const guint8 *payload = payload_of(bytes, QOS_WIRE_ADMIN_RESULT, &length);
    g_assert_true(qos_wire_get_admin_result(payload, length, &found));
    g_assert_cmpuint(strlen(found.text), >=, QOS_WIRE_RESULT_MAX - 1);
    g_assert_true(g_str_has_prefix(found.text, " \xef\xbf\xbd\n\xc3\xb4"));
    qos_wire_admin_result_clear(&found);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/wire-cluster/rules/bytes", test_rules_bytes);
    g_test_add_func("/wire-cluster/rules/none", test_no_rules);
    g_test_add_func("/wire-cluster/rules/limits", test_rules_limits);
    g_test_add_func("/wire-cluster/pages", test_pages);
    g_test_add_func("/wire-cluster/pages/out-of-order", test_pages_out_of_order);
    g_test_add_func("/wire-cluster/pages/too-many", test_pages_too_many);
    g_test_add_func("/wire-cluster/seen", test_seen);
    g_test_add_func("/wire-cluster/epoch", test_epoch);
    g_test_add_func("/wire-cluster/budget/bytes", test_budget_bytes);
    g_test_add_func("/wire-cluster/budget/limits", test_budget_limits);
    g_test_add_func("/wire-cluster/budget/batches", test_budget_batches);
    g_test_add_func("/wire-cluster/admin", test_admin);
    g_test_add_func("/wire-cluster/admin/limits", test_admin_limits);
    g_test_add_func("/wire-cluster/result", test_result);
    g_test_add_func("/wire-cluster/result/is-cut", test_result_is_cut);
    return g_test_run();
}
