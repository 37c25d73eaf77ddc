/*
 * Reads /proc. fs/caller/proc.h has the contract.
 *
 * The environment is read from anonymous memory only; the kernel sees to that. So a caller cannot
 * make the daemon wait for a page of a file system that the caller controls.
 */
#include "fs/caller/proc.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROC_FILE_MAX (1 << 20) /* read no more of a file; an environment may be larger */

/* Of the flags in /proc/TID/stat. */
#define TASK_IS_EXITING 0x4   /* PF_EXITING */
#define TASK_IS_COPY    0x40  /* PF_FORKNOEXEC */
#define TASK_WAS_KILLED 0x400 /* PF_SIGNALED */

/* Of personality(2): the kernel does not choose at random where a program lies. */
#define IS_NOT_RANDOM 0x0040000 /* ADDR_NO_RANDOMIZE */
#define RANDOM_FILE   "/proc/sys/kernel/randomize_va_space"

#define ANCESTORS_MAX 16

/* The text of a file in `directory`, ended by NUL, or NULL. */
static char *read_file(int directory, const char *name, gsize *ret_length)
{
    g_autoptr(GByteArray) text = g_byte_array_sized_new(4096);
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    gssize got;

    if (fd < 0)
        return NULL;
    do {
        char part[4096];

        got = TEMP_FAILURE_RETRY(read(fd, part, sizeof(part)));
        if (got > 0)
            g_byte_array_append(text, (const guint8 *)part, (guint)got);
    } while (got > 0 && text->len < PROC_FILE_MAX);
    close(fd);
    if (got < 0)
        return NULL;
    *ret_length = text->len;
    g_byte_array_append(text, (const guint8 *)"", 1);
    return (char *)g_byte_array_free(g_steal_pointer(&text), FALSE);
}

/* Its directory in /proc, or -1. */
static int open_process(pid_t tid)
{
    char path[32];

    g_snprintf(path, sizeof(path), "/proc/%d", (int)tid);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* "TID (comm) state ...": comm may itself hold parentheses and blanks, but nothing after it does.
 * Of the fields of proc(5) behind it, 3, 4, 9, 22, 26, 28, 31, 50 and 51. */
gboolean qos_proc_parse_stat(char *text, QosProcStat *ret_stat)
{
    char *begin = strchr(text, '('), *end = strrchr(text, ')');
    guint flags;
    int rest = 0;

    *ret_stat = (QosProcStat){0};

    if (begin == NULL || end == NULL ||
        sscanf(end + 1,
               " %c %d %*s %*s %*s %*s %u"
               " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" G_GUINT64_FORMAT
               " %*s %*s %*s %" G_GUINT64_FORMAT " %*s %" G_GUINT64_FORMAT
               " %*s %*s %" G_GUINT64_FORMAT "%n",
               &ret_stat->state, &ret_stat->parent, &flags, &ret_stat->start, &ret_stat->image.code,
               &ret_stat->image.stack, &ret_stat->pending, &rest) != 7)
        return FALSE;
    ret_stat->rest = end + 1 + rest;
    *end = '\0';
    ret_stat->comm = begin + 1;
    ret_stat->has_begun = (flags & TASK_IS_COPY) == 0;
    ret_stat->is_exiting = (flags & TASK_IS_EXITING) != 0;
    ret_stat->was_killed = (flags & TASK_WAS_KILLED) != 0;
    return TRUE;
}

static void read_stat(int directory, QosProcFacts *facts)
{
    gsize length;

    facts->text = read_file(directory, "stat", &length);
    if (facts->text == NULL || !qos_proc_parse_stat(facts->text, &facts->stat))
        facts->stat = (QosProcStat){0};
}

/* Fields 50 and 51. */
static void read_image(int directory, QosProcFacts *facts)
{
    QosImage *image = &facts->stat.image;
    g_autofree char *own = NULL, *all = NULL;
    gsize length;

    if (facts->stat.rest == NULL ||
        sscanf(facts->stat.rest,
               " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
               " %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT,
               &image->environment, &image->environment_end) != 2)
        *image = (QosImage){0};
    if (image->environment == 0)
        return;
    own = read_file(directory, "personality", &length);
    all = own != NULL ? read_file(AT_FDCWD, RANDOM_FILE, &length) : NULL;
    if (all == NULL || g_ascii_strtoull(all, NULL, 10) == 0 ||
        (g_ascii_strtoull(own, NULL, 16) & IS_NOT_RANDOM) != 0) {
        image->process = (guint64)facts->process;
        image->start = facts->stat.start;
    }
}

/* What stands behind `field` in the text of /proc/TID/status, or NULL. */
static char *find_field(char *status, const char *field)
{
    char *at = status ? strstr(status, field) : NULL;

    return at ? at + strlen(field) : NULL;
}

static void read_groups(char *at, QosProcFacts *facts)
{
    g_autoptr(GArray) groups = g_array_new(FALSE, FALSE, sizeof(gid_t));

    if (!at)
        return;
    for (;;) {
        char *end;
        gid_t group;

        at += strspn(at, " \t");
        if (!g_ascii_isdigit(*at))
            break;
        group = (gid_t)g_ascii_strtoull(at, &end, 10);
        g_array_append_val(groups, group);
        at = end;
    }
    facts->group_count = (gint)groups->len;
    facts->groups = (gid_t *)g_array_free(g_steal_pointer(&groups), FALSE);
}

/* The thread's fsuid, the last of four. FALSE if the text has none. */
static gboolean parse_uid(char *status, uid_t *ret_uid)
{
    const char *at = find_field(status, "\nUid:");

    return at != NULL && sscanf(at, "%*u %*u %*u %u", ret_uid) == 1;
}

static QosNamespace find_namespace(int directory, const char *path)
{
    struct stat own, its;

    if (!qos_proc_is_visible() || fstatat(directory, path, &its, 0) != 0 ||
        stat("/proc/self/ns/user", &own) != 0)
        return QOS_NAMESPACE_UNKNOWN;
    return its.st_ino == own.st_ino && its.st_dev == own.st_dev ? QOS_NAMESPACE_OWN
                                                                : QOS_NAMESPACE_OTHER;
}

/* The effective capabilities. See qos_proc_acts_as(). */
static guint64 parse_capabilities(char *status)
{
    const char *effective = find_field(status, "\nCapEff:");
    const char *process = find_field(status, "\nTgid:");
    guint64 capabilities;

    if (effective == NULL)
        return 0;
    capabilities = g_ascii_strtoull(effective + strspn(effective, " \t"), NULL, 16);
    if (g_str_has_prefix(status, "Name:\tiou-") && process != NULL)
        capabilities &= qos_proc_capabilities((pid_t)g_ascii_strtoll(process, NULL, 10));
    return capabilities;
}

/* Other callers' capabilities are asked for only when the store refuses. */
static void read_rights(int directory, char *status, QosProcFacts *facts)
{
    if (!parse_uid(status, &facts->uid) || !qos_cred_trusts(facts->uid))
        return;
    facts->capabilities = parse_capabilities(status);
    facts->namespace = find_namespace(directory, "ns/user");
}

static void read_status(int directory, QosProcFacts *facts)
{
    gsize length;
    g_autofree char *status = read_file(directory, "status", &length);
    const char *process = find_field(status, "\nTgid:");

    facts->process = process ? (pid_t)g_ascii_strtoll(process, NULL, 10) : 0;
    read_groups(find_field(status, "\nGroups:"), facts);
    read_rights(directory, status, facts);
}

/* --- what it may do --- */

guint64 qos_proc_capabilities(pid_t tid)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = tid};
    struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];

    /* For capget(2), TID 0 is the thread that calls it. */
    if (tid <= 0 || syscall(SYS_capget, &header, words) != 0)
        return 0;
    return words[0].effective | (guint64)words[1].effective << 32;
}

QosNamespace qos_proc_namespace(pid_t tid)
{
    char path[32];
    QosNamespace namespace;

    g_snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)tid);
    qos_cred_raise();
    namespace = find_namespace(AT_FDCWD, path);
    qos_cred_lower();
    return namespace;
}

gboolean qos_proc_acts_as(pid_t tid, uid_t uid, guint64 *ret_capabilities)
{
    g_autofree char *status = NULL;
    int directory;
    gsize length;
    uid_t its;

    qos_cred_raise();
    directory = open_process(tid);
    if (directory >= 0) {
        status = read_file(directory, "status", &length);
        close(directory);
    }
    qos_cred_lower();
    if (!parse_uid(status, &its) || its != uid)
        return FALSE;
    *ret_capabilities = parse_capabilities(status);
    return TRUE;
}

GArray *qos_id_ranges_parse(const char *text)
{
    GArray *ranges = g_array_new(FALSE, FALSE, sizeof(QosIdRange));
    QosIdRange range;
    int used;

    while (sscanf(text, "%u %u %u%n", &range.inside, &range.first, &range.count, &used) == 3) {
        g_array_append_val(ranges, range);
        text += used;
    }
    return ranges;
}

gboolean qos_id_ranges_have(const GArray *ranges, guint32 id)
{
    for (guint i = 0; i < ranges->len; i++) {
        const QosIdRange *range = &g_array_index(ranges, QosIdRange, i);

        if (id >= range->first && id - range->first < range->count)
            return TRUE;
    }
    return FALSE;
}

gboolean qos_id_ranges_have_root(const GArray *ranges, guint32 id)
{
    for (guint i = 0; i < ranges->len; i++) {
        const QosIdRange *range = &g_array_index(ranges, QosIdRange, i);

        if (range->inside == 0 && range->first == id)
            return TRUE;
    }
    return FALSE;
}

static GArray *read_map(int directory, const char *name)
{
    gsize length;
    g_autofree char *text = directory < 0 ? NULL : read_file(directory, name, &length);

    return qos_id_ranges_parse(text != NULL ? text : "");
}

void qos_proc_read_maps(pid_t tid, QosIdMaps *ret_maps)
{
    int directory;

    qos_cred_raise();
    directory = open_process(tid);
    *ret_maps = (QosIdMaps){read_map(directory, "uid_map"), read_map(directory, "gid_map")};
    if (directory >= 0)
        close(directory);
    qos_cred_lower();
}

void qos_id_maps_clear(QosIdMaps *maps)
{
    g_clear_pointer(&maps->uids, g_array_unref);
    g_clear_pointer(&maps->gids, g_array_unref);
}

gboolean qos_proc_is_visible(void)
{
    enum { YES = 1, NO };
    static gsize answer;

    if (g_once_init_enter(&answer)) {
        g_autofree char *self = g_file_read_link("/proc/self", NULL);

        g_once_init_leave(&answer, self && g_ascii_strtoll(self, NULL, 10) == getpid() ? YES : NO);
    }
    return answer == YES;
}

gboolean qos_proc_is_overwritten(const char *environment, gsize length)
{
    gsize name = 0;

    while (name < length && environment[name] != '=' && g_ascii_isgraph(environment[name]))
        name++;
    return length > 0 && (name == 0 || name == length || environment[name] != '=');
}

/* Reads the environment of the nearest ancestor that has not written over its own. */
static void read_ancestors(QosProcFacts *facts)
{
    pid_t pid = facts->stat.parent;

    for (guint i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
        g_auto(QosProcFacts) parent = {0};
        int directory = open_process(pid);

        if (directory < 0)
            return;
        read_stat(directory, &parent);
        parent.environment = read_file(directory, "environ", &parent.environment_length);
        close(directory);
        if (parent.environment == NULL)
            return;
        if (!qos_proc_is_overwritten(parent.environment, parent.environment_length)) {
            facts->ancestors = g_steal_pointer(&parent.environment);
            facts->ancestors_length = parent.environment_length;
            return;
        }
        pid = parent.stat.parent;
    }
}

static void read_environment(int directory, QosProcFacts *facts)
{
    facts->environment = read_file(directory, "environ", &facts->environment_length);
    if (facts->environment == NULL)
        return;
    facts->is_overwritten = qos_proc_is_overwritten(facts->environment, facts->environment_length);
    if (facts->is_overwritten)
        read_ancestors(facts);
}

void qos_proc_read(pid_t tid, QosProcWants wants, QosProcFacts *ret_facts)
{
    gsize length;
    int directory;

    *ret_facts = (QosProcFacts){0};
    qos_cred_restore();
    directory = open_process(tid);
    if (directory < 0)
        return;
    read_stat(directory, ret_facts);
    read_status(directory, ret_facts);
    if ((wants & QOS_PROC_IMAGE) != 0)
        read_image(directory, ret_facts);
    if ((wants & QOS_PROC_PROGRAM) != 0)
        qos_program_open(&ret_facts->program, directory, tid,
                         ret_facts->stat.has_begun ? 0 : ret_facts->stat.parent);
    if ((wants & QOS_PROC_ENVIRONMENT) != 0)
        read_environment(directory, ret_facts);
    if ((wants & QOS_PROC_CGROUP) != 0)
        ret_facts->cgroup = read_file(directory, "cgroup", &length);
    close(directory);
}

void qos_proc_clear(QosProcFacts *facts)
{
    qos_program_close(&facts->program);
    g_free(facts->text);
    g_free(facts->environment);
    g_free(facts->ancestors);
    g_free(facts->cgroup);
    g_free(facts->groups);
    *facts = (QosProcFacts){0};
}
