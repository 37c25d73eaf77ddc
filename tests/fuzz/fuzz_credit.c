/*
 * Messages between owners, hostile ones too. The input is a list of steps for a server with a
 * lender above and two borrowers below: two bytes of length and sender, then as many bytes, which
 * are a message, or for the sender 0 an operation of a local user. So that more than the first look
 * at it is tried, a message gets its session and its number in it right, unless the sender says
 * otherwise. What is decoded is encoded to the same bytes again, and what goes out can be decoded.
 */
#include <glib.h>
#include <string.h>

#include "core/credit.h"

#define SELF   2
#define ABOVE  1
#define PEERS  4 /* the lender is 1, the borrowers are 4 and 5: peers 1 to 3 */
#define USES   4
#define AS_IS  4 /* in the sender's byte: the message as it is */
#define TOKENS ((QosToken)1 << QOS_TOKEN_INCARNATION_SHIFT)

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static const QosOwnerId ids[PEERS] = {0, ABOVE, 4, 5};

typedef struct {
    QosOwner *owner;
    QosTime now;
    guint64 session[PEERS], sequence[PEERS];
    QosHold holds[USES];
} Server;

static guint peer_of(QosOwnerId id)
{
    return id == ABOVE ? 1 : id == 4 ? 2 : 3;
}

static void greet(Server *server, guint peer)
{
    QosCreditMessage message = {.type = QOS_MESSAGE_WELCOME,
                                .session = server->session[peer],
                                .lender = 1,
                                .lease = 10 * QOS_SECOND,
                                .token = TOKENS};

    server->sequence[peer] = 0;
    if (peer != 1)
        message = (QosCreditMessage){.type = QOS_MESSAGE_HELLO, .session = ++server->session[peer]};
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

/* Sessions that end begin again at once. */
static void drain(Server *server)
{
    QosOutput output;
    guint greetings = 0;

    while (qos_owner_output(server->owner, &output)) {
        if (output.kind == QOS_OUTPUT_SAVE)
            qos_owner_saved(server->owner, output.peer, server->now);
        if (output.kind != QOS_OUTPUT_SEND)
            continue;
        guint peer = peer_of(output.peer);
        check_out(output.message);
        if (output.message->type == QOS_MESSAGE_HELLO)
            server->session[peer] = output.message->session;
        if ((output.message->type == QOS_MESSAGE_HELLO ||
             output.message->type == QOS_MESSAGE_RESET) &&
            greetings++ < 4)
            greet(server, peer);
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
        message.lender = 1;
        message.sequence = ++server->sequence[peer];
        message.granted = MIN(message.granted, TOKENS * 2);
        message.token = MIN(message.token, TOKENS);
    }
    qos_owner_receive(server->owner, ids[peer], &message, server->now);
    qos_credit_message_clear(&message);
}

/* Bytes: what, which use, which resource, how much. */
static void operate(Server *server, const guint8 *bytes, gsize length)
{
    QosHold *hold = &server->holds[length > 1 ? bytes[1] % USES : 0];
    const guint number = length > 2 ? bytes[2] : 0;
    const guint8 much = length > 3 ? bytes[3] : 1;
    QosResource resource;
    QosCredit want = {.reads = 3, .writes = much & 3};

    qos_resource_init(&resource, number % QOS_RESOURCE_TYPES, "r", 1);
    const QosResourceType *type = qos_resource_type(resource.type);
    if (type->shape == QOS_SHAPE_SPANS)
        want = qos_credit_span(much & 15, much | 15, type->divisible || (much & 1) != 0);
    else if (type->shape == QOS_SHAPE_AMOUNT)
        want = (QosCredit){.amount = much};
    switch (length > 0 ? bytes[0] % 5 : 4) {
    case 0:
        if (hold->book == NULL && hold->request == NULL) {
            *hold = (QosHold){0};
            qos_credit_get(server->owner, server->now, &resource, &want, much >> 3, hold);
        }
        break;
    case 1:
        qos_credit_put(server->owner, server->now, hold);
        break;
    case 2:
        qos_credit_cancel(server->owner, server->now, &resource, &want, (much & 4) != 0);
        break;
    case 3: /* wants modes: right only for these */
        if (hold->book != NULL && type->shape == QOS_SHAPE_MODES && hold->credit.reads <= 3) {
            want = hold->credit;
            qos_credit_convert(server->owner, server->now, &want, 0, hold);
        }
        break;
    default:
        server->now += (QosTime)much * 50 * QOS_MILLISECOND;
        qos_owner_tick(server->owner, server->now);
    }
    qos_credit_clear(type, &want);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    Server server = {.now = QOS_SECOND};
    QosOwnerConfig config;

    qos_owner_config_init(&config, SELF, 1);
    config.above = ABOVE;
    config.lends = TRUE;
    config.lease = 5 * QOS_SECOND;
    config.contention = 20;
    server.owner = qos_owner_new(&config, NULL, 0, server.now);
    drain(&server);
    greet(&server, 2);
    greet(&server, 3);
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
    qos_owner_free(server.owner);
    return 0;
}
