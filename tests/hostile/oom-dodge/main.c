#include "hostile.h"
int main(void)
{
    const char *scores[] = {"-1000", "-500", "-1"};
    for (int i = 0; i < 3; i++) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);
        if (fd >= 0 && write(fd, scores[i], strlen(scores[i])) > 0)
            ESCAPED("oom_score_adj %s", scores[i]);
        close(fd);
    }
    for (;;) {
        char *block = malloc(1 << 20);
        if (block)
            memset(block, 1, 1 << 20);
    }
}
