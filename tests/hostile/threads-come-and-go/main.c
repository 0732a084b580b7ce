/* No attack. The kernel no longer counts the stack of a thread that has ended, and frees it only when
 * all cores have looked away. Nothing may come of it for an honest program. */
#include "hostile.h"

static void *end_at_once(void *argument)
{
    return argument;
}

int main(void)
{
    const size_t size = 32 << 20;
    double until = now_s() + 0.6;
    char *array = malloc(size);
    memset(array, 1, size);
    while (now_s() < until) {
        pthread_t threads[50];
        int count = 0;
        while (count < 50 && pthread_create(&threads[count], NULL, end_at_once, NULL) == 0)
            count++;
        while (count > 0)
            pthread_join(threads[--count], NULL);
    }
    if (array[size / 2] == 1)
        HELD();
    return 0;
}
