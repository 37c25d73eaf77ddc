/*
 * The identity of a thread. fs/caller/cred.h has the contract.
 *
 * The ids change in this order: groups, gid, uid, capabilities. capset() is the last because
 * setfsuid() changes the effective capabilities when it leaves root's uid or returns to it. Each
 * thread keeps the capabilities CHANGING_IDS, which it needs for the way back; no store looks at
 * them.
 *
 * A thread has CAP_SYS_RESOURCE only after the store has refused, even under the daemon's own
 * identity. A program may drop it after it has opened a file, and to ask at each write would cost
 * too much.
 */
#include "fs/caller/cred.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/mutex.h"

#define CAPABILITY_WORDS _LINUX_CAPABILITY_U32S_3
#define CHANGING_IDS     (QOS_CAPABILITY(CAP_SETUID) | QOS_CAPABILITY(CAP_SETGID))

typedef struct {
    uid_t uid;
    gid_t gid;
    gint group_count;
    gid_t *groups;
} Identity;

/* Set once by qos_cred_init(), read-only from then on. */
static struct {
    gboolean may_change; /* its ids */
    Identity identity;
    guint64 capabilities; /* all that it has */
    struct __user_cap_data_struct words[CAPABILITY_WORDS];
} daemon_own;

/* What a thread is now. `known` is FALSE after a change that failed halfway. */
typedef struct {
    Identity identity;
    gboolean known;
    guint64 capabilities; /* effective, for what it is working for */
    gboolean own_umask;   /* unshared from the other threads' */
    mode_t umask;         /* once it is its own */
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

/* The effective ones of this thread. */
static int set_capabilities(guint64 capabilities)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct words[CAPABILITY_WORDS];

    memcpy(words, daemon_own.words, sizeof(words));
    words[0].effective = (guint32)capabilities;
    words[1].effective = (guint32)(capabilities >> 32);
    return syscall(SYS_capset, &header, words) == 0 ? 0 : -errno;
}

/* The effective set of a thread that is given `capabilities`. */
static guint64 with_own(guint64 capabilities)
{
    return daemon_own.capabilities & (capabilities | CHANGING_IDS);
}

static guint64 own_capabilities(void)
{
    return with_own(~QOS_CAPABILITY(CAP_SYS_RESOURCE));
}

/* A group that has no number in the daemon's user namespace cannot be set. The kernel does not say
 * which one, so the identity then goes without groups. */
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
    daemon_own.capabilities = 0;
    if (syscall(SYS_capget, &header, daemon_own.words) != 0)
        return;
    daemon_own.capabilities = daemon_own.words[0].effective | (guint64)daemon_own.words[1].effective
                                                                  << 32;
    /* `unshare -Ur` forbids to set groups: there is but one user then. */
    daemon_own.may_change =
        (daemon_own.capabilities & CHANGING_IDS) == CHANGING_IDS && set_groups(own) == 0;
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

static int become(Thread *thread, const Identity *to, guint64 capabilities)
{
    const gboolean is_same = thread->known && same_identity(&thread->identity, to);
    int error = 0;

    if (is_same && thread->capabilities == capabilities)
        return 0;
    thread->known = FALSE;
    if (!is_same && daemon_own.may_change)
        error = change_ids(to);
    /* setfsuid() to and from root changes the effective set by itself: always set it. */
    if (error == 0)
        error = set_capabilities(capabilities);
    if (error != 0)
        return error;
    thread->capabilities = capabilities;
    if (!is_same)
        remember(thread, to);
    thread->known = TRUE;
    return 0;
}

/* An ordinary user's daemon has nothing to give, and no other identity to take on. */
static gboolean never_changes(void)
{
    return daemon_own.capabilities == 0;
}

int qos_cred_assume(const QosCaller *caller, guint64 capabilities)
{
    const Identity of_caller = {caller->uid, caller->gid, caller->group_count, caller->groups};
    const Identity *identity = daemon_own.may_change ? &of_caller : &daemon_own.identity;
    int error;

    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (never_changes())
        return 0;
    error = become(get_thread(), identity, with_own(capabilities));
    if (error != 0)
        qos_cred_restore();
    return error;
}

void qos_cred_restore(void)
{
    if (never_changes())
        return;
    /* It has all that this needs: a failure means that the thread's identity can be no longer
     * trusted. */
    if (become(get_thread(), &daemon_own.identity, own_capabilities()) != 0)
        g_error("cannot take back the daemon's own identity");
}

gboolean qos_cred_has(guint64 capabilities)
{
    return (get_thread()->capabilities & capabilities) == capabilities;
}

guint64 qos_cred_missing(void)
{
    return daemon_own.capabilities & ~get_thread()->capabilities;
}

void qos_cred_give(guint64 capabilities)
{
    Thread *thread = get_thread();
    const guint64 all = with_own(thread->capabilities | capabilities);

    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (never_changes() || !thread->known || all == thread->capabilities)
        return;
    if (set_capabilities(all) == 0)
        thread->capabilities = all;
}

/* Until qos_cred_lower(). */
static void raise_to(guint64 capabilities)
{
    const Thread *thread = get_thread();

    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (thread->known && thread->capabilities != capabilities)
        set_capabilities(capabilities);
}

void qos_cred_raise(void)
{
    raise_to(get_thread()->capabilities | own_capabilities());
}

void qos_cred_raise_admin(void)
{
    raise_to(with_own(get_thread()->capabilities | QOS_CAPABILITY(CAP_SYS_ADMIN)));
}

void qos_cred_lower(void)
{
    const Thread *thread = get_thread();
    const int error = errno;

    if (thread->known && (thread->capabilities | own_capabilities()) != thread->capabilities &&
        set_capabilities(thread->capabilities) != 0)
        g_error("cannot give up the daemon's capabilities");
    errno = error;
}

gboolean qos_cred_may_search(void)
{
    return (daemon_own.capabilities & QOS_CAPABILITY(CAP_DAC_READ_SEARCH)) != 0;
}

gboolean qos_cred_trusts(uid_t uid)
{
    return daemon_own.capabilities != 0 && (uid == 0 || uid == daemon_own.identity.uid);
}

gboolean qos_cred_keeps_suid(void)
{
    return qos_cred_has(QOS_CAPABILITY(CAP_FSETID));
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
