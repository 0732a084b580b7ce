/* Other rights for every second page: 65,530 mappings for each process, with the tree that finds
 * them, moved about by mremap(). */
#include "hostile.h"

static void work(int number)
{
    size_t page = 4096, count = 66000;
    double end = now_s() + 0.7;
    char *space = mmap(NULL, count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED)
        return;
    for (size_t i = 0; i < count && now_s() < end; i += 2)
        if (mprotect(space + i * page, page, number % 2 ? PROT_READ : PROT_READ | PROT_EXEC) < 0)
            break;
    mremap(space, page, page, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, NULL);
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
