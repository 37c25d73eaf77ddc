/*
 * The sessions of many mounts, for bench/cluster sessions: what budgets cost the lock server.
 *
 * The problem: two thousand mounts do not fit on a machine. But the server only sees sessions, so
 * this program has just these. Each says HELLO, takes the rules, acknowledges them, and reports
 * every epoch what one class wants, by the mount's own law (core/budget_member.c).
 *
 *     bench-sessions SOCKET COUNT
 *
 * It prints "ready" once all are welcome, and from then on, a line each:
 *
 *     rules VERSION RULES FIRST LAST    all have the rules of that version: when the first and the
 *                                       last session had; CLOCK_MONOTONIC, ns
 *     traffic REPORTS ANSWERS GRANTS    of the last second; GRANTS answer an open report
 *
 * Each session always wants something, much for 2 s and little for 3 s, by turns, and not all at
 * once. The program ends with its input. Limit: a session that breaks ends it too.
 */
#include <errno.h>
#include <glib-unix.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/time.h"
#include "core/budget.h"
#include "core/wire_cluster.h"

#define SESSIONS_MAX 100000
#define READ_SIZE    65536
#define EVENTS       256
#define PATIENCE     60000              /* ms, for room in a socket */
#define ID_STEP      0x9e3779b97f4a7c15 /* ids of mounts are random in all their bits */
#define CLASS        "bench"            /* of the rule: its job */
#define MUCH         100                /* units a second that a session wants, by turns */
#define LITTLE       10
#define ON           (2 * QOS_SECOND)
#define CYCLE        (5 * QOS_SECOND)

typedef struct {
    int fd;
    guint number;
    gboolean is_welcome;
    QosWireReader reader;
    QosWireRules list;
    guint64 version; /* the latest that was acknowledged */
    guint64 rule;    /* on the wire; 0: none */
    QosBudgetMount mount;
    guint64 served;
    QosTime reported, due;
} Session;

static Session *sessions;
static guint count, welcome;
static QosTime epoch = QOS_BUDGET_EPOCH;
static guint64 reports, answers, grants;
/* Of the newest version that any session has. */
static struct {
    guint64 version;
    guint rules, seen;
    QosTime first, last;
} newest;

G_GNUC_NORETURN
static void die(const char *what)
{
    fprintf(stderr, "bench-sessions: %s: %s\n", what, g_strerror(errno));
    exit(1);
}

static QosTime now(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* Waits where the socket is full, as it is on a busy machine: then all others wait too. */
static void send_bytes(const Session *session, const GByteArray *bytes)
{
    struct pollfd room = {.fd = session->fd, .events = POLLOUT};
    gsize sent = 0;

    while (sent < bytes->len) {
        const gssize part = send(session->fd, bytes->data + sent, bytes->len - sent, MSG_NOSIGNAL);
        if (part < 0 && errno == EAGAIN && poll(&room, 1, PATIENCE) == 1)
            continue;
        if (part < 0)
            die("send");
        sent += (gsize)part;
    }
}

static void greet(Session *session, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireHello hello = {.version = QOS_WIRE_VERSION,
                          .id = ((guint64)session->number + 1) * ID_STEP,
                          .incarnation = 1,
                          .store = "bench"};

    g_strlcpy(address.sun_path, path, sizeof(address.sun_path));
    session->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (session->fd < 0 ||
        connect(session->fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        !g_unix_set_fd_nonblocking(session->fd, TRUE, NULL))
        die(path);
    snprintf(hello.name, sizeof(hello.name), "node%u:/bench", session->number);
    qos_wire_put_hello(bytes, &hello);
    send_bytes(session, bytes);
}

/* --- rules --- */

static void note_version(const QosWireRules *list)
{
    const QosTime moment = now();

    if (list->version > newest.version) {
        newest.version = list->version;
        newest.rules = list->total;
        newest.seen = 0;
        newest.first = moment;
    }
    newest.last = moment;
    if (list->version == newest.version && ++newest.seen == count) {
        printf("rules %" G_GUINT64_FORMAT " %u %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
               newest.version, newest.rules, newest.first, newest.last);
        fflush(stdout);
    }
}

/* The class of the first rule of the list: what the rule says is not read, as the server alone
 * divides its rate. */
static void follow_list(Session *session)
{
    const QosWireRules *list = &session->list;
    const guint64 rule = list->total > 0 ? g_array_index(list->rules, QosWireRule, 0).id : 0;
    const QosBudgetConfig config = {.share = QOS_BUDGET_FAIR,
                                    .away = QOS_BUDGET_AWAY_FLOOR,
                                    .epoch = list->epoch,
                                    .lease = list->lease};

    epoch = list->epoch;
    if (rule != session->rule && rule != 0) { /* programs do not begin all at once */
        qos_budget_mount_init(&session->mount, &config, 1, 0, 1);
        session->reported = now();
        session->due = session->reported + epoch * session->number / count;
    }
    session->rule = rule;
    session->mount.lease = list->lease;
}

static void take_rules(Session *session, const guint8 *payload, gsize length)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    QosWireRules page = {0};
    QosWireSeen seen;

    if (!qos_wire_get_rules(payload, length, &page) || !qos_wire_rules_join(&session->list, &page))
        die("a page of rules that is none");
    qos_wire_rules_clear(&page);
    if (!qos_wire_rules_are_whole(&session->list))
        return;
    follow_list(session);
    if (session->list.version > session->version)
        note_version(&session->list);
    session->version = session->list.version;
    seen = (QosWireSeen){.version = session->list.version, .parts = session->list.parts};
    qos_wire_put_seen(bytes, &seen);
    send_bytes(session, bytes);
}

/* --- budgets --- */

static void take_grants(Session *session, const guint8 *payload, gsize length)
{
    const QosTime moment = now();

    while (length > 0) {
        QosWireBudget item;
        QosBudgetGrant grant;

        if (!qos_wire_get_budget(&payload, &length, &item) ||
            !qos_budget_grant_decode(item.bytes, item.length, &grant))
            die("a grant that is none");
        answers++;
        if (qos_budget_mount_grant(&session->mount, &grant, moment)) {
            session->due = MAX(session->reported + epoch, moment);
            grants++;
        }
    }
}

/* What the class of the session wants, a rate: other sessions want more or less then. */
static guint64 demand_of(const Session *session, QosTime moment)
{
    const gboolean is_hungry = (moment + CYCLE * session->number / count) % CYCLE < ON;

    return (is_hungry ? MUCH : LITTLE) * QOS_BUDGET_UNIT;
}

static void report(Session *session, QosTime moment)
{
    const guint64 demand = demand_of(session, moment);
    const guint64 rate = MIN(demand, qos_budget_mount_rate(&session->mount, moment));
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GByteArray) encoded = g_byte_array_new();
    QosBudgetReport numbers = {0};
    gsize batch = QOS_WIRE_NO_BATCH;

    session->served +=
        (guint64)((double)rate * (double)(moment - session->reported) / (double)QOS_SECOND);
    session->reported = moment;
    session->due = moment + epoch * 3 / 2; /* unless it is answered */
    qos_budget_mount_report(&session->mount, demand, session->served, moment, &numbers);
    qos_budget_report_encode(&numbers, encoded);
    qos_budget_report_clear(&numbers);
    QosWireBudget item = {.rule = session->rule,
                          .unit = 0,
                          .class = CLASS,
                          .bytes = encoded->data,
                          .length = encoded->len};
    qos_wire_put_budget(bytes, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    send_bytes(session, bytes);
    reports++;
}

/* As a mount does it (fs/budgets_walk.c): a report follows its answer, at the pace of an epoch. */
static void report_due(QosTime moment)
{
    for (guint i = 0; i < count; i++) {
        if (sessions[i].rule != 0 && sessions[i].due <= moment)
            report(&sessions[i], moment);
    }
}

/* --- what comes --- */

static void take_frame(Session *session, QosWireType type, const guint8 *payload, gsize length)
{
    QosWireRefused refused;

    switch (type) {
    case QOS_WIRE_WELCOME:
        session->is_welcome = TRUE;
        welcome++;
        break;
    case QOS_WIRE_RULES:
        take_rules(session, payload, length);
        break;
    case QOS_WIRE_BUDGET_GRANT:
        take_grants(session, payload, length);
        break;
    case QOS_WIRE_REFUSED:
        if (qos_wire_get_refused(payload, length, &refused))
            fprintf(stderr, "bench-sessions: refused: %s\n", refused.reason);
        exit(1);
    default: /* credits are for mounts that have files */
        break;
    }
}

static void receive(Session *session)
{
    static guint8 bytes[READ_SIZE];
    const guint8 *payload;
    QosWireVerdict verdict;
    QosWireType type;
    gsize length;
    const gssize got = recv(session->fd, bytes, sizeof(bytes), 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        die("the server has closed a session");
    qos_wire_reader_feed(&session->reader, bytes, (gsize)got);
    while ((verdict = qos_wire_reader_next(&session->reader, &type, &payload, &length)) ==
           QOS_WIRE_FRAME)
        take_frame(session, type, payload, length);
    if (verdict == QOS_WIRE_BROKEN)
        die("the server sends what is no frame");
}

/* FALSE: the input has ended. */
static gboolean wait_for_events(int poll, gint patience)
{
    struct epoll_event events[EVENTS];
    const int got = epoll_wait(poll, events, EVENTS, patience);

    for (int i = 0; i < got; i++) {
        if (events[i].data.ptr == NULL)
            return FALSE;
        receive(events[i].data.ptr);
    }
    return TRUE;
}

static void watch(int poll, int fd, Session *session)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};

    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

/* One after the other, so that the server's queue of connections is never full. */
static void open_sessions(int poll, const char *path)
{
    for (guint i = 0; i < count; i++) {
        sessions[i].number = i;
        qos_wire_reader_init(&sessions[i].reader);
        greet(&sessions[i], path);
        watch(poll, sessions[i].fd, &sessions[i]);
        while (!sessions[i].is_welcome) {
            if (!wait_for_events(poll, -1))
                exit(0);
        }
    }
}

static void tell_traffic(QosTime *next, QosTime moment)
{
    if (moment < *next)
        return;
    printf("traffic %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", reports,
           answers, grants);
    fflush(stdout);
    reports = answers = grants = 0;
    *next += QOS_SECOND;
}

int main(int argc, char **argv)
{
    const guint64 wanted = argc == 3 ? g_ascii_strtoull(argv[2], NULL, 10) : 0;
    struct rlimit files;
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    QosTime next;

    if (wanted == 0 || wanted > SESSIONS_MAX) {
        fprintf(stderr, "usage: bench-sessions SOCKET COUNT\n");
        return 2;
    }
    if (poll < 0 || getrlimit(RLIMIT_NOFILE, &files) != 0)
        die("so many sockets");
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        die("so many sockets");
    count = (guint)wanted;
    sessions = g_new0(Session, count);
    watch(poll, STDIN_FILENO, NULL);
    open_sessions(poll, argv[1]);
    printf("ready\n");
    fflush(stdout);
    next = now() + QOS_SECOND;
    while (wait_for_events(poll, 1)) {
        const QosTime moment = now();

        report_due(moment);
        tell_traffic(&next, moment);
    }
    return 0;
}
