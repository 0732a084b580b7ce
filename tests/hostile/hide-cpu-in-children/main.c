#include "hostile.h"
int main(void)
{
    for (;;) {
        if (fork() == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
            double start = now_s();
            while (now_s() < start + 0.003)
                ;
            _exit(0);
        }
        wait(NULL);
        usleep(1000);
    }
}
