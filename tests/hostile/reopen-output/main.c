/* /dev/stdout and /dev/stderr are the judge's pipes: to write to, and nothing else. */
#include "hostile.h"

int main(void)
{
    static const char *const names[] = {"/dev/stdout", "/dev/stderr", "/proc/self/fd/1", "/dev/fd/2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        MUST_FAIL(open(names[i], O_RDONLY | O_NONBLOCK));
        MUST_FAIL(open(names[i], O_RDWR | O_NONBLOCK));
        MUST_FAIL(chmod(names[i], 0666));
        MUST_FAIL(utimensat(AT_FDCWD, names[i], (struct timespec[2]){{1, 0}, {1, 0}}, 0));
    }
    for (int fd = 1; fd < 3; fd++) {
        MUST_FAIL(fchmod(fd, 0666));
        MUST_FAIL(fchown(fd, getuid(), getgid()));
        MUST_FAIL(fcntl(fd, F_SETLEASE, F_RDLCK));
    }
    HELD();
    return 0;
}
