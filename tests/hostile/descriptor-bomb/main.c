#include "hostile.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
int main(void)
{
    int count = 0, last = 0;
    while (last >= 0 && count < 1000000) {
        int ends[2];
        last = open("/dev/null", O_RDWR);
        count += last >= 0;
        last = eventfd(0, 0);
        count += last >= 0;
        last = epoll_create1(0);
        count += last >= 0;
        last = timerfd_create(CLOCK_MONOTONIC, 0);
        count += last >= 0;
        inotify_init();
        if (pipe(ends) < 0)
            last = -1;
    }
    if (count > 5000)
        ESCAPED("%d descriptors", count);
    HELD();
    return 0;
}
