#include "hostile.h"
int main(void)
{
    HELD();
    if (fork() == 0) {
        setsid();
        for (;;) {
            usleep(1000);
            if (write(1, " ", 1) < 0)
                _exit(0);
        }
    }
    return 0;
}
