/*
 * What people write on a command line and GOption does not read: the value of a short option in one
 * word with it, -n5 for -n 5, as POSIX has it (Utility Syntax Guidelines, 6).
 */
#pragma once

#include <glib.h>

/* Splits such words of `words` (which end with NULL; owned, replaced), for those of `entries`
 * (which end with {NULL}) that take a value. What follows "--" stays. */
void qos_words_split(char ***words, const GOptionEntry *entries);
