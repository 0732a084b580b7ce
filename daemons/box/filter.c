/* The system call filter: a deny-list behind the real walls.
 *
 * Programs run without capabilities in their own namespaces, so most of these
 * calls would fail anyway; the filter takes away the kernel code behind them.
 * Calls for another ABI (32 bit, x32) kill the process: nothing here checks
 * their numbers.
 *
 * The kernel compiles a filter whenever it is installed, and tries it for every system call
 * there is, which is too much to do for each run. So the slot installs it once and hands it
 * down. Slot and init, which it holds as well, need some of the calls themselves. They pass
 * with a key: a random number in the sixth argument, which none of these calls has. Only the
 * memory of slot and init holds it, and executing the program takes that memory away.
 *
 * These calls have a small filter of their own, written by hand, which looks at the whole key at
 * once: one that compares it half by half takes longer when the first is right, which would let a
 * program guess them one after the other. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* An argument that the kernel takes for 32 bits: it does not look at the others, and neither must we.
 * (SCMP_CMP32 does: it means the datum to be of 32 bits, and compares all 64.) */
#define HAS_NUMBER(argument, number) \
    SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, 0xffffffff, (uint32_t)(number))

/* Refused with EPERM, whatever their arguments. */
static const char *const refused[] = {
    /* mounts and namespaces */
    "umount", "fsopen", "fsconfig", "fsmount", "fspick", "pivot_root",
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

/* Refused as if files had none: the kernel copies what they hold into memory that it counts for
 * nobody, 64 KB for each access list. Programs that copy files expect this answer. */
static const char *const attributes[] = {"setxattr", "lsetxattr", "fsetxattr", "setxattrat"};

/* Refused as between files that cannot do it, where programs that copy go on by read() and write().
 * From a device or /proc they make pages that count for nobody, as many as a pipe or socket holds. */
static const char *const pages[] = {"splice", "sendfile", "tee"};

/* Those of them that libseccomp 2.5.4 does not know, which is older than they are; newer calls have
 * the same number everywhere. */
static const struct {
    const char *name;
    int number;
} newer[] = {{"statmount", 457}, {"listmount", 458}, {"setxattrat", 463}, {"open_tree_attr", 467}};

static int find_call(const char *name)
{
    int number = seccomp_syscall_resolve_name(name);
    for (size_t i = 0; number == __NR_SCMP_ERROR && i < COUNT(newer); i++)
        if (strcmp(newer[i].name, name) == 0)
            number = newer[i].number;
    return number;
}

static int refuse_all(scmp_filter_ctx context, const char *const names[], size_t count, int error)
{
    for (size_t i = 0; i < count; i++) {
        int number = find_call(names[i]);
        if (number < 0)
            continue; /* not on this architecture */
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO((unsigned)error), number, 0) < 0)
            return -1;
    }
    return 0;
}

static int refuse_calls(scmp_filter_ctx context)
{
    return refuse_all(context, refused, COUNT(refused), EPERM) < 0 ||
                   refuse_all(context, attributes, COUNT(attributes), EOPNOTSUPP) < 0 ||
                   refuse_all(context, pages, COUNT(pages), EINVAL) < 0
               ? -1
               : 0;
}

/* clone() may make threads and processes, not namespaces. For those that an init is cloned with the
 * kernel asks for capabilities first of all, and they come without a key, because libc's clone() has
 * no place for one. Nobody makes users, who would have capabilities in a namespace of their own. */
static int refuse_namespaces(scmp_filter_ctx context)
{
    static const unsigned long flags[] = {CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWUTS,
                                          CLONE_NEWCGROUP};
    for (size_t i = 0; i < COUNT(flags); i++)
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                             SCMP_A0_64(SCMP_CMP_MASKED_EQ, flags[i], flags[i])) < 0)
            return -1;
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
                            SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
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

/* What a number in one of their arguments makes of calls that everybody needs. */
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
        /* tells when somebody else opens a file of one's own: nobody else can, and leases are memory
         * that counts for nobody */
        {SCMP_SYS(fcntl), 1, F_SETLEASE},
        /* Hints of how long data will live stay with the file until it leaves the host's memory.
         * Older kernels take them for any file that is open for reading: a letter box. */
        {SCMP_SYS(fcntl), 1, F_GET_RW_HINT},
        {SCMP_SYS(fcntl), 1, F_SET_RW_HINT},
        {SCMP_SYS(fcntl), 1, F_GET_FILE_RW_HINT},
        {SCMP_SYS(fcntl), 1, F_SET_FILE_RW_HINT},
        /* keeps everybody else off the other threads of its core */
        {SCMP_SYS(prctl), 0, PR_SCHED_CORE},
        /* filters of its own are translated into memory that counts for nobody and of which the
         * machine has little, and can have the kernel log each call; see `ours` for seccomp() */
        {SCMP_SYS(prctl), 0, PR_SET_SECCOMP},
        /* numbers that the whole machine counts: who asks is seen by who asks next */
        {SCMP_SYS(getsockopt), 2, SO_COOKIE},
        {SCMP_SYS(getsockopt), 2, SO_NETNS_COOKIE},
        {SCMP_SYS(setsockopt), 2, SO_ATTACH_FILTER},
        {SCMP_SYS(setsockopt), 2, SO_ATTACH_BPF},
        {SCMP_SYS(setsockopt), 2, SO_ATTACH_REUSEPORT_CBPF},
        {SCMP_SYS(setsockopt), 2, SO_ATTACH_REUSEPORT_EBPF},
    };
    for (size_t i = 0; i < COUNT(requests); i++)
        if (seccomp_rule_add(
                context, SCMP_ACT_ERRNO(EPERM), requests[i].call, 1,
                HAS_NUMBER(requests[i].argument, requests[i].request)) < 0)
            return -1;
    return 0;
}

/* What a file system keeps of a file, beside its contents: on a file of the system it can be loaded
 * by who only reads it, and others see what is loaded. Files in memory have nothing of it. */
static int refuse_notes(scmp_filter_ctx context)
{
    static const unsigned char types[] = {'f', 'v', 'X', 0x94};
    for (size_t i = 0; i < COUNT(types); i++)
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl), 1,
                             SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, 0xff00,
                                        (scmp_datum_t)types[i] << 8)) < 0)
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
                            HAS_NUMBER(3, POSIX_FADV_DONTNEED));
}

/* Locks on parts of a file are memory that counts for nobody. Any lock on a file of the system is a
 * sign that a program in another slot can see, and one whose descriptor is sent in a circle of
 * sockets outlives the run. A run has nobody to share files with but its own processes, so the locks
 * that compilers (go build) and programs (SQLite) take succeed without being called; F_GETLK then
 * finds nothing locked. */
static int skip_locks(scmp_filter_ctx context)
{
    static const unsigned requests[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW};
    for (size_t i = 0; i < COUNT(requests); i++)
        if (seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(fcntl), 1,
                             HAS_NUMBER(1, requests[i])) < 0)
            return -1;
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(flock), 0);
}

static int add_rules(scmp_filter_ctx context)
{
    return refuse_calls(context) < 0 || refuse_namespaces(context) < 0 ||
                   refuse_sockets(context) < 0 || refuse_personalities(context) < 0 ||
                   refuse_huge_pages(context) < 0 || refuse_requests(context) < 0 ||
                   refuse_notes(context) < 0 ||
                   skip_flushes(context) < 0 || skip_evictions(context) < 0 ||
                   skip_locks(context) < 0
               ? -1
               : 0;
}

static int install_rules(struct fault *fault)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
    int result = 0;
    if (!context)
        return fault_errno(fault, "cannot start a system call filter");
    if (seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 ||
        /* A tree instead of a list: there are hundreds of calls to try it for. */
        seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0 || add_rules(context) < 0) {
        result = fault_say(fault, "cannot compile the system call filter");
    } else if ((result = seccomp_load(context)) < 0) {
        errno = -result;
        result = fault_errno(fault, "cannot install the system call filter");
    }
    seccomp_release(context);
    return result;
}

/* ---- the key ------------------------------------------------------------------ */

static uint64_t key;

/* Refused without it; clone3, which hides its flags behind a pointer, as "not implemented", which
 * makes libc fall back to clone(). */
static const uint32_t ours[] = {
    SYS_mount, SYS_umount2, SYS_move_mount, SYS_open_tree, SYS_setns, SYS_unshare, SYS_clone3,
    SYS_chroot, SYS_mount_setattr,
    /* a slot may have a core of its own; real-time priorities are refused by RLIMIT_RTPRIO */
    SYS_sched_setaffinity,
    /* the last one that is installed is this one */
    SYS_seccomp,
};

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define NUMBER offsetof(struct seccomp_data, nr)
#define ARGUMENT(i) ((uint32_t)(offsetof(struct seccomp_data, args) + (i) * sizeof(uint64_t)))
#define GIVE(value) BPF_STMT(BPF_RET | BPF_K, value)
#define IF(test, value, then, otherwise) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, then, otherwise)

/* Calls of another ABI need not be told apart: the first filter kills for them. */
static int install_key(struct fault *fault)
{
    uint32_t halves[2];
    if (getrandom(&key, sizeof key, 0) != sizeof key)
        return fault_errno(fault, "cannot make a key to the system call filter");
    memcpy(halves, &key, sizeof halves);
    const struct sock_filter rest[] = {
        GIVE(SECCOMP_RET_ALLOW),
        /* CHECK: 0 if both halves are right. */
        LOAD(ARGUMENT(5)),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, halves[0]),
        BPF_STMT(BPF_ST, 0),
        LOAD(ARGUMENT(5) + 4),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, halves[1]),
        BPF_STMT(BPF_LDX | BPF_MEM, 0),
        BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
        IF(BPF_JEQ, 0, 3, 0),
        LOAD(NUMBER),
        IF(BPF_JEQ, SYS_clone3, 2, 0),
        GIVE(SECCOMP_RET_ERRNO | EPERM),
        GIVE(SECCOMP_RET_ALLOW),
        GIVE(SECCOMP_RET_ERRNO | ENOSYS),
    };
    enum { CHECK = 1 };
    struct sock_filter code[1 + COUNT(ours) + COUNT(rest)] = {LOAD(NUMBER)};
    for (size_t i = 0; i < COUNT(ours); i++)
        code[1 + i] = (struct sock_filter)IF(BPF_JEQ, ours[i],
                                             (uint8_t)(COUNT(ours) - i - 1 + CHECK), 0);
    memcpy(code + 1 + COUNT(ours), rest, sizeof rest);
    struct sock_fprog program = {.len = COUNT(code), .filter = code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return fault_errno(fault, "cannot install the system call filter for our own calls");
    return 0;
}

int filter_enter(struct fault *fault)
{
    int result = install_rules(fault) < 0 ? -1 : install_key(fault);
    /* Every page that we keep is copied and dropped again by each run. */
    malloc_trim(0);
    return result;
}

long pass_call(long number, long a, long b, long c, long d, long e)
{
    return syscall(number, a, b, c, d, e, key);
}

int pass_mount(const char *from, const char *to, const char *type, unsigned long flags,
               const char *options)
{
    return (int)pass_call(SYS_mount, (long)from, (long)to, (long)type, (long)flags, (long)options);
}

int pass_umount(const char *path)
{
    return (int)pass_call(SYS_umount2, (long)path, MNT_DETACH, 0, 0, 0);
}
