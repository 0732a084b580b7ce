#include "hostile.h"
#include <sys/uio.h>
int main(void)
{
    char bytes[64];
    struct iovec here = {bytes, sizeof bytes}, there = {(void *)0x400000, sizeof bytes};
    int targets[] = {1, getppid(), @JUDGE_PID@, @BOX_PID@};
    for (int i = 0; i < 4; i++) {
        MUST_FAIL(process_vm_readv(targets[i], &here, 1, &there, 1, 0));
        MUST_FAIL(process_vm_writev(targets[i], &here, 1, &there, 1, 0));
        MUST_FAIL(syscall(SYS_kcmp, getpid(), targets[i], 0, 0, 0));
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", targets[i]);
        MUST_FAIL(open(path, O_RDONLY));
        MUST_FAIL(open(path, O_RDWR));
    }
    HELD();
    return 0;
}
