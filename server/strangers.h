/*
 * The connections of which it is not known yet who they are, and whose handshake is next.
 *
 *     add -> (knock -> waiting -> qos_connection_shake() -> shaken) -> remove: HELLO, or the end
 *
 * A handshake keeps a thread for as long as the peer likes, up to the patience, so that there are
 * QOS_STRANGERS_SHAKING at a time. The next one is for the host that has fewest under way, and of
 * one host for who came first. Where all are taken, the oldest of the host that has most makes way
 * for one of another that has fewer by two at least: so a crowd from one place keeps out itself,
 * and a thousand mounts that come back at once, from as many places or from one, wait in their
 * order, and none makes another begin anew.
 */
#pragma once

#include "server/connection.h"

#define QOS_STRANGERS_SHAKING  64 /* handshakes under way */
#define QOS_STRANGERS_TOO_MANY "too many others wait to say HELLO"

/* Embedded. Of connections it has no references: they are removed before they go. */
typedef struct {
    GQueue all;        /* the oldest first */
    GQueue waiting;    /* of these; likewise */
    GQueue shaking;    /* likewise */
    GHashTable *hosts; /* by name; those with any stranger */
    gboolean is_serving;
} QosStrangers;

void qos_strangers_init(QosStrangers *strangers);
/* Of none. */
void qos_strangers_clear(QosStrangers *strangers);
void qos_strangers_add(QosStrangers *strangers, QosConnection *connection);
/* It is none any more. Nothing happens if it was none. */
void qos_strangers_remove(QosStrangers *strangers, QosConnection *connection);

/* For QosConnectionUser. */
void qos_strangers_knock(QosStrangers *strangers, QosConnection *connection);
void qos_strangers_shaken(QosStrangers *strangers, QosConnection *connection);

/* Who makes way where there is no room for one more: the oldest of the host that has most. NULL:
 * each has one at most. */
QosConnection *qos_strangers_to_go(const QosStrangers *strangers);
guint qos_strangers_count(const QosStrangers *strangers);
