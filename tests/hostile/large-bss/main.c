#include "hostile.h"
static char array[1900000000];
int main(void)
{
    for (size_t i = 0; i < sizeof array; i += 4096)
        array[i] = 1;
    ESCAPED("%d", array[4096]);
    return 0;
}
