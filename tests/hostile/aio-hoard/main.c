#include "hostile.h"
int main(void)
{
    unsigned long context = 0;
    MUST_FAIL(syscall(SYS_io_setup, 60000, &context));
    context = 0;
    MUST_FAIL(syscall(SYS_io_setup, 1, &context));
    HELD();
    return 0;
}
