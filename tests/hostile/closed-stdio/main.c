#include "hostile.h"
int main(void)
{
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    if (open("/dev/zero", O_RDONLY) != 0 || open("/dev/null", O_RDWR) != 1)
        return 1;
    close(1);
    close(0);
    usleep(50000);
    return 0;
}
