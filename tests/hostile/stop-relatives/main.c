#include "hostile.h"
int main(void)
{
    if (kill(1, SIGSTOP) == 0 || kill(1, SIGCONT) == 0)
        ESCAPED("a signal to init");
    if (fork() == 0) {
        kill(getppid(), SIGSTOP);
        kill(-1, SIGSTOP);
        raise(SIGSTOP);
    }
    for (;;)
        pause();
}
