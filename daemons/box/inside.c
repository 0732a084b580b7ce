/* The inside of a run: pid 1, which is ours, and pid 2, which becomes the program.
 *
 * Pid 1 starts in fresh pid, mount and ipc namespaces and builds what does not
 * depend on the program: a tmpfs, /tmp, /dev/shm and /proc. Then it waits to be told
 * what to run, which may be for hours; lays out /box, starts the program, and waits
 * for it. When the program is gone it kills and reaps whatever else is left, so that the slot may answer while
 * the kernel still takes the namespaces apart. The program is not pid 1 itself,
 * because signals without a handler do not reach a pid 1: abort() and kill()
 * would be misreported. Pid 1 stays outside the run's cgroup. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What pid 2 needs; it may share memory with pid 1 until it executes. */
struct start {
    const struct inside *inside;
    const struct request *request;
    int stdio[3];
};

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Ends this process: our fault, told to the slot. */
static _Noreturn void give_up(struct report *report, const char *what)
{
    fault_errno(&report->fault, "inside the box: %s", what);
    report->failed = 1;
    _exit(1);
}

/* ---- pid 1 builds the box ---------------------------------------------------- */

enum { SCRATCH_FLAGS = MS_NOSUID | MS_NODEV | MS_NOATIME };

static void scratch_options(char *options, size_t size, uint64_t disk_bytes, uint32_t files)
{
    enum { OWN_FILES = 8 }; /* the root, the places below, and what the overlay makes in "work" */
    /* A size of 0 would mean no limit. */
    unsigned long long bytes = disk_bytes < 4096 ? 4096 : disk_bytes;
    snprintf(options, size, "mode=755,size=%llu,nr_inodes=%u", bytes, files + OWN_FILES);
}

int inside_mount_scratch(const char *path, uint64_t disk_bytes, uint32_t files, uid_t uid,
                         struct fault *fault)
{
    char options[128], at[128];

    scratch_options(options, sizeof options, disk_bytes, files);
    if (mount("oj-box", path, "tmpfs", SCRATCH_FLAGS, options) < 0)
        return fault_errno(fault, "cannot mount a tmpfs on %s", path);
    static const struct {
        const char *name;
        mode_t mode;
        bool own;
    } places[] = {{"upper", 0755, true}, {"work", 0700, false}, {"tmp", 01777, false},
                  {"shm", 01777, false}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(at, sizeof at, "%s/%s", path, places[i].name);
        if (mkdir(at, places[i].mode) < 0 || (places[i].own && chown(at, uid, (gid_t)uid) < 0))
            return fault_errno(fault, "cannot make %s", at);
    }
    return 0;
}

static const char *scratch_of(const struct message_head *head)
{
    /* The slot mounts what may become the layer, to have it when we are gone. */
    return head->flags & RUN_KEEP ? TREE_NEXT : TREE_RUN;
}

/* Of a size that has to be set before anybody writes to it. */
static void setup_scratch(const struct inside *inside)
{
    if (mount(NULL, TREE_SHARED, NULL, MS_SLAVE, NULL) < 0)
        give_up(inside->report, "cannot keep its mounts to itself");
    if (inside_mount_scratch(TREE_RUN, 0, 0, inside->uid, &inside->report->fault) < 0) {
        inside->report->failed = 1;
        _exit(1);
    }
}

static void size_scratch(const struct inside *inside, const struct message_head *head)
{
    char options[128];
    scratch_options(options, sizeof options, head->disk_bytes, head->files);
    if (mount(NULL, TREE_RUN, NULL, MS_REMOUNT | SCRATCH_FLAGS, options) < 0)
        give_up(inside->report, "cannot set the size of the box");
}

static void setup_box(const struct inside *inside, const struct message_head *head)
{
    char options[512];
    const char *scratch = scratch_of(head);

    snprintf(options, sizeof options, "lowerdir=%s%s%s,upperdir=%s/upper,workdir=%s/work",
             head->flags & RUN_DATA ? TREE_DATA ":" : "",
             inside->report->has_layer ? TREE_LAYER "/upper:" : "", TREE_LOWER, scratch, scratch);
    if (mount("oj-box", TREE_BOX, "overlay", SCRATCH_FLAGS, options) < 0)
        give_up(inside->report, "cannot lay the overlay on /box");
}

static void setup_temporary(const struct inside *inside, const char *scratch)
{
    char from[64];

    snprintf(from, sizeof from, "%s/tmp", scratch);
    if (mount(from, "/tmp", NULL, MS_BIND, NULL) < 0)
        give_up(inside->report, "cannot provide /tmp");
    snprintf(from, sizeof from, "%s/shm", scratch);
    if (mount(from, "/dev/shm", NULL, MS_BIND, NULL) < 0)
        give_up(inside->report, "cannot provide /dev/shm");
}

static void setup_proc(const struct inside *inside)
{
    /* Only processes, and of those only its own: not even pid 1. */
    if (mount("oj-box", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "hidepid=2,subset=pid") < 0)
        give_up(inside->report, "cannot mount /proc");
}

/* ---- pid 2 becomes the program -------------------------------------------------- */

static void setup_stdio(const struct start *start)
{
    /* They may sit on each other's places: first out of the way, then in. */
    int safe[3];
    for (int i = 0; i < 3; i++)
        if ((safe[i] = fcntl(start->stdio[i], F_DUPFD_CLOEXEC, 16)) < 0)
            give_up(start->inside->report, "cannot copy a standard stream");
    for (int i = 0; i < 3; i++)
        if (dup2(safe[i], i) < 0)
            give_up(start->inside->report, "cannot place a standard stream");
}

/* What the administrator allows us, which nobody changes while we live. */
static rlim_t most[RLIM_NLIMITS];

static bool set_limit(int resource, uint64_t value)
{
    /* Where the administrator's own limit is lower, it stays. */
    if (most[resource] != RLIM_INFINITY && value > most[resource])
        value = most[resource];
    return setrlimit(resource, &(struct rlimit){value, value}) == 0;
}

int inside_set_limits(struct fault *fault)
{
    struct rlimit limit;
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        if (getrlimit(resource, &limit) < 0)
            return fault_errno(fault, "cannot read our limits");
        most[resource] = limit.rlim_max;
    }
    /* 1 and not 0: to a handler behind a pipe (core_pattern) 0 means no limit. Whoever started
     * us may have been allowed more than the others. */
    if (!set_limit(RLIMIT_CORE, 1) || !set_limit(RLIMIT_NOFILE, 4096) ||
        !set_limit(RLIMIT_MEMLOCK, 64 * 1024) || !set_limit(RLIMIT_NICE, 0) ||
        !set_limit(RLIMIT_RTPRIO, 0))
        return fault_errno(fault, "cannot set limits");
    return 0;
}

static void setup_rlimits(const struct start *start)
{
    const struct message_head *head = &start->request->head;

    if (!set_limit(RLIMIT_FSIZE, head->disk_bytes) ||
        /* The stack may be all of the memory; what is above only keeps this limit
         * from being hit before the cgroup's. */
        !set_limit(RLIMIT_STACK, head->memory_bytes + (16 << 20)) ||
        /* Second lines behind the cgroup, loose enough not to hide its counters. The
         * first counts per user, and somebody else may use this number, too. */
        !set_limit(RLIMIT_NPROC, head->processes + 1024) ||
        !set_limit(RLIMIT_CPU, head->cpu_us / 1000000 + 3))
        give_up(start->inside->report, "cannot set limits");
}

static void setup_cgroup(const struct start *start)
{
    if (cgroup_enter(start->inside->home, start->inside->group) < 0)
        give_up(start->inside->report, "cannot enter the cgroup");
}

/* The filter keeps the program from leaving. The slot itself and init are not
 * held: what they do meanwhile should not cost the program its time. */
static void setup_core(const struct start *start)
{
    cpu_set_t cores;
    if (start->inside->core < 0)
        return;
    CPU_ZERO(&cores);
    CPU_SET((size_t)start->inside->core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) < 0)
        give_up(start->inside->report, "cannot stay on the slot's core");
}

/* Raw calls: libc's wrappers look after threads, which this memory may not have. */
static void setup_identity(const struct start *start)
{
    uid_t uid = start->inside->uid;
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
        syscall(SYS_setresuid, uid, uid, uid) < 0)
        give_up(start->inside->report, "cannot become the slot's user");
}

static void setup_filter(const struct start *start)
{
    if (filter_complete() < 0)
        give_up(start->inside->report, "cannot install the system call filter");
}

/* As a shell would tell it, and to whoever asked for the run in a way that no program can. */
static _Noreturn void cannot_execute(const struct start *start, const char *name, int error)
{
    char text[512];
    start->inside->report->exec_error = error;
    int length = snprintf(text, sizeof text, "oj-box: cannot execute %.400s: %s\n", name,
                          strerror(error));
    if (write(2, text, (size_t)length) < 0) {
        /* Then nobody reads it; the exit code still tells. */
    }
    _exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

static _Noreturn void execute(const struct start *start)
{
    const struct request *request = start->request;
    char *const *argv = (char *const *)request->argv;
    char *const *envp = (char *const *)request->envp;
    const char *name = argv[0], *path = "/usr/local/bin:/usr/bin:/bin";
    char full[4096];
    int error = ENOENT;

    if (strchr(name, '/')) {
        execve(name, argv, envp);
        cannot_execute(start, name, errno);
    }
    for (int i = 0; envp[i]; i++)
        if (strncmp(envp[i], "PATH=", 5) == 0)
            path = envp[i] + 5;
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, ":");
        if ((size_t)snprintf(full, sizeof full, "%.*s/%s", (int)length, at, name) < sizeof full) {
            execve(full, argv, envp);
            if (errno != ENOENT && errno != ENOTDIR)
                error = errno;
        }
        at += length + (at[length] == ':');
    }
    cannot_execute(start, name, error);
}

static void setup_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int program_main(void *argument)
{
    const struct start *start = argument;

    setsid();
    setup_signals();
    umask(022);
    setup_stdio(start);
    setup_rlimits(start);
    setup_cgroup(start);
    setup_core(start);
    setup_identity(start);
    setup_filter(start);
    if (chdir(start->request->cwd) < 0)
        cannot_execute(start, start->request->cwd, errno);
    syscall(SYS_close_range, 3U, ~0U, 0U);
    start->inside->report->start_ns = now_ns();
    execute(start);
}

/* v2: born in the cgroup. v1: shares our memory, enters by itself before it executes. */
static pid_t start_program(struct start *start)
{
    const struct inside *inside = start->inside;
    if (inside->home->version == CGROUP_V2) {
        struct clone_args how = {.flags = CLONE_INTO_CGROUP,
                                 .exit_signal = SIGCHLD,
                                 .cgroup = (uint64_t)inside->group->dir};
        pid_t pid = (pid_t)syscall(SYS_clone3, &how, sizeof how);
        if (pid == 0)
            program_main(start);
        return pid;
    }
#ifdef BOX_SANITIZED
    pid_t pid = fork();
    if (pid == 0)
        program_main(start);
    return pid;
#else
    static char stack[256 * 1024] __attribute__((aligned(16)));
    return clone(program_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, start);
#endif
}

/* ---- the life of pid 1 -------------------------------------------------------------- */

static int await_program(pid_t program, struct report *report)
{
    for (;;) {
        int status;
        pid_t pid = wait4(-1, &status, 0, NULL);
        if (pid == program) {
            report->end_ns = now_ns();
            return status;
        }
        if (pid < 0 && errno != EINTR)
            give_up(report, "lost the program");
    }
}

static void end_everything(void)
{
    kill(-1, SIGKILL);
    while (wait4(-1, NULL, 0, NULL) > 0 || errno == EINTR)
        ;
}

static void measure_disk(const struct inside *inside, const struct message_head *head)
{
    struct statfs info;
    if (statfs(scratch_of(head), &info) == 0) {
        inside->report->disk_free_bytes = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
        inside->report->disk_free_files = (uint64_t)info.f_ffree;
    }
}

void inside_main(const struct inside *inside)
{
    static struct request request;
    static char bytes[MESSAGE_MAX_BYTES];
    struct report *report = inside->report;
    struct start start = {.inside = inside, .request = &request};
    size_t length = sizeof bytes;
    int count = 3;

    /* If the slot was faster to die than this call, the socket below is closed. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setup_scratch(inside);
    setup_temporary(inside, TREE_RUN);
    setup_proc(inside);

    /* From here on somebody waits for us. */
    int got = receive_message(inside->socket, bytes, &length, start.stdio, &count, 0);
    if (got <= 0)
        _exit(0);
    if (count != 3 || request_parse(&request, bytes, length, &report->fault) < 0) {
        report->failed = 1;
        _exit(1);
    }
    if (request.head.flags & RUN_KEEP)
        setup_temporary(inside, TREE_NEXT);
    else
        size_scratch(inside, &request.head);
    setup_box(inside, &request.head);
    pid_t program = start_program(&start);
    if (program < 0)
        give_up(report, "cannot start a process");
    for (int i = 0; i < 3; i++)
        close(start.stdio[i]);
    report->status = await_program(program, report);
    end_everything();
    measure_disk(inside, &request.head);
    report->ended = 1;
    if (send(inside->socket, "", 1, MSG_NOSIGNAL) < 0)
        _exit(1);
    _exit(0);
}
