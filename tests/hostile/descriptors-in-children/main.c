/* The open file is counted, what a timer, an event, a signal or an epoll descriptor has behind it is
 * not, and each process has a table of its own. */
#include "hostile.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static void work(int number)
{
    sigset_t all;
    struct itimerspec hour = {.it_value = {3600, 0}};
    sigfillset(&all);
    for (int i = 0, fd = 0; fd >= 0 && i < 5000; i++) {
        fd = (i + number) % 4 == 0   ? eventfd(1, 0)
             : (i + number) % 4 == 1 ? epoll_create1(0)
             : (i + number) % 4 == 2 ? signalfd(-1, &all, 0)
                                     : timerfd_create(CLOCK_MONOTONIC, 0);
        if ((i + number) % 4 == 3)
            timerfd_settime(fd, 0, &hour, NULL);
    }
}

int main(void)
{
    in_children(30, work);
    HELD();
    return 0;
}
