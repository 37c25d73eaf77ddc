/*
 * The frames of the rules and budgets that all mounts share (core/wire.h has the stream):
 *
 *     RULES          u64 version   u32 epoch (ms)   u32 lease (ms)   u32 floor parts
 *                    u32 total   u32 first   u32 count
 *                    count times:  u64 id   u64 left (ms)   u32 length   command
 *     RULES_SEEN     u64 version   u32 floor parts
 *     BUDGET_REPORT, BUDGET_GRANT
 *                    to the end:   u64 rule   u8 unit   u8 length   class   u32 length   bytes
 *     ADMIN          u64 id   u32 uid   u32 length   command
 *     ADMIN_RESULT   u64 id   u32 error   u32 length   text
 *     EPOCH          one message, by qos_epoch_encode()
 *
 * Revocations travel on the same stream. So that none waits behind a long list, a list comes in
 * pages, and so do batches: a frame has no more than QOS_WIRE_PAGE_MAX bytes, or one rule.
 *
 * As for the other frames, nothing that arrives can make a decoder assert, or allocate more than a
 * small multiple of what it has read.
 *
 * Pure. `bytes` that are written to are appended to.
 */
#pragma once

#include "core/epoch.h"
#include "core/wire.h"

#define QOS_WIRE_UNITS           2          /* operations, bytes: as QosUnit (fs/policy.h) */
#define QOS_WIRE_PAGE_MAX        65536u     /* bytes behind the length, unless it is one rule's */
#define QOS_WIRE_COMMAND_MAX     65535u     /* bytes of text */
#define QOS_WIRE_RULES_MAX       10000u     /* in the list */
#define QOS_WIRE_RULES_BYTES_MAX (4u << 20) /* of the commands of a whole list */
#define QOS_WIRE_CLASS_MAX       255        /* bytes of text */
#define QOS_WIRE_BUDGET_MAX      32768u     /* bytes of a report or a grant */
#define QOS_WIRE_RESULT_MAX      65535u     /* bytes of text */
#define QOS_WIRE_ERRNO_MAX       4095
#define QOS_WIRE_PARTS_MAX       (1u << 24) /* of the floors */

/* --- RULES: the list in force, or a page of it --- */

typedef struct {
    guint64 id;    /* > 0; of the rule's start: never used again by that server, kept by `change` */
    QosTime left;  /* > 0: until it expires; QOS_NEVER. Whole milliseconds travel, rounded up */
    char *command; /* "start ...", without expire=; owned */
} QosWireRule;

typedef struct {
    guint64 version; /* of the list: grows with each change, for as long as the server's id is the
                        same; 0: none was ever set */
    QosTime epoch;   /* of budgets (core/budget.h): 1 ms to 10 s; whole milliseconds travel */
    QosTime lease;   /* of a rate: 1 s to 1 h */
    guint parts;     /* the mount has one of so many parts of each floor; 0: it has none */
    guint total;     /* rules in the list */
    guint first;     /* the place in the list of the first one here; 0 is asked first */
    gsize size;      /* bytes of the commands here */
    GArray *rules;   /* of QosWireRule, owned; NULL: none */
} QosWireRules;

void qos_wire_rules_clear(QosWireRules *rules);
/*
 * Appends a page with the rules from the place `first` on, as many as fit. `rules` is within the
 * limits above. Returns where the next page begins: behind the last rule (rules->total, if `rules`
 * is the whole list) there is none. A list without rules is one page.
 */
guint qos_wire_put_rules(GByteArray *bytes, const QosWireRules *rules, guint first);
/* FALSE, with nothing set, where the payload is no page. It is cleared by the caller. */
gboolean qos_wire_get_rules(const guint8 *payload, gsize length, QosWireRules *ret_rules);
/*
 * Takes the rules of `page` into the list that arrives; `page` is cleared. The first page of a list
 * replaces what came of another. FALSE, and the list is cleared, where the page does not continue
 * it, or the list is too long.
 */
gboolean qos_wire_rules_join(QosWireRules *list, QosWireRules *page);
/* Whether all of it has come. */
gboolean qos_wire_rules_are_whole(const QosWireRules *list);

/* --- RULES_SEEN: the mount acknowledges the list that it has put in force --- */

/* Instead of a version, with 0 parts: the mount ends in order, and uses no rule any more. */
#define QOS_WIRE_SEEN_GOODBYE G_MAXUINT64

typedef struct {
    guint64 version;
    guint parts; /* of the floors, as QosWireRules */
} QosWireSeen;

void qos_wire_put_seen(GByteArray *bytes, const QosWireSeen *seen);
/* FALSE, with nothing set, where it is none. */
gboolean qos_wire_get_seen(const guint8 *payload, gsize length, QosWireSeen *ret_seen);

/* --- BUDGET_REPORT, BUDGET_GRANT: batches, an item for each class --- */

typedef struct {
    guint64 rule;                       /* QosWireRule.id */
    guint unit;                         /* of the rate: below QOS_WIRE_UNITS */
    char class[QOS_WIRE_CLASS_MAX + 1]; /* of the rule: a JobID, "uid 7", ...; may be empty */
    const guint8 *bytes;                /* a report, or a grant; opaque here; borrowed */
    gsize length;                       /* 1 to QOS_WIRE_BUDGET_MAX */
} QosWireBudget;

/* Appends the item to the batch, as qos_wire_put_credits() does. `type` is BUDGET_REPORT or
 * BUDGET_GRANT, and that of the open batch. */
void qos_wire_put_budget(GByteArray *bytes, gsize *batch, QosWireType type,
                         const QosWireBudget *item);
/* Takes the first item from the front of the payload; call it while *length > 0. Its bytes are the
 * payload's. FALSE, with nothing set, where there is none. */
gboolean qos_wire_get_budget(const guint8 **payload, gsize *length, QosWireBudget *ret_item);

/* --- EPOCH --- */

/* FALSE, with nothing appended, where the message is too long for a frame's page. */
gboolean qos_wire_put_epoch(GByteArray *bytes, const QosEpochMessage *message);
/* FALSE, with nothing set, where it is none. It is cleared by the caller. */
gboolean qos_wire_get_epoch(const guint8 *payload, gsize length, QosEpochMessage *ret_message);

/* --- ADMIN, ADMIN_RESULT --- */

typedef struct {
    guint64 id;    /* of the question, for its result: the mount's own */
    guint32 uid;   /* of the process that asks, as the mount says */
    char *command; /* not empty; owned */
} QosWireAdmin;

typedef struct {
    guint64 id;  /* of the question */
    guint error; /* an errno, up to QOS_WIRE_ERRNO_MAX; 0: it was done */
    char *text;  /* why not, or what was asked for: lines; owned */
} QosWireAdminResult;

void qos_wire_admin_clear(QosWireAdmin *admin);
void qos_wire_admin_result_clear(QosWireAdminResult *result);
/* FALSE, with nothing appended, where the command cannot travel: it is too long, empty, not UTF-8,
 * or has control characters. */
gboolean qos_wire_put_admin(GByteArray *bytes, const QosWireAdmin *admin);
/* A text that is too long is cut, and what is not UTF-8, or a control character, is replaced. */
void qos_wire_put_admin_result(GByteArray *bytes, const QosWireAdminResult *result);
/* FALSE, with nothing set, where the payload is none. They are cleared by the caller. */
gboolean qos_wire_get_admin(const guint8 *payload, gsize length, QosWireAdmin *ret_admin);
gboolean qos_wire_get_admin_result(const guint8 *payload, gsize length,
                                   QosWireAdminResult *ret_result);

/* Whether a command can travel: 1 to QOS_WIRE_COMMAND_MAX bytes of UTF-8 without control
 * characters. */
gboolean qos_wire_is_command(const char *command);
