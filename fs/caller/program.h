/*
 * Whether a process still runs the program that was looked at before.
 *
 * exec(2) gives a process new memory, so if the former memory is gone, the process runs another
 * program. An open /proc/TID/pagemap stands for the memory at the time of its open. Reading one
 * byte of it fails with EINVAL while any process uses that memory, and returns nothing afterwards.
 * The kernel takes no lock for this, so it costs no more than the cheapest system call
 * (docs/design/jobid.md).
 *
 * A child of vfork(2) uses its parent's memory until exec(2), so that memory does not go then. Such
 * a program is not sure, and kcmp(2) decides.
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
