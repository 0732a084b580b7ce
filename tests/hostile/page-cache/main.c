#include "hostile.h"
static long total;
static long take(const char *path)
{
    static char bytes[1 << 16];
    long got;
    if (total > 100 << 20)
        return -1;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -1;
    while ((got = read(fd, bytes, sizeof bytes)) > 0 && total < 100 << 20)
        total += got;
    close(fd);
    return 0;
}
int main(void)
{
    walk("/usr/lib/gcc", 8, take);
    walk("/usr/bin", 2, take);
    if (total < 32 << 20)
        return 1; /* it would have proved nothing */
    HELD();
    return 0;
}
