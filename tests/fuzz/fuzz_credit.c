/*
 * Messages between owners, hostile ones too. The first byte says what the owner is: a server with a
 * lender above and two borrowers below, a root, or a mount. It also says how its life begins: with
 * borrowers that may reclaim, or a lender that restores. The rest is a list of steps: two bytes of
 * length and sender, then as many bytes, which are a message, or for the sender 0 an operation of a
 * local user. So that more than the first look at it is tried, a message gets its session and its
 * number in it right, unless the sender says otherwise. What is decoded is encoded to the same
 * bytes again, and what goes out can be decoded.
 */
#include <glib.h>
#include <string.h>

#include "core/credit.h"
#include "tests/fuzz/want.h"

#define SELF   2
#define ABOVE  1
#define PEERS  4 /* the lender is 1, the borrowers are 4 and 5: peers 1 to 3 */
#define USES   4
#define TOKENS ((QosToken)1 << QOS_TOKEN_INCARNATION_SHIFT)

/* In the sender's byte. */
#define AS_IS     4 /* the message as it is */
#define NEXT_LIFE 8 /* the lender that sends it has restarted */

/* In the first byte. */
#define ROOT        1
#define MOUNT       2  /* unless ROOT */
#define OPTION      4  /* a root: all of amounts and identifiers is little; a mount: it caches */
#define WITH_GRACE  8  /* the borrowers are on the list */
#define WELCOMES    16 /* the lender welcomes to reclaim and restore */
#define SAVES_LATE  32 /* when time passes */
#define HELLO_SHIFT 6  /* of the borrowers' flags: lends, reclaims; both: restores */

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static const QosOwnerId ids[PEERS] = {0, ABOVE, 4, 5};

typedef struct {
    QosOwner *owner;
    QosTime now;
    guint8 kind; /* the first byte */
    guint64 session[PEERS], sequence[PEERS];
    guint32 lender; /* its incarnation */
    gboolean is_unsaved[PEERS];
    QosHold holds[USES];
    QosResource wanted_of; /* the last conflict */
    QosCredit wanted;
} Server;

static guint peer_of(QosOwnerId id)
{
    return id == ABOVE ? 1 : id == 4 ? 2 : 3;
}

static void greet(Server *server, guint peer)
{
    const guint8 hello = server->kind >> HELLO_SHIFT;
    QosCreditMessage message = {.type = QOS_MESSAGE_WELCOME,
                                .session = server->session[peer],
                                .lender = server->lender,
                                .lease = 10 * QOS_SECOND,
                                .token = TOKENS};

    server->sequence[peer] = 0;
    if (server->kind & WELCOMES)
        message.flags = QOS_WELCOME_RECLAIM | QOS_WELCOME_RESTORE;
    if (peer != 1)
        message = (QosCreditMessage){.type = QOS_MESSAGE_HELLO,
                                     .flags = hello == 3 ? hello | QOS_HELLO_RESTORES : hello,
                                     .session = ++server->session[peer]};
    qos_owner_receive(server->owner, ids[peer], &message, server->now);
}

static void check_out(const QosCreditMessage *message)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosCreditMessage decoded;

    qos_credit_message_encode(message, bytes);
    g_assert_true(qos_credit_message_decode(&decoded, bytes->data, bytes->len));
    qos_credit_message_clear(&decoded);
}

static void forget_wanted(Server *server)
{
    qos_credit_clear(qos_resource_type(server->wanted_of.type), &server->wanted);
}

static void take_output(Server *server, const QosOutput *output)
{
    switch (output->kind) {
    case QOS_OUTPUT_SAVE:
        if (server->kind & SAVES_LATE)
            server->is_unsaved[peer_of(output->peer)] = TRUE;
        else
            qos_owner_saved(server->owner, output->peer, server->now);
        break;
    case QOS_OUTPUT_CONFLICT:
        forget_wanted(server);
        server->wanted_of = output->resource;
        server->wanted = qos_credit_copy(qos_resource_type(output->resource.type), &output->credit);
        break;
    case QOS_OUTPUT_SEND:
        check_out(output->message);
        if (output->message->type == QOS_MESSAGE_HELLO)
            server->session[1] = output->message->session;
        break;
    default:
        break;
    }
}

/* Sessions that end begin again at once. */
static void drain(Server *server)
{
    QosOutput output;
    guint greetings = 0;

    while (qos_owner_output(server->owner, &output)) {
        take_output(server, &output);
        if (output.kind == QOS_OUTPUT_SEND &&
            (output.message->type == QOS_MESSAGE_HELLO ||
             output.message->type == QOS_MESSAGE_RESET) &&
            greetings++ < 4)
            greet(server, peer_of(output.peer));
    }
}

static void receive(Server *server, guint8 sender, const guint8 *bytes, gsize length)
{
    guint peer = sender % PEERS;
    g_autoptr(GByteArray) again = g_byte_array_new();
    QosCreditMessage message;

    if (!qos_credit_message_decode(&message, bytes, length))
        return;
    qos_credit_message_encode(&message, again);
    g_assert_cmpmem(again->data, again->len, bytes, length);
    if (!(sender & AS_IS)) {
        message.session = server->session[peer];
        message.sequence = message.type > QOS_MESSAGE_RESET ? ++server->sequence[peer] : 0;
        message.lender = 1;
        if (peer == 1) {
            server->lender += (sender & NEXT_LIFE) != 0;
            message.lender = server->lender;
        }
        message.granted = MIN(message.granted, TOKENS * 2);
        message.token = MIN(message.token, TOKENS);
    }
    if (message.type < QOS_MESSAGE_RESET)
        server->sequence[peer] = 0;
    qos_owner_receive(server->owner, ids[peer], &message, server->now);
    qos_credit_message_clear(&message);
}

static void pass_time(Server *server, guint8 much)
{
    for (guint peer = 0; peer < PEERS; peer++) {
        if (server->is_unsaved[peer])
            qos_owner_saved(server->owner, ids[peer], server->now);
        server->is_unsaved[peer] = FALSE;
    }
    server->now += (QosTime)much * 50 * QOS_MILLISECOND;
    qos_owner_tick(server->owner, server->now);
}

static void operate_on(Server *server, guint8 what, const QosResource *resource,
                       const QosCredit *want, guint8 much, QosHold *hold)
{
    QosOwner *owner = server->owner;
    const QosTime now = server->now;

    switch (what % 9) {
    case 0:
        if (hold->book == NULL && hold->request == NULL) {
            *hold = (QosHold){0};
            qos_credit_get(owner, now, resource, want, much >> 3 & 31, hold);
        }
        break;
    case 1:
        qos_credit_put(owner, now, hold);
        break;
    case 2:
        qos_credit_cancel(owner, now, resource, want, (much & 4) != 0);
        break;
    case 3:
        if (hold->request == NULL)
            qos_credit_convert(owner, now, want, much >> 3 & 31, hold);
        break;
    case 4:
        pass_time(server, much);
        break;
    case 5: /* the local user agrees to what was asked of it */
        qos_credit_cancel(owner, now, &server->wanted_of, &server->wanted, (much & 4) != 0);
        break;
    case 6:
        qos_credit_withdraw(owner, now, hold);
        break;
    case 7:
        qos_owner_reconnected(owner, now);
        break;
    default:
        qos_owner_leave(owner, now);
    }
}

/* Bytes: what, which use, which resource, how much. */
static void operate(Server *server, const guint8 *bytes, gsize length)
{
    QosHold *hold = &server->holds[length > 1 ? bytes[1] % USES : 0];
    const guint number = length > 2 ? bytes[2] : 0;
    const guint8 much = length > 3 ? bytes[3] : 1;
    QosResource resource;

    qos_resource_init(&resource, number % QOS_RESOURCE_TYPES, "r", 1);
    if (hold->book != NULL && length > 0 &&
        bytes[0] % 9 == 3) /* a conversion is of what it holds */
        resource = qos_extra_resource(qos_hold_extra(hold))[0];
    const QosResourceType *type = qos_resource_type(resource.type);
    QosCredit want = want_of(type, much);
    operate_on(server, length > 0 ? bytes[0] : 4, &resource, &want, much, hold);
    qos_credit_clear(type, &want);
}

static void little_capital(const QosResource *resource, QosCredit *ret_credit,
                           gpointer arg G_GNUC_UNUSED)
{
    const QosResourceType *type = qos_resource_type(resource->type);

    if (type->shape == QOS_SHAPE_AMOUNT)
        *ret_credit = (QosCredit){.amount = 200};
    else if (type->shape == QOS_SHAPE_SPANS)
        *ret_credit = qos_credit_span(0, 99, TRUE);
    else
        *ret_credit = (QosCredit){.reads = 7, .writes = 7};
}

static void begin(Server *server)
{
    const guint8 kind = server->kind;
    const gboolean is_root = (kind & ROOT) != 0;
    QosOwnerConfig config;

    qos_owner_config_init(&config, SELF, 1);
    config.above = is_root ? 0 : ABOVE;
    config.lends = is_root || !(kind & MOUNT);
    config.caches = !config.lends && (kind & OPTION);
    config.lease = 5 * QOS_SECOND;
    config.contention = 20;
    config.capital = is_root && (kind & OPTION) ? little_capital : NULL;
    server->owner = qos_owner_new(&config, ids + 2,
                                  config.lends && (kind & WITH_GRACE) ? PEERS - 2 : 0, server->now);
    drain(server);
    if (!config.lends)
        return;
    greet(server, 2);
    greet(server, 3);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    Server server = {.now = QOS_SECOND, .lender = 1};

    if (size == 0)
        return 0;
    server.kind = data[0];
    data++;
    size--;
    begin(&server);
    while (size >= 2) {
        gsize length = MIN(data[0], size - 2);
        if (data[1] % PEERS == 0)
            operate(&server, data + 2, length);
        else
            receive(&server, data[1], data + 2, length);
        drain(&server);
        data += 2 + length;
        size -= 2 + length;
    }
    forget_wanted(&server);
    qos_owner_free(server.owner);
    return 0;
}
