/*
 * Owners of resources: which of them may use a resource, and how it changes hands (seed 002).
 *
 * A QosOwner borrows credits from the owner above it and sublets them to the owners below. Mounts,
 * servers and servers of servers are all owners: a root has no owner above it and owns everything;
 * a mount has no owners below it and has local users instead. One equation says what an owner has
 * of a resource:
 *
 *     owned = yield(borrowed, join of all sublet)         a part of it held, the rest cached
 *
 * A request is met from what is owned. If that is not enough, the owner asks the owner above for
 * more, and calls back exactly the conflicting part from the borrowers and users that have it. No
 * two owners ever have conflicting credits in use.
 *
 * Pure: time is an argument. qos_owner_output() hands out what is to be done outside: messages to
 * send, requests that ended, callbacks to the local user, changes to make durable. After each call
 * of a function below, the caller takes all outputs. It calls qos_owner_tick() at qos_owner_next().
 * The caller locks.
 *
 * Messages may be lost, repeated, reordered and delayed. Each pair of owners has a session, in
 * which messages are numbered, acknowledged, and repeated until they are acknowledged. So each
 * message is received once and in order. A session ends when one of the two owners restarts, or
 * with its lease.
 *
 * A lease covers all that a borrower has. The borrower counts the lease, less 1 %
 * (QOS_LEASE_DRIFT), from when it sent the message that the lender acknowledged. The lender counts
 * the lease, and 1 % more, from when it received that message. So a borrower stops using a credit
 * before the lender grants it to others, as long as their clocks run at most 1 % wrong. While a
 * borrower owes the answer to a callback, its lease is not renewed; when the lease ends, the
 * borrower is evicted. An owner promises to the owners below at most half of what is left of its
 * own lease.
 *
 * A restarted lender has lost what it knew of its borrowers, except their durable list. During its
 * grace, which lasts one lease, the owners on that list may reclaim what they had, and nothing else
 * is granted. The grace ends early when all of them have come. A restarted borrower has nothing,
 * and what it had is free at once. But if it lends, its own lender first restores to it what it
 * had, so that the owners below can reclaim it.
 */
#pragma once

#include "base/time.h"
#include "core/pool.h"
#include "core/resource.h"

#define QOS_LEASE_DRIFT(duration) ((duration) / 100)
/* Credits that one message may carry beside its own. */
#define QOS_CREDIT_BATCH 256
/* Spans in these, in all: so that a message has less than 1 MiB. */
#define QOS_CREDIT_BATCH_SPANS (8 * QOS_CREDIT_SPANS_MAX)

/* Names an owner in the cluster; 0 is no owner. */
typedef guint64 QosOwnerId;

/* Grows with each grant of a resource, all over the hierarchy: of two conflicting credits the later
 * one has the larger token. The root's incarnation is in the high bits. */
typedef guint64 QosToken;
#define QOS_TOKEN_INCARNATION_SHIFT 44

typedef enum {
    QOS_CREDIT_NON_BLOCK_LOCAL = 1 << 0,  /* deny what is not here */
    QOS_CREDIT_NON_BLOCK_REMOTE = 1 << 1, /* deny what is not free above */
    QOS_CREDIT_RESERVE = 1 << 2,          /* no conflicting later request is served before it */
    QOS_CREDIT_WAIT = 1 << 3,    /* wait for what is not called back, rather than be denied */
    QOS_CREDIT_LASTING = 1 << 4, /* what is held may be held for long: a file lock */
    QOS_CREDIT_UPGRADE = 1 << 5, /* its user already has, by another hold, what others may wait
                                    for: it goes first. Set by qos_credit_convert() */
} QosCreditFlags;

typedef enum {
    QOS_CREDIT_GRANTED, /* it is held */
    QOS_CREDIT_WAITING, /* QOS_OUTPUT_DONE will tell */
    QOS_CREDIT_DENIED,  /* use the lockless mode */
    QOS_CREDIT_RETRY,   /* the lender is full: come back after some time */
    QOS_CREDIT_ERROR,   /* there is no lender now */
} QosCreditVerdict;

typedef struct QosOwner QosOwner;
typedef struct QosBook QosBook;

/* A local use of a resource. Embedded in the user's request, zeroed; the engine's from
 * qos_credit_get() until it is denied, put or lost. */
typedef struct QosHold {
    gpointer user;         /* the caller's */
    struct QosHold *after; /* what the caller already has, NULL: nothing: asserts the order
                              (qos_resource_compare, then qos_credit_offset) */
    /* --- */
    QosCredit credit; /* what is held; of identifiers, which */
    QosToken token;   /* of the grant */
    guint flags;
    QosBook *book;                    /* NULL: not held */
    struct QosCreditRequest *request; /* NULL: does not wait */
    struct QosHold *next, **at;
} QosHold;

typedef enum {
    QOS_MESSAGE_HELLO,   /* borrower: a new session, please */
    QOS_MESSAGE_WELCOME, /* lender: it begins; `flags`: QOS_WELCOME_RECLAIM */
    QOS_MESSAGE_RESET,   /* lender: I know no such session */
    /* Numbered: */
    QOS_MESSAGE_RENEW,    /* borrower: nothing but what every message does */
    QOS_MESSAGE_ENQUEUE,  /* borrower: `request` wants `credit`; `more` is given back first */
    QOS_MESSAGE_WITHDRAW, /* borrower: `request` is not wanted any more */
    QOS_MESSAGE_CANCEL,   /* borrower: keeps of the resource just `credit`; answers callback
                             `request`, unless 0 */
    QOS_MESSAGE_RECLAIM,  /* borrower: had `more`; `flags`: QOS_RECLAIM_LAST */
    QOS_MESSAGE_GRANT,    /* lender: has now `credit`, all in all, for `request` (0: for a claim) */
    QOS_MESSAGE_DENIED,   /* lender: to `request`; `delay` > 0: come back after that */
    QOS_MESSAGE_REVOKE,   /* lender: callback `request`: `credit` is wanted by another */
    QOS_MESSAGE_RESTORE,  /* lender: had `more` before its restart; `flags`: QOS_RESTORE_LAST */
    QOS_MESSAGE_TYPES,
} QosMessageType;

enum {
    QOS_WELCOME_RECLAIM = 1 << 0, /* what was had may be reclaimed */
    QOS_WELCOME_RESTORE = 1 << 1, /* it will be told what it had */
    QOS_RECLAIM_LAST = 1 << 0,
    QOS_RESTORE_LAST = 1 << 0,
    QOS_CANCEL_BUSY = 1 << 0,  /* no answer yet: what is held will be for long */
    QOS_CANCEL_GRACE = 1 << 1, /* no answer yet: its holders are known when a grace has ended */
    QOS_HELLO_LENDS = 1 << 0,  /* others may still use what the borrower had */
    QOS_HELLO_RECLAIMS = 1 << 1,
    QOS_HELLO_RESTORES = 1 << 2, /* it does not know what it had, and others may reclaim it */
};

/* A credit in a batch. */
typedef struct {
    QosResource resource;
    QosCredit credit;
    QosToken token;
    guint32 proof; /* the lender's, that it granted the token (core/proof.h) */
} QosCreditItem;

/* The fields above the line are every message's. Bare messages (HELLO, WELCOME, RESET, and an
 * acknowledgement, which is a RENEW) have sequence 0. Cleared by qos_credit_message_clear(). */
typedef struct {
    guint8 type; /* QosMessageType */
    guint32 flags;
    guint64 session; /* the borrower's name for the session: its incarnation, and a number */
    guint32 lender;  /* the lender's incarnation; 0 in HELLO */
    guint64 sequence;
    guint64 acknowledged; /* the last sequence received */
    guint64 renewed;      /* lender: the last sequence that began a lease when sent, ... */
    QosTime lease;        /* ... of this length */
    QosToken token;       /* the newest that the sender knows of */
    QosPoolSignal stamp;  /* the sender of bytes fills it in, the receiver takes it */
    /* --- */
    guint64 request;
    QosTime delay;
    QosResource resource;
    QosCredit credit;
    QosToken granted; /* of `credit`: the last grant's */
    guint32 proof;    /* lender: that it granted that */
    GArray *more;     /* of QosCreditItem; NULL: none */
} QosCreditMessage;

void qos_credit_message_clear(QosCreditMessage *message);
/* Only lenders send messages of that type. */
gboolean qos_credit_message_is_lenders(const QosCreditMessage *message);
/* Appends it. */
void qos_credit_message_encode(const QosCreditMessage *message, GByteArray *bytes);
/* Takes one message from all of `bytes`. FALSE, with nothing allocated, if they are not one. */
gboolean qos_credit_message_decode(QosCreditMessage *message, const guint8 *bytes, gsize length);

typedef struct {
    QosOwnerId id;
    guint32 incarnation; /* > 0; the caller has made it durable, and it grows with each start */
    QosOwnerId above;    /* 0: a root */
    gboolean lends;      /* may have borrowers */
    gboolean caches;     /* local users keep using what they have put until they cancel it: a
                            callback asks them first. Not for those that lend */
    QosTime lease;       /* given to borrowers; not shorter than before a restart */
    QosTime resend;      /* a message is repeated after this */
    guint contention; /* conflicts per second on a resource, beyond which it is denied; 0: none */
    QosTime lockless; /* for so long */
    gpointer arg;     /* for the functions below, each of which may be NULL */
    /* What a root owns of a resource; NULL: all of locks and identifiers, nothing of amounts.
     * Always the same for a resource. */
    void (*capital)(const QosResource *resource, QosCredit *ret_credit, gpointer arg);
    /* May the borrower be given a credit on one more resource? FALSE: it is told to come back.
     * Not asked for conversions and claims. */
    gboolean (*may_grant)(QosOwnerId borrower, const QosResource *resource, QosTime now,
                          QosTime *ret_delay, gpointer arg);
    /* May the borrower claim a credit, of qos_credit_size() bytes? FALSE: it cannot have had so
     * much, and loses its session. */
    gboolean (*may_claim)(QosOwnerId borrower, gsize bytes, gpointer arg);
    guint64 key[2]; /* for proofs of what is granted: secret, and the same after a restart */
    /* Bytes of the caller's for each resource of which anything is known, zeroed at first: see
     * qos_owner_extra(). */
    guint extra;
    /* Nothing is known of a resource any more: its bytes (`extra`) are about to be freed. */
    void (*forgotten)(gpointer extra, gpointer arg);
    /* The borrower has a credit on one more resource, by a grant or claim; or on one less. */
    void (*counted)(QosOwnerId borrower, const QosResource *resource, gboolean is_more,
                    gpointer arg);
    /* The borrower's credit on the resource takes so many bytes more (qos_credit_size), or
     * fewer. */
    void (*resized)(QosOwnerId borrower, const QosResource *resource, gint64 bytes, gpointer arg);
} QosOwnerConfig;

/* Defaults: a lease of 30 s, resend 200 ms, no bound on contention, lockless for 1 s. */
void qos_owner_config_init(QosOwnerConfig *config, QosOwnerId id, guint32 incarnation);

/* Begins its session above, and its grace: `clients` are those of the durable list of one that
 * lends. */
QosOwner *qos_owner_new(const QosOwnerConfig *config, const QosOwnerId *clients, guint count,
                        QosTime now);
/* Holds are forgotten. NULL is allowed. */
void qos_owner_free(QosOwner *owner);

typedef enum {
    QOS_OUTPUT_SEND,     /* `message` to `peer` */
    QOS_OUTPUT_DONE,     /* `hold` ended waiting: `verdict`, `delay` */
    QOS_OUTPUT_CONFLICT, /* another wants `credit` of `resource`: put what is held of it, soon; with
                            `caches` nothing of it is held now: drop what is cached of it, and say
                            so by qos_credit_cancel() */
    QOS_OUTPUT_LOST,     /* what was had of `resource` is lost, held or not: `credit` */
    QOS_OUTPUT_SAVE,   /* put `peer` on the durable list of clients, then call qos_owner_saved() */
    QOS_OUTPUT_FORGET, /* take it off the list */
} QosOutputKind;

/* Borrowed from the owner: valid until the next call of qos_owner_output(). */
typedef struct {
    QosOutputKind kind;
    QosOwnerId peer;
    const QosCreditMessage *message;
    QosHold *hold;
    QosCreditVerdict verdict;
    QosTime delay;
    QosResource resource;
    QosCredit credit;
} QosOutput;

/* FALSE: there is none. */
gboolean qos_owner_output(QosOwner *owner, QosOutput *ret_output);

/* A message from `from`. The caller vouches for this identity; nothing in the message is
 * trusted. */
void qos_owner_receive(QosOwner *owner, QosOwnerId from, const QosCreditMessage *message,
                       QosTime now);
/* Does what is due: repetitions, renewals, ends of leases and of the grace. */
void qos_owner_tick(QosOwner *owner, QosTime now);
/* When to call qos_owner_tick(). */
QosTime qos_owner_next(const QosOwner *owner);
/* Messages reach the lender again after an interruption: unacknowledged messages are due at once,
 * and so is the renewal of the lease. */
void qos_owner_reconnected(QosOwner *owner, QosTime now);
/* Gives everything back at once, used or not, before the owner ends: it begins a new session in
 * which it has nothing. QOS_OUTPUT_LOST tells what is lost. */
void qos_owner_leave(QosOwner *owner, QosTime now);
/* The client is on the durable list. */
void qos_owner_saved(QosOwner *owner, QosOwnerId client, QosTime now);

/* TRUE while its lease from the lender runs; always for a root. Until then cached credit may be
 * used. */
gboolean qos_owner_is_alive(const QosOwner *owner, QosTime now);
/* When that ends, as far as is known now; 0: it has no lender. */
QosTime qos_owner_until(const QosOwner *owner);
gboolean qos_owner_in_grace(const QosOwner *owner);
/* Credits lent, one for each borrower and resource. */
guint64 qos_owner_lent(const QosOwner *owner);
/* The newest token that it knows of. */
QosToken qos_owner_token(const QosOwner *owner);

/*
 * Uses `want` of `resource` (identifiers: as many as it counts). `want` is copied; denied if it, or
 * all that is borrowed with it, is in more than QOS_CREDIT_SPANS_MAX pieces. What is cached is held
 * at once. A user that wants several credits takes them in the order of resources. A user must not
 * wait here for a credit that conflicts with its own hold on the same resource: use
 * qos_credit_convert() for that.
 */
QosCreditVerdict qos_credit_get(QosOwner *owner, QosTime now, const QosResource *resource,
                                const QosCredit *want, guint flags, QosHold *hold);
/* For locks: the user gets `want` instead of what it holds, and gives that up only when it has got
 * `want`. If users wait for each other in a circle, the one that closes the circle is denied, and
 * keeps what it holds. */
QosCreditVerdict qos_credit_convert(QosOwner *owner, QosTime now, const QosCredit *want,
                                    guint flags, QosHold *hold);
/* Releases what is held, which stays cached; or takes back a request that waits. What is neither,
 * as after a loss, is let alone. */
void qos_credit_put(QosOwner *owner, QosTime now, QosHold *hold);
/* Takes back a request that waits; what is held, for a conversion that waits, stays so. */
void qos_credit_withdraw(QosOwner *owner, QosTime now, QosHold *hold);
/* Gives back cached credit that conflicts with another owner's use of `theirs`; with the next
 * message if `lazy`. Also answers QOS_OUTPUT_CONFLICT. FALSE: some of it is held, or lent, and
 * nothing else was pending. */
gboolean qos_credit_cancel(QosOwner *owner, QosTime now, const QosResource *resource,
                           const QosCredit *theirs, gboolean lazy);
/* What the owner has borrowed of the resource and not lent; cleared by the caller. */
QosCredit qos_credit_owned(const QosOwner *owner, const QosResource *resource);

/* The caller's bytes (QosOwnerConfig.extra) of a resource: NULL if nothing is known of it. Those of
 * a hold's resource: NULL if the hold was lost. Valid until `forgotten`. */
gpointer qos_owner_extra(const QosOwner *owner, const QosResource *resource);
gpointer qos_hold_extra(const QosHold *hold);
/* Whether some of the resource of a hold is called back. */
gboolean qos_hold_is_wanted(const QosHold *hold);
/* The resource that these bytes (QosOwnerConfig.extra) belong to. */
const QosResource *qos_extra_resource(gconstpointer extra);
/* Whether a local user holds any of it. */
gboolean qos_extra_is_held(gconstpointer extra);

/* Every borrower's part: for reports and checks. */
typedef void (*QosSubletFunc)(QosOwnerId borrower, const QosResource *resource,
                              const QosCredit *credit, QosToken token, gpointer arg);
void qos_owner_each_sublet(const QosOwner *owner, QosSubletFunc function, gpointer arg);
