/*
 * Reports that memory is short, on the machine or in the daemon's cgroup. It uses the kernel's
 * pressure stall information (PSI, Documentation/accounting/psi.rst): memory is short when tasks
 * have waited for memory for 300 ms within two seconds. Each of the two places reports at most once
 * in two seconds, for as long as it lasts.
 */
#pragma once

#include <glib.h>

#define QOS_PRESSURE_PLACES 2

typedef struct QosPressure QosPressure;

/* Opens the places that this kernel has: returns how many, descriptors that poll() finds readable
 * out of band (POLLPRI) when memory is short. Call it before the filter of system calls is there.
 */
guint qos_pressure_open(int ret_fds[QOS_PRESSURE_PLACES]);

/* Calls `pressed` in the thread that runs the context. Takes the descriptors. */
QosPressure *qos_pressure_new(const int *fds, guint count, GMainContext *context,
                              void (*pressed)(gpointer arg), gpointer arg);
/* When the context does not run. NULL is allowed. */
void qos_pressure_free(QosPressure *pressure);
