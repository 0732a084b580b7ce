#include "hostile.h"
int main(void)
{
    long total = 0;
    const char *places[] = {"/tmp", "/box", "/dev/shm"};
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 300; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/f%d", places[i % 3], i);
        int fd = open(path, O_CREAT | O_RDWR, 0600);
        for (int mode = 0; mode < 2; mode++)
            if (fallocate(fd, mode, 0, 1 << 20) == 0)
                total += 1 << 20;
        close(fd);
    }
    if (total > 2 * (8 << 20))
        ESCAPED("%ld bytes reserved", total);
    HELD();
    return 0;
}
