#include "hostile.h"
/* Each call puts 256 pieces of a byte into the pipe, which have to be taken out one by one. */
int main(void)
{
    enum { PIECES = 256 };
    int ends[2];
    if (pipe2(ends, O_DIRECT) < 0 || fcntl(ends[1], F_SETPIPE_SZ, PIECES * 4096) < 0 ||
        fcntl(1, F_SETPIPE_SZ, PIECES * 4096) < 0)
        return 1;
    for (int i = 0; i < PIECES; i++)
        if (write(ends[1], "a", 1) != 1)
            return 1;
    for (int i = 0; i < 8; i++)
        if (fork() == 0)
            break;
    for (;;)
        if (tee(ends[0], 1, PIECES, 0) < 0)
            return 1;
}
