/* cgroups: who accounts and limits a run.
 *
 * v1 (memory, pids, cpuacct as three trees) and v2 (one tree) are told apart
 * once, at start. Below the cgroup we were started in we make one directory of
 * our own, oj-box.PID.STARTTIME, and in it one per run; for cpuacct of v1, whose
 * counter is never at odds with the run before, one per slot. Its maker holds a lock on it
 * (flock), which ends with the process, so a successor sweeps what a killed predecessor left
 * and never touches a living neighbour's. The pid in the name alone would not do: a neighbour
 * in another pid namespace, whose cgroup tree a container may share, looks dead from here.
 *
 * On v2 a cgroup with controllers for its children may hold no processes, so
 * everything in ours (the executor and we) first moves to a leaf beside it. */
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PREFIX "oj-box."
#define LEAF "oj-supervisor"

static const char *const v1_controllers[CGROUP_TREES] = {"memory", "pids"};
enum { MEMORY = 0, PIDS = 1 }; /* on v2 all are tree 0 */

static int tree_of(const struct cgroup_home *home, int controller)
{
    return home->version == CGROUP_V1 ? controller : 0;
}

/* ---- small files ---------------------------------------------------------- */

static int write_at(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t done = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return done < 0 ? -1 : 0;
}

static int write_number_at(int dir, const char *name, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return write_at(dir, name, text);
}

bool read_text(int fd, char *text, size_t size)
{
    ssize_t got = pread(fd, text, size - 1, 0);
    if (got < 0)
        return false;
    text[got] = 0;
    return true;
}

static uint64_t read_number(int fd)
{
    char text[64];
    return fd >= 0 && read_text(fd, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

uint64_t text_key(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoull(line + length + 1, NULL, 10);
    }
    return 0;
}

static uint64_t read_key(int fd, const char *key)
{
    char text[4096];
    return fd >= 0 && read_text(fd, text, sizeof text) ? text_key(text, key) : 0;
}

static bool has_token(const char *list, const char *token)
{
    size_t length = strlen(token);
    for (const char *at = list; (at = strstr(at, token)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

/* ---- finding our cgroup ---------------------------------------------------- */

/* Our path in the hierarchy of `controller` ("" is v2), from /proc/self/cgroup. */
static bool own_path(const char *controller, char *path, size_t size)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *where = names ? strchr(names + 1, ':') : NULL;
        if (!where)
            continue;
        *where++ = 0;
        names++;
        if (*controller ? has_token(names, controller) : !*names) {
            snprintf(path, size, "%s", where);
            found = true;
        }
    }
    if (file)
        fclose(file);
    return found;
}

/* Where that hierarchy is mounted, and which part of it. */
static bool find_mount(const char *controller, char *root, char *point, size_t size)
{
    char line[4096], options[1024], type[64], at_root[2048], at_point[2048];
    bool found = false;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %2047s %2047s", at_root, at_point) != 2 ||
            sscanf(tail, " - %63s %*s %1023s", type, options) != 2)
            continue;
        if (*controller ? strcmp(type, "cgroup") == 0 && has_token(options, controller)
                        : strcmp(type, "cgroup2") == 0) {
            snprintf(root, size, "%s", at_root);
            snprintf(point, size, "%s", at_point);
            found = true;
        }
    }
    if (file)
        fclose(file);
    return found;
}

/* Opens the directory of the cgroup this process is in. */
static int open_own(const char *controller, struct fault *fault)
{
    const char *name = *controller ? controller : "v2";
    char path[4096], root[4096], point[4096], full[8200];

    if (!own_path(controller, path, sizeof path))
        return fault_say(fault, "the kernel has no %s cgroups", name);
    if (!find_mount(controller, root, point, sizeof point))
        return fault_say(fault, "the %s cgroup hierarchy is not mounted", name);
    /* Without a cgroup namespace a container's mount starts below the root. */
    const char *below = path;
    size_t length = strlen(root);
    if (strcmp(root, "/") != 0) {
        if (strncmp(path, root, length) != 0 || (path[length] && path[length] != '/'))
            return fault_say(fault, "cgroup %s of %s is outside what is mounted", path, name);
        below = path + length;
    }
    /* Started again by an executor that a predecessor moved into the leaf. */
    size_t leaf = strlen("/" LEAF), have = strlen(below);
    int keep = (int)(have >= leaf && strcmp(below + have - leaf, "/" LEAF) == 0 ? have - leaf : have);
    snprintf(full, sizeof full, "%s%.*s", point, keep, below);
    int fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fault_errno(fault, "cannot open the cgroup %s", full);
    return fd;
}

bool cgroup_needs_scope(void)
{
    char path[4096], root[4096], point[4096], full[8200], value[2];
    if (own_path("memory", path, sizeof path))
        return false; /* v1 lets root make cgroups anywhere */
    if (!own_path("", path, sizeof path) || strcmp(path, "/") == 0 ||
        !find_mount("", root, point, sizeof point))
        return false;
    snprintf(full, sizeof full, "%s%s", point, path);
    return getxattr(full, "trusted.delegate", value, sizeof value) < 1 &&
           getxattr(full, "user.delegate", value, sizeof value) < 1;
}

/* ---- removing ---------------------------------------------------------------- */

static void kill_members(int dir)
{
    char text[4096];
    if (write_at(dir, "cgroup.kill", "1") == 0) /* v2 since 5.14 */
        return;
    int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read_text(fd, text, sizeof text))
        for (char *at = text; *at; at = *at ? at + 1 : at) {
            long pid = strtol(at, &at, 10);
            if (pid > 1 && pid != getpid())
                kill((pid_t)pid, SIGKILL);
        }
    close(fd);
}

/* rmdir, with patience for processes that are just dying. */
static bool remove_at(int parent, const char *name)
{
    for (int tries = 0; tries < 400; tries++) {
        if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return true;
        if (errno != EBUSY)
            return false;
        int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0) {
            kill_members(dir);
            close(dir);
        }
        poll(NULL, 0, tries < 20 ? 1 : 10);
    }
    return false;
}

/* Removes our kind of directory: runs first, then the directory itself. */
static bool remove_home_at(int parent, const char *name)
{
    int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = dir >= 0 ? fdopendir(dir) : NULL;
    struct dirent *entry;
    while (list && (entry = readdir(list)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            remove_at(dir, entry->d_name);
    if (list)
        closedir(list);
    else if (dir >= 0)
        close(dir);
    return remove_at(parent, name);
}

/* Field 22 of /proc/PID/stat, 0 if there is no such process. */
static unsigned long long start_time(long pid)
{
    char path[64], text[1024];
    unsigned long long started = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (read_text(fd, text, sizeof text)) {
        char *at = strrchr(text, ')'); /* the name may hold anything */
        for (int field = 2; at && field < 22; field++)
            at = strchr(at + 1, ' ');
        if (at)
            started = strtoull(at, NULL, 10);
    }
    close(fd);
    return started;
}

/* Removes one whose maker is gone: nobody holds the lock, and no such process is seen here either,
 * which is all that an oj-box that took no locks can show. The lock is ours until it is removed, so
 * that one who makes it just now makes it again. */
static void sweep_home_at(int parent, const char *name)
{
    long pid;
    unsigned long long started;
    if (sscanf(name, PREFIX "%ld.%llu", &pid, &started) != 2 || start_time(pid) == started)
        return;
    int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    if (flock(dir, LOCK_EX | LOCK_NB) == 0)
        remove_home_at(parent, name);
    close(dir);
}

static void sweep(int parent)
{
    int dir = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = dir >= 0 ? fdopendir(dir) : NULL;
    struct dirent *entry;
    while (list && (entry = readdir(list)))
        sweep_home_at(parent, entry->d_name);
    if (list)
        closedir(list);
}

/* Makes our directory and locks it. Opened once more for the lock, which is then this process's
 * alone: slots close it (cgroup_unlock), or one that dies late would hold it for a dead main. */
static int make_home_at(int parent, struct cgroup_home *home)
{
    for (int tries = 0; tries < 100; tries++) {
        if (mkdirat(parent, home->name, 0755) < 0 && errno != EEXIST)
            return -1;
        int lock = openat(parent, home->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int dir = openat(parent, home->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* A sweeper may have come before the lock: what it removed is made again. */
        if (lock >= 0 && dir >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 &&
            faccessat(dir, "cgroup.procs", F_OK, 0) == 0) {
            home->locks[home->lock_count++] = lock;
            return dir;
        }
        int error = errno;
        if (lock >= 0)
            close(lock);
        if (dir >= 0)
            close(dir);
        poll(NULL, 0, 10);
        errno = error;
    }
    return -1;
}

void cgroup_unlock(const struct cgroup_home *home)
{
    for (int i = 0; i < home->lock_count; i++)
        close(home->locks[i]);
}

/* ---- our subtree --------------------------------------------------------------- */

/* v2: empties `own` into a leaf, unless it is the root, which may hold processes. */
static int move_to_leaf(int own, struct fault *fault)
{
    char text[4096];
    if (faccessat(own, "cgroup.events", F_OK, 0) < 0)
        return 0;
    if (mkdirat(own, LEAF, 0755) < 0 && errno != EEXIST)
        return fault_errno(fault, "cannot make a cgroup below our own (does the unit have "
                                  "Delegate=yes?)");
    for (int rounds = 0; rounds < 100; rounds++) {
        int fd = openat(own, "cgroup.procs", O_RDONLY | O_CLOEXEC);
        bool got = fd >= 0 && read_text(fd, text, sizeof text);
        if (fd >= 0)
            close(fd);
        if (!got)
            return fault_errno(fault, "cannot read cgroup.procs");
        if (!*text)
            return 0;
        for (char *at = text; *at; at = *at ? at + 1 : at) {
            char number[32];
            snprintf(number, sizeof number, "%ld", strtol(at, &at, 10));
            if (write_at(own, LEAF "/cgroup.procs", number) < 0 && errno != ESRCH)
                return fault_errno(fault, "cannot move process %s to " LEAF, number);
        }
    }
    return fault_say(fault, "our cgroup does not get empty");
}

static int open_v2(struct cgroup_home *home, struct fault *fault)
{
    home->version = CGROUP_V2;
    home->trees = 1;
    int own = open_own("", fault);
    if (own < 0)
        return -1;
    home->parent[0] = own;
    sweep(own);
    if (move_to_leaf(own, fault) < 0)
        return -1;
    if (write_at(own, "cgroup.subtree_control", "+memory +pids") < 0)
        return fault_errno(fault, "cannot limit memory and processes: the cgroup v2 controllers "
                                  "memory and pids are not available here");
    home->dir[0] = make_home_at(own, home);
    if (home->dir[0] < 0)
        return fault_errno(fault, "cannot make the cgroup %s", home->name);
    if (write_at(home->dir[0], "cgroup.subtree_control", "+memory +pids") < 0)
        return fault_errno(fault, "cannot pass the controllers on to %s", home->name);
    return 0;
}

/* Makes our directory in one hierarchy of v1. */
static int open_tree_v1(const char *controller, struct cgroup_home *home, int *parent, int *dir,
                        struct fault *fault)
{
    *parent = open_own(controller, fault);
    if (*parent < 0)
        return -1;
    sweep(*parent);
    *dir = make_home_at(*parent, home);
    return *dir >= 0 ? 0 : fault_errno(fault, "cannot make a cgroup for %s", controller);
}

static int open_v1(struct cgroup_home *home, struct fault *fault)
{
    home->version = CGROUP_V1;
    home->trees = CGROUP_TREES;
    for (int i = 0; i < CGROUP_TREES; i++)
        if (open_tree_v1(v1_controllers[i], home, &home->parent[i], &home->dir[i], fault) < 0)
            return -1;
    return open_tree_v1("cpuacct", home, &home->cpuacct_parent, &home->cpuacct_dir, fault);
}

/* Swap that nobody limits would make every memory limit a suggestion. */
static int check_swap(struct cgroup_home *home, struct fault *fault)
{
    char text[4096];
    const char *name =
        home->version == CGROUP_V1 ? "memory.memsw.limit_in_bytes" : "memory.swap.max";
    home->has_swap = faccessat(home->dir[0], name, F_OK, 0) == 0;
    if (home->has_swap)
        return 0;
    int fd = open("/proc/swaps", O_RDONLY | O_CLOEXEC);
    bool used = fd >= 0 && read_text(fd, text, sizeof text) && strstr(text, "\n/");
    if (fd >= 0)
        close(fd);
    if (used)
        return fault_say(fault, "swap is on but the kernel does not account it: switch swap off, "
                                "or boot with swapaccount=1");
    return 0;
}

/* The kernel shares the processors among processes, so a program that starts many would leave
 * next to nothing to the one in the next slot, which may then idle past its wall limit. With
 * cgroups it shares them among slots first. That is no limit of a run: where it cannot be had, the
 * log tells. On v2 the cgroup of a run does it; on v1 that of the slot's programs, or, where cpu and
 * cpuacct are not one hierarchy, as systemd mounts them, one in which the slot itself lives. Ours as
 * a whole weighs as much as so many processes. */
static void open_shares(struct cgroup_home *home, unsigned slots)
{
    struct fault fault;
    int own = home->version == CGROUP_V2 ? home->dir[0] : home->cpuacct_dir;

    if (home->version == CGROUP_V2) {
        if (write_at(home->parent[0], "cgroup.subtree_control", "+cpu") < 0 ||
            write_at(own, "cgroup.subtree_control", "+cpu") < 0 ||
            write_number_at(own, "cpu.weight", slots < 100 ? slots * 100 : 10000) < 0)
            fprintf(stderr, "oj-box: cannot share the processors among slots: %s\n",
                    strerror(errno));
        return;
    }
    if (faccessat(own, "cpu.shares", F_OK, 0) < 0) {
        if (open_tree_v1("cpu", home, &home->cpu_parent, &home->cpu_dir, &fault) < 0) {
            fprintf(stderr, "oj-box: cannot share the processors among slots: %s\n", fault.text);
            return;
        }
        own = home->cpu_dir;
    }
    if (write_number_at(own, "cpu.shares", slots * 1024) < 0)
        fprintf(stderr, "oj-box: cannot share the processors among slots: %s\n", strerror(errno));
}

int cgroup_take_share(const struct cgroup_home *home, struct cgroup_share *share, unsigned slot,
                      struct fault *fault)
{
    char name[16], tasks[32], usage[32];

    share->attach = share->usage = -1;
    if (home->version == CGROUP_V2)
        return 0;
    snprintf(name, sizeof name, "s%u", slot);
    snprintf(tasks, sizeof tasks, "%s/tasks", name);
    snprintf(usage, sizeof usage, "%s/cpuacct.usage", name);
    if (mkdirat(home->cpuacct_dir, name, 0755) < 0 ||
        (home->cpu_dir >= 0 && mkdirat(home->cpu_dir, name, 0755) < 0))
        return fault_errno(fault, "cannot make the cgroups of slot %u", slot);
    share->usage = openat(home->cpuacct_dir, usage, O_RDONLY | O_CLOEXEC);
    share->attach = openat(home->cpuacct_dir, tasks, O_WRONLY | O_CLOEXEC);
    if (share->usage < 0 || share->attach < 0)
        return fault_errno(fault, "this kernel does not account cpu per cgroup");
    if (home->cpu_dir >= 0 && write_at(home->cpu_dir, tasks, "0") < 0)
        fprintf(stderr, "oj-box: slot %u has no share of the processors of its own: %s\n", slot,
                strerror(errno));
    return 0;
}

/* -1 where the kernel does not tell; then nothing is subtracted from what the machine holds. */
static int open_kernel(const struct cgroup_home *home, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", name,
             home->version == CGROUP_V1 ? "memory.kmem.usage_in_bytes" : "memory.stat");
    return openat(home->dir[tree_of(home, MEMORY)], path, O_RDONLY | O_CLOEXEC);
}

int cgroup_open_home(struct cgroup_home *home, unsigned slots, struct fault *fault)
{
    char path[4096];

    memset(home, 0, sizeof *home);
    home->kernel = -1;
    for (int i = 0; i < CGROUP_TREES; i++)
        home->parent[i] = home->dir[i] = -1;
    home->cpuacct_parent = home->cpuacct_dir = home->cpu_parent = home->cpu_dir = -1;
    snprintf(home->name, sizeof home->name, PREFIX "%ld.%llu", (long)getpid(),
             start_time(getpid()));
    int done = own_path("memory", path, sizeof path) ? open_v1(home, fault) : open_v2(home, fault);
    if (done == 0)
        done = check_swap(home, fault);
    if (done < 0) {
        cgroup_close_home(home);
        return -1;
    }
    open_shares(home, slots);
    home->kernel = open_kernel(home, ".");
    return 0;
}

void cgroup_close_home(const struct cgroup_home *home)
{
    for (int i = 0; i < home->trees; i++) {
        if (home->dir[i] >= 0)
            remove_home_at(home->parent[i], home->name);
    }
    if (home->cpuacct_dir >= 0)
        remove_home_at(home->cpuacct_parent, home->name);
    if (home->cpu_dir >= 0)
        remove_home_at(home->cpu_parent, home->name);
}

/* ---- one run ------------------------------------------------------------------------ */

/* By its path from our own directory: opening that of the run first would be one more to look up. */
static int open_file(const struct cgroup_home *home, const struct cgroup *group, int controller,
                     const char *name, int flags)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", group->name, name);
    return openat(home->dir[tree_of(home, controller)], path, flags | O_CLOEXEC);
}

static int make_v1(const struct cgroup_home *home, struct cgroup *group,
                   const struct cgroup_share *share)
{
    for (int i = 0; i < CGROUP_TREES; i++)
        if (mkdirat(home->dir[i], group->name, 0755) < 0 ||
            (group->attach[i] = open_file(home, group, i, "tasks", O_WRONLY)) < 0)
            return -1;
    group->cpu = share->usage;
    group->attach_cpu = share->attach;
    group->memory_peak = open_file(home, group, MEMORY, "memory.max_usage_in_bytes", O_RDONLY);
    group->memory_events = open_file(home, group, MEMORY, "memory.oom_control", O_RDONLY);
    return 0;
}

static int make_v2(const struct cgroup_home *home, struct cgroup *group)
{
    if (mkdirat(home->dir[0], group->name, 0755) < 0 ||
        (group->dir = openat(home->dir[0], group->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -1;
    group->cpu = open_file(home, group, MEMORY, "cpu.stat", O_RDONLY);
    group->memory_peak = open_file(home, group, MEMORY, "memory.peak", O_RDONLY);
    group->memory_events = open_file(home, group, MEMORY, "memory.events", O_RDONLY);
    return 0;
}

int cgroup_make(const struct cgroup_home *home, struct cgroup *group,
                const struct cgroup_share *share, unsigned slot, unsigned long serial,
                struct fault *fault)
{
    *group = (struct cgroup){.dir = -1,
                             .attach = {-1, -1},
                             .cpu = -1,
                             .attach_cpu = -1,
                             .memory_peak = -1,
                             .memory_events = -1,
                             .pids_peak = -1,
                             .pids_now = -1};
    snprintf(group->name, sizeof group->name, "s%u.%lu", slot, serial);
    if ((home->version == CGROUP_V1 ? make_v1(home, group, share) : make_v2(home, group)) < 0) {
        fault_errno(fault, "cannot make the cgroup %s", group->name);
        cgroup_remove(home, group);
        return -1;
    }
    group->pids_peak = open_file(home, group, PIDS, "pids.peak", O_RDONLY);
    group->pids_now = open_file(home, group, PIDS, "pids.current", O_RDONLY);
    if (group->cpu < 0 || group->pids_now < 0 || group->memory_peak < 0 || group->memory_events < 0) {
        fault_errno(fault, "this kernel does not account cpu, memory and processes per cgroup");
        cgroup_remove(home, group);
        return -1;
    }
    return 0;
}

static int set_limit(const struct cgroup_home *home, const struct cgroup *group, int controller,
                     const char *name, uint64_t number)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", group->name, name);
    return write_number_at(home->dir[tree_of(home, controller)], path, number);
}

int cgroup_limit(const struct cgroup_home *home, struct cgroup *group,
                 uint64_t memory_bytes, uint64_t processes, struct fault *fault)
{
    bool v1 = home->version == CGROUP_V1;
    group->memory_limit_bytes = group->least_limit_bytes = memory_bytes;
    if (set_limit(home, group, MEMORY, v1 ? "memory.limit_in_bytes" : "memory.max",
                  memory_bytes) < 0 ||
        (home->has_swap &&
         set_limit(home, group, MEMORY, v1 ? "memory.memsw.limit_in_bytes" : "memory.swap.max",
                   v1 ? memory_bytes : 0) < 0))
        return fault_errno(fault, "cannot limit memory");
    if (!v1 && set_limit(home, group, MEMORY, "memory.oom.group", 1) < 0)
        return fault_errno(fault, "cannot make the processes of a run die together");
    if (set_limit(home, group, PIDS, "pids.max", processes) < 0)
        return fault_errno(fault, "cannot limit processes");
    /* Not when the cgroup was made: a process is told dead a moment before it stops to count. */
    group->cpu_before_us = 0;
    group->cpu_before_us = cgroup_cpu_us(home, group);
    return 0;
}

void cgroup_change_limit(const struct cgroup_home *home, struct cgroup *group,
                         uint64_t memory_bytes)
{
    bool v1 = home->version == CGROUP_V1;
    if (set_limit(home, group, MEMORY, v1 ? "memory.limit_in_bytes" : "memory.max",
                  memory_bytes) == 0) {
        group->memory_limit_bytes = memory_bytes;
        if (memory_bytes < group->least_limit_bytes)
            group->least_limit_bytes = memory_bytes;
    }
}

int cgroup_enter(const struct cgroup_home *home, const struct cgroup *group)
{
    if (home->version == CGROUP_V2)
        return 0; /* it was cloned into it */
    for (int i = 0; i < home->trees; i++)
        if (write(group->attach[i], "0", 1) != 1)
            return -1;
    return write(group->attach_cpu, "0", 1) == 1 ? 0 : -1;
}

uint64_t cgroup_cpu_us(const struct cgroup_home *home, const struct cgroup *group)
{
    uint64_t now_us = home->version == CGROUP_V1 ? read_number(group->cpu) / 1000
                                                 : read_key(group->cpu, "usage_usec");
    return now_us > group->cpu_before_us ? now_us - group->cpu_before_us : 0;
}

static uint64_t droppable_bytes(const struct cgroup_home *home, const struct cgroup *group)
{
    int stat = open_file(home, group, MEMORY, "memory.stat", O_RDONLY);
    uint64_t droppable = read_key(stat, "inactive_file") + read_key(stat, "active_file");
    if (stat >= 0)
        close(stat);
    return droppable;
}

uint64_t cgroup_memory_bytes(const struct cgroup_home *home, const struct cgroup *group,
                             bool without_files)
{
    int file = open_file(home, group, MEMORY,
                         home->version == CGROUP_V1 ? "memory.usage_in_bytes" : "memory.current",
                         O_RDONLY);
    uint64_t used = read_number(file), files = without_files ? droppable_bytes(home, group) : 0;
    if (file >= 0)
        close(file);
    return used > files ? used - files : 0;
}

int cgroup_open_kernel(const struct cgroup_home *home, const struct cgroup *group)
{
    return open_kernel(home, group->name);
}

uint64_t cgroup_kernel_bytes(const struct cgroup_home *home, int kernel)
{
    /* Where there is no sum yet, before Linux 5.18. */
    static const char *const keys[] = {"slab_unreclaimable", "pagetables", "sec_pagetables",
                                       "kernel_stack", "percpu", "vmalloc"};
    char text[4096];
    uint64_t total = 0;

    if (home->version == CGROUP_V1)
        return read_number(kernel);
    if (kernel < 0 || !read_text(kernel, text, sizeof text))
        return 0;
    uint64_t sum = text_key(text, "kernel"), droppable = text_key(text, "slab_reclaimable");
    if (sum > 0)
        return (sum > droppable ? sum - droppable : 0) + text_key(text, "sock");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        total += text_key(text, keys[i]);
    return total;
}

uint64_t cgroup_processes(const struct cgroup *group)
{
    return read_number(group->pids_now);
}

uint64_t cgroup_oom_kills(const struct cgroup *group)
{
    return read_key(group->memory_events, "oom_kill");
}

uint64_t cgroup_forks_refused(const struct cgroup_home *home, const struct cgroup *group)
{
    int events = open_file(home, group, PIDS, "pids.events", O_RDONLY);
    uint64_t refused = read_key(events, "max");
    if (events >= 0)
        close(events);
    return refused;
}

bool cgroup_kills_together(const struct cgroup_home *home)
{
    return home->version == CGROUP_V2; /* memory.oom.group */
}

/* Whether the memory was used up. The kernel charges in steps of 64 pages until
 * it comes close. Files that were only read can fill a cgroup, too, but they are
 * dropped before anything is refused: if many are left, memory was not short. */
static bool memory_exhausted(const struct cgroup_home *home, const struct cgroup *group,
                             uint64_t peak_bytes)
{
    const uint64_t step = 64 * 4096;
    if (peak_bytes + step < group->least_limit_bytes)
        return false;
    return droppable_bytes(home, group) < group->least_limit_bytes / 4;
}

/* Whether it was the run's own limit that the kernel killed for: it counts every kill, also those
 * for the whole machine and for the limit of a cgroup above. v2 says how often this limit was hit.
 * v1 only knows how close the run came; some way off, because processors count ahead. */
static bool hit_own_limit(const struct cgroup_home *home, const struct cgroup *group,
                          uint64_t peak_bytes)
{
    if (home->version == CGROUP_V2)
        return read_key(group->memory_events, "oom") > 0;
    if (home->has_swap) {
        int swapped =
            open_file(home, group, MEMORY, "memory.memsw.max_usage_in_bytes", O_RDONLY);
        uint64_t with_swap = read_number(swapped);
        if (swapped >= 0)
            close(swapped);
        peak_bytes = with_swap > peak_bytes ? with_swap : peak_bytes;
    }
    /* The guard may have lowered it, and raised it again since. */
    return peak_bytes + group->least_limit_bytes / 16 + (1 << 20) >= group->least_limit_bytes;
}

int cgroup_usage(const struct cgroup_home *home, const struct cgroup *group,
                 struct cgroup_usage *usage, struct fault *fault)
{
    usage->cpu_us = cgroup_cpu_us(home, group);
    usage->memory_bytes = read_number(group->memory_peak);
    usage->oom_kills = cgroup_oom_kills(group);
    usage->starved = usage->oom_kills > 0 && !hit_own_limit(home, group, usage->memory_bytes);
    usage->processes = read_number(group->pids_peak);
    usage->memory_exhausted = memory_exhausted(home, group, usage->memory_bytes);
    if (usage->memory_bytes == 0)
        return fault_say(fault, "the run's cgroup counted no memory");
    return 0;
}

void cgroup_remove(const struct cgroup_home *home, struct cgroup *group)
{
    int *fds[] = {&group->dir,         &group->attach[MEMORY], &group->attach[PIDS],
                  &group->memory_peak, &group->memory_events,  &group->pids_peak,
                  &group->pids_now,    &group->cpu};
    /* The last is the slot's on v1. */
    size_t own = sizeof fds / sizeof *fds - (home->version == CGROUP_V1 ? 1 : 0);
    for (size_t i = 0; i < own; i++)
        if (*fds[i] >= 0) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    for (int i = 0; i < home->trees; i++)
        remove_at(home->dir[i], group->name);
}
