#include "hostile.h"
/* Everything that could make the input writable. The next run checks what it reads. */
int main(void)
{
    char line[100] = "";
    if (!fgets(line, sizeof line, stdin) || strcmp(line, "the input of the test\n") != 0)
        ESCAPED("the input is now %s", line);
    MUST_FAIL(ftruncate(0, 0));
    MUST_FAIL(fallocate(0, 0, 0, 1 << 20));
    MUST_FAIL(fchmod(0, 0777));
    MUST_FAIL(fchown(0, getuid(), getgid()));
    MUST_FAIL(write(0, "forged", 6));
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 0) != MAP_FAILED)
        ESCAPED("a writable mapping");
    int fd = open("/proc/self/fd/0", O_RDWR);
    if (fd >= 0) {
        MUST_FAIL(write(fd, "forged", 6));
        MUST_FAIL(pwrite(fd, "forged", 6, 0));
        MUST_FAIL(ftruncate(fd, 0));
        MUST_FAIL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
        if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
            ESCAPED("a writable mapping by way of /proc");
    }
    fd = open("/proc/self/fd/0", O_WRONLY | O_TRUNC);
    if (fd >= 0 && write(fd, "forged", 6) > 0)
        ESCAPED("truncated by way of /proc");
    fd = open("/proc/self/fd/0", O_WRONLY | O_APPEND);
    if (fd >= 0 && write(fd, "forged", 6) > 0)
        ESCAPED("appended by way of /proc");
    HELD();
    return 0;
}
