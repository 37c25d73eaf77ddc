/*
 * What a mount and the server say to one another over a stream, as bytes: little-endian frames,
 *
 *     u32 length of what follows (1 to QOS_WIRE_FRAME_MAX)   u8 type   payload
 *
 *     mount                                server
 *     HELLO who I am         -->
 *                            <--           WELCOME, or REFUSED, after which it closes
 *     CREDITS                <->           CREDITS          messages of core/credit.h, in batches
 *     WAIT                   -->                            a process waits for a file lock
 *                            <--           DEADLOCK         it would wait for ever
 *                            <--           RULES            of the cluster (core/wire_cluster.h)
 *     RULES_SEEN             -->                            they are in force at the mount
 *     BUDGET_REPORT          -->                            what classes want of them
 *                            <--           BUDGET_GRANT     what they may use
 *     ADMIN                  -->                            a command on rules of the cluster
 *                            <--           ADMIN_RESULT     what became of it
 *     EPOCH                  <->           EPOCH            messages of core/epoch.h
 *
 * HELLO up to its version, WELCOME's version and REFUSED are the same in all versions, so that
 * peers of two versions can say why they do not go together.
 *
 * Texts are a length and so many bytes of UTF-8 without control characters. Nothing that arrives
 * can make a decoder assert or allocate more than it has read. What does not decode is the peer's
 * error: it is told (REFUSED) and dropped.
 *
 * Pure. `bytes` that are written to are appended to.
 */
#pragma once

#include "core/credit.h"

#define QOS_WIRE_VERSION    3
#define QOS_WIRE_FRAME_MAX  (1u << 20) /* bytes behind the length */
#define QOS_WIRE_HELLO_MAX  512u       /* the same, of a HELLO */
#define QOS_WIRE_STORE_MAX  128        /* bytes of text */
#define QOS_WIRE_NAME_MAX   255
#define QOS_WIRE_REASON_MAX 255
#define QOS_WIRE_GROUP_MAX  1024

typedef enum {
    QOS_WIRE_HELLO = 1,
    QOS_WIRE_WELCOME,
    QOS_WIRE_REFUSED,
    QOS_WIRE_CREDITS,
    QOS_WIRE_WAIT,
    QOS_WIRE_DEADLOCK,
    QOS_WIRE_RULES,
    QOS_WIRE_BUDGET_REPORT,
    QOS_WIRE_BUDGET_GRANT,
    QOS_WIRE_ADMIN,
    QOS_WIRE_ADMIN_RESULT,
    QOS_WIRE_RULES_SEEN,
    QOS_WIRE_EPOCH,
    QOS_WIRE_TYPES, /* this and above: no frame */
} QosWireType;

typedef struct {
    guint32 version;                    /* of another than QOS_WIRE_VERSION nothing else is known */
    QosOwnerId id;                      /* > 0 */
    guint32 incarnation;                /* > 0 */
    char store[QOS_WIRE_STORE_MAX + 1]; /* what is mounted; not empty */
    char name[QOS_WIRE_NAME_MAX + 1];   /* for people: "host:/mountpoint" */
} QosWireHello;

typedef struct {
    guint32 version;     /* as in QosWireHello */
    QosOwnerId id;       /* the server's; > 0 */
    guint32 incarnation; /* > 0 */
    QosTime lease;       /* > 0; whole milliseconds travel, as for `resend` */
    QosTime resend;      /* > 0 */
    guint32 group;       /* inodes in a resource: a power of two, at most QOS_WIRE_GROUP_MAX */
} QosWireWelcome;

typedef enum {
    QOS_WIRE_BAD_VERSION = 1,
    QOS_WIRE_OTHER_STORE,    /* the server serves another one */
    QOS_WIRE_IDENTITY_TAKEN, /* another principal's */
    QOS_WIRE_NOT_PERMITTED,
    QOS_WIRE_FULL,
    QOS_WIRE_BROKEN_PROTOCOL,
    QOS_WIRE_REFUSALS,
} QosWireRefusal;

typedef struct {
    QosWireRefusal code;
    char reason[QOS_WIRE_REASON_MAX + 1];
} QosWireRefused;

/* The most items of a WAIT: the locks that a process waits for, and those that it has. */
#define QOS_WIRE_WAIT_MAX 1024
/* Ranges in the items of all waits of a mount: those of what is told beyond are not kept. */
#define QOS_WIRE_WAITS_RANGES_MAX 65536

/* A process of the mount waits for a lock of a file (QOS_RESOURCE_EXTENT), and has others. */
typedef struct {
    guint64 id;    /* of the wait; one that is known is as told from now on */
    guint64 owner; /* the mount's name for the waiting process */
    GArray *items; /* of QosCreditItem, without tokens: the locks that it waits for, then those that
                      it has, none empty; NULL: it waits no more */
} QosWireWait;

void qos_wire_wait_clear(QosWireWait *wait);

/* Writing. Texts are of the struct's size and valid; lease and resend are less than 2^32 ms. */
void qos_wire_put_hello(GByteArray *bytes, const QosWireHello *hello);
void qos_wire_put_welcome(GByteArray *bytes, const QosWireWelcome *welcome);
/* A reason that is too long is cut, and control characters in it are made spaces. */
void qos_wire_put_refused(GByteArray *bytes, QosWireRefusal code, const char *reason);

/* The value of *batch while no frame of `bytes` is open. */
#define QOS_WIRE_NO_BATCH G_MAXSIZE
/*
 * Appends the message to the frame of CREDITS that begins at bytes[*batch], or to a new one where
 * there is none or it would be too long. `bytes` is whole after each call. *batch is
 * QOS_WIRE_NO_BATCH at first, and again once anything else has been appended or anything been taken
 * away. FALSE, with nothing appended, where the message is too long for any frame.
 */
gboolean qos_wire_put_credits(GByteArray *bytes, gsize *batch, const QosCreditMessage *message);

/* FALSE, with nothing appended, where it has more items than QOS_WIRE_WAIT_MAX, or is too long for
 * a frame. */
gboolean qos_wire_put_wait(GByteArray *bytes, const QosWireWait *wait);
void qos_wire_put_deadlock(GByteArray *bytes, guint64 wait);

/* Reading a payload. FALSE, with nothing set, where it is not one. */
gboolean qos_wire_get_hello(const guint8 *payload, gsize length, QosWireHello *ret_hello);
gboolean qos_wire_get_welcome(const guint8 *payload, gsize length, QosWireWelcome *ret_welcome);
gboolean qos_wire_get_refused(const guint8 *payload, gsize length, QosWireRefused *ret_refused);
/* Takes the first message from the front of the payload of CREDITS; call it while *length > 0. The
 * message is cleared by the caller. */
gboolean qos_wire_get_credits(const guint8 **payload, gsize *length, QosCreditMessage *ret_message);

/* The wait is cleared by the caller. */
gboolean qos_wire_get_wait(const guint8 *payload, gsize length, QosWireWait *ret_wait);
gboolean qos_wire_get_deadlock(const guint8 *payload, gsize length, guint64 *ret_wait);

/* "store differs", for logs and messages; never NULL. */
const char *qos_wire_refusal_text(QosWireRefusal code);
/* Why a mount and a server of two versions do not go together, and which of them is to be updated:
 * less than QOS_WIRE_REASON_MAX bytes. Free with g_free(). */
char *qos_wire_version_fault(guint32 mount, guint32 server);

/*
 * Cuts a stream into frames. Embedded. It keeps at most one frame that is not complete, and what
 * was fed with it.
 */
typedef struct {
    GByteArray *bytes;
    gsize taken;   /* of `bytes` */
    guint32 limit; /* the longest frame that is let in */
} QosWireReader;

typedef enum {
    QOS_WIRE_FRAME,  /* there is one */
    QOS_WIRE_MORE,   /* it is not complete yet */
    QOS_WIRE_BROKEN, /* no such frame: nothing of the stream can be read any more */
} QosWireVerdict;

void qos_wire_reader_init(QosWireReader *reader);
void qos_wire_reader_clear(QosWireReader *reader);
void qos_wire_reader_feed(QosWireReader *reader, const guint8 *bytes, gsize length);
/* The payload is the reader's, valid until the next call of any of these. */
QosWireVerdict qos_wire_reader_next(QosWireReader *reader, QosWireType *ret_type,
                                    const guint8 **ret_payload, gsize *ret_length);
/* Bytes that were fed and are of no frame that was taken. */
gsize qos_wire_reader_waiting(const QosWireReader *reader);
