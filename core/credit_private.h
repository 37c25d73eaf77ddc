/*
 * What the files of the resource manager share:
 *
 *     credit.c          the owner, its outputs, and its local users
 *     credit_request.c  how a request is met: what is free, when to ask above, when to call back
 *     credit_sublet.c   what others have of a resource, and what a grant adds to what was asked for
 *     credit_callback.c calling back what others have of a resource
 *     credit_receive.c  what the numbered messages of a session do
 *     credit_session.c  sessions: numbers, acknowledgements, repetitions
 *     credit_borrow.c   the borrower's side of a session: its beginning, claims, its loss
 *     credit_lend.c     the lender's side: welcome, leases, eviction, the grace
 *     credit_table.c    the books by resource
 *     credit_wire.c     messages as bytes
 *
 * A book is what an owner knows of one resource (QosBook).
 */
#pragma once

#include "base/heap.h"
#include "core/credit.h"

/* How far the token of a borrower that lends itself may be ahead of its lender's; so far the lender
 * jumps when it evicts one. The root's leaves room for that of a second level. */
#define QOS_TOKENS_AHEAD      (1 << 20)
#define QOS_TOKENS_AHEAD_ROOT (1 << 30)

#define QOS_RENEW_PART        4  /* of the lease: after which it is renewed */
#define QOS_RESEND_TIMES      16 /* the interval doubles up to so many times the first */

typedef struct QosPeer QosPeer;
typedef struct QosSublet QosSublet;
typedef struct QosSubletIndex QosSubletIndex;

/* A message on its way: kept until it is acknowledged, and until it is handed out. */
typedef struct {
    QosCreditMessage message;
    guint references;
    QosTime sent; /* first; QOS_NEVER: not yet */
    GList link;   /* of QosPeer.unacknowledged */
} QosPacket;

/* A callback to a borrower that is not answered yet. */
typedef struct {
    guint64 id;
    guint64 busy_id; /* the last that was answered by "busy" */
    QosCredit wanted;
    gboolean is_busy;     /* held for long */
    gboolean is_in_grace; /* the borrower does not know the holders yet */
    QosTime since;
    GList link; /* of QosPeer.callbacks, unless one of these */
} QosCallback;

struct QosSublet {
    QosBook *book;
    QosPeer *peer;
    QosSublet *next, **at;           /* of the book */
    QosSublet *peer_next, **peer_at; /* of the peer */
    QosCredit credit;
    QosToken token;        /* of the last grant */
    QosCallback *callback; /* NULL: none */
};

typedef struct QosCreditRequest {
    QosBook *book;
    QosPeer *peer; /* NULL: a local user's, with `hold` */
    QosHold *hold;
    guint64 id; /* the peer's */
    QosCredit want;
    guint flags;
    gboolean is_followed; /* by a look for a circle, while it lasts */
    guint64 asked;        /* its number above; 0: not asked for */
    guint64 since;        /* callbacks of larger numbers were sent after it came */
    GList book_link;      /* of QosBusy.requests */
    GList owner_link;     /* of the peer's requests, or the owner's local ones */
} QosCreditRequest;

/* The part of a book that exists only while something is going on: requests, callbacks,
 * conflicts. */
typedef struct {
    GQueue requests;      /* of QosCreditRequest: upgrades, reserved ones, others, each by age */
    guint64 callback;     /* from above; 0: none */
    QosCredit wanted;     /* by it */
    guint flags;          /* QOS_CREDIT_RESERVE: a request waits for it that must not starve */
    gboolean is_busy;     /* the lender knows that it will take long, */
    gboolean is_in_grace; /* or that a grace is to end first */
    gboolean is_user_told, has_user_agreed;
    double heat; /* conflicts per second, as of `heated` */
    QosTime heated, lockless_until;
    QosTime contended;     /* when a holder was last called back; 0: not lately (credit_sublet.c) */
    QosSubletIndex *index; /* of many borrowers; NULL: they are few (credit_sublet.c) */
} QosBusy;

struct QosBook {
    /* All that a cached get needs is in the first line. */
    QosResource resource;
    QosCredit borrowed;
    QosToken token; /* of local uses: larger than the tokens of all earlier uses */
    QosHold *holds;
    QosBusy *busy; /* NULL: nothing going on */
    /* --- */
    QosSublet *sublets;
    QosToken granted; /* of the last grant from above */
};

typedef enum {
    QOS_SESSION_NONE,
    QOS_SESSION_HELLO,  /* above: asked for */
    QOS_SESSION_SAVING, /* below: when it is on the durable list */
    QOS_SESSION_OPEN,
} QosSessionState;

/* The other end of a session: the lender, or a borrower. */
struct QosPeer {
    QosOwnerId id;
    gboolean is_above;
    QosSessionState state;
    guint64 session;
    guint32 lender; /* its incarnation */
    guint hello_flags;
    QosTime hello_sent;

    guint64 numbered;      /* the last sequence given to a message */
    guint64 sent;          /* the last one transmitted */
    guint64 received;      /* in order */
    GQueue unacknowledged; /* of QosPacket, by sequence */
    QosTime resend_at, resend_after;
    QosTime acknowledge_at;

    QosTime until;   /* the lease's end: mine of the lender's, or of the borrower's as I count it;
                        without a session, when the record goes; 0: neither */
    guint64 renewed; /* below: the sequence that began the lease */
    QosTime lease;
    QosTime renew_at; /* above */

    QosSublet *sublets;  /* below */
    GQueue requests;     /* below: of QosCreditRequest */
    GQueue callbacks;    /* below: of QosCallback, by age */
    gboolean is_known;   /* on the durable list */
    gboolean is_awaited; /* the grace waits for it */
    gboolean is_reclaiming;
    gboolean is_restored; /* it is being told what it had */
    QosHeapNode timer;
};

typedef struct {
    guint32 hash;
    guint32 book; /* its number; 0: none */
} QosSlot;

typedef struct {
    QosSlot *slots;
    guint mask; /* a power of two of them, less 1 */
} QosBookSlots;

typedef struct {
    gboolean has_proofs;
    QosBookSlots now, before; /* `before`: being emptied; no slots: is not */
    guint moved, unmoved;     /* of `before`: the next slot, and how many there are from it on */
    guint books;
    gsize stride; /* from one book to the next, bytes */
    GPtrArray *slabs;
    guint numbers, free; /* of books: the last one, and the first that is free; 0: none */
} QosBookTable;

typedef struct QosOutputEntry {
    struct QosOutputEntry *next;
    QosOutput output;
    QosPacket *packet;
} QosOutputEntry;

struct QosOwner {
    QosOwnerConfig config;
    QosBookTable table;
    QosPeer *above;                      /* NULL: a root */
    GHashTable *peers;                   /* QosOwnerId -> QosPeer, `above` too */
    QosHeap timers;                      /* of the peers: none is due before */
    GQueue requests;                     /* of QosCreditRequest: local ones that wait */
    QosCredit whole[QOS_RESOURCE_TYPES]; /* a root's: what it has of a resource (root_credit) */
    QosToken token;
    QosToken above_token; /* the newest that came from above */
    guint64 last_request; /* of requests and callbacks */
    guint sessions;       /* begun above */
    guint64 lent;
    QosTime grace_until; /* 0: none */
    guint awaited;
    QosToken first_token;  /* those given before the restart are smaller */
    gboolean is_restoring; /* the lender above has not told yet what was had */
    GArray *lazy;          /* of QosCreditItem: for the next message above; NULL: none */
    QosTime lazy_at;
    QosOutputEntry *first_output, **last_output;
    QosOutputEntry *taken; /* by the last qos_owner_output() */
};

/* credit_table.c */
/* With so many bytes behind each book; and each begins with a line of the cache, or they lie as
 * close as they can. */
void qos_table_init(QosBookTable *table, guint extra, gboolean is_fast, gboolean has_proofs);
/* In a table with proofs: the lender's proof of the book's last grant. */
guint32 *qos_table_proof(const QosBookTable *table, const QosBook *book);
void qos_table_clear(QosBookTable *table); /* it is empty */
QosBook *qos_table_find(const QosBookTable *table, const QosResource *resource);
/* Zeroed; there is none of the resource yet. Books stay where they are until they are removed. */
QosBook *qos_table_add(QosBookTable *table, const QosResource *resource);
void qos_table_remove(QosBookTable *table, QosBook *book);
/* One after the other, in no order; NULL: the first, or none is left. `book` may be removed after.
 */
QosBook *qos_table_next(const QosBookTable *table, const QosBook *book);

/* credit.c */
static inline const QosResourceType *qos_book_type(const QosBook *book)
{
    return qos_resource_type(book->resource.type);
}
/* Made if need be. */
QosBook *qos_book_get(QosOwner *owner, const QosResource *resource);
/* To be called at the end of each step that may grant more of the book, or leave it with less:
 * checks the book (qos_book_check), and drops it if it is empty. */
void qos_book_tidy(QosOwner *owner, QosBook *book);
QosOutputEntry *qos_output_add(QosOwner *owner, QosOutputKind kind);
/* A hold that is no longer. */
void qos_hold_remove(QosHold *hold);
void qos_hold_add(QosBook *book, QosHold *hold, QosCredit credit, guint flags);

/* credit_request.c */
/* Meets a request or lets it wait, as a copy. `want` is the request's. */
QosCreditVerdict qos_request_start(QosOwner *owner, QosCreditRequest *request, QosTime now,
                                   QosTime *ret_delay);
/* Takes it out of its queues, and back from above, and frees it. */
void qos_request_remove(QosOwner *owner, QosCreditRequest *request, QosTime now);
/* Tells the waiting user or borrower the verdict, and removes the request. */
void qos_request_finish(QosOwner *owner, QosCreditRequest *request, QosCreditVerdict verdict,
                        QosTime delay, QosTime now);
/* Tries to meet it, whatever stands before it. FALSE: it waits on; else it has ended. */
gboolean qos_request_retry(QosOwner *owner, QosCreditRequest *request, QosTime now);
/* Something changed: answers the callback, serves waiting requests, drops the book if it is
 * empty. */
void qos_book_pump(QosOwner *owner, QosBook *book, QosTime now);

/* credit_callback.c */
static inline gboolean qos_hold_is_lasting(const QosHold *hold)
{
    return (hold->flags & QOS_CREDIT_LASTING) != 0;
}
/* Its answer is awaited: it is in the peer's queue. */
static inline gboolean qos_callback_is_due(const QosCallback *callback)
{
    return !callback->is_busy && !callback->is_in_grace;
}
QosBusy *qos_book_busy(QosBook *book);
void qos_callback_clear(QosSublet *sublet);
/* Asks the borrower for what conflicts with `wanted`, unless that was done by a callback of a
 * larger number than `since`. `flags`: of the request. */
void qos_sublet_call_back(QosOwner *owner, QosSublet *sublet, const QosCredit *wanted, guint flags,
                          guint64 since, QosTime now);
/* Asks the local user to put what stands against `wanted`, once. */
void qos_book_tell_user(QosOwner *owner, QosBook *book, const QosCredit *wanted);
/* Of divisible types: the largest sublet that was not called back yet; it may be the asking
 * borrower's own. NULL: there is none, and *ret_waits tells whether an answer is due. */
QosSublet *qos_book_largest_sublet(const QosBook *book, gboolean *ret_waits);
/* Answers the callback from above, of which there is one, as far as that is possible now. */
void qos_book_serve_callback(QosOwner *owner, QosBook *book, QosTime now);
/* credit_sublet.c */
/* Adds to `chosen`, taken from `room`, what goes with it, for types that are widened. */
void qos_request_widen(const QosCreditRequest *request, const QosCredit *room, QosCredit *chosen,
                       QosTime now);
/* Somebody wants what another has. */
void qos_book_note_conflict(QosBook *book, QosTime now);
QosSublet *qos_sublet_find(const QosBook *book, const QosPeer *peer);
QosSublet *qos_sublet_add(QosOwner *owner, QosBook *book, QosPeer *peer);
void qos_sublet_remove(QosOwner *owner, QosSublet *sublet);
void qos_sublet_grow(QosOwner *owner, QosSublet *sublet, const QosCredit *more);
/* It keeps just that. */
void qos_sublet_keep(QosOwner *owner, QosSublet *sublet, const QosCredit *keeps);
/* Takes from what is borrowed what stands against `theirs`, which is not in use; and all that is
 * not in use, if what is left could not be sent else. FALSE, with nothing taken: it could not even
 * then. */
gboolean qos_book_yield(QosBook *book, const QosCredit *theirs);
/* What is free for `peer`, NULL: for local users. */
QosCredit qos_book_room(const QosBook *book, const QosPeer *peer);
/* Takes from what is free what meets `want`, as the type does; else FALSE, with all that is free in
 * *ret_room. If TRUE, there may be more free than is in *ret_room. */
gboolean qos_book_choose(QosBook *book, const QosPeer *peer, const QosCredit *want,
                         QosCredit *ret_room, QosCredit *ret_chosen);
/* In debug builds asserts that all that is lent and held is borrowed, and that no two have
 * conflicting credits. */
void qos_book_check(const QosBook *book);

/* credit_wire.c */
/* A batch of QosCreditItem that takes one more fits into a message. */
gboolean qos_batch_has_room(const GArray *items, const QosResource *resource,
                            const QosCredit *credit);

/* credit_receive.c */
/* A numbered message of an open session. FALSE: it cannot be. */
gboolean qos_owner_handle(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message,
                          QosTime now);

/* credit_session.c */
QosPeer *qos_peer_get(QosOwner *owner, QosOwnerId id);
void qos_peer_free(QosPeer *peer);
/* Nothing can refer to it in a lease's time: then it is dropped, if it has no session. */
void qos_peer_keep_record(QosOwner *owner, QosPeer *peer, QosTime now);
void qos_peer_clear_queue(QosPeer *peer);
void qos_packet_unref(QosPacket *packet);
/* From the first number on. */
void qos_peer_open(QosOwner *owner, QosPeer *peer);
/* Something of the peer's may be due earlier. */
void qos_peer_schedule(QosOwner *owner, QosPeer *peer);
/* Above: renews the lease at the next tick, which is due now. */
void qos_peer_renew(QosOwner *owner, QosPeer *peer, QosTime now);
/* Numbers the message and sends it; takes what it owns. Only in an open session. */
void qos_peer_send(QosOwner *owner, QosPeer *peer, QosCreditMessage *message, QosTime now);
/* Without a number: it does no harm if the message is lost. */
void qos_peer_send_bare(QosOwner *owner, QosPeer *peer, QosMessageType type, guint flags);

/* credit_borrow.c */
void qos_session_begin(QosOwner *owner, gboolean reclaims, QosTime now);
void qos_session_hello(QosOwner *owner, QosTime now);
void qos_session_welcomed(QosOwner *owner, const QosCreditMessage *message, QosTime now);
void qos_session_reset(QosOwner *owner, const QosCreditMessage *message, QosTime now);
/* Ends the session above if its lease is over. */
void qos_session_expire(QosOwner *owner, QosTime now);
/* Nothing that was borrowed is ours any more. */
void qos_session_lose(QosOwner *owner, QosTime now);
/* Tells the lender with the next message what was given up of the book. */
void qos_owner_give_back(QosOwner *owner, const QosBook *book, QosTime now);
/* Puts what is to be given back lazily into the message. */
void qos_owner_take_lazy(QosOwner *owner, QosCreditMessage *message);
void qos_owner_flush_lazy(QosOwner *owner, QosTime now);
/* After a time in which nothing could be asked or granted. */
void qos_owner_pump_all(QosOwner *owner, QosTime now);

/* credit_lend.c */
void qos_peer_greeted(QosOwner *owner, QosPeer *peer, const QosCreditMessage *message, QosTime now);
/* The message of that number was received. */
void qos_peer_renew_lease(QosOwner *owner, QosPeer *peer, guint64 sequence, QosTime now);
/* Its session ends; what it had and wanted stays. */
void qos_peer_close(QosPeer *peer);
void qos_peer_remove_requests(QosOwner *owner, QosPeer *peer, QosTime now);
/* The lease is over. */
void qos_peer_evict(QosOwner *owner, QosPeer *peer, QosTime now);
/* Says that the session is not known. */
void qos_peer_reset(QosOwner *owner, QosPeer *peer, guint64 session);
/* Takes the peer off the durable list of clients, unless the grace still waits for it. */
void qos_peer_forget(QosOwner *owner, QosPeer *peer);
void qos_grace_end(QosOwner *owner, QosTime now);
/* It is in the session that it was welcomed to. */
void qos_grace_heard(QosOwner *owner, QosPeer *peer, QosTime now);
/* It has claimed all that it had, or never will. */
void qos_grace_arrived(QosOwner *owner, QosPeer *peer, QosTime now);
