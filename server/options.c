/*
 * Reads the command line and the file of --config, and checks both (server/options.h).
 */
#include "server/options.h"

#include <errno.h>
#include <gio/gunixsocketaddress.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/error.h"
#include "base/near.h"
#include "base/units.h"
#include "core/wire.h"
#include "server/socket_path.h"

#define GROUP_OF_FILE   "server"

#define LISTEN_DEFAULT  "unix:" QOS_SERVER_RUN_FOLDER "/server.sock"
#define CONTROL_DEFAULT QOS_SERVER_RUN_FOLDER "/control.sock"

#define HELP_INDENT     "                       "

typedef struct Setting {
    const char *name;
    gboolean (*set)(QosServerOptions *options, const struct Setting *setting, const char *value,
                    GError **error);
    gsize field; /* in QosServerOptions, for a setter of many */
    gint64 minimum, maximum;
    const char *value; /* for --help */
    const char *help;
} Setting;

/* --- setters --- */

static gboolean bad_address(const char *value, GError **error)
{
    qos_set_error(error, EINVAL,
                  "listen: \"%s\" is none of unix:/PATH, tcp:ADDRESS:PORT and munge:ADDRESS:PORT, "
                  "with a numeric address such as 0.0.0.0 or [::]",
                  value);
    return FALSE;
}

static void address_free(gpointer data)
{
    QosServerAddress *address = data;

    g_object_unref(address->address);
    g_free(address->value);
    g_free(address);
}

/* Adds the address, unless it is there already: the file and the command line may both have it. */
static void add_address(QosServerOptions *options, const char *value, QosDoorKind kind,
                        GSocketAddress *address)
{
    QosServerAddress *new = g_new(QosServerAddress, 1);

    *new = (QosServerAddress){.kind = kind, .value = g_strdup(value), .address = address};
    for (guint i = 0; i < options->listen->len; i++) {
        const QosServerAddress *other = options->listen->pdata[i];
        if (g_str_equal(other->value, value)) {
            address_free(new);
            return;
        }
    }
    g_ptr_array_add(options->listen, new);
}

/* ADDRESS:PORT, at `text` in the whole value. */
static gboolean add_tcp(QosServerOptions *options, QosDoorKind kind, const char *value,
                        const char *text, GError **error)
{
    const char *port = strrchr(text, ':');
    g_autofree char *host = port != NULL ? g_strndup(text, (gsize)(port - text)) : g_strdup("");
    gsize length = strlen(host);
    GSocketAddress *address;
    gint64 number;

    if (length == 0)
        return bad_address(value, error);
    if (!qos_parse_integer("listen: the port", port + 1, 0, G_MAXUINT16, &number, error))
        return FALSE;
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        memmove(host, host + 1, length - 1);
    }
    address = g_inet_socket_address_new_from_string(host, (guint)number);
    if (address == NULL)
        return bad_address(value, error);
    add_address(options, value, kind, address);
    return TRUE;
}

static gboolean check_socket_path(const char *name, const char *path, GError **error)
{
    if (strlen(path) <= QOS_SOCKET_PATH_MAX)
        return TRUE;
    qos_set_error(error, EINVAL, "%s: the path \"%s\" is longer than %d bytes", name, path,
                  QOS_SOCKET_PATH_MAX);
    return FALSE;
}

static gboolean set_listen(QosServerOptions *options, const Setting *setting G_GNUC_UNUSED,
                           const char *value, GError **error)
{
    const char *rest = strchr(value, ':');

    if (g_str_has_prefix(value, "tcp:"))
        return add_tcp(options, QOS_DOOR_TLS, value, rest + 1, error);
    if (g_str_has_prefix(value, "munge:"))
        return add_tcp(options, QOS_DOOR_MUNGE, value, rest + 1, error);
    if (!g_str_has_prefix(value, "unix:/"))
        return bad_address(value, error);
    if (!check_socket_path("listen", rest + 1, error))
        return FALSE;
    add_address(options, value, QOS_DOOR_LOCAL, g_unix_socket_address_new(rest + 1));
    return TRUE;
}

static gboolean set_path(QosServerOptions *options, const Setting *setting, const char *value,
                         GError **error)
{
    char **path = G_STRUCT_MEMBER_P(options, setting->field);

    if (!g_path_is_absolute(value)) {
        qos_set_error(error, EINVAL, "%s: \"%s\" is not an absolute path", setting->name, value);
        return FALSE;
    }
    g_free(*path);
    *path = g_strdup(value);
    return TRUE;
}

static gboolean set_control(QosServerOptions *options, const Setting *setting, const char *value,
                            GError **error)
{
    return set_path(options, setting, value, error) &&
           check_socket_path(setting->name, value, error);
}

static gboolean parse_number(const Setting *setting, const char *value, gint64 *ret_number,
                             GError **error)
{
    return qos_parse_integer(setting->name, value, setting->minimum, setting->maximum, ret_number,
                             error);
}

static gboolean set_uid(QosServerOptions *options, const Setting *setting, const char *value,
                        GError **error)
{
    gint64 number;

    if (!parse_number(setting, value, &number, error))
        return FALSE;
    uid_t uid = (uid_t)number;
    g_array_append_val(*(GArray **)G_STRUCT_MEMBER_P(options, setting->field), uid);
    return TRUE;
}

static gboolean set_admin_cn(QosServerOptions *options, const Setting *setting, const char *value,
                             GError **error)
{
    gboolean is_subject = g_ascii_strncasecmp(value, "CN=", 3) == 0;

    if (*value == '\0' || is_subject) {
        qos_set_error(error, EINVAL,
                      "%s: \"%s\" is no name: give the CN of a certificate alone, such as node1",
                      setting->name, value);
        return FALSE;
    }
    g_ptr_array_add(options->admin_cns, g_strdup(value));
    return TRUE;
}

static gboolean set_denied(QosServerOptions *options, const Setting *setting, const char *value,
                           GError **error)
{
    if (strchr(value, '=') == NULL) {
        qos_set_error(error, EINVAL,
                      "%s: \"%s\" is no subject of a certificate, such as CN=node1: "
                      "'qosfsctl server mounts' shows them",
                      setting->name, value);
        return FALSE;
    }
    g_ptr_array_add(options->tls_denied, g_strdup(value));
    return TRUE;
}

static gboolean set_number(QosServerOptions *options, const Setting *setting, const char *value,
                           GError **error)
{
    gint64 number;

    if (!parse_number(setting, value, &number, error))
        return FALSE;
    *(guint *)G_STRUCT_MEMBER_P(options, setting->field) = (guint)number;
    return TRUE;
}

static gboolean set_duration(QosServerOptions *options, const Setting *setting, const char *value,
                             GError **error)
{
    g_autofree char *minimum = qos_format_duration(setting->minimum);
    g_autofree char *maximum = qos_format_duration(setting->maximum);
    g_autoptr(GError) reason = NULL;
    QosTime duration;

    if (!qos_parse_duration(value, &duration, &reason)) {
        qos_set_error(error, EINVAL, "%s: %s", setting->name, reason->message);
        return FALSE;
    }
    if (duration < setting->minimum || duration > setting->maximum) {
        qos_set_error(error, EINVAL, "%s: %s is not between %s and %s", setting->name, value,
                      minimum, maximum);
        return FALSE;
    }
    *(QosTime *)G_STRUCT_MEMBER_P(options, setting->field) = duration;
    return TRUE;
}

/* Sets an option that may also be set while the server runs. */
static gboolean set_tunable(QosServerOptions *options, const Setting *setting, const char *value,
                            GError **error)
{
    return qos_server_tunable_set(&options->settings, setting->name, value, error);
}

#define FIELD(name) G_STRUCT_OFFSET(QosServerOptions, name)

static const Setting settings[] = {
    {"listen", set_listen, 0, 0, 0, "ADDRESS",
     "unix:/PATH, tcp:ADDRESS:PORT (TLS) or munge:ADDRESS:PORT;\n" HELP_INDENT
     "may be given again (" LISTEN_DEFAULT ")"},
    {"control", set_control, FIELD(control), 0, 0, "PATH",
     "socket of qosfsctl (" CONTROL_DEFAULT ")"},
    {"database", set_path, FIELD(database), 0, 0, "DIR",
     "what must outlive a restart (" QOS_SERVER_DATABASE_FOLDER ")"},
    {"tls-ca", set_path, FIELD(tls_authority), 0, 0, "FILE",
     "PEM: the authority that signs the certificates of clients"},
    {"tls-cert", set_path, FIELD(tls_certificate), 0, 0, "FILE", "PEM: the server's certificate"},
    {"tls-key", set_path, FIELD(tls_key), 0, 0, "FILE", "PEM: its key"},
    {"tls-deny", set_denied, 0, 0, 0, "SUBJECT",
     "a certificate that is not let in; may be given again"},
    {"munge-socket", set_path, FIELD(munge_socket), 0, 0, "PATH",
     "where munged listens (its usual place)"},
    {"allow-uid", set_uid, FIELD(allowed_uids), 0, G_MAXUINT32 - 1, "UID",
     "may connect beside root, by a Unix socket or MUNGE"},
    {"admin-uid", set_uid, FIELD(admin_uids), 0, G_MAXUINT32 - 1, "UID",
     "may change rules of the cluster beside root here;\n" HELP_INDENT
     "by a Unix socket or MUNGE; may be given again"},
    {"admin-cn", set_admin_cn, 0, 0, 0, "NAME", "likewise, mounts with a certificate of that CN"},
    {"limit", set_tunable, 0, 0, 0, "BYTES", "memory for credits: L (1G)"},
    {"hard-limit", set_tunable, 0, 0, 0, "BYTES",
     "beyond it none is granted: HL (1.25 of the limit)"},
    {"floor", set_tunable, 0, 0, 0, "BYTES",
     "what each client may keep cached whatever the load (0)"},
    {"cap", set_tunable, 0, 0, 0, "BYTES", "what one client may have (0: no cap)"},
    {"law", set_tunable, 0, 0, 0, "NAME", "how the lock rate is set: steady or hld (steady)"},
    {"lease", set_tunable, 0, 0, 0, "TIME", "how long a silent client keeps what it has (30s)"},
    {"resend", set_duration, FIELD(resend), 10 * QOS_MILLISECOND, 60 * QOS_SECOND, "TIME",
     "a message is repeated after this (200ms)"},
    {"group", set_tunable, 0, 0, 0, "N", "inodes in a resource, a power of two (1024)"},
    {"adapt", set_tunable, 0, 0, 0, "NAME",
     "fair: jobs divide adapt-capacity, over all mounts (off)"},
    {"adapt-capacity", set_tunable, 0, 0, 0, "N",
     "what the store can do, in operations a second (none)"},
    {"connections", set_number, FIELD(connections), 1, 65536, "N", "at most (4096)"},
    {"patience", set_duration, FIELD(patience), 100 * QOS_MILLISECOND, 600 * QOS_SECOND, "TIME",
     "how long a connection may take to identify itself (10s)"},
};

/* --- where settings come from --- */

static const Setting *find_setting(const char *name, GError **error)
{
    QosNear near;

    qos_near_init(&near, name);
    for (guint i = 0; i < G_N_ELEMENTS(settings); i++) {
        if (g_str_equal(settings[i].name, name))
            return &settings[i];
        qos_near_consider(&near, settings[i].name);
    }
    if (near.nearest != NULL)
        qos_set_error(error, EINVAL, "there is no setting \"%s\"; did you mean \"%s\"?", name,
                      near.nearest);
    else
        qos_set_error(error, EINVAL, "there is no setting \"%s\"; see --help", name);
    return NULL;
}

static gboolean set(QosServerOptions *options, const char *name, const char *value, GError **error)
{
    const Setting *setting = find_setting(name, error);

    return setting != NULL && setting->set(options, setting, value, error);
}

/* Refuses other sections, because their settings would have no effect. */
static void check_groups(GKeyFile *file, GError **error)
{
    g_auto(GStrv) groups = g_key_file_get_groups(file, NULL);

    for (guint i = 0; groups[i] != NULL; i++) {
        if (g_str_equal(groups[i], GROUP_OF_FILE))
            continue;
        qos_set_error(error, EINVAL,
                      "there is no section [%s]: all settings stand below [" GROUP_OF_FILE "]",
                      groups[i]);
        return;
    }
}

static gboolean read_file(QosServerOptions *options, const char *path, GError **error)
{
    static const char *const lists[] = {"listen",   "allow-uid", "admin-uid",
                                        "admin-cn", "tls-deny",  NULL};
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autoptr(GError) reason = NULL;
    g_auto(GStrv) names = NULL;

    if (g_key_file_load_from_file(file, path, G_KEY_FILE_NONE, &reason) &&
        !g_key_file_has_group(file, GROUP_OF_FILE))
        qos_set_error(&reason, EINVAL, "it has no section [" GROUP_OF_FILE "]");
    if (reason == NULL)
        check_groups(file, &reason);
    if (reason != NULL && reason->domain == G_KEY_FILE_ERROR)
        g_prefix_error(&reason,
                       "expected a line [" GROUP_OF_FILE "], and below it SETTING=VALUE: ");
    if (reason == NULL)
        names = g_key_file_get_keys(file, GROUP_OF_FILE, NULL, &reason);
    for (guint i = 0; names != NULL && names[i] != NULL && reason == NULL; i++) {
        gboolean is_list = g_strv_contains(lists, names[i]);
        g_autofree char *value = g_key_file_get_string(file, GROUP_OF_FILE, names[i], &reason);
        g_auto(GStrv) values = is_list && value != NULL ? g_strsplit(value, ";", -1) : NULL;

        if (value != NULL && !is_list)
            set(options, names[i], g_strstrip(value), &reason);
        for (guint j = 0; values != NULL && values[j] != NULL && reason == NULL; j++) {
            if (*g_strstrip(values[j]) != '\0')
                set(options, names[i], values[j], &reason);
        }
    }
    if (reason == NULL)
        return TRUE;
    qos_set_error(error, EINVAL, "%s: %s", path, reason->message);
    return FALSE;
}

/* The words --NAME VALUE and --NAME=VALUE, after those of the file. */
typedef struct {
    GPtrArray *names, *values; /* owned */
    char *file;
} Words;

static void words_clear(Words *words)
{
    g_ptr_array_unref(words->names);
    g_ptr_array_unref(words->values);
    g_free(words->file);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Words, words_clear)

/* Takes over `name`. */
static void take_word(Words *words, char *name, const char *value)
{
    if (g_str_equal(name, "config")) {
        g_free(words->file);
        g_free(name);
        words->file = g_strdup(value);
    } else {
        g_ptr_array_add(words->names, name);
        g_ptr_array_add(words->values, g_strdup(value));
    }
}

static gboolean split_words(Words *words, QosServerOptions *options, int argc, char **argv,
                            GError **error)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *equals = strchr(word, '=');

        if (g_str_equal(word, "--help") || g_str_equal(word, "-h")) {
            options->help = TRUE;
        } else if (g_str_equal(word, "--version") || g_str_equal(word, "-V")) {
            options->version = TRUE;
        } else if (g_str_equal(word, "--verbose") || g_str_equal(word, "-v")) {
            options->verbose = TRUE;
        } else if (!g_str_has_prefix(word, "--")) {
            qos_set_error(error, EINVAL, "\"%s\" is no option; see --help", word);
            return FALSE;
        } else if (equals != NULL) {
            take_word(words, g_strndup(word + 2, (gsize)(equals - word - 2)), equals + 1);
        } else if (!g_str_equal(word, "--config") && find_setting(word + 2, error) == NULL) {
            return FALSE;
        } else if (i + 1 == argc || g_str_has_prefix(argv[i + 1], "--")) {
            qos_set_error(error, EINVAL, "%s wants a value; see --help", word);
            return FALSE;
        } else {
            take_word(words, g_strdup(word + 2), argv[++i]);
        }
    }
    return TRUE;
}

/* --- the whole --- */

static gboolean has_door(const QosServerOptions *options, QosDoorKind kind)
{
    for (guint i = 0; i < options->listen->len; i++) {
        if (((const QosServerAddress *)options->listen->pdata[i])->kind == kind)
            return TRUE;
    }
    return FALSE;
}

static gboolean complete(QosServerOptions *options, GError **error)
{
    guint files = (options->tls_authority != NULL) + (options->tls_certificate != NULL) +
                  (options->tls_key != NULL);

    if (options->listen->len == 0 && !set(options, "listen", LISTEN_DEFAULT, error))
        return FALSE;
    if (options->settings.pool.hard_limit == 0)
        options->settings.pool.hard_limit = qos_server_hard_limit(options->settings.pool.limit);
    if (files % 3 != 0) {
        qos_set_error(error, EINVAL, "of tls-ca, tls-cert and tls-key some are missing");
        return FALSE;
    }
    if (files == 0 && has_door(options, QOS_DOOR_TLS)) {
        qos_set_error(error, EINVAL, "to listen on tcp:, tls-ca, tls-cert and tls-key are needed");
        return FALSE;
    }
    return qos_pool_config_check(&options->settings.pool, error) &&
           qos_server_settings_check_sharing(&options->settings, error);
}

gboolean qos_server_options_parse(QosServerOptions *ret_options, int argc, char **argv,
                                  GError **error)
{
    g_auto(Words) words = {g_ptr_array_new_with_free_func(g_free),
                           g_ptr_array_new_with_free_func(g_free), NULL};
    QosServerOptions options = {
        .listen = g_ptr_array_new_with_free_func(address_free),
        .control = g_strdup(CONTROL_DEFAULT),
        .database = g_strdup(QOS_SERVER_DATABASE_FOLDER),
        .tls_denied = g_ptr_array_new_with_free_func(g_free),
        .allowed_uids = g_array_new(FALSE, FALSE, sizeof(uid_t)),
        .admin_uids = g_array_new(FALSE, FALSE, sizeof(uid_t)),
        .admin_cns = g_ptr_array_new_with_free_func(g_free),
        .settings = {.pool = {.limit = G_GINT64_CONSTANT(1) << 30},
                     .lease = 30 * QOS_SECOND,
                     .group = QOS_WIRE_GROUP_MAX},
        .resend = 200 * QOS_MILLISECOND,
        .connections = 4096,
        .patience = 10 * QOS_SECOND,
    };
    gboolean is_right = split_words(&words, &options, argc, argv, error);

    if (is_right && !options.help && !options.version) {
        is_right = words.file == NULL || read_file(&options, words.file, error);
        for (guint i = 0; is_right && i < words.names->len; i++)
            is_right = set(&options, words.names->pdata[i], words.values->pdata[i], error);
        is_right = is_right && complete(&options, error);
    }
    if (!is_right) {
        qos_server_options_clear(&options);
        return FALSE;
    }
    *ret_options = options;
    return TRUE;
}

void qos_server_options_clear(QosServerOptions *options)
{
    g_clear_pointer(&options->listen, g_ptr_array_unref);
    g_clear_pointer(&options->tls_denied, g_ptr_array_unref);
    g_clear_pointer(&options->allowed_uids, g_array_unref);
    g_clear_pointer(&options->admin_uids, g_array_unref);
    g_clear_pointer(&options->admin_cns, g_ptr_array_unref);
    g_clear_pointer(&options->control, g_free);
    g_clear_pointer(&options->database, g_free);
    g_clear_pointer(&options->tls_authority, g_free);
    g_clear_pointer(&options->tls_certificate, g_free);
    g_clear_pointer(&options->tls_key, g_free);
    g_clear_pointer(&options->munge_socket, g_free);
}

gboolean qos_server_options_allow(const QosServerOptions *options, uid_t uid)
{
    for (guint i = 0; i < options->allowed_uids->len; i++) {
        if (g_array_index(options->allowed_uids, uid_t, i) == uid)
            return TRUE;
    }
    return uid == 0 || uid == geteuid();
}

gboolean qos_server_options_deny(const QosServerOptions *options, const char *subject)
{
    return g_ptr_array_find_with_equal_func(options->tls_denied, subject, g_str_equal, NULL);
}

char *qos_server_options_help(void)
{
    GString *text = g_string_new("Usage: qosfs-server [--config FILE] [--SETTING VALUE]...\n"
                                 "\n"
                                 "Serves mounts that share a store, so that each may cache what no "
                                 "other changes.\n"
                                 "\n");

    for (guint i = 0; i < G_N_ELEMENTS(settings); i++) {
        g_autofree char *words = g_strdup_printf("--%s %s", settings[i].name, settings[i].value);
        g_string_append_printf(text, "  %-20s %s\n", words, settings[i].help);
    }
    g_string_append(
        text, "\n  -v, --verbose        say more\n"
              "  -h, --help           this text\n"
              "  -V, --version        the version\n"
              "\n"
              "FILE has a section [server] with the same settings, NAME=VALUE; several\n"
              "addresses, uids, names and subjects are separated by ';'. See qosfs-server(8).\n");
    return g_string_free(text, FALSE);
}
