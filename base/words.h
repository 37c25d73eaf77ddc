/*
 * Words that users type: how a word of a command line is split, and how an error message quotes it.
 *
 * GOption does not accept a short option and its value in one word (-n5 for -n 5), although POSIX
 * requires it (Utility Syntax Guidelines, 6). So such words are split before GOption reads them.
 */
#pragma once

#include <glib.h>

/* Splits such words of `words` (which end with NULL; owned, replaced), for those of `entries`
 * (which end with {NULL}) that take a value. What follows "--" stays. */
void qos_words_split(char ***words, const GOptionEntry *entries);
/* `text` (UTF-8) for an error: in double quotes, cut after 48 characters; free with g_free. */
char *qos_quote(const char *text);
