/* /box is an overlay: reading a directory that has several layers makes a list of all its names in
 * kernel memory, which counts for nobody. Each open directory keeps the one that it began with, and
 * any change to the directory makes the next one begin another. */
#include "hostile.h"

int main(void)
{
    static char entries[1 << 16];
    char name[160];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 1200; i++) {
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
    linger();
    HELD();
    return 0;
}
