/*
 * Which names are near to a mistyped one.
 */
#include "base/near.h"

#define FAR 100

static void test_distance(void)
{
    static const struct {
        const char *a, *b;
        guint distance;
    } cases[] = {
        {"", "", 0},
        {"slots", "slots", 0},
        {"", "slots", 5},
        {"slts", "slots", 1},   /* one left out */
        {"slotss", "slots", 1}, /* one put in */
        {"slats", "slots", 1},  /* one replaced */
        {"SLoTS", "slots", 0},  /* as large letters */
        {"slost", "slots", 1},  /* neighbours swapped */
        {"lsost", "slots", 2},  /* two of each */
        {"tols", "slots", 3},
        {"kitten", "sitting", 3},
        {"ca", "abc", 3}, /* what was swapped is not edited again */
        {"\xff", "\x7f", 1},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_cmpuint(qos_near_distance(cases[i].a, cases[i].b, FAR), ==, cases[i].distance);
        g_assert_cmpuint(qos_near_distance(cases[i].b, cases[i].a, FAR), ==, cases[i].distance);
    }
}

/* Also of names that are so long that the table would not fit into memory. */
static void test_beyond_the_limit(void)
{
    g_autofree char *name = g_strnfill(1 << 20, 'x');

    g_assert_cmpuint(qos_near_distance(name, "slots", 3), >, 3);
    g_assert_cmpuint(qos_near_distance("slots", name, 3), >, 3);
    g_assert_cmpuint(qos_near_distance("kitten", "sitting", 2), >, 2);
    g_assert_cmpuint(qos_near_distance("kitten", "sitting", 3), ==, 3);
}

static void test_limit(void)
{
    g_assert_cmpuint(qos_near_limit(""), ==, 0);
    g_assert_cmpuint(qos_near_limit("d"), ==, 0); /* it would be any name of two */
    g_assert_cmpuint(qos_near_limit("ro"), ==, 1);
    g_assert_cmpuint(qos_near_limit("cache"), ==, 1);
    g_assert_cmpuint(qos_near_limit("timeout"), ==, 2);
    g_assert_cmpuint(qos_near_limit("allow_other"), ==, 3);
}

static const char *nearest(const char *name, const char *const *candidates)
{
    QosNear near;

    qos_near_init(&near, name);
    for (; *candidates != NULL; candidates++)
        qos_near_consider(&near, *candidates);
    return near.nearest;
}

static void test_nearest(void)
{
    const char *const options[] = {"ro", "rw", "cache", "slots", "allow_other", "noallow_other",
                                   NULL};

    g_assert_cmpstr(nearest("cahce", options), ==, "cache");
    g_assert_cmpstr(nearest("slot", options), ==, "slots");
    g_assert_cmpstr(nearest("noalow_other", options), ==, "noallow_other");
    g_assert_cmpstr(nearest("rx", options), ==, "ro"); /* the first of equals */
    g_assert_cmpstr(nearest("sync", options), ==, NULL);
    g_assert_cmpstr(nearest("ro", options + 5), ==, NULL);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/near/distance", test_distance);
    g_test_add_func("/near/beyond-the-limit", test_beyond_the_limit);
    g_test_add_func("/near/limit", test_limit);
    g_test_add_func("/near/nearest", test_nearest);
    return g_test_run();
}
