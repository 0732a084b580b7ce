/* POSIX timers, armed far in the future, each with a signal set aside for it. */
#include "hostile.h"

static void work(int number)
{
    timer_t timer;
    struct itimerspec day = {.it_value = {86400 + number, 0}, .it_interval = {1, 0}};
    double end = now_s() + 0.7;
    for (int i = 0; i < 10000 && now_s() < end; i++) {
        struct sigevent event = {.sigev_notify = i % 2 ? SIGEV_SIGNAL : SIGEV_NONE,
                                 .sigev_signo = SIGRTMIN};
        if (timer_create(i % 3 ? CLOCK_MONOTONIC : CLOCK_REALTIME, &event, &timer) < 0)
            break;
        timer_settime(timer, 0, &day, NULL);
    }
}

int main(void)
{
    in_children(16, work);
    HELD();
    return 0;
}
