#include "hostile.h"
int main(void)
{
    HELD();
    for (int i = 0; i < 6; i++)
        if (fork() == 0)
            for (;;) {
                pid_t pid = fork();
                if (pid > 0)
                    _exit(0); /* always another one by the time somebody looks */
            }
    return 0;
}
