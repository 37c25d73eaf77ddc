/*
 * The identity of a thread (ops/cred.h).
 *
 * Leaving root's fsuid drops the capabilities about files, and capset() the others
 * (CAP_SYS_RESOURCE passes quotas, CAP_SYS_ADMIN shows trusted xattrs); what stays is what the way
 * back needs. The way is always the same: groups, gid, uid, capabilities.
 */
#include "ops/cred.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/mutex.h"

#define CAPABILITY_WORDS _LINUX_CAPABILITY_U32S_3
#define CHANGING_IDS     ((1u << CAP_SETUID) | (1u << CAP_SETGID))

typedef struct {
    uid_t uid;
    gid_t gid;
    gint group_count;
    gid_t *groups;
} Identity;

/* Set once by qos_cred_init(), read-only from then on. */
static struct {
    gboolean may_change;
    Identity identity;
    struct __user_cap_data_struct full[CAPABILITY_WORDS];
    struct __user_cap_data_struct reduced[CAPABILITY_WORDS];
} daemon_own;

/* What a thread is now. `known` is FALSE after a change that failed halfway. */
typedef struct {
    Identity identity;
    gboolean known;
    gboolean reduced;
    gboolean own_umask; /* unshared from the other threads' */
    mode_t umask;       /* once it is its own */
} Thread;

static void thread_free(gpointer data)
{
    Thread *thread = data;

    g_free(thread->identity.groups);
    g_free(thread);
}

static GPrivate this_thread = G_PRIVATE_INIT(thread_free);

static Thread *get_thread(void)
{
    Thread *thread = g_private_get(&this_thread);

    if (thread == NULL) {
        thread = g_new0(Thread, 1);
        g_private_set(&this_thread, thread);
    }
    return thread;
}

QosCaller *qos_caller_ref(QosCaller *caller)
{
    g_atomic_int_inc(&caller->references);
    return caller;
}

void qos_caller_unref(QosCaller *caller)
{
    if (caller == NULL || !g_atomic_int_dec_and_test(&caller->references))
        return;
    qos_job_unref(caller->job);
    g_free(caller->groups);
    g_free(caller);
}

static int set_capabilities(const struct __user_cap_data_struct *data)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

    return syscall(SYS_capset, &header, data) == 0 ? 0 : -errno;
}

/* A group that has no number in the daemon's user namespace cannot be set. The kernel does not say
 * which it is: then the identity goes without groups. */
static int set_groups(const Identity *to)
{
    if (syscall(SYS_setgroups, to->group_count, to->groups) == 0 ||
        (errno == EINVAL && syscall(SYS_setgroups, 0, NULL) == 0))
        return 0;
    return -errno;
}

void qos_cred_init(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    Identity *own = &daemon_own.identity;

    own->uid = geteuid();
    own->gid = getegid();
    own->group_count = MAX(getgroups(0, NULL), 0);
    g_free(own->groups);
    own->groups = g_new0(gid_t, own->group_count + 1);
    own->group_count = MAX(getgroups(own->group_count, own->groups), 0);

    daemon_own.may_change = FALSE;
    if (syscall(SYS_capget, &header, daemon_own.full) != 0)
        return;
    memcpy(daemon_own.reduced, daemon_own.full, sizeof(daemon_own.reduced));
    daemon_own.reduced[0].effective &= CHANGING_IDS;
    daemon_own.reduced[1].effective = 0;
    /* `unshare -Ur` forbids to set groups: there is but one user then. */
    daemon_own.may_change = daemon_own.reduced[0].effective == CHANGING_IDS && set_groups(own) == 0;
}

static gboolean same_identity(const Identity *a, const Identity *b)
{
    return a->uid == b->uid && a->gid == b->gid && a->group_count == b->group_count &&
           (a->group_count == 0 ||
            memcmp(a->groups, b->groups, a->group_count * sizeof(*a->groups)) == 0);
}

static void remember(Thread *thread, const Identity *identity)
{
    gid_t *groups = identity->group_count == 0
                        ? NULL
                        : g_memdup2(identity->groups, identity->group_count * sizeof(gid_t));

    g_free(thread->identity.groups);
    thread->identity = *identity;
    thread->identity.groups = groups;
    thread->known = TRUE;
}

/* setfsuid() and setfsgid() report no error: ask what it is now. */
static int change_ids(const Identity *to)
{
    int error = set_groups(to);

    if (error != 0)
        return error;
    setfsgid(to->gid);
    if ((gid_t)setfsgid((gid_t)-1) != to->gid)
        return -EPERM;
    setfsuid(to->uid);
    if ((uid_t)setfsuid((uid_t)-1) != to->uid)
        return -EPERM;
    return 0;
}

static int become(Thread *thread, const Identity *to)
{
    gboolean reduced = to->uid != 0 && to->uid != daemon_own.identity.uid;
    int error;

    if (thread->known && same_identity(&thread->identity, to))
        return 0;
    thread->known = FALSE;
    error = change_ids(to);
    if (error != 0)
        return error;
    /* setfsuid() to and from root changes the effective set by itself: always set it. */
    error = set_capabilities(reduced ? daemon_own.reduced : daemon_own.full);
    if (error != 0)
        return error;
    thread->reduced = reduced;
    remember(thread, to);
    return 0;
}

int qos_cred_assume(const QosCaller *caller)
{
    Identity identity = {caller->uid, caller->gid, caller->group_count, caller->groups};
    int error;

    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (!daemon_own.may_change)
        return 0;
    error = become(get_thread(), &identity);
    if (error != 0)
        qos_cred_restore();
    return error;
}

void qos_cred_restore(void)
{
    if (!daemon_own.may_change)
        return;
    /* It has all that this needs: a failure means that the thread's identity can be no longer
     * trusted. */
    if (become(get_thread(), &daemon_own.identity) != 0)
        g_error("cannot take back the daemon's own identity");
}

void qos_cred_raise(void)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (daemon_own.may_change && get_thread()->reduced)
        set_capabilities(daemon_own.full);
}

void qos_cred_raise_admin(void)
{
    struct __user_cap_data_struct raised[CAPABILITY_WORDS];

    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    memcpy(raised, daemon_own.reduced, sizeof(raised));
    raised[0].effective |= daemon_own.full[0].effective & (1u << CAP_SYS_ADMIN);
    if (daemon_own.may_change && get_thread()->reduced)
        set_capabilities(raised);
}

void qos_cred_lower(void)
{
    if (daemon_own.may_change && get_thread()->reduced && set_capabilities(daemon_own.reduced) != 0)
        g_error("cannot give up the daemon's capabilities");
}

gboolean qos_cred_may_search(void)
{
    return (daemon_own.full[0].effective & (1u << CAP_DAC_READ_SEARCH)) != 0;
}

gboolean qos_cred_is_root(void)
{
    return daemon_own.may_change && !get_thread()->reduced;
}

void qos_cred_umask(mode_t mask)
{
    Thread *thread = get_thread();

    if (thread->own_umask && thread->umask == mask)
        return;
    if (!thread->own_umask)
        thread->own_umask = unshare(CLONE_FS) == 0;
    umask(mask);
    thread->umask = mask;
}
