/* The kernel remembers each name that it did not find, in every directory of every file system, and
 * names of more than 40 letters in memory of their own. What it may drop when it likes is not meant,
 * but all that comes with it: the overlay's own records, and what it keeps of locks. */
#include "hostile.h"

static void work(int number)
{
    static const char *const places[] = {"/usr", "/box", "/tmp", "/usr/bin", "/dev/shm", "/usr/lib"};
    char path[300];
    struct stat info;
    double end = now_s() + 0.7;
    memset(path, 'x', sizeof path);
    for (int i = 0; now_s() < end; i++) {
        int length = snprintf(path, sizeof path, "%s/%d-%d-", places[i % 6], number, i);
        path[length] = 'x';
        path[length + 200] = 0;
        stat(path, &info);
        path[length + 200] = 'x';
    }
}

int main(void)
{
    in_children(2, work);
    HELD();
    return 0;
}
