#include "hostile.h"
int main(void)
{
    const char *places[] = {"/usr", "/etc", "/box", "/tmp"};
    for (int i = 0; i < 4; i++) {
        int fd = open(places[i], O_RDONLY | O_DIRECTORY);
        MUST_FAIL(syncfs(fd));
    }
    MUST_FAIL(syscall(SYS_sync));
    /* A good answer for nothing at all: the kernel was not asked. */
    if (fsync(-1) != 0 || fdatasync(-1) != 0 || msync(NULL, 4096, MS_SYNC) != 0)
        ESCAPED("can flush the disks of the host");
    if (msync(NULL, 4096, MS_ASYNC) == 0)
        ESCAPED("is not told what is mapped");
    int fd = open("/tmp/file", O_CREAT | O_RDWR, 0600);
    if (write(fd, "x", 1) != 1 || fsync(fd) != 0)
        return 1;
    HELD();
    return 0;
}
