#include "hostile.h"
/* Each byte is a packet of its own in the pipe, and they have to be taken out one by one. */
int main(void)
{
    enum { PIECES = 256 };
    if (fcntl(1, F_SETPIPE_SZ, PIECES * 4096) < 0 || fcntl(1, F_SETFL, O_WRONLY | O_DIRECT) < 0)
        return 1;
    for (int i = 0; i < 8; i++)
        if (fork() == 0)
            break;
    for (;;)
        if (write(1, "a", 1) != 1)
            return 1;
}
