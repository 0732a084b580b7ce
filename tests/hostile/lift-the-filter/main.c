#include "hostile.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
int main(int count, char **words)
{
    if (count > 1) { /* once more, from a program that was executed under our own filter */
        MUST_FAIL(mount("tmpfs", "/tmp", "tmpfs", 0, ""));
        MUST_FAIL(unshare(CLONE_NEWUSER));
        return 0;
    }
    struct sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {1, allow};
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    MUST_FAIL(prctl(PR_SET_SECCOMP, 0));
    MUST_FAIL(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    MUST_FAIL(mount("tmpfs", "/tmp", "tmpfs", 0, ""));
    MUST_FAIL(unshare(CLONE_NEWUSER));
    if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
        ESCAPED("there is no filter");
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", words[0], "again", NULL);
        _exit(1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0)
        return 1;
    HELD();
    return 0;
}
