#include "hostile.h"
int main(void)
{
    FILE *score = fopen("/proc/self/oom_score_adj", "w");
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (score)
                fputs("1000", score), fclose(score);
            for (;;) {
                char *block = malloc(1 << 20);
                if (block)
                    memset(block, 1, 1 << 20);
            }
        }
        waitpid(pid, NULL, 0);
    }
    HELD();
    return 0;
}
