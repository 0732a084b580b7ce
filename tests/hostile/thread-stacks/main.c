/* 16 KB of kernel stack and as much again of what a thread needs, for hardly any memory of its own. */
#include "hostile.h"

static void *wait_long(void *argument)
{
    pause();
    return argument;
}

int main(void)
{
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i < 880; i++)
        if (pthread_create(&thread, &small, wait_long, NULL) != 0)
            break;
    linger();
    HELD();
    return 0;
}
