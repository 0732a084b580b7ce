#include "hostile.h"
#include <sys/uio.h>
static int is_cached(int fd)
{
    char byte;
    struct iovec place = {&byte, 1};
    return preadv2(fd, &place, 1, 0, RWF_NOWAIT) == 1;
}
int main(void)
{
    char bytes[65536];
    const char *files[] = {"/usr/bin/perl", "/usr/bin/find", "/usr/bin/diff", "/usr/bin/tar"};
    for (int i = 0; i < 4; i++) {
        int fd = open(files[i], O_RDONLY);
        while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0)
            ;
        if (fd < 0 || !is_cached(fd))
            continue; /* not there, or of a file system that does not tell */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (!is_cached(fd))
            ESCAPED("dropped %s", files[i]);
        close(fd);
    }
    /* A good answer for nothing at all: the kernel was not asked. */
    if (posix_fadvise(-1, 0, 0, POSIX_FADV_DONTNEED) != 0)
        ESCAPED("may drop files");
    HELD();
    return 0;
}
