#include "hostile.h"
int main(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    int targets[] = {1, @JUDGE_PID@, @BOX_PID@};
    for (int i = 0; i < 3; i++) {
        MUST_FAIL(sched_setaffinity(targets[i], sizeof one, &one));
        struct sched_param parameter = {0};
        MUST_FAIL(sched_setscheduler(targets[i], SCHED_IDLE, &parameter));
    }
    unsigned long nodes = 1;
    void *block = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST_FAIL(syscall(SYS_mbind, block, 4096, 2, &nodes, 64, 0));
    MUST_FAIL(syscall(SYS_set_mempolicy, 2, &nodes, 64));
    MUST_FAIL(syscall(SYS_migrate_pages, 1, 64, &nodes, &nodes));
    MUST_FAIL(syscall(SYS_move_pages, 1, 0, NULL, NULL, NULL, 0));
    HELD();
    return 0;
}
