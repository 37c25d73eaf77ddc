/*
 * Splits the words of a command line, and quotes words in error messages (base/words.h).
 */
#include "base/words.h"

#define QUOTE_MAX 48 /* characters of the offending text in an error */

static gboolean takes_value(const GOptionEntry *entries, char short_name)
{
    for (; entries->long_name != NULL; entries++) {
        if (entries->short_name == short_name)
            return entries->arg != G_OPTION_ARG_NONE && !(entries->flags & G_OPTION_FLAG_NO_ARG);
    }
    return FALSE;
}

void qos_words_split(char ***words, const GOptionEntry *entries)
{
    g_autoptr(GStrvBuilder) builder = g_strv_builder_new();
    gboolean is_over = FALSE;

    for (char **word = *words; *word != NULL; word++) {
        const char *text = *word;

        is_over = is_over || g_str_equal(text, "--");
        if (!is_over && text[0] == '-' && text[1] != '\0' && text[2] != '\0' &&
            takes_value(entries, text[1])) {
            const char option[] = {'-', text[1], '\0'};
            g_strv_builder_add_many(builder, option, text + 2, NULL);
        } else {
            g_strv_builder_add(builder, text);
        }
    }
    g_strfreev(*words);
    *words = g_strv_builder_end(builder);
}

char *qos_quote(const char *text)
{
    const char *end = text;

    for (guint i = 0; i < QUOTE_MAX && *end != '\0'; i++)
        end = g_utf8_next_char(end);
    return g_strdup_printf("\"%.*s%s\"", (int)(end - text), text, *end == '\0' ? "" : "...");
}
