/* For each page that may be merged (KSM) the kernel's own thread keeps a record, where that runs; and
 * equal pages would tell neighbours of each other. */
#include "hostile.h"

static void work(int number)
{
    size_t size = (size_t)64 << 30;
    (void)number;
    char *space = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return;
    for (size_t at = 0; at < size; at += size / 1000)
        madvise(space + at, size / 2000, MADV_MERGEABLE);
    prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0);
}

int main(void)
{
    in_children(20, work);
    HELD();
    return 0;
}
