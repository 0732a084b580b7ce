#include "hostile.h"
int main(void)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &all) == 0)
        ESCAPED("RLIMIT_CORE");
    prctl(PR_SET_DUMPABLE, 1);
    char *block = malloc(32 << 20);
    memset(block, 1, 32 << 20);
    abort();
}
