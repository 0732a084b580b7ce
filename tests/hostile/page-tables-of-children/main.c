/* The zero page in a gigabyte of places: 2 MB of page tables, which each fork copies. */
#include "hostile.h"

static void work(int number)
{
    (void)number;
}

int main(void)
{
    size_t size = (size_t)2 << 30;
    volatile char *space = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return 1;
    madvise((void *)space, size, MADV_NOHUGEPAGE);
    space[0] = 1; /* so that the kernel copies instead of leaving it to faults */
    madvise((void *)space, size, 22 /* MADV_POPULATE_READ */);
    in_children(60, work);
    HELD();
    return 0;
}
