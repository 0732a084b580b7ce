/* As listings-hoard, faster than anything that looks from time to time: all cores at work, long
 * names, and descriptors of many processes. */
#include "hostile.h"

static void work(int number)
{
    static char entries[1 << 16];
    char mine[64];
    snprintf(mine, sizeof mine, "/box/mine-%d", number);
    for (int i = 0; i < 100; i++) {
        int fd = open("/box", O_RDONLY | O_DIRECTORY);
        if (fd < 0)
            break;
        unlink(mine);
        close(open(mine, O_CREAT | O_WRONLY, 0600));
        if (syscall(SYS_getdents64, fd, entries, sizeof entries) <= 0)
            break;
    }
}

int main(void)
{
    char name[256];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 1200; i++) {
        snprintf(name + 240, 12, "%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    in_children(12, work);
    HELD();
    return 0;
}
