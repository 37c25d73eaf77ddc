/*
 * Members of JSON objects, for the reports of mount and server (net/report_json.h).
 */
#include "net/report_json.h"

void qos_json_add_text(JsonBuilder *json, const char *name, const char *text)
{
    g_autofree char *valid = text ? g_utf8_make_valid(text, -1) : NULL;

    json_builder_set_member_name(json, name);
    if (valid)
        json_builder_add_string_value(json, valid);
    else
        json_builder_add_null_value(json);
}

void qos_json_add_boolean(JsonBuilder *json, const char *name, gboolean value)
{
    json_builder_set_member_name(json, name);
    json_builder_add_boolean_value(json, value);
}

void qos_json_add_count(JsonBuilder *json, const char *name, guint64 count)
{
    json_builder_set_member_name(json, name);
    json_builder_add_int_value(json, (gint64)MIN(count, G_MAXINT64));
}

void qos_json_add_number(JsonBuilder *json, const char *name, double number)
{
    json_builder_set_member_name(json, name);
    json_builder_add_double_value(json, number);
}

void qos_json_begin_object(JsonBuilder *json, const char *name)
{
    json_builder_set_member_name(json, name);
    json_builder_begin_object(json);
}

void qos_json_begin_array(JsonBuilder *json, const char *name)
{
    json_builder_set_member_name(json, name);
    json_builder_begin_array(json);
}
