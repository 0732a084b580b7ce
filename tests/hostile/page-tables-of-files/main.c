/* One page of a file of the system in each of many far places: a page table for each, and no memory
 * of its own at all. */
#include "hostile.h"

static void work(int number)
{
    int fd = open("/usr/bin/env", O_RDONLY);
    double end = now_s() + 0.7;
    char *at = (char *)((uintptr_t)(1 + number) << 40);
    long sum = 0;
    for (int i = 0; i < 30000 && now_s() < end; i++, at += 2 << 20) {
        volatile char *page = mmap(at, 4096, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
        if (page == MAP_FAILED)
            break;
        sum += *page;
    }
    if (sum == 42)
        puts("");
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
