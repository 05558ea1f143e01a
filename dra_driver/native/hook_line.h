/* The line that gpuslice-hook sends, and what it reads for it from /proc and from an OCI state. */
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdalign.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "hook_io.h"

#ifndef PROC_ROOT /* Tests compile a program of their own with another one. */
#define PROC_ROOT "/proc"
#endif
#define PROTOCOL "GPUSLICE1"
/* Every CDI spec of ours mounts a file there, so it tells containers with a claim from others. */
#define MARKER "/run/gpuslice/claim"

/* TAIL bytes are kept free for " len=65536\n". */
enum { MAX_LINE = 4096, TAIL = 16, MAX_DIGITS = 20, PID_DIGITS = 10 };

static char line[MAX_LINE];
static size_t used;

static bool put(const char *text, size_t length) {
    if (length > MAX_LINE - TAIL - used) {
        return false;
    }
    memcpy(line + used, text, length);
    used += length;
    return true;
}

static bool put_encoded(const char *value) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:";
    char code[4];
    for (bool fits = true; *value != '\0'; value++) {
        if (strchr(plain, *value) != NULL) {
            fits = put(value, 1);
        } else {
            fits = snprintf(code, sizeof code, "%%%02X", (unsigned)(unsigned char)*value) == 3 &&
                   put(code, 3);
        }
        if (!fits) {
            return false;
        }
    }
    return true;
}

static void start_line(const char *phase) {
    used = 0;
    (void)(put(PROTOCOL " ", sizeof PROTOCOL) && put(phase, strlen(phase))); /* They fit. */
}

/* Leaves a field out where it does not fit. */
static void add_field(const char *key, const char *value) {
    size_t before = used;
    if (!(put(" ", 1) && put(key, strlen(key)) && put("=", 1) && put_encoded(value))) {
        used = before;
    }
}

/* Ends the line, and gives its length. */
static size_t finish_line(size_t body_length) {
    int length = snprintf(line + used, MAX_LINE - used, " len=%zu\n", body_length);
    return used + (length > 0 ? (size_t)length : 0);
}

static bool is_number(const char *text) {
    size_t length = strspn(text, "0123456789");
    return length > 0 && length <= PID_DIGITS && text[length] == '\0';
}

static int open_of(const char *pid, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, PROC_ROOT "/%s/%s", pid, name);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

/* A process that is there: its id and when it started, so that the id means no other one. */
static void add_process(const char *pid_key, const char *started_key, const char *pid) {
    char stat[1024];
    bool cut = false;
    int fd = open_of(pid, "stat");
    if (fd < 0) {
        return;
    }
    size_t length = read_all(fd, stat, sizeof stat - 1, &cut);
    stat[length] = '\0';
    /* Field 22; the name in field 2 may hold anything, so count from its last parenthesis. */
    char *at = memrchr(stat, ')', length);
    for (int field = 3; at != NULL && field <= 22; field++) {
        at = strchr(at + 1, ' ');
    }
    size_t digits = at == NULL ? 0 : strspn(at + 1, "0123456789");
    if (close(fd) == 0 && digits > 0 && digits <= MAX_DIGITS) {
        at[1 + digits] = '\0';
        add_field(pid_key, pid);
        add_field(started_key, at + 1);
    }
}

/* CRTOOLS_IMAGE_DIR is /proc/<CRIU>/fd/<N>: says which folder, and which process. */
static bool find_images(const char *path, char pid[static PID_DIGITS + 1],
                        char link[static PATH_MAX]) {
    char fd[PID_DIGITS + 1];
    int end = 0;
    if (sscanf(path, "/proc/%10[0-9]/fd/%10[0-9]%n", pid, fd, &end) != 2 || path[end] != '\0') {
        return false;
    }
    int size = snprintf(link, PATH_MAX, PROC_ROOT "/%s/fd/%s", pid, fd);
    return size >= 0 && size < PATH_MAX;
}

static void add_images(const char *path) {
    char pid[PID_DIGITS + 1], link[PATH_MAX], folder[PATH_MAX];
    if (!find_images(path, pid, link)) {
        return;
    }
    add_process("criu", "criu_started", pid);
    ssize_t length = readlink(link, folder, sizeof folder);
    if (length > 0 && (size_t)length < sizeof folder && folder[0] == '/') {
        folder[length] = '\0';
        add_field("images", folder);
    }
}

/* Whether the process sees the mount of a claim: 1, 0, or -1 where that cannot be read. */
static int shows_marker(const char *pid) {
    char block[4096];
    int field = 1;
    size_t matched = 0;
    bool same = true, found = false;
    ssize_t got;
    int fd = open_of(pid, "mountinfo");
    if (fd < 0) {
        return errno == ENOENT || errno == ESRCH ? 0 : -1;
    }
    while ((got = read_some(fd, block, sizeof block)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            if (block[i] == ' ' || block[i] == '\n') {
                found = found || (field == 5 && same && matched == sizeof MARKER - 1);
                field = block[i] == '\n' ? 1 : field < 6 ? field + 1 : 6;
                matched = 0;
                same = true;
            } else {
                same = same && matched < sizeof MARKER - 1 && MARKER[matched] == block[i];
                matched++;
            }
        }
    }
    return close(fd) != 0 || (got < 0 && !found) ? -1 : found;
}

/* Whether a file holds the path of the mount of a claim: 1, 0, or -1 where that cannot be read. */
static int names_marker(int folder, const char *name) {
    enum { KEPT = sizeof MARKER - 2 };
    char block[4096];
    size_t kept = 0;
    bool found = false;
    ssize_t got = 0;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) {
        return -1;
    }
    while (!found && (got = read_some(fd, block + kept, sizeof block - kept)) > 0) {
        size_t length = kept + (size_t)got;
        found = memmem(block, length, MARKER, sizeof MARKER - 1) != NULL;
        kept = length < KEPT ? length : KEPT;
        memmove(block, block + length - kept, kept);
    }
    return close(fd) != 0 || got < 0 || kept == 0 ? -1 : found;
}

/*
 * Whether what is restored has the mount of a claim, by the images mountpoints-*.img of CRIU: 1, 0,
 * or -1 where there are none that can be read.
 */
static int images_show_marker(const char *path) {
    static const char prefix[] = "mountpoints-";
    char pid[PID_DIGITS + 1], link[PATH_MAX];
    alignas(struct dirent64) char entries[8192];
    int shown = -1;
    long length = 0;
    bool named = path != NULL && find_images(path, pid, link);
    int folder = named ? open(link, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder < 0) {
        return -1;
    }
    while (shown != 1 && (length = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < length;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            at += entry->d_reclen;
            if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0) {
                int here = names_marker(folder, entry->d_name);
                if (here < 0) {
                    (void)close(folder); /* It was only read. */
                    return -1;
                }
                shown = here > shown ? here : shown;
            }
        }
    }
    (void)close(folder); /* It was only read. */
    return length < 0 ? -1 : shown;
}

static size_t skip_spaces(const char *text, size_t at, size_t length) {
    while (at < length && memchr(" \t\r\n", text[at], 4) != NULL) {
        at++;
    }
    return at;
}

/*
 * Whether the first "status" of an OCI state has this value. Runtimes write it before what users can
 * set, which are the annotations, and a quote within a JSON text follows a backslash.
 */
static bool status_is(const char *state, size_t length, const char *wanted) {
    static const char key[] = "\"status\"";
    size_t size = strlen(wanted);
    const char *found = memmem(state, length, key, sizeof key - 1);
    if (found == NULL) {
        return false;
    }
    size_t at = skip_spaces(state, (size_t)(found - state) + sizeof key - 1, length);
    if (at == length || state[at] != ':') {
        return false;
    }
    at = skip_spaces(state, at + 1, length);
    return length - at >= size + 2 && state[at] == '"' && state[at + 1 + size] == '"' &&
           memcmp(state + at + 1, wanted, size) == 0;
}
