/*
 * The hidden directory `.qosfs` of a mount's root: it is found by name, and never listed.
 *
 * A file is a line of the table below. Its text is made at the open (fs/control/control_texts.c)
 * and belongs to the open file, so that a reader sees one moment in however many pieces it reads.
 * Sizes are 0 as in /proc, and reading is direct, to the end of the text. The kernel checks the
 * modes (default_permissions). It lets root pass, so writing is checked here again.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "fs/control/state.h"

#define NAMES_TIMEOUT 3600.0 /* s: the names never change */
/* Bytes of a line that is written: a job id with each byte escaped, two quotes and a newline. */
#define COMMAND_MAX (4 * QOS_JOB_ID_MAX + 3)

typedef struct {
    const char *name;
    mode_t mode;
    QosControlText text;
} File;

static const File files[] = {
    {"job_stats", S_IFREG | 0644, {qos_report_job_stats, QOS_REPORT_ALL_JOBS}},
    {"jobs", S_IFREG | 0444, {qos_report_jobs, QOS_REPORT_ALL_JOBS}},
    {"rules", S_IFREG | 0444, {qos_report_rules, QOS_REPORT_NO_JOBS}},
    {"shares", S_IFREG | 0444, {qos_report_shares, QOS_REPORT_ALL_JOBS}},
    {"metrics", S_IFREG | 0444, {qos_report_metrics, QOS_REPORT_ALL_JOBS}},
    {"state.json", S_IFREG | 0444, {qos_report_state, QOS_REPORT_ALL_JOBS}},
    {"status.json", S_IFREG | 0444, {qos_report_status, QOS_REPORT_JOB_COUNTS}},
    {"rules.json", S_IFREG | 0444, {qos_report_rules_state, QOS_REPORT_NO_JOBS}},
    {"jobs.json", S_IFREG | 0444, {qos_report_jobs_state, QOS_REPORT_ALL_JOBS}},
    {"history", S_IFREG | 0444, {NULL, QOS_REPORT_NO_JOBS}},
};

#define FILE_COUNT (sizeof(files) / sizeof(files[0]))
static_assert(QOS_CONTROL_INO_FIRST + FILE_COUNT <= QOS_CONTROL_INO_END, "no node ids left");

/* NULL where there is no such file. */
static const File *file_of(fuse_ino_t ino)
{
    gboolean is_file = ino >= QOS_CONTROL_INO_FIRST && ino < QOS_CONTROL_INO_FIRST + FILE_COUNT;

    return is_file ? &files[ino - QOS_CONTROL_INO_FIRST] : NULL;
}

gboolean qos_control_is_name(fuse_ino_t parent, const char *name)
{
    return parent == FUSE_ROOT_ID && strcmp(name, QOS_CONTROL_NAME) == 0;
}

/* --- attributes --- */

static struct stat stat_of(const QosFs *fs, fuse_ino_t ino)
{
    const File *file = file_of(ino);
    QosTime started = qos_control_started(fs->control);

    return (struct stat){
        .st_ino = ino,
        .st_mode = file ? file->mode : S_IFDIR | 0555,
        .st_nlink = file ? 1 : 2,
        .st_uid = fs->owner,
        .st_gid = getgid(),
        .st_blksize = 4096,
        .st_atim.tv_sec = started / QOS_SECOND,
        .st_mtim.tv_sec = started / QOS_SECOND,
        .st_ctim.tv_sec = started / QOS_SECOND,
    };
}

static struct fuse_entry_param entry_of(const QosFs *fs, fuse_ino_t ino)
{
    return (struct fuse_entry_param){
        .ino = ino,
        .generation = 1,
        .attr = stat_of(fs, ino),
        .attr_timeout = NAMES_TIMEOUT,
        .entry_timeout = NAMES_TIMEOUT,
    };
}

void qos_control_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    fuse_ino_t ino = 0;
    struct fuse_entry_param entry;

    if (qos_control_is_name(parent, name))
        ino = QOS_CONTROL_INO;
    for (guint i = 0; parent == QOS_CONTROL_INO && i < FILE_COUNT; i++) {
        if (strcmp(name, files[i].name) == 0)
            ino = QOS_CONTROL_INO_FIRST + i;
    }
    if (ino == 0) {
        fuse_reply_err(request, ENOENT);
        return;
    }
    entry = entry_of(qos_fs(request), ino);
    fuse_reply_entry(request, &entry);
}

void qos_control_getattr(fuse_req_t request, fuse_ino_t ino)
{
    struct stat stat = stat_of(qos_fs(request), ino);

    if (ino != QOS_CONTROL_INO && !file_of(ino))
        fuse_reply_err(request, ENOENT);
    else
        fuse_reply_attr(request, &stat, NAMES_TIMEOUT);
}

void qos_control_statx(fuse_req_t request, fuse_ino_t ino)
{
    struct stat stat = stat_of(qos_fs(request), ino);
    struct statx statx = {
        .stx_mask = STATX_BASIC_STATS,
        .stx_blksize = (guint32)stat.st_blksize,
        .stx_nlink = (guint32)stat.st_nlink,
        .stx_uid = stat.st_uid,
        .stx_gid = stat.st_gid,
        .stx_mode = (guint16)stat.st_mode,
        .stx_ino = stat.st_ino,
        .stx_size = (guint64)stat.st_size,
        .stx_atime.tv_sec = stat.st_atim.tv_sec,
        .stx_mtime.tv_sec = stat.st_mtim.tv_sec,
        .stx_ctime.tv_sec = stat.st_ctim.tv_sec,
    };

    if (ino != QOS_CONTROL_INO && !file_of(ino))
        fuse_reply_err(request, ENOENT);
    else
        fuse_reply_statx(request, 0, &statx, NAMES_TIMEOUT);
}

void qos_control_setattr(fuse_req_t request, fuse_ino_t ino, int to_set)
{
    if (to_set & FUSE_SET_ATTR_SIZE &&
        !(to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)))
        qos_control_getattr(request, ino);
    else
        fuse_reply_err(request, EPERM);
}

/* --- files --- */

static QosOpenText *open_of(const struct fuse_file_info *info)
{
    return (QosOpenText *)(uintptr_t)info->fh;
}

void qos_control_open(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    const File *file = file_of(ino);
    gboolean writes = (info->flags & O_ACCMODE) != O_RDONLY;

    if (!file || (writes && !(file->mode & S_IWUSR)) || (writes && !qos_control_may_set(request))) {
        fuse_reply_err(request, file ? EACCES : ENOENT);
        return;
    }
    if ((info->flags & O_ACCMODE) == O_WRONLY) {
        g_autoptr(GBytes) nothing = g_bytes_new(NULL, 0);

        qos_control_answer_open(request, info, nothing);
    } else {
        qos_control_ask(request, info, &file->text);
    }
}

/* The reader has its data, and may close, before the reply returns here: hence a reference. */
void qos_control_read(fuse_req_t request, G_GNUC_UNUSED fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *info)
{
    g_autoptr(GBytes) text = g_bytes_ref(open_of(info)->text);
    gsize length;
    const char *data = g_bytes_get_data(text, &length);
    gsize start = MIN((guint64)offset, length);

    fuse_reply_buf(request, data ? data + start : NULL, MIN(size, length - start));
}

/* Forgets the totals of a job, or of all where NULL. Returns how many jobs. */
static guint clear_jobs(QosGate *gate, const char *job)
{
    QosSched *sched = qos_gate_lock(gate);
    const guint count = qos_sched_clear_jobs(sched, job, qos_clock_now());

    qos_gate_unlock_and_wake(gate); /* to tell of it */
    return count;
}

/* Carries out a line: 0, or an errno. What is in quotes is a job, even if it is called "clear". */
static int clear(QosGate *gate, const char *line)
{
    g_autofree char *quoted = *line == '"' ? qos_report_read_quoted_id(line) : NULL;
    const char *job = quoted ? quoted : line;

    if (!*line || (*line == '"' && !quoted))
        return EINVAL;
    if (!quoted && strcmp(line, "clear") == 0) {
        clear_jobs(gate, NULL);
        return 0;
    }
    return clear_jobs(gate, job) ? 0 : ENOENT;
}

/* One write is one command, wherever it is written: "clear", or a job to forget. */
void qos_control_write(fuse_req_t request, G_GNUC_UNUSED fuse_ino_t ino, const char *data,
                       size_t size, G_GNUC_UNUSED off_t offset,
                       G_GNUC_UNUSED struct fuse_file_info *info)
{
    g_autofree char *line = g_strstrip(g_strndup(data, MIN(size, COMMAND_MAX)));
    int error = EINVAL;

    if (!qos_control_may_set(request))
        error = EPERM;
    else if (size <= COMMAND_MAX)
        error = clear(qos_fs(request)->gate, line);
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_write(request, size);
}

void qos_control_release(fuse_req_t request, G_GNUC_UNUSED fuse_ino_t ino,
                         struct fuse_file_info *info)
{
    qos_control_drop_text(qos_fs(request)->control, open_of(info));
    fuse_reply_err(request, 0);
}

/* --- the directory --- */

void qos_control_opendir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    if (ino != QOS_CONTROL_INO)
        fuse_reply_err(request, ENOTDIR);
    else
        fuse_reply_open(request, info);
}

/* Entry `index` of the directory: "." and "..", then the files. */
static size_t add_entry(fuse_req_t request, char *buffer, size_t size, guint index, gboolean plus)
{
    static const char *const dots[] = {".", ".."};
    const char *name = index < 2 ? dots[index] : files[index - 2].name;
    fuse_ino_t ino = index < 2 ? (index == 0 ? QOS_CONTROL_INO : FUSE_ROOT_ID)
                               : QOS_CONTROL_INO_FIRST + index - 2;
    struct fuse_entry_param entry = entry_of(qos_fs(request), ino);

    if (!plus)
        return fuse_add_direntry(request, buffer, size, name, &entry.attr, index + 1);
    if (index < 2)
        entry.ino = 0; /* no look-up is counted for the dots */
    return fuse_add_direntry_plus(request, buffer, size, name, &entry, index + 1);
}

void qos_control_readdir(fuse_req_t request, G_GNUC_UNUSED fuse_ino_t ino, size_t size,
                         off_t offset, gboolean plus)
{
    g_autofree char *buffer = g_malloc(size);
    size_t used = 0;

    for (guint i = (guint)MIN((guint64)offset, FILE_COUNT + 2); i < FILE_COUNT + 2; i++) {
        size_t length = add_entry(request, buffer + used, size - used, i, plus);

        if (length > size - used)
            break;
        used += length;
    }
    fuse_reply_buf(request, buffer, used);
}
