/* A hint of how long what is written will live (F_SET_RW_HINT) stays with the file in the host's
 * memory: two bits for each file of /usr, and of the input, that any later run can read. */
#include "hostile.h"

enum { GET = 1035, SET = 1036, GET_FILE = 1037, SET_FILE = 1038 };

static void mark(const char *name, int fd)
{
    uint64_t hint = 0;
    if (fcntl(fd, GET, &hint) == 0 && hint != 0)
        ESCAPED("%s has the hint %d", name, (int)hint);
    if (fcntl(fd, GET_FILE, &hint) == 0 && hint != 0)
        ESCAPED("%s has the hint %d of an open file", name, (int)hint);
    hint = 5;
    MUST_FAIL(fcntl(fd, SET, &hint));
    MUST_FAIL(fcntl(fd, SET_FILE, &hint));
    /* the number of a request is not 32 bits only */
    MUST_FAIL(syscall(SYS_fcntl, fd, (1UL << 32) + SET, &hint));
}

int main(void)
{
    static const char *const names[] = {"/usr/bin/env", "/usr/bin", "/dev/null", "/etc/passwd",
                                        "/box/main.c", "/proc/self/exe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int fd = open(names[i], O_RDONLY);
        if (fd >= 0)
            mark(names[i], fd);
        close(fd);
    }
    mark("the input", 0);
    HELD();
    return 0;
}
