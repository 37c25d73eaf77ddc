/*
 * The waits that the server is told, by their ids. fs/lockengine/wait_reports.h has the contract.
 */
#include "fs/lockengine/wait_reports.h"

#define FRAME_USUAL 128u /* bytes, of a wait of an owner that has one lock */

typedef struct {
    guint64 id;        /* first: the key */
    GByteArray *frame; /* NULL: it is over, which is to be told */
    gboolean is_told;  /* the server knows of it, as it is or was */
    GList link;        /* of QosWaitReports.untold; data: NULL while it is not in it */
} Wait;

static void free_wait(gpointer data)
{
    Wait *wait = data;

    g_clear_pointer(&wait->frame, g_byte_array_unref);
    g_free(wait);
}

void qos_wait_reports_init(QosWaitReports *waits)
{
    G_STATIC_ASSERT(G_STRUCT_OFFSET(Wait, id) == 0);
    waits->waits = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_wait);
    g_queue_init(&waits->untold);
}

void qos_wait_reports_clear(QosWaitReports *waits)
{
    g_queue_init(&waits->untold); /* its links lie in the waits */
    g_hash_table_unref(waits->waits);
}

static void note(QosWaitReports *waits, Wait *wait)
{
    if (wait->link.data != NULL)
        return;
    wait->link.data = wait;
    g_queue_push_tail_link(&waits->untold, &wait->link);
}

static void drop(QosWaitReports *waits, Wait *wait)
{
    if (wait->link.data != NULL)
        g_queue_unlink(&waits->untold, &wait->link);
    g_hash_table_remove(waits->waits, wait);
}

void qos_wait_reports_end(QosWaitReports *waits, guint64 id)
{
    Wait *wait = g_hash_table_lookup(waits->waits, &id);

    if (wait == NULL)
        return;
    if (!wait->is_told) {
        drop(waits, wait);
        return;
    }
    g_clear_pointer(&wait->frame, g_byte_array_unref);
    note(waits, wait);
}

void qos_wait_reports_set(QosWaitReports *waits, const QosWireWait *told)
{
    GByteArray *frame = g_byte_array_sized_new(FRAME_USUAL);
    guint64 id = told->id;

    if (!qos_wire_put_wait(frame, told)) {
        g_byte_array_unref(frame);
        qos_wait_reports_end(waits, id);
        return;
    }
    Wait *wait = g_hash_table_lookup(waits->waits, &id);
    if (wait == NULL) {
        wait = g_new0(Wait, 1);
        wait->id = id;
        g_hash_table_add(waits->waits, wait);
    }
    g_clear_pointer(&wait->frame, g_byte_array_unref);
    wait->frame = frame;
    note(waits, wait);
}

void qos_wait_reports_renew(QosWaitReports *waits)
{
    GHashTableIter iter;
    gpointer key;

    g_queue_init(&waits->untold);
    g_hash_table_iter_init(&iter, waits->waits);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        Wait *wait = key;

        wait->is_told = FALSE;
        wait->link = (GList){0};
        if (wait->frame == NULL)
            g_hash_table_iter_remove(&iter);
        else
            note(waits, wait);
    }
}

gboolean qos_wait_reports_has_frames(const QosWaitReports *waits)
{
    return waits->untold.length > 0;
}

void qos_wait_reports_take(QosWaitReports *waits, GByteArray *frames)
{
    while (waits->untold.length > 0) {
        Wait *wait = g_queue_pop_head_link(&waits->untold)->data;

        wait->link.data = NULL;
        if (wait->frame != NULL) {
            g_byte_array_append(frames, wait->frame->data, wait->frame->len);
            wait->is_told = TRUE;
        } else {
            const QosWireWait over = {.id = wait->id};
            qos_wire_put_wait(frames, &over);
            g_hash_table_remove(waits->waits, wait);
        }
    }
}
