/* oj-box: runs programs that nobody trusts.
 *
 * Theory of operation
 * -------------------
 * oj-box is a fork server: the executor starts it once, as root, before it
 * drops its own privileges, and asks it for runs over sockets. Forking from a
 * small C process is what makes a run cheap, and a process that never shared
 * the executor's memory or files has none of its secrets to give away.
 *
 *   executor (Python, unprivileged)
 *     | control socket: closes when the executor dies
 *     | one SOCK_SEQPACKET socket per slot: requests with descriptors, answers
 *   main (root)                        this file
 *     +-- slot 0 (root)                slot.c: own net, uts, mount namespace
 *     |     +-- init (root, pid 1)     run.c: per run; fresh pid, mount, ipc
 *     |           +-- program (pid 2)  inside.c: the slot's uid, the run's cgroup; no mounts
 *     +-- slot 1 ...
 *
 * main finds the cgroup hierarchies, sweeps what a killed predecessor left,
 * starts the slots, hands their sockets to the executor and then only waits:
 * for the end of the control socket, or of a slot. A slot runs one program at
 * a time: it makes an init for each. Init builds the run's own mounts, receives the
 * request, starts the program as pid 2, holds it to its limits, reaps, kills what the
 * program leaves behind, and answers.
 *
 * Ahead of time: most runs come after a pause, when everything is slow, so whatever
 * does not depend on the request is done when the run before has been answered, and
 * the first time at start. Each slot has one init waiting, in pid, mount and ipc
 * namespaces that nobody has been in, with an empty tmpfs and a cgroup of its own.
 * It serves one run and dies with it. It was cloned from the slot, not from the last
 * init, so it has nothing of the last run; and it fits any request, because the
 * directories of the client are mounted below /.oj/shared, which all mount namespaces of
 * a slot have in common, and stay there until they are forgotten. A request then costs
 * the overlay and a fork, and a remount if its tmpfs is to be of another size than the last.
 * A waiting init that dies is replaced.
 *
 * Init has namespaces and descriptors of its own but shares the slot's memory, and so does
 * the program's process until it is executed: nothing is copied (slot.c). They never work at
 * the same time, and stay on one core, because waking another costs more than most steps.
 *
 * Kept between runs of a slot: the network namespace, as long as no socket is left
 * in it (slot.c), the uts namespace, the read-only tree, the system
 * call filter (filter.c), and on v1 the cgroup that counts processor time (cgroup.c).
 *
 * The program sees the mounts of its init, because it keeps its root directory, but is in
 * another mount namespace, which is empty, and at the top of a cgroup namespace of its own: /proc
 * then has nothing to tell of what is around it.
 *
 * /box is an overlay: below, read-only, the executor's directory, what compile
 * left behind (the layer, a tmpfs that the slot keeps), and a data directory;
 * on top a fresh tmpfs of the size of the disk limit, which also holds /tmp and
 * /dev/shm (a compile has two: its /tmp is not kept). The layer counts for the memory of the
 * runs that see it. Nothing a program writes reaches the host's disks, and nothing it
 * writes is seen by the next run, except the layer of a compile.
 *
 * Limits: memory and processes by the run's cgroup, cpu time from the cgroup's
 * account by a timer, wall time by a timer, output by counting what comes
 * through the pipes (never stored beyond the limit), disk by the size of the
 * tmpfs. Which limit was hit is decided from the kernel's counters. When the kernel
 * kills one process of a run for memory, the whole run ends. What the kernel keeps for a
 * program without counting it for a cgroup is seen in what the machine's kernel holds; a run
 * during which that grows beyond the limit ends, too (guard.c).
 *
 * Signals: what `systemctl kill` sends to a whole unit means nothing to a slot and is
 * blocked here; programs get a clean mask. SIGUSR1, which drains the executor, they
 * start with ignored.
 *
 * Ends: init ends a run by SIGKILL to everything in its pid namespace. A slot that dies takes its
 * init along, whose namespace dies with it, and main its slots (PR_SET_PDEATHSIG);
 * when the control socket closes, main does that itself and removes the
 * cgroups. Whatever SIGKILL of main leaves is an empty cgroup, swept later.
 *
 * Faults: `die` and struct fault are ours: they never become a verdict. What
 * the program does wrong is an exit code, a signal or a limit. Whether there was a
 * program that could be executed is told apart from an exit code of 126 or 127. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "Usage: oj-box serve --socket FD [--slots N] [--first-uid UID] [--pin] [--part DIR]...\n"
    "       oj-box run [--time 1s] [--wall 3s] [--memory 256M] [--processes 64]\n"
    "                  [--output 64M] [--disk 64M] [--files 4096] [--dir DIR]\n"
    "                  [--env NAME=VALUE]... [--part DIR]... [--uid UID] [--json]\n"
    "                  -- COMMAND [ARGUMENT]...\n"
    "       oj-box check\n"
    "       oj-box --help | --version\n"
    "\n"
    "serve  is for oj-executor. run tries one program by hand, with DIR (default: the\n"
    "current directory) as its /box. check proves that every limit bites on this machine.\n"
    "See oj-box(8).\n";

/* ---- slots ------------------------------------------------------------------ */

/* Not those that end us, that tell of our own mistakes, or that a terminal sends. */
static sigset_t find_strays(void)
{
    static const int meant[] = {SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGSEGV, SIGBUS, SIGILL,
                                SIGFPE, SIGTRAP, SIGSYS,  SIGTSTP, SIGTTIN, SIGTTOU};
    sigset_t strays;
    sigfillset(&strays);
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        sigdelset(&strays, meant[i]);
    return strays;
}

void block_strays(void)
{
    sigset_t strays = find_strays();
    sigprocmask(SIG_SETMASK, &strays, NULL);
}

static int start_slot(struct box *box, const struct slot_settings *common, unsigned number,
                      uid_t uid, int core, struct fault *fault)
{
    int pair[2], ready[2], yes = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) < 0 ||
        pipe2(ready, O_CLOEXEC) < 0)
        return fault_errno(fault, "cannot make sockets for slot %u", number);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return fault_errno(fault, "cannot start slot %u", number);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        for (unsigned i = 0; i < number; i++)
            close(box->sockets[i]);
        cgroup_unlock(&box->home);
        close(pair[0]);
        close(ready[0]);
        struct slot_settings settings = *common;
        settings.number = number;
        settings.uid = uid;
        settings.socket = pair[1];
        settings.core = core;
        slot_serve(&settings, ready[1]);
    }
    close(pair[1]);
    close(ready[1]);
    box->sockets[number] = pair[0];
    box->pids[number] = pid;
    box->slots = number + 1;
    ssize_t got = read(ready[0], fault, sizeof *fault);
    close(ready[0]);
    if (got != (ssize_t)sizeof *fault)
        return fault_say(fault, "slot %u died while starting", number);
    return fault->text[0] ? -1 : 0;
}

/* The core of each slot, if there is one for each and one more for everything else:
 * on a machine that is full anyway, programs held to a core would wait for it while
 * another idles. Counted from the end, because interrupts like to go to the first. */
static int core_of(unsigned slot, unsigned slots)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) < 0 || (unsigned)CPU_COUNT(&cores) <= slots)
        return -1;
    for (int core = CPU_SETSIZE - 1; core >= 0; core--)
        if (CPU_ISSET((size_t)core, &cores) && slot-- == 0)
            return core;
    return -1;
}

int box_open(struct box *box, unsigned slots, uid_t first_uid, bool pin, char *const *extra_parts,
             struct fault *fault)
{
    memset(box, 0, sizeof *box);
    if (geteuid() != 0)
        return fault_say(fault, "must be started as root");
    /* Orphaned inits come to us, so that we can wait until the last is gone. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return fault_errno(fault, "cannot become a subreaper");
    struct slot_settings common = {.home = &box->home,
                                   .host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC),
                                   .empty_ns = tree_make_empty(fault),
                                   .extra_parts = extra_parts};
    int result = common.empty_ns < 0 ? -1 : 0;
    if (common.host_ns < 0)
        result = fault_errno(fault, "cannot open the mount namespace");
    if (result == 0 && (result = cgroup_open_home(&box->home, slots, fault)) == 0) {
        for (unsigned i = 0; i < slots && result == 0; i++)
            result = start_slot(box, &common, i, first_uid + i, pin ? core_of(i, slots) : -1,
                                fault);
        if (result < 0)
            box_close(box);
    }
    close(common.host_ns);
    close(common.empty_ns);
    return result;
}

void box_close(struct box *box)
{
    for (unsigned i = 0; i < box->slots; i++)
        if (box->pids[i] > 0)
            kill(box->pids[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    cgroup_close_home(&box->home);
}

/* ---- serve --------------------------------------------------------------------- */

/* Forgets a slot that ended by itself. False: it should not have. */
static bool reap_slots(struct box *box)
{
    int status;
    pid_t pid;
    bool fine = true;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (unsigned i = 0; i < box->slots; i++)
            if (box->pids[i] == pid) {
                box->pids[i] = 0;
                if (status != 0) {
                    fprintf(stderr, "oj-box: slot %u died (status %#x)\n", i, (unsigned)status);
                    fine = false;
                }
            }
    return fine;
}

/* Returns when the control socket closes, we are told to stop, or a slot dies. */
static bool supervise(struct box *box, int control, int signals)
{
    for (;;) {
        struct pollfd wait[2] = {{.fd = control, .events = POLLIN},
                                 {.fd = signals, .events = POLLIN}};
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            return false;
        if (wait[0].revents) {
            char byte;
            ssize_t got = recv(control, &byte, 1, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                return true;
        }
        if (wait[1].revents) {
            struct signalfd_siginfo info;
            if (read(signals, &info, sizeof info) != sizeof info)
                continue;
            if (info.ssi_signo == SIGTERM)
                return true;
            if (!reap_slots(box))
                return false;
        }
    }
}

static int serve(int control, unsigned slots, uid_t first_uid, bool pin, char *const *extra_parts)
{
    static struct box box;
    struct answer hello = {.magic = "OJB2", .kind = ANSWER_READY, .number = slots};
    sigset_t wanted;

    /* Not one of the terminal's foreground processes: the executor decides. */
    setsid();
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    block_strays();
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    int signals = signalfd(-1, &wanted, SFD_CLOEXEC);
    if (signals < 0)
        die("cannot receive signals: %s", strerror(errno));
    if (fcntl(control, F_SETFD, FD_CLOEXEC) < 0)
        die("descriptor %d is not open", control);

    if (pin && core_of(0, slots) < 0)
        fprintf(stderr, "oj-box: too few cores to give each of %u slots its own\n", slots);
    if (box_open(&box, slots, first_uid, pin, extra_parts, &hello.fault) < 0) {
        hello.kind = ANSWER_FAILED;
        (void)send_message(control, &hello, sizeof hello, NULL, 0);
        die("%s", hello.fault.text);
    }
    int sent = send_message(control, &hello, sizeof hello, box.sockets, (int)slots);
    for (unsigned i = 0; i < slots; i++)
        close(box.sockets[i]);
    bool fine = sent == 0 && supervise(&box, control, signals);
    box_close(&box);
    return fine ? 0 : 1;
}

static unsigned long parse_number(const char *text, unsigned long least, unsigned long most,
                                  const char *what)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno || end == text || *end || number < least || number > most)
        die("%s must be from %lu to %lu", what, least, most);
    return number;
}

static int serve_main(int argc, char **argv)
{
    static const struct option options[] = {{"socket", required_argument, NULL, 's'},
                                            {"slots", required_argument, NULL, 'n'},
                                            {"first-uid", required_argument, NULL, 'u'},
                                            {"pin", no_argument, NULL, 'c'},
                                            {"part", required_argument, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    static char *extra_parts[PARTS_MAX + 1];
    unsigned long control = 0, slots = 1, first_uid = 64100;
    bool pin = false;
    int option;
    size_t extras = 0;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 's':
            control = parse_number(optarg, 3, 1 << 20, "--socket");
            break;
        case 'n':
            slots = parse_number(optarg, 1, SLOTS_MAX, "--slots");
            break;
        case 'u':
            first_uid = parse_number(optarg, 1000, 2000000000, "--first-uid");
            break;
        case 'c':
            pin = true;
            break;
        case 'p':
            if (extras == PARTS_MAX)
                die("--part: at most %d", PARTS_MAX);
            extra_parts[extras++] = optarg;
            break;
        default:
            fputs(usage, stderr);
            return 2;
        }
    if (!control || optind != argc) {
        fputs(usage, stderr);
        return 2;
    }
    return serve((int)control, (unsigned)slots, (uid_t)first_uid, pin, extra_parts);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "serve") == 0)
        return serve_main(argc - 1, argv + 1);
    if (strcmp(verb, "run") == 0)
        return shell_run(argc, argv);
    if (strcmp(verb, "check") == 0)
        return shell_check(argc, argv);
    if (strcmp(verb, "--version") == 0) {
        puts("oj-box " BOX_VERSION);
        return 0;
    }
    bool help = strcmp(verb, "--help") == 0;
    fputs(usage, help ? stdout : stderr);
    return help ? 0 : 2;
}
