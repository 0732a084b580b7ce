#include "hostile.h"
int main(void)
{
    static char bytes[4096];
    for (int i = 0; i < 2000; i++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK) < 0)
            return 1;
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        while (write(ends[1], bytes, sizeof bytes) > 0)
            ;
    }
    HELD();
    return 0;
}
