/*
 * What a mount borrows from the lock server: the credits under which the kernel caches, and the
 * locks of files across mounts. docs/design/credits.md tells how it works.
 *
 * A *use* holds a credit of a resource (core/resource.h) from qos_lockclient_get() to
 * qos_lockclient_put(). What is put stays cached: the next use of it asks nobody, until another
 * mount wants it or the cache shrinks. Then `drop` tells to forget what was done under it, and
 * qos_lockclient_release() says that it is forgotten:
 *
 *     get -> use -> put -> (cached) -> get ...                       no message
 *                          (cached) -> drop -> forget -> release     it may go to another mount
 *                          (cached) -> lost -> forget                it went already
 *
 * A credit in use is not dropped. An answer to the kernel uses its credit until it is sent, so the
 * kernel never caches it after it was told to forget.
 *
 * Without a lender, because the server was never reached or is away for longer than its lease, a
 * get gives QOS_CREDIT_ERROR: cache nothing. qos_lockclient_valid() says for how long what is
 * cached may be used.
 *
 * If the mount has a whole group of inodes, and no other mount wants any of them, their uses begin
 * and end without a lock (fs/lockengine/fastpath.h).
 *
 * Thread-safe. One thread, the *link*, reads the socket and makes the callbacks, unless another
 * thread does so in its place (qos_lockclient_await). All callbacks come from these two, one at a
 * time, without locks. They must not block, and may call any function below but
 * qos_lockclient_free(), qos_lockclient_await() and qos_lockclient_await_first(). A thread that
 * asks for a credit or releases one sends the message itself, if the socket takes it at once
 * (fs/lockclient/link.h). Apart from these three, no function below waits for anything but the
 * locks of client and link.
 */
#pragma once

#include "core/wire.h"
#include "fs/lockengine/use.h"

typedef struct QosLockclient QosLockclient;

typedef struct {
    const char *server;      /* "unix:PATH", "HOST:PORT", "[ADDRESS]:PORT", or "munge:" and these */
    const char *ca;          /* PEM files, for TLS: the authorities to believe; ... */
    const char *certificate; /* ... and the mount's own; NULL: without TLS */
    const char *key;
    const char *munged;  /* for MUNGE: its munged's socket; NULL: the usual one */
    QosOwnerId id;       /* of this mount, always the same; > 0 */
    guint32 incarnation; /* > 0, and grows with each start */
    const char *store;   /* names what is mounted: the same on every mount of it */
    const char *name;    /* for people: "host:/mountpoint" */
    gpointer arg;        /* for the callbacks, none of which may be NULL */
    /* Forget what was cached under these credits of the resource, then call
     * qos_lockclient_release() with the same two, from any thread. Nothing else of the resource is
     * dropped before that. The part that another mount wants is not in use, and is not used before
     * the release. If any other part is used meanwhile, it stays. If the other mount only reads, it
     * gets only the rights to write: then what is cached for reading stays. If not `is_wanted`, the
     * cache is only to shrink; that comes after all that is wanted. */
    void (*drop)(const QosResource *resource, const QosCredit *credit, gboolean is_wanted,
                 gpointer arg);
    /* A part of the resource that was dropped to shrink the cache, and is not released yet, is
     * wanted by another mount now. May be told again. */
    void (*wanted)(const QosResource *resource, gpointer arg);
    /* These credits are lost already, whether in use or not. Forget what is cached under them; file
     * locks are gone. Nothing is to be released. */
    void (*lost)(const QosResource *resource, const QosCredit *credit, gpointer arg);
    /* The wait of that id (qos_lockclient_set_wait) would never end. */
    void (*deadlocked)(guint64 wait, gpointer arg);
    /* There is no lender any more, and what was cached is lost; or there is one again. */
    void (*changed)(gboolean is_up, gpointer arg);

    /* What travels beside the credits (core/wire_cluster.h); these three may be NULL. `client` is
     * told because they may come before qos_lockclient_new() has returned. */
    /* The server has welcomed the mount, before any frame of that connection; or the connection is
     * no more, behind its last frame, and when the client is freed. By the link. */
    void (*connected)(QosLockclient *client, gboolean is_connected, gpointer arg);
    /* A payload of RULES, by the link; of BUDGET_GRANT, ADMIN_RESULT or EPOCH. FALSE: it is broken,
     * and the connection is made anew. */
    gboolean (*frame)(QosWireType type, const guint8 *payload, gsize length, gpointer arg);
    /* A time of qos_lockclient_call_at() has come, or it was poked. By the link, perhaps while
     * another thread makes other callbacks in its place. */
    void (*due)(QosLockclient *client, gpointer arg);
} QosLockclientConfig;

/* Begins at once to look for the server, whether it is there or not. The strings are copied.
 * Errors (QOS_ERROR): an address or file that cannot be. */
QosLockclient *qos_lockclient_new(const QosLockclientConfig *config, GError **error);
/* Waits until the first attempt to reach the server has ended, and its failure has been logged; at
 * most for `patience`, a duration, which is logged too. */
void qos_lockclient_await_first(QosLockclient *client, QosTime patience);
/* Gives back what it has, if the server is there. No use is held or waits, and no callback comes
 * after it. NULL is allowed. */
void qos_lockclient_free(QosLockclient *client);

/*
 * Uses `want` of the resource (core/credit.h: qos_credit_get). Returns
 *
 *     GRANTED       it is held
 *     WAITING       use->done will be called, perhaps before this returns
 *     DENIED        by another, or by the lender
 *     RETRY         the lender is full
 *     ERROR         there is no lender
 *
 * After any of the last three, another mount may have cached something. A caller that only reads
 * goes on, and caches nothing; a caller that is to change something calls
 * qos_lockclient_retry(). A credit on another resource may be lost, and an old one given back,
 * meanwhile.
 */
QosCreditVerdict qos_lockclient_get(QosLockclient *client, const QosResource *resource,
                                    const QosCredit *want, guint flags, QosLockUse *use);
/*
 * As qos_lockclient_get(), for a thread that can wait a little and holds no locks. If the use is
 * WAITING, the thread reads in place of the link until its wait is over, or for `patience` at most,
 * a duration. It makes the callbacks that come of it, its own `done` among them. So the answer
 * wakes no other thread. It returns at once if another thread reads, or if only the link can (TLS).
 * The use stays until this returns.
 */
QosCreditVerdict qos_lockclient_await(QosLockclient *client, const QosResource *resource,
                                      const QosCredit *want, guint flags, QosLockUse *use,
                                      QosTime patience);
/*
 * Of one that was refused, with that verdict, and must not go on without. Its user holds nothing
 * else meanwhile. Returns WAITING if use->done will be called, with QOS_CREDIT_RETRY, when the
 * caller is to ask again; or the verdict if there is no hope. The caller keeps *since, 0 at first,
 * until it has what it wants.
 */
QosCreditVerdict qos_lockclient_retry(QosLockclient *client, QosLockUse *use,
                                      QosCreditVerdict verdict, QosTime *since);
/* Of locks: `want` instead of what is held, which is kept until then (qos_credit_convert). */
QosCreditVerdict qos_lockclient_convert(QosLockclient *client, const QosCredit *want, guint flags,
                                        QosLockUse *use);
/* Ends the use, which does not wait. Of one that was denied or lost: nothing happens. */
void qos_lockclient_put(QosLockclient *client, QosLockUse *use);
/* Of one that is held: whether another mount waits for some of its resource, as far as is known. */
gboolean qos_lockclient_is_wanted(QosLockclient *client, const QosLockUse *use);
/* Takes back one that waits: done will not be called. FALSE: it has been called, or is being. */
gboolean qos_lockclient_withdraw(QosLockclient *client, QosLockUse *use);

/* Whether `want` could be held at this moment, without asking; if so, it is as a use that is put at
 * once. */
gboolean qos_lockclient_has(QosLockclient *client, const QosResource *resource,
                            const QosCredit *want);

/* To be called when what `drop` named is forgotten. */
void qos_lockclient_release(QosLockclient *client, const QosResource *resource,
                            const QosCredit *credit);
/* Keeps this part of what `drop` named, where no other mount waits for it (fs/lockengine/recall.h):
 * it need not be forgotten. FALSE: one does, or may. Before the release. */
gboolean qos_lockclient_keep(QosLockclient *client, const QosResource *resource,
                             const QosCredit *credit);
/* Keeps what `drop` named, instead of that: where only the cache is to shrink, and it was spared
 * less than `times` since it was last used; at most 255. It is as if it had been used just now.
 * FALSE: it is to be forgotten. */
gboolean qos_lockclient_spare(QosLockclient *client, const QosResource *resource, guint times);
/* Gives back a part of the cache, the least useful first, because memory is short
 * (sys/memory_pressure.h): `drop` comes for each. `part`: of the bytes cached, 0 to 1. */
void qos_lockclient_shrink(QosLockclient *client, double part);

/* A process that has file locks waits for another one, behind a process here or by a use that
 * waits; or it waits already, and its locks have changed. If this closes a circle of waits across
 * mounts, `deadlocked` is called. */
void qos_lockclient_set_wait(QosLockclient *client, const QosWireWait *wait);
/* It waits no more. */
void qos_lockclient_end_wait(QosLockclient *client, guint64 id);

/* --- what travels beside the credits; any thread --- */

/* Bytes of such frames that wait for room in the socket, beyond which none are taken. */
#define QOS_LOCKCLIENT_URGENT_MAX (4u << 20)
/* Sends whole frames of RULES_SEEN, BUDGET_REPORT, ADMIN or EPOCH, ahead of all credits that are
 * not written yet; takes them over. FALSE: they are dropped, because there is no open connection,
 * or too much waits already. Frames of a connection that breaks are lost, and `connected` tells of
 * it. */
gboolean qos_lockclient_send(QosLockclient *client, GByteArray *frames);
/* Calls `due` once, at that time of qos_lockclient_clock() or at one that was given before, if that
 * is earlier. */
void qos_lockclient_call_at(QosLockclient *client, QosTime when);
/* Calls `due` at once. Takes no lock, so that it may be called with any held. */
void qos_lockclient_poke(QosLockclient *client);
/* CLOCK_BOOTTIME: goes on while the machine sleeps, and a time that has come meanwhile is due at
 * once when it wakes up. */
QosTime qos_lockclient_clock(void);

/* For how long from now what is cached may be used, a duration; 0: not at all. Takes no lock. */
QosTime qos_lockclient_valid(const QosLockclient *client);
/* How often all credits were lost at once. If the number is as before, and qos_lockclient_valid()
 * was not 0 just before, then what was held is still held. Takes no lock. */
guint qos_lockclient_losses(const QosLockclient *client);
/* How often credits on inodes have come from the server, modulo 2^32. While it stays the same,
 * those that are here were here all the time. Takes no lock. */
guint qos_lockclient_grants(const QosLockclient *client);
/* How many inodes share a resource (QOS_RESOURCE_INODES), by their numbers: a power of two, as the
 * server says; the same as long as anything is cached. 0: there was no server yet. Takes no
 * lock. */
guint qos_lockclient_group(const QosLockclient *client);

extern const char *const qos_lockclient_state_names[];

void qos_lockclient_status(QosLockclient *client, QosLockclientStatus *ret_status);
