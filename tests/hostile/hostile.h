/* What the attacks share: includes, and how they tell that they got somewhere. */
#ifndef HOSTILE_H
#define HOSTILE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A line of its own, at once: the attack may not live long enough to flush. */
#define ESCAPED(...) \
    do { \
        char text_[400]; \
        int length_ = snprintf(text_, 300, "\nESCAPED " __VA_ARGS__); \
        if (length_ > 299) \
            length_ = 299; \
        text_[length_] = '\n'; \
        if (write(1, text_, (size_t)length_ + 1) < 0) \
            _exit(99); \
    } while (0)

/* A call that must fail. */
#define MUST_FAIL(call) \
    do { \
        if ((long)(call) != -1) \
            ESCAPED("%s", #call); \
    } while (0)

/* The attack ran to its end. */
#define HELD() \
    do { \
        puts("held"); \
        fflush(stdout); \
    } while (0)

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Long enough that what is held now is in a sample of the machine's memory. */
static inline void linger(void)
{
    usleep(80000);
}

/* Does the work in so many children at once, which keep what they have until this process ends. */
static inline void in_children(int count, void (*work)(int number))
{
    int ends[2], born = 0;
    char done;
    if (pipe(ends) < 0)
        return;
    for (; born < count; born++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            close(ends[0]);
            work(born);
            if (write(ends[1], "", 1) == 1)
                pause();
            _exit(0);
        }
    }
    close(ends[1]);
    while (born-- > 0 && read(ends[0], &done, 1) == 1)
        ;
    linger();
}

/* Looks for the judge's secret in a file; returns the bytes read, or -1. */
static inline long search_file(const char *path)
{
    static char bytes[1 << 16];
    /* O_NONBLOCK: a FIFO must not hold us up. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    long total = 0, got;
    if (fd < 0)
        return -1;
    while (total < (4 << 20) && (got = read(fd, bytes, sizeof bytes)) > 0) {
        /* In two words, or this program itself would be found. */
        char word[16] = "OJ-SEC";
        strcat(word, "RET-");
        if (memmem(bytes, (size_t)got, word, strlen(word)))
            ESCAPED("the secret is in %s", path);
        total += got;
    }
    close(fd);
    return total;
}

/* Visits everything below `top`, links not followed. */
static inline long walk(const char *top, int depth, long (*visit)(const char *))
{
    char path[PATH_MAX];
    struct dirent *entry;
    long count = 0;
    DIR *list = depth > 0 ? opendir(top) : NULL;
    while (list && (entry = readdir(list))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", top, entry->d_name) >= PATH_MAX)
            continue;
        struct stat info;
        if (lstat(path, &info) < 0)
            continue;
        if (S_ISDIR(info.st_mode))
            count += walk(path, depth - 1, visit);
        else if (visit(path) >= 0)
            count++;
    }
    if (list)
        closedir(list);
    return count;
}
#endif
