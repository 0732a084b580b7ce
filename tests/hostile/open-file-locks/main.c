/* As record-lock-hoard with locks that belong to an open file (F_OFD_SETLK), and one file in many
 * processes. */
#include "hostile.h"

static void work(int number)
{
    double end = now_s() + 0.7;
    for (int i = 0; i < 100 && now_s() < end; i++) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/o%d-%d", number, i);
        int fd = open(path, O_CREAT | O_RDWR, 0600);
        if (fd < 0)
            break;
        for (int at = 0; at < 4000; at += 2) {
            struct flock lock = {.l_type = F_RDLCK, .l_start = at, .l_len = 1};
            if (fcntl(fd, i % 2 ? F_OFD_SETLK : F_OFD_SETLKW, &lock) < 0)
                break;
        }
    }
}

int main(void)
{
    in_children(4, work);
    HELD();
    return 0;
}
