/* Most of what it may have, honestly counted, and beside it what is not: the sum is what the machine
 * loses. */
#include "hostile.h"

int main(void)
{
    static char entries[1 << 16];
    size_t size = 20 << 20;
    char name[256], *space = malloc(size);
    memset(space, 1, size);
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 1200; i++) {
        snprintf(name + 240, 12, "%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    for (int i = 0; i < 1000; i++) {
        int fd = open("/box", O_RDONLY | O_DIRECTORY);
        if (fd < 0)
            break;
        unlink("mine");
        close(open("mine", O_CREAT | O_WRONLY, 0600));
        if (syscall(SYS_getdents64, fd, entries, sizeof entries) <= 0)
            break;
    }
    linger();
    printf("%s", space[size - 1] ? "" : "never");
    HELD();
    return 0;
}
