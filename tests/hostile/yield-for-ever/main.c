#include "hostile.h"
int main(void)
{
    for (;;)
        sched_yield();
}
