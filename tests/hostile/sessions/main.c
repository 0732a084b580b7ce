/* As session-storm, all of them alive at once. */
#include "hostile.h"

int main(void)
{
    for (int i = 0; i < 440; i++) {
        pid_t pid = vfork();
        if (pid < 0)
            break;
        if (pid == 0) {
            setsid();
            _exit(0); /* not reaped: its session lives on */
        }
    }
    linger();
    HELD();
    return 0;
}
