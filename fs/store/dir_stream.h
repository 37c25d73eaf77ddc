/*
 * Where the reading of an open directory stands.
 *
 * The offset of an entry is the store's own (d_off), so that telldir() and seekdir() are as stable
 * as the store makes them when the directory changes. Between two requests a stream keeps the
 * entries that the store told and the kernel has not taken yet, because going back costs some
 * stores much. A program that reads parts of many directories would fill the memory with that. So
 * only the QOS_DIR_STREAMS_KEPT streams that were read last keep it, and those that are being read;
 * others go back.
 *
 * Lock: `lock` of the streams; nothing is called under it. It guards what streams keep; all else of
 * a stream belongs to its user alone.
 */
#pragma once

#include <dirent.h>
#include <glib.h>
#include <sys/types.h>

#define QOS_DIR_STREAMS_KEPT 1024
#define QOS_DIR_STREAM_BYTES 32768 /* that each of them keeps */

typedef struct QosDirStreams QosDirStreams;
typedef struct QosDirStream QosDirStream;

QosDirStreams *qos_dir_streams_new(void);
/* Its streams are freed. NULL is allowed. */
void qos_dir_streams_free(QosDirStreams *streams);

/* A stream of the directory `fd`, at its beginning. */
QosDirStream *qos_dir_stream_new(QosDirStreams *streams, int fd, gboolean owns_fd);
void qos_dir_stream_free(QosDirStream *stream); /* NULL is allowed */

/* Begins to use a stream that is kept. */
void qos_dir_stream_take(QosDirStream *stream);
/* Ends to use it: what it keeps may be taken from it from now on. */
void qos_dir_stream_keep(QosDirStream *stream);

/* The entry at `offset` is the next one: 0, or -errno. */
int qos_dir_stream_seek(QosDirStream *stream, off_t offset);
/* The next entry, valid until it is passed: 0, with *ret_entry NULL at the end, or -errno. */
int qos_dir_stream_peek(QosDirStream *stream, const struct dirent64 **ret_entry);
void qos_dir_stream_pass(QosDirStream *stream, const struct dirent64 *entry);
