/* A mapping keeps its file open when the descriptor is closed, so that the limit of descriptors says
 * nothing of how many are open; and with it what hangs on an open file: flock() and leases. */
#include "hostile.h"
#include <sys/file.h>

static void work(int number)
{
    double end = now_s() + 0.7;
    char path[64];
    snprintf(path, sizeof path, "/tmp/m%d", number);
    for (int i = 0; i < 30000 && now_s() < end; i++) {
        int fd = open(path, O_CREAT | O_RDONLY, 0600);
        if (fd < 0)
            break;
        flock(fd, LOCK_SH);
        fcntl(fd, F_SETLEASE, F_RDLCK);
        fcntl(fd, F_SETSIG, SIGUSR2);
        fcntl(fd, F_SETOWN, getpid());
        if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
            break;
        close(fd);
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
