#include "hostile.h"
int main(void)
{
    MUST_FAIL(syscall(SYS_userfaultfd, 0));
    MUST_FAIL(syscall(SYS_userfaultfd, 1));
    MUST_FAIL(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1));
    MUST_FAIL(open("/dev/userfaultfd", O_RDWR));
    HELD();
    return 0;
}
