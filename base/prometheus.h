/*
 * Metrics in Prometheus' text format, version 0.0.4, for mount and server.
 */
#pragma once

#include <glib.h>

/* What a metric is: its `type` ("gauge", "counter", "histogram"), and `help` for people. */
void qos_prometheus_head(GString *text, const char *name, const char *type, const char *help);
/* A value of it, told apart from its others by `label`, which is `of`; NULL: it has one. */
void qos_prometheus_value(GString *text, const char *name, const char *label, const char *of,
                          double value);
/* The same with several labels; `labels` are pairs of a label and what it is, ended by NULL. */
void qos_prometheus_labelled(GString *text, const char *name, const char *const *labels,
                             double value);
/* Both, of a metric with one value. */
void qos_prometheus_one(GString *text, const char *name, const char *type, const char *help,
                        double value);
