/* The guard of one slot leaves out what the kernel counts for the run in another, which has pages of pipes
 * in it on v1, of which the machine's numbers tell nothing: who fills pipes in one slot hides as much
 * that nobody counts in the other. */
#include "hostile.h"

static void fill_pipes(double until)
{
    static char bytes[1 << 20];
    int ends[2];
    usleep(290000); /* the other has begun */
    for (int i = 0; i < 58 && pipe2(ends, O_NONBLOCK) == 0; i++) {
        usleep(4000);
        int size = fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        if (size > 0 && write(ends[1], bytes, (size_t)size) < 0)
            break;
    }
    while (now_s() < until)
        usleep(10000);
}

static void keep_listings(void)
{
    static char entries[1 << 16];
    char name[160];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 2000; i++) {
        snprintf(name + 140, 12, "%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    close(open("one", O_CREAT | O_WRONLY, 0600));
    usleep(300000);
    for (int i = 0; i < 200; i++) {
        int fd = open("/box", O_RDONLY | O_DIRECTORY);
        if (fd < 0 || syscall(SYS_getdents64, fd, entries, sizeof entries) <= 0)
            break;
        rename(i % 2 ? "two" : "one", i % 2 ? "one" : "two");
    }
}

int main(void)
{
    double until = now_s() + 1.5;
    if (getuid() % 2) {
        fill_pipes(until);
    } else {
        keep_listings();
        linger();
    }
    HELD();
    return 0;
}
