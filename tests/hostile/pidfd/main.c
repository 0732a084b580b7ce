#include "hostile.h"
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
int main(void)
{
    int targets[] = {1, @JUDGE_PID@, @BOX_PID@};
    for (int i = 0; i < 3; i++) {
        int fd = (int)syscall(SYS_pidfd_open, targets[i], 0);
        if (fd < 0)
            continue;
        for (int number = 1; number < NSIG; number++)
            MUST_FAIL(syscall(SYS_pidfd_send_signal, fd, number, NULL, 0));
        for (int other = 0; other < 20; other++)
            MUST_FAIL(syscall(SYS_pidfd_getfd, fd, other, 0));
        MUST_FAIL(syscall(SYS_process_mrelease, fd, 0));
    }
    HELD();
    return 0;
}
