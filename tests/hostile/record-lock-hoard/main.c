/* Each byte that is locked alone is an object of the kernel's (232 bytes) that counts for nobody, and
 * no number bounds them: 77 MB in 0.7 s. */
#include "hostile.h"

int main(void)
{
    double end = now_s() + 1;
    for (int i = 0; i < 200 && now_s() < end; i++) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/l%d", i);
        int fd = open(path, O_CREAT | O_RDWR, 0600);
        if (fd < 0)
            break;
        /* every second byte, or neighbours would become one lock */
        for (int at = 0; at < 4000; at += 2) {
            struct flock lock = {.l_type = F_WRLCK, .l_start = at, .l_len = 1};
            if (fcntl(fd, F_SETLK, &lock) < 0)
                break;
        }
    }
    linger();
    HELD();
    return 0;
}
