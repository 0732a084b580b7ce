#include "hostile.h"

/* Each process takes every page out of a page table of its own, and the page tables fit into the
 * limit: this is the largest part of what a run can leave to do. */
int main(void)
{
    enum { PROCESSES = 300 };
    size_t size = 200 << 20;
    int ready[2];
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(ready) < 0)
        return 1;
    memset(shared, 1, size);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 2;
        if (pid == 0) {
            unsigned sum = 0;
            for (size_t at = 0; at < size; at += 4096)
                sum += *(volatile char *)(shared + at);
            if (write(ready[1], sum ? "1" : "0", 1) == 1)
                for (;;)
                    pause();
            _exit(1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1)
            return 3;
    }
    HELD();
    return 0; /* and all that is left to die with it */
}
