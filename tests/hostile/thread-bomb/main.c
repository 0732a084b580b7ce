#include "hostile.h"
static void *stay(void *nothing)
{
    pause();
    return nothing;
}
int main(void)
{
    pthread_t thread;
    while (pthread_create(&thread, NULL, stay, NULL) == 0)
        ;
    pause();
}
