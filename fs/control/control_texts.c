/*
 * Makes the texts of the files of `.qosfs` and of the long xattrs, and keeps them while they are
 * open.
 *
 * With thousands of jobs a text takes a quarter of a second and megabytes. So a request that comes
 * while texts are being made waits, without a thread. When they are done, one thread makes the next
 * ones for all requests that wait by then. So each text shows a moment after it was asked for.
 * However many requests there are, one thread is busy with them, and none waits for longer than two
 * texts take.
 *
 * Texts that are brief for any number of jobs have a thread and a queue of their own, so that they
 * never wait for the long ones. The text of the history comes from the database, and its thread
 * makes it.
 *
 * The texts that users have open are bounded, and each user may have at most as much as that user
 * leaves to others. A text that two users have open counts for both.
 */
#include <errno.h>

#include "fs/control/state.h"
#include "fs/transport/uring.h"

#define TEXTS_MAX ((gsize)128 << 20) /* bytes of open files, beyond which users open no more */

/* A request that waits for a text: an open, or of an xattr. */
typedef struct {
    fuse_req_t request;
    const QosControlText *text;
    gboolean is_open;
    struct fuse_file_info info; /* of an open */
    size_t size;                /* of an xattr: as qos_control_getxattr() */
    char *job;                  /* the one that is asked for, owned; or NULL */
} Asking;

/* --- those that are open --- */

static guint hash_open(gconstpointer key)
{
    const QosOpenText *open = key;

    return g_direct_hash(open->text) ^ g_direct_hash(open->user);
}

static gboolean is_same_open(gconstpointer key, gconstpointer other_key)
{
    const QosOpenText *open = key, *other = other_key;

    return open->text == other->text && open->user == other->user;
}

static void free_open(gpointer key)
{
    QosOpenText *open = key;

    g_bytes_unref(open->text);
    g_free(open);
}

GHashTable *qos_control_texts_new(void)
{
    return g_hash_table_new_full(hash_open, is_same_open, free_open, NULL);
}

/* A user may have no more of them than are left to others. */
static gboolean fits_locked(const QosControl *control, const QosUser *user, gsize size)
{
    const gsize left = TEXTS_MAX - MIN(control->texts_size, TEXTS_MAX);

    return user == NULL || (size <= left && user->open_texts + size <= left - size);
}

static void count_locked(QosControl *control, QosUser *user, gssize change)
{
    control->texts_size += (gsize)change;
    if (user != NULL)
        user->open_texts += (gsize)change;
}

/* NULL if the user may not have it open, because a user that may not set must not fill the daemon's
 * memory. */
static QosOpenText *keep(QosControl *control, GBytes *text, QosUser *user)
{
    const gsize size = g_bytes_get_size(text);

    qos_mutex_lock(&control->lock);
    QosOpenText *open =
        g_hash_table_lookup(control->texts, &(QosOpenText){.text = text, .user = user});
    if (open == NULL && fits_locked(control, user, size)) {
        open = g_new(QosOpenText, 1);
        *open = (QosOpenText){.text = g_bytes_ref(text), .user = user};
        g_hash_table_add(control->texts, open);
        count_locked(control, user, (gssize)size);
    }
    if (open != NULL)
        open->opens++;
    qos_mutex_unlock(&control->lock);
    return open;
}

void qos_control_drop_text(QosControl *control, QosOpenText *open)
{
    qos_mutex_lock(&control->lock);
    if (--open->opens == 0) {
        count_locked(control, open->user, -(gssize)g_bytes_get_size(open->text));
        g_hash_table_remove(control->texts, open);
    }
    qos_mutex_unlock(&control->lock);
}

void qos_control_answer_open(fuse_req_t request, const struct fuse_file_info *info, GBytes *text)
{
    const QosFs *fs = qos_fs(request);
    QosUser *user =
        qos_control_may_set(request) ? NULL : qos_gate_user(fs->gate, fuse_req_ctx(request)->uid);
    QosOpenText *open = keep(fs->control, text, user);
    struct fuse_file_info answer = *info;

    if (open == NULL) {
        fuse_reply_err(request, ENOMEM);
        return;
    }
    answer.fh = (uintptr_t)open;
    answer.direct_io = 1;
    if (fuse_reply_open(request, &answer) < 0) /* the caller is gone: no release will come */
        qos_control_drop_text(fs->control, open);
}

/* --- those that are asked for --- */

void qos_control_answer_value(fuse_req_t request, size_t size, const char *value, size_t length)
{
    if (size == 0)
        fuse_reply_xattr(request, length);
    else if (length > size)
        fuse_reply_err(request, ERANGE);
    else
        fuse_reply_buf(request, value, length);
}

static void answer(const Asking *asking, GBytes *text)
{
    if (asking->is_open)
        qos_control_answer_open(asking->request, &asking->info, text);
    else
        qos_control_answer_value(asking->request, asking->size, g_bytes_get_data(text, NULL),
                                 g_bytes_get_size(text));
}

/* Adds a request to those that wait. TRUE if no thread makes texts for them, so that the caller
 * must. */
static gboolean wait_for_text(QosControl *control, QosControlDesk *desk, Asking *asking)
{
    gboolean is_first;

    qos_mutex_lock(&control->lock);
    is_first = !desk->is_served;
    desk->is_served = TRUE;
    desk->waiting = g_slist_prepend(desk->waiting, asking);
    qos_mutex_unlock(&control->lock);
    return is_first;
}

/* Takes all requests that wait. NULL: there are none, and the caller makes texts no more. */
static GSList *take_waiting(QosControl *control, QosControlDesk *desk)
{
    GSList *waiting;

    qos_mutex_lock(&control->lock);
    waiting = g_steal_pointer(&desk->waiting);
    desk->is_served = waiting != NULL;
    qos_mutex_unlock(&control->lock);
    return waiting;
}

/* Answers the requests that wait for this text, which has these bytes; returns the other
 * requests. */
static GSList *answer_all(GSList *waiting, const QosControlText *text, GBytes *bytes)
{
    GSList *others = NULL;

    while (waiting != NULL) {
        Asking *asking = waiting->data;
        GSList *next = waiting->next;

        if (asking->text == text) {
            answer(asking, bytes);
            g_free(asking);
            g_slist_free_1(waiting);
        } else {
            waiting->next = others;
            others = waiting;
        }
        waiting = next;
    }
    return others;
}

/* As much of the jobs as one of them asks for. */
static QosReportJobs jobs_of(GSList *waiting)
{
    QosReportJobs most = QOS_REPORT_NO_JOBS;

    for (; waiting != NULL; waiting = waiting->next)
        most = MAX(most, ((const Asking *)waiting->data)->text->jobs);
    return most;
}

/* Answers the first of them, which asks for a job: the others. */
static GSList *answer_job(QosControl *control, QosReport *report, GSList *waiting)
{
    Asking *asking = waiting->data;
    g_autofree QosJob *job = qos_report_take_job(report, control->fs->gate, asking->job);

    if (job != NULL) {
        g_autoptr(GBytes) bytes = g_string_free_to_bytes(qos_report_job_state(report, job));

        answer(asking, bytes);
    } else {
        fuse_reply_err(asking->request, ENODATA);
    }
    g_free(asking->job);
    g_free(asking);
    return g_slist_delete_link(waiting, waiting);
}

/* All texts of one moment. */
static void make_reports(QosControl *control, GSList *waiting)
{
    g_autoptr(QosReport) report = qos_control_report(control, jobs_of(waiting));

    while (waiting != NULL) {
        const Asking *asking = waiting->data;

        if (asking->job != NULL) {
            waiting = answer_job(control, report, waiting);
        } else {
            const QosControlText *text = asking->text;
            g_autoptr(GBytes) bytes = g_string_free_to_bytes(text->make(report));

            waiting = answer_all(waiting, text, bytes);
        }
        qos_ring_flush(); /* the next text may take long */
    }
}

static void serve_reports(QosControl *control, QosControlDesk *desk)
{
    GSList *waiting;

    while ((waiting = take_waiting(control, desk)) != NULL)
        make_reports(control, waiting);
}

static void refuse(gpointer data, gpointer error)
{
    g_autofree Asking *asking = data;

    fuse_reply_err(asking->request, GPOINTER_TO_INT(error));
}

static void append_row(const QosHistoryRow *row, void *data)
{
    qos_report_append_history(data, row);
}

/* Without a database there is a history without rows. */
static void make_history(QosDb *db, GSList *waiting)
{
    g_autoptr(GError) error = NULL;
    GString *history = qos_report_history_head();
    gboolean good = db == NULL || qos_db_read_history(db, append_row, history, &error);
    g_autoptr(GBytes) bytes = g_string_free_to_bytes(history);

    if (good) {
        answer_all(waiting, ((const Asking *)waiting->data)->text, bytes);
        return;
    }
    g_slist_foreach(waiting, refuse, GINT_TO_POINTER(error->code));
    g_slist_free(waiting);
}

/* A task of the database's thread, which writes between two of them. */
static void serve_history(QosDb *db, void *data)
{
    QosControl *control = data;
    GSList *waiting = take_waiting(control, &control->history);

    if (waiting == NULL)
        return;
    make_history(db, waiting);
    if (db != NULL)
        qos_db_ask(db, serve_history, control);
    else
        serve_history(NULL, control);
}

static QosControlDesk *desk_of(QosControl *control, const Asking *asking)
{
    if (asking->job == NULL && asking->text->make == NULL)
        return &control->history;
    return asking->text->jobs == QOS_REPORT_ALL_JOBS ? &control->reports : &control->brief;
}

static void ask(Asking *asking)
{
    QosControl *control = qos_fs(asking->request)->control;
    QosControlDesk *desk = desk_of(control, asking);

    if (!wait_for_text(control, desk, asking)) /* it may be gone by now */
        return;
    if (desk != &control->history)
        serve_reports(control, desk);
    else if (control->db != NULL)
        qos_db_ask(control->db, serve_history, control);
    else
        serve_history(NULL, control);
}

void qos_control_ask(fuse_req_t request, const struct fuse_file_info *info,
                     const QosControlText *text)
{
    Asking *asking = g_new(Asking, 1);

    *asking = (Asking){.request = request, .text = text, .is_open = TRUE, .info = *info};
    ask(asking);
}

void qos_control_ask_value(fuse_req_t request, size_t size, const QosControlText *text)
{
    Asking *asking = g_new(Asking, 1);

    *asking = (Asking){.request = request, .text = text, .size = size};
    ask(asking);
}

void qos_control_ask_job(fuse_req_t request, size_t size, const char *id)
{
    static const QosControlText of_job = {NULL, QOS_REPORT_NO_JOBS};
    Asking *asking = g_new(Asking, 1);

    *asking = (Asking){.request = request, .text = &of_job, .size = size, .job = g_strdup(id)};
    ask(asking);
}
