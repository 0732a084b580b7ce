#include "hostile.h"
int main(void)
{
    for (;;) {
        if (fork() == 0)
            setsid();
    }
}
