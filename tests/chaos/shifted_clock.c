/* A time of day that can be set, for one process: preloaded (LD_PRELOAD), it adds a shift to it.

   CLOCK_SHIFT_FILE names a file of eight bytes: nanoseconds as a signed number in the order of the
   machine. It is mapped, so that a test which writes it sets the clock of the running process. Only
   the time of day moves; monotonic clocks do not, and files have the times of the kernel. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L
#define CLOCK_GETTIME ((__typeof__(&clock_gettime))real)

static volatile int64_t *shift;
static void *real;

__attribute__((constructor)) static void map_shift(void) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) shift = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (real == NULL) map_shift();
    int result = CLOCK_GETTIME(clock, now);
    int is_time_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (result == 0 && is_time_of_day && shift != NULL) {
        int64_t nanoseconds = now->tv_sec * SECOND + now->tv_nsec + *shift;
        now->tv_sec = nanoseconds / SECOND;
        now->tv_nsec = nanoseconds % SECOND;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (to != NULL) *to = precise.tv_sec;
    return precise.tv_sec;
}
