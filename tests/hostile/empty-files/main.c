/* Nothing that counts as disk: inodes, names of 250 letters, records of the overlay. */
#include "hostile.h"

int main(void)
{
    static const char *const places[] = {"/tmp", "/box", "/dev/shm"};
    char path[300];
    double end = now_s() + 0.7;
    memset(path, 'e', sizeof path);
    for (int i = 0; i < 200000 && now_s() < end; i++) {
        int length = snprintf(path, sizeof path, "%s/%d-", places[i % 3], i);
        path[length] = 'e';
        path[length + 230] = 0;
        int made = i % 4 == 0   ? mkdir(path, 0700)
                   : i % 4 == 1 ? mknod(path, S_IFIFO | 0600, 0)
                   : i % 4 == 2 ? mknod(path, S_IFSOCK | 0600, 0)
                                : mknod(path, S_IFREG | 0600, 0);
        if (made < 0)
            break;
        path[length + 230] = 'e';
    }
    linger();
    HELD();
    return 0;
}
