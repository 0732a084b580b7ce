/* Whom the kernel shall tell of a file (F_SETOWN, O_ASYNC) it keeps in memory of its own for each file,
 * and mappings hold more files than descriptors do. */
#include "hostile.h"

static void work(int number)
{
    double end = now_s() + 1.6;
    char path[32];
    snprintf(path, sizeof path, "/tmp/f%d", number);
    for (int i = 0; i < 60000 && now_s() < end; i++) {
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        if (ftruncate(fd, 4096) < 0)
            break;
        fcntl(fd, F_SETOWN, getpid());
        fcntl(fd, F_SETSIG, SIGRTMIN);
        mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_SHARED, fd, 0);
        close(fd);
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
