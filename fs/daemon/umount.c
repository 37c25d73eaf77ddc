/*
 * umount.fuse.qosfs: the helper that umount(8) runs to unmount a qosfs mount.
 *
 * When umount(2) returns, the daemon has yet to save its data and to close the store. A script that
 * unmounts the store next would find it busy. So the helper first asks the mount for its daemon.
 * Then it has the mount unmounted, by umount(8) without helpers or by fusermount3(1), and waits for
 * the daemon's end. The wait is bounded, because the mount is gone already.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/daemon/mountpoint.h"
#include "fs/daemon/umount_daemon.h"

#define EXIT_USAGE  1
#define EXIT_FAILED 32
#define PATIENCE    90 /* s, as systemd has for what stops */
#define BRIEF       1  /* s: what is detached may be in use for long */

typedef struct {
    char *directory;
    char *name_space; /* -N; or NULL */
    gboolean is_lazy;
    gboolean is_forced;
    GPtrArray *flags; /* for umount(8) */
} Options;

static void print_usage(FILE *file)
{
    fputs("Usage: umount.fuse.qosfs DIR [-flnrv] [-N NAMESPACE] [-t TYPE]\n"
          "\n"
          "Unmounts qosfs from DIR, and returns when its daemon has ended. umount(8) calls it.\n",
          file);
}

/* Resolves symbolic links without touching the mount itself, which may hang or be dead. */
static char *resolve(const char *directory)
{
    g_autofree char *path = g_canonicalize_filename(directory, NULL);
    g_autofree char *folder = g_path_get_dirname(path);
    g_autofree char *name = g_path_get_basename(path);
    char *real = realpath(folder, NULL);
    char *resolved = g_build_filename(real ? real : folder, name, NULL);

    free(real);
    return resolved;
}

/* FALSE: the command line is wrong. */
static gboolean parse(Options *options, int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "flnrvhN:t:")) != -1) {
        if (option == 'h') {
            print_usage(stdout);
            exit(EXIT_SUCCESS);
        }
        if (option == '?')
            return FALSE;
        if (option == 't')
            continue;
        options->is_lazy = options->is_lazy || option == 'l';
        options->is_forced = options->is_forced || option == 'f';
        g_ptr_array_add(options->flags, g_strdup_printf("-%c", option));
        if (option == 'N') {
            options->name_space = optarg;
            g_ptr_array_add(options->flags, g_strdup(optarg));
        }
    }
    if (optind != argc - 1)
        return FALSE;
    options->directory = resolve(argv[optind]);
    return TRUE;
}

/* An ordinary user's own mount goes by fusermount3(1), all others by umount(8), which knows what
 * fstab lets users do. */
static GPtrArray *new_command(const Options *options)
{
    GPtrArray *command = g_ptr_array_new_with_free_func(g_free);
    uid_t owner = 0;
    gid_t group;

    if (getuid() != 0 && qos_mountpoint_owner(options->directory, &owner, &group) &&
        owner == getuid()) {
        g_ptr_array_add(command, g_strdup("fusermount3"));
        g_ptr_array_add(command, g_strdup("-u"));
        if (options->is_lazy)
            g_ptr_array_add(command, g_strdup("-z"));
    } else {
        g_ptr_array_add(command, g_strdup("umount"));
        g_ptr_array_add(command, g_strdup("-i"));
        if (getuid() == 0) /* without a look at the mount; only root may say so */
            g_ptr_array_add(command, g_strdup("-c"));
        for (guint i = 0; i < options->flags->len; i++)
            g_ptr_array_add(command, g_strdup(g_ptr_array_index(options->flags, i)));
    }
    g_ptr_array_add(command, g_strdup("--"));
    g_ptr_array_add(command, g_strdup(options->directory));
    g_ptr_array_add(command, NULL);
    return command;
}

/* The exit status. */
static int unmount(const Options *options)
{
    g_autoptr(GPtrArray) command = new_command(options);
    g_autoptr(GError) error = NULL;
    int status;

    if (!g_spawn_sync(NULL, (char **)command->pdata, NULL,
                      G_SPAWN_SEARCH_PATH | G_SPAWN_CHILD_INHERITS_STDIN, NULL, NULL, NULL, NULL,
                      &status, &error)) {
        fprintf(stderr, "umount.fuse.qosfs: cannot unmount %s: %s\n", options->directory,
                error->message);
        return EXIT_FAILED;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    Options options = {.flags = g_ptr_array_new_with_free_func(g_free)};
    QosUmountDaemon daemon = {.handle = -1};
    int status = EXIT_USAGE;

    if (parse(&options, argc, argv)) {
        /* With -f the user believes that the daemon hangs, so it is not asked. In another namespace
         * the table of its mounts cannot be seen. */
        if (!options.is_forced && !options.name_space)
            daemon = qos_umount_daemon_find(options.directory);
        status = unmount(&options);
        if (status == EXIT_SUCCESS)
            qos_umount_daemon_await(&daemon, options.directory, options.is_lazy ? BRIEF : PATIENCE,
                                    options.is_lazy);
    } else {
        print_usage(stderr);
    }
    qos_umount_daemon_clear(&daemon);
    g_ptr_array_unref(options.flags);
    g_free(options.directory);
    return status;
}
