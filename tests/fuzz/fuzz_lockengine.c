/*
 * What a server says to a mount's engine (fs/lockengine/engine.h), a hostile one too, while
 * programs use credits. The input is a list of steps: two bytes of length and kind, then as many
 * bytes, which are a message of the server, or an operation. So that more than the first look at it
 * is tried, a message gets its session and its number in it right, unless the kind says otherwise.
 * All waits and drops must be answered once, and what goes out can be read.
 */
#include <glib.h>
#include <string.h>

#include "fs/lockengine/engine.h"
#include "tests/fuzz/want.h"

#define OWNER  10
#define SERVER 1
#define USES   4
#define DROPS  4
#define TOKENS ((QosToken)1 << QOS_TOKEN_INCARNATION_SHIFT)

/* In the kind's byte. */
#define OPERATION 1
#define AS_IS     2  /* the message as it is */
#define NO_SIGNAL 4  /* as in a grace */
#define NEXT_LIFE 8  /* the server has restarted */
#define TWICE     16 /* the message comes again, in the same frame */

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

typedef struct {
    QosLockUse use;
    gboolean is_used, is_waiting;
} Use;

typedef struct {
    QosResource resource;
    QosCredit credit;
} Drop;

typedef struct {
    QosLockengine *engine;
    QosTime now;
    guint64 session, sequence;
    guint32 incarnation; /* the server's */
    gboolean is_open;
    Use uses[USES];
    Drop drops[DROPS];
    guint drop_count;
} Mount;

static void done(QosLockUse *use, QosCreditVerdict verdict)
{
    Use *whole = (Use *)use;

    g_assert_true(whole->is_waiting);
    whole->is_waiting = FALSE;
    whole->is_used = verdict == QOS_CREDIT_GRANTED;
}

static void release(Mount *mount, guint place)
{
    Drop drop = mount->drops[place];

    mount->drops[place] = mount->drops[--mount->drop_count];
    qos_lockengine_release(mount->engine, &drop.resource, &drop.credit, mount->now);
    qos_credit_clear(qos_resource_type(drop.resource.type), &drop.credit);
}

static void take_event(Mount *mount, QosLockevent *event)
{
    if (event->kind == QOS_LOCKEVENT_DONE)
        event->use->done(event->use, event->verdict);
    if (event->kind == QOS_LOCKEVENT_DROP) {
        if (mount->drop_count == DROPS)
            release(mount, 0);
        mount->drops[mount->drop_count++] = (Drop){event->resource, event->credit};
        event->credit = (QosCredit){0};
    }
    qos_credit_clear(qos_resource_type(event->resource.type), &event->credit);
}

static void read_out(Mount *mount, const GByteArray *bytes)
{
    QosCreditMessage message;
    QosWireReader reader;
    const guint8 *payload;
    QosWireType type;
    gsize length;

    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, bytes->data, bytes->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        while (type == QOS_WIRE_CREDITS && length > 0) {
            g_assert_true(qos_wire_get_credits(&payload, &length, &message));
            if (message.type == QOS_MESSAGE_HELLO) {
                mount->session = message.session;
                mount->sequence = 0;
            }
            qos_credit_message_clear(&message);
        }
    }
    qos_wire_reader_clear(&reader);
}

static void drain(Mount *mount)
{
    QosLockevent event;
    GByteArray *bytes;

    while (qos_lockengine_take_event(mount->engine, &event))
        take_event(mount, &event);
    while ((bytes = qos_lockengine_take_bytes(mount->engine)) != NULL) {
        read_out(mount, bytes);
        g_byte_array_unref(bytes);
    }
}

static void connect_to_server(Mount *mount, guint8 much)
{
    const QosWireWelcome welcome = {.version = QOS_WIRE_VERSION,
                                    .id = SERVER + (much & 1),
                                    .incarnation = mount->incarnation,
                                    .lease = 5 * QOS_SECOND,
                                    .resend = 200 * QOS_MILLISECOND,
                                    .group = much & 2 ? 64 : 1};
    g_autoptr(GError) error = NULL;

    qos_lockengine_disconnected(mount->engine, mount->now);
    mount->is_open = qos_lockengine_connected(mount->engine, &welcome, mount->now, &error);
}

/* --- steps --- */

static void hear(Mount *mount, guint8 kind, const guint8 *bytes, gsize length)
{
    g_autoptr(GByteArray) frame = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;
    QosCreditMessage message;

    if (!mount->is_open || !qos_credit_message_decode(&message, bytes, length))
        return;
    mount->incarnation += (kind & NEXT_LIFE) != 0;
    if (!(kind & AS_IS)) {
        message.session = mount->session;
        message.sequence = message.type > QOS_MESSAGE_RESET ? ++mount->sequence : 0;
        message.lender = mount->incarnation;
        message.granted = MIN(message.granted, TOKENS * 2);
        message.token = MIN(message.token, TOKENS);
    }
    if (kind & NO_SIGNAL)
        message.stamp.sequence = 0;
    for (guint i = 0; i <= (kind & TWICE ? 1 : 0); i++)
        g_assert_true(qos_wire_put_credits(frame, &batch, &message));
    qos_credit_message_clear(&message);
    if (!qos_lockengine_receive(mount->engine, frame->data + 5, frame->len - 5, mount->now)) {
        qos_lockengine_disconnected(mount->engine, mount->now);
        mount->is_open = FALSE;
    }
}

static void get(Mount *mount, Use *use, const QosResource *resource, const QosCredit *want,
                guint8 much)
{
    if (use->is_used || use->is_waiting)
        return;
    *use = (Use){.use = {.done = done, .goes_on = (much & 4) != 0}, .is_waiting = TRUE};
    const QosCreditVerdict verdict =
        qos_lockengine_get(mount->engine, resource, want, much >> 3 & 7, &use->use, mount->now);
    if (verdict != QOS_CREDIT_WAITING)
        done(&use->use, verdict);
}

static void end_use(Mount *mount, Use *use)
{
    if (use->is_waiting && qos_lockengine_withdraw(mount->engine, &use->use, mount->now))
        use->is_waiting = FALSE;
    else if (use->is_used)
        qos_lockengine_put(mount->engine, &use->use, mount->now);
    use->is_used = FALSE;
}

static void drop_or_keep(Mount *mount, guint8 what, guint8 much)
{
    const guint place = much % DROPS;
    const Drop *drop = &mount->drops[place];

    if (place >= mount->drop_count)
        return;
    if (what == 3) {
        qos_lockengine_keep(mount->engine, &drop->resource, &drop->credit);
    } else if (what == 4 && qos_lockengine_spare(mount->engine, &drop->resource, 2, mount->now)) {
        qos_credit_clear(qos_resource_type(drop->resource.type), &mount->drops[place].credit);
        mount->drops[place] = mount->drops[--mount->drop_count];
        return;
    }
    release(mount, place);
}

/* Bytes: what, which use, which resource, how much. */
static void operate(Mount *mount, const guint8 *bytes, gsize length)
{
    if (length < 4)
        return;
    const guint8 what = bytes[0] % 9, much = bytes[3];
    const guint8 name = bytes[2] >> 4;
    Use *use = &mount->uses[bytes[1] % USES];
    QosResource resource;

    qos_resource_init(&resource, bytes[2] % QOS_RESOURCE_TYPES, &name, 1);
    const QosResourceType *type = qos_resource_type(resource.type);
    QosCredit want = want_of(type, much);
    if (what == 0)
        get(mount, use, &resource, &want, much);
    else if (what == 1)
        end_use(mount, use);
    else if (what < 5)
        drop_or_keep(mount, what, much);
    else if (what == 5)
        qos_lockengine_shrink(mount->engine, much / 255.0, mount->now);
    else if (what == 6)
        connect_to_server(mount, much);
    else
        mount->now += (QosTime)much * 50 * QOS_MILLISECOND;
    qos_credit_clear(type, &want);
    if (what == 7 || what == 8)
        qos_lockengine_tick(mount->engine, mount->now);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    Mount mount = {.now = 1000 * QOS_SECOND, .incarnation = 1};

    mount.engine = qos_lockengine_new(OWNER, 1);
    connect_to_server(&mount, 0);
    drain(&mount);
    while (size >= 2) {
        gsize length = MIN(data[0], size - 2);
        if (data[1] & OPERATION)
            operate(&mount, data + 2, length);
        else
            hear(&mount, data[1], data + 2, length);
        drain(&mount);
        data += 2 + length;
        size -= 2 + length;
    }
    for (guint i = 0; i < USES; i++)
        end_use(&mount, &mount.uses[i]);
    drain(&mount);
    while (mount.drop_count > 0) {
        release(&mount, 0);
        drain(&mount);
    }
    qos_lockengine_free(mount.engine);
    return 0;
}
