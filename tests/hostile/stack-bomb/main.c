#include "hostile.h"
static int down(int depth)
{
    volatile char frame[4096];
    frame[0] = (char)depth;
    return down(depth + 1) + frame[0];
}
int main(void)
{
    return down(0);
}
