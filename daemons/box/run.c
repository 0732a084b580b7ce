/* One run, seen from outside: started, followed, measured, cleared away.
 *
 * The order is what makes it fast. The cgroup and the init with its namespaces and
 * mounts are made before they are needed, while nobody waits; the answer goes out as
 * soon as everything inside is dead and counted; taking the namespaces and the cgroup
 * apart, and making those of the next run, comes after it. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* One stream on its way from the program to the client's file. */
struct pump {
    int from, to;
    uint64_t stored, limit;
    bool cut;
    bool closed; /* nobody can write to it any more */
};

enum ended_by {
    ENDED_ITSELF,
    ENDED_CPU,
    ENDED_WALL,
    ENDED_MEMORY,
    ENDED_OUTPUT,
    ENDED_CANCELLED,
    ENDED_CLIENT,
};

struct run {
    struct slot *slot;
    const struct request *request;
    pid_t init; /* 0: reaped */
    int socket; /* to init */
    ino_t peer; /* its end of it */
    struct pump out, err;
    enum ended_by ended_by;
    uint64_t most_processes; /* seen, where the kernel keeps no peak */
};

static void reap(pid_t pid, int *status)
{
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
}

/* ---- output ------------------------------------------------------------------ */

/* Moves what is there, at most up to the limit. Returns the bytes read, with
 * `cut` set at the first byte too many. */
static size_t pump_once(struct pump *pump)
{
    static char buffer[65536];
    ssize_t got = read(pump->from, buffer, sizeof buffer);
    if (got <= 0) {
        pump->closed |= got == 0;
        return 0;
    }
    uint64_t room = pump->limit - pump->stored;
    size_t keep = (uint64_t)got > room ? (size_t)room : (size_t)got, done = 0;
    while (done < keep) {
        ssize_t wrote = write(pump->to, buffer + done, keep - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break; /* the client's file takes no more: also a cut */
        done += (size_t)wrote;
    }
    pump->stored += done;
    pump->cut |= done < (size_t)got;
    return (size_t)got;
}

static size_t pump_all(struct pump *pump)
{
    size_t total = 0, got;
    while (!pump->cut && (got = pump_once(pump)) > 0)
        total += got;
    return total;
}

static int open_pump(struct pump *pump, int *write_end, int to, uint64_t limit, struct fault *fault)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fault_errno(fault, "cannot make a pipe");
    *pump = (struct pump){.from = ends[0], .to = to, .limit = limit};
    *write_end = ends[1];
    /* Only our end: the program's is an ordinary, blocking pipe. */
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
        return fault_errno(fault, "cannot set up a pipe");
    return 0;
}

/* ---- start ---------------------------------------------------------------------- */

static int prepare_group(struct slot *slot, struct fault *fault)
{
    if (slot->has_group)
        return 0;
    if (cgroup_make(slot->settings->home, &slot->group, &slot->share, slot->settings->number,
                    slot->serial++, fault) < 0)
        return -1;
    slot->has_group = true;
    return 0;
}

static int prepare_init(struct slot *slot, struct fault *fault)
{
    int pair[2];
    struct stat info;
    if (slot->next.pid > 0 && waitpid(slot->next.pid, NULL, WNOHANG) == 0)
        return 0;
    if (slot->next.pid > 0) { /* somebody killed it while it waited */
        close(slot->next.socket);
        slot->next.pid = 0;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        fstat(pair[1], &info) < 0)
        return fault_errno(fault, "cannot make a socket pair");
    memset(slot->report, 0, sizeof *slot->report);
    struct inside inside = {.home = slot->settings->home,
                            .group = &slot->group,
                            .report = slot->report,
                            .uid = slot->settings->uid,
                            .socket = pair[1],
                            .core = slot->settings->core};
    pid_t pid = (pid_t)syscall(SYS_clone,
                               CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | (unsigned long)SIGCHLD,
                               NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(pair[0]);
        inside_main(&inside);
    }
    int error = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        errno = error;
        return fault_errno(fault, "cannot start the run's init");
    }
    slot->next = (struct waiting_init){.pid = pid, .socket = pair[0], .peer = info.st_ino};
    return 0;
}

int run_prepare(struct slot *slot, struct fault *fault)
{
    return prepare_group(slot, fault) < 0 ? -1 : prepare_init(slot, fault);
}

/* What a process needs before it can execute anything. A lower limit is not
 * enforced but compared with the peak, so that it is the program that hits it. */
enum { LEAST_MEMORY = 512 * 1024 };

/* Starts everything; what was opened on the way is closed by clear_run. */
static int start_run(struct run *run, const char *bytes, size_t length, struct fault *fault)
{
    struct slot *slot = run->slot;
    const int *fds = slot->fds;
    const struct message_head *head = &run->request->head;
    int writers[2] = {-1, -1}, result = -1;

    if (run_prepare(slot, fault) < 0 || slot_mount(slot, head, fault) < 0)
        return -1;
    slot->report->has_layer = slot->has_layer;
    run->init = slot->next.pid;
    run->socket = slot->next.socket;
    run->peer = slot->next.peer;
    slot->next.pid = 0;
    uint64_t memory_bytes = head->memory_bytes < LEAST_MEMORY ? LEAST_MEMORY : head->memory_bytes;
    if (cgroup_limit(slot->settings->home, &slot->group, memory_bytes, head->processes, fault) ==
            0 &&
        open_pump(&run->out, &writers[0], fds[FD_STDOUT], head->output_bytes, fault) == 0 &&
        open_pump(&run->err, &writers[1], fds[FD_STDERR], head->output_bytes, fault) == 0) {
        int stdio[3] = {fds[FD_STDIN], writers[0], writers[1]};
        /* If init is dead already, following it finds out why. */
        (void)send_message(run->socket, bytes, length, stdio, 3);
        result = 0;
    }
    for (int i = 0; i < 2; i++)
        if (writers[i] >= 0)
            close(writers[i]);
    return result;
}

/* ---- follow ------------------------------------------------------------------------ */

static void kill_run(struct run *run, enum ended_by by)
{
    run->ended_by = by;
    kill(run->init, SIGKILL); /* and with it everything in its pid namespace */
}

/* A message while something runs: only a cancel of it is sensible. */
static void listen_to_client(struct run *run)
{
    static struct request request;
    char bytes[sizeof(struct message_head) + 1];
    size_t length = sizeof bytes;
    int fds[1], count = 0;
    struct fault fault;

    int got = receive_message(run->slot->settings->socket, bytes, &length, fds, &count, MSG_DONTWAIT);
    if (got == 0)
        kill_run(run, ENDED_CLIENT);
    else if (got > 0 && request_parse(&request, bytes, length, &fault) == 0 &&
             request.head.kind == MESSAGE_CANCEL && request.head.number == run->request->head.number)
        kill_run(run, ENDED_CANCELLED);
}

/* When it has to be looked at next, in ns of the monotonic clock. */
struct times {
    uint64_t now, wall, cpu, pump, memory;
    uint64_t latest_start; /* not even init could be that slow */
};

/* The wall clock counts from the program's start, not from ours. */
static void check_wall(struct run *run, struct times *times)
{
    uint64_t started = run->slot->report->start_ns, wall_ns = run->request->head.wall_us * 1000;
    if (started == 0 && times->now < times->latest_start)
        times->wall = times->now + 10000000;
    else if (started != 0 && times->now < started + wall_ns)
        times->wall = started + wall_ns;
    else
        kill_run(run, ENDED_WALL);
}

/* The next look is when the limit could be reached at full speed on all cores:
 * ever more often towards the end, and never late. */
static void check_cpu(struct run *run, struct times *times)
{
    const struct slot *slot = run->slot;
    uint64_t limit = run->request->head.cpu_us, least_ns = 500000;
    uint64_t used = cgroup_cpu_us(slot->settings->home, &slot->group);
    if (used > limit) {
        kill_run(run, ENDED_CPU);
        return;
    }
    uint64_t left_ns = (limit - used) * 1000 / slot->cpus;
    times->cpu = times->now + (left_ns < least_ns ? least_ns : left_ns);
}

/* v1 kills one process when memory runs out and lets the others go on, which may
 * wait for it until the wall limit, or not mind. It tells nobody without a
 * deprecated interface, so we look from time to time. */
enum { MEMORY_PAUSE_NS = 20000000 };

static void check_memory(struct run *run, struct times *times)
{
    if (cgroup_oom_kills(&run->slot->group) > 0)
        kill_run(run, ENDED_MEMORY);
    times->memory = times->now + MEMORY_PAUSE_NS;
}

/* Programs that flush every line must not wake us for each: after a small catch
 * the pipes are left alone for a moment. A short run is read only at its end. */
enum { PUMP_FIRST_NS = 3000000, PUMP_PAUSE_NS = 1000000, PUMP_SMALL = 32768 };

static void take_output(struct run *run, struct times *times)
{
    size_t got = pump_all(&run->out) + pump_all(&run->err);
    if (run->out.cut || run->err.cut)
        kill_run(run, ENDED_OUTPUT);
    times->pump = got < PUMP_SMALL ? times->now + PUMP_PAUSE_NS : times->now;
}

/* Waits until something happens or is due. True: init has something to say. */
static bool await_event(struct run *run, struct times *times)
{
    bool pumping = times->now >= times->pump;
    struct pollfd wait[4] = {
        {.fd = run->socket, .events = POLLIN},
        {.fd = run->slot->settings->socket, .events = POLLIN},
        {.fd = pumping && !run->out.closed ? run->out.from : -1, .events = POLLIN},
        {.fd = pumping && !run->err.closed ? run->err.from : -1, .events = POLLIN}};
    uint64_t until = times->wall < times->cpu ? times->wall : times->cpu;
    if (!pumping && times->pump < until)
        until = times->pump;
    if (times->memory < until)
        until = times->memory;
    uint64_t left = until > times->now ? until - times->now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
                               .tv_nsec = (long)(left % 1000000000)};

    if (ppoll(wait, 4, &timeout, NULL) < 0)
        memset(wait, 0, sizeof wait);
    times->now = now_ns();
    if (wait[0].revents)
        return true;
    if (wait[1].revents)
        listen_to_client(run);
    else if (wait[2].revents | wait[3].revents)
        take_output(run, times);
    return false;
}

/* Follows the run until init says that everything inside is dead, or is dead itself. */
static void follow_run(struct run *run)
{
    const struct slot *slot = run->slot;
    const struct message_head *head = &run->request->head;
    struct times times = {.now = now_ns()};

    times.wall = times.now + head->wall_us * 1000;
    times.cpu = times.now + head->cpu_us * 1000 / slot->cpus;
    times.pump = times.now + PUMP_FIRST_NS;
    times.memory = cgroup_kills_together(slot->settings->home) ? UINT64_MAX
                                                               : times.now + MEMORY_PAUSE_NS;
    times.latest_start = times.now + 5000000000ULL;
    while (run->ended_by == ENDED_ITSELF && !await_event(run, &times)) {
        uint64_t processes = cgroup_processes(&slot->group);
        run->most_processes = processes > run->most_processes ? processes : run->most_processes;
        if (run->ended_by == ENDED_ITSELF && times.now >= times.wall)
            check_wall(run, &times);
        if (run->ended_by == ENDED_ITSELF && times.now >= times.cpu)
            check_cpu(run, &times);
        if (run->ended_by == ENDED_ITSELF && times.now >= times.memory)
            check_memory(run, &times);
    }
    /* The pipes hold what was written last. */
    pump_all(&run->out);
    pump_all(&run->err);
}

/* ---- measure ------------------------------------------------------------------------- */

/* Makes sure that everything inside is dead. False: init failed, which is our fault. */
static bool settle_run(struct run *run, struct fault *fault)
{
    struct report *report = run->slot->report;
    int status = 0;

    if (run->ended_by == ENDED_ITSELF && report->ended && !report->failed)
        return true; /* init reaped everybody before it said so */
    /* Init is dying, and is not gone before the kernel killed all the others. */
    reap(run->init, &status);
    run->init = 0;
    if (report->failed) {
        *fault = report->fault;
        return false;
    }
    /* Until it executes, the program shares init's memory; if the limit does not
     * even allow that, the kernel kills both. */
    if (run->ended_by == ENDED_ITSELF && cgroup_oom_kills(&run->slot->group) == 0) {
        fault_say(fault, "the run's init died (status %#x)", (unsigned)status);
        return false;
    }
    if (run->ended_by == ENDED_WALL && report->start_ns == 0) {
        fault_say(fault, "the program could not be started in time");
        return false;
    }
    return true;
}

/* Which limit explains the end, from what the kernel counted. */
static enum limit_hit find_limit(const struct run *run, const struct cgroup_usage *usage)
{
    const struct report *report = run->slot->report;
    bool fine = report->ended && WIFEXITED(report->status) && WEXITSTATUS(report->status) == 0;
    int signal = report->ended && WIFSIGNALED(report->status) ? WTERMSIG(report->status) : 0;

    /* The peak itself says so only where no such limit could be set: the kernel lets itself go
     * beyond one by a few pages when it must not fail. */
    bool tiny = run->request->head.memory_bytes < LEAST_MEMORY;
    if (usage->oom_kills > 0 || (tiny && usage->memory_bytes > run->request->head.memory_bytes))
        return LIMIT_MEMORY;
    /* An allocation that the kernel refused, and that became an exit code or a signal of
     * the program's own. One that merely used all it had, and went well, did nothing wrong. */
    if (run->ended_by == ENDED_ITSELF && !fine && usage->memory_exhausted)
        return LIMIT_MEMORY;
    if (run->out.cut || run->err.cut)
        return LIMIT_OUTPUT;
    if (run->ended_by == ENDED_CPU || usage->cpu_us > run->request->head.cpu_us)
        return LIMIT_CPU;
    if (run->ended_by == ENDED_WALL)
        return LIMIT_WALL;
    if (signal == SIGXFSZ)
        return LIMIT_DISK;
    /* A refusal that the program lived with is its own business. */
    if (report->ended && !fine && (report->disk_free_bytes == 0 || report->disk_free_files == 0))
        return LIMIT_DISK;
    if (!fine && cgroup_forks_refused(run->slot->settings->home, &run->slot->group) > 0)
        return LIMIT_PROCESSES;
    return LIMIT_NONE;
}

static int measure_run(const struct run *run, struct answer *answer, struct fault *fault)
{
    const struct slot *slot = run->slot;
    const struct report *report = slot->report;
    struct cgroup_usage usage;

    /* What is cancelled before it started has used nothing. */
    if (cgroup_usage(slot->settings->home, &slot->group, &usage, fault) < 0 &&
        run->ended_by != ENDED_CANCELLED)
        return -1;
    if (usage.starved && run->ended_by != ENDED_CANCELLED)
        return fault_say(fault, "the kernel killed a program for memory within its limit: this "
                                "machine has too little");
    uint64_t end = report->ended ? report->end_ns : now_ns();
    answer->limit = find_limit(run, &usage);
    answer->cpu_us = usage.cpu_us;
    answer->wall_us = report->start_ns ? (end - report->start_ns) / 1000 : 0;
    answer->memory_bytes = usage.memory_bytes;
    answer->processes = usage.processes ? usage.processes : run->most_processes;
    answer->stdout_bytes = run->out.stored;
    answer->stderr_bytes = run->err.stored;
    answer->flags = (run->out.cut ? ANSWER_STDOUT_CUT : 0U) |
                    (run->err.cut ? ANSWER_STDERR_CUT : 0U) |
                    (run->ended_by == ENDED_CANCELLED ? ANSWER_CANCELLED : 0U) |
                    (report->exec_error ? ANSWER_NOT_EXECUTED : 0U);
    answer->error = report->exec_error;
    answer->exit_code = -1;
    if (!report->ended)
        answer->signal = SIGKILL;
    else if (WIFEXITED(report->status))
        answer->exit_code = WEXITSTATUS(report->status);
    else
        answer->signal = WTERMSIG(report->status);
    return 0;
}

/* ---- clear ------------------------------------------------------------------------------ */

/* What the answer did not have to wait for, and what the next run should not. */
static void clear_run(struct run *run)
{
    struct slot *slot = run->slot;
    struct fault fault;

    if (run->socket >= 0)
        close(run->socket);
    if (run->out.from >= 0)
        close(run->out.from);
    if (run->err.from >= 0)
        close(run->err.from);
    /* Closing its socket ends an init that never got to run anything. */
    if (run->init > 0 && !slot->report->ended)
        kill(run->init, SIGKILL);
    if (run->init > 0 && !slot->report->ended) {
        reap(run->init, NULL);
        run->init = 0;
    }
    if (slot->has_group && slot->next.pid == 0) {
        cgroup_remove(slot->settings->home, &slot->group);
        slot->has_group = false;
    }
    /* If this fails, the next run tries again and says so. The old init is taking its
     * mounts apart meanwhile, on another core. */
    if (run->peer != 0 && slot_renew_network(slot, run->peer, &fault) < 0)
        die("slot %u: %s", slot->settings->number, fault.text);
    (void)run_prepare(slot, &fault);
    if (run->init > 0)
        reap(run->init, NULL);
}

bool run_serve(struct slot *slot, const struct request *request, const char *bytes, size_t length,
               void (*done)(const struct slot *, struct answer *))
{
    struct run run = {.slot = slot,
                      .request = request,
                      .socket = -1,
                      .out = {.from = -1},
                      .err = {.from = -1}};
    struct answer answer = {.kind = ANSWER_FAILED, .number = request->head.number};
    bool keep = request->head.flags & RUN_KEEP;

    if (start_run(&run, bytes, length, &answer.fault) == 0) {
        follow_run(&run);
        if (settle_run(&run, &answer.fault) && measure_run(&run, &answer, &answer.fault) == 0)
            answer.kind = ANSWER_RAN;
    }
    if (run.ended_by == ENDED_CLIENT)
        return false;
    if (keep) {
        bool wanted = answer.kind == ANSWER_RAN && answer.exit_code == 0 &&
                      answer.limit == LIMIT_NONE;
        if (slot_keep_layer(slot, wanted)) {
            answer.flags |= ANSWER_KEPT;
        } else if (wanted) { /* or the program would be missing, as if it were its own fault */
            answer.kind = ANSWER_FAILED;
            fault_errno(&answer.fault, "cannot keep what the run left");
        }
    }
    done(slot, &answer);
    /* Before the next init is made, which would hold the client's files until its own run ends. */
    slot_close_descriptors(slot);
    clear_run(&run);
    return true;
}
