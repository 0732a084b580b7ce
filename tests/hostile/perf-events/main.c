#include "hostile.h"
#include <linux/perf_event.h>
int main(void)
{
    for (unsigned type = 0; type < 6; type++) {
        struct perf_event_attr event = {.type = type, .size = sizeof event, .exclude_kernel = 1};
        MUST_FAIL(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
        MUST_FAIL(syscall(SYS_perf_event_open, &event, -1, 0, -1, 0));
    }
    HELD();
    return 0;
}
