/*
 * Makes a mount out of its parts, and takes it down again (fs/daemon/mount.h).
 *
 *     options -> [fork] -> inodes, gate, callers, database, control, interrupts -> session -> loop
 *
 * The starter checks what can be checked, then forks. Everything with threads or descriptors is
 * made in the child. SRC is opened before DIR is mounted, so that both may be the same directory.
 *
 * The end is the same whether the mount was unmounted, the daemon got a signal, or the start failed
 * half-way. The loop ends, waiting requests are answered, and the mount is taken away. Then state
 * is saved, and the parts are freed in the reverse order.
 */
#include "fs/daemon/mount.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db.h"
#include "fs/caller/cred.h"
#include "fs/caller/resolver.h"
#include "fs/cluster/admin.h"
#include "fs/cluster/shared_rules.h"
#include "fs/coherence/cluster.h"
#include "fs/coherence/coherence.h"
#include "fs/control/control.h"
#include "fs/control/tunable.h"
#include "fs/daemon/daemon.h"
#include "fs/daemon/mount_table.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/options.h"
#include "fs/daemon/paths.h"
#include "fs/filelocks/filelocks.h"
#include "fs/isolate/boost.h"
#include "fs/isolate/pay_point.h"
#include "fs/lockclient/client.h"
#include "fs/ops/operations.h"
#include "fs/request/fs.h"
#include "fs/request/interrupt.h"
#include "fs/store/inode.h"
#include "fs/store/open_file.h"
#include "fs/store/open_jobs.h"
#include "fs/store/passthrough.h"
#include "fs/store/root_attr.h"
#include "fs/transport/devfuse.h"
#include "fs/transport/uring.h"
#include "sys/privilege.h"

/* As mount(8) has them. */
#define EXIT_USAGE       1
#define EXIT_FAILED      32

#define SLOTS_AT_FIRST   64 /* until control has read the tunables */
#define CLEANUP_AT_FIRST (600 * QOS_SECOND)
#define THREADS_MIN      128
/* The start waits so long for a lock server, so that the mounting user is told what is wrong with
 * it. */
#define SERVER_PATIENCE (5 * QOS_SECOND)
#define WAITING_MEMORY  1536 /* bytes that a request takes which waits, its open file included */
/* More readers wait in the kernel than there are CPUs. Otherwise other readers would have to be
 * woken by futex(2) whenever nearly all of these have a request. Not many more, because the kernel
 * lets all readers take turns: with more readers, each finds less of its data in the CPU's
 * caches. */
#define READERS_TO_SPARE 2

typedef struct {
    QosFs fs; /* first: libfuse's user data */
    QosDaemon daemon;
    QosOptions options;
    char *source, *mountpoint; /* as fs/daemon/paths.h made them */
    sigset_t signals;          /* this thread's mask while it waits for the end */
    char *device;              /* of root's mount, while there is one that was not unmounted */
    gboolean is_up;            /* or was */
    QosRing *ring;             /* NULL: all requests come by /dev/fuse */
    QosDb *db;
} Mounter;

/* --- the starter --- */

/* The mount is there. */
static void tell_umount(void *data)
{
    const Mounter *mounter = data;

    qos_mount_table_add(mounter->source, mounter->mountpoint, mounter->options.of_mount8);
}

static void print_help(void)
{
    puts("Usage: mount.qosfs SRC DIR [-f] [-n] [-s] [-v] [-N NAMESPACE] [-o OPTION,...]\n"
         "\n"
         "Mounts the directory SRC on DIR, and holds every job there to its rules.\n"
         "\n"
         "  -o cache=auto|none|always  what the kernel may cache (auto)\n"
         "  -o attr_timeout=TIME       how long attributes are believed (1s; none: 0)\n"
         "  -o entry_timeout=TIME      how long names are believed (1s; none: 0)\n"
         "  -o allow_other             other users may use the mount (default for root)\n"
         "  -o noallow_other           only the user that mounts\n"
         "  -o submounts=yes|no        enter what is mounted below SRC (yes)\n"
         "  -o threads=N               readers of requests at most; more than slots\n"
         "  -o io_uring=auto|on|off    requests by io_uring (off)\n"
         "  -o io_uring_depth=N        readers that wait there at each CPU\n"
         "  -o db=PATH                 where rules, tunables and totals are kept\n"
         "  -o server=ADDRESS          share SRC with other mounts: unix:PATH,\n"
         "                             HOST:PORT (TLS) or munge:HOST:PORT\n"
         "  -o locks=cluster|local     fcntl and flock locks among all mounts, or here\n"
         "  -o server_ca=FILE          with TLS: the authority to trust (PEM)\n"
         "  -o server_cert=FILE        and this mount's certificate\n"
         "  -o server_key=FILE\n"
         "  -o server_munge=SOCKET     with MUNGE: where munged listens (its usual place)\n"
         "  -o store=NAME              what SRC is called on all mounts\n"
         "  -o foreground              stay in the foreground; also --foreground\n"
         "  -o unconfined              keep all capabilities and system calls, dump core\n"
         "  -o policy=NAME             fifo, tbf, jrr or grr; short for nrs_policies=NAME");
    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++)
        printf("  -o %s=%*s %s\n", qos_tunable_names[i],
               MAX(0, 22 - (int)strlen(qos_tunable_names[i])), "", qos_tunable_help(i));
    puts("  -o ro,nosuid,nodev,noexec,noatime,...   as for any mount\n"
         "  -o suid                    also where SRC's own mount is nosuid (by mount(8):\n"
         "                             allow_suid)\n"
         "  -o dev                     where it is nodev (allow_dev)\n"
         "  -o exec                    where it is noexec (allow_exec)\n"
         "\n"
         "  -f  do all but the mount    -s  ignore unknown options    -v  say more\n"
         "  -h  this text               -V  the version\n"
         "\n"
         "Tunables given here hold for this mount and are not saved. See mount.qosfs(8).");
}

/* --- the parts --- */

/* libfuse's first call: the kernel has found the mount and speaks to us. */
static void init(void *userdata, struct fuse_conn_info *connection)
{
    Mounter *mounter = userdata;

    qosfs_operations.init(userdata, connection);
    qos_sched_set_background_room(qos_gate_lock(mounter->fs.gate),
                                  qos_daemon_background_room(connection->max_background));
    qos_gate_unlock(mounter->fs.gate);
    g_info("%s is mounted on %s", mounter->source, mounter->mountpoint);
    mounter->is_up = TRUE;
    qos_daemon_is_up(&mounter->daemon);
}

static struct fuse_session *new_session(Mounter *mounter, GError **error)
{
    g_autofree char *options = qos_options_for_libfuse(&mounter->options, mounter->source);
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_lowlevel_ops operations = qosfs_operations;
    struct fuse_session *session;

    operations.init = init;
    fuse_opt_add_arg(&args, "mount.qosfs");
    fuse_opt_add_arg(&args, "-o");
    fuse_opt_add_arg(&args, options);
    session = fuse_session_new(&args, &operations, sizeof(operations), mounter);
    fuse_opt_free_args(&args);
    if (!session)
        qos_set_error(error, EINVAL, "libfuse does not take the options \"%s\"", options);
    return session;
}

/* The number of readers: more than the store has slots, and one for each request that may go
 * without a slot. So one reader is always free to read, whatever the others wait for. */
static gboolean choose_threads(Mounter *mounter, GError **error)
{
    QosSchedState state;

    qos_sched_state(qos_gate_lock(mounter->fs.gate), &state);
    qos_gate_unlock(mounter->fs.gate);
    if (mounter->options.threads == 0)
        mounter->options.threads = MAX(2 * state.slots, THREADS_MIN);
    mounter->fs.threads = mounter->options.threads;
    mounter->fs.readers = qos_readers_new(g_get_num_processors() + READERS_TO_SPARE,
                                          mounter->options.threads + QOS_THREADS_BESIDE);
    if (mounter->options.threads > state.slots)
        return TRUE;
    qos_set_error(
        error, EINVAL,
        "option threads=%u: there are %u slots, and a thread must be left to read requests; give "
        "more than %u threads, or fewer slots",
        mounter->options.threads, state.slots, state.slots);
    return FALSE;
}

/* Without file open files, how many files the kernel may know is bounded by the limit of open
 * files.
 */
static void warn_of_bound(const Mounter *mounter)
{
    guint bound = qos_inodes_bound(mounter->fs.inodes);

    if (bound == 0)
        return;
    g_warning("at most %u files of %s can be known at a time, because %s; beyond that programs get "
              "ENFILE. To know more, raise the limit of open files (ulimit -Hn)%s",
              bound, mounter->source,
              qos_cred_may_search() ? "it has no file handles"
                                    : "only root may find them again by handle",
              qos_cred_may_search() ? "" : ", or let root mount");
}

/* Reports that io_uring cannot be used, and why: an error if the user insists on it. Takes
 * `reason`. */
static gboolean go_without_ring(Mounter *mounter, GError *reason, GError **error)
{
    g_clear_pointer(&mounter->ring, qos_ring_free);
    if (mounter->options.io_uring == QOS_RING_ON) {
        g_propagate_prefixed_error(error, reason, "option io_uring=on: ");
        return FALSE;
    }
    g_info("requests come by /dev/fuse: %s", reason->message);
    g_error_free(reason);
    return TRUE;
}

/* The way of requests by io_uring, if it is wanted and to be had. */
static gboolean choose_ring(Mounter *mounter, GError **error)
{
    const QosOptions *options = &mounter->options;
    GError *reason = NULL;

    if (options->io_uring == QOS_RING_OFF)
        return TRUE;
    mounter->ring = qos_ring_new(options->io_uring_depth, &reason);
    return mounter->ring || go_without_ring(mounter, reason, error);
}

/* Always FALSE. */
static gboolean no_thread(GError **error)
{
    qos_set_thread_error(error);
    return FALSE;
}

static gboolean join_cluster(Mounter *mounter, GError **error)
{
    QosFs *fs = &mounter->fs;
    const QosClusterConfig *config = &mounter->options.cluster;

    if (!config->server)
        return TRUE;
    if (config->locks == QOS_CLUSTER_LOCKS_CLUSTER)
        fs->filelocks = qos_filelocks_new(fs->interrupt_table);
    fs->lockclient = qos_cluster_start(fs, mounter->db, config, error);
    if (!fs->lockclient)
        return FALSE;
    if (!fs->filelocks || qos_filelocks_start(fs->filelocks, fs->lockclient) == 0)
        return TRUE;
    return no_thread(error);
}

/* Starts what tells the kernel to forget names, attributes and pages. */
static gboolean start_telling(QosFs *fs, GError **error)
{
    fs->pay_points = qos_pay_points_new(fs->session, qos_clock_now);
    if (fs->lockclient)
        fs->coherence = qos_coherence_new(fs);
    if (fs->pay_points && (fs->coherence || !fs->lockclient))
        return TRUE;
    return no_thread(error);
}

/* If the directory has a qosfs mount already, tells the user that, instead of the error of the
 * second mount. */
static void explain_second_mount(const Mounter *mounter, GError **error)
{
    if (!g_error_matches(*error, QOS_ERROR, EBUSY) || !qos_mountpoint_is_taken(mounter->mountpoint))
        return;
    g_clear_error(error);
    qos_set_error(
        error, EBUSY,
        "DIR \"%s\": qosfs is mounted there already, and database %s is in use: umount it first "
        "('qosfsctl set' changes tunables without), or give this one a database of its "
        "own with -o db=PATH",
        mounter->mountpoint, mounter->options.database);
}

/* What the mount that SRC lies on forbids, this mount forbids too; the daemon enforces what mount
 * flags cannot. */
static void inherit_flags(Mounter *mounter)
{
    QosOptions *options = &mounter->options;
    QosInodes *inodes = mounter->fs.inodes;

    qos_options_inherit(options, qos_inodes_source_forbids(inodes));
    qos_inodes_allow(inodes, options->flags.set | (geteuid() == 0 ? options->flags.said : 0));
}

/* Makes everything but the mount. What was made when it fails is taken down by stop(). */
static gboolean start(Mounter *mounter, GError **error)
{
    QosFs *fs = &mounter->fs;
    QosTime timeout = qos_daemon_request_timeout();

    fs->config = mounter->options.config;
    fs->source = mounter->source;
    fs->mountpoint = mounter->mountpoint;
    fs->process = getpid();
    fs->owner = getuid();
    fs->inodes = fs->config.is_alone ? qos_inodes_new_alone(mounter->source, error)
                                     : qos_inodes_new(mounter->source, error);
    if (!fs->inodes)
        return FALSE;
    fs->open_files = qos_open_files_new(qos_inodes_left_to_open(fs->inodes));
    fs->dir_streams = qos_dir_streams_new();
    fs->open_jobs = qos_open_jobs_new();
    fs->boosts = qos_boosts_new();
    fs->interrupt_table = qos_interrupt_table_new();
    fs->gate = qos_gate_new(&qos_policy_tbf, SLOTS_AT_FIRST, CLEANUP_AT_FIRST);
    if (timeout != QOS_NEVER) {
        /* The other half is for the store. */
        qos_sched_set_max_wait(qos_gate_lock(fs->gate), timeout / 2);
        qos_gate_unlock(fs->gate);
    }
    if (qos_gate_start(fs->gate) != 0)
        return no_thread(error);
    fs->callers = qos_callers_new(fs->gate);
    fs->resolver = qos_resolver_new(fs->callers);
    fs->root_attr = qos_root_attr_new(fs->gate, fs->inodes, error);
    if (!fs->root_attr)
        return FALSE;
    if (!qos_cluster_check(mounter->source, &mounter->options.cluster, error) ||
        !choose_ring(mounter, error))
        return FALSE; /* what comes next would be left behind */
    mounter->db = qos_db_open(mounter->options.database, error);
    if (!mounter->db)
        explain_second_mount(mounter, error);
    if (!mounter->db || !join_cluster(mounter, error))
        return FALSE;
    if (fs->lockclient)
        qos_inodes_trust_credits(fs->inodes);
    fs->control = qos_control_new(fs, mounter->db, mounter->options.overrides, error);
    if (!fs->control || !choose_threads(mounter, error))
        return FALSE;
    fs->interrupts = qos_interrupts_new(fs->gate, fs->interrupt_table, mounter->ring != NULL);
    if (!fs->interrupts)
        return no_thread(error);
    qos_control_start(fs->control);
    inherit_flags(mounter);
    fs->session = new_session(mounter, error);
    if (!fs->session)
        return FALSE;
    fs->passthroughs = qos_passthroughs_new(fs->session, fs->gate);
    if (!start_telling(fs, error))
        return FALSE;
    if (fs->lockclient)
        qos_lockclient_await_first(fs->lockclient, SERVER_PATIENCE);
    warn_of_bound(mounter);
    return TRUE;
}

/* Whether the kernel has ended the connection, at an unmount or an abort. */
static gboolean is_disconnected(struct fuse_session *session)
{
    struct pollfd look = {.fd = fuse_session_fd(session)};

    return poll(&look, 1, 0) > 0 && look.revents & POLLERR;
}

/* For root libfuse would run umount(8), which the filter forbids, on whatever is at the place by
 * now. */
static void unmount(Mounter *mounter)
{
    if (mounter->device)
        qos_mountpoint_detach(mounter->mountpoint, mounter->device,
                              is_disconnected(mounter->fs.session));
    else if (mounter->fs.session)
        fuse_session_unmount(mounter->fs.session);
}

static void stop(Mounter *mounter)
{
    QosFs *fs = &mounter->fs;

    qos_filelocks_stop(fs->filelocks);
    qos_resolver_stop(fs->resolver);
    qos_coherence_stop(fs->coherence);
    if (fs->gate)
        qos_gate_stop(fs->gate);
    qos_interrupts_stop(fs->interrupts);
    qos_shared_rules_stop(fs->shared_rules);
    g_clear_pointer(&fs->lockclient, qos_lockclient_free);
    qos_coherence_free(fs->coherence);
    qos_pay_points_free(fs->pay_points);
    if (mounter->db) /* its thread answers readers of the history, by the ring too */
        qos_db_flush(mounter->db);
    qos_ring_free(mounter->ring);
    unmount(mounter);
    if (fs->control)
        qos_control_stop(fs->control);
    qos_open_files_free(fs->open_files);
    qos_dir_streams_free(fs->dir_streams);
    qos_passthroughs_free(fs->passthroughs);
    if (fs->session)
        fuse_session_destroy(fs->session);
    qos_control_free(fs->control);
    qos_filelocks_free(fs->filelocks);
    qos_admin_free(fs->admin);
    qos_shared_rules_free(fs->shared_rules);
    if (mounter->is_up)
        qos_db_close(mounter->db);
    else
        qos_db_discard(mounter->db);
    qos_interrupts_free(fs->interrupts);
    qos_resolver_free(fs->resolver);
    qos_callers_free(fs->callers);
    qos_open_jobs_free(fs->open_jobs);
    qos_boosts_free(fs->boosts);
    qos_root_attr_free(fs->root_attr);
    qos_inodes_free(fs->inodes);
    qos_gate_free(fs->gate);
    qos_readers_free(fs->readers);
    qos_interrupt_table_free(fs->interrupt_table);
    qos_privilege_report();
}

/* --- the mount --- */

/* Signals that end the mount are for this thread alone, while it waits for the end: elsewhere they
 * would interrupt calls on the store. *ret_waiting: its mask then. */
static void block_signals(sigset_t *ret_waiting)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t signals;

    pthread_sigmask(SIG_SETMASK, NULL, ret_waiting);
    sigemptyset(&signals);
    for (guint i = 0; i < G_N_ELEMENTS(ends); i++) {
        sigaddset(&signals, ends[i]);
        sigdelset(ret_waiting, ends[i]);
    }
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static ssize_t write_by_reader(int fd, struct iovec *parts, int count, void *userdata)
{
    return qos_readers_write(((Mounter *)userdata)->fs.readers, fd, parts, count);
}

static ssize_t write_by_ring(int fd, struct iovec *parts, int count, void *userdata)
{
    return qos_ring_write(((Mounter *)userdata)->ring, fd, parts, count);
}

/* Puts the ring, if there is one, between the mounted session and the kernel. */
static gboolean attach_ring(Mounter *mounter, GError **error)
{
    const struct fuse_custom_io io = {.read = qos_readers_read, .writev = write_by_ring};
    struct fuse_session *session = mounter->fs.session;
    GError *reason = NULL;
    int result;

    if (!mounter->ring)
        return TRUE;
    if (!qos_ring_attach(mounter->ring, session, mounter->options.threads + QOS_THREADS_BESIDE,
                         &reason))
        return go_without_ring(mounter, reason, error);
    result = fuse_session_custom_io(session, &io, sizeof(io), fuse_session_fd(session));
    if (result == 0)
        return TRUE;
    qos_set_error(&reason, -result,
                  "libfuse was built without it (meson configure -Dfuse3:enable-custom-io=true)");
    return go_without_ring(mounter, reason, error);
}

static QosPrivilegeNeeds needs_of(const Mounter *mounter)
{
    return (mounter->fs.lockclient != NULL ? QOS_NEEDS_NETWORK : 0) |
           (mounter->ring != NULL ? QOS_NEEDS_RINGS : 0);
}

static void note_mount(Mounter *mounter)
{
    qos_db_note_mount(mounter->db, mounter->mountpoint);
    if (geteuid() == 0)
        mounter->device = qos_mountpoint_device(mounter->mountpoint, NULL);
    qos_inodes_set_own_device(mounter->fs.inodes,
                              qos_mountpoint_device_number(mounter->mountpoint));
}

/* Answers requests until the mount goes or a signal comes. */
static gboolean loop(Mounter *mounter, GError **error)
{
    struct fuse_session *session = mounter->fs.session;
    int result;

    if (fuse_set_signal_handlers(session) != 0 ||
        fuse_session_mount(session, mounter->mountpoint) != 0) {
        const char *obstacle = qos_mountpoint_obstacle();

        qos_set_error(error, EIO, "cannot mount on \"%s\": %s", mounter->mountpoint,
                      obstacle ? obstacle : "the line above says why");
        return FALSE;
    }
    note_mount(mounter);
    if (!attach_ring(mounter, error))
        return FALSE;
    qos_sched_set_request_memory(qos_gate_lock(mounter->fs.gate),
                                 WAITING_MEMORY + (mounter->ring ? QOS_RING_WAITING_MEMORY : 0));
    qos_gate_unlock(mounter->fs.gate);
    if (!mounter->options.unconfined && !qos_privilege_filter(needs_of(mounter), error))
        return FALSE;
    if (QOSFS_HAS_READERS && !mounter->ring)
        qos_readers_attach(mounter->fs.readers, session, write_by_reader);
    result = qos_readers_run(mounter->fs.readers, session, mounter->fs.interrupt_table,
                             &mounter->signals);
    qos_coherence_end_drops(mounter->fs.coherence);
    qos_readers_stop(mounter->fs.readers);
    qos_ring_stop(mounter->ring);
    fuse_remove_signal_handlers(session);
    /* ECONNABORTED: the unmount met a request half read. */
    if (result == 0 || result == -ECONNABORTED)
        return TRUE;
    qos_set_error(error, -result, "the mount on \"%s\" ended: %s", mounter->mountpoint,
                  g_strerror(-result));
    return FALSE;
}

static gboolean serve(Mounter *mounter, GError **error)
{
    const gboolean in_background = !mounter->options.foreground && !mounter->options.fake;
    gboolean done;

    if (in_background && qos_daemon_background(&mounter->daemon) < 0) {
        qos_set_error(error, errno, "cannot go to the background: %s", g_strerror(errno));
        return FALSE;
    }
    if (!in_background && !mounter->options.fake)
        qos_daemon_foreground(&mounter->daemon);
    qos_daemon_prepare();
    qos_proc_enter();
    if (!mounter->options.unconfined && !qos_privilege_drop(error))
        return FALSE;
    qos_cred_init();
    block_signals(&mounter->signals);
    done = start(mounter, error);
    if (done && mounter->options.fake)
        printf("Nothing is mounted on %s: -f only tries it. To stay in the foreground: "
               "-o foreground\n",
               mounter->mountpoint);
    else if (done)
        done = loop(mounter, error);
    stop(mounter);
    return done;
}

int qos_mount_run(int argc, char **argv)
{
    Mounter mounter = {0};
    QosOptions *options = &mounter.options;
    g_autoptr(GError) error = NULL;
    int status = EXIT_SUCCESS;

    qos_daemon_init(&mounter.daemon, FALSE);
    if (!qos_options_parse(options, argc, argv, qos_tunable_names, &error)) {
        g_critical("%s", error->message);
        return EXIT_USAGE;
    }
    mounter.daemon.verbose = options->verbose;
    mounter.daemon.at_mount = qos_mount_table_is_wanted() ? tell_umount : NULL;
    mounter.daemon.data = &mounter;
    if (options->help)
        print_help();
    else if (options->version)
        printf("qosfs %s, libfuse %s\n", QOSFS_VERSION, fuse_pkgversion());
    else if (!qos_tunables_check_given(options->overrides, &error) ||
             !qos_paths_resolve(options, &mounter.source, &mounter.mountpoint, &error) ||
             !serve(&mounter, &error))
        status = EXIT_FAILED;
    if (error)
        g_critical("%s", error->message);
    qos_options_clear(options);
    g_free(mounter.source);
    g_free(mounter.mountpoint);
    g_free(mounter.device);
    return status;
}
