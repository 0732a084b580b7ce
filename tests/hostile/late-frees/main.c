/* Timers, events, watches, sockets and files that are closed at once: the kernel frees many of them
 * when all cores have come by (RCU), so that there are ever more of them. */
#include "hostile.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static void work(int number)
{
    double end = now_s() + 0.7;
    while (now_s() < end)
        for (int i = 0; i < 500; i++) {
            int pair[2];
            switch (number % 4) {
            case 0:
                close(timerfd_create(CLOCK_MONOTONIC, 0));
                break;
            case 1:
                close(epoll_create1(0));
                break;
            case 2:
                if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0) {
                    close(pair[0]);
                    close(pair[1]);
                }
                break;
            default:
                close((int)syscall(SYS_pidfd_open, getpid(), 0));
                close((int)syscall(SYS_memfd_create, "m", 0));
            }
        }
}

int main(void)
{
    in_children(4, work);
    HELD();
    return 0;
}
