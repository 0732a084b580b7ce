/* A page of a file of the system that a run is the first to read counts for its cgroup, which the
 * kernel then keeps, with all its counters for each core, until the page goes: one for each run. */
#include "hostile.h"
#include <sys/uio.h>

static int is_cached(int fd, off_t at)
{
    char byte;
    struct iovec place = {&byte, 1};
    return preadv2(fd, &place, 1, at, RWF_NOWAIT) == 1;
}

static long visit(const char *path)
{
    struct stat info;
    char byte;
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return -1;
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (off_t at = 0; at < info.st_size; at += 1 << 20)
        if (!is_cached(fd, at)) {
            (void)!pread(fd, &byte, 1, at);
            HELD();
            _exit(0);
        }
    close(fd);
    return 0;
}

int main(void)
{
    walk("/usr/share", 6, visit);
    walk("/usr/lib", 6, visit);
    HELD();
    return 0;
}
