/* A set of 32,000 semaphores is 2 MB of the kernel's from one call. */
#include "hostile.h"

int main(void)
{
    double end = now_s() + 0.7;
    for (int i = 0; i < 2000 && now_s() < end; i++)
        if (semget(IPC_PRIVATE, 32000, IPC_CREAT | 0600) < 0)
            break;
    linger();
    HELD();
    return 0;
}
