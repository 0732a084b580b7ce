#include "hostile.h"
static void *wait_for_pipe(void *nothing)
{
    int ends[2];
    char byte;
    if (pipe(ends) == 0 && read(ends[0], &byte, 1) == 1)
        abort();
    return nothing;
}
static void *wait_for_futex(void *nothing)
{
    pthread_mutex_t twice = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&twice);
    pthread_mutex_lock(&twice);
    return nothing;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_pipe, NULL);
    pthread_create(&thread, NULL, wait_for_futex, NULL);
    if (vfork() == 0)
        for (;;)
            poll(NULL, 0, -1);
    return 1;
}
