#include "hostile.h"
#include <linux/sched.h>
static void try_clone(unsigned long flag)
{
    pid_t pid = (pid_t)syscall(SYS_clone, flag | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        ESCAPED("clone %#lx", flag);
    struct clone_args how = {.flags = flag, .exit_signal = SIGCHLD};
    pid = (pid_t)syscall(SYS_clone3, &how, sizeof how);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        ESCAPED("clone3 %#lx", flag);
}
int main(void)
{
    unsigned long flags[] = {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWIPC,
                             CLONE_NEWUTS, CLONE_NEWCGROUP, 0x7e020000};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        MUST_FAIL(unshare((int)flags[i]));
        try_clone(flags[i]);
    }
    MUST_FAIL(unshare(0x80)); /* of time */
    const char *names[] = {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        int fd = open(path, O_RDONLY);
        MUST_FAIL(setns(fd, 0));
        if (fd >= 0 && ioctl(fd, 0xb702) >= 0) /* NS_GET_PARENT */
            ESCAPED("the parent of %s", names[i]);
    }
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    MUST_FAIL(setns(fd, CLONE_NEWNS | CLONE_NEWPID));
    HELD();
    return 0;
}
