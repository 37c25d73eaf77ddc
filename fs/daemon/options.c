/*
 * Parses the command line of mount.qosfs.
 *
 * fuse_opt cuts it into single words, and the tables below give the words their meaning. So values
 * are checked strictly, the error for a mistyped name has the nearest known one, and all options
 * are in one place.
 */
#include "fs/daemon/options.h"

#include <errno.h>
#include <fuse_opt.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/error.h"
#include "base/near.h"
#include "base/time.h"
#include "base/units.h"
#include "fs/daemon/mount_options.h"
#include "fs/daemon/mount_table.h"

#define THREADS_MAX    4096
#define DEPTH_USUAL    2
#define DEPTH_MAX      256
#define TIMEOUT_AUTO   1.0
#define TIMEOUT_ALWAYS 86400.0
#define SELINUX        "/sys/fs/selinux/enforce"

/* --- the options --- */

typedef gboolean (*SetFunc)(QosOptions *options, const char *value, GError **error);

typedef struct {
    const char *name;
    SetFunc set; /* `value` is NULL for a flag */
    gboolean has_value;
} Option;

/* The place of the value among `words`, which end with NULL; `expected` lists them for people. */
static gboolean find_word(const char *name, const char *value, const char *const *words,
                          const char *expected, guint *ret_place, GError **error)
{
    for (guint i = 0; words[i] != NULL; i++) {
        if (g_str_equal(value, words[i])) {
            *ret_place = i;
            return TRUE;
        }
    }
    qos_set_error(error, EINVAL, "option %s=%s: expected %s", name, value, expected);
    return FALSE;
}

static gboolean set_cache(QosOptions *options, const char *value, GError **error)
{
    const char *const words[] = {
        [QOS_CACHE_AUTO] = "auto", [QOS_CACHE_NONE] = "none", [QOS_CACHE_ALWAYS] = "always", NULL};
    guint place;

    if (!find_word("cache", value, words, "auto, none or always", &place, error))
        return FALSE;
    options->config.cache = (QosCache)place;
    return TRUE;
}

static gboolean set_timeout(const char *name, const char *value, double *timeout, GError **error)
{
    gint64 nanoseconds;

    if (!qos_parse_duration(value, &nanoseconds, error)) {
        g_prefix_error(error, "option %s=%s: ", name, value);
        return FALSE;
    }
    *timeout = (double)nanoseconds / QOS_SECOND;
    return TRUE;
}

static gboolean set_attr_timeout(QosOptions *options, const char *value, GError **error)
{
    return set_timeout("attr_timeout", value, &options->config.attr_timeout, error);
}

static gboolean set_entry_timeout(QosOptions *options, const char *value, GError **error)
{
    return set_timeout("entry_timeout", value, &options->config.entry_timeout, error);
}

static gboolean set_submounts(QosOptions *options, const char *value, GError **error)
{
    const char *const words[] = {"yes", "no", NULL};
    guint place;

    if (!find_word("submounts", value, words, "yes or no", &place, error))
        return FALSE;
    options->config.is_alone = place == 1;
    return TRUE;
}

static gboolean set_threads(QosOptions *options, const char *value, GError **error)
{
    gint64 threads;

    if (!qos_parse_integer("option threads", value, 2, THREADS_MAX, &threads, error))
        return FALSE;
    options->threads = (guint)threads;
    return TRUE;
}

static gboolean set_io_uring(QosOptions *options, const char *value, GError **error)
{
    const char *const words[] = {
        [QOS_RING_OFF] = "off", [QOS_RING_AUTO] = "auto", [QOS_RING_ON] = "on", NULL};
    guint place;

    if (!find_word("io_uring", value, words, "auto, on or off", &place, error))
        return FALSE;
    options->io_uring = (QosRingMode)place;
    return TRUE;
}

static gboolean set_io_uring_depth(QosOptions *options, const char *value, GError **error)
{
    gint64 depth;

    if (!qos_parse_integer("option io_uring_depth", value, 1, DEPTH_MAX, &depth, error))
        return FALSE;
    options->io_uring_depth = (guint)depth;
    return TRUE;
}

static gboolean set_database(QosOptions *options, const char *value, GError **error)
{
    if (!strchr(value, '/')) { /* "none" is no file's name; and /etc/fstab has no folder */
        qos_set_error(error, EINVAL,
                      "option db=%s: expected a path with a / in it; a mount always has a "
                      "database, and one below /run goes with the next boot",
                      value);
        return FALSE;
    }
    g_free(options->database);
    options->database = g_strdup(value);
    return TRUE;
}

static gboolean set_text(const char *name, const char *value, char **text, GError **error)
{
    if (!*value) {
        qos_set_error(error, EINVAL, "option %s: it is empty", name);
        return FALSE;
    }
    g_free(*text);
    *text = g_strdup(value);
    return TRUE;
}

/* A path, made absolute: the daemon works in another directory. */
static gboolean set_path(const char *name, const char *value, char **path, GError **error)
{
    g_autofree char *given = NULL;

    if (!set_text(name, value, path, error))
        return FALSE;
    given = *path;
    *path = g_canonicalize_filename(given, NULL);
    return TRUE;
}

static gboolean set_server(QosOptions *options, const char *value, GError **error)
{
    return set_text("server", value, &options->cluster.server, error);
}

static gboolean set_locks(QosOptions *options, const char *value, GError **error)
{
    const char *const words[] = {
        [QOS_CLUSTER_LOCKS_CLUSTER] = "cluster", [QOS_CLUSTER_LOCKS_LOCAL] = "local", NULL};
    guint place;

    options->cluster.has_locks =
        find_word("locks", value, words, "cluster or local", &place, error);
    if (options->cluster.has_locks)
        options->cluster.locks = (QosClusterLocks)place;
    return options->cluster.has_locks;
}

static gboolean set_server_ca(QosOptions *options, const char *value, GError **error)
{
    return set_path("server_ca", value, &options->cluster.ca, error);
}

static gboolean set_server_cert(QosOptions *options, const char *value, GError **error)
{
    return set_path("server_cert", value, &options->cluster.certificate, error);
}

static gboolean set_server_key(QosOptions *options, const char *value, GError **error)
{
    return set_path("server_key", value, &options->cluster.key, error);
}

static gboolean set_server_munge(QosOptions *options, const char *value, GError **error)
{
    return set_path("server_munge", value, &options->cluster.munged, error);
}

static gboolean set_store(QosOptions *options, const char *value, GError **error)
{
    return set_text("store", value, &options->cluster.store, error);
}

static gboolean set_allow_other(QosOptions *options, const char *value G_GNUC_UNUSED,
                                GError **error G_GNUC_UNUSED)
{
    options->allow_other = TRUE;
    return TRUE;
}

static gboolean set_noallow_other(QosOptions *options, const char *value G_GNUC_UNUSED,
                                  GError **error G_GNUC_UNUSED)
{
    options->allow_other = FALSE;
    return TRUE;
}

static gboolean set_foreground(QosOptions *options, const char *value G_GNUC_UNUSED,
                               GError **error G_GNUC_UNUSED)
{
    options->foreground = TRUE;
    return TRUE;
}

static gboolean set_unconfined(QosOptions *options, const char *value G_GNUC_UNUSED,
                               GError **error G_GNUC_UNUSED)
{
    options->unconfined = TRUE;
    return TRUE;
}

static gboolean set_policy(QosOptions *options, const char *value, GError **error G_GNUC_UNUSED)
{
    g_hash_table_replace(options->overrides, g_strdup("nrs_policies"), g_strdup(value));
    return TRUE;
}

static gboolean refuse_remount(QosOptions *options G_GNUC_UNUSED, const char *value G_GNUC_UNUSED,
                               GError **error)
{
    qos_set_error(error, EINVAL,
                  "option remount: there is none; 'qosfsctl set' changes tunables while mounted, "
                  "for all else umount it and mount it anew");
    return FALSE;
}

static const Option own_options[] = {
    {"cache", set_cache, TRUE},
    {"attr_timeout", set_attr_timeout, TRUE},
    {"entry_timeout", set_entry_timeout, TRUE},
    {"submounts", set_submounts, TRUE},
    {"threads", set_threads, TRUE},
    {"io_uring", set_io_uring, TRUE},
    {"io_uring_depth", set_io_uring_depth, TRUE},
    {"db", set_database, TRUE},
    {"policy", set_policy, TRUE},
    {"server", set_server, TRUE},
    {"locks", set_locks, TRUE},
    {"server_ca", set_server_ca, TRUE},
    {"server_cert", set_server_cert, TRUE},
    {"server_key", set_server_key, TRUE},
    {"server_munge", set_server_munge, TRUE},
    {"store", set_store, TRUE},
    {"allow_other", set_allow_other, FALSE},
    {"noallow_other", set_noallow_other, FALSE},
    {"foreground", set_foreground, FALSE},
    {"unconfined", set_unconfined, FALSE},
    {"remount", refuse_remount, FALSE},
};

/* --- mistyped names --- */

/* Whether the text looks like an option's name. Otherwise it is probably the end of a value with a
 * comma in it: cgroup:/job_([0-9]{1,9}). */
static gboolean is_name(const char *text)
{
    return text[0] == '-' || text[strspn(text, "abcdefghijklmnopqrstuvwxyz_")] == '\0';
}

/* The known option that `name` was probably meant to be, or NULL. */
static const char *nearest_option(const char *name, const char *const *tunables)
{
    QosNear near;

    qos_near_init(&near, name);
    for (guint i = 0; i < G_N_ELEMENTS(own_options); i++)
        qos_near_consider(&near, own_options[i].name);
    qos_mount_options_consider(&near);
    for (; *tunables; tunables++)
        qos_near_consider(&near, *tunables);
    return near.nearest;
}

/* --- the command line --- */

enum {
    KEY_FAKE,
    KEY_SLOPPY,
    KEY_VERBOSE,
    KEY_HELP,
    KEY_VERSION,
    KEY_TYPE,
    KEY_NAMESPACE,
    KEY_FOREGROUND
};

static const struct fuse_opt words[] = {
    FUSE_OPT_KEY("-f", KEY_FAKE),
    FUSE_OPT_KEY("-n", FUSE_OPT_KEY_DISCARD), /* no /etc/mtab: there never is one */
    FUSE_OPT_KEY("-s", KEY_SLOPPY),
    FUSE_OPT_KEY("-v", KEY_VERBOSE),
    FUSE_OPT_KEY("-h", KEY_HELP),
    FUSE_OPT_KEY("--help", KEY_HELP),
    FUSE_OPT_KEY("-V", KEY_VERSION),
    FUSE_OPT_KEY("--version", KEY_VERSION),
    FUSE_OPT_KEY("--foreground", KEY_FOREGROUND),
    FUSE_OPT_KEY("-t ", KEY_TYPE),
    FUSE_OPT_KEY("-N ", KEY_NAMESPACE),
    FUSE_OPT_END,
};

typedef struct {
    QosOptions *options;
    const char *const *tunables;
    gboolean sloppy;
    char *unknown;   /* the first unknown option */
    GError *refused; /* the first that is known, and cannot be had */
    GError *error;
} Parser;

/* As libfuse takes them apart again. */
static void append_escaped(GString *text, const char *value)
{
    for (; *value; value++) {
        if (*value == ',' || *value == '\\')
            g_string_append_c(text, '\\');
        g_string_append_c(text, *value);
    }
}

/* An option that any mount may have. */
static void take_mount_option(Parser *parser, const char *text)
{
    QosOptions *options = parser->options;
    const char *reason = NULL;

    switch (qos_mount_options_take(text, &options->flags, &reason)) {
    case QOS_MOUNT_OPTION_TAKEN:
        break;
    case QOS_MOUNT_OPTION_LABEL:
        if (!options->labels)
            options->labels = g_string_new(NULL);
        g_string_append_c(options->labels, ',');
        append_escaped(options->labels, text);
        break;
    case QOS_MOUNT_OPTION_REFUSED:
        if (!parser->refused)
            qos_set_error(&parser->refused, EINVAL, "option %s: %s", text, reason);
        break;
    case QOS_MOUNT_OPTION_UNKNOWN:
        if (!parser->unknown)
            parser->unknown = g_strdup(text);
        break;
    }
}

/* One `name` or `name=value` of -o. */
static gboolean parse_option(Parser *parser, const char *text)
{
    const char *equals = strchr(text, '=');
    g_autofree char *name = equals ? g_strndup(text, (gsize)(equals - text)) : g_strdup(text);
    const char *value = equals ? equals + 1 : NULL;
    const Option *option = NULL;

    qos_mount_table_collect(&parser->options->of_mount8, text);
    for (guint i = 0; i < G_N_ELEMENTS(own_options) && !option; i++)
        if (g_str_equal(name, own_options[i].name))
            option = &own_options[i];
    if (option && option->has_value != (value != NULL)) {
        qos_set_error(&parser->error, EINVAL,
                      option->has_value ? "option %s needs a value: %s=..."
                                        : "option %s takes no value",
                      name, name);
        return FALSE;
    }
    if (option)
        return option->set(parser->options, value, &parser->error);
    if (g_strv_contains(parser->tunables, name)) {
        if (!value && g_str_equal(name, "adapt"))
            value = "fair";
        if (value)
            g_hash_table_replace(parser->options->overrides, g_steal_pointer(&name),
                                 g_strdup(value));
        else
            qos_set_error(&parser->error, EINVAL, "option %s needs a value: %s=...", name, name);
        return value != NULL;
    }
    if (*text)
        take_mount_option(parser, text);
    return TRUE;
}

static gboolean parse_argument(Parser *parser, const char *text)
{
    QosOptions *options = parser->options;
    char **place = !options->source       ? &options->source
                   : !options->mountpoint ? &options->mountpoint
                                          : NULL;

    if (!place || !*text) {
        qos_set_error(&parser->error, EINVAL,
                      place ? "%s is empty" : "\"%s\" is one argument too many",
                      place ? (place == &options->source ? "SRC" : "DIR") : text);
        return FALSE;
    }
    *place = g_strdup(text);
    return TRUE;
}

/* fuse_opt's callback: 0 = done with it, -1 = error. */
static int parse_word(void *data, const char *text, int key, struct fuse_args *rest G_GNUC_UNUSED)
{
    Parser *parser = data;
    QosOptions *options = parser->options;
    gboolean done = TRUE;

    switch (key) {
    case KEY_FAKE:
        options->fake = TRUE;
        break;
    case KEY_SLOPPY:
        parser->sloppy = TRUE;
        break;
    case KEY_VERBOSE:
        options->verbose = TRUE;
        break;
    case KEY_HELP:
        options->help = TRUE;
        break;
    case KEY_VERSION:
        options->version = TRUE;
        break;
    case KEY_FOREGROUND:
        options->foreground = TRUE;
        break;
    case KEY_TYPE:
        break; /* mount(8) found us by it */
    case KEY_NAMESPACE:
        g_free(options->mount_namespace);
        options->mount_namespace = g_strdup(text + strlen("-N"));
        break;
    case FUSE_OPT_KEY_NONOPT:
        done = parse_argument(parser, text);
        break;
    default:
        done = parse_option(parser, text);
        break;
    }
    return done ? 0 : -1;
}

/* Checks that options which need server= are given only with it. */
static gboolean check_cluster(const QosClusterConfig *cluster, GError **error)
{
    const char *alone = cluster->ca            ? "server_ca"
                        : cluster->certificate ? "server_cert"
                        : cluster->key         ? "server_key"
                        : cluster->munged      ? "server_munge"
                        : cluster->store       ? "store"
                        : cluster->has_locks   ? "locks"
                                               : NULL;

    if (cluster->server || !alone)
        return TRUE;
    qos_set_error(error, EINVAL, "option %s: it goes with server=ADDRESS, which is missing", alone);
    return FALSE;
}

/* Always FALSE. */
static gboolean refuse_unknown(Parser *parser)
{
    g_autofree char *name = g_strndup(parser->unknown, strcspn(parser->unknown, "="));
    gsize dashes = strspn(name, "-");
    const char *nearest = nearest_option(name + dashes, parser->tunables);

    if (nearest)
        qos_set_error(&parser->error, EINVAL, "unknown option \"%s\"; did you mean \"%s%s\"?",
                      parser->unknown, dashes ? "-o " : "", nearest);
    else
        qos_set_error(&parser->error, EINVAL,
                      "unknown option \"%s\"; 'mount.qosfs --help' lists them%s", parser->unknown,
                      is_name(name) ? "" : ", and a comma within a value is written \\,");
    return FALSE;
}

/* Checks and defaults that need all options. */
static gboolean finish(Parser *parser)
{
    QosOptions *options = parser->options;
    QosFsConfig *config = &options->config;
    double timeout = config->cache == QOS_CACHE_NONE     ? 0
                     : config->cache == QOS_CACHE_ALWAYS ? TIMEOUT_ALWAYS
                                                         : TIMEOUT_AUTO;

    if (options->help || options->version)
        return TRUE;
    if (parser->unknown && !parser->sloppy)
        return refuse_unknown(parser);
    if (parser->refused && !parser->sloppy) {
        g_propagate_error(&parser->error, g_steal_pointer(&parser->refused));
        return FALSE;
    }
    if (!options->mountpoint) {
        qos_set_error(&parser->error, EINVAL,
                      "%s is missing; usage: mount.qosfs SRC DIR [-o OPTION,...]",
                      options->source ? "DIR" : "SRC");
        return FALSE;
    }
    if (!check_cluster(&options->cluster, &parser->error))
        return FALSE;
    if (config->attr_timeout < 0)
        config->attr_timeout = timeout;
    if (config->entry_timeout < 0)
        config->entry_timeout = timeout;
    config->read_only = (options->flags.set & MS_RDONLY) != 0;
    config->no_atime = (options->flags.set & (MS_NOATIME | MS_RDONLY)) != 0;
    return TRUE;
}

/* An option that takes an argument is the last word: fuse_opt would say so besides. */
static gboolean lacks_argument(int argc, char **argv)
{
    const char *last = argc > 1 ? argv[argc - 1] : "";

    return g_str_equal(last, "-o") || g_str_equal(last, "-t") || g_str_equal(last, "-N");
}

gboolean qos_options_parse(QosOptions *ret_options, int argc, char **argv,
                           const char *const *tunables, GError **error)
{
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    QosOptions options = {
        .config = {.attr_timeout = -1, .entry_timeout = -1}, /* -1: not given */
        .allow_other = geteuid() == 0,
        .io_uring_depth = DEPTH_USUAL,
        .overrides = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
    };
    Parser parser = {.options = &options, .tunables = tunables};
    gboolean done = FALSE;

    if (lacks_argument(argc, argv))
        qos_set_error(&parser.error, EINVAL, "option %s needs an argument", argv[argc - 1]);
    else
        done = fuse_opt_parse(&args, &parser, words, parse_word) == 0 && finish(&parser);
    fuse_opt_free_args(&args);
    g_free(parser.unknown);
    g_clear_error(&parser.refused);
    if (!done) {
        if (!parser.error)
            qos_set_error(&parser.error, EINVAL, "the command line is not understood");
        g_propagate_error(error, parser.error);
        qos_options_clear(&options);
        return FALSE;
    }
    *ret_options = options;
    return TRUE;
}

void qos_options_clear(QosOptions *options)
{
    g_clear_pointer(&options->source, g_free);
    g_clear_pointer(&options->mountpoint, g_free);
    g_clear_pointer(&options->database, g_free);
    qos_cluster_config_clear(&options->cluster);
    g_clear_pointer(&options->mount_namespace, g_free);
    g_clear_pointer(&options->overrides, g_hash_table_unref);
    if (options->labels)
        g_string_free(g_steal_pointer(&options->labels), TRUE);
    if (options->of_mount8)
        g_string_free(g_steal_pointer(&options->of_mount8), TRUE);
}

/* --- what follows from them --- */

void qos_options_inherit(QosOptions *options, unsigned long forbidden)
{
    QosMountFlagWords *flags = &options->flags;
    const unsigned long wanted = flags->said & ~flags->set & forbidden;

    if (geteuid() == 0) {
        flags->set |= forbidden & ~flags->said;
        return;
    }
    if ((wanted & MS_NOEXEC) != 0)
        g_warning("option exec: the mount that SRC lies on is noexec, and only root may have it "
                  "otherwise here");
    flags->set |= forbidden;
}

char *qos_options_for_libfuse(const QosOptions *options, const char *source)
{
    g_autoptr(GString) text = g_string_new("subtype=qosfs,default_permissions,fsname=");

    append_escaped(text, source);
    if (options->allow_other)
        g_string_append(text, ",allow_other");
    qos_mount_options_append(text, options->flags.set);
    /* Without SELinux the kernel refuses them; mount(8) leaves them out then. */
    if (options->labels && g_file_test(SELINUX, G_FILE_TEST_EXISTS))
        g_string_append(text, options->labels->str);
    /* libfuse begins with nosuid,nodev; a mount of root's is as any other file system's. */
    if (geteuid() == 0 && !(options->flags.set & MS_NOSUID))
        g_string_append(text, ",suid");
    if (geteuid() == 0 && !(options->flags.set & MS_NODEV))
        g_string_append(text, ",dev");
    return g_string_free(g_steal_pointer(&text), FALSE);
}
