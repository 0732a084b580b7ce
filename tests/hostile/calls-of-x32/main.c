#include "hostile.h"
int main(void)
{
#ifdef __x86_64__
    long result = syscall(0x40000000 + 39);
    ESCAPED("x32 getpid returned %ld", result);
    return 0;
#else
    return 1;
#endif
}
