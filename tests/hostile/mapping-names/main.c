/* A name of 80 bytes for every second page (PR_SET_VMA_ANON_NAME): kernel memory of nobody's, where
 * the kernel has such names. */
#include "hostile.h"

static void work(int number)
{
    size_t page = 4096, count = 66000;
    double end = now_s() + 0.7;
    char name[80];
    char *space = mmap(NULL, count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED)
        return;
    memset(name, 'n', sizeof name);
    name[79] = 0;
    for (size_t i = 0; i < count && now_s() < end; i++) {
        snprintf(name + 60, 19, "%d-%zu", number, i);
        if (prctl(0x53564d41 /* PR_SET_VMA */, 0, space + i * page, page, name) < 0)
            break;
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
