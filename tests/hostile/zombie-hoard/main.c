#include "hostile.h"
int main(void)
{
    int dead = 0;
    pid_t pid;
    while ((pid = fork()) > 0)
        dead++;
    if (pid == 0)
        _exit(0);
    if (dead > 64)
        ESCAPED("%d children", dead);
    HELD();
    return 0;
}
