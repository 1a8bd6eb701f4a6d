/* A device that fails, for one process: preloaded (LD_PRELOAD), it refuses chosen calls with EIO.

   FAULT_FILE names a text file of lines `CALL PART`: CALL is one of the names below, or `any`; PART is
   what the path of the file must contain. It is read at each call, so that a test may change it while
   the process runs. What was refused is appended to FAULT_FILE.refused, a CALL in each line. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static ssize_t slurp(const char *path, char *text, size_t size) {
    int file = REAL(open)(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t count = REAL(read)(file, text, size - 1);
    REAL(close)(file);
    if (count >= 0) text[count] = 0;
    return count;
}

static void note(const char *faults, const char *call) {
    char path[4096], line[64];
    snprintf(path, sizeof path, "%s.refused", faults);
    int file = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    ssize_t size = snprintf(line, sizeof line, "%s\n", call);
    if (write(file, line, size) != size) abort();
    REAL(close)(file);
}

static int is_refused(const char *call, const char *path) {
    const char *faults = getenv("FAULT_FILE");
    char text[1024], name[32], part[256];
    int saved = errno, refused = 0;
    if (faults != NULL && slurp(faults, text, sizeof text) > 0) {
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
            if (sscanf(line, "%31s %255s", name, part) != 2) continue;
            if (strcmp(name, call) != 0 && strcmp(name, "any") != 0) continue;
            if (strstr(path, part) != NULL) refused = 1;
        }
    }
    if (refused) note(faults, call);
    errno = refused ? EIO : saved;
    return refused;
}

static int is_file_refused(const char *call, int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0 || path[0] != '/') return 0;
    path[size] = 0;
    return is_refused(call, path);
}

#define ON_FILE(type, name, call, parameters, arguments) \
    type name parameters { \
        if (is_file_refused(call, file)) return -1; \
        return REAL(name) arguments; \
    }

ON_FILE(ssize_t, read, "read", (int file, void *to, size_t size), (file, to, size))
ON_FILE(ssize_t, pread, "pread", (int file, void *to, size_t size, off_t at), (file, to, size, at))
ON_FILE(ssize_t, pread64, "pread", (int file, void *to, size_t size, off64_t at), (file, to, size, at))
ON_FILE(ssize_t, preadv, "pread", (int file, const struct iovec *to, int count, off_t at),
        (file, to, count, at))
ON_FILE(ssize_t, preadv64, "pread", (int file, const struct iovec *to, int count, off64_t at),
        (file, to, count, at))
ON_FILE(ssize_t, preadv2, "pread", (int file, const struct iovec *to, int count, off_t at, int flags),
        (file, to, count, at, flags))
ON_FILE(ssize_t, preadv64v2, "pread",
        (int file, const struct iovec *to, int count, off64_t at, int flags),
        (file, to, count, at, flags))
ON_FILE(ssize_t, pwrite, "pwrite", (int file, const void *from, size_t size, off_t at),
        (file, from, size, at))
ON_FILE(ssize_t, pwrite64, "pwrite", (int file, const void *from, size_t size, off64_t at),
        (file, from, size, at))
ON_FILE(int, fsync, "sync", (int file), (file))
ON_FILE(int, fdatasync, "sync", (int file), (file))
ON_FILE(int, ftruncate, "ftruncate", (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, "ftruncate", (int file, off64_t size), (file, size))
ON_FILE(int, fstat, "stat", (int file, struct stat *found), (file, found))
ON_FILE(int, fstat64, "stat", (int file, struct stat64 *found), (file, found))

#define ON_PATH(type, name, call, path, failure, parameters, arguments) \
    type name parameters { \
        if (is_refused(call, path)) return failure; \
        return REAL(name) arguments; \
    }

ON_PATH(int, stat, "stat", path, -1, (const char *path, struct stat *found), (path, found))
ON_PATH(int, stat64, "stat", path, -1, (const char *path, struct stat64 *found), (path, found))
ON_PATH(int, rename, "rename", from, -1, (const char *from, const char *to), (from, to))
ON_PATH(int, unlink, "unlink", path, -1, (const char *path), (path))
int unlinkat(int at, const char *name, int flags) {
    char link[64], path[8192];
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t size = at < 0 || name[0] == '/' ? 0 : readlink(link, path, 4096);
    if (size < 0) size = 0;
    snprintf(path + size, sizeof path - size, "/%s", name);
    if (is_refused("unlink", path)) return -1;
    return REAL(unlinkat)(at, name, flags);
}

ON_PATH(int, mkdir, "mkdir", path, -1, (const char *path, mode_t mode), (path, mode))

#define OPENING(name, call_path, parameters, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, int); va_end(more); } \
        if (is_refused("open", call_path)) return -1; \
        return REAL(name) arguments; \
    }

OPENING(open, path, (const char *path, int flags, ...), (path, flags, mode))
OPENING(open64, path, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, path, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENING(openat64, path, (int at, const char *path, int flags, ...), (at, path, flags, mode))
