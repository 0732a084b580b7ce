#include "hostile.h"
int main(void)
{
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    for (;;) {
        int fd = memfd_create("bomb", 0);
        if (fd < 0)
            return 1;
        for (int i = 0; i < 8; i++)
            if (write(fd, block, sizeof block) < 0)
                return 1;
    }
}
