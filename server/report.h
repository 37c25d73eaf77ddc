/*
 * The server's state as text: JSON for qosfsctl, and metrics for Prometheus.
 */
#pragma once

#include "server/cluster.h"
#include "server/grants.h"
#include "server/listener.h"

/* JSON for qosfsctl and scripts: one object, ended by a newline; free with g_free. */
char *qos_server_report_state(const QosGrants *grants, const QosCluster *cluster,
                              const QosListenerStatistics *sockets);
/* Prometheus text format; free with g_free. */
char *qos_server_report_metrics(const QosGrants *grants, const QosCluster *cluster,
                                const QosListenerStatistics *sockets);
