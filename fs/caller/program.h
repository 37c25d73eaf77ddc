/*
 * The program that a process runs: whether it is the one that was looked at before.
 *
 * exec(2) gives a process other memory, so memory that has gone tells that the program has. An open
 * /proc/TID/pagemap stands for the memory of that moment; to read one byte of it fails with EINVAL
 * while somebody uses that memory, and gives nothing after. The kernel takes no lock for it: it
 * costs what the cheapest system call does (docs/design/jobid.md).
 *
 * A child of vfork(2) uses its parent's memory until it calls exec, which then does not go. Such a
 * program is not sure: kcmp(2) tells it.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

typedef enum {
    QOS_PROGRAM_UNSEEN, /* it may not be looked at, or has gone */
    QOS_PROGRAM_UNSURE, /* what follows it would not be told from it */
    QOS_PROGRAM_SURE,
} QosProgramState;

typedef struct {
    QosProgramState state;
    int pagemap; /* where it is sure */
    gint users;  /* atomic; 0: it is closed */
} QosProgram;

/* `directory`: of the thread in /proc. `parent`: 0, or the parent of a process that has not called
 * exec. May wait for the process's exec(2), as to read its environment does. */
void qos_program_open(QosProgram *program, int directory, pid_t thread, pid_t parent);
/* Gives up the descriptor. Once; no program may be opened then in the same place. */
void qos_program_close(QosProgram *program);

/* FALSE: the thread runs another one, or it is not known: closed, or `is_strict` and not sure. */
gboolean qos_program_runs(QosProgram *program, gboolean is_strict);
