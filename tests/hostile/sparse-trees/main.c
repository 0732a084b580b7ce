/* A page at an offset of its own takes up to five nodes of 576 bytes in the tree that finds it, and a
 * hole that is punched leaves nodes behind. */
#include "hostile.h"

int main(void)
{
    char path[64];
    double end = now_s() + 0.7;
    struct rlimit size;
    getrlimit(RLIMIT_FSIZE, &size);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 20000 && now_s() < end; i++) {
        snprintf(path, sizeof path, "%s/t%d", i % 2 ? "/tmp" : "/dev/shm", i);
        int fd = i % 4 ? open(path, O_CREAT | O_RDWR, 0600)
                       : (int)syscall(SYS_memfd_create, "t", 0);
        if (fd < 0 || ftruncate(fd, (off_t)1 << 42) < 0)
            (void)!ftruncate(fd, (off_t)size.rlim_cur);
        char *at = mmap(NULL, (size_t)1 << 42, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            continue;
        /* Not beyond what the file is: that would be a signal. */
        off_t most = lseek(fd, 0, SEEK_END);
        for (int j = 0; j < 8; j++)
            madvise(at + (most / 8 * j & ~4095L), 4096, 23 /* MADV_POPULATE_WRITE */);
        close(fd);
    }
    linger();
    HELD();
    return 0;
}
