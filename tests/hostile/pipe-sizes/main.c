/* A pipe has a table of its size before anything is in it. */
#include "hostile.h"

static void work(int number)
{
    int ends[2];
    (void)number;
    for (int i = 0; i < 2000 && pipe2(ends, O_NONBLOCK) == 0; i++)
        for (int size = 1 << 20; size >= 4096 && fcntl(ends[1], F_SETPIPE_SZ, size) < 0; size /= 2)
            ;
}

int main(void)
{
    in_children(30, work);
    HELD();
    return 0;
}
