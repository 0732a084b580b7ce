/* The inside of a run: what its pid 1 builds, and pid 2, which becomes the program.
 *
 * Pid 1 (run.c) starts in fresh pid, mount and ipc namespaces and builds what does not
 * depend on the program: a tmpfs, /tmp, /dev/shm and /proc. When it is told what to run, it
 * lays out /box and starts the program. The program is not pid 1 itself, because signals
 * without a handler do not reach a pid 1: abort() and kill() would be misreported. Pid 1
 * stays outside the run's cgroup. */
#include "run.h"

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
    struct slot *slot;
    const struct request *request;
    const int *stdio;
};

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Ends pid 2: our fault, told to pid 1. */
static _Noreturn void give_up(const struct start *start, const char *what)
{
    fault_errno(&start->slot->report.fault, "inside the box: %s", what);
    start->slot->report.failed = true;
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
    if (pass_mount("oj-box", path, "tmpfs", SCRATCH_FLAGS, options) < 0)
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
    /* What may become the layer is mounted where the slot sees it, too, to be there when this
     * run's namespace is gone. Not /tmp and /dev/shm: nobody sees them again, and the layer counts for
     * the runs that come after. */
    return head->flags & RUN_KEEP ? TREE_NEXT : TREE_RUN;
}

int inside_prepare(const struct slot *slot, struct fault *fault)
{
    /* Of the size that the last run had, and the next one probably will. */
    if (inside_mount_scratch(TREE_RUN, slot->disk_bytes, slot->files, slot->settings->uid, fault) < 0)
        return -1;
    if (pass_mount(TREE_RUN "/tmp", "/tmp", NULL, MS_BIND, NULL) < 0)
        return fault_errno(fault, "cannot provide /tmp");
    if (pass_mount(TREE_RUN "/shm", "/dev/shm", NULL, MS_BIND, NULL) < 0)
        return fault_errno(fault, "cannot provide /dev/shm");
    /* Only processes, and of those only its own: not even pid 1. Nothing there is to be set: a login
     * user, for one, could be, and would be believed. */
    if (pass_mount("oj-box", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                   "hidepid=2,subset=pid") < 0)
        return fault_errno(fault, "cannot mount /proc");
    return 0;
}

static int size_scratch(const struct slot *slot, const struct message_head *head,
                        struct fault *fault)
{
    char options[128];
    if (head->disk_bytes == slot->disk_bytes && head->files == slot->files)
        return 0;
    scratch_options(options, sizeof options, head->disk_bytes, head->files);
    if (pass_mount(NULL, TREE_RUN, NULL, MS_REMOUNT | SCRATCH_FLAGS, options) < 0)
        return fault_errno(fault, "cannot set the size of the box");
    return 0;
}

int inside_lay_out(const struct slot *slot, const struct message_head *head, struct fault *fault)
{
    char options[512];
    const char *scratch = scratch_of(head);

    if (size_scratch(slot, head, fault) < 0)
        return -1;
    snprintf(options, sizeof options, "lowerdir=%s%s%s,upperdir=%s/upper,workdir=%s/work",
             head->flags & RUN_DATA ? TREE_DATA ":" : "",
             slot->has_layer ? TREE_LAYER "/upper:" : "", TREE_LOWER, scratch, scratch);
    if (pass_mount("oj-box", TREE_BOX, "overlay", SCRATCH_FLAGS, options) < 0)
        return fault_errno(fault, "cannot lay the overlay on /box");
    return 0;
}

void inside_measure_disk(const struct message_head *head, uint64_t *bytes, uint64_t *files)
{
    const char *const places[] = {TREE_RUN, scratch_of(head)};
    *bytes = *files = UINT64_MAX; /* not known */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct statfs info;
        if (statfs(places[i], &info) < 0)
            continue;
        uint64_t left = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
        *bytes = left < *bytes ? left : *bytes;
        *files = (uint64_t)info.f_ffree < *files ? (uint64_t)info.f_ffree : *files;
    }
}

uint64_t inside_measure_layer(void)
{
    enum { FILE_BYTES = 1536 }; /* an inode, its place in the directory, and what the overlay adds */
    struct statfs info;
    if (statfs(TREE_NEXT, &info) < 0)
        return 0;
    return (uint64_t)(info.f_blocks - info.f_bfree) * (uint64_t)info.f_bsize +
           (uint64_t)(info.f_files - info.f_ffree) * FILE_BYTES;
}

void inside_clear(void)
{
    static const char *const places[] = {TREE_BOX, "/tmp", "/dev/shm", TREE_RUN, TREE_NEXT};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        (void)pass_umount(places[i]); /* the last is there for a compile only */
    (void)pass_call(SYS_unshare, CLONE_NEWIPC, 0, 0, 0, 0); /* System V objects, which outlive all */
}

/* ---- pid 2 becomes the program -------------------------------------------------- */

static void setup_stdio(const struct start *start)
{
    /* They may sit on each other's places: first out of the way, then in. */
    int safe[3];
    for (int i = 0; i < 3; i++)
        if ((safe[i] = fcntl(start->stdio[i], F_DUPFD_CLOEXEC, 16)) < 0)
            give_up(start, "cannot copy a standard stream");
    for (int i = 0; i < 3; i++)
        if (dup2(safe[i], i) < 0)
            give_up(start, "cannot place a standard stream");
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

/* Each open file costs kernel memory, of which the smaller part counts for the run. */
enum { DESCRIPTORS_OF_A_RUN = 256, DESCRIPTORS_OF_A_COMPILE = 512 };

static void setup_rlimits(const struct start *start)
{
    const struct message_head *head = &start->request->head;

    if (!set_limit(RLIMIT_FSIZE, head->disk_bytes) ||
        !set_limit(RLIMIT_NOFILE, head->flags & RUN_KEEP ? DESCRIPTORS_OF_A_COMPILE
                                                         : DESCRIPTORS_OF_A_RUN) ||
        /* The stack may be all of the memory; what is above only keeps this limit
         * from being hit before the cgroup's. */
        !set_limit(RLIMIT_STACK, head->memory_bytes + (16 << 20)) ||
        /* Second lines behind the cgroup, loose enough not to hide its counters. The
         * first counts per user, and somebody else may use this number, too. */
        !set_limit(RLIMIT_NPROC, head->processes + 1024) ||
        !set_limit(RLIMIT_CPU, head->cpu_us / 1000000 + 3))
        give_up(start, "cannot set limits");
}

static void setup_cgroup(const struct start *start)
{
    if (cgroup_enter(start->slot->settings->home, &start->slot->group) < 0)
        give_up(start, "cannot enter the cgroup");
}

/* The program keeps its root and leaves the namespace that the mounts are in: /proc/self/mountinfo
 * lists those of a process's namespace that its root leads to, which are none, and not the client's
 * directories and the host's disks. Its cgroup is the top of a namespace, so that /proc/self/cgroup has
 * no name. */
static void setup_namespaces(const struct start *start)
{
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || pass_call(SYS_unshare, CLONE_NEWCGROUP, 0, 0, 0, 0) < 0 ||
        pass_call(SYS_setns, start->slot->settings->empty_ns, CLONE_NEWNS, 0, 0, 0) < 0 ||
        fchdir(root) < 0 || pass_call(SYS_chroot, (long)".", 0, 0, 0, 0) < 0)
        give_up(start, "cannot leave the namespaces");
}

/* The filter keeps the program from leaving. */
static void setup_cores(const struct start *start)
{
    const cpu_set_t *cores = &start->slot->cores;
    if (pass_call(SYS_sched_setaffinity, 0, sizeof *cores, (long)cores, 0, 0) < 0)
        give_up(start, "cannot choose its cores");
}

/* Raw calls: libc's wrappers look after threads, which this memory may not have. */
static void setup_identity(const struct start *start)
{
    uid_t uid = start->slot->settings->uid;
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
        syscall(SYS_setresuid, uid, uid, uid) < 0)
        give_up(start, "cannot become the slot's user");
}

/* As a shell would tell it, and to whoever asked for the run in a way that no program can. */
static _Noreturn void cannot_execute(const struct start *start, const char *name, int error)
{
    char text[512];
    start->slot->report.exec_error = error;
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
    setup_namespaces(start);
    setup_cores(start);
    setup_identity(start);
    /* First of all: no path leads into a directory that only we have open. */
    syscall(SYS_close_range, 3U, ~0U, 0U);
    if (chdir(start->request->cwd) < 0)
        cannot_execute(start, start->request->cwd, errno);
    start->slot->report.start_ns = now_ns();
    execute(start);
}

/* v2: born in the cgroup. v1: shares our memory, enters by itself before it executes; until then we
 * are suspended, and the kernel does not choose it when memory runs out (in which case it would
 * kill whoever shares that memory, the slot included). */
pid_t inside_start(struct slot *slot, const struct request *request, const int stdio[3])
{
    struct start start = {.slot = slot, .request = request, .stdio = stdio};
    if (slot->settings->home->version == CGROUP_V2) {
        struct clone_args how = {.flags = CLONE_INTO_CGROUP,
                                 .exit_signal = SIGCHLD,
                                 .cgroup = (uint64_t)slot->group.dir};
        pid_t pid = (pid_t)pass_call(SYS_clone3, (long)&how, sizeof how, 0, 0, 0);
        if (pid == 0)
            program_main(&start);
        return pid;
    }
#ifdef BOX_SANITIZED
    pid_t pid = fork();
    if (pid == 0)
        program_main(&start);
    return pid;
#else
    static char stack[256 * 1024] __attribute__((aligned(16)));
    return clone(program_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
#endif
}
