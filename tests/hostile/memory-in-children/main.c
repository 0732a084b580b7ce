#include "hostile.h"
int main(void)
{
    for (int i = 0; i < 16; i++)
        if (fork() == 0) {
            char *block = malloc(8 << 20);
            memset(block, 1, 8 << 20);
            pause();
        }
    while (wait(NULL) > 0)
        ;
    HELD();
    return 0;
}
