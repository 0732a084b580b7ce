#include "hostile.h"
int main(void)
{
    size_t step = 2 << 20, size = (size_t)64 << 30;
    volatile char *space = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return 1;
    madvise((void *)space, size, MADV_NOHUGEPAGE);
    long sum = 0;
    for (size_t at = 0; at < size; at += step)
        sum += space[at];
    printf("%ld\n", sum);
    return 0;
}
