/* The system call filter: a deny-list behind the real walls.
 *
 * Programs run without capabilities in their own namespaces, so most of these
 * calls would fail anyway; the filter takes away the kernel code behind them.
 * Calls for another ABI (32 bit, x32) kill the process: nothing here checks
 * their numbers.
 *
 * The kernel compiles a filter whenever it is installed, and tries it for every system call
 * there is. So it comes in two parts: most of it holds the slot as well, which installs it once
 * and hands it down to its runs; only what slot and init need themselves is refused by a second,
 * small one, which each run installs. A call has to please both. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

#define COUNT(list) (sizeof(list) / sizeof *(list))
enum { INSTRUCTIONS_MAX = 1024 };

/* Compiled from the rules that `add` adds. */
struct part {
    int (*add)(scmp_filter_ctx context);
    struct sock_fprog program;
    struct sock_filter code[INSTRUCTIONS_MAX];
};

/* Refused with EPERM, whatever their arguments; in the second part. */
static const char *const refused_to_runs[] = {
    "mount", "umount2", "move_mount", "open_tree", "setns", "unshare",
    /* a slot may have a core of its own; real-time priorities are refused by RLIMIT_RTPRIO */
    "sched_setaffinity",
};

/* The same, in the first. */
static const char *const refused[] = {
    /* mounts and namespaces */
    "umount", "mount_setattr", "fsopen", "fsconfig", "fsmount", "fspick", "pivot_root", "chroot",
    "statmount", "listmount", "open_tree_attr",
    /* other processes' insides */
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp",
    "pidfd_getfd", "process_mrelease",
    /* large or historically weak kernel interfaces */
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "fanotify_init", "fanotify_mark", "lookup_dcookie",
    "name_to_handle_at", "open_by_handle_at", "quotactl", "quotactl_fd", "vmsplice",
    "memfd_secret", "landlock_create_ruleset",
    /* the machine has only so many of these for everybody */
    "io_setup",
    /* files of the system are shared: programs in two slots could signal each other */
    "inotify_init", "inotify_init1",
    /* writes out the disks of the host, and cannot be killed until it is done */
    "sync", "syncfs",
    /* keyrings outlive processes */
    "add_key", "request_key", "keyctl",
    /* the machine */
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
    "create_module", "query_module", "get_kernel_syms", "reboot", "swapon", "swapoff", "acct",
    "syslog", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime",
    "sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "vm86", "vm86old",
    "nfsservctl", "uselib", "ustat", "sysfs", "_sysctl", "vhangup",
    /* placement in memory, and priority over neighbours */
    "mbind", "set_mempolicy", "migrate_pages", "move_pages", "set_mempolicy_home_node",
    "ioprio_set",
};

static int refuse_calls(scmp_filter_ctx context, const char *const names[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        if (number == __NR_SCMP_ERROR || number < 0)
            continue; /* not on this architecture, or newer than the library */
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), number, 0) < 0)
            return -1;
    }
    return 0;
}

/* clone() may make threads and processes, not namespaces: the first are refused in the first part,
 * the others, which an init is cloned with, in the second. */
static const unsigned long never_new[] = {CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWUTS,
                                          CLONE_NEWCGROUP};
static const unsigned long new_to_inits[] = {CLONE_NEWPID, CLONE_NEWNS, CLONE_NEWIPC};

static int refuse_namespaces(scmp_filter_ctx context, const unsigned long flags[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                             SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, flags[i], flags[i])) < 0)
            return -1;
    return 0;
}

/* It hides its flags behind a pointer: "not implemented" makes libc fall back to clone(). */
static int refuse_clone3(scmp_filter_ctx context)
{
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* Only unix sockets: with its one device down the network is of no use to anybody. What is
 * tried in it is counted all the same, where the slot's next run could read it; AF_VSOCK would
 * talk to the hypervisor past the namespace; and at a family or protocol that it does not know
 * the kernel runs modprobe, outside of the run and on nobody's account. */
static int refuse_sockets(scmp_filter_ctx context)
{
    static const int calls[] = {SCMP_SYS(socket), SCMP_SYS(socketpair)};
    for (size_t i = 0; i < COUNT(calls); i++)
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(EAFNOSUPPORT), calls[i], 1,
                             SCMP_CMP32(0, SCMP_CMP_NE, AF_UNIX)) < 0)
            return -1;
    return 0;
}

/* 0 is Linux as it is; anything else switches off protections. */
static int refuse_personalities(scmp_filter_ctx context)
{
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(personality), 1,
                            SCMP_CMP64(0, SCMP_CMP_GT, 0));
}

/* Huge pages come from a pool of the host's that no memory cgroup counts. */
static int refuse_huge_pages(scmp_filter_ctx context)
{
    static const struct {
        int call;
        unsigned argument;
        unsigned long flag;
    } ways[] = {{SCMP_SYS(mmap), 3, MAP_HUGETLB},
                {SCMP_SYS(memfd_create), 1, MFD_HUGETLB},
                {SCMP_SYS(shmget), 2, SHM_HUGETLB}};
    for (size_t i = 0; i < COUNT(ways); i++)
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOMEM), ways[i].call, 1,
                             SCMP_CMP64(ways[i].argument, SCMP_CMP_MASKED_EQ, ways[i].flag,
                                        ways[i].flag)) < 0)
            return -1;
    return 0;
}

/* What a number in the second argument (in prctl the first) makes of calls that everybody needs. */
static int refuse_requests(scmp_filter_ctx context)
{
    static const struct {
        int call;
        unsigned argument, request;
    } requests[] = {
        /* typing on a terminal that an administrator lent to `oj-box run` */
        {SCMP_SYS(ioctl), 1, TIOCSTI},
        {SCMP_SYS(ioctl), 1, TIOCLINUX},
        /* on any socket these load modules into the kernel of the host, or try to each time */
        {SCMP_SYS(ioctl), 1, SIOCGIFBR},
        {SCMP_SYS(ioctl), 1, SIOCSIFBR},
        {SCMP_SYS(ioctl), 1, SIOCBRADDBR},
        {SCMP_SYS(ioctl), 1, SIOCBRDELBR},
        {SCMP_SYS(ioctl), 1, SIOCGIFVLAN},
        {SCMP_SYS(ioctl), 1, SIOCSIFVLAN},
        /* as inotify: who reads a directory of the system */
        {SCMP_SYS(fcntl), 1, F_NOTIFY},
        /* keeps everybody else off the other threads of its core */
        {SCMP_SYS(prctl), 0, PR_SCHED_CORE},
    };
    for (size_t i = 0; i < COUNT(requests); i++)
        if (seccomp_rule_add(
                context, SCMP_ACT_ERRNO(EPERM), requests[i].call, 1,
                SCMP_CMP32(requests[i].argument, SCMP_CMP_EQ, requests[i].request)) < 0)
            return -1;
    return 0;
}

/* What programs write is in memory, where there is nothing to wait for. But on a file of the
 * system that is only open for reading these make the disk of the host flush its cache, each time;
 * so they succeed without being called. MS_ASYNC, which tells what is mapped, is left alone. */
static int skip_flushes(scmp_filter_ctx context)
{
    if (seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(fsync), 0) < 0 ||
        seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(fdatasync), 0) < 0)
        return -1;
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(msync), 1,
                            SCMP_CMP32(2, SCMP_CMP_MASKED_EQ, MS_SYNC, MS_SYNC));
}

/* Nor does what is in memory leave it: this would only drop files of the system from the cache,
 * such as the compilers that other slots are about to use. */
static int skip_evictions(scmp_filter_ctx context)
{
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(fadvise64), 1,
                            SCMP_CMP32(3, SCMP_CMP_EQ, POSIX_FADV_DONTNEED));
}

static int add_first(scmp_filter_ctx context)
{
    return refuse_calls(context, refused, COUNT(refused)) < 0 ||
                   refuse_namespaces(context, never_new, COUNT(never_new)) < 0 ||
                   refuse_sockets(context) < 0 || refuse_personalities(context) < 0 ||
                   refuse_huge_pages(context) < 0 || refuse_requests(context) < 0 ||
                   skip_flushes(context) < 0 || skip_evictions(context) < 0
               ? -1
               : 0;
}

static int add_second(scmp_filter_ctx context)
{
    return refuse_calls(context, refused_to_runs, COUNT(refused_to_runs)) < 0 ||
                   refuse_namespaces(context, new_to_inits, COUNT(new_to_inits)) < 0 ||
                   refuse_clone3(context) < 0
               ? -1
               : 0;
}

static struct part first = {.add = add_first}, second = {.add = add_second};

static int compile_part(struct part *part, struct fault *fault)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
    int file = memfd_create("filter", MFD_CLOEXEC), result = -1;

    if (!context || file < 0) {
        fault_errno(fault, "cannot start a system call filter");
    } else if (seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 ||
               /* A tree instead of a list: there are hundreds of calls to try it for. */
               seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0 ||
               part->add(context) < 0 || seccomp_export_bpf(context, file) < 0) {
        fault_say(fault, "cannot compile the system call filter");
    } else {
        ssize_t size = pread(file, part->code, sizeof part->code, 0);
        part->program.filter = part->code;
        part->program.len = (unsigned short)((size_t)size / sizeof *part->code);
        if (size > 0 && (size_t)size < sizeof part->code)
            result = 0;
        else
            fault_say(fault, "cannot keep the system call filter");
    }
    if (file >= 0)
        close(file);
    if (context)
        seccomp_release(context);
    return result;
}

static int install(const struct part *part)
{
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &part->program);
}

int filter_enter(struct fault *fault)
{
    if (compile_part(&first, fault) < 0 || compile_part(&second, fault) < 0)
        return -1;
    /* Every page that we keep is copied and dropped again by each run. */
    malloc_trim(0);
    return install(&first) < 0 ? fault_errno(fault, "cannot install the system call filter") : 0;
}

int filter_complete(void)
{
    return install(&second);
}
