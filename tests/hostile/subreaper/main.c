#include "hostile.h"
int main(void)
{
    if (fork() == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (int i = 0; i < 10; i++)
            if (fork() == 0) {
                setsid();
                if (fork() > 0)
                    _exit(0);
                pause();
            }
        pause();
    }
    usleep(50000);
    HELD();
    return 0;
}
