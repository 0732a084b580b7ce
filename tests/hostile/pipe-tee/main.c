/* splice() and tee() put pages into pipes without copying them: of files of the system, of its own
 * files that it then removes, of other pipes. */
#include "hostile.h"

static void work(int number)
{
    static char page[4096];
    double end = now_s() + 0.7;
    int before = -1;
    char path[64];
    snprintf(path, sizeof path, "/tmp/p%d", number);
    for (int i = 0; i < 1000 && now_s() < end; i++) {
        int ends[2];
        loff_t at = 0;
        if (pipe2(ends, O_NONBLOCK) < 0)
            break;
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        int file = open(i % 2 ? "/bin/bash" : path, i % 2 ? O_RDONLY : O_RDWR | O_CREAT, 0600);
        for (int j = 0; i % 2 == 0 && j < 16; j++)
            if (write(file, page, sizeof page) < 0)
                break;
        (void)!splice(file, &at, ends[1], NULL, 1 << 20, SPLICE_F_NONBLOCK);
        if (before >= 0)
            (void)!tee(before, ends[1], 1 << 20, SPLICE_F_NONBLOCK);
        unlink(path);
        close(file);
        before = ends[0];
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
