#include "hostile.h"
int main(void)
{
    long result = 0;
#ifdef __x86_64__
    /* 26 is ptrace there; 20, getpid, would already do. */
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
#else
    return 1;
#endif
    ESCAPED("int 0x80 returned %ld", result);
    return 0;
}
