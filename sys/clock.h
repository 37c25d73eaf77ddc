/*
 * The clock of the daemon's threads. The scheduler and other pure code read no clock: the caller
 * passes them the time of this one.
 */
#pragma once

#include "base/time.h"

/* CLOCK_MONOTONIC: ns since some moment before the start; it never goes back, and stands still
 * while the machine sleeps. */
QosTime qos_clock_now(void);
