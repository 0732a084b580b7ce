#include "hostile.h"
int main(void)
{
    char path[32];
    for (int i = 0; i < 200000; i++) {
        snprintf(path, sizeof path, "/tmp/%d", i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        if (fd < 0)
            return 1;
        close(fd);
    }
    ESCAPED("200000 files");
    return 0;
}
