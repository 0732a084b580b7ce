/* Targets of up to 128 bytes are in kernel memory of nobody's; longer ones in pages of the disk. */
#include "hostile.h"

int main(void)
{
    static const char *const places[] = {"/tmp", "/box", "/dev/shm"};
    char path[64], target[128];
    double end = now_s() + 0.7;
    memset(target, 't', sizeof target);
    target[126] = 0;
    for (int i = 0; i < 100000 && now_s() < end; i++) {
        snprintf(path, sizeof path, "%s/s%d", places[i % 3], i);
        if (symlink(target, path) < 0)
            break;
    }
    linger();
    HELD();
    return 0;
}
