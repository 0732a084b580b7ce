#include "hostile.h"
int main(void)
{
    int resources[] = {RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_NPROC, RLIMIT_MEMLOCK,
                       RLIMIT_CPU, RLIMIT_NICE, RLIMIT_RTPRIO, RLIMIT_STACK};
    for (size_t i = 0; i < sizeof resources / sizeof *resources; i++) {
        struct rlimit now, more = {RLIM_INFINITY, RLIM_INFINITY};
        if (getrlimit(resources[i], &now) < 0)
            return 1;
        if (setrlimit(resources[i], &more) == 0)
            ESCAPED("limit %d", resources[i]);
        more.rlim_cur = more.rlim_max = now.rlim_max + 1;
        if (setrlimit(resources[i], &more) == 0)
            ESCAPED("limit %d by one", resources[i]);
        MUST_FAIL(prlimit(1, resources[i], &now, NULL));
    }
    HELD();
    return 0;
}
