/*
 * profagent_mark.h: marks and spans of a C or C++ program, for profagent. Header only, C99, POSIX.
 *
 *     uint64_t begin = profagent_now();
 *     preprocess();
 *     profagent_frame_span("preprocess", begin, 7);
 *     profagent_mark("frame", "{\"id\":7}");
 *
 * A call writes 256 bytes to the daemon's FIFO and never waits. Without a daemon, or with a full FIFO, the mark is
 * dropped; the host sees the gap in the numbers and tells it as a loss. Any thread may call. Include it before any
 * other header: each file that does numbers marks by itself, as `writer` tells.
 */
#ifndef PROFAGENT_MARK_H
#define PROFAGENT_MARK_H

#if defined(_FEATURES_H) && !defined(__USE_GNU) && !defined(_GNU_SOURCE)
#error "include profagent_mark.h before any other header, or compile with -D_GNU_SOURCE"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PROFAGENT_MARK, PROFAGENT_SPAN, PROFAGENT_RANGE, PROFAGENT_STEP };

typedef struct {
    uint32_t magic;
    uint8_t version, kind;
    uint16_t text_bytes;
    uint32_t pid, tid;
    uint64_t begin_ns, end_ns, number;
    uint32_t lane;
    uint16_t attribute_bytes, writer;
    char text[208];
} profagent_record;

static inline uint64_t profagent_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds since 1970, by the clock that records use. */
static inline uint64_t profagent_now(void)
{
    return profagent_clock(CLOCK_REALTIME);
}

static inline int profagent_open(void)
{
    char path[256] = "/run/profagent";
    const char *run = getenv("PROFAGENT_RUN");
    if (run != NULL && strlen(run) < sizeof path - 7) strcpy(path, run);
    strcat(path, "/marks");
    return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

/* Write, and keep the SIGPIPE of a daemon that went away from the program. */
static inline int profagent_send(int fifo, const profagent_record *record)
{
    sigset_t pipe_signal, before, pending;
    struct timespec at_once = {0, 0};
    int was_pending, written;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    written = write(fifo, record, sizeof *record) == (ssize_t)sizeof *record;
    if (!written && errno == EPIPE) {
        if (!was_pending) sigtimedwait(&pipe_signal, NULL, &at_once);
        written = -1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return written;
}

/* Returns 1 when the record reached the FIFO, else 0. `attributes` is a JSON object, or NULL. */
static inline int profagent_write(int kind, const char *text, const char *attributes, uint64_t begin_ns,
                                  uint64_t end_ns, uint32_t lane)
{
    static int fifo = -1;
    static uint64_t numbers, next_try_ns;
    static uint32_t owner; /* a fork's child counts its own */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t length = strlen(text), more = attributes == NULL ? 0 : strlen(attributes);
    profagent_record record;
    int written = 0;
    memset(&record, 0, sizeof record);
    if (length > sizeof record.text) length = sizeof record.text;
    if (length + more > sizeof record.text) more = 0; /* half of a JSON object is none */
    record.magic = 0x4B52414D;
    record.version = 1;
    record.kind = (uint8_t)kind;
    record.text_bytes = (uint16_t)length;
    record.attribute_bytes = (uint16_t)more;
    record.pid = (uint32_t)getpid();
    record.tid = (uint32_t)syscall(SYS_gettid);
    record.begin_ns = begin_ns;
    record.end_ns = end_ns;
    record.lane = lane;
    record.writer = (uint16_t)((uintptr_t)&numbers >> 2 | 1); /* of eight bytes that no other file has; Python's is 0 */
    memcpy(record.text, text, length);
    if (more > 0) memcpy(record.text + length, attributes, more);
    pthread_mutex_lock(&lock);
    if (owner != record.pid) numbers = 0;
    owner = record.pid;
    record.number = numbers++;
    if (fifo < 0 && profagent_clock(CLOCK_MONOTONIC) >= next_try_ns) {
        next_try_ns = profagent_clock(CLOCK_MONOTONIC) + 1000000000u;
        fifo = profagent_open();
    }
    if (fifo >= 0) {
        written = profagent_send(fifo, &record);
        if (written < 0) {
            close(fifo);
            fifo = -1;
            written = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return written;
}

/* Mark this moment. */
static inline int profagent_mark(const char *text, const char *attributes)
{
    uint64_t now = profagent_now();
    return profagent_write(PROFAGENT_MARK, text, attributes, now, now, 0);
}

/* Mark the time from `begin_ns` (of profagent_now) until now, in this thread. */
static inline int profagent_span(const char *text, uint64_t begin_ns)
{
    return profagent_write(PROFAGENT_SPAN, text, NULL, begin_ns, profagent_now(), 0);
}

/* The same with the number of the frame that it belongs to. */
static inline int profagent_frame_span(const char *text, uint64_t begin_ns, int64_t frame)
{
    char attributes[40];
    snprintf(attributes, sizeof attributes, "{\"frame\":%lld}", (long long)frame);
    return profagent_write(PROFAGENT_SPAN, text, attributes, begin_ns, profagent_now(), 0);
}

/* Mark the time of what began in another thread; `id` tells ranges apart that overlap. */
static inline int profagent_range(const char *text, uint64_t begin_ns, uint32_t id)
{
    return profagent_write(PROFAGENT_RANGE, text, NULL, begin_ns, profagent_now(), id);
}

#ifdef __cplusplus
}
#endif
#endif
