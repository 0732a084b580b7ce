/* Every pair of an epoll descriptor and what it watches is an object, and it may be watched twice
 * under the two numbers of dup(). */
#include "hostile.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static void work(int number)
{
    int watchers[64], watched[128];
    double end = now_s() + 0.7;
    (void)number;
    for (int i = 0; i < 64; i++)
        watchers[i] = epoll_create1(0);
    watched[0] = eventfd(0, 0);
    for (int i = 1; i < 128; i++)
        watched[i] = dup(watched[0]);
    for (int i = 0; i < 64 && now_s() < end; i++)
        for (int j = 0; j < 128; j++) {
            struct epoll_event event = {.events = EPOLLIN};
            epoll_ctl(watchers[i], EPOLL_CTL_ADD, watched[j], &event);
        }
}

int main(void)
{
    in_children(30, work);
    HELD();
    return 0;
}
