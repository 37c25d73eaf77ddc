/*
 * Included ahead of every file of the pure archive (floors F0 and F1) by the build, never by hand.
 *
 * Pure code takes the time as an argument, randomness as a seeded generator, and neither waits nor
 * does I/O, so that the simulator and the unit tests run the very code of the mount. The names that
 * would break this are poisoned here: using one is a compile error. tests/purity looks once more,
 * at the archive's undefined symbols.
 *
 * The headers come first because poisoning an identifier that a later header mentions is an error.
 */
#pragma once

#include <errno.h>
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison clock_gettime gettimeofday time clock nanosleep usleep sleep
#pragma GCC poison g_get_monotonic_time g_get_real_time g_date_time_new_now g_usleep g_timer_new
#pragma GCC poison rand random srand g_random_int g_random_int_range g_random_double
#pragma GCC poison pthread_create pthread_mutex_lock g_thread_new g_mutex_lock g_cond_wait
#pragma GCC poison open read write close socket fopen fprintf printf puts g_print g_printerr
#undef g_message /* macros: undefined, so that they can be poisoned */
#undef g_warning
#undef g_debug
#pragma GCC poison g_log g_message g_warning g_debug getenv g_getenv system
