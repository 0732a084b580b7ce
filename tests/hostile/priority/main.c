#include "hostile.h"
int main(void)
{
    struct sched_param parameter = {.sched_priority = 1};
    MUST_FAIL(sched_setscheduler(0, SCHED_FIFO, &parameter));
    MUST_FAIL(sched_setscheduler(0, SCHED_RR, &parameter));
    uint64_t deadline[6] = {48 | (uint64_t)6 << 32, 0, 0, 1000000, 2000000, 2000000};
    MUST_FAIL(syscall(SYS_sched_setattr, 0, deadline, 0));
    MUST_FAIL(setpriority(PRIO_PROCESS, 0, -1));
    MUST_FAIL(setpriority(PRIO_PROCESS, 1, 19));
    MUST_FAIL(syscall(SYS_ioprio_set, 1, 0, 1 << 13));
    MUST_FAIL(syscall(SYS_ioprio_set, 1, 1, 3 << 13));
    int fd = open("/proc/self/autogroup", O_WRONLY);
    if (fd >= 0)
        MUST_FAIL(write(fd, "-20", 3));
    HELD();
    return 0;
}
