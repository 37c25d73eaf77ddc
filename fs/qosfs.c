/*
 * mount.qosfs (docs/mount.qosfs.8). All that it does is below fs/daemon/.
 */
#include "fs/daemon/mount.h"

int main(int argc, char **argv)
{
    return qos_mount_run(argc, argv);
}
