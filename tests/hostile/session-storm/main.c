/* With a session comes a group of the scheduler (autogroup), a few KB for each core on nobody's
 * account, which is freed long after the process has gone. */
#include "hostile.h"

static void work(int number)
{
    double end = now_s() + 0.7;
    (void)number;
    while (now_s() < end) {
        pid_t pid = vfork();
        if (pid == 0) {
            setsid();
            _exit(0);
        }
        if (pid > 0)
            waitpid(pid, NULL, 0);
    }
}

int main(void)
{
    in_children(4, work);
    HELD();
    return 0;
}
