/* Memory files that are mapped and closed: beside the limits of files and of descriptors. */
#include "hostile.h"

static void work(int number)
{
    double end = now_s() + 0.7;
    (void)number;
    for (int i = 0; i < 60000 && now_s() < end; i++) {
        int fd = (int)syscall(SYS_memfd_create, "m", 2 /* MFD_ALLOW_SEALING */);
        if (fd < 0 || ftruncate(fd, 4096) < 0)
            break;
        fcntl(fd, 1033 /* F_ADD_SEALS */, 6 /* to shrink and to grow */);
        void *at = mmap(NULL, 4096, PROT_READ, i % 2 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        close(fd);
        if (at == MAP_FAILED)
            break;
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
