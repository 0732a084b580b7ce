#include "hostile.h"
int main(void)
{
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            break;
    for (;;)
        if (write(1, "a", 1) < 0 || write(2, "b", 1) < 0)
            return 1;
}
