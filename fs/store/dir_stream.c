/*
 * Where the reading of open directories stands. fs/store/dir_stream.h has the contract.
 */
#include "fs/store/dir_stream.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/mutex.h"

struct QosDirStreams {
    QosMutex lock;
    GQueue kept; /* of QosDirStream, the last first */
};

struct QosDirStream {
    QosDirStreams *streams;
    GList link;       /* in `kept` */
    gboolean is_kept; /* under the lock; while it is, what follows too */
    gboolean is_past; /* the store's place is behind `offset` and what is here */
    int fd;
    gboolean owns_fd; /* else it is the open file's */
    off_t offset;     /* of the next entry */
    size_t start;     /* of the next entry in `bytes` */
    size_t end;
    char *bytes; /* NULL: none */
};

QosDirStreams *qos_dir_streams_new(void)
{
    QosDirStreams *streams = g_new0(QosDirStreams, 1);

    qos_mutex_init(&streams->lock, QOS_MUTEX_DIR_STREAMS);
    g_queue_init(&streams->kept);
    return streams;
}

void qos_dir_streams_free(QosDirStreams *streams)
{
    if (streams == NULL)
        return;
    qos_mutex_destroy(&streams->lock);
    g_free(streams);
}

QosDirStream *qos_dir_stream_new(QosDirStreams *streams, int fd, gboolean owns_fd)
{
    QosDirStream *stream = g_new0(QosDirStream, 1);

    stream->streams = streams;
    stream->link.data = stream;
    stream->fd = fd;
    stream->owns_fd = owns_fd;
    return stream;
}

void qos_dir_stream_free(QosDirStream *stream)
{
    if (stream == NULL)
        return;
    qos_dir_stream_take(stream);
    if (stream->owns_fd)
        close(stream->fd);
    g_free(stream->bytes);
    g_free(stream);
}

void qos_dir_stream_take(QosDirStream *stream)
{
    QosDirStreams *streams = stream->streams;

    qos_mutex_lock(&streams->lock);
    if (stream->is_kept)
        g_queue_unlink(&streams->kept, &stream->link);
    stream->is_kept = FALSE;
    qos_mutex_unlock(&streams->lock);
}

void qos_dir_stream_keep(QosDirStream *stream)
{
    QosDirStreams *streams = stream->streams;

    if (stream->start == stream->end) {
        g_clear_pointer(&stream->bytes, g_free);
        return;
    }
    qos_mutex_lock(&streams->lock);
    g_queue_push_head_link(&streams->kept, &stream->link);
    stream->is_kept = TRUE;
    qos_mutex_unlock(&streams->lock);
}

/* Memory for what a stream keeps. If enough are kept, it is taken from the stream that was read
 * longest ago. Freeing and allocating in many threads would scatter it over the allocator's arenas,
 * which took up to 18 MiB more. */
static char *new_bytes(QosDirStreams *streams)
{
    char *bytes = NULL;

    qos_mutex_lock(&streams->lock);
    if (streams->kept.length >= QOS_DIR_STREAMS_KEPT) {
        QosDirStream *oldest = g_queue_pop_tail_link(&streams->kept)->data;

        oldest->is_kept = FALSE;
        oldest->is_past = TRUE;
        oldest->start = oldest->end = 0;
        bytes = g_steal_pointer(&oldest->bytes);
    }
    qos_mutex_unlock(&streams->lock);
    return bytes != NULL ? bytes : g_malloc(QOS_DIR_STREAM_BYTES);
}

int qos_dir_stream_seek(QosDirStream *stream, off_t offset)
{
    if (offset == stream->offset && !stream->is_past)
        return 0;
    if (lseek(stream->fd, offset, SEEK_SET) < 0)
        return -errno;
    stream->offset = offset;
    stream->is_past = FALSE;
    stream->start = stream->end = 0;
    return 0;
}

int qos_dir_stream_peek(QosDirStream *stream, const struct dirent64 **ret_entry)
{
    if (stream->start == stream->end) {
        long length;

        if (stream->bytes == NULL)
            stream->bytes = new_bytes(stream->streams);
        length = syscall(SYS_getdents64, stream->fd, stream->bytes, QOS_DIR_STREAM_BYTES);
        if (length < 0)
            return -errno;
        stream->start = 0;
        stream->end = (size_t)length;
    }
    *ret_entry = stream->start == stream->end
                     ? NULL
                     : (const struct dirent64 *)(stream->bytes + stream->start);
    return 0;
}

void qos_dir_stream_pass(QosDirStream *stream, const struct dirent64 *entry)
{
    stream->offset = entry->d_off;
    stream->start += entry->d_reclen;
}
