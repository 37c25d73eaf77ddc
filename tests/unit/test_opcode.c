/*
 * Names of operations, and the groups.
 */
#include "base/opcode.h"

#include <string.h>

static QosOpcodeSet set(const char *name)
{
    return qos_opcode_set_from_name(name, strlen(name));
}

static void test_each_name_stands_for_its_opcode(void)
{
    for (guint i = 0; i < QOS_OP_COUNT; i++)
        g_assert_cmphex(set(qos_opcode_name(i)), ==, G_GUINT64_CONSTANT(1) << i);
}

static void test_groups_divide_all(void)
{
    g_assert_cmphex(set("data") | set("meta"), ==, set("*"));
    g_assert_cmphex(set("data") & set("meta"), ==, 0);
    g_assert_cmphex(set("*"), ==, (G_GUINT64_CONSTANT(1) << QOS_OP_COUNT) - 1);
    g_assert_cmphex(set("data"), ==, set("read") | set("write") | set("copy"));
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        gboolean in_data = (set("data") >> i & 1) != 0;

        g_assert_true(qos_opcode_is_data(i) == in_data);
    }
}

static void test_unknown_names(void)
{
    g_assert_cmphex(set(""), ==, 0);
    g_assert_cmphex(set("rea"), ==, 0);
    g_assert_cmphex(set("reads"), ==, 0);
    g_assert_cmphex(set("READ"), ==, 0);
    g_assert_cmphex(set("**"), ==, 0);
    g_assert_cmphex(qos_opcode_set_from_name("readdir", 4), ==, set("read"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/opcode/names", test_each_name_stands_for_its_opcode);
    g_test_add_func("/opcode/groups", test_groups_divide_all);
    g_test_add_func("/opcode/unknown", test_unknown_names);
    return g_test_run();
}
