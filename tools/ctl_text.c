/*
 * Escaping, hints, tables, and numbers with their units.
 *
 * A hint is chosen from the names that are near to what the user typed, or contain it.
 *
 * If a table is too wide, its flexible columns are cut first, the widest first, down to
 * FLEXIBLE_MIN; then columns are left out from the right. Widths are those of a terminal: wide
 * characters take two columns.
 */
#include "tools/ctl_text.h"

#include <string.h>

#include "base/near.h"
#include "base/time.h"
#include "base/units.h"

#define HINTS_MAX    5
#define FLEXIBLE_MIN 12
#define GAP          2 /* spaces between columns */

char *qos_ctl_escape(const char *text)
{
    GString *escaped = g_string_new(NULL);
    for (const char *at = text; *at;) {
        gunichar character = g_utf8_get_char_validated(at, -1);
        gboolean valid = character < (gunichar)-2;
        gsize length = valid ? (gsize)(g_utf8_next_char(at) - at) : 1;
        if (valid && g_unichar_isprint(character))
            g_string_append_len(escaped, at, (gssize)length);
        else
            for (gsize i = 0; i < length; i++)
                g_string_append_printf(escaped, "\\x%02x", (guchar)at[i]);
        at += length;
    }
    return g_string_free(escaped, FALSE);
}

/* The hexadecimal digits of the escape at `text`, and its value; 0 if it is none. */
static guint read_escape(const char *text, gunichar *ret_value)
{
    guint digits = text[0] != '\\'  ? 0
                   : text[1] == 'x' ? 2
                   : text[1] == 'u' ? 4
                   : text[1] == 'U' ? 8
                                    : 0;
    *ret_value = 0;
    for (guint i = 0; i < digits; i++) {
        if (!g_ascii_isxdigit(text[2 + i]))
            return 0;
        *ret_value = *ret_value << 4 | (gunichar)g_ascii_xdigit_value(text[2 + i]);
    }
    return g_unichar_validate(*ret_value) ? digits : 0;
}

char *qos_ctl_unescape(const char *text)
{
    GString *plain = g_string_new(NULL);
    while (*text) {
        gunichar value;
        guint digits = read_escape(text, &value);
        if (digits == 0)
            g_string_append_c(plain, *text);
        else if (digits == 2)
            g_string_append_c(plain, (char)value);
        else
            g_string_append_unichar(plain, value);
        text += digits ? 2 + digits : 1;
    }
    return g_string_free(plain, FALSE);
}

typedef struct {
    const char *name;
    guint distance;
} Near;

static int compare_near(gconstpointer a, gconstpointer b)
{
    const Near *first = a, *second = b;
    if (first->distance != second->distance)
        return first->distance < second->distance ? -1 : 1;
    gsize length = strlen(first->name), other = strlen(second->name);
    if (length != other)
        return length < other ? -1 : 1;
    return strcmp(first->name, second->name);
}

char *qos_ctl_hint(const char *name, const GPtrArray *names)
{
    return qos_ctl_hint_of(NULL, name, names);
}

char *qos_ctl_hint_of(const char *group, const char *name, const GPtrArray *names)
{
    gsize length = strlen(name);
    guint limit = qos_near_limit(name);
    if (!length)
        return g_strdup("");
    g_autoptr(GArray) near = g_array_new(FALSE, FALSE, sizeof(Near));
    for (guint i = 0; i < names->len; i++) {
        Near candidate = {g_ptr_array_index(names, i), 0};
        candidate.distance = qos_near_distance(name, candidate.name, limit);
        if (candidate.distance <= limit || (length > 1 && strstr(candidate.name, name)))
            g_array_append_val(near, candidate);
    }
    g_array_sort(near, compare_near);

    GString *hint = g_string_new(NULL);
    guint count = MIN(near->len, HINTS_MAX);
    for (guint i = 0; i < count; i++) {
        g_autofree char *escaped = qos_ctl_escape(g_array_index(near, Near, i).name);
        const char *before = i == 0 ? "; did you mean " : i + 1 == count ? " or " : ", ";
        g_string_append_printf(hint, "%s'%s%s%s'%s", before, group ? group : "", group ? " " : "",
                               escaped, i + 1 == count ? "?" : "");
    }
    return g_string_free(hint, FALSE);
}

struct QosCtlTable {
    const QosCtlColumn *columns;
    guint column_count;
    GPtrArray *cells; /* owned, row by row */
};

QosCtlTable *qos_ctl_table_new(const QosCtlColumn *columns, guint count)
{
    QosCtlTable *table = g_new(QosCtlTable, 1);
    *table = (QosCtlTable){columns, count, g_ptr_array_new_with_free_func(g_free)};
    return table;
}

void qos_ctl_table_free(QosCtlTable *table)
{
    if (!table)
        return;
    g_ptr_array_unref(table->cells);
    g_free(table);
}

void qos_ctl_table_add(QosCtlTable *table, char *cell)
{
    g_ptr_array_add(table->cells, cell);
}

static guint columns_of(gunichar character)
{
    return g_unichar_iszerowidth(character) ? 0 : g_unichar_iswide(character) ? 2 : 1;
}

static guint width_of(const char *text)
{
    guint width = 0;
    for (const char *at = text; *at; at = g_utf8_next_char(at))
        width += columns_of(g_utf8_get_char(at));
    return width;
}

/* Appends `text` in exactly `width` columns. */
static void append_cell(GString *line, const char *text, guint width, gboolean right)
{
    guint full = width_of(text), used = 0;
    if (right && full < width)
        g_string_append_printf(line, "%*s", (int)(width - full), "");
    if (full <= width) {
        g_string_append(line, text);
        used = full;
    } else {
        for (; used + columns_of(g_utf8_get_char(text)) < width; text = g_utf8_next_char(text)) {
            g_string_append_unichar(line, g_utf8_get_char(text));
            used += columns_of(g_utf8_get_char(text));
        }
        g_string_append_c(line, '~');
        used++;
    }
    if (!right)
        g_string_append_printf(line, "%*s", (int)(width - used), "");
}

static guint total_width(const guint *widths, guint count)
{
    guint total = 0;
    for (guint i = 0; i < count; i++)
        total += widths[i] ? widths[i] + (total ? GAP : 0) : 0;
    return total;
}

/* Makes the columns fit into `limit`: a width of 0 leaves the column out. */
static void fit(const QosCtlTable *table, guint *widths, guint limit)
{
    for (guint total; (total = total_width(widths, table->column_count)) > limit;) {
        guint widest = table->column_count;
        for (guint i = 0; i < table->column_count; i++)
            if (table->columns[i].flexible && widths[i] > FLEXIBLE_MIN &&
                (widest == table->column_count || widths[i] > widths[widest]))
                widest = i;
        if (widest == table->column_count)
            break;
        widths[widest] = MAX(FLEXIBLE_MIN, widths[widest] - MIN(widths[widest], total - limit));
    }
    for (guint last = table->column_count;
         last-- > 1 && total_width(widths, table->column_count) > limit;)
        widths[last] = 0;
}

static void append_line(GString *text, const QosCtlTable *table, const guint *widths,
                        const char *const *cells)
{
    gsize start = text->len;
    for (guint i = 0; i < table->column_count; i++) {
        if (!widths[i])
            continue;
        if (text->len > start)
            g_string_append_printf(text, "%*s", GAP, "");
        append_cell(text, cells[i], widths[i], table->columns[i].right);
    }
    while (text->len > start && text->str[text->len - 1] == ' ')
        g_string_truncate(text, text->len - 1);
}

char *qos_ctl_table_print(const QosCtlTable *table, const QosCtlStyle *style)
{
    guint count = table->column_count;
    const char *const *cells = (const char *const *)table->cells->pdata;
    g_autofree guint *widths = g_new0(guint, count);
    g_autofree const char **titles = g_new(const char *, count);
    for (guint i = 0; i < table->cells->len; i++)
        widths[i % count] = MAX(widths[i % count], width_of(cells[i]));
    for (guint i = 0; i < count; i++) {
        titles[i] = table->columns[i].title;
        if (widths[i] || !table->columns[i].optional)
            widths[i] = MAX(widths[i], width_of(titles[i]));
    }
    if (style->width)
        fit(table, widths, style->width);

    GString *text = g_string_new(style->bold ? "\033[1m" : "");
    append_line(text, table, widths, titles);
    g_string_append(text, style->bold ? "\033[0m\n" : "\n");
    for (guint i = 0; i + count <= table->cells->len; i += count) {
        append_line(text, table, widths, cells + i);
        g_string_append_c(text, '\n');
    }
    return g_string_free(text, FALSE);
}

/* --- numbers --- */

char *qos_ctl_format_rate(double rate)
{
    if (rate < 0.05)
        return g_strdup("0");
    return g_strdup_printf(rate < 9.95 ? "%.1f" : "%.0f", rate);
}

char *qos_ctl_format_seconds(double seconds)
{
    return qos_format_duration((gint64)(CLAMP(seconds, 0, 1e9) * (double)QOS_SECOND));
}

char *qos_ctl_format_byte_rate(double rate)
{
    g_autofree char *bytes = qos_format_bytes((guint64)CLAMP(rate, 0, 1e18));
    return g_strconcat(bytes, "/s", NULL);
}
