#include "hostile.h"
#include <sys/ptrace.h>
int main(void)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    int targets[] = {1, getppid(), child, @JUDGE_PID@};
    for (int i = 0; i < 4; i++) {
        MUST_FAIL(ptrace(PTRACE_ATTACH, targets[i], 0, 0));
        MUST_FAIL(ptrace(PTRACE_SEIZE, targets[i], 0, 0));
    }
    MUST_FAIL(ptrace(PTRACE_TRACEME, 0, 0, 0));
    HELD();
    return 0;
}
