/* Blocked real-time signals wait in the kernel with what was sent along, one object each. */
#include "hostile.h"

static void work(int number)
{
    sigset_t all;
    double end = now_s() + 0.7;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int i = 0; i < 20000 && now_s() < end; i++)
        if (sigqueue(getpid(), SIGRTMIN + i % 30, (union sigval){.sival_int = number}) < 0)
            break;
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
