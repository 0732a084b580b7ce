/* One run: the life of its pid 1, which starts the program, follows, measures and answers.
 *
 * It is made before it is needed and waits for the client's message itself, so that nobody
 * stands between them. The answer goes out as soon as everything inside is dead and counted. Then
 * it ends, and the kernel takes its namespaces apart while the slot makes the next one. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
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
    ENDED_UNCOUNTED,
    ENDED_OUTPUT,
    ENDED_CANCELLED,
    ENDED_CLIENT,
};

struct run {
    struct slot *slot;
    const struct request *request;
    pid_t program;
    bool more_children; /* to be reaped, of which nobody tells again */
    bool ended; /* by itself: `status` and `end_ns` are valid */
    int status;
    uint64_t end_ns;
    struct pump out, err;
    enum ended_by ended_by;
    uint64_t most_processes; /* seen, where the kernel keeps no peak */
    uint64_t disk_free_bytes, disk_free_files;
    struct guard guard;
    bool sure; /* it was this run that took what nobody counts */
};

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

/* At most so many times: a program can fill the pipe as fast as we empty it, with a byte for each
 * time. */
static size_t pump_often(struct pump *pump, unsigned times)
{
    size_t total = 0, got;
    while (times-- > 0 && !pump->cut && (got = pump_once(pump)) > 0)
        total += got;
    return total;
}

static int open_pump(struct pump *pump, int *write_end, int to, uint64_t limit, gid_t gid,
                     struct fault *fault)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fault_errno(fault, "cannot make a pipe");
    *pump = (struct pump){.from = ends[0], .to = to, .limit = limit};
    *write_end = ends[1];
    /* Programs may open it again, as /dev/stdout, for writing. It is their group's and not their
     * own, or they could also open it for reading, after a chmod, and take back what they wrote. */
    if (fchown(ends[1], (uid_t)-1, gid) < 0 || fchmod(ends[1], 0220) < 0)
        return fault_errno(fault, "cannot hand a pipe over");
    /* Only our end: the program's is an ordinary, blocking pipe. */
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
        return fault_errno(fault, "cannot set up a pipe");
    return 0;
}

/* ---- start ---------------------------------------------------------------------- */

/* What a process needs before it can execute anything. A lower limit is not
 * enforced but compared with the peak, so that it is the program that hits it. */
enum { LEAST_MEMORY = 512 * 1024 };

/* What compile left behind is in memory, and was charged to compile: the run has the rest. */
static uint64_t layer_bytes(const struct run *run)
{
    const struct slot *slot = run->slot;
    bool used = slot->has_layer && !(run->request->head.flags & RUN_KEEP);
    return used ? slot->layer_bytes : 0;
}

static uint64_t own_memory(const struct run *run)
{
    uint64_t all = run->request->head.memory_bytes, layer = layer_bytes(run);
    return all > layer ? all - layer : 0;
}

static int start_run(struct run *run, struct fault *fault)
{
    struct slot *slot = run->slot;
    const struct message_head *head = &run->request->head;
    int writers[2] = {-1, -1}, result = -1;
    gid_t gid = (gid_t)slot->settings->uid;

    if (slot_mount(slot, head, fault) < 0 || inside_lay_out(slot, head, fault) < 0)
        return -1;
    slot_hide_input(slot);
    slot->disk_bytes = head->disk_bytes;
    slot->files = head->files;
    uint64_t memory_bytes = own_memory(run) < LEAST_MEMORY ? LEAST_MEMORY : own_memory(run);
    if (cgroup_limit(slot->settings->home, &slot->group, memory_bytes, head->processes, fault) ==
            0 &&
        open_pump(&run->out, &writers[0], slot->fds[FD_STDOUT], head->output_bytes, gid, fault) ==
            0 &&
        open_pump(&run->err, &writers[1], slot->fds[FD_STDERR], head->output_bytes, gid, fault) ==
            0) {
        int stdio[3] = {slot->fds[FD_STDIN], writers[0], writers[1]};
        run->program = inside_start(slot, run->request, stdio);
        slot->started = true;
        result = run->program < 0 ? fault_errno(fault, "cannot start a process") : 0;
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
    kill(-1, SIGKILL); /* all but ourselves, and nobody can fork any more */
}

/* Others than the program are reaped as well, or they would count as processes of the run; but only
 * so many at a time, because there may be ever more of them, and limits to look after. */
static void reap_children(struct run *run)
{
    enum { MOST = 32 };
    struct signalfd_siginfo told;
    int status, count = 0;
    pid_t pid = 0;

    (void)!read(run->slot->children, &told, sizeof told);
    while (count < MOST && (pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
        count++;
        if (pid == run->program) {
            run->ended = true;
            run->status = status;
            run->end_ns = now_ns();
        }
    }
    run->more_children = pid > 0;
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
    uint64_t started = run->slot->report.start_ns, wall_ns = run->request->head.wall_us * 1000;
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
    uint64_t used = cgroup_cpu_us(slot->settings->home, &run->slot->group);
    if (used > limit) {
        kill_run(run, ENDED_CPU);
        return;
    }
    uint64_t left_ns = (limit - used) * 1000 / slot->cpus;
    times->cpu = times->now + (left_ns < least_ns ? least_ns : left_ns);
}

/* On how many the run can be at one time. */
static unsigned cores_of(const struct run *run)
{
    uint64_t processes = run->request->head.processes;
    return processes < run->slot->cpus ? (unsigned)processes : run->slot->cpus;
}

/* v1 kills one process when memory runs out and lets the others go on, which may
 * wait for it until the wall limit, or not mind. It tells nobody without a
 * deprecated interface, so we look from time to time; also at what no cgroup counts. */
static void check_memory(struct run *run, struct times *times)
{
    /* A stream that everybody had closed may be open again, by its name, of which poll() tells
     * nothing. */
    if (run->out.closed || run->err.closed) {
        run->out.closed = run->err.closed = false;
        times->pump = times->now;
    }
    struct slot *slot = run->slot;
    const struct cgroup_home *home = slot->settings->home;
    uint64_t pause_ns;

    if (!cgroup_kills_together(home) && cgroup_oom_kills(&slot->group) > 0)
        kill_run(run, ENDED_MEMORY);
    else if (!guard_look(&run->guard, &slot->machine, home, &slot->group, own_memory(run),
                         cores_of(run), &pause_ns))
        kill_run(run, ENDED_UNCOUNTED);
    else
        times->memory = times->now + pause_ns;
}

/* Programs that flush every line must not wake us for each: after a small catch
 * the pipes are left alone for a moment. A short run is read only at its end, and of its
 * memory nobody looks for what is not counted. */
enum {
    FIRST_LOOK_NS = 3000000,
    PUMP_PAUSE_NS = 1000000,
    PUMP_SMALL = 32768,
    PUMP_TIMES = 32, /* before limits are looked after again */
};

static void take_output(struct run *run, struct times *times)
{
    size_t got = pump_often(&run->out, PUMP_TIMES) + pump_often(&run->err, PUMP_TIMES);
    if (run->out.cut || run->err.cut)
        kill_run(run, ENDED_OUTPUT);
    times->pump = got < PUMP_SMALL ? times->now + PUMP_PAUSE_NS : times->now;
}

/* Waits until something happens or is due. */
static void await_event(struct run *run, struct times *times)
{
    bool pumping = times->now >= times->pump;
    struct pollfd wait[4] = {
        {.fd = run->slot->children, .events = POLLIN},
        {.fd = run->slot->settings->socket, .events = POLLIN},
        {.fd = pumping && !run->out.closed ? run->out.from : -1, .events = POLLIN},
        {.fd = pumping && !run->err.closed ? run->err.from : -1, .events = POLLIN}};
    uint64_t until = times->wall < times->cpu ? times->wall : times->cpu;
    if (!pumping && times->pump < until)
        until = times->pump;
    if (times->memory < until)
        until = times->memory;
    uint64_t left = until > times->now && !run->more_children ? until - times->now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
                               .tv_nsec = (long)(left % 1000000000)};

    if (ppoll(wait, 4, &timeout, NULL) < 0)
        memset(wait, 0, sizeof wait);
    times->now = now_ns();
    if (wait[0].revents || run->more_children)
        reap_children(run);
    if (run->ended)
        return;
    if (wait[1].revents)
        listen_to_client(run);
    else if (wait[2].revents | wait[3].revents)
        take_output(run, times);
}

/* Whether it failed for a limit that the guard had lowered, and may have raised again since. */
static bool hit_lowered_limit(const struct run *run)
{
    struct cgroup_usage usage;
    struct fault fault;
    bool fine = run->ended && WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0;

    return run->slot->group.least_limit_bytes < own_memory(run) && !fine &&
           (run->ended_by == ENDED_ITSELF || run->ended_by == ENDED_MEMORY) &&
           cgroup_usage(run->slot->settings->home, &run->slot->group, &usage, &fault) == 0 &&
           (usage.oom_kills > 0 || usage.memory_exhausted);
}

static void end_everything(void)
{
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        ;
}

/* Follows the run until everything inside is dead. */
static void follow_run(struct run *run)
{
    const struct slot *slot = run->slot;
    const struct message_head *head = &run->request->head;
    struct times times = {.now = now_ns()};

    times.wall = times.now + head->wall_us * 1000;
    times.cpu = times.now + head->cpu_us * 1000 / slot->cpus;
    times.pump = times.memory = times.now + FIRST_LOOK_NS;
    times.latest_start = times.now + 5000000000ULL;
    while (await_event(run, &times), !run->ended && run->ended_by == ENDED_ITSELF) {
        uint64_t processes = cgroup_processes(&slot->group);
        run->most_processes = processes > run->most_processes ? processes : run->most_processes;
        if (times.now >= times.wall)
            check_wall(run, &times);
        if (run->ended_by == ENDED_ITSELF && times.now >= times.cpu)
            check_cpu(run, &times);
        if (run->ended_by == ENDED_ITSELF && times.now >= times.memory)
            check_memory(run, &times);
    }
    end_everything();
    /* The pipes hold what was written last, and nobody writes any more. */
    pump_often(&run->out, UINT_MAX);
    pump_often(&run->err, UINT_MAX);
    inside_measure_disk(head, &run->disk_free_bytes, &run->disk_free_files);
    if (hit_lowered_limit(run)) {
        run->guard.taken = own_memory(run); /* what is not counted took the rest of it */
        run->ended_by = ENDED_UNCOUNTED;
    }
    if (run->ended_by == ENDED_UNCOUNTED) {
        inside_clear();
        run->sure = guard_settle(&run->guard, &slot->machine, slot->settings->home);
    }
    guard_close(&run->guard);
}

/* ---- measure ------------------------------------------------------------------------- */

/* Which limit explains the end, from what the kernel counted. */
static enum limit_hit find_limit(const struct run *run, const struct cgroup_usage *usage)
{
    bool fine = run->ended && WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0;
    int signal = run->ended && WIFSIGNALED(run->status) ? WTERMSIG(run->status) : 0;

    /* The peak itself says so only where no such limit could be set: the kernel lets itself go
     * beyond one by a few pages when it must not fail. */
    bool tiny = own_memory(run) < LEAST_MEMORY;
    if (usage->oom_kills > 0 || run->ended_by == ENDED_UNCOUNTED ||
        (tiny && usage->memory_bytes > own_memory(run)))
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
    if (run->ended && !fine && (run->disk_free_bytes == 0 || run->disk_free_files == 0))
        return LIMIT_DISK;
    if (!fine && cgroup_forks_refused(run->slot->settings->home, &run->slot->group) > 0)
        return LIMIT_PROCESSES;
    return LIMIT_NONE;
}

static int measure_run(const struct run *run, struct answer *answer, struct fault *fault)
{
    const struct slot *slot = run->slot;
    const struct report *report = &slot->report;
    struct cgroup_usage usage;

    if (report->failed) {
        *fault = report->fault;
        return -1;
    }
    if (run->ended_by == ENDED_WALL && report->start_ns == 0)
        return fault_say(fault, "the program could not be started in time");
    /* What is cancelled before it started has used nothing. */
    if (cgroup_usage(slot->settings->home, &run->slot->group, &usage, fault) < 0 &&
        run->ended_by != ENDED_CANCELLED)
        return -1;
    if (usage.starved && run->ended_by != ENDED_CANCELLED)
        return fault_say(fault, "the kernel killed a program for memory within its limit: this "
                                "machine has too little");
    uint64_t end = run->ended ? run->end_ns : now_ns();
    answer->limit = find_limit(run, &usage);
    answer->cpu_us = usage.cpu_us;
    answer->wall_us = report->start_ns ? (end - report->start_ns) / 1000 : 0;
    answer->memory_bytes = usage.memory_bytes;
    if (run->ended_by == ENDED_UNCOUNTED && run->guard.taken > usage.memory_bytes)
        answer->memory_bytes = run->guard.taken;
    answer->memory_bytes += layer_bytes(run);
    answer->processes = usage.processes ? usage.processes : run->most_processes;
    answer->stdout_bytes = run->out.stored;
    answer->stderr_bytes = run->err.stored;
    answer->flags = (run->out.cut ? ANSWER_STDOUT_CUT : 0U) |
                    (run->err.cut ? ANSWER_STDERR_CUT : 0U) |
                    (run->ended_by == ENDED_CANCELLED ? ANSWER_CANCELLED : 0U) |
                    (run->ended_by == ENDED_UNCOUNTED ? ANSWER_UNCOUNTED : 0U) |
                    (run->ended_by == ENDED_UNCOUNTED && !run->sure ? ANSWER_UNSURE : 0U) |
                    (report->exec_error ? ANSWER_NOT_EXECUTED : 0U);
    answer->error = report->exec_error;
    answer->exit_code = -1;
    if (!run->ended)
        answer->signal = SIGKILL;
    else if (WIFEXITED(run->status))
        answer->exit_code = WEXITSTATUS(run->status);
    else
        answer->signal = WTERMSIG(run->status);
    return 0;
}

/* ---- the life of pid 1 ------------------------------------------------------------------ */

static void serve_run(struct slot *slot, const struct request *request)
{
    struct run run = {
        .slot = slot, .request = request, .out = {.from = -1}, .err = {.from = -1}};
    struct answer answer = {.kind = ANSWER_FAILED, .number = request->head.number};
    bool keep = request->head.flags & RUN_KEEP;

    memset(&slot->report, 0, sizeof slot->report);
    slot->number = request->head.number;
    slot->since_ns = now_ns();
    slot->kept = keep;
    slot->started = false;
    slot->running = slot->used = true;
    slot->has_message = false;
    if (start_run(&run, &answer.fault) == 0) {
        follow_run(&run);
        if (run.ended_by == ENDED_CLIENT)
            slot->client_gone = true;
        else if (measure_run(&run, &answer, &answer.fault) == 0)
            answer.kind = ANSWER_RAN;
    }
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
    slot_answer(slot, &answer);
    slot->running = false;
    slot_close_descriptors(slot);
}

/* One message: a run, or something that is left to the slot. */
static void serve_message(struct slot *slot)
{
    static struct request request;
    struct fault fault;

    while (!slot->has_message) {
        if (slot_receive(slot) == 0) {
            slot->client_gone = true;
            return;
        }
        slot->has_message = true;
        if (request_parse(&request, slot->bytes, slot->length, &fault) == 0 &&
            request.head.kind == MESSAGE_CANCEL) {
            /* Came too late: the answer is on its way. */
            slot_close_descriptors(slot);
            slot->has_message = false;
        }
    }
    if (request_parse(&request, slot->bytes, slot->length, &fault) < 0 ||
        request.head.kind != MESSAGE_RUN || slot->fd_count != request_descriptors(&request.head))
        return;
    serve_run(slot, &request);
}

/* Our turn comes soon after we are woken, also among a thousand threads of the run, of which each new
 * one would else be before us. So it is since Linux 6.12, where the time that is asked for is that of a
 * turn. The program is started without it. */
static void take_short_turns(void)
{
    enum { RESET_ON_FORK = 1 };
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } turns = {.size = sizeof turns, .flags = RESET_ON_FORK, .runtime = 100000};

    (void)syscall(SYS_sched_setattr, 0, &turns, 0);
}

int run_init(void *argument)
{
    struct slot *slot = argument;
    struct pollfd parent = {.fd = slot->self, .events = POLLIN};
    uint64_t one = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take_short_turns();
    if (poll(&parent, 1, 0) != 0) /* the slot was faster to die than that call */
        _exit(1);
    if (inside_prepare(slot, &slot->report.fault) < 0)
        slot->failed = true;
    else
        serve_message(slot);
    /* Now it is the slot's turn: nothing of what we share may be touched any more. */
    _exit(write(slot->done, &one, sizeof one) == sizeof one ? 0 : 1);
}
