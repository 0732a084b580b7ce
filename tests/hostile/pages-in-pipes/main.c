/* As pages-of-devices, in pipes alone. */
#include "hostile.h"

static void work(int number)
{
    int zero = open("/dev/zero", O_RDONLY);
    double end = now_s() + 0.7;
    (void)number;
    for (int i = 0; i < 1000 && now_s() < end; i++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK) < 0)
            break;
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        while (splice(zero, NULL, ends[1], NULL, 1 << 20, SPLICE_F_NONBLOCK) > 0)
            ;
    }
}

int main(void)
{
    in_children(30, work);
    HELD();
    return 0;
}
