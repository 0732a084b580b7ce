/* Where reading changes the time of a shared file, the next run sees that somebody was there; a time
 * may also be set by whoever may write to the file, such as /dev/null. */
#include "hostile.h"

static void look(const char *name, int fd)
{
    char bytes[4096];
    struct stat before, after;
    if (fstat(fd, &before) < 0)
        return;
    if (S_ISDIR(before.st_mode))
        (void)!syscall(SYS_getdents64, fd, bytes, sizeof bytes);
    else
        (void)!read(fd, bytes, sizeof bytes);
    MUST_FAIL(futimens(fd, NULL));
    if (fstat(fd, &after) < 0 || memcmp(&before.st_atim, &after.st_atim, sizeof after.st_atim) ||
        memcmp(&before.st_mtim, &after.st_mtim, sizeof after.st_mtim) ||
        memcmp(&before.st_ctim, &after.st_ctim, sizeof after.st_ctim))
        ESCAPED("%s remembers that it was read", name);
}

int main(void)
{
    static const char *const names[] = {"/",         "/usr",      "/usr/bin",   "/usr/bin/tail",
                                        "/etc",      "/dev",      "/dev/null",  "/dev/zero",
                                        "/dev/full", "/dev/urandom", "/etc/passwd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int fd = open(names[i], O_RDONLY);
        if (fd >= 0)
            look(names[i], fd);
        close(fd);
        MUST_FAIL(utimensat(AT_FDCWD, names[i], NULL, 0));
    }
    look("the input", 0);
    HELD();
    return 0;
}
