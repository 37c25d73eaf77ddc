/*
 * The program that a process runs. fs/caller/program.h has the contract.
 *
 * The descriptor has a reference count, because one thread may look at it while another gives it
 * up.
 */
#include "fs/caller/program.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where it cannot be told it is so. */
static gboolean share_memory(pid_t one, pid_t other)
{
    const long order = syscall(SYS_kcmp, one, other, KCMP_VM, 0, 0);

    return order == 0 || (order < 0 && errno != ESRCH);
}

void qos_program_open(QosProgram *program, int directory, pid_t thread, pid_t parent)
{
    const int pagemap = openat(directory, "pagemap", O_RDONLY | O_CLOEXEC);

    *program = (QosProgram){.pagemap = -1};
    if (pagemap < 0) {
        if (errno != EACCES && errno != EPERM && errno != ESRCH)
            program->state = QOS_PROGRAM_UNSURE;
        return;
    }
    if (parent != 0 && share_memory(thread, parent)) {
        program->state = QOS_PROGRAM_UNSURE;
        close(pagemap);
        return;
    }
    *program = (QosProgram){.state = QOS_PROGRAM_SURE, .pagemap = pagemap, .users = 1};
}

static gboolean begin_look(QosProgram *program)
{
    gint users;

    do {
        users = g_atomic_int_get(&program->users);
        if (users == 0)
            return FALSE;
    } while (!g_atomic_int_compare_and_exchange(&program->users, users, users + 1));
    return TRUE;
}

void qos_program_close(QosProgram *program)
{
    if (program->state == QOS_PROGRAM_SURE && g_atomic_int_dec_and_test(&program->users))
        close(program->pagemap);
}

gboolean qos_program_runs(QosProgram *program, gboolean is_strict)
{
    gboolean does_run;
    char byte;

    if (program->state != QOS_PROGRAM_SURE)
        return program->state == QOS_PROGRAM_UNSEEN || !is_strict;
    if (!begin_look(program))
        return FALSE;
    does_run = pread(program->pagemap, &byte, 1, 0) < 0 && errno == EINVAL;
    qos_program_close(program);
    return does_run;
}
