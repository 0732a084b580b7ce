/* A wrong clock for one process: LD_PRELOAD this, and the time of day is off by
 * as many seconds as the 8 bytes of a file say, from one moment to the next: the
 * one that CLOCK_OFFSET names, or /etc/clock-offset. Clocks that do not tell the time of day stay as they are.
 *
 * What waits until a time of day is told to wait for the real one: the kernel does
 * not know of our clock. libfaketime does the same and much more, but not for the
 * futexes that gRPC waits on: under it, gRPC never connects again.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FILE_OF_OFFSET "/etc/clock-offset"
#define MONOTONIC_BIT 2 /* in __wrefs of glibc's condition variables */

static const volatile int64_t *offset_s;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_clock_wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                              const struct timespec *);
static int (*real_sem_wait)(sem_t *, const struct timespec *);
static int (*real_lock)(pthread_mutex_t *, const struct timespec *);
static long (*real_syscall)(long, ...);

static void *find(const char *name, const char *version)
{
    void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void)
{
    if (real_gettime)
        return;
    real_cond_wait = find("pthread_cond_timedwait", "GLIBC_2.3.2");
    real_clock_wait = find("pthread_cond_clockwait", NULL);
    real_sem_wait = find("sem_timedwait", NULL);
    real_lock = find("pthread_mutex_timedlock", NULL);
    real_syscall = find("syscall", NULL);
    real_gettime = find("clock_gettime", NULL);
    const char *name = getenv("CLOCK_OFFSET");
    int fd = open(name ? name : FILE_OF_OFFSET, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        offset_s = page;
}

static int64_t offset(void)
{
    begin();
    return offset_s ? *offset_s : 0;
}

static const struct timespec *real_time(const struct timespec *told, struct timespec *room)
{
    *room = *told;
    room->tv_sec -= offset();
    return room;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t ahead_s = offset();
    int result = real_gettime(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) < 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (place)
        *place = exact.tv_sec;
    return exact.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    struct timespec room;
    if (!(cond->__data.__wrefs & MONOTONIC_BIT))
        until = real_time(until, &room);
    else
        begin();
    return real_cond_wait(cond, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict until)
{
    struct timespec room;
    if (clock == CLOCK_REALTIME)
        until = real_time(until, &room);
    else
        begin();
    return real_clock_wait(cond, mutex, clock, until);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until)
{
    struct timespec room;
    return real_sem_wait(sem, real_time(until, &room));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    struct timespec room;
    return real_lock(mutex, real_time(until, &room));
}

long syscall(long number, ...)
{
    long words[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(list, long);
    va_end(list);
    begin();
    struct timespec room;
    if (number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME) && words[3])
        words[3] = (long)real_time((const struct timespec *)words[3], &room);
    return real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
