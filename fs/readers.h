/*
 * The threads that read requests from the kernel: as few of them as it takes.
 *
 * libfuse's loop makes a thread whenever none is left to read, and the kernel gives each request to
 * the thread that has waited longest. So all threads take turns, however few are needed, each with
 * its stack and buffers fallen out of the caches; and as an answered caller takes the CPU from the
 * thread that answered him, there are soon many.
 *
 * Here at most `most` threads wait in the kernel. Others that have nothing to do are parked, the
 * last one parked is the first one called, and it is called only when nobody reads any more: when
 * all the others are busy in the store. So a slow store gets as many threads as it needs, up to
 * libfuse's own limit, and a quick one is served by few that stay warm.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>

typedef struct QosReaders QosReaders;

/* At most `most` (>= 1) threads wait in the kernel. */
QosReaders *qos_readers_new(guint most);
void qos_readers_free(QosReaders *readers); /* NULL is allowed */
/* Lets the mounted session, whose user data starts with a QosFs that has `readers`, read through
 * them. */
void qos_readers_attach(struct fuse_session *session);
