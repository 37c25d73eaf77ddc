/*
 * Adds members to the JSON objects in which mount and server report. Each member is added to the
 * object that `json` has begun last.
 */
#pragma once

#include <json-glib/json-glib.h>

/* Any bytes: what is no UTF-8 becomes other characters. NULL: null. */
void qos_json_add_text(JsonBuilder *json, const char *name, const char *text);
void qos_json_add_boolean(JsonBuilder *json, const char *name, gboolean value);
/* A count beyond 2^63 - 1 is shown as that. */
void qos_json_add_count(JsonBuilder *json, const char *name, guint64 count);
/* Finite: JSON has no other numbers. */
void qos_json_add_number(JsonBuilder *json, const char *name, double number);
/* Until json_builder_end_object(). */
void qos_json_begin_object(JsonBuilder *json, const char *name);
/* Until json_builder_end_array(). */
void qos_json_begin_array(JsonBuilder *json, const char *name);
