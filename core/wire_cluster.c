/*
 * The frames of cluster rules and budgets to bytes and back. core/wire_cluster.h has their format.
 */
#include "core/wire_cluster.h"

#include "base/bytes.h"
#include "core/wire_frame.h"

#define RULE_SIZE_LEAST (8 + 8 + 4 + 1) /* bytes of a rule in a page */
/* As core/budget.h has them. */
#define EPOCH_MIN QOS_MILLISECOND
#define EPOCH_MAX (10 * QOS_SECOND)
#define LEASE_MIN QOS_SECOND
#define LEASE_MAX (3600 * QOS_SECOND)

/* --- long texts --- */

static gboolean is_clean(const char *text, gsize length, gboolean may_have_lines)
{
    if (!g_utf8_validate_len(text, length, NULL))
        return FALSE;
    for (const char *next = text; next < text + length; next = g_utf8_next_char(next)) {
        if (g_unichar_iscntrl(g_utf8_get_char(next)) && !(may_have_lines && *next == '\n'))
            return FALSE;
    }
    return TRUE;
}

gboolean qos_wire_is_command(const char *command)
{
    gsize length = strlen(command);

    return length > 0 && length <= QOS_WIRE_COMMAND_MAX && is_clean(command, length, FALSE);
}

static void put_long_text(GByteArray *bytes, const char *text)
{
    gsize length = strlen(text);

    qos_bytes_put_u32(bytes, (guint32)length);
    g_byte_array_append(bytes, (const guint8 *)text, (guint)length);
}

/* A new text of up to `most` bytes; NULL where there is none. */
static char *take_long_text(const guint8 **bytes, gsize *length, gsize most,
                            gboolean may_have_lines)
{
    guint32 size;

    if (!qos_bytes_take_u32(bytes, length, &size) || size > most || size > *length ||
        !is_clean((const char *)*bytes, size, may_have_lines))
        return NULL;
    char *text = g_strndup((const char *)*bytes, size);
    *bytes += size;
    *length -= size;
    return text;
}

/* --- RULES --- */

static guint count_of(const QosWireRules *rules)
{
    return rules->rules != NULL ? rules->rules->len : 0;
}

void qos_wire_rules_clear(QosWireRules *rules)
{
    for (guint i = 0; rules->rules != NULL && i < rules->rules->len; i++)
        g_free(g_array_index(rules->rules, QosWireRule, i).command);
    g_clear_pointer(&rules->rules, g_array_unref);
    *rules = (QosWireRules){0};
}

static guint64 milliseconds_left(QosTime left)
{
    return left == QOS_NEVER ? 0 : (guint64)left / QOS_MILLISECOND + (left % QOS_MILLISECOND != 0);
}

static void put_rule(GByteArray *bytes, const QosWireRule *rule)
{
    qos_bytes_put_u64(bytes, rule->id);
    qos_bytes_put_u64(bytes, milliseconds_left(rule->left));
    put_long_text(bytes, rule->command);
}

guint qos_wire_put_rules(GByteArray *bytes, const QosWireRules *rules, guint first)
{
    gsize at = qos_wire_begin(bytes, QOS_WIRE_RULES), count_at;
    guint end = rules->first + count_of(rules);
    guint32 count = 0;

    qos_bytes_put_u64(bytes, rules->version);
    qos_bytes_put_u32(bytes, (guint32)(rules->epoch / QOS_MILLISECOND));
    qos_bytes_put_u32(bytes, (guint32)(rules->lease / QOS_MILLISECOND));
    qos_bytes_put_u32(bytes, rules->parts);
    qos_bytes_put_u32(bytes, rules->total);
    qos_bytes_put_u32(bytes, first);
    count_at = bytes->len;
    qos_bytes_put_u32(bytes, 0);
    while (first + count < end) {
        guint old_length = bytes->len;
        guint place = first + count - rules->first;
        put_rule(bytes, &g_array_index(rules->rules, QosWireRule, place));
        if (count > 0 && bytes->len - at - QOS_WIRE_LENGTH_SIZE > QOS_WIRE_PAGE_MAX) {
            g_byte_array_set_size(bytes, old_length);
            break;
        }
        count++;
    }
    guint32 written = GUINT32_TO_LE(count);
    memcpy(bytes->data + count_at, &written, sizeof(written));
    qos_wire_end(bytes, at);
    return first + count;
}

/* Appends a rule to the page. */
static gboolean take_rule(const guint8 **bytes, gsize *length, QosWireRules *page)
{
    QosWireRule rule;
    guint64 left;

    if (!qos_bytes_take_u64(bytes, length, &rule.id) || rule.id == 0 ||
        !qos_bytes_take_u64(bytes, length, &left) || left > G_MAXINT64 / QOS_MILLISECOND)
        return FALSE;
    rule.left = left == 0 ? QOS_NEVER : (QosTime)left * QOS_MILLISECOND;
    rule.command = take_long_text(bytes, length, QOS_WIRE_COMMAND_MAX, FALSE);
    if (rule.command == NULL)
        return FALSE;
    page->size += strlen(rule.command);
    g_array_append_val(page->rules, rule);
    return rule.command[0] != '\0';
}

/* What is told of budgets besides the rules. */
static gboolean take_terms(const guint8 **payload, gsize *length, QosWireRules *page)
{
    guint32 epoch, lease, parts;

    if (!qos_bytes_take_u32(payload, length, &epoch) ||
        !qos_bytes_take_u32(payload, length, &lease) ||
        !qos_bytes_take_u32(payload, length, &parts))
        return FALSE;
    page->epoch = epoch * QOS_MILLISECOND;
    page->lease = lease * QOS_MILLISECOND;
    page->parts = parts;
    return page->epoch >= EPOCH_MIN && page->epoch <= EPOCH_MAX && page->lease >= LEASE_MIN &&
           page->lease <= LEASE_MAX && parts <= QOS_WIRE_PARTS_MAX;
}

gboolean qos_wire_get_rules(const guint8 *payload, gsize length, QosWireRules *ret_rules)
{
    QosWireRules page = {0};
    guint32 total, first, count;

    if (!qos_bytes_take_u64(&payload, &length, &page.version) ||
        !take_terms(&payload, &length, &page) || !qos_bytes_take_u32(&payload, &length, &total) ||
        total > QOS_WIRE_RULES_MAX || !qos_bytes_take_u32(&payload, &length, &first) ||
        first > total || !qos_bytes_take_u32(&payload, &length, &count) || count > total - first ||
        (count == 0 && total > 0) || count > length / RULE_SIZE_LEAST)
        return FALSE;
    page.total = total;
    page.first = first;
    if (count > 0)
        page.rules = g_array_sized_new(FALSE, FALSE, sizeof(QosWireRule), count);
    gboolean is_whole = TRUE;
    for (guint i = 0; is_whole && i < count; i++)
        is_whole = take_rule(&payload, &length, &page);
    if (!is_whole || length > 0) {
        qos_wire_rules_clear(&page);
        return FALSE;
    }
    *ret_rules = page;
    return TRUE;
}

gboolean qos_wire_rules_join(QosWireRules *list, QosWireRules *page)
{
    gboolean is_next = page->version == list->version && page->total == list->total &&
                       page->first == count_of(list);

    if (page->first == 0) {
        qos_wire_rules_clear(list);
        *list = *page;
    } else if (is_next) {
        g_array_append_vals(list->rules, page->rules->data, page->rules->len);
        g_array_set_size(page->rules, 0); /* their commands are the list's now */
        list->size += page->size;
        qos_wire_rules_clear(page);
    } else {
        qos_wire_rules_clear(page);
        qos_wire_rules_clear(list);
        return FALSE;
    }
    *page = (QosWireRules){0};
    if (list->size <= QOS_WIRE_RULES_BYTES_MAX)
        return TRUE;
    qos_wire_rules_clear(list);
    return FALSE;
}

gboolean qos_wire_rules_are_whole(const QosWireRules *list)
{
    return count_of(list) == list->total;
}

/* --- RULES_SEEN --- */

void qos_wire_put_seen(GByteArray *bytes, const QosWireSeen *seen)
{
    gsize at = qos_wire_begin(bytes, QOS_WIRE_RULES_SEEN);

    qos_bytes_put_u64(bytes, seen->version);
    qos_bytes_put_u32(bytes, seen->parts);
    qos_wire_end(bytes, at);
}

gboolean qos_wire_get_seen(const guint8 *payload, gsize length, QosWireSeen *ret_seen)
{
    guint64 version;
    guint32 parts;

    if (!qos_bytes_take_u64(&payload, &length, &version) ||
        !qos_bytes_take_u32(&payload, &length, &parts) || parts > QOS_WIRE_PARTS_MAX || length > 0)
        return FALSE;
    *ret_seen = (QosWireSeen){.version = version, .parts = parts};
    return TRUE;
}

/* --- EPOCH --- */

gboolean qos_wire_put_epoch(GByteArray *bytes, const QosEpochMessage *message)
{
    gsize at;

    if (message->data != NULL && g_bytes_get_size(message->data) > QOS_EPOCH_DATA_MAX)
        return FALSE;
    at = qos_wire_begin(bytes, QOS_WIRE_EPOCH);
    qos_epoch_encode(message, bytes);
    qos_wire_end(bytes, at);
    return TRUE;
}

gboolean qos_wire_get_epoch(const guint8 *payload, gsize length, QosEpochMessage *ret_message)
{
    return qos_epoch_decode(payload, length, ret_message);
}

/* --- budgets --- */

static void put_item(GByteArray *bytes, const QosWireBudget *item)
{
    const guint8 unit = (guint8)item->unit;

    qos_bytes_put_u64(bytes, item->rule);
    g_byte_array_append(bytes, &unit, sizeof(unit));
    qos_wire_put_text(bytes, item->class);
    qos_bytes_put_u32(bytes, (guint32)item->length);
    g_byte_array_append(bytes, item->bytes, (guint)item->length);
}

void qos_wire_put_budget(GByteArray *bytes, gsize *batch, QosWireType type,
                         const QosWireBudget *item)
{
    guint old_length = bytes->len;
    gsize at = *batch == QOS_WIRE_NO_BATCH ? qos_wire_begin(bytes, type) : *batch;

    g_assert(item->length > 0 && item->length <= QOS_WIRE_BUDGET_MAX);
    put_item(bytes, item);
    if (*batch != QOS_WIRE_NO_BATCH && bytes->len - at - QOS_WIRE_LENGTH_SIZE > QOS_WIRE_PAGE_MAX) {
        g_byte_array_set_size(bytes, old_length);
        at = qos_wire_begin(bytes, type);
        put_item(bytes, item);
    }
    qos_wire_end(bytes, at);
    *batch = at;
}

gboolean qos_wire_get_budget(const guint8 **payload, gsize *length, QosWireBudget *ret_item)
{
    const guint8 *bytes = *payload;
    QosWireBudget item;
    gsize left = *length;
    guint32 size;

    if (!qos_bytes_take_u64(&bytes, &left, &item.rule) || item.rule == 0 || left == 0 ||
        *bytes >= QOS_WIRE_UNITS)
        return FALSE;
    item.unit = *bytes++;
    left--;
    if (!qos_wire_take_text(&bytes, &left, item.class, QOS_WIRE_CLASS_MAX) ||
        !qos_bytes_take_u32(&bytes, &left, &size) || size == 0 || size > QOS_WIRE_BUDGET_MAX ||
        size > left)
        return FALSE;
    item.bytes = bytes;
    item.length = size;
    *payload = bytes + size;
    *length = left - size;
    *ret_item = item;
    return TRUE;
}

/* --- ADMIN, ADMIN_RESULT --- */

void qos_wire_admin_clear(QosWireAdmin *admin)
{
    g_clear_pointer(&admin->command, g_free);
}

void qos_wire_admin_result_clear(QosWireAdminResult *result)
{
    g_clear_pointer(&result->text, g_free);
}

gboolean qos_wire_put_admin(GByteArray *bytes, const QosWireAdmin *admin)
{
    if (!qos_wire_is_command(admin->command))
        return FALSE;
    gsize at = qos_wire_begin(bytes, QOS_WIRE_ADMIN);
    qos_bytes_put_u64(bytes, admin->id);
    qos_bytes_put_u32(bytes, admin->uid);
    put_long_text(bytes, admin->command);
    qos_wire_end(bytes, at);
    return TRUE;
}

gboolean qos_wire_get_admin(const guint8 *payload, gsize length, QosWireAdmin *ret_admin)
{
    QosWireAdmin admin;

    if (!qos_bytes_take_u64(&payload, &length, &admin.id) ||
        !qos_bytes_take_u32(&payload, &length, &admin.uid))
        return FALSE;
    admin.command = take_long_text(&payload, &length, QOS_WIRE_COMMAND_MAX, FALSE);
    if (admin.command == NULL || admin.command[0] == '\0' || length > 0) {
        g_free(admin.command);
        return FALSE;
    }
    *ret_admin = admin;
    return TRUE;
}

/* As much of `text` as can travel. */
static char *cleaned(const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    GString *clean = g_string_new(NULL);

    for (const char *next = valid; *next != '\0'; next = g_utf8_next_char(next)) {
        gunichar letter = g_utf8_get_char(next);
        gsize size = clean->len;

        g_string_append_unichar(clean, g_unichar_iscntrl(letter) && letter != '\n' ? ' ' : letter);
        if (clean->len > QOS_WIRE_RESULT_MAX) {
            g_string_truncate(clean, size);
            break;
        }
    }
    return g_string_free(clean, FALSE);
}

void qos_wire_put_admin_result(GByteArray *bytes, const QosWireAdminResult *result)
{
    g_autofree char *text = cleaned(result->text);
    gsize at = qos_wire_begin(bytes, QOS_WIRE_ADMIN_RESULT);

    g_assert(result->error <= QOS_WIRE_ERRNO_MAX);
    qos_bytes_put_u64(bytes, result->id);
    qos_bytes_put_u32(bytes, result->error);
    put_long_text(bytes, text);
    qos_wire_end(bytes, at);
}

gboolean qos_wire_get_admin_result(const guint8 *payload, gsize length,
                                   QosWireAdminResult *ret_result)
{
    QosWireAdminResult result;
    guint32 error;

    if (!qos_bytes_take_u64(&payload, &length, &result.id) ||
        !qos_bytes_take_u32(&payload, &length, &error) || error > QOS_WIRE_ERRNO_MAX)
        return FALSE;
    result.error = error;
    result.text = take_long_text(&payload, &length, QOS_WIRE_RESULT_MAX, TRUE);
    if (result.text == NULL || length > 0) {
        g_free(result.text);
        return FALSE;
    }
    *ret_result = result;
    return TRUE;
}
