#include "hostile.h"
int main(void)
{
    int fd = open("/tmp/sparse", O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, (off_t)1 << 40) == 0)
        ESCAPED("ftruncate");
    if (pwrite(fd, "x", 1, (off_t)1 << 40) == 1)
        ESCAPED("pwrite");
    return 1;
}
