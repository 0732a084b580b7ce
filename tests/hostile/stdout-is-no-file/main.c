#include "hostile.h"
int main(void)
{
    char byte;
    for (int fd = 1; fd < 3; fd++) {
        MUST_FAIL(lseek(fd, 0, SEEK_SET));
        MUST_FAIL(ftruncate(fd, 0));
        MUST_FAIL(pread(fd, &byte, 1, 0));
        MUST_FAIL(fchown(fd, 0, 0));
        MUST_FAIL(fallocate(fd, 0, 0, 1 << 20));
        if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED)
            ESCAPED("mmap of stream %d", fd);
    }
    HELD();
    return 0;
}
