/* What qosfsctl makes of the mount's history. */
#include <errno.h>
#include <json-glib/json-glib.h>
#include <string.h>

#include "base/error.h"
#include "tools/ctl_history.h"

#define HEADER                                                                                     \
    "time,seconds,job,operations,read_bytes,write_bytes,waits,waited_us,lent,returned,borrowed,"   \
    "repaid\n"

static const char sample[] = HEADER "3600,3600,old,7,0,0,0,0,0,0,0,0\n"
                                    "7200,300,a,1,2,3,4,5,6.5,7,8,9\n"
                                    "7200,300,,100,0,0,0,0,0,0,0,0\n"
                                    "7500,10,b\\x3Cc\\x20\\xFF,2,0,131072,0,0,0,0,0,0\n"
                                    "7510,10,a,1,0,0,0,0,0,0,0,0\n";

static QosCtlHistory *parse(const char *text)
{
    g_autoptr(GError) error = NULL;
    QosCtlHistory *history = qos_ctl_history_parse(text, &error);
    g_assert_no_error(error);
    return history;
}

static JsonArray *jobs_of(const QosCtlHistory *history, const QosCtlSlices *slices)
{
    g_autoptr(GString) json = g_string_new(NULL);
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autoptr(GError) error = NULL;
    qos_ctl_history_append_jobs(history, slices, json);
    g_assert_null(strchr(json->str, '<'));
    json_parser_load_from_data(parser, json->str, -1, &error);
    g_assert_no_error(error);
    return json_array_ref(json_node_get_array(json_parser_get_root(parser)));
}

static double value(JsonArray *jobs, guint job, const char *series, guint slice)
{
    JsonObject *object = json_array_get_object_element(jobs, job);
    return json_array_get_double_element(json_object_get_array_member(object, series), slice);
}

static const char *id(JsonArray *jobs, guint job)
{
    return json_object_get_string_member(json_array_get_object_element(jobs, job), "id");
}

static void test_series(void)
{
    g_autoptr(QosCtlHistory) history = parse(sample);
    const QosCtlSlices slices = {7200, 300, 3};
    g_autoptr(JsonArray) jobs = jobs_of(history, &slices);

    /* The largest first, the others last; what lies outside is not there. */
    g_assert_cmpuint(json_array_get_length(jobs), ==, 3);
    g_assert_cmpstr(id(jobs, 0), ==, "b<c \\xff");
    g_assert_cmpstr(id(jobs, 1), ==, "a");
    g_assert_true(json_object_get_null_member(json_array_get_object_element(jobs, 2), "id"));
    JsonObject *first = json_array_get_object_element(jobs, 0);
    g_assert_cmpint(json_object_get_int_member(first, "start"), ==, 1);
    g_assert_false(json_object_has_member(first, "read_bytes"));
    g_assert_cmpfloat(value(jobs, 0, "write_bytes", 0), ==, 131072);
    g_assert_cmpfloat(value(jobs, 1, "operations", 0), ==, 1);
    g_assert_cmpfloat(value(jobs, 1, "operations", 1), ==, 1);
    g_assert_cmpfloat(value(jobs, 1, "lent", 0), ==, 6.5);
    g_assert_cmpfloat(value(jobs, 1, "repaid", 0), ==, 9);
}

static void test_select(void)
{
    static const char *const named[] = {"a", "b<c \\xff", NULL}, *const raw[] = {"b<c \xff", NULL};
    static const char *const missing[] = {"a", "old", NULL};
    g_autoptr(QosCtlHistory) history = parse(sample);
    g_autoptr(GError) error = NULL;
    g_autofree char *whole = qos_ctl_history_csv(history);

    g_assert_cmpstr(whole, ==, sample);
    g_assert_true(qos_ctl_history_select(history, 7200, NULL, &error));
    g_autofree char *recent = qos_ctl_history_csv(history);
    g_assert_null(strstr(recent, "old"));
    g_assert_false(qos_ctl_history_select(history, 7200, missing, &error));
    g_assert_error(error, QOS_ERROR, ENOENT);
    g_assert_nonnull(strstr(error->message, "'old'"));
    g_clear_error(&error);

    g_assert_true(qos_ctl_history_select(history, 7505, named, &error)); /* within a slice */
    g_autofree char *two = qos_ctl_history_csv(history);
    g_assert_cmpstr(two, ==,
                    HEADER "7500,10,b\\x3Cc\\x20\\xFF,2,0,131072,0,0,0,0,0,0\n"
                           "7510,10,a,1,0,0,0,0,0,0,0,0\n");
    g_assert_true(qos_ctl_history_select(history, 7500, raw, &error));
    g_autofree char *one = qos_ctl_history_csv(history);
    g_assert_null(strstr(one, ",a,"));
}

static void test_refused(void)
{
    static const char *const wrong[] = {
        "",
        "time,seconds\n",
        HEADER "7500,10,a,1,0,0,0,0,0,0,0\n",
        HEADER "7500,10,a,1,0,0,0,0,0,0,0,0,0\n",
        HEADER "7500,0,a,1,0,0,0,0,0,0,0,0\n",
        HEADER "7500,10,a,-1,0,0,0,0,0,0,0,0\n",
        HEADER "7500,10,a,1e300,0,0,0,0,0,0,0,0\n",
        HEADER "7500,10,a,nan,0,0,0,0,0,0,0,0\n",
        HEADER "\n7500,10,a,1,0,0,0,0,0,0,0,0\n",
        HEADER "7500,10,a,1,0,0,0,0,0,0,0,0", /* cut off */
    };
    for (guint i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(qos_ctl_history_parse(wrong[i], &error));
        g_assert_error(error, QOS_ERROR, EPROTO);
    }
    g_autoptr(QosCtlHistory) empty = parse(HEADER);
    const QosCtlSlices slices = {0, 10, 10};
    g_autoptr(JsonArray) jobs = jobs_of(empty, &slices);
    g_assert_cmpuint(json_array_get_length(jobs), ==, 0);
}

/* Fine where the mount is fine, and never too many. */
static void test_slices(void)
{
    static const struct {
        gint64 length;
        gint64 step;
    } cases[] = {{60, 10},     {3600, 10},        {3601, 300},
                 {86400, 300}, {7 * 86400, 3600}, {90 * 86400, 3 * 3600}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        QosCtlSlices slices = qos_ctl_history_slices(1800000123, cases[i].length);
        g_assert_cmpint(slices.step, ==, cases[i].step);
        g_assert_cmpint(slices.from % slices.step, ==, 0);
        g_assert_cmpint(slices.from, <=, 1800000123 - cases[i].length);
        g_assert_cmpint(slices.from + slices.step * slices.count, >, 1800000123);
        g_assert_cmpuint(slices.count, <=, 722);
    }
}

/* Thousands of jobs make a page that is still small, and nothing is lost. */
static void test_others(void)
{
    g_autoptr(GString) text = g_string_new(HEADER);
    for (guint i = 0; i < 5000; i++)
        g_string_append_printf(text, "7500,10,j%u,%u,0,0,0,0,0,0,0,0\n", i, i + 1);
    g_autoptr(QosCtlHistory) history = parse(text->str);
    const QosCtlSlices slices = {7500, 10, 1};
    g_autoptr(JsonArray) jobs = jobs_of(history, &slices);
    double sum = 0;
    g_assert_cmpuint(json_array_get_length(jobs), ==, QOS_CTL_HISTORY_JOBS + 1);
    g_assert_cmpstr(id(jobs, 0), ==, "j4999");
    g_assert_true(json_object_get_null_member(
        json_array_get_object_element(jobs, QOS_CTL_HISTORY_JOBS), "id"));
    for (guint i = 0; i < json_array_get_length(jobs); i++)
        sum += value(jobs, i, "operations", 0);
    g_assert_cmpfloat(sum, ==, 5000.0 * 5001 / 2);
}

static void test_strings(void)
{
    g_autoptr(GString) json = g_string_new(NULL);
    qos_ctl_history_append_string(json, "a\"b\\c</script>\n\x01\xc3\xa9\xff&");
    g_assert_cmpstr(json->str, ==,
                    "\"a\\u0022b\\u005cc\\u003c/script\\u003e\\u000a\\u0001\xc3\xa9\xef\xbf\xbd"
                    "\\u0026\"");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl_history/series", test_series);
    g_test_add_func("/ctl_history/select", test_select);
    g_test_add_func("/ctl_history/refused", test_refused);
    g_test_add_func("/ctl_history/slices", test_slices);
    g_test_add_func("/ctl_history/others", test_others);
    g_test_add_func("/ctl_history/strings", test_strings);
    return g_test_run();
}
