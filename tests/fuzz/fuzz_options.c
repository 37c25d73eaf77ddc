/*
 * Command lines of mount.qosfs: each line of the input is a word. Whatever comes, it is refused
 * with a reason, or all is there that a mount needs; and libfuse finds the name of the store,
 * whatever it is, whole in the options that are made for it.
 */
#include <fuse_opt.h>
#include <glib.h>
#include <string.h>

#include "db/db.h"
#include "fs/control/tunable.h"
#include "fs/daemon/options.h"

#define NAME_MAX_WITH_SUFFIX (255 - 8) /* SQLite's "-journal" */

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static void check_store_name(const QosOptions *options)
{
    static const struct fuse_opt template[] = {{"fsname=%s", 0, 0}, FUSE_OPT_END};
    g_autofree char *text = qos_options_for_libfuse(options, options->source);
    const char *words[] = {"test", "-o", text};
    struct fuse_args args = FUSE_ARGS_INIT(G_N_ELEMENTS(words), (char **)words);
    char *name = NULL;

    g_assert_cmpint(fuse_opt_parse(&args, &name, template, NULL), ==, 0);
    g_assert_cmpstr(name, ==, options->source);
    free(name);
    fuse_opt_free_args(&args);
}

static void check_database_name(const char *mountpoint)
{
    g_autofree char *path = qos_db_default_path(mountpoint);
    g_autofree char *name = g_path_get_basename(path);

    g_assert_true(g_path_is_absolute(path) && g_str_has_suffix(name, ".db"));
    g_assert_cmpuint(strlen(name), <=, NAME_MAX_WITH_SUFFIX);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    char program[] = "mount.qosfs";
    g_autofree char *text = g_strndup((const char *)data, size);
    g_auto(GStrv) lines = g_strsplit(text, "\n", 64);
    g_autoptr(GPtrArray) words = g_ptr_array_new();
    g_autoptr(GError) error = NULL;
    QosOptions options = {0};
    gboolean parsed;

    g_ptr_array_add(words, program);
    for (char **line = lines; *line; line++)
        g_ptr_array_add(words, *line);
    g_ptr_array_add(words, NULL);
    parsed = qos_options_parse(&options, (int)words->len - 1, (char **)words->pdata,
                               qos_tunable_names, &error);
    g_assert_true(parsed == (error == NULL));
    if (!parsed) {
        g_assert_true(error->message[0] != '\0' && error->code > 0);
        return 0;
    }
    if (!options.help && !options.version) {
        g_assert_true(*options.source && *options.mountpoint);
        g_assert_true(options.config.attr_timeout >= 0 && options.config.entry_timeout >= 0);
        check_store_name(&options);
        check_database_name(options.mountpoint);
    }
    qos_options_clear(&options);
    return 0;
}
