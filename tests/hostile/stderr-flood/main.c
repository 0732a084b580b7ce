#include "hostile.h"
int main(void)
{
    static char bytes[65536];
    for (;;)
        if (write(2, bytes, sizeof bytes) < 0)
            return 1;
}
