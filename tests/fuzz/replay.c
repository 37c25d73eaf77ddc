/*
 * Runs a fuzzer's target over each file of a folder, once: seeds and former finds are tests of
 * every build, whatever its compiler. usage: replay_<name> FOLDER
 */
#include <glib.h>

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static void replay(gconstpointer path)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *content = NULL;
    g_autofree guint8 *exact = NULL;
    gsize length;

    g_file_get_contents(path, &content, &length, &error);
    g_assert_no_error(error);
    exact = g_memdup2(content, length); /* without GLib's NUL, so that reading past the end shows */
    LLVMFuzzerTestOneInput(exact, length);
}

int main(int argc, char **argv)
{
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GDir) folder = NULL;
    const char *name;

    g_test_init(&argc, &argv, NULL);
    folder = argc == 2 ? g_dir_open(argv[1], 0, NULL) : NULL;
    g_assert_nonnull(folder);
    while ((name = g_dir_read_name(folder)) != NULL) {
        char *path = g_build_filename(argv[1], name, NULL);
        g_autofree char *test_name = g_strconcat("/replay/", name, NULL);

        g_ptr_array_add(paths, path);
        g_test_add_data_func(test_name, path, replay);
    }
    g_assert_cmpuint(paths->len, >, 0);
    return g_test_run();
}
