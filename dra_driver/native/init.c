/* gpuslice-init: the first process of the container of `gpuslice mpsd`.
 *
 * Usage: gpuslice-init PROGRAM [ARGUMENT ...]
 *
 * With the host's process ids, a container runtime kills all processes of a container when its
 * first one ends. MPS daemons have to outlive the supervisor that started them, so this program is
 * the first one instead and ends only when it is asked to. It starts PROGRAM, and starts it again
 * when it ends by itself: after 1 s, then 2 s, up to 30 s, and after 1 s again once it has run for
 * a minute. The daemons that a dead supervisor leaves become children of this process, for the next
 * one to find, and are reaped here when they end.
 *
 * SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on, and this process ends with PROGRAM, with its
 * status (128 + N after signal N). SIGUSR1 and SIGUSR2 are only passed on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_DELAY_S = 1, LONGEST_DELAY_S = 30, STEADY_S = 60, NOT_STARTED = 127 };

static const int heard[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static time_t now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

static int status_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static pid_t start(char **program, const sigset_t *mask) {
  pid_t pid = fork();
  if (pid == 0) {
    /* A group of its own: Ctrl-C of a terminal must not reach it twice. */
    setpgid(0, 0);
    /* Whoever started us deaf to some, the program hears what it is sent. */
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
      signal(heard[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(program[0], program);
    fprintf(stderr, "gpuslice-init: cannot start %s: %s\n", program[0], strerror(errno));
    _exit(NOT_STARTED);
  }
  if (pid < 0)
    fprintf(stderr, "gpuslice-init: cannot make a process: %s\n", strerror(errno));
  return pid;
}

/* Reaps all that has ended; true where `child` was among it, which leaves its status. */
static bool reap(pid_t child, int *status) {
  bool ended = false;
  int found;
  for (pid_t pid; (pid = waitpid(-1, &found, WNOHANG)) > 0;)
    if (pid == child) {
      ended = true;
      *status = status_of(found);
    }
  return ended;
}

int main(int count, char **arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: gpuslice-init PROGRAM [ARGUMENT ...]\n");
    return 2;
  }
  sigset_t signals, mask;
  sigemptyset(&signals);
  for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
    sigaddset(&signals, heard[i]);
  sigprocmask(SIG_BLOCK, &signals, &mask);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    fprintf(stderr, "gpuslice-init: cannot adopt orphans: %s\n", strerror(errno));
    return 1;
  }
  pid_t child = -1;
  bool stopping = false;
  int status = 0;
  time_t delay_s = FIRST_DELAY_S, started_s = 0, due_s = now_s();
  for (;;) {
    if (child < 0 && now_s() >= due_s) {
      started_s = now_s();
      child = start(arguments + 1, &mask);
      due_s = started_s + delay_s;
    }
    /* Without a child, look at the clock again within a second. */
    struct timespec second = {.tv_sec = 1};
    int signal = sigtimedwait(&signals, NULL, child < 0 ? &second : &(struct timespec){3600, 0});
    if (signal > 0 && signal != SIGCHLD) {
      stopping = stopping || (signal != SIGUSR1 && signal != SIGUSR2);
      if (child > 0)
        kill(child, signal);
    }
    if (reap(child, &status)) {
      child = -1;
      if (!stopping) {
        if (now_s() - started_s >= STEADY_S)
          delay_s = FIRST_DELAY_S;
        fprintf(stderr, "gpuslice-init: %s ended with status %d, it starts again in %ld s\n",
                arguments[1], status, (long)delay_s);
        due_s = now_s() + delay_s;
        delay_s = 2 * delay_s > LONGEST_DELAY_S ? LONGEST_DELAY_S : 2 * delay_s;
      }
    }
    if (stopping && child < 0)
      return status;
  }
}
