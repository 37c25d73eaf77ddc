/* Which mount qosfsctl talks to. */
#include "tools/ctl_mount.h"

static const char mountinfo[] =
    "22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "30 22 0:41 / /qos rw,nosuid shared:2 - fuse.qosfs /lustre rw,user_id=0\n"
    "31 22 0:42 / /mnt/with\\040space rw - fuse.qosfs /srv rw\n"
    "32 22 0:43 / /mnt/other rw - fuse.sshfs host:/ rw\n"
    "33 30 0:44 / /qos/below rw - tmpfs tmpfs rw\n"
    "34 22 0:41 /part /bind rw - fuse.qosfs /lustre rw\n"
    "35 22 0:45 / /covered rw - fuse.qosfs /a rw\n"
    "36 35 0:46 / /covered rw - tmpfs tmpfs rw\n"
    "no line of a mount\n"
    "37 22 0:47 / /not-qosfs rw - fuse.qosfsish /a rw\n";

static void test_containing(void)
{
    static const char *const cases[][2] = {
        {"/qos", "/qos"},
        {"/qos/a/b", "/qos"},
        {"/qosx", NULL},
        {"/", NULL},
        {"/mnt/with space/a", "/mnt/with space"},
        {"/mnt/other/x", NULL},
        {"/qos/below/x", NULL},
        {"/bind/x", "/qos"},
        {"/covered", NULL},
        {"/not-qosfs", NULL},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *mountpoint = qos_ctl_mount_containing(mountinfo, cases[i][0]);
        g_assert_cmpstr(mountpoint, ==, cases[i][1]);
    }
    g_assert_null(qos_ctl_mount_containing("", "/qos"));
}

static void test_all(void)
{
    g_autoptr(GPtrArray) all = qos_ctl_mount_all(mountinfo);
    g_assert_cmpuint(all->len, ==, 3);
    g_assert_cmpstr(all->pdata[0], ==, "/qos");
    g_assert_cmpstr(all->pdata[1], ==, "/mnt/with space");
    g_assert_cmpstr(all->pdata[2], ==, "/covered");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/mount/containing", test_containing);
    g_test_add_func("/ctl/mount/all", test_all);
    return g_test_run();
}
