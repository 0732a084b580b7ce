/* One slot: takes one message after the other from its client and serves it.
 *
 * A slot is a process of its own, with a network and a uts namespace and a
 * read-only tree that it keeps, so its code is straight: receive, run, answer.
 * Into that tree it mounts the client's directories and what a compile left. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* See tree.c. */
int mount(const char *, const char *, const char *, unsigned long, const void *);
int umount2(const char *, int);
enum { DETACH = 2 /* MNT_DETACH */ };

static void answer(const struct slot *slot, struct answer *answer)
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
    umount2(place->place, DETACH);
    place->mounted = false;
}

static void drop_layer(struct slot *slot)
{
    if (!slot->has_layer)
        return;
    umount2(TREE_LAYER, DETACH);
    slot->has_layer = false;
}

/* A copy of the mount and directory behind `fd`. It can only be made by a
 * process in that mount's namespace, so we visit the client's. */
static int copy_mount(const struct slot *slot, int fd, struct fault *fault)
{
    if (setns(slot->settings->host_ns, CLONE_NEWNS) < 0)
        return fault_errno(fault, "cannot visit the client's mounts");
    int copy = (int)syscall(SYS_open_tree, fd, "",
                            AT_EMPTY_PATH | OPEN_TREE_CLONE | (unsigned)OPEN_TREE_CLOEXEC);
    int error = errno;
    if (setns(slot->own_ns, CLONE_NEWNS) < 0)
        die("cannot return to our own mounts"); /* nothing sane could follow */
    errno = error;
    return copy >= 0 ? copy : fault_errno(fault, "cannot copy the mount of the client's directory");
}

/* Mounts the directory behind `fd`, unless it is there already. */
static int attach(struct slot *slot, struct attached *place, int fd, struct fault *fault)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || !S_ISDIR(info.st_mode))
        return fault_say(fault, "request: the descriptor is not a directory");
    if (place->mounted && place->device == info.st_dev && place->inode == info.st_ino)
        return 0;
    if (place == &slot->tree)
        drop_layer(slot);
    detach(place);

    int copy = copy_mount(slot, fd, fault);
    if (copy < 0)
        return -1;
    int moved = (int)syscall(SYS_move_mount, copy, "", AT_FDCWD, place->place,
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
    slot->has_layer = wanted && mount(TREE_NEXT, TREE_LAYER, NULL, MS_BIND, NULL) == 0;
    int error = errno;
    umount2(TREE_NEXT, DETACH);
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

/* Whether /proc/net/unix lists no socket but the one with this inode. Sockets that hold
 * each other in messages outlive their processes until the kernel's collector comes by, with the
 * names that they are bound to; without a unix socket there is no such message. */
static bool network_is_clean(const struct slot *slot, ino_t peer)
{
    char text[1024];
    ssize_t got = pread(slot->unix_sockets, text, sizeof text - 1, 0);
    if (got <= 0 || got == sizeof text - 1)
        return false;
    text[got] = 0;
    char *line = strchr(text, '\n'); /* after the headings */
    while (line && *++line) {
        unsigned long inode;
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu", &inode) != 1 || inode != peer)
            return false;
        line = strchr(line, '\n');
    }
    return true;
}

static int open_unix_sockets(struct slot *slot, struct fault *fault)
{
    slot->unix_sockets = openat(slot->net, "unix", O_RDONLY | O_CLOEXEC);
    return slot->unix_sockets < 0 ? fault_errno(fault, "cannot list unix sockets") : 0;
}

int slot_renew_network(struct slot *slot, ino_t peer, struct fault *fault)
{
    if (network_is_clean(slot, peer))
        return 0;
    if (unshare(CLONE_NEWNET) < 0)
        return fault_errno(fault, "cannot make a network namespace");
    close(slot->unix_sockets);
    return open_unix_sockets(slot, fault);
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
    if (setup_score(fault) < 0)
        return -1;
    if (cgroup_take_share(settings->home, &slot->share, settings->number, fault) < 0 ||
        inside_set_limits(fault) < 0)
        return -1;
    /* Not the keys of who started us. Programs cannot reach any: the filter refuses the calls,
     * which is why a container that refuses ours does no harm. */
    (void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0);
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) < 0)
        return fault_errno(fault, "cannot make network and uts namespaces");
    slot->net = open("/proc/self/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (slot->net < 0)
        return fault_errno(fault, "cannot open /proc/self/net");
    if (open_unix_sockets(slot, fault) < 0)
        return -1;
    if (sethostname("box", 3) < 0)
        return fault_errno(fault, "cannot name the box");
    if (tree_enter(settings->extra_parts, &slot->own_ns, fault) < 0)
        return -1;
    /* Inherited by everything below, so a run need not do it again. */
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
            return fault_errno(fault, "cannot drop capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fault_errno(fault, "cannot set no_new_privs");
    if (filter_enter(fault) < 0)
        return -1;
    slot->report = mmap(NULL, sizeof *slot->report, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slot->report == MAP_FAILED)
        return fault_errno(fault, "cannot share memory");
    return run_prepare(slot, fault);
}

/* What the setup used of the stack and will not be used again would be copied by every run. */
static void release_stack(void)
{
    enum { KEPT = 16 * 1024, USED = 1024 * 1024 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t top = ((uintptr_t)__builtin_frame_address(0) - KEPT) & ~(page - 1);
    /* Fails where the stack ends, after it has done what there is to do. */
    (void)madvise((void *)(top - USED), USED, MADV_DONTNEED);
}

/* False: the client is gone. */
static bool serve_message(struct slot *slot, const char *bytes, size_t length)
{
    static struct request request;
    struct answer reply = {.kind = ANSWER_FAILED};

    if (request_parse(&request, bytes, length, &reply.fault) < 0) {
        answer(slot, &reply);
        return true;
    }
    reply.number = request.head.number;
    if (slot->fd_count != request_descriptors(&request.head)) {
        fault_say(&reply.fault, "request: %d descriptors", slot->fd_count);
        answer(slot, &reply);
        return true;
    }
    switch (request.head.kind) {
    case MESSAGE_RUN:
        return run_serve(slot, &request, bytes, length, answer);
    case MESSAGE_FORGET:
        forget(slot);
        reply.kind = ANSWER_FORGOT;
        answer(slot, &reply);
        break;
    case MESSAGE_CANCEL: /* came too late: the answer is on its way */
        break;
    }
    return true;
}

void slot_serve(const struct slot_settings *settings, int ready)
{
    static char bytes[MESSAGE_MAX_BYTES];
    struct slot slot = {.settings = settings,
                        .tree = {.place = TREE_LOWER},
                        .data = {.place = TREE_DATA},
                        .cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    struct fault fault = {.text = ""};
    bool served = true;

    (void)setup_slot(&slot, &fault);
    release_stack();
    if (write(ready, &fault, sizeof fault) != sizeof fault || fault.text[0])
        exit(1);
    close(ready);
    while (served) {
        size_t length = sizeof bytes;
        slot.fd_count = DESCRIPTORS_MAX;
        int got = receive_message(settings->socket, bytes, &length, slot.fds, &slot.fd_count, 0);
        if (got < 0)
            die("slot %u: cannot receive: %s", settings->number, strerror(errno));
        served = got > 0 && serve_message(&slot, bytes, length);
        slot_close_descriptors(&slot);
    }
    exit(0);
}
