/*
 * Resources and credits: the laws that generic code relies on, by random values of each type (the
 * seed is printed; QOSFS_SEED replays it), the spans against a plain array, bytes that are no
 * credit, and each type's own rules.
 */
#include <string.h>

#include "core/resource.h"

#define ROUNDS 20000

typedef struct {
    const QosResourceType *type;
    QosResourceTypeId id;
    GRand *random;
    QosCredit a, b, c;
} Fixture;

static guint32 seed;

static QosCredit random_spans(GRand *random, gboolean shared)
{
    const QosResourceType *extent = qos_resource_type(QOS_RESOURCE_EXTENT);
    QosCredit credit = {0};

    for (gint32 i = g_rand_int_range(random, 0, 6); i > 0; i--) {
        guint64 base = g_rand_boolean(random) ? 0 : G_MAXUINT64 - 39;
        guint64 first = base + g_rand_int_range(random, 0, 30);
        QosCredit span = qos_credit_span(first, first + g_rand_int_range(random, 0, 11),
                                         !shared || g_rand_boolean(random));
        extent->join(&credit, &span);
        qos_credit_clear(extent, &span);
    }
    return credit;
}

static QosCredit random_credit(Fixture *fixture)
{
    GRand *random = fixture->random;
    guint32 bits;

    switch (fixture->type->shape) {
    case QOS_SHAPE_MODES:
        bits = g_rand_int(random) & (g_rand_boolean(random) ? G_MAXUINT32 : g_rand_int(random));
        return (QosCredit){.reads = bits, .writes = bits & g_rand_int(random)};
    case QOS_SHAPE_SPANS:
        return random_spans(random, fixture->id != QOS_RESOURCE_IDENTIFIER);
    default:
        bits = g_rand_int(random) >> g_rand_int_range(random, 0, 32);
        return (QosCredit){.amount = g_rand_boolean(random) ? bits : G_MAXUINT64 - bits};
    }
}

typedef void Operation(QosCredit *to, const QosCredit *with);

/* operation(a, b), as a new credit. */
static QosCredit result_of(const Fixture *fixture, Operation *operation, const QosCredit *a,
                           const QosCredit *b)
{
    QosCredit result = qos_credit_copy(fixture->type, a);

    operation(&result, b);
    return result;
}

static void assert_equal(const Fixture *fixture, QosCredit one, QosCredit other)
{
    if (!qos_credit_equal(fixture->type, &one, &other)) {
        g_autofree char *a = qos_credit_text(fixture->type, &one);
        g_autofree char *b = qos_credit_text(fixture->type, &other);
        g_error("%s, seed %u: %s is not %s", fixture->type->name, seed, a, b);
    }
    qos_credit_clear(fixture->type, &one);
    qos_credit_clear(fixture->type, &other);
}

static void check_associative_and_commutative(const Fixture *fixture, Operation *operation)
{
    QosCredit ab = result_of(fixture, operation, &fixture->a, &fixture->b);
    QosCredit bc = result_of(fixture, operation, &fixture->b, &fixture->c);

    assert_equal(fixture, result_of(fixture, operation, &ab, &fixture->c),
                 result_of(fixture, operation, &fixture->a, &bc));
    assert_equal(fixture, result_of(fixture, operation, &fixture->b, &fixture->a), ab);
    qos_credit_clear(fixture->type, &bc);
}

static void check_lattice(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    QosCredit joined = result_of(fixture, type->join, &fixture->a, &fixture->b);
    QosCredit common = result_of(fixture, type->intersect, &fixture->a, &fixture->b);

    check_associative_and_commutative(fixture, type->join);
    check_associative_and_commutative(fixture, type->intersect);
    assert_equal(fixture, result_of(fixture, type->intersect, &fixture->a, &joined),
                 qos_credit_copy(type, &fixture->a));
    assert_equal(fixture, result_of(fixture, type->intersect, &fixture->a, &fixture->a),
                 qos_credit_copy(type, &fixture->a));
    g_assert_true(type->matches(&fixture->a, &joined) && type->matches(&fixture->b, &joined));
    g_assert_true(type->matches(&common, &fixture->a) && type->matches(&common, &fixture->b));
    if (type->shape != QOS_SHAPE_AMOUNT) { /* amounts add up */
        assert_equal(fixture, result_of(fixture, type->join, &fixture->a, &fixture->a),
                     qos_credit_copy(type, &fixture->a));
        assert_equal(fixture, result_of(fixture, type->join, &fixture->a, &common),
                     qos_credit_copy(type, &fixture->a));
    }
    qos_credit_clear(type, &joined);
    qos_credit_clear(type, &common);
}

static void check_partial_order(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    QosCredit common = result_of(fixture, type->intersect, &fixture->b, &fixture->c);
    QosCredit joined = result_of(fixture, type->join, &fixture->a, &fixture->b);
    const QosCredit none = {0};

    g_assert_true(type->matches(&fixture->a, &fixture->a) && type->matches(&none, &fixture->a));
    g_assert_true(type->matches(&common, &joined)); /* common <= b <= joined */
    g_assert_true(type->matches(&fixture->a, &none) == qos_credit_is_empty(type, &fixture->a));
    qos_credit_clear(type, &common);
    qos_credit_clear(type, &joined);
}

static void check_conflicts(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    QosCredit common = result_of(fixture, type->intersect, &fixture->a, &fixture->b);
    gboolean conflict = type->conflicts(&fixture->a, &fixture->b);

    g_assert_true(conflict == type->conflicts(&fixture->b, &fixture->a));
    if (conflict && fixture->id != QOS_RESOURCE_OPEN)
        g_assert_false(qos_credit_is_empty(type, &common));
    if (conflict)
        g_assert_false(qos_credit_is_empty(type, &fixture->a) ||
                       qos_credit_is_empty(type, &fixture->b));
    qos_credit_clear(type, &common);
}

/* What is left is part of `a`, conflicts with nothing of `b`, and all parts of `a` that do so are
 * in it. */
static void check_yield(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    QosCredit left = result_of(fixture, type->yield, &fixture->a, &fixture->b);
    QosCredit part = result_of(fixture, type->intersect, &fixture->a, &fixture->c);

    g_assert_true(type->matches(&left, &fixture->a));
    g_assert_false(type->conflicts(&left, &fixture->b));
    if (type->shape == QOS_SHAPE_AMOUNT) { /* there it is the rest of the sum */
        QosCredit common = result_of(fixture, type->intersect, &fixture->a, &fixture->b);
        assert_equal(fixture, result_of(fixture, type->join, &left, &common), fixture->a);
    } else if (!type->conflicts(&part, &fixture->b)) {
        g_assert_true(type->matches(&part, &left));
    } else {
        type->yield(&part, &fixture->b);
        g_assert_true(type->matches(&part, &left));
    }
    qos_credit_clear(type, &left);
    qos_credit_clear(type, &part);
}

/* What is asked for is enough, and less of it would not be. */
static void check_diff(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    QosCredit missing = result_of(fixture, type->diff, &fixture->a, &fixture->b);
    QosCredit enough = result_of(fixture, type->join, &missing, &fixture->b);
    QosCredit less = result_of(fixture, type->intersect, &missing, &fixture->c);
    QosCredit little = result_of(fixture, type->join, &less, &fixture->b);

    g_assert_true(type->matches(&fixture->a, &enough));
    g_assert_true(type->matches(&missing, &fixture->a));
    g_assert_true(type->matches(&fixture->a, &little) == type->matches(&missing, &less));
    qos_credit_clear(type, &missing);
    qos_credit_clear(type, &enough);
    qos_credit_clear(type, &less);
    qos_credit_clear(type, &little);
}

static guint64 numbers(const QosCredit *credit)
{
    guint64 sum = 0;

    for (guint i = 0; i < credit->count; i++)
        sum += credit->spans[i].last - credit->spans[i].first + 1;
    return sum;
}

static void check_choose(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    QosCredit chosen = {0};
    gboolean chose = type->choose(&fixture->a, &fixture->b, &chosen);

    if (fixture->id == QOS_RESOURCE_IDENTIFIER) {
        g_assert_true(chose == (numbers(&fixture->a) <= numbers(&fixture->b)));
        g_assert_cmpuint(numbers(&chosen), ==, chose ? numbers(&fixture->a) : 0);
    } else {
        g_assert_true(chose == type->matches(&fixture->a, &fixture->b));
        if (chose)
            assert_equal(fixture, qos_credit_copy(type, &fixture->a),
                         qos_credit_copy(type, &chosen));
        else
            g_assert_true(qos_credit_is_empty(type, &chosen));
    }
    g_assert_true(type->matches(&chosen, &fixture->b));
    qos_credit_clear(type, &chosen);
}

/* Round trip; and whatever is cut off, it is refused. */
static void check_bytes(Fixture *fixture)
{
    const QosResourceType *type = fixture->type;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosCredit decoded = {0};

    type->encode(&fixture->a, bytes);
    guint whole = bytes->len;
    const guint8 *at = bytes->data;
    gsize length = whole;
    g_assert_true(type->decode(&decoded, &at, &length));
    g_assert_true(length == 0 && at == bytes->data + whole);
    assert_equal(fixture, decoded, qos_credit_copy(type, &fixture->a));

    guint cut = (guint)g_rand_int_range(fixture->random, 0, (gint32)whole);
    g_autofree guint8 *exact = g_memdup2(bytes->data, cut); /* so that reading past the end shows */
    at = exact;
    length = cut;
    g_assert_false(type->decode(&decoded, &at, &length));
}

static void test_laws(gconstpointer id)
{
    Fixture fixture = {.id = GPOINTER_TO_UINT(id), .random = g_rand_new_with_seed(seed)};
    fixture.type = qos_resource_type(fixture.id);

    for (guint i = 0; i < ROUNDS; i++) {
        fixture.a = random_credit(&fixture);
        fixture.b = random_credit(&fixture);
        fixture.c = random_credit(&fixture);
        check_lattice(&fixture);
        check_partial_order(&fixture);
        check_conflicts(&fixture);
        check_yield(&fixture);
        check_diff(&fixture);
        check_choose(&fixture);
        check_bytes(&fixture);
        qos_credit_clear(fixture.type, &fixture.a);
        qos_credit_clear(fixture.type, &fixture.b);
        qos_credit_clear(fixture.type, &fixture.c);
    }
    g_rand_free(fixture.random);
}

/* 0 for none, 1 for shared, 2 for exclusive. */
static guint rung(const QosCredit *credit, guint64 number)
{
    for (guint i = 0; i < credit->count; i++)
        if (credit->spans[i].first <= number && number <= credit->spans[i].last)
            return credit->spans[i].writes ? 2 : 1;
    return 0;
}

static void assert_normal(const QosCredit *credit)
{
    g_assert_true((credit->count == 0) == (credit->spans == NULL));
    for (guint i = 0; i < credit->count; i++) {
        const QosSpan *span = &credit->spans[i];
        g_assert_cmpuint(span->first, <=, span->last);
        if (i == 0)
            continue;
        g_assert_cmpuint(span[-1].last, <, span->first);
        g_assert_true(span[-1].last + 1 < span->first || span[-1].writes != span->writes);
    }
}

/* Each number for itself, by what the words mean. */
static void test_spans_are_sets_of_numbers(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    Operation *const operations[] = {type->join, type->intersect, type->diff, type->yield};
    Fixture fixture = {
        .type = type, .id = QOS_RESOURCE_EXTENT, .random = g_rand_new_with_seed(seed)};

    for (guint round = 0; round < ROUNDS; round++) {
        guint operation = (guint)g_rand_int_range(fixture.random, 0, G_N_ELEMENTS(operations));
        QosCredit a = random_credit(&fixture), b = random_credit(&fixture);
        QosCredit result = result_of(&fixture, operations[operation], &a, &b);
        gboolean conflict = FALSE;

        assert_normal(&result);
        for (guint i = 0; i < 100; i++) {
            guint64 number = i < 50 ? i : G_MAXUINT64 - (i - 50);
            guint x = rung(&a, number), y = rung(&b, number);
            const guint expected[] = {MAX(x, y), MIN(x, y), x > y ? x : 0,
                                      y == 0   ? x
                                      : y == 1 ? MIN(x, 1)
                                               : 0};
            g_assert_cmpuint(rung(&result, number), ==, expected[operation]);
            conflict |= x + y > 2;
        }
        g_assert_true(type->conflicts(&a, &b) == conflict);
        qos_credit_clear(type, &a);
        qos_credit_clear(type, &b);
        qos_credit_clear(type, &result);
    }
    g_rand_free(fixture.random);
}

static void test_identifiers_are_chosen_by_count(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_IDENTIFIER);
    QosCredit all = qos_credit_span(0, G_MAXUINT64, TRUE), chosen = {0};
    QosCredit ten = qos_credit_span(0, 9, TRUE), hole = qos_credit_span(5, 99, TRUE);
    QosCredit none = {0};

    g_assert_true(type->choose(&all, &all, &chosen)); /* 2^64 of them */
    g_assert_true(qos_credit_equal(type, &chosen, &all));
    qos_credit_clear(type, &chosen);

    type->diff(&all, &hole); /* 0-4, 100-..: the lowest piece is too short */
    g_assert_true(type->choose(&ten, &all, &chosen));
    g_autofree char *piece = qos_credit_text(type, &chosen);
    g_assert_cmpstr(piece, ==, "100-109w");
    qos_credit_clear(type, &chosen);

    QosCredit tail = qos_credit_span(104, G_MAXUINT64, TRUE);
    type->diff(&all, &tail); /* 0-4, 100-103 */
    g_assert_false(type->choose(&ten, &all, &chosen));
    QosCredit seven = qos_credit_span(0, 6, TRUE);
    g_assert_true(type->choose(&seven, &all, &chosen));
    g_autofree char *pieces = qos_credit_text(type, &chosen);
    g_assert_cmpstr(pieces, ==, "0-4w,100-101w");
    qos_credit_clear(type, &chosen);
    g_assert_true(type->choose(&none, &all, &chosen) && qos_credit_is_empty(type, &chosen));
    for (guint i = 0; i < 5; i++)
        qos_credit_clear(type, (QosCredit *[]){&all, &ten, &hole, &tail, &seven}[i]);
}

static void test_open_modes(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_OPEN);
    const QosCredit reader = {.reads = QOS_OPEN_READ}, writer = {.reads = QOS_OPEN_WRITE};
    const QosCredit runner = {.reads = QOS_OPEN_READ | QOS_OPEN_EXECUTE};
    const QosCredit alone = {.reads = QOS_OPEN_READ | QOS_OPEN_WRITE, .writes = QOS_OPEN_WRITE};
    QosCredit left = runner;

    g_assert_true(type->pinned && !qos_resource_type(QOS_RESOURCE_INODE)->pinned);
    g_assert_false(type->conflicts(&reader, &reader) || type->conflicts(&writer, &writer));
    g_assert_false(type->conflicts(&reader, &writer) || type->conflicts(&reader, &runner));
    g_assert_false(type->conflicts(&alone, &reader)); /* it denies others to write, not to read */
    g_assert_true(type->conflicts(&alone, &writer) && type->conflicts(&alone, &alone));
    g_assert_true(type->conflicts(&runner, &writer) && type->conflicts(&writer, &runner));
    type->yield(&left, &writer);
    g_assert_true(qos_credit_equal(type, &left, &reader));
}

static void test_configuration_has_one_writer(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_CONFIG);
    const QosCredit reader = {.reads = QOS_CONFIG_CURRENT};
    const QosCredit writer = {.reads = QOS_CONFIG_CURRENT, .writes = QOS_CONFIG_CURRENT};

    g_assert_false(type->conflicts(&reader, &reader));
    g_assert_true(type->conflicts(&reader, &writer) && type->conflicts(&writer, &writer));
}

static void test_sums_stop_at_the_top(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_QUANTITY);
    const QosCredit much = {.amount = G_MAXUINT64 - 1}, two = {.amount = 2};
    QosCredit sum = much, rest = two;

    type->join(&sum, &two);
    g_assert_cmpuint(sum.amount, ==, G_MAXUINT64);
    type->yield(&rest, &much);
    g_assert_cmpuint(rest.amount, ==, 0);
}

typedef struct {
    QosSpan spans[2];
    guint count;
    gsize cut;
    gboolean good;
} Encoded;

static void test_spans_that_are_not_normal(void)
{
    static const Encoded cases[] = {
        {{{1, 2, TRUE}, {4, 5, TRUE}}, 2, 0, TRUE},
        {{{1, 2, TRUE}, {3, 5, FALSE}}, 2, 0, TRUE},
        {{{0, G_MAXUINT64, TRUE}}, 1, 0, TRUE},
        {{{2, 1, TRUE}}, 1, 0, FALSE},
        {{{4, 5, TRUE}, {1, 2, TRUE}}, 2, 0, FALSE},            /* unsorted */
        {{{1, 4, TRUE}, {4, 5, TRUE}}, 2, 0, FALSE},            /* overlapping */
        {{{1, 2, TRUE}, {3, 5, TRUE}}, 2, 0, FALSE},            /* not merged */
        {{{0, G_MAXUINT64, TRUE}, {0, 5, FALSE}}, 2, 0, FALSE}, /* behind the last number */
        {{{1, 2, 2}}, 1, 0, FALSE},                             /* neither shared nor exclusive */
        {{{1, 2, TRUE}, {4, 5, TRUE}}, 2, 1, FALSE},            /* cut */
        {{{1, 2, TRUE}, {4, 5, TRUE}}, G_MAXUINT32, 0, FALSE},  /* more than there are */
        {{{1, 2, TRUE}}, QOS_CREDIT_SPANS_MAX + 1, 0, FALSE},
    };
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        guint32 count = GUINT32_TO_LE(cases[i].count);
        g_byte_array_append(bytes, (const guint8 *)&count, sizeof(count));
        for (guint span = 0; span < MIN(cases[i].count, 2); span++) {
            const guint64 ends[] = {GUINT64_TO_LE(cases[i].spans[span].first),
                                    GUINT64_TO_LE(cases[i].spans[span].last)};
            const guint8 writes = (guint8)cases[i].spans[span].writes;
            g_byte_array_append(bytes, (const guint8 *)ends, sizeof(ends));
            g_byte_array_append(bytes, &writes, sizeof(writes));
        }
        const guint8 *at = bytes->data;
        gsize length = bytes->len - cases[i].cut;
        QosCredit decoded = {0};
        g_test_message("case %u", i);
        g_assert_true(type->decode(&decoded, &at, &length) == cases[i].good);
        qos_credit_clear(type, &decoded);
    }
}

static void test_spans_in_a_message_are_bounded(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosCredit many = {.spans = g_new0(QosSpan, QOS_CREDIT_SPANS_MAX + 1)}, decoded = {0};

    while (many.count <= QOS_CREDIT_SPANS_MAX) {
        many.spans[many.count] = (QosSpan){2 * many.count, 2 * many.count, TRUE};
        many.count++;
    }
    type->encode(&many, bytes);
    for (guint32 count = QOS_CREDIT_SPANS_MAX; count <= QOS_CREDIT_SPANS_MAX + 1; count++) {
        guint32 encoded = GUINT32_TO_LE(count);
        const guint8 *at = bytes->data;
        gsize length = bytes->len;
        memcpy(bytes->data, &encoded, sizeof(encoded));
        g_assert_true(type->decode(&decoded, &at, &length) == (count <= QOS_CREDIT_SPANS_MAX));
    }
    g_assert_cmpuint(decoded.count, ==, QOS_CREDIT_SPANS_MAX);
    qos_credit_clear(type, &decoded);
    qos_credit_clear(type, &many);
}

static void test_bytes_of_another_meaning(void)
{
    static const guint8 write_only[] = {1, 0, 0, 0, 3, 0, 0, 0};
    static const guint8 shared_id[21] = {1, 0, 0, 0};
    QosCredit credit = {0};
    const guint8 *at = write_only;
    gsize length = sizeof(write_only);

    g_assert_false(qos_resource_type(QOS_RESOURCE_INODE)->decode(&credit, &at, &length));
    at = shared_id;
    length = sizeof(shared_id);
    g_assert_false(qos_resource_type(QOS_RESOURCE_IDENTIFIER)->decode(&credit, &at, &length));
    at = shared_id;
    length = sizeof(shared_id);
    g_assert_true(qos_resource_type(QOS_RESOURCE_EXTENT)->decode(&credit, &at, &length));
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &credit);
}

static QosResource random_resource(GRand *random)
{
    guint8 name[3];
    QosResource resource;

    for (guint i = 0; i < sizeof(name); i++)
        name[i] = (guint8)g_rand_int_range(random, 0, 3);
    qos_resource_init(&resource, g_rand_int_range(random, 0, QOS_RESOURCE_TYPES), name,
                      (gsize)g_rand_int_range(random, 0, sizeof(name) + 1));
    return resource;
}

static void test_resources_are_in_one_order(void)
{
    GRand *random = g_rand_new_with_seed(seed);

    for (guint i = 0; i < ROUNDS; i++) {
        QosResource a = random_resource(random), b = random_resource(random);
        QosResource c = random_resource(random);
        gint ab = qos_resource_compare(&a, &b), ba = qos_resource_compare(&b, &a);

        g_assert_true((ab < 0) == (ba > 0) && (ab == 0) == (ba == 0));
        g_assert_true((ab == 0) == qos_resource_equal(&a, &b));
        g_assert_true(ab != 0 || qos_resource_hash(&a) == qos_resource_hash(&b));
        if (ab < 0 && qos_resource_compare(&b, &c) < 0)
            g_assert_cmpint(qos_resource_compare(&a, &c), <, 0);
        if (a.type < b.type)
            g_assert_cmpint(ab, <, 0);
    }
    g_rand_free(random);
    QosCredit span = qos_credit_span(7, 9, TRUE);
    g_assert_cmpuint(qos_credit_offset(qos_resource_type(QOS_RESOURCE_EXTENT), &span), ==, 7);
    g_assert_cmpuint(qos_credit_offset(qos_resource_type(QOS_RESOURCE_INODE), &span), ==, 0);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &span);
}

static void test_resources_as_bytes(void)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosResource quota, decoded;
    gsize length;

    qos_resource_init_kind(&quota, QOS_RESOURCE_QUANTITY, QOS_QUANTITY_QUOTA, "uid 7", 5);
    qos_resource_encode(&quota, bytes);
    for (gsize cut = 0; cut <= bytes->len; cut++) {
        const guint8 *at = bytes->data;
        length = cut;
        g_assert_true(qos_resource_decode(&decoded, &at, &length) == (cut == bytes->len));
    }
    g_assert_true(qos_resource_equal(&quota, &decoded));

    static const guint8 unknown_type[] = {QOS_RESOURCE_TYPES, 0}, long_name[60] = {0, 39};
    const guint8 *at = unknown_type;
    length = sizeof(unknown_type);
    g_assert_false(qos_resource_decode(&decoded, &at, &length));
    at = long_name;
    length = sizeof(long_name);
    g_assert_false(qos_resource_decode(&decoded, &at, &length));
    g_assert_null(qos_resource_type(QOS_RESOURCE_TYPES));
}

/* One implementation serves all quantities and all identifiers: the name tells them apart. */
static void test_kinds_are_resources_of_their_own(void)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(qos_resource_hash, qos_resource_equal);
    QosResource resources[QOS_QUANTITIES + QOS_IDENTIFIERS];
    guint count = 0;

    for (guint8 kind = 0; kind < QOS_QUANTITIES; kind++)
        qos_resource_init_kind(&resources[count++], QOS_RESOURCE_QUANTITY, kind, "server", 6);
    for (guint8 kind = 0; kind < QOS_IDENTIFIERS; kind++)
        qos_resource_init_kind(&resources[count++], QOS_RESOURCE_IDENTIFIER, kind, "server", 6);
    for (guint i = 0; i < count; i++)
        g_assert_true(g_hash_table_add(seen, &resources[i]));
}

int main(int argc, char **argv)
{
    const char *given = g_getenv("QOSFS_SEED");

    g_test_init(&argc, &argv, NULL);
    seed = given ? (guint32)g_ascii_strtoull(given, NULL, 10) : g_random_int();
    g_test_message("QOSFS_SEED=%u", seed);
    for (guint id = 0; id < QOS_RESOURCE_TYPES; id++) {
        g_autofree char *name = g_strconcat("/resource/laws/", qos_resource_type(id)->name, NULL);
        g_test_add_data_func(name, GUINT_TO_POINTER(id), test_laws);
    }
    g_test_add_func("/resource/spans-are-sets-of-numbers", test_spans_are_sets_of_numbers);
    g_test_add_func("/resource/identifiers-by-count", test_identifiers_are_chosen_by_count);
    g_test_add_func("/resource/open-modes", test_open_modes);
    g_test_add_func("/resource/configuration-has-one-writer", test_configuration_has_one_writer);
    g_test_add_func("/resource/sums-stop-at-the-top", test_sums_stop_at_the_top);
    g_test_add_func("/resource/spans-that-are-not-normal", test_spans_that_are_not_normal);
    g_test_add_func("/resource/spans-in-a-message", test_spans_in_a_message_are_bounded);
    g_test_add_func("/resource/bytes-of-another-meaning", test_bytes_of_another_meaning);
    g_test_add_func("/resource/one-order", test_resources_are_in_one_order);
    g_test_add_func("/resource/resources-as-bytes", test_resources_as_bytes);
    g_test_add_func("/resource/kinds", test_kinds_are_resources_of_their_own);
    return g_test_run();
}
