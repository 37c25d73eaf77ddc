/*
 * Words that people write: how a command line is taken apart, and how an error quotes what it
 * complains about.
 *
 * GOption does not read the value of a short option in one word with it, -n5 for -n 5, as POSIX has
 * it (Utility Syntax Guidelines, 6).
 */
#pragma once

#include <glib.h>

/* Splits such words of `words` (which end with NULL; owned, replaced), for those of `entries`
 * (which end with {NULL}) that take a value. What follows "--" stays. */
void qos_words_split(char ***words, const GOptionEntry *entries);
/* `text` (UTF-8) for an error: in double quotes, cut after 48 characters; free with g_free. */
char *qos_quote(const char *text);
