/*
 * The control interface, as processes meet it: the fuzzer is the kernel of a session without a
 * mount, and sends requests about the xattrs user.qosfs.* and the files of .qosfs.
 *
 * The input is records, ended by ASCII's record separator; their first character says what is done:
 *
 *     sNAME=VALUE  root sets an xattr; uNAME=VALUE: a user does, and must be refused
 *     gNAME        an xattr is read, by its length, into enough room, and into too little
 *     jNAME        a program of that name in a job of that name comes up
 *     wLINE        root writes to .qosfs/job_stats
 *
 * Whatever comes, each request has its one answer. A set that fails says why in last_error, and one
 * that succeeds does not. At the end every xattr and every file can be read, the files are UTF-8,
 * and state.json is JSON.
 */
#include <errno.h>
#include <glib.h>
#include <json-glib/json-glib.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/control/tunable.h"
#include "fs/ops/operations.h"

#define SEPARATOR "\x1e"
#define USER      1000
#define ROOM      65536 /* the longest value of an xattr */
#define READ_SIZE (1 << 17)
#define THREADS   128

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

/* --- the kernel's side of a session --- */

static struct {
    QosFs fs;
    int end; /* where the answers arrive */
    guint64 unique;
    char answer[READ_SIZE + sizeof(struct fuse_out_header)];
} kernel;

/* Sends a request with its two parts, and takes the answer: its errno or 0; `ret_body` is the rest.
 */
static int ask(guint32 opcode, fuse_ino_t node, uid_t uid, GByteArray *arguments, GBytes **ret_body)
{
    struct fuse_in_header header = {.len = (guint32)(sizeof(header) + arguments->len),
                                    .opcode = opcode,
                                    .unique = ++kernel.unique,
                                    .nodeid = node,
                                    .uid = uid};
    const struct fuse_out_header *out = (const struct fuse_out_header *)kernel.answer;
    struct fuse_buf buffer;
    gssize length;

    g_byte_array_prepend(arguments, (const guint8 *)&header, sizeof(header));
    buffer = (struct fuse_buf){.size = arguments->len, .mem = arguments->data};
    fuse_session_process_buf(kernel.fs.session, &buffer);
    g_byte_array_unref(arguments);
    length = recv(kernel.end, kernel.answer, sizeof(kernel.answer), MSG_DONTWAIT);
    g_assert_cmpint(length, ==, out->len);
    g_assert_cmpuint(out->unique, ==, header.unique);
    g_assert_true(out->error <= 0 && out->error > -1000);
    if (ret_body)
        *ret_body = g_bytes_new(out + 1, out->len - sizeof(*out));
    return -out->error;
}

static GByteArray *arguments(gconstpointer head, gsize size)
{
    return g_byte_array_append(g_byte_array_new(), head, (guint)size);
}

static void start_kernel(void)
{
    struct fuse_init_in init = {
        .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = 1 << 17};
    const char *words[] = {"fuzz_control"};
    struct fuse_args args = FUSE_ARGS_INIT(1, (char **)words);
    int ends[2];
    char path[32];

    kernel.fs.source = kernel.fs.mountpoint = "/";
    kernel.fs.inodes = qos_inodes_new("/", NULL);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), ==, 0);
    kernel.end = ends[0];
    kernel.fs.session =
        fuse_session_new(&args, &qosfs_operations, sizeof(qosfs_operations), &kernel.fs);
    fuse_opt_free_args(&args);
    g_snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
    g_assert_cmpint(fuse_session_mount(kernel.fs.session, path), ==, 0);
    g_assert_cmpint(ask(FUSE_INIT, 0, 0, arguments(&init, sizeof(init)), NULL), ==, 0);
}

/* --- requests --- */

static int set_xattr(const char *name, const char *value, gsize size, uid_t uid)
{
    g_autofree char *full_name = g_strconcat(QOS_XATTR_PREFIX, name, NULL);
    struct fuse_setxattr_in in = {.size = (guint32)size};
    GByteArray *request = arguments(&in, FUSE_COMPAT_SETXATTR_IN_SIZE);

    g_byte_array_append(request, (const guint8 *)full_name, (guint)strlen(full_name) + 1);
    g_byte_array_append(request, (const guint8 *)value, (guint)size);
    return ask(FUSE_SETXATTR, FUSE_ROOT_ID, uid, request, NULL);
}

static int get_xattr(const char *name, guint32 room, uid_t uid, GBytes **ret_value)
{
    g_autofree char *full_name = g_strconcat(QOS_XATTR_PREFIX, name, NULL);
    struct fuse_getxattr_in in = {.size = room};
    GByteArray *request = arguments(&in, sizeof(in));

    g_byte_array_append(request, (const guint8 *)full_name, (guint)strlen(full_name) + 1);
    return ask(FUSE_GETXATTR, FUSE_ROOT_ID, uid, request, ret_value);
}

static guint64 open_file(fuse_ino_t node, guint32 flags)
{
    struct fuse_open_in in = {.flags = flags};
    g_autoptr(GBytes) body = NULL;
    int error = ask(FUSE_OPEN, node, 0, arguments(&in, sizeof(in)), &body);

    g_assert_cmpint(error, ==, 0);
    return ((const struct fuse_open_out *)g_bytes_get_data(body, NULL))->fh;
}

static void close_file(fuse_ino_t node, guint64 handle)
{
    struct fuse_release_in in = {.fh = handle};

    g_assert_cmpint(ask(FUSE_RELEASE, node, 0, arguments(&in, sizeof(in)), NULL), ==, 0);
}

/* --- the records --- */

static void check_set(const char *name, const char *value, gsize size, uid_t uid)
{
    int error = set_xattr(name, value, size, uid);
    g_autoptr(GBytes) reason = NULL;

    g_assert_true(error != 0 || uid == 0);
    g_assert_cmpint(get_xattr("last_error", ROOM, uid, &reason), ==, 0);
    g_assert_true((g_bytes_get_size(reason) == 0) == (error == 0));
}

static void check_get(const char *name)
{
    g_autoptr(GBytes) length = NULL;
    g_autoptr(GBytes) value = NULL;
    int error = get_xattr(name, 0, 0, &length);
    guint32 told;

    g_assert_cmpint(get_xattr(name, ROOM, 0, &value), ==, error);
    if (error != 0)
        return;
    told = ((const struct fuse_getxattr_out *)g_bytes_get_data(length, NULL))->size;
    g_assert_cmpuint(told, <=, ROOM);
    if (told > 1)
        g_assert_cmpint(get_xattr(name, 1, 0, NULL), ==, ERANGE);
}

static void write_line(const char *line, gsize size)
{
    guint64 handle = open_file(QOS_CONTROL_INO_FIRST, 1 /* O_WRONLY */);
    struct fuse_write_in in = {.fh = handle, .size = (guint32)size};
    GByteArray *request = arguments(&in, sizeof(in));

    g_byte_array_append(request, (const guint8 *)line, (guint)size);
    ask(FUSE_WRITE, QOS_CONTROL_INO_FIRST, 0, request, NULL);
    close_file(QOS_CONTROL_INO_FIRST, handle);
}

static void add_job(const char *name)
{
    g_autoptr(QosJobNaming) naming = qos_callers_naming(kernel.fs.callers);
    g_autofree char *environment = g_strconcat("SLURM_JOB_ID=", name, NULL);
    const QosProcess process = {.comm = name,
                                .cgroup = name,
                                .environment = environment,
                                .environment_length = strlen(environment) + 1,
                                .pid = 4711,
                                .uid = USER,
                                .gid = USER};
    char id[QOS_JOB_ID_MAX + 1];
    guint nodes;

    qos_job_name_process(naming, &process, id, &nodes);
    qos_job_unref(qos_gate_job(kernel.fs.gate, NULL, id, nodes));
}

static void run_record(const char *record, gsize size)
{
    g_autofree char *name = NULL;
    const char *equals;

    if (size == 0)
        return;
    record++;
    size--;
    equals = memchr(record, '=', size);
    name = g_strndup(record, equals ? (gsize)(equals - record) : size);
    switch (record[-1]) {
    case 's':
    case 'u':
        if (equals)
            check_set(name, equals + 1, size - (gsize)(equals + 1 - record),
                      record[-1] == 's' ? 0 : USER);
        break;
    case 'g':
        check_get(name);
        break;
    case 'j':
        add_job(name);
        break;
    case 'w':
        write_line(record, size);
        break;
    default:
        break;
    }
}

/* --- what must hold at the end --- */

static GString *read_file(fuse_ino_t node)
{
    guint64 handle = open_file(node, 0 /* O_RDONLY */);
    GString *text = g_string_new(NULL);
    gsize length;

    do {
        struct fuse_read_in in = {.fh = handle, .offset = text->len, .size = READ_SIZE};
        g_autoptr(GBytes) body = NULL;

        g_assert_cmpint(ask(FUSE_READ, node, 0, arguments(&in, sizeof(in)), &body), ==, 0);
        length = g_bytes_get_size(body);
        g_string_append_len(text, g_bytes_get_data(body, NULL), (gssize)length);
    } while (length > 0);
    close_file(node, handle);
    return text;
}

/* Reads all files, as many as there are: those of .qosfs are numbered. */
static void check_files(void)
{
    struct fuse_getattr_in in = {0};

    for (fuse_ino_t node = QOS_CONTROL_INO_FIRST; node < QOS_CONTROL_INO_END; node++) {
        g_autoptr(JsonParser) parser = NULL;
        GString *text;

        if (ask(FUSE_GETATTR, node, 0, arguments(&in, sizeof(in)), NULL) != 0)
            return;
        text = read_file(node);
        g_assert_true(g_utf8_validate(text->str, (gssize)text->len, NULL));
        if (text->str[0] == '{') {
            parser = json_parser_new();
            g_assert_true(json_parser_load_from_data(parser, text->str, (gssize)text->len, NULL));
        }
        g_string_free(text, TRUE);
    }
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    const char *rest = (const char *)data;
    QosFs *fs = &kernel.fs;

    if (fs->session == NULL)
        start_kernel();
    fs->threads = THREADS;
    fs->gate = qos_gate_new(&qos_policy_tbf, 64, 600 * QOS_SECOND);
    fs->callers = qos_callers_new(fs->gate);
    fs->control = qos_control_new(fs, NULL, NULL, NULL);
    while (size > 0) {
        const char *end = memchr(rest, SEPARATOR[0], size);
        gsize length = end ? (gsize)(end - rest) : size;

        run_record(rest, length);
        length += end != NULL;
        rest += length;
        size -= length;
    }
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        check_get(qos_tunable_names[i]);
    check_get("nrs_tbf_rule");
    check_files();
    qos_control_free(fs->control);
    qos_callers_free(fs->callers);
    qos_gate_free(fs->gate);
    return 0;
}
