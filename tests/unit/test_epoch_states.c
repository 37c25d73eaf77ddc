/*
 * What an epoch handler makes of each message in each of its states, and of the timer: a table.
 */
#include <errno.h>

#include "epoch_fixture.h"

typedef struct {
    const char *what;
    struct {
        guint64 from;
        QosEpochMessageType type; /* 0: the timer */
        guint64 ticket;
        gint64 epoch;
        const char *data;
    } message;
    struct {
        QosEpochState state;
        const char *out; /* NULL: refused */
    } after[4];          /* IDLE, WAITING, CLOSING, PASSED */
} Row;

#define I QOS_EPOCH_IDLE
#define W QOS_EPOCH_WAITING
#define C QOS_EPOCH_CLOSING
#define P QOS_EPOCH_PASSED

static const Row rows[] = {
    {"ready",
     {5, QOS_EPOCH_READY, 2, QOS_EPOCH_FIRST, "c"},
     {{P, "9 READY 1.1 0 c;"}, {P, "9 READY 1.2 0 c;"}, {P, "9 READY 1.2 0 c;"}, {P, ""}}},
    {"another",
     {7, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "d"},
     {{P, "9 READY 1.1 0 d;"}, {C, ""}, {C, ""}, {P, ""}}},
    {"leaves",
     {5, QOS_EPOCH_LEAVE, 2, 0, NULL},
     {{I, NULL}, {I, "9 LEAVE 1.2 0 ;"}, {P, "9 READY 1.2 0 b;"}, {I, "9 LEAVE 1.2 0 ;"}}},
    {"a ready one leaves",
     {6, QOS_EPOCH_LEAVE, 2, 0, NULL},
     {{I, NULL}, {W, NULL}, {W, ""}, {P, NULL}}},
    {"leave, late", {5, QOS_EPOCH_LEAVE, 0, 0, NULL}, {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"timer",
     {0, 0, 0, 0, NULL},
     {{I, ""}, {W, ""}, {P, "9 READY 1.2 0 b;"}, {P, "9 READY 1.1 0 a;"}}},
    {"start",
     {PARENT, QOS_EPOCH_START, FIRST(1), FIRST(1) + 1, "z"},
     {{I, NULL}, {W, NULL}, {C, NULL}, {W, "5 START 1 1.2 z;"}}},
    {"start, wrong ticket",
     {PARENT, QOS_EPOCH_START, FIRST(1) + 1, FIRST(1) + 1, "z"},
     {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"start, wrong sender",
     {8, QOS_EPOCH_START, FIRST(1), FIRST(1) + 1, "z"},
     {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"start of no epoch",
     {PARENT, QOS_EPOCH_START, FIRST(1), 0, "z"},
     {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"refuse",
     {PARENT, QOS_EPOCH_REFUSE, FIRST(1), -ESTALE, NULL},
     {{I, NULL}, {W, NULL}, {C, NULL}, {I, "5 REFUSE 1 -116 ; 9 LEAVE 1.2 0 ;"}}},
    {"refuse without an error",
     {PARENT, QOS_EPOCH_REFUSE, FIRST(1), 0, NULL},
     {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"ready again",
     {5, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "a"},
     {{P, "9 READY 1.1 0 a;"}, {W, "5 START 1 1.1 a;"}, {C, "5 START 1 1.1 a;"}, {P, ""}}},
    {"ready, late",
     {5, QOS_EPOCH_READY, 0, QOS_EPOCH_FIRST, "e"},
     {{P, "9 READY 1.1 0 e;"}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"parent as child",
     {PARENT, QOS_EPOCH_READY, 3, QOS_EPOCH_FIRST, "e"},
     {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
    {"no such message",
     {5, 77, 3, QOS_EPOCH_FIRST, "e"},
     {{I, NULL}, {W, NULL}, {C, NULL}, {P, NULL}}},
};
#undef I
#undef W
#undef C
#undef P

static void test_states(void)
{
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        for (QosEpochState state = QOS_EPOCH_IDLE; state <= QOS_EPOCH_PASSED; state++) {
            const Row *row = &rows[i];
            Node node = node_in(state);

            g_test_message("%s in state %d", row->what, state);
            if (row->message.type == 0) {
                node.now = TIMEOUT;
                tick(&node);
            } else {
                gboolean is_taken =
                    receive(&node, row->message.from, row->message.type, row->message.ticket,
                            row->message.epoch, row->message.data);
                g_assert_true(is_taken ? row->after[state].out != NULL : node.out->len <= 1);
            }
            g_assert_cmpint(node.handler->state, ==, row->after[state].state);
            assert_out(&node, row->after[state].out != NULL ? row->after[state].out : "");
            if (node.handler->state <= QOS_EPOCH_WAITING)
                g_assert_cmpint(tick(&node), ==, QOS_NEVER);
            node_clear(&node);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/epoch-states/table", test_states);
    return g_test_run();
}
