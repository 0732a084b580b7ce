#include "hostile.h"
static void *burn(void *nothing)
{
    for (volatile unsigned long i = 0;; i++)
        ;
    return nothing;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, burn, NULL);
    pthread_exit(NULL);
}
