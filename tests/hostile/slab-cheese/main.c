/* The kernel counts objects and not the pages they are in: of all that were made one for each page is kept,
 * which keeps the page, and then the same with objects of another size. */
#include "hostile.h"

enum { EVERY = 24, MOST = 120000 };

int main(void)
{
    double end = now_s() + 1.5;
    /* mappings */
    for (int kind = 0; kind < 2 && now_s() < end; kind++) {
        static char *at[60000];
        int count = 0;
        for (; count < 60000; count++)
            if ((at[count] = mmap(NULL, 8192, count % 2 ? PROT_READ : PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) == MAP_FAILED)
                break;
        for (int i = 0; i < count; i++)
            if (i % EVERY)
                munmap(at[i], 8192);
        if (fork() == 0)
            pause();
    }
    /* messages of several sizes, each of a cache of its own */
    static const size_t sizes[] = {40, 100, 200, 450, 960, 2000, 4000};
    static char text[8192];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && now_s() < end; s++) {
        int queues[2000], many = (int)((40 << 20) / (sizes[s] + 48)), kept = 0, pages = 0;
        (void)kept;
        (void)pages;
        size_t at_once = 16384 / sizes[s];
        int of_queue = 0, made = 0;
        for (int i = 0; i < many; i++) {
            if (of_queue == 0 || i % (int)at_once == 0) {
                if (made == 2000 || (queues[made] = msgget(IPC_PRIVATE, 0600)) < 0)
                    break;
                made++;
                of_queue = 1;
            }
            *(long *)text = i % EVERY ? 1 : 2;
            if (msgsnd(queues[made - 1], text, sizes[s] - 8, IPC_NOWAIT) < 0)
                of_queue = 0;
        }
        for (int q = 0; q < made; q++)
            while (msgrcv(queues[q], text, sizeof text - 8, 1, IPC_NOWAIT) >= 0)
                ;
    }
    linger();
    HELD();
    return 0;
}
