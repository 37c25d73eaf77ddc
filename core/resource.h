/*
 * Resources and usage credits: the vocabulary of the resource manager (seed 002).
 *
 * A credit says how a resource may be used. It has one of three shapes, and the type of the
 * resource gives the shape its meaning by a table of operations; generic code (core/credit.c) knows
 * only the table:
 *
 *   modes   a set of bits, each to be read or written   inode, open file, cluster configuration
 *   spans   ranges of numbers, each read or write       byte extents, identifiers
 *   amount  a quantity                                  quota, grant space, memory, bandwidth, ...
 *
 * Credits of one resource form a lattice under `matches`; join and intersect are its operations.
 * Two subtractions are needed, and they differ where readers share:
 *
 *   diff   what `want` lacks when one has `have`: what is to be asked for.   write - read = write
 *   yield  what is left to use of `mine` when another gets `theirs`.         write - read = read
 *
 * For amounts and exclusive ranges both are plain subtraction. With them an owner's books are one
 * equation: owned = yield(borrowed, join of all sublet).
 */
#pragma once

#include <glib.h>

/*
 * Names a resource. The order (type, then the bytes, then the offset of a span) is total. A user
 * that wants several resources takes them in this order, so that users never wait for each other in
 * a circle.
 */
typedef struct {
    guint8 type;     /* QosResourceTypeId */
    guint8 length;   /* bytes used of `name` */
    guint8 name[22]; /* e.g. the device and inode number; zeros behind `length` */
} QosResource;

typedef enum {
    QOS_RESOURCE_INODE,      /* modes: lookup, attributes, layout */
    QOS_RESOURCE_OPEN,       /* modes: an open file; cannot be revoked until it is closed */
    QOS_RESOURCE_EXTENT,     /* spans of bytes: data, fcntl and flock locks */
    QOS_RESOURCE_IDENTIFIER, /* spans of identifiers; exclusive, asked for by count */
    QOS_RESOURCE_QUANTITY,   /* amount: space, quota, memory, bandwidth, ... */
    QOS_RESOURCE_CONFIG,     /* modes: the cluster's configuration */
    QOS_RESOURCE_INODES,     /* spans of inodes, by their places in a group of neighbours */
    QOS_RESOURCE_TYPES,
} QosResourceTypeId;

/* The bits of an inode's credit: what may be kept of it (read) or changed (write). */
enum {
    QOS_INODE_LOOKUP = 1 << 0, /* that the name leads to it, and its permissions */
    QOS_INODE_ATTRIBUTES = 1 << 1,
    QOS_INODE_LAYOUT = 1 << 2, /* where its data lie */
};

/* A group has at most so many inodes: a power of two. */
#define QOS_INODES_GROUP_MAX 1024

/*
 * The bits of an open file's credit. In `reads` the file is open so, and others may have it so too;
 * in `writes` also, they may not (a share reservation). Writing and executing exclude each other.
 */
enum {
    QOS_OPEN_READ = 1 << 0,
    QOS_OPEN_WRITE = 1 << 1,
    QOS_OPEN_EXECUTE = 1 << 2,
};

/* The bit of the configuration's credit. Its version is the fencing token of the writer's grant. */
enum {
    QOS_CONFIG_CURRENT = 1 << 0,
};

/* What is counted, or numbered: the first byte of the resource's name. */
typedef enum {
    QOS_QUANTITY_COUNT,   /* credits that an owner may be granted */
    QOS_QUANTITY_GRANT,   /* free space of a store, bytes */
    QOS_QUANTITY_QUOTA,   /* bytes or inodes of a user, group or project */
    QOS_QUANTITY_MEMORY,  /* of a server, bytes */
    QOS_QUANTITY_CPU,     /* of a server, cycles per second */
    QOS_QUANTITY_NETWORK, /* bytes per second */
    QOS_QUANTITY_STORAGE, /* bytes per second */
    QOS_QUANTITY_POWER,   /* of a device, milliwatts */
    QOS_QUANTITIES,
} QosQuantityKind;

typedef enum {
    QOS_IDENTIFIER_LAYOUT,
    QOS_IDENTIFIER_FID,
    QOS_IDENTIFIER_INODE,
    QOS_IDENTIFIERS,
} QosIdentifierKind;

/* From `first` to `last`, both included; `writes`: exclusive, else shared. */
typedef struct {
    guint64 first, last;
    gboolean writes;
} QosSpan;

/* A credit in a message has at most so many spans. */
#define QOS_CREDIT_SPANS_MAX 4096

/*
 * A value: cleared by qos_credit_clear(). All zeros are the empty credit of any type; the largest
 * member is the first one, so that {0} sets them all.
 */
typedef struct {
    union {
        struct {
            QosSpan *spans; /* owned; sorted, disjoint, neighbours of a kind merged; else NULL */
            guint count;
        };
        struct {
            guint32 reads, writes; /* bits; what is written is in `reads` too */
        };
        guint64 amount;
    };
} QosCredit;

typedef enum {
    QOS_SHAPE_MODES,
    QOS_SHAPE_SPANS,
    QOS_SHAPE_AMOUNT,
} QosCreditShape;

/*
 * The operations of a type; no state of their own. What is changed in place is its first argument,
 * and the second is another object. `conflicts` implies something in common, except for open files
 * (writing against executing). So what a conflict leaves to a holder is always given by `yield`,
 * not by `diff`.
 */
typedef struct {
    const char *name;
    QosCreditShape shape;
    gboolean divisible; /* parts from several holders meet a shortage: amounts and identifiers */
    gboolean pinned; /* what is held is not called back; a conflicting request is denied at once */
    gboolean
        widened; /* a grant of some of it includes all around it that no other owner has or wants */
    /* `have` implies `want`. */
    gboolean (*matches)(const QosCredit *want, const QosCredit *have);
    /* When they are in two different owners' hands. */
    gboolean (*conflicts)(const QosCredit *one, const QosCredit *other);
    void (*join)(QosCredit *to, const QosCredit *with); /* amounts add up, at most G_MAXUINT64 */
    void (*intersect)(QosCredit *with, const QosCredit *other);
    void (*diff)(QosCredit *want, const QosCredit *have);
    void (*yield)(QosCredit *mine, const QosCredit *theirs);
    /*
     * Takes from `have` what meets `want`, into `chosen`, which is empty: the same for locks and
     * amounts; for identifiers as many as `want` counts, whichever they are, in one piece if there
     * is one. FALSE, with `chosen` left empty, where `have` has not enough.
     */
    gboolean (*choose)(const QosCredit *want, const QosCredit *have, QosCredit *chosen);
    void (*encode)(const QosCredit *credit, GByteArray *bytes);
    /* Takes one credit from the front of `bytes`; FALSE, with nothing allocated, if they are not
     * one. */
    gboolean (*decode)(QosCredit *credit, const guint8 **bytes, gsize *length);
} QosResourceType;

/* NULL for a number that is no type's: it may come from a message. */
const QosResourceType *qos_resource_type(guint id);

/* `length` bytes, at most the size of QosResource.name; a longer name is cut. */
void qos_resource_init(QosResource *resource, QosResourceTypeId type, gconstpointer name,
                       gsize length);
/* A quantity or identifiers: what is counted (`kind`), and of which user, device or the like
 * (`subject`). */
void qos_resource_init_kind(QosResource *resource, QosResourceTypeId type, guint8 kind,
                            gconstpointer subject, gsize length);
/* The total order of resources: less than, equal to or greater than 0. */
gint qos_resource_compare(const QosResource *one, const QosResource *other);
/* For GHashTable. */
guint qos_resource_hash(gconstpointer resource);
gboolean qos_resource_equal(gconstpointer one, gconstpointer other);
void qos_resource_encode(const QosResource *resource, GByteArray *bytes);
/* FALSE where the bytes at the front are not a resource of a known type. */
gboolean qos_resource_decode(QosResource *resource, const guint8 **bytes, gsize *length);

/* One span; free with qos_credit_clear(). */
QosCredit qos_credit_span(guint64 first, guint64 last, gboolean writes);
QosCredit qos_credit_copy(const QosResourceType *type, const QosCredit *credit);
/* Leaves the empty credit. */
void qos_credit_clear(const QosResourceType *type, QosCredit *credit);
gboolean qos_credit_is_empty(const QosResourceType *type, const QosCredit *credit);
gboolean qos_credit_equal(const QosResourceType *type, const QosCredit *one,
                          const QosCredit *other);
/* Of divisible types: how much it is (numbers, or the amount), at most G_MAXUINT64; and a credit
 * that asks for so much, to be cleared. */
guint64 qos_credit_count(const QosResourceType *type, const QosCredit *credit);
QosCredit qos_credit_of_count(const QosResourceType *type, guint64 count);
/* It can be sent: it has at most QOS_CREDIT_SPANS_MAX spans. */
gboolean qos_credit_is_sendable(const QosResourceType *type, const QosCredit *credit);
/* The bytes of memory that it takes beside itself: of spans, with the allocator's own. */
gsize qos_credit_size(const QosResourceType *type, const QosCredit *credit);
/* The third part of the total order: where the first span begins, else 0. */
guint64 qos_credit_offset(const QosResourceType *type, const QosCredit *credit);
/* For people: "r3w1", "0-99w,200-299r", "4096"; "-" for the empty one; free with g_free. */
char *qos_credit_text(const QosResourceType *type, const QosCredit *credit);
