/*
 * FUSE over io_uring (fs/transport/uring.h) in a build without liburing: there is none.
 */
#include <errno.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/transport/uring.h"

QosRing *qos_ring_new(guint depth G_GNUC_UNUSED, GError **error)
{
    qos_set_error(error, ENOTSUP, "this qosfs was built without liburing");
    return NULL;
}

gboolean qos_ring_attach(QosRing *ring G_GNUC_UNUSED, struct fuse_session *session G_GNUC_UNUSED,
                         guint threads G_GNUC_UNUSED, GError **error G_GNUC_UNUSED)
{
    return TRUE;
}

void qos_ring_stop(QosRing *ring G_GNUC_UNUSED)
{
}

void qos_ring_free(QosRing *ring G_GNUC_UNUSED)
{
}

ssize_t qos_ring_write(QosRing *ring G_GNUC_UNUSED, int fd, struct iovec *parts, int count)
{
    return writev(fd, parts, count);
}

void qos_ring_flush(void)
{
}

void qos_ring_drop_data(void)
{
}

void *qos_ring_buffer(gsize size G_GNUC_UNUSED)
{
    return NULL;
}
