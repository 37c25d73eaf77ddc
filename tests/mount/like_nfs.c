/*
 * To be preloaded: the store passes for NFS, which gives a removed or replaced file another name as
 * long as the process has a descriptor of it.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define DESCRIPTORS 1000 /* that are looked at */

int fstatfs(int fd, struct statfs *statfs)
{
    const int result = (int)syscall(SYS_fstatfs, fd, statfs);

    statfs->f_type = NFS_SUPER_MAGIC;
    return result;
}

static void keep(int folder, const char *name)
{
    struct stat file, held;
    char kept[32];

    if (fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(file.st_mode))
        return;
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        if (fstat(fd, &held) != 0 || held.st_ino != file.st_ino || held.st_dev != file.st_dev)
            continue;
        snprintf(kept, sizeof(kept), ".nfs%llx", (unsigned long long)file.st_ino);
        if (linkat(folder, name, folder, kept, 0) == 0)
            return;
    }
}

int unlinkat(int folder, const char *name, int flags)
{
    keep(folder, name);
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

int renameat2(int folder, const char *name, int other, const char *new_name, unsigned flags)
{
    keep(other, new_name);
    return (int)syscall(SYS_renameat2, folder, name, other, new_name, flags);
}
