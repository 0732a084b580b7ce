#include "hostile.h"
int main(void)
{
    MUST_FAIL(open("/dev/tty", O_RDWR));
    MUST_FAIL(open("/dev/ptmx", O_RDWR));
    for (int fd = 0; fd < 3; fd++) {
        MUST_FAIL(ioctl(fd, TIOCSTI, "x"));
        MUST_FAIL(ioctl(fd, TIOCSCTTY, 1));
        MUST_FAIL(ioctl(fd, 0x541c, "\2")); /* TIOCLINUX */
        if (isatty(fd))
            ESCAPED("stream %d is a terminal", fd);
    }
    HELD();
    return 0;
}
