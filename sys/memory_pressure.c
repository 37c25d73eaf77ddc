/*
 * Memory pressure. sys/memory_pressure.h has the contract.
 */
#include "sys/memory_pressure.h"

#include <fcntl.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* us of waiting, in a window of us: other windows need CAP_SYS_RESOURCE. */
#define TRIGGER     "some 300000 2000000"

#define ROOT_NUMBER 1 /* of the inode of the root cgroup */

struct QosPressure {
    int fds[QOS_PRESSURE_PLACES];
    GSource *sources[QOS_PRESSURE_PLACES];
    guint count;
    void (*pressed)(gpointer arg);
    gpointer arg;
};

/* A descriptor, or -1: no such file, no PSI, not permitted. */
static int open_trigger(const char *path)
{
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || write(fd, TRIGGER, sizeof(TRIGGER)) == sizeof(TRIGGER))
        return fd;
    close(fd);
    return -1;
}

/* Whether `folder` is a cgroup (version 2) other than the root. The root is left out because its
 * pressure is that of the whole machine. */
static gboolean is_cgroup(const char *folder)
{
    struct stat stat;

    return lstat(folder, &stat) == 0 && stat.st_ino != ROOT_NUMBER;
}

/* The pressure of the cgroup that the daemon is in, or NULL. In a namespace of cgroups, as
 * containers have, it may be "/"; "unified" is where systemd has version 2 beside version 1. */
static char *cgroup_path(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    g_autofree char *text = NULL;

    if (!g_file_get_contents("/proc/self/cgroup", &text, NULL, NULL))
        return NULL;
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        for (guint j = 0; j < G_N_ELEMENTS(places) && g_str_has_prefix(lines[i], "0::"); j++) {
            g_autofree char *folder = g_build_filename(places[j], lines[i] + strlen("0::"), NULL);
            g_autofree char *path = g_build_filename(folder, "memory.pressure", NULL);
            if (is_cgroup(folder) && access(path, W_OK) == 0)
                return g_steal_pointer(&path);
        }
    }
    return NULL;
}

guint qos_pressure_open(int ret_fds[QOS_PRESSURE_PLACES])
{
    g_autofree char *cgroup = cgroup_path();
    const char *const places[] = {"/proc/pressure/memory", cgroup};
    guint count = 0;

    G_STATIC_ASSERT(G_N_ELEMENTS(places) == QOS_PRESSURE_PLACES);
    for (guint i = 0; i < G_N_ELEMENTS(places); i++) {
        int fd = places[i] != NULL ? open_trigger(places[i]) : -1;
        if (fd >= 0)
            ret_fds[count++] = fd;
    }
    return count;
}

static gboolean on_pressure(int fd G_GNUC_UNUSED, GIOCondition condition, gpointer data)
{
    QosPressure *pressure = data;

    if (condition & (G_IO_ERR | G_IO_HUP | G_IO_NVAL))
        return G_SOURCE_REMOVE; /* the cgroup is no more */
    pressure->pressed(pressure->arg);
    return G_SOURCE_CONTINUE;
}

QosPressure *qos_pressure_new(const int *fds, guint count, GMainContext *context,
                              void (*pressed)(gpointer arg), gpointer arg)
{
    QosPressure *pressure = g_new0(QosPressure, 1);

    pressure->count = count;
    pressure->pressed = pressed;
    pressure->arg = arg;
    for (guint i = 0; i < count; i++) {
        pressure->fds[i] = fds[i];
        pressure->sources[i] = g_unix_fd_source_new(fds[i], G_IO_PRI);
        g_source_set_callback(pressure->sources[i], G_SOURCE_FUNC(on_pressure), pressure, NULL);
        g_source_attach(pressure->sources[i], context);
    }
    return pressure;
}

void qos_pressure_free(QosPressure *pressure)
{
    if (pressure == NULL)
        return;
    for (guint i = 0; i < pressure->count; i++) {
        g_source_destroy(pressure->sources[i]);
        g_source_unref(pressure->sources[i]);
        close(pressure->fds[i]);
    }
    g_free(pressure);
}
