/*
 * mount.qosfs (docs/mount.qosfs.8). Everything that it does is in fs/daemon/.
 */
#include "fs/daemon/mount.h"

int main(int argc, char **argv)
{
    return qos_mount_run(argc, argv);
}
