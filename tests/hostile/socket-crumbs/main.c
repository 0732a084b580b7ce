/* What a message of one byte takes in the kernel is hundreds of times as much. */
#include "hostile.h"

static void work(int number)
{
    int pair[2], most = 1 << 30;
    double end = now_s() + 0.7;
    for (int i = 0; i < 2000 && now_s() < end; i++) {
        if (socketpair(AF_UNIX, (number % 2 ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_NONBLOCK, 0,
                       pair) < 0)
            break;
        for (int j = 0; j < 2; j++) {
            setsockopt(pair[j], SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
            while (send(pair[j], "x", 1, i % 2 ? MSG_OOB | MSG_NOSIGNAL : MSG_NOSIGNAL) == 1)
                ;
            while (send(pair[j], "x", 1, MSG_NOSIGNAL) == 1)
                ;
        }
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
