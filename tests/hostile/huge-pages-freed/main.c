/* No attack. Pages on their way from a program to the free ones count for nobody, and the kernel frees
 * tens of megabytes of huge pages in one go. Nothing may come of it for an honest program that uses
 * most of what it may. */
#include "hostile.h"

int main(void)
{
    const size_t huge = 2 << 20, size = 48 << 20;
    double until = now_s() + 0.8;
    while (now_s() < until) {
        char *all = mmap(NULL, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED)
            return 3;
        char *array = (char *)(((uintptr_t)all + huge - 1) & ~(uintptr_t)(huge - 1));
        madvise(array, size, MADV_HUGEPAGE);
        for (size_t i = 0; i < size; i += 4096)
            array[i] = 1;
        munmap(all, size + huge);
    }
    HELD();
    return 0;
}
