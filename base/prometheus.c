/*
 * Prometheus' text format; base/prometheus.h says which version.
 */
#include "base/prometheus.h"

/* Appends `label="of"`, escaped as the format demands. */
static void append_label(GString *text, const char *label, const char *of)
{
    g_string_append_printf(text, "%s=\"", label);
    for (; *of != '\0'; of++) {
        if (*of == '\\' || *of == '"')
            g_string_append_printf(text, "\\%c", *of);
        else if (*of == '\n')
            g_string_append(text, "\\n");
        else
            g_string_append_c(text, *of);
    }
    g_string_append_c(text, '"');
}

void qos_prometheus_head(GString *text, const char *name, const char *type, const char *help)
{
    g_string_append_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void qos_prometheus_labelled(GString *text, const char *name, const char *const *labels,
                             double value)
{
    char number[G_ASCII_DTOSTR_BUF_SIZE];

    g_string_append(text, name);
    for (guint i = 0; labels[i] != NULL; i += 2) {
        g_string_append_c(text, i == 0 ? '{' : ',');
        append_label(text, labels[i], labels[i + 1]);
    }
    if (labels[0] != NULL)
        g_string_append_c(text, '}');
    g_ascii_formatd(number, sizeof(number), "%.17g", value);
    g_string_append_printf(text, " %s\n", value > G_MAXDOUBLE ? "+Inf" : number);
}

void qos_prometheus_value(GString *text, const char *name, const char *label, const char *of,
                          double value)
{
    qos_prometheus_labelled(text, name, (const char *const[]){label, of, NULL}, value);
}

void qos_prometheus_one(GString *text, const char *name, const char *type, const char *help,
                        double value)
{
    qos_prometheus_head(text, name, type, help);
    qos_prometheus_value(text, name, NULL, NULL, value);
}
