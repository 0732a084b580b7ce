#include "hostile.h"
int main(void)
{
    /* The second run looks for what the first one left. */
    int found = 0;
    for (int pid = 3; pid < 200; pid++)
        found += kill(pid, 0) == 0;
    if (found)
        ESCAPED("%d processes of the last run are alive", found);
    if (fork() == 0) {
        setsid();
        if (fork() > 0)
            _exit(0);
        for (int i = 1; i < NSIG; i++)
            signal(i, SIG_IGN);
        for (;;)
            pause();
    }
    usleep(20000);
    HELD();
    return 0;
}
