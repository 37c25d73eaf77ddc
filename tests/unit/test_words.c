/*
 * Values of short options in one word with them.
 */
#include "base/words.h"

static const GOptionEntry entries[] = {
    {"limit", 'n', 0, G_OPTION_ARG_INT, NULL, NULL, NULL},
    {"json", 'j', 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
    {"long", 0, 0, G_OPTION_ARG_STRING, NULL, NULL, NULL},
    {NULL},
};

static void test_split(void)
{
    static const struct {
        const char *given, *split;
    } cases[] = {
        {"ctl jobs -n5", "ctl jobs -n 5"},
        {"ctl -n5 -n6 x", "ctl -n 5 -n 6 x"},
        {"ctl -n 5", "ctl -n 5"},
        {"ctl -n", "ctl -n"},
        {"ctl -jn", "ctl -jn"},
        {"ctl --long -x5 -", "ctl --long -x5 -"},
        {"ctl -- -n5", "ctl -- -n5"},
        {"", ""},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(GStrv) words = g_strsplit(cases[i].given, " ", -1);
        qos_words_split(&words, entries);
        g_autofree char *split = g_strjoinv(" ", words);
        g_assert_cmpstr(split, ==, cases[i].split);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/words/split", test_split);
    return g_test_run();
}
