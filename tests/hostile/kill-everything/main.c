#include "hostile.h"
int main(void)
{
    int targets[] = {1, @JUDGE_PID@, @BOX_PID@};
    for (int number = 1; number < NSIG; number++) {
        signal(number, SIG_IGN);
        for (int i = 0; i < 3; i++)
            if (kill(targets[i], number) == 0 && targets[i] != getpid())
                ESCAPED("signal %d to %d", number, targets[i]);
    }
    kill(-1, SIGKILL);
    kill(-1, SIGSTOP);
    HELD();
    return 0;
}
