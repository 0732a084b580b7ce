#include "hostile.h"
int main(void)
{
    for (;;) {
        void *block = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (block != MAP_FAILED)
            memset(block, 1, 4 << 20);
    }
}
