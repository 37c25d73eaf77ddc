/*
 * JobIDs in YAML, as Lustre writes them in job_stats, and read back from what a user copies.
 *
 * Any user chooses a JobID, and one id that YAML takes for something else makes the file unreadable
 * for all. Lustre quotes an id that has a byte outside its set, a colon, or an @ in front, and
 * leaves "-", "null" or "2026-13-45" plain. Here an id is plain only if YAML 1.1 and 1.2 read it as
 * a string, or as the integer of the same digits, which is how Lustre prints a scheduler's number.
 * All others are quoted. In quotes \xHH is a character of YAML, so a character beyond ASCII, of
 * several bytes, is written \uHHHH.
 */
#include <errno.h>
#include <string.h>

#include "fs/control/report.h"

#define DIGITS_MAX 18 /* more do not fit the integers of all readers */

/* --- writing --- */

static gboolean is_in_set(char byte)
{
    return g_ascii_isalnum(byte) || (byte && strchr(".@-_:/", byte));
}

/* Words that YAML takes for a boolean or nothing; and the one that clears all jobs. */
static gboolean is_word(const char *id)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n",   "clear"};

    for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
        if (g_ascii_strcasecmp(id, words[i]) == 0)
            return TRUE;
    }
    return FALSE;
}

/* Begins with a digit: not a number in another notation (0x10, 1e3, 4711_3, 4711.0), nor a date. */
static gboolean is_plain_number(const char *id)
{
    gsize length = strlen(id);

    if (strspn(id, "0123456789") == length)
        return length <= DIGITS_MAX && (*id != '0' || length == 1);
    /* Numbers and dates without a colon have no other letters than these. */
    for (; *id; id++) {
        if (g_ascii_isalpha(*id) && !strchr("abcdefoxABCDEFOX", *id))
            return TRUE;
    }
    return FALSE;
}

static gboolean is_plain(const char *id)
{
    for (const char *at = id; *at; at++) {
        if (!is_in_set(*at) || *at == ':')
            return FALSE;
    }
    if (g_ascii_isdigit(*id))
        return is_plain_number(id);
    return (g_ascii_isalpha(*id) || *id == '_' || *id == '/') && !is_word(id);
}

void qos_report_append_quoted_id(GString *text, const char *id)
{
    g_string_append_c(text, '"');
    while (*id) {
        gunichar character = g_utf8_get_char_validated(id, -1);
        gboolean is_valid = character < (gunichar)-2;

        if (is_in_set(*id))
            g_string_append_c(text, *id);
        else if (!is_valid || character < 0x80)
            g_string_append_printf(text, "\\x%02X", (guchar)*id);
        else
            g_string_append_printf(text, character > 0xffff ? "\\U%08X" : "\\u%04X", character);
        id = is_valid ? g_utf8_next_char(id) : id + 1;
    }
    g_string_append_c(text, '"');
}

void qos_report_append_yaml_id(GString *text, const char *id)
{
    if (is_plain(id))
        g_string_append(text, id);
    else
        qos_report_append_quoted_id(text, id);
}

/* --- reading --- */

/* Reads the escape after the backslash at `at`; returns what follows, NULL if it is none. */
static const char *read_escape(const char *at, GString *id)
{
    guint digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    gunichar value = 0;

    if (digits == 0)
        return NULL;
    for (guint i = 1; i <= digits; i++) {
        if (!g_ascii_isxdigit(at[i]))
            return NULL;
        value = value << 4 | (gunichar)g_ascii_xdigit_value(at[i]);
    }
    if (value == 0 || (digits > 2 && !g_unichar_validate(value)))
        return NULL;
    if (digits == 2) /* a byte, to Lustre */
        g_string_append_c(id, (char)value);
    else
        g_string_append_unichar(id, value);
    return at + 1 + digits;
}

char *qos_report_read_quoted_id(const char *text)
{
    gsize length = strlen(text);
    const char *end = text + length - 1;
    g_autoptr(GString) id = g_string_new(NULL);

    if (length < 2 || *text != '"' || *end != '"')
        return NULL;
    for (const char *at = text + 1; at < end;) {
        if (*at != '\\') {
            g_string_append_c(id, *at++);
            continue;
        }
        at = read_escape(at + 1, id);
        if (!at || at > end)
            return NULL;
    }
    return g_string_free(g_steal_pointer(&id), FALSE);
}
