#include "hostile.h"
int main(void)
{
    static char bytes[32768];
    int size = 1 << 24;
    for (int i = 0; i < 2000; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
            return 1;
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        while (write(pair[0], bytes, sizeof bytes) > 0)
            ;
    }
    HELD();
    return 0;
}
