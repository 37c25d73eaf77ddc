#include "ops/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define BIT(signal) (G_GUINT64_CONSTANT(1) << ((signal)-1))

/* What a signal does to a process that has not said otherwise, signal(7): all but these end it. */
#define HARMLESS                                                                                   \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) |     \
     BIT(SIGURG) | BIT(SIGWINCH))

typedef struct {
    guint64 own, shared; /* pending: the thread's, the process's */
    guint64 blocked;
    guint64 handled; /* or ignored */
    guint64 threads;
} Status;

/* Reads a line such as "SigPnd:\t0000000000000100" if it has that name; adds to *sum. */
static void read_number(const char *line, const char *name, int base, guint64 *sum)
{
    gsize length = strlen(name);

    if (strncmp(line, name, length) == 0)
        *sum |= g_ascii_strtoull(line + length, NULL, (guint)base);
}

static void read_status(FILE *file, Status *status)
{
    char line[256];

    while (fgets(line, sizeof(line), file) != NULL) {
        read_number(line, "Threads:", 10, &status->threads);
        read_number(line, "SigPnd:", 16, &status->own);
        read_number(line, "ShdPnd:", 16, &status->shared);
        read_number(line, "SigBlk:", 16, &status->blocked);
        read_number(line, "SigIgn:", 16, &status->handled);
        read_number(line, "SigCgt:", 16, &status->handled);
    }
}

QosSignals qos_signals_of(pid_t thread)
{
    QosSignals signals = {0};
    Status status = {0};
    char path[32];

    if (thread == 0)
        return signals;
    g_snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        signals.is_gone = errno == ENOENT || errno == ESRCH;
        return signals;
    }
    read_status(file, &status);
    fclose(file);

    guint64 ends = ~(status.handled | HARMLESS) | BIT(SIGTERM) | BIT(SIGKILL);
    guint64 open = ~status.blocked | BIT(SIGKILL);
    guint64 pending = (status.own | status.shared) & open;
    signals.is_signaled = pending != 0;
    signals.is_its_own = (status.threads == 1 ? pending : status.own & open) != 0;
    signals.is_killed = (pending & ends) != 0;
    return signals;
}
