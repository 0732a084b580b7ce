/* Of a file of a lower layer that is removed something stays in the upper one; a directory in its
 * place carries an attribute that the overlay sets itself, where programs may set none. */
#include "hostile.h"

int main(void)
{
    char path[300], entries[4096];
    double end = now_s() + 0.7;
    memset(path, 'w', sizeof path);
    unlink("/box/main.c");
    for (int i = 0; i < 100000 && now_s() < end; i++) {
        int length = snprintf(path, sizeof path, "/box/%d-", i);
        path[length] = 'w';
        path[length + 200] = 0;
        if (mkdir(path, 0700) < 0)
            break;
        int fd = open(path, O_RDONLY | O_DIRECTORY);
        (void)!syscall(SYS_getdents64, fd, entries, sizeof entries);
        close(fd);
        if (i % 2) {
            rmdir(path);
            close(open(path, O_CREAT | O_WRONLY, 0600));
            unlink(path);
            mkdir(path, 0700);
        }
        path[length + 200] = 'w';
    }
    linger();
    HELD();
    return 0;
}
