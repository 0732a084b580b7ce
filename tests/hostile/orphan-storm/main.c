#include "hostile.h"
/* Each is reaped by init, which should not have time for anything else. */
static void storm(void)
{
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) {
            fork();
            _exit(0);
        }
        if (pid > 0)
            waitpid(pid, NULL, 0);
    }
}
int main(void)
{
    for (int i = 0; i < 6; i++)
        if (fork() == 0) {
            setsid();
            storm();
        }
    storm();
}
