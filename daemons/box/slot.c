/* One slot: has one init after the other, each of which serves one run.
 *
 * A slot is a process of its own, with a network and a uts namespace and a read-only tree
 * that it keeps. It makes the cgroup and the init of the next run (run.c), which gets the client's
 * message itself, and takes away what is left of the last. Whatever is not a run it answers.
 *
 * Init shares the slot's memory, as a thread would: copying it, and taking the copy apart again, was
 * a tenth of what a run cost. There is no lock, because one of them always sleeps: the slot
 * from the moment it has made an init until that says that it is done, or dies. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/mount.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int slot_receive(struct slot *slot)
{
    slot->length = sizeof slot->bytes;
    slot->fd_count = DESCRIPTORS_MAX;
    slot->sender = (uid_t)-1;
    int got = receive_message_of(slot->settings->socket, slot->bytes, &slot->length, slot->fds,
                                 &slot->fd_count, 0, &slot->sender);
    if (got < 0)
        die("slot %u: cannot receive: %s", slot->settings->number, strerror(errno));
    return got;
}

void slot_answer(const struct slot *slot, struct answer *answer)
{
    memcpy(answer->magic, "OJB2", 4);
    /* If it cannot be sent the client is gone, which the next receive shows. */
    (void)send_message(slot->settings->socket, answer, sizeof *answer, NULL, 0);
}

void slot_close_descriptors(struct slot *slot)
{
    while (slot->fd_count > 0)
        close(slot->fds[--slot->fd_count]);
}

/* ---- the client's directories -------------------------------------------------- */

static void detach(struct attached *place)
{
    if (!place->mounted)
        return;
    pass_umount(place->place);
    place->mounted = false;
}

static void drop_layer(struct slot *slot)
{
    if (!slot->has_layer)
        return;
    pass_umount(TREE_LAYER);
    slot->has_layer = false;
}

/* A copy of the mount and directory behind `fd`. It can only be made by a
 * process in that mount's namespace, so init visits the client's. */
static int copy_mount(const struct slot *slot, int fd, struct fault *fault)
{
    int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (own < 0)
        return fault_errno(fault, "cannot open our mount namespace");
    if (pass_call(SYS_setns, slot->settings->host_ns, CLONE_NEWNS, 0, 0, 0) < 0) {
        close(own);
        return fault_errno(fault, "cannot visit the client's mounts");
    }
    int copy = (int)pass_call(SYS_open_tree, fd, (long)"",
                              AT_EMPTY_PATH | OPEN_TREE_CLONE | (unsigned)OPEN_TREE_CLOEXEC, 0, 0);
    int error = errno;
    if (pass_call(SYS_setns, own, CLONE_NEWNS, 0, 0, 0) < 0)
        _exit(1); /* nothing sane could follow */
    close(own);
    errno = error;
    return copy >= 0 ? copy : fault_errno(fault, "cannot copy the mount of the client's directory");
}

/* Mounts the directory behind `fd`, unless it is there already. */
static int attach(struct slot *slot, struct attached *place, int fd, struct fault *fault)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || !S_ISDIR(info.st_mode))
        return fault_say(fault, "request: the descriptor is not a directory");
    /* Whoever can name a directory can open it in a way that needs no permission, and we would show
     * it to programs. Root could read it anyway. */
    if (slot->sender != 0 && info.st_uid != slot->sender)
        return fault_say(fault, "request: the directory belongs to user %u, not to the client, who "
                                "is user %u", info.st_uid, slot->sender);
    if (place->mounted && place->device == info.st_dev && place->inode == info.st_ino)
        return 0;
    if (place == &slot->tree)
        drop_layer(slot);
    detach(place);

    int copy = copy_mount(slot, fd, fault);
    if (copy < 0)
        return -1;
    long moved = pass_call(SYS_move_mount, copy, (long)"", AT_FDCWD, (long)place->place,
                           MOVE_MOUNT_F_EMPTY_PATH);
    int error = errno;
    close(copy);
    errno = error;
    if (moved < 0)
        return fault_errno(fault, "cannot mount the client's directory");
    place->mounted = true;
    place->device = info.st_dev;
    place->inode = info.st_ino;
    return 0;
}

void slot_hide_input(struct slot *slot)
{
    struct fault fault;
    char path[32];
    int given = slot->fds[FD_STDIN];
    struct stat info;

    /* What is in memory only has no path. We open it as root: nothing that the client could not, which
     * may only have named it (O_PATH), and nothing that shows root more than others. */
    if (fstat(given, &info) < 0 || !S_ISREG(info.st_mode) || info.st_nlink == 0 ||
        (slot->sender != 0 && info.st_uid != slot->sender) ||
        (fcntl(given, F_GETFL) & (O_ACCMODE | O_PATH)) != O_RDONLY)
        return;
    off_t offset = lseek(given, 0, SEEK_CUR);
    if (offset < 0)
        return;
    int copy = copy_mount(slot, given, &fault);
    if (copy < 0)
        return;
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOATIME,
                                    .attr_clr = MOUNT_ATTR__ATIME};
    (void)pass_call(SYS_mount_setattr, copy, (long)"", AT_EMPTY_PATH, (long)&attributes,
                    sizeof attributes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    slot->fds[slot->fd_count++] = copy; /* to be closed with the others: that takes a while */
    if (opened < 0)
        return;
    if (lseek(opened, offset, SEEK_SET) == offset && dup3(opened, given, O_CLOEXEC) == given)
        close(opened);
    else
        slot->fds[slot->fd_count++] = opened;
}

int slot_mount(struct slot *slot, const struct message_head *head, struct fault *fault)
{
    if (attach(slot, &slot->tree, slot->fds[FD_TREE], fault) < 0)
        return -1;
    if (!(head->flags & RUN_DATA))
        detach(&slot->data);
    else if (attach(slot, &slot->data, slot->fds[FD_DATA], fault) < 0)
        return -1;
    if (head->flags & RUN_KEEP) {
        drop_layer(slot); /* each compile starts from the client's tree */
        return inside_mount_scratch(TREE_NEXT, head->disk_bytes, head->files, slot->settings->uid,
                                    fault);
    }
    return 0;
}

bool slot_keep_layer(struct slot *slot, bool wanted)
{
    /* A mount below a shared one cannot be moved. */
    slot->layer_bytes = wanted ? inside_measure_layer() : 0;
    slot->has_layer = wanted && pass_mount(TREE_NEXT, TREE_LAYER, NULL, MS_BIND, NULL) == 0;
    int error = errno;
    pass_umount(TREE_NEXT);
    errno = error;
    return slot->has_layer;
}

static void forget(struct slot *slot)
{
    drop_layer(slot);
    detach(&slot->tree);
    detach(&slot->data);
}

/* ---- the network ----------------------------------------------------------------- */

/* Whether /proc/net/unix lists no socket: none of ours is in this network. Sockets that hold
 * each other in messages outlive their processes until the kernel's collector comes by, with the
 * names that they are bound to; without a unix socket there is no such message. */
static bool network_is_clean(const struct slot *slot)
{
    char text[256];
    ssize_t got = pread(slot->unix_sockets, text, sizeof text, 0);
    const char *headings = got > 0 ? memchr(text, '\n', (size_t)got) : NULL;
    return headings == text + got - 1;
}

/* A /proc of our own: in the unit /proc/sys is read-only. -1: there is none. */
static int open_proc(void)
{
    int context = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC), mounted = -1;
    if (context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
    if (context >= 0)
        close(context);
    return mounted;
}

/* What a call that sends control data holds while it waits for room counts for nobody. Where each
 * network has a bound of its own for that (Linux 6.8), it is made what it was before. */
static void bound_control_data(const struct slot *slot)
{
    static const char bound[] = "20480";
    int file = openat(slot->proc, "sys/net/core/optmem_max", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return; /* the guard still looks */
    (void)!write(file, bound, sizeof bound - 1);
    close(file);
}

static int open_unix_sockets(struct slot *slot, struct fault *fault)
{
    slot->unix_sockets = openat(slot->net, "unix", O_RDONLY | O_CLOEXEC);
    return slot->unix_sockets < 0 ? fault_errno(fault, "cannot list unix sockets") : 0;
}

static void renew_network(struct slot *slot)
{
    struct fault fault;
    if (pass_call(SYS_unshare, CLONE_NEWNET, 0, 0, 0, 0) < 0)
        die("slot %u: cannot make a network namespace: %s", slot->settings->number,
            strerror(errno));
    bound_control_data(slot);
    close(slot->unix_sockets);
    if (open_unix_sockets(slot, &fault) < 0)
        die("slot %u: %s", slot->settings->number, fault.text);
}

/* ---- the next run ---------------------------------------------------------------- */

/* With a stack of its own: the last one may still be on its way out. */
static pid_t clone_init(struct slot *slot)
{
    enum { FLAGS = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_PIDFD };
#ifdef BOX_SANITIZED
    pid_t pid = (pid_t)syscall(SYS_clone, FLAGS, NULL, &slot->init_fd, NULL, NULL);
    if (pid == 0)
        _exit(run_init(slot));
    return pid;
#else
    static char stacks[2][256 * 1024] __attribute__((aligned(16)));
    static unsigned turn;
    pid_t pid = clone(run_init, stacks[turn] + sizeof stacks[turn], FLAGS | CLONE_VM, slot,
                      &slot->init_fd);
    if (pid > 0)
        turn = !turn;
    return pid;
#endif
}

static int prepare(struct slot *slot, struct fault *fault)
{
    const struct slot_settings *settings = slot->settings;
    if (!slot->has_group) {
        if (cgroup_make(settings->home, &slot->group, &slot->share, settings->number,
                        slot->serial++, fault) < 0)
            return -1;
        slot->has_group = true;
    }
    slot->init = clone_init(slot);
    if (slot->init < 0) {
        slot->init = 0;
        return fault_errno(fault, "cannot start the run's init");
    }
    return 0;
}

static int reap(pid_t pid)
{
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    return status;
}

/* It died without having said so: somebody killed it, or we did. */
static void bury_init(struct slot *slot)
{
    struct answer reply = {.kind = ANSWER_FAILED, .number = slot->number};
    int status = reap(slot->init);
    reap(slot->dying); /* whose stack is the next one's */
    slot->dying = 0;
    /* Also for a request that it had not begun with. */
    fault_say(&slot->report.fault, "the run's init died (status %#x)", (unsigned)status);
    if (!slot->running)
        return;
    slot->running = false;
    pass_umount(TREE_NEXT); /* of a compile */
    reply.fault = slot->report.fault;
    slot_answer(slot, &reply);
}

/* While it waits for the program to be executed, init can do nothing else. */
static bool is_stuck(const struct slot *slot)
{
    const uint64_t patience_ns = 30000000000ULL;
    return slot->running && !slot->started && now_ns() > slot->since_ns + patience_ns;
}

static void await_init(struct slot *slot)
{
    enum { LOOK_MS = 10000, DYING_MS = 5 };
    struct pollfd wait[2] = {{.fd = slot->done, .events = POLLIN},
                             {.fd = slot->init_fd, .events = POLLIN}};
    uint64_t times;
    while (poll(wait, 2, slot->dying > 0 ? DYING_MS : LOOK_MS) <= 0) {
        if (slot->dying > 0 && waitpid(slot->dying, NULL, __WALL | WNOHANG) != 0)
            slot->dying = 0;
        if (is_stuck(slot))
            kill(slot->init, SIGKILL);
    }
    if (read(slot->done, &times, sizeof times) == sizeof times) {
        reap(slot->dying); /* a whole run ago, so that it is dead */
        slot->dying = slot->init;
        if (slot->used && slot->kept) { /* the layer is still the upper one of its overlay */
            reap(slot->dying);
            slot->dying = 0;
        }
    } else {
        bury_init(slot);
    }
    close(slot->init_fd);
    slot->init = 0;
}

/* What the answer did not have to wait for. */
static void clear_run(struct slot *slot)
{
    if (!slot->used)
        return;
    cgroup_remove(slot->settings->home, &slot->group);
    slot->has_group = slot->used = false;
    if (!network_is_clean(slot))
        renew_network(slot);
}

/* ---- the life of a slot ---------------------------------------------------------- */

/* A process that the kernel may not kill could not be held to its memory limit. Raising
 * the score is allowed to everybody; where it is above 0 already, it may stay. */
static int setup_score(struct fault *fault)
{
    char text[16] = "";
    int score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (score < 0 || read(score, text, sizeof text - 1) < 1 ||
        (text[0] == '-' && pwrite(score, "0", 1, 0) != 1))
        return fault_errno(fault, "cannot set oom_score_adj");
    close(score);
    return 0;
}

/* A program may run wherever there is room, or has a core of its own. In the first case slot and inits
 * stay on one core: what they do is a chain of short steps, each of which wakes the next, and
 * waking another core takes as long as a step. In the second they are not held: what they do
 * meanwhile should not cost the program its time. */
static int setup_cores(struct slot *slot, struct fault *fault)
{
    const struct slot_settings *settings = slot->settings;
    cpu_set_t one;

    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof slot->cores, &slot->cores) < 0)
        return fault_errno(fault, "cannot find out which cores there are");
    if (settings->core >= 0) {
        CPU_ZERO(&slot->cores);
        CPU_SET((size_t)settings->core, &slot->cores);
        slot->cpus = 1;
        return 0;
    }
    unsigned skip = settings->number % (unsigned)CPU_COUNT(&slot->cores);
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &slot->cores) && skip-- == 0) {
            CPU_SET(core, &one);
            break;
        }
    if (sched_setaffinity(0, sizeof one, &one) < 0)
        return fault_errno(fault, "cannot stay on a core");
    return 0;
}

static int setup_slot(struct slot *slot, struct fault *fault)
{
    const struct slot_settings *settings = slot->settings;

    umask(0); /* modes are meant as they are written; programs get their own */
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* who started us may have ignored some */
    /* `systemctl kill -s USR1` drains the executor, and reaches every process of its unit:
     * a program that does not use the signal itself must not die of it. */
    signal(SIGUSR1, SIG_IGN);
    block_strays();
    if (setup_score(fault) < 0 || setup_cores(slot, fault) < 0)
        return -1;
    if (cgroup_take_share(settings->home, &slot->share, settings->number, fault) < 0 ||
        guard_open(&slot->machine, fault) < 0 || inside_set_limits(fault) < 0)
        return -1;
    /* Not the keys of who started us. Programs cannot reach any: the filter refuses the calls,
     * which is why a container that refuses ours does no harm. */
    (void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0);
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) < 0)
        return fault_errno(fault, "cannot make network and uts namespaces");
    slot->net = open("/proc/self/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (slot->net < 0)
        return fault_errno(fault, "cannot open /proc/self/net");
    slot->proc = open_proc();
    bound_control_data(slot);
    if (open_unix_sockets(slot, fault) < 0)
        return -1;
    if (sethostname("box", 3) < 0)
        return fault_errno(fault, "cannot name the box");
    if (tree_enter(settings->extra_parts, fault) < 0)
        return -1;
    /* Inherited by everything below, so a run need not do it again. */
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
            return fault_errno(fault, "cannot drop capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fault_errno(fault, "cannot set no_new_privs");
    if (filter_enter(fault) < 0)
        return -1;
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD); /* blocked, as a stray */
    slot->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    slot->children = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
    slot->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (slot->self < 0 || slot->children < 0 || slot->done < 0)
        return fault_errno(fault, "cannot watch processes");
    return 0;
}

/* What the setup used of the stack and will not be used again would be copied by every run on v2. */
static void release_stack(void)
{
    enum { KEPT = 16 * 1024, USED = 1024 * 1024 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t top = ((uintptr_t)__builtin_frame_address(0) - KEPT) & ~(page - 1);
    /* Fails where the stack ends, after it has done what there is to do. */
    (void)madvise((void *)(top - USED), USED, MADV_DONTNEED);
}

/* A message that is not for an init, or that came when there could be none. */
static void serve_message(struct slot *slot)
{
    static struct request request;
    struct answer reply = {.kind = ANSWER_FAILED};

    if (request_parse(&request, slot->bytes, slot->length, &reply.fault) < 0) {
        slot_answer(slot, &reply);
        return;
    }
    reply.number = request.head.number;
    if (slot->fd_count != request_descriptors(&request.head)) {
        fault_say(&reply.fault, "request: %d descriptors", slot->fd_count);
    } else if (request.head.kind == MESSAGE_FORGET) {
        reap(slot->dying); /* which may still hold what is to be let go */
        slot->dying = 0;
        forget(slot);
        reply.kind = ANSWER_FORGOT;
    } else if (request.head.kind == MESSAGE_RUN) {
        reply.fault = slot->report.fault;
    } else {
        return; /* a cancel that came too late */
    }
    slot_answer(slot, &reply);
}

/* One init after the other. Where one could not be had, the next is tried when somebody asks. */
static void serve(struct slot *slot)
{
    while (!slot->client_gone) {
        int received[DESCRIPTORS_MAX], count = 0;
        if (slot->init == 0 && slot->failed) {
            if (slot_receive(slot) == 0)
                return;
            slot->has_message = true;
            count = slot->fd_count;
            memcpy(received, slot->fds, sizeof received);
        }
        bool ready = slot->init != 0;
        if (!ready) {
            slot->failed = false; /* before there is an init, which may set it */
            ready = prepare(slot, &slot->report.fault) == 0;
            if (!ready)
                slot->failed = true;
        }
        while (count > 0) /* init has its own */
            close(received[--count]);
        if (ready)
            await_init(slot);
        clear_run(slot);
        if (slot->has_message && !slot->client_gone)
            serve_message(slot);
        slot->has_message = false;
    }
}

void slot_serve(const struct slot_settings *settings, int ready)
{
    struct slot *slot = mmap(NULL, sizeof *slot, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fault fault = {.text = ""};

    if (slot == MAP_FAILED)
        die("slot %u: cannot share memory: %s", settings->number, strerror(errno));
    *slot = (struct slot){.settings = settings,
                          .tree = {.place = TREE_LOWER},
                          .data = {.place = TREE_DATA},
                          .cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    if (setup_slot(slot, &fault) == 0) {
        release_stack();
        (void)prepare(slot, &fault);
    }
    if (write(ready, &fault, sizeof fault) != sizeof fault || fault.text[0])
        exit(1);
    close(ready);
    serve(slot);
    exit(0);
}
