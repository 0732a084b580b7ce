#include "hostile.h"
static void heard(int number)
{
    ESCAPED("signal %d from another run", number);
}
int main(void)
{
    signal(SIGUSR1, heard);
    for (double start = now_s(); now_s() < start + 0.3;)
        for (int pid = 1; pid < 70000; pid++)
            if (pid != getpid() && kill(pid, SIGUSR1) == 0)
                ESCAPED("process %d", pid);
    HELD();
    return 0;
}
