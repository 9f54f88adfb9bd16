/* A disk that fails: the n-th call that changes a folder returns an error, or ends the process.
 *
 * Comes in: calls of the C library that write, sync or name files, and a file in memory (`PARTGRID_FAULTS`) in which a test says which of them fails. Goes out: what the system says to the others. A write that fails
 * has written half of its bytes before. Never here: calls that read or remove.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The test has the same in failing_disk.py. */
typedef struct {
    int64_t first; /* the number of the call that fails, from 1; 0: none */
    int64_t last;  /* the number of the last one that fails */
    int64_t error; /* what it says; 0: it ends the process */
    int64_t seen;  /* calls so far */
    char folder[4064];
} Faults;

static Faults *faults;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("PARTGRID_FAULTS");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof(Faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) faults = map;
    close(file);
}

static int fails(const char *path) {
    if (!faults || strncmp(path, faults->folder, strlen(faults->folder))) return 0;
    int64_t number = __atomic_add_fetch(&faults->seen, 1, __ATOMIC_SEQ_CST);
    if (!faults->first || number < faults->first || number > faults->last) return 0;
    if (!faults->error) kill(getpid(), SIGKILL);
    errno = (int)faults->error;
    return 1;
}

static int fails_at(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = faults ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0) return 0;
    path[length] = 0;
    return fails(path);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    if (!fails_at(file)) return real(file, bytes, count);
    int error = errno;
    ssize_t half = real(file, bytes, count / 2);
    errno = error;
    return half < 0 ? half : -1;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    return fails_at(file) ? -1 : real(file, parts, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    REAL(pwrite64);
    return fails_at(file) ? -1 : real(file, bytes, count, at);
}

int fsync(int file) {
    REAL(fsync);
    return fails_at(file) ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return fails_at(file) ? -1 : real(file);
}

int ftruncate64(int file, off64_t length) {
    REAL(ftruncate64);
    return fails_at(file) ? -1 : real(file, length);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return flags & O_CREAT && fails(path) ? -1 : real(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return fails(path) ? -1 : real(path, mode);
}

int link(const char *from, const char *to) {
    REAL(link);
    return fails(to) ? -1 : real(from, to);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(linkat);
    return fails(new) ? -1 : real(from, old, to, new, flags);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return fails(to) ? -1 : real(from, to);
}
