#include "hostile.h"
int main(void)
{
    for (int pid = 1; pid < 300000; pid++)
        if (pid != getpid() && kill(pid, 0) == 0)
            ESCAPED("process %d", pid);
    /* Also by way of the standard streams, whose other ends the judge holds. */
    for (int fd = 0; fd < 3; fd++) {
        fcntl(fd, F_SETOWN, 1);
        fcntl(fd, F_SETSIG, SIGKILL);
        fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
        fcntl(fd, F_SETFL, 0);
    }
    HELD();
    return 0;
}
