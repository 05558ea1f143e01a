/* Files and sockets as gpuslice-hook needs them: whole, and not put off by signals. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A descriptor that is closed would be given to the next file that is opened. */
static bool fill_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            return false;
        }
    }
    return true;
}

static ssize_t read_some(int fd, char *into, size_t size) {
    ssize_t got;
    do {
        got = read(fd, into, size);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Up to and with the first newline, the end or `size` bytes. */
static size_t read_line(int fd, char *into, size_t size) {
    size_t length = 0;
    ssize_t got;
    while (length < size && (got = read_some(fd, into + length, size - length)) > 0) {
        const char *end = memchr(into + length, '\n', (size_t)got);
        if (end != NULL) {
            return (size_t)(end - into) + 1;
        }
        length += (size_t)got;
    }
    return length;
}

/* Reads to the end, so that nobody's write fails; `cut` tells that there was more than `size`. */
static size_t read_all(int fd, char *into, size_t size, bool *cut) {
    char rest[4096];
    size_t length = 0;
    ssize_t got;
    while (length < size && (got = read_some(fd, into + length, size - length)) > 0) {
        length += (size_t)got;
    }
    while (length == size && read_some(fd, rest, sizeof rest) > 0) {
        *cut = true;
    }
    return length;
}

static bool send_all(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        if (sent > 0) {
            data += sent;
            length -= (size_t)sent;
        }
    }
    return true;
}

/* A connection, or -1 with errno. */
static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int status;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    do {
        status = connect(fd, (const struct sockaddr *)&address, sizeof address);
    } while (status != 0 && errno == EINTR);
    if (status == 0) {
        return fd;
    }
    int reason = errno;
    (void)close(fd); /* It is not the failure that counts. */
    errno = reason;
    return -1;
}
