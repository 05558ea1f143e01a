/*
 * gpuslice-hook: asks the driver before and after a container is checkpointed or restored.
 *
 *   gpuslice-hook                             as CRIU's action script: CRTOOLS_SCRIPT_ACTION is set
 *   gpuslice-hook oci createRuntime|poststop  as hook of an OCI runtime: its state is on stdin
 *   gpuslice-hook --version
 *
 *   --socket PATH   the driver's raw socket. CRIU gives no arguments: there the symbolic link
 *                   <path of this program>.socket says it. Never the environment: that is not ours.
 *   --claim UID     is passed on; CDI specs name their claim by it
 *
 * Exit status: 0 go on, 1 do not (the reason is on stderr), 2 wrong arguments.
 *
 * The protocol, one connection a call, is decoded by dra_driver/checkpoint/raw_line.py:
 *
 *   GPUSLICE1 <phase> role=criu|oci [k=v ...] len=N\n   at most 4096 bytes, values percent-encoded
 *   N bytes                                             stdin as it came, at most 65536
 *   OK\n  or  VETO <text>\n                             the answer; 1024 bytes of it are looked at
 *
 * Where the driver does not give one of these answers in time, a call passes, except where a GPU
 * would be left behind: the dump of a container that shows the mount of a claim, and the start of a
 * restored container through a CDI spec of ours. A start that restores nothing never asks at all,
 * nor does CRIU's call before a restore whose images show no claim.
 *
 * It runs as root, in the cgroup of the container at restore: fixed buffers, no allocation.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/time.h>

#include "hook_line.h"

#ifndef VERSION
#define VERSION "unknown"
#endif
#define DEFAULT_SOCKET "/run/gpuslice/hook.sock"

enum { PASS = 0, REFUSE = 1, USAGE = 2 };
/* The patience of calls that may refuse, of others, and of those about containers without a claim. */
#ifndef LONG_MS /* Tests that let time run out compile a program of their own. */
#define LONG_MS 5000
#define SHORT_MS 2000
#define BRIEF_MS 300
#endif
enum { MAX_BODY = 65536, MAX_ANSWER = 1024, MAX_SOCKET = 107, MAX_TEXT = 1536 };

static const char usage[] =
    "usage: gpuslice-hook [--socket PATH] [--claim UID] [oci createRuntime|poststop] | --version\n";

/* Actions of CRIU that the driver hears of; all others pass, among them network-lock, at which it
 * would do nothing while the container is frozen. Source: criu/action-scripts.c. */
static const char *const criu_phases[] = {
    "pre-dump",    "post-dump",    "network-unlock", /* of a dump that failed the only one */
    "pre-restore", "post-restore", "pre-resume",     "post-resume",
};

struct call {
    const char *phase, *claim, *socket;
    bool oci, version;
};

static char body[MAX_BODY];

/* What the alarm needs, at any time after arm(). */
static char late[MAX_TEXT];
static size_t late_length;
static volatile sig_atomic_t late_status;

/* One message on stderr; dropped where that would block, as nothing may keep this process alive. */
static void tell(const char *text, size_t length) {
    struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&error, 1, 0) == 1 && (error.revents & POLLOUT) != 0) {
        ssize_t written = write(STDERR_FILENO, text, length);
        (void)written; /* There is nowhere left to complain. */
    }
}

static void on_alarm(int number) {
    (void)number;
    tell(late, late_length);
    _exit(late_status);
}

static size_t describe(char *text, const struct call *call, const char *what, int status) {
    const char *then = status == PASS ? "going on without it"
                                      : "refusing, as a GPU's state would be lost: start gpuslice's "
                                        "plugin on this node and try again";
    int length = snprintf(text, MAX_TEXT, "gpuslice-hook: %s: the driver at %.*s %s; %s\n",
                          call->phase, MAX_SOCKET, call->socket, what, then);
    return length < 0 ? 0 : length < MAX_TEXT ? (size_t)length : MAX_TEXT - 1;
}

/* The driver did not answer: say so, and give the status for that. */
static int without(const struct call *call, const char *what) {
    char text[MAX_TEXT];
    tell(text, describe(text, call, what, late_status));
    return late_status;
}

/* From now on the process ends with `status` in so many milliseconds, whatever it waits for. */
static bool arm(const struct call *call, int ms, int status) {
    const struct itimerval off = {0};
    const struct itimerval on = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    struct sigaction action = {.sa_handler = on_alarm};
    sigset_t alarms;
    char what[48];
    bool stopped = setitimer(ITIMER_REAL, &off, NULL) == 0;
    (void)snprintf(what, sizeof what, "gave no answer within %d ms", ms);
    late_status = status;
    late_length = describe(late, call, what, status);
    return stopped && sigemptyset(&action.sa_mask) == 0 && sigaction(SIGALRM, &action, NULL) == 0 &&
           sigemptyset(&alarms) == 0 && sigaddset(&alarms, SIGALRM) == 0 &&
           sigprocmask(SIG_UNBLOCK, &alarms, NULL) == 0 && setitimer(ITIMER_REAL, &on, NULL) == 0;
}

/* Text of the driver on one line of a log: nothing in it can pretend to be another line. */
static int refused(const struct call *call, char *reason, size_t length) {
    char text[MAX_TEXT];
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)reason[i];
        reason[i] = (char)(c < ' ' || c == 0x7f ? '?' : c);
    }
    int size = snprintf(text, sizeof text, "gpuslice-hook: %s: refused by the driver: %.*s\n",
                        call->phase, (int)length, reason);
    tell(text, size < 0 ? 0 : size < MAX_TEXT ? (size_t)size : MAX_TEXT - 1);
    return REFUSE;
}

static int verdict(const struct call *call, int connection) {
    char answer[MAX_ANSWER];
    size_t length = read_line(connection, answer, sizeof answer);
    if (length == 3 && memcmp(answer, "OK\n", 3) == 0) {
        return PASS;
    }
    /* A veto that is cut short is one all the same. */
    if (length >= 5 && memcmp(answer, "VETO", 4) == 0 && (answer[4] == ' ' || answer[4] == '\n')) {
        length -= answer[length - 1] == '\n';
        return refused(call, answer + 4 + (length > 4), length > 5 ? length - 5 : 0);
    }
    return without(call, length == 0 ? "hung up" : "gave an answer that is none");
}

static int ask(const struct call *call, size_t length) {
    char what[128];
    size_t size = finish_line(length);
    int connection = connect_to(call->socket);
    if (connection < 0) {
        (void)snprintf(what, sizeof what, "cannot be reached (%s)", strerror(errno));
        return without(call, what);
    }
    /* A driver that has read enough to refuse may close early: what it said counts. */
    if (send_all(connection, line, size)) {
        (void)send_all(connection, body, length);
    }
    int status = verdict(call, connection);
    return close(connection) == 0 ? status : without(call, "broke the connection");
}

static int criu(const struct call *call) {
    const char *pid = getenv("CRTOOLS_INIT_PID");
    const char *images = getenv("CRTOOLS_IMAGE_DIR");
    bool may_refuse = strcmp(call->phase, "pre-dump") == 0;
    /* Until the opposite is seen, what is dumped may hold a GPU. */
    if (!arm(call, SHORT_MS, may_refuse ? REFUSE : PASS)) {
        return without(call, "cannot be waited for");
    }
    if (pid != NULL && is_number(pid)) {
        add_process("pid", "started", pid);
    } else {
        pid = NULL;
    }
    if (images != NULL) {
        add_images(images);
    }
    int marked = pid != NULL ? shows_marker(pid) : may_refuse ? 0 : images_show_marker(images);
    if (pid == NULL && !may_refuse && marked == 0) {
        return PASS; /* CRIU begins to restore a container without a claim. */
    }
    if (may_refuse) {
        add_field("marker", marked > 0 ? "yes" : marked == 0 ? "no" : "unknown");
    }
    may_refuse = may_refuse && marked != 0;
    int patience_ms = may_refuse ? LONG_MS : marked != 0 ? SHORT_MS : BRIEF_MS;
    if (!arm(call, patience_ms, may_refuse ? REFUSE : PASS)) {
        return without(call, "cannot be waited for");
    }
    return ask(call, 0);
}

static int oci(const struct call *call) {
    bool cut = false;
    bool created = strcmp(call->phase, "createRuntime") == 0;
    if (!arm(call, SHORT_MS, PASS)) {
        return without(call, "cannot be waited for");
    }
    size_t length = read_all(STDIN_FILENO, body, sizeof body, &cut);
    /* runc calls this hook on every start; only a restored container is "stopped" by then. */
    if (created && !status_is(body, length, "stopped")) {
        return PASS;
    }
    if (created && !arm(call, LONG_MS, REFUSE)) {
        return without(call, "cannot be waited for");
    }
    if (cut) {
        add_field("cut", "1");
    }
    return ask(call, length);
}

/* Fills `call`; false where the arguments are wrong. */
static bool parse(int argc, char **argv, struct call *call) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--version") == 0) {
            call->version = true;
        } else if (value == NULL) {
            return false;
        } else if (strcmp(argv[i], "--socket") == 0) {
            call->socket = value;
            i++;
        } else if (strcmp(argv[i], "--claim") == 0) {
            call->claim = value;
            i++;
        } else if (strcmp(argv[i], "oci") == 0 && !call->oci &&
                   (strcmp(value, "createRuntime") == 0 || strcmp(value, "poststop") == 0)) {
            call->oci = true;
            call->phase = value;
            i++;
        } else {
            return false;
        }
    }
    return true;
}

/* <path of this program>.socket where it is a link, else the usual place. */
static const char *usual_socket(void) {
    static char target[MAX_SOCKET + 1];
    char link[PATH_MAX];
    const char *program = (const char *)getauxval(AT_EXECFN);
    if (program == NULL || program[0] != '/') {
        return DEFAULT_SOCKET;
    }
    int size = snprintf(link, sizeof link, "%s.socket", program);
    if (size < 0 || (size_t)size >= sizeof link) {
        return DEFAULT_SOCKET;
    }
    ssize_t length = readlink(link, target, sizeof target);
    if (length <= 0 || (size_t)length >= sizeof target) {
        return DEFAULT_SOCKET;
    }
    target[length] = '\0';
    return target;
}

int main(int argc, char **argv) {
    struct call call = {0};
    if (!fill_standard_descriptors() || signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
        return REFUSE;
    }
    if (!parse(argc, argv, &call)) {
        tell(usage, sizeof usage - 1);
        return USAGE;
    }
    if (call.version) {
        return puts("gpuslice-hook " VERSION " " PROTOCOL) < 0 || fflush(stdout) != 0;
    }
    if (!call.oci) {
        const char *action = getenv("CRTOOLS_SCRIPT_ACTION");
        if (action == NULL) {
            tell(usage, sizeof usage - 1);
            return USAGE;
        }
        for (size_t i = 0; i < sizeof criu_phases / sizeof *criu_phases; i++) {
            if (strcmp(action, criu_phases[i]) == 0) {
                call.phase = criu_phases[i];
            }
        }
        if (call.phase == NULL) {
            return PASS;
        }
    }
    if (call.socket == NULL) {
        call.socket = usual_socket();
    }
    start_line(call.phase);
    add_field("role", call.oci ? "oci" : "criu");
    if (call.claim != NULL) {
        add_field("claim", call.claim);
    }
    return call.oci ? oci(&call) : criu(&call);
}
