/* The measuring half of tests/bench/sandbox: one small process that starts the same program with
 * posix_spawn, through a slot of oj-box, and under bubblewrap, by turns.
 *
 * sandbox TREE OTHER-TREE PROGRAM BWRAP SAMPLES COLD-SAMPLES SECONDS SOCKET...
 *
 * prints lines: KIND TIMES-IN-NANOSECONDS..., and: rate KIND PARALLEL RUNS-PER-SECOND. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FLOOR, BOX, BOX_OTHER, BWRAP, KINDS };
static const char *const names[KINDS] = {"floor", "box", "box_other", "bwrap"};
enum { IDLE_MS = 120, PARALLEL_MOST = 4, SAMPLES_MOST = 10000 };

static const char *tree_path, *program, *bwrap;
static int sockets[PARALLEL_MOST], null, tree, other_tree, outputs[PARALLEL_MOST][2];

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000ULL + (uint64_t)at.tv_nsec;
}

static _Noreturn void stop(const char *why)
{
    fprintf(stderr, "sandbox: %s: %s\n", why, strerror(errno));
    exit(1);
}

static void spawn(const char *const argv[])
{
    static char *const environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;

    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_adddup2(&actions, null, fd);
    errno = posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (errno)
        stop(argv[0]);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            stop("waitpid");
    if (status != 0)
        stop("the program failed");
}

static void ask_box(int slot, int directory)
{
    static const char strings[] = "/box\0./program";
    char bytes[sizeof(struct message_head) + sizeof strings];
    struct message_head head = {.magic = "OJB2",
                                .kind = MESSAGE_RUN,
                                .number = 1,
                                .argc = 1,
                                .files = FILES_DEFAULT,
                                .cpu_us = 1000000,
                                .wall_us = 10000000,
                                .memory_bytes = 64 << 20,
                                .output_bytes = 1 << 20,
                                .processes = 16,
                                .disk_bytes = 16 << 20};
    int fds[4] = {directory, null, outputs[slot][0], outputs[slot][1]}, none = 0;
    struct answer answer;
    size_t length = sizeof answer;

    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, strings, sizeof strings);
    if (send_message(sockets[slot], bytes, sizeof bytes, fds, 4) < 0)
        stop("send");
    if (receive_message(sockets[slot], (char *)&answer, &length, NULL, &none, 0) <= 0)
        stop("receive");
    if (answer.kind != ANSWER_RAN || answer.exit_code != 0 || answer.limit != LIMIT_NONE) {
        fprintf(stderr, "sandbox: kind %u, exit code %d, limit %u, %s\n", answer.kind,
                answer.exit_code, answer.limit, answer.fault.text);
        exit(1);
    }
}

static void run(int kind, int slot)
{
    static unsigned turn[PARALLEL_MOST];
    /* Like oj-box: everything unshared, a read-only /usr, a tmpfs, a /proc; no cgroup, no filter. */
    const char *const wrapped[] = {bwrap,     "--unshare-all", "--ro-bind", "/usr",    "/usr",
                                   "--ro-bind", tree_path,     "/box",      "--proc",  "/proc",
                                   "--dev",   "/dev",          "--tmpfs",   "/tmp",    "--chdir",
                                   "/box",    "--",            "./program", NULL};
    const char *const plain[] = {program, NULL};

    switch (kind) {
    case FLOOR:
        spawn(plain);
        break;
    case BOX:
        ask_box(slot, tree);
        break;
    case BOX_OTHER: /* as the first run of a task: not the directory of the run before */
        ask_box(slot, turn[slot]++ & 1 ? tree : other_tree);
        break;
    case BWRAP:
        spawn(wrapped);
        break;
    }
}

static void measure(const char *prefix, int samples, int idle_ms)
{
    static uint64_t times[KINDS][SAMPLES_MOST];
    for (int i = 0; i < samples; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            /* A slot that has just answered first gets ready for the next run. */
            if (idle_ms)
                poll(NULL, 0, idle_ms);
            uint64_t start = now();
            run(kind, kind == BOX_OTHER);
            times[kind][i] = now() - start;
        }
    for (int kind = 0; kind < KINDS; kind++) {
        printf("%s%s", prefix, names[kind]);
        for (int i = 0; i < samples; i++)
            printf(" %llu", (unsigned long long)times[kind][i]);
        putchar('\n');
    }
}

/* ---- in parallel ---------------------------------------------------------------------------- */

static struct {
    int kind;
    uint64_t until;
} load;

static void *work(void *slot)
{
    uint64_t done = 0;
    while (now() < load.until) {
        run(load.kind, (int)(intptr_t)slot);
        done++;
    }
    return (void *)(uintptr_t)done;
}

static void rate(int kind, int parallel, double seconds)
{
    pthread_t threads[PARALLEL_MOST];
    uint64_t start = now(), total = 0;
    void *done;

    load.kind = kind;
    load.until = start + (uint64_t)(seconds * 1e9);
    for (intptr_t i = 0; i < parallel; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            stop("pthread_create");
    for (int i = 0; i < parallel; i++) {
        pthread_join(threads[i], &done);
        total += (uint64_t)(uintptr_t)done;
    }
    printf("rate %s %d %.1f\n", names[kind], parallel, (double)total * 1e9 / (double)(now() - start));
}

int main(int argc, char **argv)
{
    if (argc != 8 + PARALLEL_MOST)
        stop("usage");
    tree_path = argv[1];
    const char *other_path = argv[2];
    program = argv[3];
    bwrap = argv[4];
    int samples = atoi(argv[5]), cold = atoi(argv[6]);
    double seconds = atof(argv[7]);
    if (samples > SAMPLES_MOST || cold > SAMPLES_MOST)
        stop("too many samples");
    for (int i = 0; i < PARALLEL_MOST; i++) {
        sockets[i] = atoi(argv[8 + i]);
        for (int stream = 0; stream < 2; stream++)
            if ((outputs[i][stream] = memfd_create("output", MFD_CLOEXEC)) < 0)
                stop("memfd_create");
    }
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    tree = open(tree_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    other_tree = open(other_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (null < 0 || tree < 0 || other_tree < 0)
        stop("open");
    for (int kind = 0; kind < KINDS; kind++) /* what is only slow once */
        for (int i = 0; i < 10; i++)
            run(kind, kind == BOX_OTHER);
    measure("", samples, 0);
    measure("cold_", cold, IDLE_MS);
    for (int round = 0; round < 5; round++)
        for (int parallel = 1; parallel <= PARALLEL_MOST; parallel *= 2)
            for (int kind = 0; kind < KINDS; kind++)
                rate(kind, parallel, seconds);
    return 0;
}
