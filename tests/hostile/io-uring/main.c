#include "hostile.h"
int main(void)
{
    char parameters[120] = {0};
    MUST_FAIL(syscall(SYS_io_uring_setup, 8, parameters));
    MUST_FAIL(syscall(SYS_io_uring_setup, 1, NULL));
    MUST_FAIL(syscall(SYS_io_uring_enter, 0, 1, 1, 0, NULL, 0));
    MUST_FAIL(syscall(SYS_io_uring_register, 0, 0, NULL, 0));
    HELD();
    return 0;
}
